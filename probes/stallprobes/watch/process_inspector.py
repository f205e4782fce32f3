"""Inspector of a watched process from outside: where calls in flight wait, and the names of Python threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from stallprobes.watch.attribution.calls_in_flight import OutsideReading, WaitingCall
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.kernel_wait import kernel_wait
from stallprobes.watch.reading.process import CallKey, DriverCall, WatchedProcess
from stallprobes.watch.reading.py_spy import PySpyRun, PythonThreads, find_py_spy

# A call that has been in flight for this long is inspected.
LOOK_AFTER_NS = 50_000_000
# Between two runs of py-spy on one process.
PAUSE_NS = 1_000_000_000


class ProcessInspector:
    """Reads one process from outside, again and again while it runs.

    ``names`` has the names of its Python threads by id, as py-spy found them. ``waiting`` has the calls in flight that
    were inspected, and those that have returned since.
    """

    def __init__(self, py_spy: Path | None = None) -> None:
        """``py_spy`` is the program; None: the one that is installed, if any."""
        self._py_spy = py_spy or find_py_spy()
        self.names: dict[int, str] = {}
        self.waiting: dict[CallKey, WaitingCall] = {}
        self._in_flight: set[CallKey] = set()
        self._looked_at: set[CallKey] = set()
        self._named: set[int] = set()
        self._run: PySpyRun | None = None
        self._begun_ns: int | None = None
        self._problem = ""
        self._wanted = False

    def look(self, process: WatchedProcess, now_ns: int) -> None:
        """Look at ``process``, which runs, at ``now_ns`` (CLOCK_MONOTONIC)."""
        self._collect(process)
        old = {
            call.key: call
            for thread in process.threads
            for call in thread.in_flight[:1]
            if now_ns - call.begin_ns >= LOOK_AFTER_NS
        }
        for key in old:
            stack = self.waiting[key].stack if key in self.waiting else None
            self.waiting[key] = WaitingCall(stack, kernel_wait(process.pid, key[0]))
        # Those that have returned are in the next reading of the file at the latest.
        for key in self.waiting.keys() - old.keys() - self._in_flight:
            del self.waiting[key]
        self._in_flight = set(old)
        self._looked_at &= self._in_flight
        self._begin(process, old, now_ns)

    def wait(self, seconds: float) -> None:
        """Wait for a run of py-spy, at most so long; the next look has what it found."""
        if self._run is not None:
            self._run.wait(seconds)

    def keep_names(self, process: WatchedProcess) -> None:
        """Keep the names of the threads of ``process`` that are not the system's, until py-spy finds better ones."""
        for thread in process.threads:
            if thread.name != process.name:
                self.names.setdefault(thread.id, thread.name)

    def reading(self, process: WatchedProcess) -> OutsideReading:
        """What is known so far."""
        return OutsideReading(dict(self.waiting), tuple(self._problems(process)))

    def _problems(self, process: WatchedProcess) -> Iterator[str]:
        if not self._wanted or not process.python:
            return
        without = "threads have the names of the functions that they run, and calls in flight no Python frames"
        if self._py_spy is None:
            yield f"py-spy is not installed (pip install py-spy): Python's {without}."
        elif self._problem:
            yield f"py-spy could not read the process ({self._problem}): Python's {without}."

    def _begin(self, process: WatchedProcess, old: Mapping[CallKey, DriverCall], now_ns: int) -> None:
        """Start py-spy if there is something new for it."""
        # Those that have no name of the system's own.
        threads = {one.id for one in process.threads if one.ended_ns is None and one.name == process.name}
        new_threads = threads - self._named - {process.pid}
        new_calls = old.keys() - self._looked_at
        if not process.python or not (new_calls or new_threads):
            return
        self._wanted = True
        paused = self._begun_ns is not None and now_ns - self._begun_ns < PAUSE_NS
        if self._py_spy is None or self._problem or self._run is not None or paused:
            return
        self._begun_ns = now_ns
        self._named |= threads
        self._looked_at |= new_calls
        self._run = PySpyRun(self._py_spy, process.pid)

    def _collect(self, process: WatchedProcess) -> None:
        """Take what py-spy found, if it has ended."""
        if self._run is None or self._run.found is None:
            return
        found, self._run = self._run.found, None
        self._problem = found.problem
        self.names.update(found.names)
        for key, stack in _stacks_of_calls(process, found):
            before = self.waiting.get(key, WaitingCall())
            self.waiting[key] = WaitingCall(stack, before.kernel_wait)
            self._in_flight.add(key)


def _stacks_of_calls(process: WatchedProcess, found: PythonThreads) -> Iterator[tuple[CallKey, CallStack]]:
    """The stacks of calls that were in flight for all of the time in which py-spy read them."""
    for thread in process.threads:
        stack = found.stacks.get(thread.id)
        if stack is None:
            continue
        for call in thread.in_flight[:1]:
            if call.begin_ns <= found.begin_ns:
                yield call.key, stack
        for slow in thread.slow_calls:
            if slow.begin_ns <= found.begin_ns and slow.end_ns >= found.end_ns and slow.thread == thread.id:
                yield slow.key, stack
