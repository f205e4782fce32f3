"""Attaching to programs that run, beside the stand-ins: what they notice of it, wake and sleep, killed tracers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.attaching import (
    CALLS,
    NOBODY,
    USERS,
    RunningProgram,
    as_user,
    attacher_command,
    open_to_all,
    use_built,
)
from factories.stand_in import OPTIONS, SLOW_LIBRARY, StandIn
from factories.waiting import wait_until
from factories.watched_folders import FolderContents, read_folder
from stallprobes.errors import WatchError
from stallprobes.native.layouts.attaching import ControlState, StubState
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE, WatchState
from stallprobes.watch.attaching import Attachment, attach, attachment, folder_for, refusal
from stallprobes.watch.attaching.control import Control
from stallprobes.watch.attaching.in_flight import threads_in_driver
from stallprobes.watch.attaching.loaded_functions import find_functions
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.environment import WatchOptions, asleep_variables
from stallprobes.watch.reading.folder import ProcessPlace

# More than the attacher makes.
MOST_STEPS = 80
_folders: list[Path] = []


@pytest.fixture(autouse=True)
def _folders_are_removed() -> Iterator[None]:
    yield
    while _folders:
        shutil.rmtree(_folders.pop(), ignore_errors=True)


def new_folder(pid: int) -> Path:
    """A folder for a process, which is removed behind the test."""
    _folders.append(folder_for(pid))
    return _folders[-1]


@pytest.fixture(autouse=True)
def _built(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    use_built(stand_in, monkeypatch)
    open_to_all(stand_in.folder)


def recorded(program: RunningProgram, attached: Attachment) -> FolderContents:
    """What the program's folder has once calls were recorded and stallscope has detached."""
    target = Target(program.pid)
    place = ProcessPlace(owner=target.owner()[0])
    before = program.launches()
    wait_until(lambda: program.launches() > before + 500, "launches while it is attached")
    attached.detach()
    return read_folder(attached.folder, place)


def check(contents: FolderContents, records: bool = True, in_storm: bool = False) -> None:
    """One process with calls, and with records if wanted, and nothing lost; ``in_storm`` that is left open."""
    (process,) = contents.processes
    assert (contents.problems, contents.incomplete) == ((), 0)
    assert process.state is WatchState.RECORDING
    assert process.late
    assert process.ended_ns is not None
    assert process.calls > 0
    if in_storm:
        return
    assert (process.records > 0) is records
    # A call that a switch did not hold, on a busy machine, loses no record of these stand-ins.
    assert (process.lost_calls, process.lost_records) == (0, 0)


@pytest.mark.parametrize("words", ["", "blocked", "handler", "storm", "blocked handler", "storm handler"])
@pytest.mark.parametrize("call", CALLS)
def test_the_thread_that_is_borrowed_has_all_as_before(stand_in: StandIn, call: str, words: str) -> None:
    with RunningProgram(stand_in, call, *words.split()) as program:
        before = program.launches()
        assert refusal(program.pid) is None
        attached = attach(program.pid, OPTIONS, new_folder(program.pid))
        assert attached.stopped_ns > 0
        check(recorded(program, attached))
        assert program.launches() > before
        assert program.end() == (0, "", "")


@pytest.mark.parametrize("user", USERS)
def test_it_is_woken_again_with_other_options(stand_in: StandIn, user: int) -> None:
    with RunningProgram(stand_in, "poll", user=user if user != os.geteuid() else None) as program:
        options = [OPTIONS, WatchOptions(calls_only=True), WatchOptions(stacks=False, cost=1.0), OPTIONS]
        for number, chosen in enumerate(options):
            attached = attach(program.pid, chosen, new_folder(program.pid))
            # It is loaded once.
            assert (attached.stopped_ns > 0) is (number == 0)
            assert attached.held_up_ns > 0
            contents = recorded(program, attached)
            check(contents, records=not chosen.calls_only)
            (process,) = contents.processes
            assert (process.calls_only, process.no_stacks) == (chosen.calls_only, not chosen.stacks)
            program.launches()
        assert program.end() == (0, "", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_a_libcupti_that_the_program_may_not_read_is_sent(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    shutil.copy(stand_in.folder / "libcupti.so.13", hidden)
    monkeypatch.setenv(CUPTI_VARIABLE, str(hidden / "libcupti.so.13"))
    with RunningProgram(stand_in, "poll", user=NOBODY, settings={"LD_LIBRARY_PATH": ""}) as program:
        for _ in range(2):
            check(recorded(program, attach(program.pid, OPTIONS, new_folder(program.pid))))
        assert program.end() == (0, "", "")


def test_beside_many_threads_that_launch_kinds_are_switched_on(stand_in: StandIn) -> None:
    """Some are always inside a call while others have the CPUs: kinds are switched all the same, when none is.

    On a busy machine that may be after as many launches as are waited for, and the library's threads may not get the
    CPU that so many records take.
    """
    with RunningProgram(stand_in, "epoll", "many", "storm") as program:
        attached = [recorded(program, attach(program.pid, OPTIONS, new_folder(program.pid))) for _ in range(5)]
        for contents in attached:
            check(contents, in_storm=True)
        processes = [process for contents in attached for process in contents.processes]
        assert any(one.records and not one.lost_records + one.lost_calls for one in processes)
        assert program.end() == (0, "", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_an_ordinary_user_attaches_to_a_program_of_their_own(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll", user=NOBODY) as program:

        def watch() -> tuple[int, int]:
            attached = attach(program.pid, OPTIONS, new_folder(program.pid))
            attached.detach()
            (process,) = read_folder(attached.folder).processes
            shutil.rmtree(attached.folder)
            return process.pid, process.state

        assert as_user(NOBODY, watch) == (program.pid, WatchState.RECORDING)
        program.launches()
        assert program.end() == (0, "", "")


@pytest.mark.parametrize("words", ["poll", "poll blocked handler", "epoll storm"])
def test_a_tracer_that_is_killed_behind_any_step_changes_nothing(stand_in: StandIn, words: str) -> None:
    with RunningProgram(stand_in, *words.split()) as program:
        codes = []
        for steps in range(1, MOST_STEPS):
            command = attacher_command(stand_in, program.pid)
            done = subprocess.run(
                command, env={"STALLSCOPE_ATTACH_STEPS": str(steps)}, capture_output=True, text=True, errors="replace"
            )
            codes.append(done.returncode)
            before = program.launches()
            wait_until(lambda before=before: program.launches() > before, "launches")  # type: ignore[misc]
            if done.returncode != -signal.SIGKILL:
                break
        # Each state in between was reached, and the attacher came to its end at last.
        assert len(codes) > 20
        assert codes == [*[-signal.SIGKILL] * (len(codes) - 1), 0], done.stdout
        check(recorded(program, attach(program.pid, OPTIONS, new_folder(program.pid))))
        assert program.end() == (0, "", "")


def test_a_tracer_that_is_killed_inside_dlopen_does_not_keep_the_thread(stand_in: StandIn, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with RunningProgram(stand_in, "poll", "handler", settings={"SLOW_LIBRARY_GO": str(go)}) as program:
        tracer = subprocess.Popen(attacher_command(stand_in, program.pid, SLOW_LIBRARY), stdout=subprocess.PIPE)
        maps = Path(f"/proc/{program.pid}/maps")
        wait_until(lambda: "stallscope-inject" in maps.read_text(), "the library inside dlopen")
        tracer.kill()
        tracer.communicate()
        assert Target(program.pid).numbers("TracerPid") == (0,)
        go.touch()
        program.launches()
        assert program.end() == (0, "", "")


def test_a_library_that_takes_long_is_under_way(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    monkeypatch.setattr(attachment, "injected_library", lambda: stand_in.folder / SLOW_LIBRARY)
    with RunningProgram(stand_in, "poll", settings={"SLOW_LIBRARY_GO": str(go)}) as program:
        with pytest.raises(WatchError, match=r"attaching to .* is still under way: .*; try again\.$"):
            attach(program.pid, OPTIONS, new_folder(program.pid))
        go.touch()
        program.launches()
        assert program.end() == (0, "", "")


def test_a_library_that_cannot_be_loaded_is_refused(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none.so").write_bytes(b"no library")
    monkeypatch.setattr(attachment, "injected_library", lambda: tmp_path / "none.so")
    with RunningProgram(stand_in, "poll", "handler") as program:
        with pytest.raises(WatchError, match=r"cannot load the library \(.*file too short\): start it with"):
            attach(program.pid, OPTIONS, new_folder(program.pid))
        program.launches()
        assert program.end() == (0, "", "")


def test_a_library_whose_stallscope_was_killed_falls_asleep(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll") as program:
        reading, writing = os.pipe()
        folder = new_folder(program.pid)
        watcher = os.fork()
        if not watcher:
            attach(program.pid, OPTIONS, folder)
            os.write(writing, b"r")
            signal.pause()
        assert os.read(reading, 1) == b"r"
        control = Control.of(Target(program.pid))
        assert control is not None
        assert control.state is ControlState.AWAKE
        reason = refusal(program.pid)
        assert reason is not None
        assert reason.endswith("is watched by another stallscope: end that first.")
        os.kill(watcher, signal.SIGKILL)
        os.waitpid(watcher, 0)
        wait_until(lambda: control.state is ControlState.ASLEEP, "sleep")
        control.close()
        check(recorded(program, attach(program.pid, OPTIONS, new_folder(program.pid))))
        assert program.end() == (0, "", "")


def test_cupti_that_another_tool_has_is_left_to_it(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll", settings={"STAND_IN_SUBSCRIBE": "39"}) as program:
        for _ in range(2):
            with pytest.raises(WatchError, match=r"another tool uses CUPTI in .*, which was left as it was: end nsys"):
                attach(program.pid, OPTIONS, new_folder(program.pid))
            program.launches()
        assert program.end() == (0, "", "")


def test_a_subscription_that_takes_long_is_waited_for_by_name(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningProgram(stand_in, "poll", settings={"STAND_IN_WAITS": str(tmp_path / "go")}) as program:
        attached = attach(program.pid, OPTIONS, new_folder(program.pid))
        assert attached.waits_for == f"cuptiSubscribe has not returned in attached (process {program.pid})"
        assert attached.problem == ""
        monkeypatch.setattr(attachment, "DETACH_S", 0.1)
        with pytest.raises(
            WatchError, match="is still recorded, since cuptiSubscribe does not return in it: that ends"
        ):
            attached.detach()
        program.launches()
        (tmp_path / "go").touch()
        wait_until(lambda: refusal(program.pid) is None, "sleep")
        check(recorded(program, attach(program.pid, OPTIONS, new_folder(program.pid))))
        assert program.end() == (0, "", "")


def test_the_own_profiler_of_a_program_works_after_detaching(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "wait", program="profiler") as program:
        attach(program.pid, OPTIONS, new_folder(program.pid)).detach()
        assert program.ask() == "0"
        assert program.line() == "1 record of its own, by CLOCK_REALTIME"
        assert program.end() == (0, "", "")


def test_the_own_profiler_of_a_program_finds_cupti_taken_meanwhile(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "wait", program="profiler") as program:
        attached = attach(program.pid, OPTIONS, new_folder(program.pid))
        assert program.ask() == "39"
        assert program.end() == (0, "", "")
        # The program has ended.
        attached.detach()


@pytest.fixture
def asleep(stand_in: StandIn) -> dict[str, str]:
    """The variables of a program in which the library sleeps."""
    return asleep_variables(stand_in.folder / "stallscope-inject.so", WatchOptions(), {})


def test_a_program_that_was_started_asleep_needs_no_ptrace(
    stand_in: StandIn, asleep: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment, "attacher", lambda: Path("/nowhere"))
    # No thread of it could be borrowed.
    with RunningProgram(stand_in, "read", settings=asleep) as program:
        for _ in range(2):
            attached = attach(program.pid, OPTIONS, new_folder(program.pid))
            assert attached.stopped_ns == 0
            check(recorded(program, attached))
        assert program.end() == (0, "", "")


def test_a_program_that_sleeps_to_its_end_writes_nothing(stand_in: StandIn, asleep: dict[str, str]) -> None:
    with RunningProgram(stand_in, "poll", settings=asleep) as program:
        program.launches()
        assert program.end() == (0, "", "")


def test_a_program_ends_as_it_would_while_it_is_attached(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll") as program:
        attached = attach(program.pid, OPTIONS, new_folder(program.pid))
        program.launches()
        assert program.end() == (0, "", "")
        attached.detach()
        (process,) = read_folder(attached.folder, ProcessPlace(owner=os.geteuid())).processes
        assert process.ended_ns is not None
        assert process.calls > 0


def test_a_program_that_ends_while_it_is_attached_has_ended(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunningProgram(stand_in, "poll") as program:
        folder = new_folder(program.pid)

        def end(target: Target) -> None:
            assert program.end() == (0, "", "")
            find_functions(target)

        monkeypatch.setattr(attachment, "find_functions", end)
        with pytest.raises(
            WatchError, match=r"^attached \(process \d+\) has ended meanwhile: there is nothing to attach"
        ):
            attach(program.pid, OPTIONS, folder)


def test_a_thread_that_is_blocked_in_the_driver_is_seen_from_outside(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll", "hung") as program:
        found = {one.name: one for one in threads_in_driver(Target(program.pid))}
        assert "hung" in found
        assert found["hung"].wait
        assert "cuda-EvtHandlr" not in found
        attached = attach(program.pid, OPTIONS, new_folder(program.pid))
        contents = recorded(program, attached)
        (process,) = contents.processes
        # Its call had begun before.
        assert "hung" not in {thread.name for thread in process.threads}
        assert process.lost_calls == 0


def test_the_attacher_says_how_far_it_came(stand_in: StandIn, tmp_path: Path) -> None:
    with RunningProgram(stand_in, "poll", settings={"SLOW_LIBRARY_GO": str(tmp_path / "go")}) as program:
        done = subprocess.run(
            attacher_command(stand_in, program.pid, SLOW_LIBRARY), capture_output=True, text=True, check=False
        )
        state = re.search(r"^state (\d+)$", done.stdout, re.MULTILINE)
        assert state is not None
        assert int(state[1]) == StubState.LOADING
        (tmp_path / "go").touch()
        program.launches()
