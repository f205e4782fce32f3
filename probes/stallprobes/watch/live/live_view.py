"""Live view of watched processes: a row for each function of a thread, made of two readings, and slow calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stallprobes.files.codec import Int64, Unsigned
from stallprobes.latency.histogram import Histogram
from stallprobes.watch.attribution.findings import (
    CallInFlight,
    CallRow,
    ExplainedCall,
    ProcessFindings,
    ThreadFindings,
    WatchFindings,
)
from stallprobes.watch.reading.process import NO_FIGURES, CallFigures, ProcessHead, WatchedProcess, WatchedThread

# Largest number of rows of calls on the live screen, and in a moment of a recording. The rows with the most lost time
# are kept, and among rows with equal lost time, the rows with the most time. Reason: each row has two histograms.
MOST_ROWS = 400
# Time (ns) between the two readings whose difference the screen shows as the last second.
WINDOW_NS = 1_000_000_000


@dataclass(frozen=True, order=True)
class WatchRowKey:
    """Identity of a row: process, program of the process, thread, function."""

    pid: int
    image: int
    thread: int
    function: str


@dataclass(frozen=True, eq=False)
class WatchRow:
    """All calls of one function in one thread.

    ``total`` are those since the start, ``recent`` those of the last ``window_ns``. ``begin_ns`` is when the call in
    flight began, None without one. ``lost_ns`` is the time lost to slow calls, as last analyzed.
    """

    key: WatchRowKey
    process: str
    thread_name: str
    total: Histogram
    recent: Histogram
    window_ns: int
    slow: int
    lost_ns: int = 0
    begin_ns: int | None = None
    slow_limit_ns: int = 0

    @property
    def calls_per_s(self) -> float:
        """Calls per second of the window."""
        return self.recent.count * 1e9 / self.window_ns if self.window_ns > 0 else 0.0

    def age_ns(self, now_ns: int) -> int | None:
        """The age of the call in flight; None without one."""
        return None if self.begin_ns is None else max(now_ns - self.begin_ns, 0)


@dataclass(frozen=True)
class WatchedProgram:
    """The program itself: title, words of its command, process id, and its end.

    ``pid`` is None where it was started elsewhere, ``exit_code`` None until it has ended (-n by signal n).
    ``problem`` says why nothing is recorded, "" if all is well.
    """

    title: str
    words: tuple[str, ...] = ()
    pid: Unsigned | None = None
    exit_code: Int64 | None = None
    problem: str = ""


@dataclass(frozen=True, eq=False)
class WatchMoment:
    """State of a watched program at ``at_ns`` (CLOCK_MONOTONIC), which is ``wall_s`` since 1970.

    ``findings`` may be older by the time between two analyses. ``rows`` are in their order on the screen; ``hidden``
    rows beyond MOST_ROWS are left out.
    """

    at_ns: int
    wall_s: float
    program: WatchedProgram
    findings: WatchFindings
    rows: tuple[WatchRow, ...] = ()
    hidden: int = 0

    @property
    def seconds(self) -> float:
        """The time since the first process used CUDA."""
        return self.findings.duration_ns / 1e9


# Findings before the first analysis.
NO_FINDINGS = WatchFindings(began_at_ns=0, began_ns=0, duration_ns=0, processes=())


# Source of a row: its key, process, thread and figures.
_Source = tuple[WatchRowKey, ProcessHead, WatchedThread | ThreadFindings, CallFigures]


class LiveRows:
    """Rows of processes that are read repeatedly, in the order of their time lost and used.

    The order changes with the findings only, so that no row moves while it is read.
    """

    def __init__(self) -> None:
        self.hidden = 0
        # The time of each reading, and the histograms of its rows.
        self._readings: list[tuple[int, Mapping[WatchRowKey, Histogram]]] = []
        # The place and the time lost of each row, and the processes that have ended, by the last findings.
        self._order: dict[WatchRowKey, int] = {}
        self._lost: dict[WatchRowKey, int] = {}
        self._ended: frozenset[tuple[int, int]] = frozenset()

    def use(self, findings: WatchFindings) -> None:
        """Order the rows by new findings, and take the time lost from them."""
        rows = [(key, row) for key, _, _, row in _analyzed(findings)]
        rows.sort(key=lambda item: (-item[1].lost_ns, -item[1].total_ns, item[0]))
        self._order = {key: number for number, (key, _) in enumerate(rows)}
        self._lost = {key: row.lost_ns for key, row in rows}
        self._ended = frozenset((process.pid, process.image) for process in findings.processes if process.ended)

    def rows(self, processes: Iterable[WatchedProcess], at_ns: int) -> tuple[WatchRow, ...]:
        """The rows of a reading at ``at_ns``."""
        return self._rows(_read(processes), at_ns)

    def recorded(self, findings: WatchFindings, earlier: WatchFindings | None) -> tuple[WatchRow, ...]:
        """The rows of recorded ``findings``; ``earlier`` are those of the moment before."""
        self.use(findings)
        if earlier is not None and earlier.processes:
            self._keep(_end_ns(earlier), {key: row.total for key, _, _, row in _analyzed(earlier)})
        return self._rows(_analyzed(findings), _end_ns(findings))

    def _rows(self, sources: Iterable[_Source], at_ns: int) -> tuple[WatchRow, ...]:
        chosen = sorted(sources, key=lambda item: (self._order.get(item[0], len(self._order)), item[0]))
        self.hidden = max(len(chosen) - MOST_ROWS, 0)
        chosen = chosen[:MOST_ROWS]
        last = self._readings[-1][1] if self._readings else {}
        totals = {key: _same_or_new(last.get(key), figures.total) for key, _, _, figures in chosen}
        self._keep(at_ns, totals)
        began_ns, before = self._readings[0]
        return tuple(self._row(source, totals[source[0]], before.get(source[0]), at_ns - began_ns) for source in chosen)

    def _keep(self, at_ns: int, totals: Mapping[WatchRowKey, Histogram]) -> None:
        """Keep a reading, those of the last window, and the one before it."""
        readings = self._readings
        # Two a window are enough between the ends: each holds the histograms of all rows.
        if len(readings) > 1 and at_ns - readings[-2][0] < WINDOW_NS // 2:
            readings.pop()
        readings.append((at_ns, totals))
        while len(readings) > 2 and readings[1][0] <= at_ns - WINDOW_NS:
            readings.pop(0)

    def _row(self, source: _Source, total: Histogram, earlier: Histogram | None, window_ns: int) -> WatchRow:
        key, process, thread, figures = source
        in_flight = (call.begin_ns for call in thread.in_flight if call.function == key.function)
        return WatchRow(
            key=key,
            process=process.name,
            thread_name=thread.name,
            total=total,
            # Without an earlier reading, all calls may be older than the window.
            recent=Histogram.empty() if earlier is None else _difference(total, earlier),
            window_ns=window_ns,
            slow=figures.slow,
            lost_ns=self._lost.get(key, 0),
            # The file of a process that was killed still has its calls in flight.
            begin_ns=None if (key.pid, key.image) in self._ended else next(in_flight, None),
            slow_limit_ns=process.slow_limit_ns,
        )


def _read(processes: Iterable[WatchedProcess]) -> Iterator[_Source]:
    for process in processes:
        for thread in process.threads:
            for name in thread.functions:
                key = WatchRowKey(process.pid, process.image, thread.id, name)
                yield key, process, thread, thread.figures.get(name, NO_FIGURES)


def _analyzed(findings: WatchFindings) -> Iterator[tuple[WatchRowKey, ProcessFindings, ThreadFindings, CallRow]]:
    for process in findings.processes:
        for thread in process.threads:
            for row in thread.rows:
                yield WatchRowKey(process.pid, process.image, thread.id, row.function), process, thread, row


def _end_ns(findings: WatchFindings) -> int:
    return max((process.began_ns + process.duration_ns for process in findings.processes), default=0)


def _same_or_new(earlier: Histogram | None, later: Histogram) -> Histogram:
    """``later``, or ``earlier`` without new calls: percentiles are kept with their histogram."""
    same = earlier is not None and (earlier.count, earlier.max_ns) == (later.count, later.max_ns)
    return earlier if earlier is not None and same else later


def _difference(later: Histogram, earlier: Histogram) -> Histogram:
    """Calls between two readings; all of the later one where another thread has taken the place over."""
    if later.count == earlier.count:
        return Histogram.empty()
    try:
        return later.minus(earlier)
    except ValueError:
        return later


def slow_calls(findings: WatchFindings) -> list[tuple[ExplainedCall, ProcessFindings]]:
    """The slow calls of all processes that no other slow call contains, the newest first."""
    calls = [(call, process) for process in findings.processes for call in process.slow_calls if not call.nested]
    return sorted(calls, key=lambda item: -item[0].end_ns)


def alike_calls(findings: WatchFindings) -> list[tuple[tuple[ExplainedCall, ...], ProcessFindings]]:
    """The slow calls of all processes in groups of a thread, a function, a place and a cause, each with the newest
    first; first comes the group with the newest one."""
    groups: dict[tuple[object, ...], tuple[list[ExplainedCall], ProcessFindings]] = {}
    for call, process in slow_calls(findings):
        place = None if call.stack is None else call.stack.place
        culprit = None if call.culprit is None else call.culprit.thread
        key = process.pid, process.image, call.thread, call.function, call.bytes, place, call.range, call.cause, culprit
        groups.setdefault((*key, call.certainty), ([], process))[0].append(call)
    return [(tuple(calls), process) for calls, process in groups.values()]


def calls_in_flight(findings: WatchFindings) -> list[tuple[CallInFlight, ProcessFindings]]:
    """The calls in flight that have taken the limit of slow calls or longer, the oldest first.

    Those of processes that have ended, which never returned, come last.
    """
    calls = [
        (call, process)
        for process in findings.processes
        for thread in process.threads
        for call in thread.in_flight
        if call.age_ns >= process.slow_limit_ns and not call.depth
    ]
    return sorted(calls, key=lambda item: (item[1].ended, -item[0].age_ns))
