"""Call stacks of slow calls in programs beside the stand-ins, compiled and Python ones.

On a busy machine a stack takes longer, so that the next call may have none; the first one of a process always has.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from factories.pythons import VERSIONS, full_version, python_of
from factories.stand_in import COMPILER, SOURCES, Outcome, StandIn
from factories.waiting import undisturbed
from stallprobes.native.layouts import watch_file as layout
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.map_reader import MapFile, watch_files
from stallprobes.watch.reading.process import LoadedModule, WatchedProcess
from stallprobes.watch.reading.stack_reader import StackReader
from stallprobes.watch.sentences import call_text, frame_text, site_text

PROGRAM = SOURCES.parent / "slow_steps.py"
LINE = next(number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if "# the line of" in text)
STEPS = 5
each_python = pytest.mark.parametrize("version", VERSIONS)


def run_python(
    stand_in: StandIn, folder: Path, *arguments: str, python: str = sys.executable
) -> tuple[WatchedProcess, ...]:
    """Run a case of the Python program to its end; the processes that it left."""
    folder.mkdir(mode=0o700)
    environment: Mapping[str, str] = stand_in.environment(folder, WatchOptions())
    done = subprocess.run(
        [python, str(PROGRAM), str(stand_in.folder / "libcuda.so.1"), *arguments],
        env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = []
    for path in watch_files(folder):
        with MapFile(path) as file:
            found.append(file.read())
    return tuple(found)


def stacks_in(folder: Path) -> list[list[CallStack]]:
    """The stacks of the slow calls of each process, without those that were not taken."""
    found = []
    for path in watch_files(folder):
        reader = StackReader()
        with MapFile(path) as file:
            process = file.read()
            reader.read(file, process)
        slow = [one for thread in process.threads for one in thread.slow_calls]
        found.append([reader.stacks[one.stack] for one in slow if one.stack])
    return found


def findings_of(folder: Path) -> ProcessFindings:
    analysis = FolderAnalysis(folder)
    analysis.poll()
    (found,) = analysis.findings().processes
    return found


def names(stack: CallStack) -> list[str]:
    """The functions of the program itself, innermost first."""
    return [frame.function for frame in stack.own]


def ended_well(outcome: Outcome) -> None:
    assert (outcome.returncode, outcome.errors) == (0, "")


def test_a_compiled_program_is_named_by_function(stand_in: StandIn, tmp_path: Path) -> None:
    ended_well(stand_in.run(tmp_path / "out", "steps", "3"))
    ((first, *others),) = stacks_in(tmp_path / "out")
    assert all(stack == first for stack in others)
    assert names(first)[:4] == ["read_loss", "train_step", "train", "main"]
    place = first.place
    assert place is not None
    assert (place.kind, place.file, place.line) == (FrameKind.NATIVE, str(stand_in.folder / "host"), None)
    assert first.complete
    assert first.python == ()
    # The stand-in's own functions are between the program and the library.
    assert "cuMemcpyDtoHAsync_v2" in [frame.function for frame in first.native]


def test_a_program_compiled_with_lines_is_named_by_line(stand_in: StandIn, tmp_path: Path) -> None:
    assert COMPILER is not None
    program = tmp_path / "host"
    command = [COMPILER, "-std=gnu11", "-O1", "-g", "-o", str(program), str(SOURCES / "host.c")]
    libraries = [f"-L{stand_in.folder}", "-l:libcuda.so.1", "-lpthread", "-ldl"]
    subprocess.run([*command, *libraries], check=True, capture_output=True)
    (folder := tmp_path / "out").mkdir(mode=0o700)
    environment = stand_in.environment(folder) | {"LD_LIBRARY_PATH": str(stand_in.folder)}
    subprocess.run([program, "short-steps", "200"], env=environment, check=True, capture_output=True)
    (lines,) = findings_of(folder).sequences
    text = (SOURCES / "host.c").read_text().splitlines()
    named = [one.place for one in lines.lines if one.place is not None and one.place.source]
    assert named
    for place in named:
        assert place.line is not None
        assert frame_text(place) == f"host.c:{place.line} in {place.function}"
        assert "cu" in text[place.line - 1]


# A library with a function that calls the driver's, with the name of that.
CALLING = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
int cuStreamSynchronize(void *stream)
{
    int (*next)(void *);
    void *found = dlsym(RTLD_NEXT, "cuStreamSynchronize");
    memcpy(&next, &found, sizeof found);
    /* Not the last thing that it does. */
    volatile int result = next(stream);
    return result;
}
"""
PT_NOTE = 4
# Stacks are sampled by time, so that a run may have none with a call through the library.
MOST_RUNS = 20


@pytest.mark.parametrize("moved", [None, 0x7000_0000, 1 << 46, (1 << 64) - 4096])
def test_notes_of_a_library_that_are_in_no_segment_are_not_read(
    stand_in: StandIn, tmp_path: Path, moved: int | None
) -> None:
    """As in edited and packed files: the loader does not look at them."""
    source, library = tmp_path / "calling.c", tmp_path / "calling.so"
    source.write_text(CALLING)
    line = [str(COMPILER), "-shared", "-fPIC", "-Wl,--build-id", str(source), "-o", str(library), "-ldl"]
    subprocess.run(line, check=True)
    data = bytearray(library.read_bytes())
    table, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
    for at in range(table, table + size * count, size):
        if moved is not None and struct.unpack_from("<I", data, at) == (PT_NOTE,):
            struct.pack_into("<Q", data, at + 16, moved)
    library.write_bytes(data)
    found: list[LoadedModule] = []
    for number in range(MOST_RUNS):
        out = tmp_path / f"out{number}"
        outcome = stand_in.run(out, "copies", settings={"LD_PRELOAD": str(library)})
        assert (outcome.returncode, outcome.errors) == (0, "")
        (path,) = watch_files(out)
        with MapFile(path) as file:
            found = [module for module in file.modules() if module.path == str(library)]
        if found:
            break
    (module,) = found
    assert bool(module.build_id) is (moved is None)


def test_equal_stacks_are_counted_together(stand_in: StandIn, tmp_path: Path) -> None:
    ended_well(stand_in.run(tmp_path / "out", "threads-of-steps", "4", "3"))
    found = findings_of(tmp_path / "out")
    copies = [site for site in found.sites if site.function == "cuMemcpyDtoHAsync_v2"]
    assert [(site.calls, site.bytes, site.blocking) for site in copies] == [(12, 4, True)]
    (site,) = copies
    assert names(site.stack)[:3] == ["read_loss", "train_step", "train"]
    assert site.total_ns >= 12 * 2_000_000
    assert "blocking 4-byte copies from read_loss in host" in site_text(site)
    assert ", called from read_loss in host," in call_text(found.slow_calls[0])


def test_a_stack_that_is_too_deep_says_so(stand_in: StandIn, tmp_path: Path) -> None:
    ended_well(stand_in.run(tmp_path / "out", "deep", "100"))
    ((stack,),) = stacks_in(tmp_path / "out")
    assert not stack.complete
    assert len(stack.native) == layout.STACK_FRAMES
    assert names(stack)[:2] == ["read_loss", "call_deeply"]


def test_a_forked_process_writes_stacks_of_its_own(stand_in: StandIn, tmp_path: Path) -> None:
    ended_well(stand_in.run(tmp_path / "out", "fork-steps", "2"))
    parent, child = stacks_in(tmp_path / "out")
    assert parent
    assert child
    assert all(names(stack)[:2] == ["read_loss", "train_step"] for stack in (*parent, *child))


def test_stacks_can_be_switched_off(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = stand_in.run(tmp_path / "out", "steps", "2", options=WatchOptions(stacks=False))
    ended_well(outcome)
    (process,) = outcome.processes
    assert process.no_stacks
    assert stacks_in(tmp_path / "out") == [[]]
    found = findings_of(tmp_path / "out")
    assert found.sites == ()
    assert not [gap for gap in found.gaps if "stack" in gap]


def test_calls_beyond_the_share_of_time_have_no_stack_and_are_counted(stand_in: StandIn, tmp_path: Path) -> None:
    # Each call is kept, and none lasts as long as taking its stack.
    options = WatchOptions(slow_ns=0, calls_only=True, cost=1.0)
    outcome = stand_in.run(tmp_path / "out", "threads", "2", "50000", options=options)
    ended_well(outcome)
    (process,) = outcome.processes
    assert process.calls == 100_000
    assert all(thread.slow_count == 50_000 for thread in process.threads)
    last = [slow.stack for thread in process.threads for slow in thread.slow_calls]
    assert last.count(0) > len(last) // 2


@each_python
def test_a_python_program_is_named_by_line(stand_in: StandIn, tmp_path: Path, version: str) -> None:
    python = python_of(version)

    def run(number: int) -> tuple[Path, tuple[WatchedProcess, ...]]:
        folder = tmp_path / f"out{number}"
        return folder, run_python(stand_in, folder, "steps", python=python)

    folder, (process,) = undisturbed(run, lambda found: len(findings_of(found[0]).sites) == 1)
    assert (process.python, process.python_stacks) == (full_version(python), True)
    ((first, *rest),) = stacks_in(folder)
    assert all(stack == first for stack in rest)
    own = [(frame.function, frame.line, frame.file) for frame in first.own]
    assert own[0] == ("copies", LINE, str(PROGRAM))
    assert [function for function, _, _ in own] == ["copies", "main", "<module>"]
    # The compiled frames are there too.
    assert {"cuMemcpyDtoHAsync_v2", "ffi_call"} & {frame.function for frame in first.native}
    (site,) = findings_of(folder).sites
    assert (site.calls, site.recorded, site.bytes) == (STEPS, len(rest) + 1, 4)
    assert f"blocking 4-byte copies from slow_steps.py:{LINE} in copies, called by " in site_text(site)
    assert site.cause in WaitCause


@each_python
@pytest.mark.parametrize(
    ("case", "own"),
    [("lambda", ["copies", "<lambda>", "main", "<module>"]), ("thread", ["copies", "load"])],
)
def test_the_frames_of_a_python_program(
    stand_in: StandIn, tmp_path: Path, version: str, case: str, own: list[str]
) -> None:
    run_python(stand_in, tmp_path / "out", case, python=python_of(version))
    ((stack,),) = stacks_in(tmp_path / "out")
    assert names(stack) == own
    if case == "thread":
        # Python's own frames are there, and are no place of the program.
        assert [frame.function for frame in stack.python][-2:] == ["_bootstrap_inner", "_bootstrap"]


@each_python
def test_of_calls_with_many_frames_some_have_a_stack(stand_in: StandIn, tmp_path: Path, version: str) -> None:
    """Stacks may take a hundredth of the time, which ``bench_watch.py`` measures: not all calls have one."""
    (process,) = run_python(stand_in, tmp_path / "out", "deep", "600", python=python_of(version))
    (thread,) = process.threads
    assert 0 < sum(slow.stack > 0 for slow in thread.slow_calls) < thread.slow_count == 600
    assert process.stacks_ns > 0


@each_python
def test_a_thread_that_python_does_not_know_has_native_frames(stand_in: StandIn, tmp_path: Path, version: str) -> None:
    run_python(stand_in, tmp_path / "out", "foreign-thread", python=python_of(version))
    ((stack,),) = stacks_in(tmp_path / "out")
    assert stack.python == ()
    assert "copy_four_bytes" in [frame.function for frame in stack.native]


@each_python
def test_descriptors_that_the_program_took_are_not_written_to(stand_in: StandIn, tmp_path: Path, version: str) -> None:
    own = tmp_path / "own"
    run_python(stand_in, tmp_path / "out", "close", str(own), python=python_of(version))
    assert own.read_bytes() == b""
    (stacks,) = stacks_in(tmp_path / "out")
    assert {names(stack)[0] for stack in stacks} == {"copies"}


@each_python
def test_a_call_that_returns_while_python_ends_does_no_harm(stand_in: StandIn, tmp_path: Path, version: str) -> None:
    run_python(stand_in, tmp_path / "out", "end", python=python_of(version))
    (stacks,) = stacks_in(tmp_path / "out")
    assert all(stack.python == () for stack in stacks)


def test_a_stack_names_frames_by_what_is_known() -> None:
    frame = StackFrame(FrameKind.NATIVE, "", "/opt/solver/libsolve.so", None, 0x1234)
    assert CallStack(native=(frame,)).place == frame
