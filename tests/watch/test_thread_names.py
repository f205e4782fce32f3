"""Names of threads: what the program, Python or the system calls them, else what they are for or what they run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from factories.pythons import VERSIONS, python_of
from factories.stand_in import StandIn
from factories.waiting import wait_until
from factories.watch_calls import MAIN, OTHER, SYNC, at_ns, process, slow, thread
from factories.watched_programs import PROGRAMS
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.process_inspector import ProcessInspector
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.map_reader import MapFile, watch_files
from stallprobes.watch.reading.process import WatchedProcess, WatchedThread
from stallprobes.watch.reading.source import FolderSource
from stallprobes.watch.thread_names import PAUSE_NS, POOL, ThreadNames, has_role, run_function

PROGRAM = PROGRAMS / "named_threads.py"
NEVER_SLOW = WatchOptions(slow_ns=3_600_000_000_000)
THREADING, WORKER = "/usr/lib/python3.12/threading.py", "/usr/lib/python3.12/concurrent/futures/thread.py"
TORCH = "/opt/venv/lib/python3.12/site-packages/torch"
# A package with a decorator, and a function that makes calls itself.
PACKAGE = """
import functools
import time

def wrapped(function):
    @functools.wraps(function)
    def decorate_context(*args):
        return function(*args)
    return decorate_context

def collect(call, calls, pause_s):
    for _ in range(calls):
        call()
        time.sleep(pause_s)
"""


def frame(function: str = "step", file: str = "/home/me/train.py") -> StackFrame:
    return StackFrame(FrameKind.PYTHON, function, file, 42)


def native(file: str, function: str = "f") -> StackFrame:
    return StackFrame(FrameKind.NATIVE, function, file, None, 16)


RUN = frame("run", THREADING)
BOOTSTRAP = (frame("_bootstrap_inner", THREADING), frame("_bootstrap", THREADING))
CONTEXT = frame("decorate_context", f"{TORCH}/utils/_contextlib.py")
PIN_LOOP = frame("_pin_memory_loop", f"{TORCH}/utils/data/_utils/pin_memory.py")


def python_process(*threads: WatchedThread, python: str = "3.12.1") -> WatchedProcess:
    """A process with an interpreter, whose system's name is python3."""
    return process(*threads).changed(python=python, name="python3")


def started(*inner: StackFrame) -> CallStack:
    """The stack of a thread of Python's that runs ``inner``, innermost first."""
    return CallStack((*inner, RUN, *BOOTSTRAP))


def names(found: WatchedProcess) -> list[str]:
    return [one.name for one in found.threads]


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        ((frame(), frame("load"), RUN, *BOOTSTRAP), "load"),
        ((frame(), frame("load"), frame("Thread.run", THREADING), *BOOTSTRAP), "load"),
        # A wrapper, of a library or of the user's.
        ((frame(), frame("serve"), CONTEXT, RUN, *BOOTSTRAP), "serve"),
        ((frame(), frame("serve"), frame("wrapper"), RUN, *BOOTSTRAP), "serve"),
        ((frame("serve"), frame("<lambda>"), RUN, *BOOTSTRAP), "serve"),
        ((frame("linear", f"{TORCH}/nn/functional.py"), frame("<lambda>"), RUN, *BOOTSTRAP), "<lambda> in train.py"),
        # The user's function may be far inside.
        ((frame("callback"), frame("loop", f"{TORCH}/loop.py"), RUN, *BOOTSTRAP), "callback"),
        ((frame(), frame("run", "/home/me/loader.py"), *BOOTSTRAP), "run in loader.py"),
        ((frame("callback"),), "callback"),
        ((frame(), frame("<module>")), "step"),
        # Roles.
        ((frame(), frame("run", WORKER), frame("_worker", WORKER), RUN, *BOOTSTRAP), POOL),
        ((frame("pin_memory"), PIN_LOOP, RUN, *BOOTSTRAP), "data loader (pinning)"),
    ],
)
def test_a_thread_of_the_users_code_is_named_by_its_outermost_function(
    frames: tuple[StackFrame, ...], name: str
) -> None:
    assert run_function(CallStack(frames)) == (name, True)


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        (started(frame("send", f"{TORCH}/a.py"), frame("loop", f"{TORCH}/a.py"), CONTEXT), "loop"),
        (started(frame("loop", f"{TORCH}/a.py"), frame("run", f"{TORCH}/a.py")), "loop"),
        (started(CONTEXT), ""),
        (CallStack((frame("<module>"),)), ""),
        (CallStack(), ""),
        (CallStack((), (native("/lib/libcuda.so.1"), native("/opt/libnet.so"), native("/lib/libc.so.6"))), "libnet.so"),
        (CallStack((), (native("/usr/bin/python3.12"), native("/lib/libc.so.6"))), ""),
    ],
)
def test_a_thread_without_code_of_the_users_is_named_by_what_says_something(stack: CallStack, name: str) -> None:
    assert run_function(stack) == (name, False)


def test_a_stack_without_its_outermost_frames_does_not_name_a_thread() -> None:
    inner = (frame("forward"), frame("serve"))
    assert run_function(CallStack(inner, complete=False))[0] == ""
    # Only native frames are missing.
    assert run_function(CallStack(started(*inner).python, complete=False))[0] == "serve"


def test_names_of_threads_by_the_best_source() -> None:
    stacks = {1: started(frame("load")), 2: started(frame("serve"), CONTEXT)}
    calls = [slow(SYNC, 0, 2000, thread=103).changed(stack=1)]
    read = python_process(
        thread(MAIN, name="python3"), thread(OTHER, name="python3"), thread(102, name="pt_autograd_0"),
        thread(103, calls, name="python3"), thread(104, name="python3"), thread(105, name="python3", stack=2),
        thread(106, name="reader", stack=2), thread(107, name="pt_data_pin"), thread(108, name="pt_main_thread"),
        thread(109, name="python3.12", stack=2), thread(110, name="pt_data_worker"),
    )  # fmt: skip
    made = ThreadNames()
    made.python = {OTHER: "loader-1", 106: "Thread-7 (serve)", 107: "Thread-8 (_pin_memory_loop)"}
    found = made.named(read, stacks)
    assert names(found) == [
        "MainThread", "loader-1", "autograd 0", "load", "python3", "serve", "reader", "data loader (pinning)",
        "pt_main_thread", "serve", "data loader (worker)",
    ]  # fmt: skip
    # A compiled program has roles, and the system's names.
    compiled = names(ThreadNames().named(read.changed(python=""), stacks))
    assert compiled[:4] == ["python3", "python3", "autograd 0", "python3"]


def test_a_name_of_the_users_code_is_kept_and_replaces_that_of_a_library() -> None:
    stacks = {1: started(frame("loop", f"{TORCH}/a.py")), 2: started(frame("serve"), CONTEXT)}
    made = ThreadNames()
    first = thread(OTHER, name="python3", stack=1)
    later = replace(first, slow_calls=(slow(SYNC, 0, 2000, thread=OTHER).changed(stack=2),))
    assert names(made.named(python_process(first), stacks)) == ["loop"]
    assert names(made.named(python_process(later), stacks)) == ["serve"]
    assert names(made.named(python_process(first), stacks)) == ["serve"]
    # A later thread with the same id, as the system gives them again.
    assert names(made.named(python_process(replace(first, started_ns=at_ns(9))), stacks)) == ["loop"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("answers", "answers"), ("Thread-7 (serve)", "Thread-7 (serve)"), ("Thread-7", "Thread-7 (serve)"),
        ("Thread-7 (decorate_context)", "Thread-7 (serve)"), ("", "serve"),
    ],
)  # fmt: skip
def test_a_name_that_python_made_says_what_the_thread_runs(given: str, name: str) -> None:
    made = ThreadNames()
    made.python[OTHER] = given
    read = python_process(thread(OTHER, name="python3", stack=1))
    assert names(made.named(read, {1: started(frame("serve"), CONTEXT)})) == [name]


def test_the_names_that_python_gives_the_system_are_used() -> None:
    """Python from 3.14 on, of which the system keeps 15 characters, and which does not name the main thread."""
    read = python_process(
        thread(MAIN, name="python3"), thread(OTHER, name="Thread-1 (serve"), thread(102, name="answers"),
        thread(103, name="ThreadPoolExecu"), thread(104, name="Thread-2 (decor", stack=1),
        thread(105, name="Thread-3 (run)", stack=1), thread(106, name="Thread-4", stack=1),
        thread(107, name="Thread-12345678", stack=1), thread(108, name="Thread-1234567 ", stack=1), python="3.14.0",
    )  # fmt: skip
    stacks = {1: started(frame("serve"), CONTEXT)}
    made = ThreadNames()
    assert names(made.named(read, stacks)) == [
        "MainThread", "Thread-1 (serve", "answers", POOL, "Thread-2 (serve)", "Thread-3 (run)", "Thread-4 (serve)",
        "Thread-12345678 (serve)", "Thread-1234567 (serve)",
    ]  # fmt: skip
    made.python = {104: "Thread-2 (decorated)", OTHER: "Thread-1 (serve_answers)"}
    found = names(made.named(read, stacks))
    assert (found[1], found[4]) == ("Thread-1 (serve_answers)", "Thread-2 (serve)")


def comm(root: Path, number: int, name: str) -> Path:
    """The file in which the system has the name of a thread."""
    folder = root / "100" / "task" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    return folder / "comm"


def test_a_name_that_is_set_later_is_read_now_and_then(tmp_path: Path) -> None:
    made = ThreadNames()
    read = python_process(
        thread(MAIN, name="python3"), thread(OTHER, name="python3"), thread(102, name="reader"),
        thread(103, name="python3", ended=5), thread(104, name="python3"),
    )  # fmt: skip
    for number, name in ((MAIN, "python3"), (OTHER, "python3"), (102, "other"), (103, "other")):
        comm(tmp_path, number, name)
    made.look(read, 0, FolderSource(tmp_path, tmp_path).thread)
    assert names(made.named(read, {})) == ["MainThread", "python3", "reader", "python3", "python3"]
    comm(tmp_path, OTHER, "pt_autograd_1")
    made.look(read, PAUSE_NS - 1, FolderSource(tmp_path, tmp_path).thread)
    assert [one.id for one in made.nameless(read)] == [MAIN, OTHER, 104]
    made.look(read, PAUSE_NS, FolderSource(tmp_path, tmp_path).thread)
    assert names(made.named(read, {})) == ["MainThread", "autograd 1", "reader", "python3", "python3"]
    assert [one.id for one in made.nameless(read)] == [MAIN, 104]
    # It is not read again, also not once the thread has ended.
    comm(tmp_path, OTHER, "other").unlink()
    made.look(read, 2 * PAUSE_NS, FolderSource(tmp_path, tmp_path).thread)
    assert names(made.named(read, {}))[1] == "autograd 1"


def test_threads_inherit_the_name_that_the_main_thread_has_now(tmp_path: Path) -> None:
    made = ThreadNames()
    read = python_process(thread(MAIN, name="python3"), thread(OTHER, name="VLLM::EngineCor", stack=1))
    stacks = {1: started(frame("serve"))}
    assert names(made.named(read, stacks)) == ["MainThread", "VLLM::EngineCor"]
    comm(tmp_path, MAIN, "VLLM::EngineCor")
    made.look(read, 0, FolderSource(tmp_path, tmp_path).thread)
    assert names(made.named(read, stacks)) == ["MainThread", "serve"]


def test_a_hostile_name_cannot_reach_the_terminal(tmp_path: Path) -> None:
    made = ThreadNames()
    read = python_process(thread(OTHER, name="python3"))
    comm(tmp_path, OTHER, "\x1b[2J")
    made.look(read, 0, FolderSource(tmp_path, tmp_path).thread)
    assert names(made.named(read, {})) == ["\ufffd[2J"]


@contextmanager
def running(
    stand_in: StandIn, folder: Path, *arguments: str, python: str = sys.executable
) -> Iterator[subprocess.Popen[str]]:
    """The program with named threads; it ends with the context."""
    folder.mkdir(mode=0o700)
    with subprocess.Popen(
        [python, str(PROGRAM), str(stand_in.folder / "libcuda.so.1"), *arguments],
        env={**os.environ, **stand_in.environment(folder, NEVER_SLOW)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        try:
            yield program
        finally:
            program.communicate()
    assert program.returncode == 0


def read_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline()


def write_line(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


@pytest.fixture(autouse=True)
def _no_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallprobes.watch.reading.source.find_py_spy", lambda: None)


def recorded(folder: Path) -> WatchedProcess:
    """The process as its file has it."""
    (path,) = watch_files(folder)
    with MapFile(path) as file:
        return file.read()


@pytest.mark.parametrize("version", VERSIONS)
def test_threads_without_slow_calls_have_names(stand_in: StandIn, tmp_path: Path, version: str) -> None:
    python = python_of(version)
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "wrapping.py").write_text(PACKAGE)
    folder = tmp_path / "out"
    with running(stand_in, folder, "run", str(package), python=python) as program:
        program.wait()
    read = recorded(folder)
    assert all(not one.slow_calls for one in read.threads)
    # The main thread needs no stack for its name.
    assert [one.stack > 0 for one in read.threads if one.id == read.pid] == [False]
    assert all(one.stack > 0 for one in read.threads if one.id != read.pid)
    analysis = FolderAnalysis(folder)
    analysis.poll()
    (found,) = analysis.processes
    own = ["serve", "run in named_threads.py", "collect"]
    if version not in ("3.11", "3.12", "3.13"):
        # Python gives its own names to the system.
        own = ["Thread-1 (serve)", "Thread-2 (run)", "Thread-4 (collect)"]
    assert sorted(names(found)) == sorted(["MainThread", *own, "first-named", POOL])


def test_no_stack_is_taken_for_a_name_where_none_is_wanted(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    program = [sys.executable, str(PROGRAM), str(stand_in.folder / "libcuda.so.1"), "late"]
    environment = stand_in.environment(folder, WatchOptions(stacks=False))
    subprocess.run(
        program, env={**os.environ, **environment}, input="\n\n", text=True, stdout=subprocess.PIPE, check=True
    )
    assert [one.stack for one in recorded(folder).threads] == [0, 0]
    # Nor in a program without Python.
    outcome = stand_in.run(tmp_path / "compiled", "threads", "2", "5", options=NEVER_SLOW)
    assert [one.stack for read in outcome.processes for one in read.threads] == [0, 0]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_that_a_thread_sets_after_its_first_call_is_seen(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    python = python_of(version)
    monkeypatch.setattr("stallprobes.watch.thread_names.PAUSE_NS", 0)
    folder = tmp_path / "out"
    analysis = FolderAnalysis(folder)

    def seen() -> list[str]:
        analysis.poll()
        return [name for one in analysis.processes for name in names(one)]

    with running(stand_in, folder, "late", python=python) as program:
        assert read_line(program) == "called\n"
        # By its function, unless stacks of the main thread's calls have used up what the process may spend on them.
        wait_until(lambda: len(seen()) == 2, "both threads are seen")
        assert "late-named" not in seen()
        write_line(program)
        assert read_line(program) == "named\n"
        wait_until(lambda: "late-named" in seen(), "the name is seen")
        write_line(program)
    assert "late-named" in seen()


def test_py_spy_is_asked_for_threads_without_a_name_only(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    py_spy = tmp_path / "py-spy"
    py_spy.write_text(f"#!/bin/sh\necho x >> {asked}\necho '[]'\n")
    py_spy.chmod(0o755)
    inspector = ProcessInspector(FolderSource(tmp_path, py_spy=py_spy))
    named = python_process(thread(MAIN, name="python3"), thread(OTHER, name="reader"))
    inspector.look(named, at_ns(0))
    inspector.wait(60.0)
    assert not asked.exists()
    inspector.look(python_process(*named.threads, thread(102, name="python3")), at_ns(1))
    inspector.wait(60.0)
    assert asked.read_text() == "x\n"


@pytest.mark.parametrize(
    ("name", "role"), [("autograd 0", True), ("data loader (pinning)", True), ("MainThread", False)]
)
def test_which_names_are_roles_of_libraries(name: str, role: bool) -> None:
    assert has_role(name) is role
