"""Live view of watched processes: a row for each function of a thread, made of two readings, and slow calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

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
from stallprobes.watch.reading.process import CallFigures, DriverCall, WatchedProcess, WatchedThread

# Rows at most, those with the most time lost and used: each holds two histograms of 18 KiB.
MOST_ROWS = 400
# The time between two readings of which the difference is the last second.
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
    total_ns: int
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
    """What is known of the program itself: title, words of its command, process id, and its end.

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
    """What is known of a watched program at ``at_ns`` (CLOCK_MONOTONIC), which is ``wall_s`` since 1970.

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


NO_FINDINGS = WatchFindings(0, 0, ())


@dataclass(frozen=True, eq=False)
class _RowFigures:
    """Figures by row at a time."""

    at_ns: int
    figures: Mapping[WatchRowKey, CallFigures]


@dataclass
class LiveRows:
    """The rows of processes that are read again and again; a row's order follows its time lost and used.

    The order changes with the findings only, so that no row moves while it is read.
    """

    _readings: list[_RowFigures] = field(default_factory=list)
    _rows: dict[WatchRowKey, WatchRow] = field(default_factory=dict)
    _order: dict[WatchRowKey, int] = field(default_factory=dict)
    _lost: dict[WatchRowKey, int] = field(default_factory=dict)
    _ended: frozenset[tuple[int, int]] = frozenset()
    hidden: int = 0

    def use(self, findings: WatchFindings) -> None:
        """Order the rows by new findings, and take the time lost from them."""
        found = [
            (WatchRowKey(process.pid, process.image, thread.id, row.function), row)
            for process in findings.processes
            for thread in process.threads
            for row in thread.rows
        ]
        found.sort(key=lambda item: (-item[1].lost_ns, -item[1].total_ns, item[0]))
        self._order = {key: number for number, (key, _) in enumerate(found)}
        self._lost = {key: row.lost_ns for key, row in found}
        self._ended = frozenset((process.pid, process.image) for process in findings.processes if process.ended)

    def rows(self, processes: Iterable[WatchedProcess], at_ns: int) -> tuple[WatchRow, ...]:
        """The rows of a reading at ``at_ns``."""
        found = list(self._found(processes))
        found.sort(key=lambda item: (self._order.get(item[0], len(self._order)), item[0]))
        self.hidden = max(len(found) - MOST_ROWS, 0)
        found = found[:MOST_ROWS]
        self._keep(_RowFigures(at_ns, {key: figures for key, _, _, figures, _ in found}))
        before = self._readings[0]
        window_ns = at_ns - before.at_ns
        rows = {}
        for key, process, thread, figures, flight in found:
            rows[key] = self._row(key, process, thread, figures, flight, before.figures.get(key), window_ns)
        self._rows = rows
        return tuple(rows.values())

    def _keep(self, reading: _RowFigures) -> None:
        """Keep a reading, those of the last window, and the one before it."""
        readings = self._readings
        # Two a window are enough between the ends: each holds the histograms of all rows.
        if len(readings) > 1 and reading.at_ns - readings[-2].at_ns < WINDOW_NS // 2:
            readings[-1] = reading
        else:
            readings.append(reading)
        while len(readings) > 2 and readings[1].at_ns <= reading.at_ns - WINDOW_NS:
            readings.pop(0)

    def _row(
        self,
        key: WatchRowKey,
        process: WatchedProcess,
        thread: WatchedThread,
        figures: CallFigures,
        flight: DriverCall | None,
        earlier: CallFigures | None,
        window_ns: int,
    ) -> WatchRow:
        known, total = self._rows.get(key), figures.histogram
        # Percentiles are kept with their histogram.
        if known is not None and known.total.count == total.count and known.total.max_ns == total.max_ns:
            total = known.total
        # Without an earlier reading, all calls may be older than the window.
        recent = Histogram.empty() if earlier is None else _difference(total, earlier.histogram)
        return WatchRow(
            key=key,
            process=process.name,
            thread_name=thread.name,
            total=total,
            recent=recent,
            window_ns=window_ns,
            total_ns=figures.total_ns,
            slow=figures.slow,
            lost_ns=self._lost.get(key, 0),
            begin_ns=None if flight is None else flight.begin_ns,
            slow_limit_ns=process.slow_limit_ns,
        )

    def _found(
        self, processes: Iterable[WatchedProcess]
    ) -> Iterator[tuple[WatchRowKey, WatchedProcess, WatchedThread, CallFigures, DriverCall | None]]:
        none = CallFigures(Histogram.empty(), 0, 0, 0)
        for process in processes:
            for thread in process.threads:
                flights = {call.function: call for call in reversed(thread.in_flight)}
                names = dict.fromkeys((*thread.figures, *flights))
                if (process.pid, process.image) in self._ended:
                    # The file of a process that was killed still has its calls in flight.
                    flights = {}
                for name in names:
                    key = WatchRowKey(process.pid, process.image, thread.id, name)
                    yield key, process, thread, thread.figures.get(name, none), flights.get(name)


def recorded_rows(findings: WatchFindings, earlier: WatchFindings | None) -> tuple[WatchRow, ...]:
    """The rows of recorded findings, in the order of ``LiveRows``; ``earlier`` are those of the moment before."""
    before = {} if earlier is None else {_key(*one): one[2] for one in _rows_of(earlier)}
    began_ns = 0 if earlier is None else _end_ns(earlier)
    window_ns = _end_ns(findings) - began_ns if began_ns else 0
    found = sorted(_rows_of(findings), key=lambda item: (-item[2].lost_ns, -item[2].total_ns))
    return tuple(_recorded_row(*one, before.get(_key(*one)), window_ns) for one in found[:MOST_ROWS])


def _rows_of(findings: WatchFindings) -> Iterator[tuple[ProcessFindings, ThreadFindings, CallRow]]:
    for process in findings.processes:
        for thread in process.threads:
            for row in thread.rows:
                yield process, thread, row


def _key(process: ProcessFindings, thread: ThreadFindings, row: CallRow) -> WatchRowKey:
    return WatchRowKey(process.pid, process.image, thread.id, row.function)


def _end_ns(findings: WatchFindings) -> int:
    return max((process.began_ns + process.duration_ns for process in findings.processes), default=0)


def _recorded_row(
    process: ProcessFindings, thread: ThreadFindings, row: CallRow, earlier: CallRow | None, window_ns: int
) -> WatchRow:
    flight = next((call for call in thread.in_flight if call.function == row.function), None)
    return WatchRow(
        key=_key(process, thread, row),
        process=process.name,
        thread_name=thread.name,
        total=row.total,
        recent=Histogram.empty() if earlier is None else _difference(row.total, earlier.total),
        window_ns=window_ns,
        total_ns=row.total_ns,
        slow=row.slow,
        lost_ns=row.lost_ns,
        begin_ns=None if flight is None or process.ended else flight.begin_ns,
        slow_limit_ns=process.slow_limit_ns,
    )


def _difference(later: Histogram, earlier: Histogram) -> Histogram:
    """The calls between two readings; all of the later one where another thread has taken the place over."""
    if later.count == earlier.count:
        return Histogram.empty()
    try:
        return later.minus(earlier)
    except ValueError:
        return later


def slow_calls(findings: WatchFindings) -> list[tuple[ExplainedCall, ProcessFindings]]:
    """The slow calls of all processes that no other slow call contains, the newest first."""
    found = [(call, process) for process in findings.processes for call in process.slow_calls if not call.nested]
    return sorted(found, key=lambda item: -item[0].end_ns)


def calls_in_flight(findings: WatchFindings) -> list[tuple[CallInFlight, ProcessFindings]]:
    """The calls in flight that have taken the limit of slow calls or longer, the oldest first.

    Those of processes that have ended, which never returned, come last.
    """
    found = [
        (call, process)
        for process in findings.processes
        for thread in process.threads
        for call in thread.in_flight
        if call.age_ns >= process.slow_limit_ns and not call.depth
    ]
    return sorted(found, key=lambda item: (item[1].ended, -item[0].age_ns))
