"""Names of a Python program's threads, which the system knows from Python 3.14 on only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.process import WatchedProcess, WatchedThread

MAIN_THREAD = "MainThread"
_POOL_WORKER = "/concurrent/futures/thread.py"
POOL = "ThreadPoolExecutor"


def with_names(process: WatchedProcess, names: Mapping[int, str], stacks: Mapping[int, CallStack]) -> WatchedProcess:
    """``process`` with the names of its Python threads.

    ``names`` are by thread id, as py-spy found them. A thread without one that has no name of the system's own is named
    after the function that it runs, by one of the ``stacks`` of its slow calls.
    """
    if not process.python:
        return process
    threads = tuple(_named(process, thread, names, stacks) for thread in process.threads)
    return replace(process, threads=threads)


def _named(
    process: WatchedProcess, thread: WatchedThread, names: Mapping[int, str], stacks: Mapping[int, CallStack]
) -> WatchedThread:
    name = names.get(thread.id, "")
    # A thread inherits the system's name from the one that made it, in the end from the process.
    if not name and thread.name == process.name:
        name = MAIN_THREAD if thread.id == process.pid else _function_of(thread, stacks)
    return replace(thread, name=name) if name and name != thread.name else thread


def _function_of(thread: WatchedThread, stacks: Mapping[int, CallStack]) -> str:
    for slow in reversed(thread.slow_calls):
        stack = stacks.get(slow.stack) if slow.thread == thread.id else None
        if stack is not None and (name := started_function(stack)):
            return name
    return ""


def started_function(stack: CallStack) -> str:
    """The function that a thread of Python's ``threading`` runs; "" if the stack is of no such thread."""
    frames = stack.python
    for at in range(1, len(frames)):
        if frames[at].function in ("run", "Thread.run") and frames[at].file.endswith("/threading.py"):
            inner = frames[at - 1]
            return POOL if inner.file.endswith(_POOL_WORKER) else inner.function
    # A class with a ``run`` of its own.
    own = [frame for frame in frames if not frame.file.endswith("/threading.py")]
    return own[-1].function if own and len(own) < len(frames) else ""
