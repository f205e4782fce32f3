"""Attaching to programs that run, beside the stand-ins: what they notice of it, wake and sleep, killed tracers."""

from __future__ import annotations

import os
import re
import resource
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
    Attached,
    RunningProgram,
    as_user,
    open_to_all,
    run_attacher,
    start_attacher,
    use_built,
    use_programs,
)
from factories.stand_in import OPTIONS, SLOW_LIBRARY, StandIn, build_cupti
from factories.waiting import wait_until
from factories.watched_folders import FolderContents
from stallprobes.errors import WatchError
from stallprobes.native.layouts.attaching import ControlState, StubState
from stallprobes.native.layouts.cupti import RecordKind, StreamFlag
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE, LossKind
from stallprobes.native.sources import ATTACHER
from stallprobes.watch.attaching import attachment, helper, loading
from stallprobes.watch.attaching.attached_processes import AttachedProcesses
from stallprobes.watch.attaching.control import Control
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.loaded_functions import find_functions
from stallprobes.watch.attaching.refusals import refusal
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.cost import attaching_cost
from stallprobes.watch.environment import WatchOptions, asleep_variables
from stallprobes.watch.reading.process import WatchedProcess
from stallprobes.watch.reading.words import ProcessState
from stallprobes.watch.sentences import attaching_text

# What is lost where the threads that read records do not get a CPU in time.
_FOR_LACK_OF_CPU = (
    LossKind.NO_BUFFER, LossKind.DROPPED_BY_CUPTI, LossKind.NO_SPACE, LossKind.NO_BLOCK, LossKind.NO_STACK,
)  # fmt: skip
# More than the attacher makes.
MOST_STEPS = 80


@pytest.fixture(autouse=True)
def _recordings_are_closed() -> Iterator[None]:
    yield
    Attached.close_all()


@pytest.fixture(autouse=True)
def _built(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    use_built(stand_in, monkeypatch)
    open_to_all(stand_in.folder)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detaching, and the start of a helper process, may take as long as a busy machine needs."""
    monkeypatch.setattr(attachment, "DETACH_S", 120.0)
    monkeypatch.setattr(helper, "START_S", 120.0)


def recorded(program: RunningProgram, attached: Attached) -> FolderContents:
    """What is recorded once the program has made calls and stallscope has detached."""
    # Calls are followed first, and work is recorded a while later.
    wait_until(lambda: all(map(_is_on, attached.contents().processes)), "a recording of all that is asked for")
    before = program.launches()
    wait_until(lambda: program.launches() > before + 500, "launches while it is attached")
    attached.detach()
    return attached.contents()


def _is_on(process: WatchedProcess) -> bool:
    records = process.recorded_ns > 0 or process.calls_only or process.leaves_graphs
    return process.state is not ProcessState.STARTING and (process.state is not ProcessState.RECORDING or records)


def check(contents: FolderContents, records: bool = True, in_storm: bool = False) -> None:
    """One process with calls, and with records if wanted, and nothing lost; ``in_storm`` that is left open."""
    (process,) = contents.processes
    assert (contents.problems, contents.incomplete) == ((), 0)
    assert process.state is ProcessState.RECORDING
    assert process.late
    assert process.ended_ns is not None
    assert process.calls > 0
    if in_storm:
        return
    assert (process.records > 0) is records
    # A call that a switch did not hold, on a busy machine, loses no record of these stand-ins. But the library's
    # threads may not get the CPU that many records take.
    lost = {kind: count for kind, count in process.losses.items() if count and kind not in _FOR_LACK_OF_CPU}
    assert not lost, lost


@pytest.mark.parametrize("words", ["", "blocked", "handler", "storm", "blocked handler", "storm handler"])
@pytest.mark.parametrize("call", CALLS)
def test_the_thread_that_is_borrowed_has_all_as_before(stand_in: StandIn, call: str, words: str) -> None:
    with RunningProgram(stand_in, call, *words.split()) as program:
        before = program.launches()
        assert refusal(program.pid) is None
        attached = Attached(program.pid)
        assert attached.attachment.stopped_ns > 0
        check(recorded(program, attached))
        assert program.launches() > before
        assert program.end() == (0, "", "")


def test_data_beside_a_stack_that_is_nearly_full_is_left_as_it_was(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "beside", program="odd_stacks") as program:
        Attached(program.pid).detach()
        assert program.end() == (0, "", "")


def test_a_stack_before_a_page_without_rights_is_not_used(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "guarded", program="odd_stacks") as program:
        # The second system call that is made in it would fail, and the thread return by way of that page.
        before = resource.prlimit(program.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with pytest.raises(WatchError, match=r"^no thread sleeps in a system call in which it can be borrowed in"):
            Attached(program.pid)
        assert program.end() == (0, "", "")


def test_a_thread_that_has_ended_meanwhile_is_left_out(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    usual = Target.sleeping_threads
    monkeypatch.setattr(Target, "sleeping_threads", lambda self: [ended.pid, *usual(self)])
    with RunningProgram(stand_in, "poll") as program:
        Attached(program.pid).detach()
        program.launches()
        assert program.end() == (0, "", "")


def test_a_thread_in_the_handler_of_a_signal_is_not_borrowed(stand_in: StandIn) -> None:
    """What the signal interrupted may hold a lock of the allocator, which the loader needs."""
    with RunningProgram(stand_in, "handler", program="odd_stacks") as program:
        with pytest.raises(WatchError, match=r"no thread sleeps in a system call in which it can be borrowed in"):
            Attached(program.pid)
        assert program.end() == (0, "", "")


@pytest.mark.parametrize("user", USERS)
def test_it_is_woken_again_with_other_options(stand_in: StandIn, user: int) -> None:
    with RunningProgram(stand_in, "poll", user=user if user != os.geteuid() else None) as program:
        options = [OPTIONS, WatchOptions(calls_only=True, cost=1.0), WatchOptions(stacks=False, cost=1.0), OPTIONS]
        for number, chosen in enumerate(options):
            attached = Attached(program.pid, chosen)
            # It is loaded once.
            assert (attached.attachment.stopped_ns > 0) is (number == 0)
            assert attached.attachment.held_up_ns > 0
            contents = recorded(program, attached)
            check(contents, records=not chosen.calls_only)
            (process,) = contents.processes
            assert (process.calls_only, process.no_stacks) == (chosen.calls_only, not chosen.stacks)
            program.launches()
        assert program.end() == (0, "", "")


def test_cupti_leaves_the_driver_unless_work_was_recorded(stand_in: StandIn) -> None:
    calls_only = WatchOptions(calls_only=True, cost=1.0)
    with RunningProgram(stand_in, "poll") as program:
        for chosen, finalized in ((calls_only, True), (calls_only, True), (OPTIONS, False), (calls_only, False)):
            (process,) = recorded(program, Attached(program.pid, chosen)).processes
            # A call may be in flight all the while, if its thread has no CPU.
            while finalized and not process.finalized:
                (process,) = recorded(program, Attached(program.pid, chosen)).processes
            assert process.finalized is finalized
            cost = attaching_cost(process.pid, 0, 0, process)
            assert (cost.after_high > 0) is not finalized
            program.launches()
        assert program.end() == (0, "", "")


def test_cupti_stays_while_a_call_that_it_saw_begin_is_in_flight(stand_in: StandIn, tmp_path: Path) -> None:
    """The end of that call would lead into a CUPTI that is gone."""
    go = tmp_path / "go"
    with RunningProgram(stand_in, "poll", "hung", settings={"HANGS_ONCE_THERE_IS": str(go)}) as program:
        attached = Attached(program.pid, WatchOptions(calls_only=True, cost=1.0))
        go.touch()
        wait_until(lambda: _calls_in_flight(attached, "hung"), "a call that hangs")
        (process,) = recorded(program, attached).processes
        assert not process.finalized
        program.launches()
        assert program.end() == (0, "", "")


def _calls_in_flight(attached: Attached, name: str) -> bool:
    (process,) = attached.contents().processes
    return any(thread.name == name and thread.in_flight != () for thread in process.threads)


def test_the_flags_of_the_streams_that_exist_are_recorded(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll", settings={"STAND_IN_STREAMS": "1 13 1 1 14 2"}) as program:
        for _ in range(2):
            attached = Attached(program.pid)
            check(recorded(program, attached))
            (path,) = attached.processes.files()[-1:]
            with attached.processes.open(path) as file:
                rows = file.records().rows
            streams = rows[rows["kind"] == RecordKind.STREAM]
            assert list(zip(streams["context"], streams["stream"], streams["subkind"], strict=True)) == [
                (1, 13, StreamFlag.DEFAULT),
                (1, 14, StreamFlag.NON_BLOCKING),
            ]
        assert program.end() == (0, "", "")


@pytest.mark.parametrize("is_same", [True, False], ids=["the same", "another one"])
def test_cupti_stays_where_the_program_uses_that_library(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_same: bool
) -> None:
    library = stand_in.folder / "libcupti.so.13"
    monkeypatch.setenv(CUPTI_VARIABLE, str(library))
    other = tmp_path / library.name
    shutil.copy(library, other)
    settings = {"LD_PRELOAD": str(library if is_same else other)}
    with RunningProgram(stand_in, "poll", settings=settings) as program:
        attached = Attached(program.pid, WatchOptions(calls_only=True, cost=1.0))
        (process,) = recorded(program, attached).processes
        assert process.finalized is not is_same
        assert program.end() == (0, "", "")


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "beside another process"])
@pytest.mark.parametrize("version", [130_000, 130_500])
def test_the_programs_own_libcupti_records_unless_another_process_has_time_slices(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, is_shared: bool
) -> None:
    """The program's profiler gets no records after those of another libcupti."""
    own = tmp_path / "libcupti.so.13"
    build_cupti(own, version)
    open_to_all(tmp_path)
    library = stand_in.folder / own.name
    monkeypatch.setattr(attachment, "libcupti_of", lambda _: library)
    monkeypatch.setattr(attachment, "shares_gpu", lambda _: is_shared)
    with RunningProgram(stand_in, "poll", settings={"LD_PRELOAD": str(own)}) as program:
        (process,) = recorded(program, Attached(program.pid)).processes
        used = library if is_shared and version == 130_000 else own
        assert process.cupti_path == str(used)
        assert process.records > 0
        cost = attaching_cost(process.pid, 0, 0, process)
        assert cost.profiler is ("Its own profiler gets no records" in attaching_text(cost)) is (used == library)
        # What recorded work stays for later recordings.
        monkeypatch.setattr(attachment, "shares_gpu", lambda _: not is_shared)
        for options in (WatchOptions(calls_only=True, cost=1.0), OPTIONS):
            (process,) = recorded(program, Attached(program.pid, options)).processes
            assert process.cupti_path == str(used)
        assert program.end() == (0, "", "")


@pytest.mark.parametrize(
    "options", [WatchOptions(calls_only=True, cost=1.0), OPTIONS], ids=["calls only", "with records"]
)
def test_a_program_at_low_addresses_keeps_its_memory(stand_in: StandIn, options: WatchOptions) -> None:
    """Pages that are given back after a recording are the library's own, also where it never had buffers."""
    with RunningProgram(stand_in, "poll", program="attached_low") as program:
        for _ in range(2):
            check(recorded(program, Attached(program.pid, options)), records=not options.calls_only)
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
            check(recorded(program, Attached(program.pid)))
        assert program.end() == (0, "", "")


def test_beside_many_threads_that_launch_kinds_are_switched_on(stand_in: StandIn) -> None:
    """Some are always inside a call while others have the CPUs: kinds are switched all the same, when none is.

    On a busy machine that may be after as many launches as are waited for, and the library's threads may not get the
    CPU that so many records take.
    """
    with RunningProgram(stand_in, "epoll", "many", "storm") as program:
        attached = [recorded(program, Attached(program.pid)) for _ in range(3)]
        for contents in attached:
            check(contents, in_storm=True)
        processes = [process for contents in attached for process in contents.processes]
        assert any(one.records and not one.lost_records + one.lost_calls for one in processes)
        assert program.end() == (0, "", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_an_ordinary_user_attaches_to_a_program_of_their_own(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll", user=NOBODY) as program:

        def watch() -> tuple[int, str]:
            attached = Attached(program.pid)
            attached.detach()
            (process,) = attached.contents().processes
            return process.pid, process.state

        assert as_user(NOBODY, watch) == (program.pid, ProcessState.RECORDING)
        program.launches()
        assert program.end() == (0, "", "")


@pytest.mark.parametrize("words", ["poll", "poll blocked handler", "epoll storm"])
def test_a_tracer_that_is_killed_behind_any_step_changes_nothing(stand_in: StandIn, words: str) -> None:
    with RunningProgram(stand_in, *words.split()) as program:
        codes = []
        for steps in range(1, MOST_STEPS):
            done = run_attacher(stand_in, program.pid, settings={"STALLSCOPE_ATTACH_STEPS": str(steps)})
            codes.append(done.returncode)
            before = program.launches()
            wait_until(lambda before=before: program.launches() > before, "launches")  # type: ignore[misc]
            if done.returncode != -signal.SIGKILL:
                break
        # Each state in between was reached, and the attacher came to its end at last.
        assert len(codes) > 20
        assert codes == [*[-signal.SIGKILL] * (len(codes) - 1), 0], done.stdout
        check(recorded(program, Attached(program.pid)))
        assert program.end() == (0, "", "")


def test_a_tracer_that_is_killed_while_a_signal_is_delivered_loses_no_signal(stand_in: StandIn) -> None:
    # The thread gets a signal behind PTRACE_SEIZE; the attacher is killed behind PTRACE_GETREGS.
    settings = {"STALLSCOPE_ATTACH_SIGNAL": str(int(signal.SIGTERM)), "STALLSCOPE_ATTACH_STEPS": "3"}
    with RunningProgram(stand_in, "epoll") as program:
        assert run_attacher(stand_in, program.pid, settings=settings).returncode == -signal.SIGKILL
        assert program.wait() == -signal.SIGTERM


def test_a_tracer_that_is_killed_inside_dlopen_does_not_keep_the_thread(stand_in: StandIn, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with RunningProgram(stand_in, "poll", "handler", settings={"SLOW_LIBRARY_GO": str(go)}) as program:
        tracer = start_attacher(stand_in, program.pid, SLOW_LIBRARY)
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
    use_programs(monkeypatch, stand_in.folder / ATTACHER, stand_in.folder / SLOW_LIBRARY)
    with RunningProgram(stand_in, "poll", settings={"SLOW_LIBRARY_GO": str(go)}) as program:
        with pytest.raises(WatchError, match=r"attaching to .* is still under way: .*; try again\.$"):
            Attached(program.pid)
        go.touch()
        program.launches()
        assert program.end() == (0, "", "")


def test_a_library_that_cannot_be_loaded_is_refused(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none.so").write_bytes(b"no library")
    use_programs(monkeypatch, stand_in.folder / ATTACHER, tmp_path / "none.so")
    with RunningProgram(stand_in, "poll", "handler") as program:
        with pytest.raises(WatchError, match=r"cannot load the library \(.*file too short\): start it with"):
            Attached(program.pid)
        program.launches()
        assert program.end() == (0, "", "")


def test_a_library_whose_stallscope_was_killed_falls_asleep(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll") as program:
        reading, writing = os.pipe()
        watcher = os.fork()
        if not watcher:
            Attached(program.pid)
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
        check(recorded(program, Attached(program.pid)))
        assert program.end() == (0, "", "")


def test_cupti_that_another_tool_has_is_left_to_it(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll", settings={"STAND_IN_SUBSCRIBE": "39"}) as program:
        for _ in range(2):
            with pytest.raises(WatchError, match=r"another tool uses CUPTI in .*, which was left as it was: end nsys"):
                Attached(program.pid)
            program.launches()
        assert program.end() == (0, "", "")


def test_a_subscription_that_takes_long_is_waited_for_by_name(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningProgram(stand_in, "poll", settings={"STAND_IN_WAITS": str(tmp_path / "go")}) as program:
        attached = Attached(program.pid)
        assert attached.attachment.waits_for == f"cuptiSubscribe has not returned in attached (process {program.pid})"
        assert attached.attachment.problem == ""
        monkeypatch.setattr(attachment, "DETACH_S", 0.1)
        with pytest.raises(
            WatchError, match="is still recorded, since cuptiSubscribe does not return in it: that ends"
        ):
            attached.detach()
        program.launches()
        (tmp_path / "go").touch()
        wait_until(lambda: refusal(program.pid) is None, "sleep")
        check(recorded(program, Attached(program.pid)))
        assert program.end() == (0, "", "")


def test_the_own_profiler_of_a_program_works_after_detaching(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "wait", program="profiler") as program:
        Attached(program.pid).detach()
        assert program.ask() == "0"
        assert program.line() == "1 record of its own, by CLOCK_REALTIME"
        assert program.end() == (0, "", "")


def test_the_own_profiler_of_a_program_finds_cupti_taken_meanwhile(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "wait", program="profiler") as program:
        attached = Attached(program.pid)
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
    use_programs(monkeypatch, Path("/nowhere"), Path("/nowhere"))
    # No thread of it could be borrowed.
    with RunningProgram(stand_in, "read", settings=asleep) as program:
        for _ in range(2):
            attached = Attached(program.pid)
            assert attached.attachment.stopped_ns == 0
            check(recorded(program, attached))
        assert program.end() == (0, "", "")


def test_a_program_that_sleeps_to_its_end_writes_nothing(stand_in: StandIn, asleep: dict[str, str]) -> None:
    with RunningProgram(stand_in, "poll", settings=asleep) as program:
        program.launches()
        assert program.end() == (0, "", "")


def test_a_program_ends_as_it_would_while_it_is_attached(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll") as program:
        attached = Attached(program.pid)
        program.launches()
        assert program.end() == (0, "", "")
        attached.detach()
        (process,) = attached.contents().processes
        assert process.ended_ns is not None
        assert process.calls > 0


def test_a_program_that_ends_while_it_is_attached_has_ended(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunningProgram(stand_in, "poll") as program:

        def end(target: Target, image: ProcessImage) -> None:
            assert program.end() == (0, "", "")
            find_functions(target, image)

        monkeypatch.setattr(loading, "find_functions", end)
        with pytest.raises(
            WatchError, match=r"^attached \(process \d+\) has ended meanwhile: there is nothing to attach"
        ):
            Attached(program.pid)


def test_a_thread_that_is_blocked_in_the_driver_is_seen_from_outside(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll", "hung") as program:
        found = {one.name: one for one in AttachedProcesses().in_driver(Target(program.pid))}
        assert "hung" in found
        assert found["hung"].wait
        assert "cuda-EvtHandlr" not in found
        attached = Attached(program.pid)
        contents = recorded(program, attached)
        (process,) = contents.processes
        # Its call had begun before.
        assert "hung" not in {thread.name for thread in process.threads}
        assert process.lost_calls == 0


def test_the_attacher_says_how_far_it_came(stand_in: StandIn, tmp_path: Path) -> None:
    with RunningProgram(stand_in, "poll", settings={"SLOW_LIBRARY_GO": str(tmp_path / "go")}) as program:
        done = run_attacher(stand_in, program.pid, SLOW_LIBRARY)
        state = re.search(r"^state (\d+)$", done.stdout, re.MULTILINE)
        assert state is not None
        assert int(state[1]) == StubState.LOADING
        (tmp_path / "go").touch()
        program.launches()
