"""Names of the threads of a watched process: as the program gave them, else what a thread is for or what it runs.

A thread is called, by the first of these that is known,

1. by its role, where a library's own threads have a name of the system's or a function that says so (``_SYSTEM_ROLES``,
   ``_FUNCTION_ROLES``);
2. as the program named it in Python, by py-spy;
3. as the system calls it: ``pthread_setname_np``, which Python calls too from 3.14 on;
4. ``MainThread``;
5. by the outermost function of the user's code in its call stacks, else of a library's, else by the library whose
   compiled code it runs.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from pathlib import Path

from stallprobes.foreign_text import printable
from stallprobes.watch.reading.call_stack import CallStack, StackFrame
from stallprobes.watch.reading.proc_files import content
from stallprobes.watch.reading.process import WatchedProcess, WatchedThread

# Name of the thread with which a process began.
MAIN_THREAD = "MainThread"
# Role of a thread of Python's ThreadPoolExecutor.
POOL = "ThreadPoolExecutor"
# Shortest time (ns) between two readings of the system names (comm) of threads that the program has not named.
PAUSE_NS = 1_000_000_000
# Largest number of characters of a thread's role: a function's name, perhaps with its file, or a library's name.
_LONGEST_NAME = 64
# Patterns of the system names of threads (at most 15 characters), each with the thread's role. Threads: PyTorch's
# autograd engine (with the device number), PyTorch's data loaders, and ThreadPoolExecutor (Python 3.14 and later).
# Sources of the names: ``Engine::thread_init`` in torch/csrc/autograd/engine.cpp; pin_memory.py and worker.py in
# torch/utils/data/_utils.
_SYSTEM_ROLES = (
    (re.compile(r"pt_autograd_(\d+)"), r"autograd \1"),
    (re.compile(r"pt_data_pin"), "data loader (pinning)"),
    (re.compile(r"pt_(?:data_worker|multiprocess|thread_data_)"), "data loader (worker)"),
    (re.compile(r"ThreadPoolExecu"), POOL),
)
# Pattern of the roles of threads that PyTorch itself starts (see _SYSTEM_ROLES and _FUNCTION_ROLES).
_ROLES = re.compile(r"autograd \d+|data loader \((?:pinning|worker)\)")
# Roles of threads by a function in their call stack: the function's name, and the end of the path of its file.
_FUNCTION_ROLES = {
    ("_worker", "/concurrent/futures/thread.py"): POOL,
    ("_pin_memory_loop", "/torch/utils/data/_utils/pin_memory.py"): "data loader (pinning)",
    ("_thread_worker_loop", "/torch/utils/data/_utils/worker.py"): "data loader (worker)",
}
# System names of threads without a name of their own. PyTorch renames the main thread when it is imported, and the
# threads that the main thread starts inherit its name.
_INTERPRETER = re.compile(r"python[\d.]*|pt_main_thread")
# Pattern of the default name of a Python thread, complete or cut off. Reason: the system keeps only the first 15
# characters.
_DEFAULT = re.compile(r"(?P<number>Thread-\d+)(?: (?:\((?:(?P<function>.*)\)|.*))?)?")
# Names of functions that only call another function. The next inner frame shows the task of the thread.
_WRAPPERS = frozenset(
    {
        "", "<lambda>", "_call_impl", "_fn", "_inner", "_wrapped", "_wrapped_call_impl", "_wrapper",
        "decorate_autocast", "decorate_context", "decorated", "decorator", "generator_context", "inner", "wrap",
        "wrapped", "wrapper",
    }
)  # fmt: skip
# Names of functions that say nothing about a thread's task, since many threads run functions with these names. If
# the function is the program's own, the role also names its file. If the function is a library's, the next inner frame
# gives the role.
_COMMON = frozenset({"__call__", "main", "run", "start"})
# Function name in the frame of a Python module's top-level code.
_MODULE = "<module>"
# End of the path of Python's module threading.
_THREADING = "/threading.py"
# Id of a thread and its begin, since the system reuses ids.
_ThreadKey = tuple[int, int]


# What a thread runs, "" if that is not known, and whether it is certain: a role, or of the user's code.
RunFunction = tuple[str, bool]


class ThreadNames:
    """The names of the threads of one process, kept from reading to reading.

    ``python`` are by thread id, as py-spy found them.
    """

    def __init__(self) -> None:
        self.python: dict[int, str] = {}
        self._system: dict[_ThreadKey, str] = {}
        self._read_ns: int | None = None
        self._by_stack: dict[int, RunFunction] = {}
        self._certain: dict[_ThreadKey, str] = {}

    def look(self, process: WatchedProcess, now_ns: int, folder_of: Callable[[int, int], Path | None]) -> None:
        """Read the system's names of the threads of ``process``, which runs, that have none of the program's yet.

        ``folder_of`` is the folder in /proc of a thread by the numbers of its process and its own, None if not known.
        """
        if self._read_ns is not None and now_ns - self._read_ns < PAUSE_NS:
            return
        self._read_ns = now_ns
        keys = {_key(thread) for thread in process.threads}
        self._system = {key: name for key, name in self._system.items() if key in keys}
        self._certain = {key: name for key, name in self._certain.items() if key in keys}
        for thread in self.nameless(process, or_default=True):
            folder = folder_of(process.pid, thread.id)
            if name := content(folder / "comm") if folder is not None else b"":
                self._system[_key(thread)] = printable(name.rstrip(b"\n").decode("utf-8", "replace"))

    def nameless(self, process: WatchedProcess, or_default: bool = False) -> tuple[WatchedThread, ...]:
        """The threads of ``process`` that run and have no name of the system's own, or one that Python made."""
        inherited = self._inherited(process)
        names = ((thread, self._system_name(thread)) for thread in process.threads if thread.ended_ns is None)
        return tuple(
            thread
            for thread, name in names
            if _is_inherited(name, inherited) or (or_default and _DEFAULT.fullmatch(name))
        )

    def named(self, process: WatchedProcess, stacks: Mapping[int, CallStack]) -> WatchedProcess:
        """``process`` with the names of its threads; ``stacks`` are by their number in the file."""
        inherited = self._inherited(process)
        names = (self._name(process, thread, inherited, stacks) for thread in process.threads)
        threads = (
            thread if thread.name == name else replace(thread, name=name)
            for thread, name in zip(process.threads, names, strict=True)
        )
        return process.changed(threads=tuple(threads))

    def _name(
        self, process: WatchedProcess, thread: WatchedThread, inherited: Set[str], stacks: Mapping[int, CallStack]
    ) -> str:
        system = self._system_name(thread)
        if role := _role_of_name(system):
            return role
        if not process.python:
            return system
        given = self.python.get(thread.id, "")
        default = _DEFAULT.fullmatch(given)
        if given and not default:
            return given
        if system_default := _DEFAULT.fullmatch(system):
            given, default = (given, default) if default else (system, system_default)
        elif not _is_inherited(system, inherited):
            return system
        if thread.id == process.pid:
            return MAIN_THREAD
        # The number says which thread it is, and the function what it runs, unless it only calls another one.
        if default and default["function"] not in (None, *_WRAPPERS):
            return given
        function = self._function(thread, stacks)
        if default:
            return f"{default['number']} ({function})" if function else given
        return function or system

    def _system_name(self, thread: WatchedThread) -> str:
        return self._system.get(_key(thread), thread.name)

    def _inherited(self, process: WatchedProcess) -> Set[str]:
        """Names of the process and of its main thread: a thread inherits the name of the thread that made it."""
        mains = {self._system_name(thread) for thread in process.threads if process.python and thread.id == process.pid}
        return {"", process.name, *mains}

    def _function(self, thread: WatchedThread, stacks: Mapping[int, CallStack]) -> str:
        key = _key(thread)
        if key in self._certain:
            return self._certain[key]
        numbers = (thread.stack, *(slow.stack for slow in reversed(thread.slow_calls) if slow.thread == thread.id))
        names = [self._of_stack(number, stacks) for number in dict.fromkeys(numbers)]
        best = next((name for name, certain in names if certain), None)
        if best is not None:
            return self._certain.setdefault(key, best)
        return next((name for name, _ in names if name), "")

    def _of_stack(self, number: int, stacks: Mapping[int, CallStack]) -> RunFunction:
        if number not in stacks:
            return "", False
        if number not in self._by_stack:
            self._by_stack[number] = run_function(stacks[number])
        return self._by_stack[number]


def _key(thread: WatchedThread) -> _ThreadKey:
    return thread.id, thread.started_ns


def _is_inherited(name: str, inherited: Set[str]) -> bool:
    return name in inherited or _INTERPRETER.fullmatch(name) is not None


def _role_of_name(name: str) -> str:
    matches = ((form.fullmatch(name), role) for form, role in _SYSTEM_ROLES)
    return next((match.expand(role) for match, role in matches if match), "")


def has_role(name: str) -> bool:
    """True if a thread's name is a role of a library's own thread: ``autograd 0``."""
    return _ROLES.fullmatch(name) is not None


def run_function(stack: CallStack) -> RunFunction:
    """What a thread with this stack runs."""
    outermost = tuple(reversed(stack.python))
    for frame in outermost:
        for (function, file), role in _FUNCTION_ROLES.items():
            if frame.function == function and frame.file.endswith(file):
                return role, True
    # Where the outermost frames are missing, the others do not say what the thread runs.
    if not stack.complete and not _is_whole(outermost):
        return "", False
    own = [frame for frame in outermost if frame.is_users and frame.function != _MODULE]
    if own:
        best = next((frame for frame in own if frame.function not in _WRAPPERS), own[0])
        return _shown(best), True
    for frame in outermost:
        if not (frame.is_users or frame.file.endswith(_THREADING) or frame.function in _WRAPPERS | _COMMON):
            return frame.function[:_LONGEST_NAME], False
    native = (os.path.basename(frame.file) for frame in reversed(stack.native) if frame.is_users and frame.file)
    return next(native, "")[:_LONGEST_NAME], False


def _is_whole(outermost: tuple[StackFrame, ...]) -> bool:
    """True if the frames begin where Python's ``threading`` begins a thread."""
    return bool(outermost) and outermost[0].function == "_bootstrap" and outermost[0].file.endswith(_THREADING)


def _shown(frame: StackFrame) -> str:
    alone = frame.function not in _WRAPPERS | _COMMON
    return (frame.function if alone else f"{frame.function} in {os.path.basename(frame.file)}")[:_LONGEST_NAME]
