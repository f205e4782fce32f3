"""What is read of a program from outside: calls in flight by py-spy and by the kernel, and names of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from factories.stand_in import SOURCES, StandIn
from factories.waiting import wait_until
from factories.watch_calls import LAUNCH, MAIN, OTHER, SYNC, at_ns, call, process, slow, thread
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.watch_file import Window
from stallprobes.watch.attribution.findings import CallInFlight
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.process_inspector import LOOK_AFTER_NS, ProcessInspector
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.kernel_wait import RUNNING, kernel_wait
from stallprobes.watch.reading.process import NOTHING_READ, WatchedProcess, WatchedThread
from stallprobes.watch.reading.py_spy import MOST_FRAMES, PySpyRun, parsed, started_here
from stallprobes.watch.reading.record_windows import RecordWindows
from stallprobes.watch.reading.source import FolderSource
from stallprobes.watch.reading.words import ProcessState
from stallprobes.watch.sentences import in_flight_text

PROGRAM = SOURCES.parent / "slow_steps.py"
OLD_US = LOOK_AFTER_NS / 1000
# Longer than any run of the program in the place of py-spy.
WAIT_S = 60.0


def frame(function: str = "step", file: str = "/home/me/train.py", line: int | None = 42) -> StackFrame:
    return StackFrame(FrameKind.PYTHON, function, file, line)


def spied(number: int, name: str = "loader", function: str = "load") -> dict[str, object]:
    """A thread as py-spy writes it."""
    frames = [{"name": function, "filename": "/home/me/train.py", "line": 42, "module": None, "locals": None}]
    return {"pid": 1, "thread_id": 7, "thread_name": name, "os_thread_id": number, "frames": frames}


def fake_py_spy(folder: Path, body: str) -> Path:
    """A program in the place of py-spy."""
    program = folder / "py-spy"
    program.write_text(f"#!{sys.executable}\nimport json, sys\n{body}\n")
    program.chmod(0o755)
    return program


def answering(folder: Path, *threads: dict[str, object]) -> Path:
    """A program in the place of py-spy that found ``threads``."""
    return fake_py_spy(folder, f"print(json.dumps({list(threads)!r}))")


def python_process(*threads: WatchedThread) -> WatchedProcess:
    """A process with an interpreter that cannot write its frames itself."""
    return process(*threads).changed(python="3.13.1", name="python")


def waiting_thread(begin_us: float = 0) -> WatchedThread:
    return thread(OTHER, name="python", in_flight=[call(SYNC, begin_us)])


def test_threads_as_py_spy_writes_them() -> None:
    found = parsed(json.dumps([spied(101), spied(102, "")]).encode(), 5, 9)
    assert (found.begin_ns, found.end_ns, found.problem) == (5, 9, "")
    assert found.names == {101: "loader"}
    assert found.stacks[102] == CallStack((frame("load"),))


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{}", b"[" * 100_000, b"null", b"\xff", b'[1, null, {}, {"os_thread_id": "5"}]',
        b'[{"os_thread_id": 5, "thread_name": 7, "frames": 3}]',
        b'[{"os_thread_id": 5, "frames": [1, {"line": "x"}, {"name": 5, "filename": [], "line": -1}]}]',
    ],
)  # fmt: skip
def test_what_is_not_as_expected_is_left_out(text: bytes) -> None:
    found = parsed(text, 5, 9)
    assert found.names == {}
    assert all(one.line is None and one.file == "" for stack in found.stacks.values() for one in stack.python)


def test_long_and_strange_texts_are_cut_and_cannot_reach_the_terminal() -> None:
    frames = [{"name": "f", "filename": "\u202e", "line": 1}] * 999
    found = parsed(json.dumps([{**spied(5, "\x1b[2J" + "x" * 1000), "frames": frames}]).encode(), 5, 9)
    assert found.names[5].startswith("\ufffd[2Jxxx")
    assert len(found.names[5]) == 64
    assert (len(found.stacks[5].python), found.stacks[5].complete) == (MOST_FRAMES, False)
    assert found.stacks[5].python[0].file == "\ufffd"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("sys.exit('Error: Permission Denied: \\x1b[1m\\nmore')", "Error: Permission Denied: \ufffd[1m"),
        ("sys.exit(3)", "exit code 3"),
        ("print('no list')", "it wrote no list of threads"),
    ],
)
def test_a_py_spy_that_fails_gives_a_reason(tmp_path: Path, body: str, problem: str) -> None:
    run = PySpyRun(started_here(fake_py_spy(tmp_path, body), 1))
    run.wait(WAIT_S)
    assert run.found is not None
    assert run.found.problem == problem


def test_a_py_spy_that_cannot_be_executed_gives_a_reason(tmp_path: Path) -> None:
    run = PySpyRun(started_here(tmp_path / "missing", 1))
    run.wait(WAIT_S)
    assert run.found is not None
    assert "No such file" in run.found.problem


def inspector_with(py_spy: Path | None) -> ProcessInspector:
    """An inspector of processes here, with a program in the place of py-spy; None: the one that is installed."""
    return ProcessInspector(FolderSource(Path("/nowhere"), py_spy=py_spy))


def looked(inspector: ProcessInspector, read: WatchedProcess, now_us: float) -> None:
    """A look, the run of py-spy that it began, and the look that takes what that found."""
    inspector.look(read, at_ns(now_us))
    inspector.wait(WAIT_S)
    inspector.look(read, at_ns(now_us))


def test_a_call_in_flight_is_looked_at_once_it_is_old(tmp_path: Path) -> None:
    inspector = inspector_with(answering(tmp_path, spied(OTHER)))
    read = python_process(waiting_thread())
    inspector.look(read, at_ns(OLD_US - 1))
    assert inspector.reading(read).kernel_waits == {}
    inspector.wait(WAIT_S)
    looked(inspector, read, OLD_US + 2e6)
    assert list(inspector.reading(read).stacks.values()) == [CallStack((frame("load"),))]
    assert inspector.names.python == {OTHER: "loader"}
    assert inspector.reading(read).problems == ()


def test_py_spy_reads_later_where_the_library_reads_the_stacks_of_calls(tmp_path: Path) -> None:
    """The stack of a call that returns is known without it: a step of 0.1 s would start it each second."""
    inspector = inspector_with(answering(tmp_path, spied(OTHER)))
    # It would run for a thread without a name too.
    named = thread(OTHER, name="worker", in_flight=[call(SYNC, 0)])
    read = python_process(named).changed(python_stacks=True)
    looked(inspector, read, 1e6 - 1)
    assert inspector.reading(read).stacks == {}
    looked(inspector, read, 1e6)
    assert list(inspector.reading(read).stacks.values()) == [CallStack((frame("load"),))]


def test_a_stack_belongs_to_a_call_that_lasted_for_all_of_the_reading(tmp_path: Path) -> None:
    inspector = inspector_with(answering(tmp_path, spied(OTHER)))
    inspector.look(python_process(waiting_thread()), at_ns(OLD_US))
    inspector.wait(WAIT_S)
    # It returned before py-spy, which ran at the present, had ended.
    returned = python_process(thread(OTHER, [slow(SYNC, 0, OLD_US + 10, thread=OTHER)]))
    inspector.look(returned, at_ns(OLD_US + 20))
    assert inspector.reading(returned) == NOTHING_READ


def test_what_is_missing_without_py_spy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    inspector = inspector_with(None)
    read = python_process(waiting_thread())
    inspector.look(read, at_ns(OLD_US))
    (problem,) = inspector.reading(read).problems
    assert problem.startswith("py-spy is not installed (pip install py-spy): ")
    # A compiled program needs none.
    compiled = read.changed(python="")
    assert inspector.reading(compiled).problems == ()


def test_a_py_spy_that_may_not_read_the_process_is_not_run_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    inspector = inspector_with(fake_py_spy(tmp_path, f"open({str(runs)!r}, 'a').write('x'); sys.exit('No permission')"))
    for begin_us in (1e7, 2e7, 3e7):
        read = python_process(waiting_thread(begin_us))
        looked(inspector, read, begin_us + OLD_US)
    assert runs.read_text() == "x"
    (problem,) = inspector.reading(read).problems
    assert problem.startswith("py-spy could not read the process (No permission): ")


@pytest.mark.parametrize(
    ("state", "wchan", "syscall", "found"),
    [
        ("R", "0", "running", RUNNING),
        ("S", "futex_wait_queue", None, "futex_wait_queue"),
        ("S", "0", None, ""),
        ("S", "", "running", ""),
        ("S", "\x1b[2J", None, "\ufffd[2J"),
        ("D", None, "9999 0x0 0x0", "system call 9999"),
        ("D", None, "99999999 0x0", ""),
    ],
)
def test_where_a_thread_is_in_the_kernel(
    tmp_path: Path, state: str, wchan: str | None, syscall: str | None, found: str
) -> None:
    task = tmp_path / "1" / "task" / "2"
    task.mkdir(parents=True)
    (task / "stat").write_text(f"2 (a ) b) {state} 1 2 3")
    for name, text in (("wchan", wchan), ("syscall", syscall)):
        if text is not None:
            (task / name).write_text(text)
    assert kernel_wait(task) == found
    assert kernel_wait(task.with_name("3")) == ""
    assert kernel_wait(None) == ""


def test_a_sentence_about_a_call_in_flight_says_where_it_waits() -> None:
    found = CallInFlight(
        function=LAUNCH, thread=MAIN, thread_name="main", begin_ns=0, age_ns=2_000_000_000, stream=None,
        bytes=None, source=None, target=None, context=1, correlation=1, depth=0,
        stack=CallStack((frame(),)), kernel_wait="futex_wait_queue",
    )  # fmt: skip
    assert in_flight_text(found) == (
        "cuLaunchKernel in main (thread 100) has not returned for 2.00 s; it was called from train.py:42 in step; its "
        "thread waits in the kernel (futex_wait_queue)."
    )
    assert in_flight_text(found.changed(kernel_wait=RUNNING)).endswith("; its thread runs on a CPU.")


@contextmanager
def hanging(stand_in: StandIn, folder: Path) -> Iterator[None]:
    """The Python program with a call that does not return."""
    folder.mkdir(mode=0o700)
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(stand_in.folder / "libcuda.so.1"), "hang"],
        env={**os.environ, **stand_in.environment(folder)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "begins\n"
        yield
    finally:
        program.kill()
        program.communicate()


def test_a_call_in_flight_shows_where_it_waits_while_it_waits(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It answers for the main thread of the process that it is asked about.
    fake_py_spy(
        tmp_path, f"found = {spied(0)!r}\nfound['os_thread_id'] = int(sys.argv[-1])\nprint(json.dumps([found]))"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    folder = tmp_path / "out"
    analysis = FolderAnalysis(folder)

    def in_flight() -> CallInFlight | None:
        analysis.poll()
        threads = [thread for one in analysis.findings().processes for thread in one.threads]
        calls = [each for one in threads for each in one.in_flight]
        return calls[0] if calls and calls[0].stack is not None else None

    with hanging(stand_in, folder):
        wait_until(lambda: in_flight() is not None, "the call was looked at")
        found = in_flight()
    assert found is not None
    assert found.stack is not None
    assert (found.function, found.stack.place) == ("cuMemcpyDtoHAsync_v2", frame("load"))
    assert (found.thread_name, bool(found.kernel_wait)) == ("loader", True)
    assert "it was called from train.py:42 in load; its thread " in in_flight_text(found)


def test_a_process_stands_still_once_no_call_was_made_for_seconds(tmp_path: Path) -> None:
    inspector = inspector_with(answering(tmp_path, spied(MAIN)))
    read = python_process(thread(MAIN, name="MainThread", fast_us={SYNC: [6.0]}))
    still = read.changed(pid=MAIN)
    inspector.look(still, at_ns(0))
    assert inspector.standstill is None
    looked(inspector, still, 7e6)
    found = inspector.standstill
    assert found is not None
    assert (found.ns, found.begun, found.function, found.place) == (7_000_000_000, True, "", frame("load"))
    inspector.look_back(still)
    assert inspector.standstill is found
    # A call has returned.
    again = still.changed(threads=(thread(MAIN, name="MainThread", fast_us={SYNC: [6.0, 6.0]}),))
    inspector.look_back(again)
    assert inspector.standstill is None
    inspector.look(still, at_ns(8e6))
    assert inspector.standstill is not None
    inspector.look(again, at_ns(8e6))
    assert inspector.standstill is None


def test_a_process_whose_calls_are_not_followed_does_not_stand_still(tmp_path: Path) -> None:
    inspector = inspector_with(answering(tmp_path))
    quiet = np.zeros(1, dtype_of(Window))
    quiet["began_ns"], quiet["quiet"] = at_ns(1e6), 1
    read = python_process(waiting_thread()).changed(windows=RecordWindows.of(quiet))
    inspector.look(read, at_ns(0))
    inspector.look(read, at_ns(20e6))
    assert inspector.standstill is None


def test_a_process_in_which_cupti_cannot_begin_stands_still_at_its_first_line(tmp_path: Path) -> None:
    inspector = inspector_with(answering(tmp_path, spied(MAIN)))
    read = python_process().changed(pid=MAIN, python="", state=ProcessState.STARTING)
    inspector.look(read, at_ns(0))
    looked(inspector, read, 6e6)
    found = inspector.standstill
    assert found is not None
    assert (found.begun, found.place) == (False, frame("load"))
