"""Inspector of a watched process from outside: where its calls wait, where it stands still, its threads' names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stallprobes.watch.attribution.findings import Standstill
from stallprobes.watch.division.collectives import is_nccl
from stallprobes.watch.division.recorded_times import unfollowed
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.kernel_wait import kernel_wait
from stallprobes.watch.reading.process import (
    CallKey,
    DriverCall,
    OutsideReading,
    WatchedProcess,
)
from stallprobes.watch.reading.py_spy import PySpyRun, PythonThreads
from stallprobes.watch.reading.source import WatchSource
from stallprobes.watch.reading.words import ProcessState
from stallprobes.watch.thread_names import ThreadNames

# Smallest duration (ns) at which a call in flight is inspected from outside its process.
LOOK_AFTER_NS = 50_000_000
# The same for py-spy, where the library reads stacks of Python at the return of calls.
_SPY_AFTER_NS = 1_000_000_000
# Shortest time (ns) between two runs of py-spy on a process.
PAUSE_NS = 1_000_000_000
# Time (ns) without any call from which on a process stands still. Reason: where ranks hang, the report names the rank
# within ten seconds.
STILL_AFTER_NS = 5_000_000_000
# Shortest time (ns) between two runs of py-spy on a process that stands still.
_STILL_PAUSE_NS = 4_000_000_000


class ProcessInspector:
    """Reads one process from outside, again and again while it runs; ``names`` are those of its threads."""

    def __init__(self, source: WatchSource) -> None:
        """``source`` has the process."""
        self._source = source
        self.names = ThreadNames()
        self._stacks: dict[CallKey, CallStack] = {}
        self._kernel_waits: dict[CallKey, str] = {}
        self._in_flight: set[CallKey] = set()
        self._looked_at: set[CallKey] = set()
        self._named: set[int] = set()
        self._run: PySpyRun | None = None
        self._begun_ns: int | None = None
        self._problem = ""
        self._wanted = False
        # What shows that calls are made, and since when that has not changed; the stack of the first thread.
        self._moved: tuple[tuple[int, ProcessState, set[CallKey]], int] | None = None
        self._first: CallStack | None = None
        # Where the process stood still at the last look; None if it did not.
        self.standstill: Standstill | None = None

    def look(self, process: WatchedProcess, now_ns: int) -> None:
        """Look at ``process``, which runs, at ``now_ns`` (CLOCK_MONOTONIC)."""
        self._collect(process)
        self.names.look(process, now_ns, self._source.thread)
        old = {
            call.key: call
            for thread in process.threads
            for call in thread.in_flight[:1]
            if now_ns - call.begin_ns >= LOOK_AFTER_NS
        }
        self._kernel_waits = {
            key: kernel_wait(self._source.thread(process.pid, call.thread)) for key, call in old.items()
        }
        # Calls that have returned are in the next reading of the file at the latest.
        for key in self._stacks.keys() - old.keys() - self._in_flight:
            del self._stacks[key]
        self._in_flight = set(old)
        self._looked_at &= self._in_flight
        moves = process.calls, process.state, {call.key for thread in process.threads for call in thread.in_flight}
        if self._moved is None or self._moved[0] != moves:
            self._moved, self._first = (moves, now_ns), None
        self._begin(process, old, now_ns)
        self.standstill = self._standstill(process, now_ns)

    def look_back(self, process: WatchedProcess) -> None:
        """Look at ``process`` once it has ended: it stood still until its end only if no call has returned since."""
        if self._moved is not None and self._moved[0][0] != process.calls:
            self.standstill = None

    def _standstill(self, process: WatchedProcess, now_ns: int) -> Standstill | None:
        ns = self._still_ns(process, now_ns)
        if ns < STILL_AFTER_NS:
            return None
        calls = [call for thread in process.threads for call in thread.in_flight[:1]]
        oldest = min(calls, key=lambda call: call.begin_ns, default=None)
        thread = process.pid if oldest is None else oldest.thread
        stack = self._first if oldest is None else self._stacks.get(oldest.key)
        collectives = [
            (int(each.begins[-1]), each.name) for each in process.ranges if is_nccl(each.name) and len(each.begins)
        ]
        return Standstill(
            ns=ns,
            begun=process.state is not ProcessState.STARTING,
            function="" if oldest is None else oldest.function,
            thread=next((each.name for each in process.threads if each.id == thread), ""),
            place=None if stack is None else stack.place,
            kernel_wait=kernel_wait(self._source.thread(process.pid, thread)),
            collective=max(collectives, default=(0, ""))[1],
        )

    def _still_ns(self, process: WatchedProcess, now_ns: int) -> int:
        """How long (ns) no call has begun or returned; 0 if calls are not followed."""
        followed = not len(unfollowed(process).within(now_ns - STILL_AFTER_NS, now_ns).begins)
        recorded = process.state in (ProcessState.STARTING, ProcessState.RECORDING)
        return now_ns - self._moved[1] if self._moved is not None and followed and recorded else 0

    def wait(self, seconds: float) -> None:
        """Wait for a run of py-spy, at most so long; the next look has what it found."""
        if self._run is not None:
            self._run.wait(seconds)

    def reading(self, process: WatchedProcess) -> OutsideReading:
        """What is known so far."""
        return OutsideReading(dict(self._stacks), self._kernel_waits, tuple(self._problems(process)))

    def _problems(self, process: WatchedProcess) -> Iterator[str]:
        # Threads have names by the frames that the library records.
        if not self._wanted or not process.python or (process.python_stacks and not self._in_flight):
            return
        without = "threads have the names of the functions that they run, and calls in flight no Python frames"
        if self._source.no_spy:
            yield f"{self._source.no_spy}: Python's {without}."
        elif self._problem:
            yield f"py-spy could not read the process ({self._problem}): Python's {without}."

    def _begin(self, process: WatchedProcess, old: Mapping[CallKey, DriverCall], now_ns: int) -> None:
        """Start py-spy if there is something new for it."""
        threads = {thread.id for thread in self.names.nameless(process)}
        new_threads = threads - self._named - {process.pid}
        after_ns = _SPY_AFTER_NS if process.python_stacks else LOOK_AFTER_NS
        new_calls = {key for key, call in old.items() if now_ns - call.begin_ns >= after_ns} - self._looked_at
        still = self._still_ns(process, now_ns) >= STILL_AFTER_NS
        still &= self._begun_ns is None or now_ns - self._begun_ns >= _STILL_PAUSE_NS
        python = process.python or (still and process.state is ProcessState.STARTING)
        if not python or not (new_calls or new_threads or still):
            return
        self._wanted = True
        paused = self._begun_ns is not None and now_ns - self._begun_ns < PAUSE_NS
        if self._source.no_spy or self._problem or self._run is not None or paused:
            return
        self._begun_ns = now_ns
        self._named |= threads
        self._looked_at |= new_calls
        self._run = self._source.spy(process.pid)

    def _collect(self, process: WatchedProcess) -> None:
        """Take what py-spy found, if it has ended."""
        if self._run is None or self._run.found is None:
            return
        result, self._run = self._run.found, None
        self._problem = result.problem
        self.names.python.update(result.names)
        self._first = result.stacks.get(process.pid)
        for key, stack in _stacks_of_calls(process, result):
            self._stacks[key] = stack
            self._in_flight.add(key)


def _stacks_of_calls(process: WatchedProcess, spied: PythonThreads) -> Iterator[tuple[CallKey, CallStack]]:
    """The stacks of calls that were in flight for all of the time in which py-spy read them."""
    for thread in process.threads:
        stack = spied.stacks.get(thread.id)
        if stack is None:
            continue
        for call in thread.in_flight[:1]:
            if call.begin_ns <= spied.begin_ns:
                yield call.key, stack
        for slow in thread.slow_calls:
            if slow.begin_ns <= spied.begin_ns and slow.end_ns >= spied.end_ns and slow.thread == thread.id:
                yield slow.key, stack
