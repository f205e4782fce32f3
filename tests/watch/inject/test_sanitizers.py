"""The library, the stand-ins and a host program under the sanitizers: no race, no bad access, no undefined result."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from factories.attaching import Attached, RunningProgram, run_attacher, use_built
from factories.pythons import VERSIONS, python_of
from factories.sanitizers import OPTIONS, SANITIZERS, UNOPTIMIZED, works
from factories.stand_in import COMPILER, SOURCES, StandIn
from factories.waiting import wait_until
from factories.watched_folders import read_folder
from factories.woken import Woken
from stallprobes.native.layouts.attaching import ControlState
from stallprobes.native.layouts.watch_file import SLOTS
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.folder_lock import FolderLock

CASES = (
    ("threads", "8", "300"),
    ("short-threads", str(SLOTS + 200), "3", "10"),
    ("records", "2000"),
    ("threads-of-steps", "20", "8"),
    ("deep", "100"),
    ("threads-of-short-steps", "300", "8"),
    ("fork-steps", "3"),
    ("fork-short-steps", "200"),
    ("copies",),
    ("fork",),
    ("exec",),
    ("exit-hung",),
    ("close-descriptors",),
)
# The search for leaks takes locks of the allocator, which another thread may have held when the process was forked.
FORKED_OPTIONS = OPTIONS | {"ASAN_OPTIONS": OPTIONS["ASAN_OPTIONS"] + ":detect_leaks=0"}


@pytest.fixture(scope="module", params=list(SANITIZERS))
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """The stand-ins and the library with one of the sanitizers."""
    flags = SANITIZERS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    if COMPILER is None or not works(COMPILER, flags, folder):
        pytest.skip(f"no compiler with the {request.param} sanitizer")
    return StandIn.build(folder / "built", (*flags, *UNOPTIMIZED), programs=("host", "ranges", "profiler", "attached"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_no_sanitizer_finds_anything(sanitized: StandIn, tmp_path: Path, case: tuple[str, ...]) -> None:
    settings = FORKED_OPTIONS if case[0].startswith("fork") else OPTIONS
    outcome = sanitized.run(tmp_path / "out", *case, settings=settings)
    assert outcome.returncode == (7 if case == ("exit-hung",) else 0), outcome.errors
    assert "Sanitizer" not in outcome.errors
    assert "runtime error" not in outcome.errors
    assert sum(process.calls for process in outcome.processes) > 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "program", [("slow_steps.py", "steps"), ("slow_steps.py", "thread"), ("named_threads.py", "late")], ids=" ".join
)
def test_no_sanitizer_finds_anything_in_a_python_program(
    sanitized: StandIn, tmp_path: Path, version: str, program: tuple[str, str]
) -> None:
    """The interpreter itself is built without the sanitizer, whose library it therefore loads first."""
    python = python_of(version)
    runtime = "libtsan.so" if "thread" in str(sanitized.folder.parent.name) else "libasan.so"
    found = subprocess.run(
        [str(COMPILER), f"-print-file-name={runtime}"], capture_output=True, text=True
    ).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip(f"no {runtime}")
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    settings = FORKED_OPTIONS | {"LD_PRELOAD": found}
    name, case = program
    done = subprocess.run(
        [python, str(SOURCES.parent / name), str(sanitized.folder / "libcuda.so.1"), case],
        env=sanitized.environment(folder, settings=settings), input="\n\n", capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    (process,) = read_folder(folder).processes
    assert process.calls > 0


@pytest.mark.parametrize(
    "case", ["ranges", "threads", "started", "started-many", "started-in-threads", "steps", "forked"]
)
def test_no_sanitizer_finds_anything_in_ranges(sanitized: StandIn, tmp_path: Path, case: str) -> None:
    settings = OPTIONS | {"ASAN_OPTIONS": OPTIONS["ASAN_OPTIONS"] + ":detect_leaks=0"}
    outcome = sanitized.run(tmp_path / "out", case, program="ranges", settings=settings)
    assert outcome.returncode == 0, outcome.errors
    assert "Sanitizer" not in outcome.errors


def test_no_sanitizer_finds_anything_when_cupti_is_given_up(sanitized: StandIn, tmp_path: Path) -> None:
    options = WatchOptions(yield_to_profiler=True)
    outcome = sanitized.run(tmp_path / "out", program="profiler", options=options, settings=OPTIONS)
    assert outcome.returncode == 0, outcome.errors
    assert outcome.output.startswith("0\n1 record")
    assert "Sanitizer" not in outcome.errors


def test_no_sanitizer_finds_anything_while_records_go_on_and_off(sanitized: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    program = sanitized.start(folder, "steps-until-stopped", "100", options=WatchOptions(), settings=OPTIONS)
    try:
        # On a machine without a CPU for the switch, records stay off.
        wait_until(
            lambda: any(len(one.windows) >= 3 or one.not_held for one in read_folder(folder).processes), "three windows"
        )
    finally:
        program.terminate()
        _, errors = program.communicate()
    assert program.returncode == 0, errors
    assert "Sanitizer" not in errors


@pytest.mark.parametrize("words", ["poll", "epoll blocked handler", "select storm"])
def test_no_sanitizer_finds_anything_while_a_program_is_attached(
    sanitized: StandIn, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """The attacher has the sanitizer too: what it writes to its output would be no answer."""
    use_built(sanitized, monkeypatch)
    # The sanitizer has alternate stacks too, and frees what it takes for its own. Its search for leaks interrupts
    # calls.
    options = {**FORKED_OPTIONS, "ASAN_OPTIONS": f"{FORKED_OPTIONS['ASAN_OPTIONS']}:use_sigaltstack=0"}
    monkeypatch.setattr(os, "environ", {**os.environ, **options})
    # A callback may last longer than its recording, and write to what has its place in memory: no lock orders that. So
    # the program that is looked at for races ends while it is recorded.
    detaches = "address" in str(sanitized.folder)
    with RunningProgram(sanitized, *words.split(), settings=options) as program:
        for _ in range(3 if detaches else 1):
            attached = Attached(program.pid)
            before = program.launches()
            wait_until(lambda before=before: program.launches() > before + 200, "launches")  # type: ignore[misc]
            if detaches:
                attached.detach()
            (process,) = attached.contents().processes
            assert process.calls > 0
            program.launches()
        code, output, errors = program.end()
        attached.detach()
    Attached.close_all()
    assert "Sanitizer" not in errors
    assert "runtime error" not in errors
    assert (code, output) == (0, ""), errors


@pytest.mark.parametrize("words", [("poll",), ("epoll", "several")], ids=" ".join)
def test_no_sanitizer_finds_anything_while_it_is_woken(sanitized: StandIn, words: tuple[str, ...]) -> None:
    options = {**FORKED_OPTIONS, "ASAN_OPTIONS": f"{FORKED_OPTIONS['ASAN_OPTIONS']}:use_sigaltstack=0"}
    # As where a program is attached: a callback may last longer than its recording.
    detaches = "address" in str(sanitized.folder)
    with Woken(sanitized, *words, settings=options) as program:
        # The first time, and a later one.
        for _ in range(2 if detaches else 1):
            assert program.wake() is ControlState.AWAKE
            program.recorded(200)
            if detaches:
                assert program.put_to_sleep() is ControlState.ASLEEP
        code, output, errors = program.end()
    assert "Sanitizer" not in errors
    assert "runtime error" not in errors
    assert (code, output) == (0, ""), errors


def test_no_sanitizer_finds_anything_where_a_folder_is_abandoned(sanitized: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    lock = FolderLock.create(folder)
    program = sanitized.start(folder, "steps-until-stopped", "100", settings=OPTIONS)
    try:
        wait_until(lambda: any(one.calls > 200 for one in read_folder(folder).processes), "calls")
        if "address" in str(sanitized.folder):
            lock.release()
            wait_until(lambda: not folder.exists(), "no folder")
    finally:
        program.terminate()
        _, errors = program.communicate()
        lock.release()
    assert program.returncode == 0, errors
    assert "Sanitizer" not in errors


def test_no_sanitizer_finds_anything_in_a_killed_attacher(sanitized: StandIn) -> None:
    with RunningProgram(sanitized, "poll", settings=OPTIONS) as program:
        for steps in (5, 9, 12, 20, 26):
            environment = {**OPTIONS, "STALLSCOPE_ATTACH_STEPS": str(steps)}
            done = run_attacher(sanitized, program.pid, settings=environment)
            assert "Sanitizer" not in done.stderr
            program.launches()
        assert program.end()[0] == 0
