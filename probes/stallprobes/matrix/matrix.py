"""Interference matrix as data: victims in rows, aggressors in columns, and the measurements in cells.

Every cell holds its repeats, each with the victim's window with the aggressor running and its baselines before and
after. Percentiles and ratios are computed from them, not stored. The module ``runner`` measures a matrix, ``document``
is its JSON form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from msgspec import Meta

from stallprobes.files.codec import Document, Integer, Nanoseconds, Natural, Seconds, Text
from stallprobes.files.tables import HtmlCell, Record, aligned, html_table
from stallprobes.latency.columns import latency_columns
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import BaselineRatio, Quantile
from stallprobes.latency.window import ChannelMap, Window, merged_groups
from stallprobes.machine.origin import Fingerprint, Origin
from stallprobes.model import MATRIX_PHASES, Phase
from stallprobes.records.timeline_summary import TimelineSummary
from stallprobes.units import compact
from stallprobes.verdicts.kinds import Look, VerdictKind
from stallprobes.verdicts.verdict import Verdict, verdict_columns, worst_of

# Name of the column in which the victims run without an aggressor.
QUIET = "quiet"
# Phases (parts of a call's latency) that a cell of the matrix (a victim beside aggressors) shows.
PHASES = MATRIX_PHASES
# Largest number of rows and of columns of a matrix in a notebook.
_MOST_SHOWN = 40
# Largest number of rows or columns of a matrix that is read.
MOST_LINES = 2_000


class Status(StrEnum):
    """Status of a cell (a victim beside aggressors).

    ``OK``: the cell was measured. ``STARVED``: fewer than 3 calls returned in 0.5 s. ``UNSUPPORTED``: this machine
    cannot run the cell. ``INVALID``: the cell was measured, but the result does not count. ``MISSING``: not reached
    before an interrupt.
    """

    OK = "ok"
    STARVED = "starved"
    UNSUPPORTED = "unsupported"
    INVALID = "invalid"
    MISSING = "missing"

    @property
    def measured(self) -> bool:
        """True if the cell's figures count."""
        return self in (Status.OK, Status.STARVED)

    @property
    def look(self) -> Look:
        """Word, letter, mark and style of the status."""
        return STATUS_LOOKS[self]


# Words and marks of each status of a cell (a victim beside aggressors).
STATUS_LOOKS = {
    Status.OK: VerdictKind.QUIET.look,
    Status.STARVED: VerdictKind.STARVED.look,
    Status.UNSUPPORTED: Look("unsupported", "n/a", "–", "faint", "unsupported on this machine"),
    Status.INVALID: Look("invalid", "invalid", "invalid", "warn", "measured, but the result does not count"),
    Status.MISSING: Look("not reached", "–", "·", "faint", "not reached"),
}
# What a cell is counted as: the kind of its verdict, or its status if it was not measured.
CellKind = VerdictKind | Status


class MatrixRow(Document):
    """A victim: its name on the command line (``d2d@secondary``), its catalogue entry and where it runs."""

    name: Text
    title: Text
    entry: Text
    context: Text
    stream: Text


class MatrixColumn(Document):
    """A set of aggressors: their names on the command line, none for the column ``quiet``."""

    name: Text
    title: Text
    aggressors: tuple[Text, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """One measurement of a cell: the victim's window with the aggressor running, and its baselines before and after.

    ``host`` is the machine's name in a merged matrix, else "". In the column ``quiet`` both baselines are empty.
    """

    window: Window
    before: ChannelMap = field(default_factory=dict)
    after: ChannelMap = field(default_factory=dict)
    host: str = ""

    @property
    def values(self) -> int:
        """Number of values in all its histograms."""
        return sum([hist.count for part in (self.window.channels, self.before, self.after) for hist in part.values()])


class HostStatus(Document):
    """The status of a cell on one host of a merged matrix."""

    host: Text
    status: Status
    reason: Text = ""
    """Reason where the status is not ok, else empty."""


class CellPlace(Document):
    """The place of a cell."""

    row: Text
    """Name of the victim."""
    column: Text
    """Name of the aggressor column."""

    @property
    def key(self) -> tuple[str, str]:
        """Row and column."""
        return self.row, self.column


class CellHead(CellPlace):
    """What is known of a victim with an aggressor, without the measurements."""

    status: Status
    """starved: fewer than 3 calls returned in 0.5 s. unsupported: this machine cannot run it. invalid: it ran, and the
    result does not count. missing: not reached before an interrupt."""
    reason: str | None = None
    """Reason for the status; in a merged check, that of each of hosts."""
    verdicts: tuple[Verdict, ...] = ()
    in_flight_ns: Nanoseconds | None = None
    """Longest age of a call that had not returned at the end of a window."""
    in_flight_op: Text | None = None
    """Function of that call."""
    hosts: tuple[HostStatus, ...] = ()
    """Hosts of a merged check whose status is not ok."""


class Cell(CellHead, eq=False, dict=True):
    """The measurements of a victim with an aggressor."""

    repeats: Sequence[Repeat] = ()

    def __repr__(self) -> str:
        return f"<Cell {self.row} beside {self.column}: {self.shown_kind.look.word}>"

    def iter_records(self) -> Iterator[Record]:
        """A record for each phase and operation; one without a phase where nothing was measured."""
        head: Record = {
            "victim": self.row,
            "aggressor": self.column,
            "status": str(self.status),
            "reason": self.reason,
            "iterations": self.iterations,
            "in_flight_ns": None if self.in_flight_ns is None else round(self.in_flight_ns),
        }
        channels = {**self.baseline, **self.channels}
        for channel in channels:
            now, baseline = (sums.get(channel, Histogram.empty()) for sums in (self.channels, self.baseline))
            latencies = latency_columns(channel, now, baseline)
            yield {**head, **latencies, **verdict_columns(self.verdicts, channel.phase)}
        if not channels:
            yield head

    def html_cell(self) -> HtmlCell | str:
        """Its cell in a notebook: a ratio or a word, with the worst verdict under the mouse."""
        worst, look = self.worst, self.shown_kind.look
        if self.shown_kind is VerdictKind.QUIET:
            return "·"
        ratio = None if worst is None or not self.status.measured else worst.ratio
        hover = self.reason or (worst.sentence if worst is not None else "")
        figure = "" if ratio is None else f" {compact(ratio)}"
        return HtmlCell((look.letter or look.word) + figure, look.style, hover)

    def sums(self) -> Sequence[ChannelMap]:
        """The sum of all repeats with the aggressor running, and that of all baselines; made anew."""
        windows = (repeat.window.channels for repeat in self.repeats)
        return merged_groups((windows, (part for repeat in self.repeats for part in (repeat.before, repeat.after))))

    @cached_property
    def _sums(self) -> Sequence[ChannelMap]:
        return self.sums()

    @property
    def channels(self) -> ChannelMap:
        """The sum of all repeats with the aggressor running."""
        return self._sums[0]

    @property
    def baseline(self) -> ChannelMap:
        """The sum of all baselines."""
        return self._sums[1]

    @property
    def iterations(self) -> int:
        """The iterations of all repeats."""
        return sum(repeat.window.iterations for repeat in self.repeats)

    @property
    def seconds(self) -> float:
        """The duration of all repeats' windows in seconds."""
        return sum(repeat.window.duration_ns for repeat in self.repeats) / 1e9

    def ratio(self, phase: Phase, quantile: Quantile) -> BaselineRatio | None:
        """``phase`` against the baseline, of several ops the one with the largest ratio; None where either has no
        calls."""
        return BaselineRatio.largest(self.channels, self.baseline, phase, quantile)

    @property
    def worst(self) -> Verdict | None:
        """The most severe verdict, None where there is none."""
        return worst_of(self.verdicts)

    @property
    def kind(self) -> CellKind:
        """Kind of the worst verdict where the status is ok or starved, else the status."""
        if not self.status.measured:
            return self.status
        return self.worst.kind if self.worst is not None else VerdictKind.QUIET

    @property
    def shown_kind(self) -> CellKind:
        """Kind of the cell in a report: starved where its status says so, whatever its verdicts."""
        return VerdictKind.STARVED if self.status is Status.STARVED else self.kind


@dataclass(frozen=True)
class LostEngine:
    """An engine that failed during a check: why, as a clause, and the cells (row name, column name) lost with it."""

    why: str
    cells: tuple[tuple[str, str], ...]


class CheckOrigin(Origin, kw_only=True):
    """What was checked, when, by which program."""

    program: Text = ""
    """Version of stallscope; of a merged check, all versions, separated by commas and spaces."""
    seconds: Seconds
    """Duration of the check; of a merged check, the longest."""


class CheckHead(CheckOrigin, kw_only=True):
    """A check without its cells."""

    sim_seed: Integer | None = None
    """Seed of the simulated GPU; null on a real GPU."""
    seed: Integer
    """Seed of the measurement order; of a merged check, that of the first one."""
    quick: bool = False
    """Whether it was a quick check, with fewer calls per cell."""
    repeats: Natural
    """Number of repeats of a cell that every cell has unless the check was interrupted; cells that gain precision by
    additional repeats have more."""
    pace_ns: Natural
    """Time between two scheduled calls of a victim."""
    hosts: Mapping[Annotated[str, Meta(min_length=1, max_length=1024)], Fingerprint] = {}
    """Fingerprint of each host of a merged check, by host name; empty for a check of one machine."""
    rows: Annotated[tuple[MatrixRow, ...], Meta(max_length=MOST_LINES)]
    """The victims; each name is unique."""
    columns: Annotated[tuple[MatrixColumn, ...], Meta(max_length=MOST_LINES)]
    """The aggressors; each name is unique."""


class Matrix(CheckHead, eq=False, weakref=True, kw_only=True):
    """The result of a check. ``cells`` has each (row name, column name) of the plan, whatever its status.

    ``timeline_summary`` says how the timeline was recorded. ``lost_engines`` are those of this process's check; in a
    saved one their cells have the reason.
    """

    cells: Mapping[tuple[str, str], Cell]
    timeline_summary: TimelineSummary | None = None
    lost_engines: tuple[LostEngine, ...] = ()

    def __repr__(self) -> str:
        return f"<{self._headline}>"

    def _repr_html_(self) -> str:
        severity: Counter[str] = Counter()
        for cell in self.findings():
            # The worst kind decides, then the number of its cells.
            weight = MOST_LINES ** (0 if cell.worst is None else cell.worst.kind.severity)
            severity.update({cell.row: weight, cell.column: weight})
        rows = sorted((row.name for row in self.rows), key=lambda name: -severity[name])
        names = (column.name for column in self.columns if column.name != QUIET)
        columns = sorted(names, key=lambda name: -severity[name])
        shown = rows[:_MOST_SHOWN]
        table = (
            (name, *(self.cells[row, name].html_cell() if (row, name) in self.cells else "" for row in shown))
            for name in columns[:_MOST_SHOWN]
        )
        left = "; the worst rows and columns only" if max(len(rows), len(columns)) > _MOST_SHOWN else ""
        return html_table(f"{self._headline}. Largest ratio to the baseline{left}", ("beside", *shown), table)

    @property
    def _headline(self) -> str:
        kinds = Counter(cell.shown_kind for cell in self.cells.values() if cell.column != QUIET)
        worst_first = sorted(
            kinds, key=lambda kind: kind.severity if isinstance(kind, VerdictKind) else -1, reverse=True
        )
        words = ", ".join(f"{kinds[kind]} {kind.look.word}" for kind in worst_first)
        cut = ", interrupted" if self.interrupted else ""
        beside = sum(column.name != QUIET for column in self.columns)
        return f"Matrix of {len(self.rows)} victims and {beside} aggressors on {self.machine}: {words}{cut}"

    def to_records(self) -> list[Record]:
        """A record for each cell, phase and operation, for pandas, polars or Arrow.

        Latencies are in nanoseconds (``p50_ns``), ratios are those to the baseline (``p50_ratio``), None is unknown.
        ``op`` is empty for all operations of the phase together. All records have the same columns.
        """
        records = aligned(record for cell in self.cells.values() for record in cell.iter_records())
        return [record | self.origin_columns for record in records]

    def row(self, name: str) -> MatrixRow:
        """The row called ``name``. Raises KeyError."""
        return {row.name: row for row in self.rows}[name]

    def column(self, name: str) -> MatrixColumn:
        """The column called ``name``. Raises KeyError."""
        return {column.name: column for column in self.columns}[name]

    def findings(self) -> tuple[Cell, ...]:
        """The cells whose worst verdict is more than quiet, the worst first."""
        cells = [(worst.weight, cell) for cell in self.cells.values() if (worst := cell.worst) and worst.kind.severity]
        return tuple(cell for _, cell in sorted(cells, key=lambda each: each[0], reverse=True))


def host_reasons(hosts: Iterable[HostStatus]) -> str | None:
    """The reasons of several hosts as text: ``starved on node-b, node-c; invalid on node-d: the host control spiked``.

    None where there is no host.
    """
    hosts_of: dict[tuple[Status, str], list[str]] = {}
    for host in hosts:
        # A semicolon begins the next clause.
        hosts_of.setdefault((host.status, host.reason.replace("; ", ", ")), []).append(host.host)
    clauses = (f"{status} on {', '.join(on)}{f': {why}' if why else ''}" for (status, why), on in hosts_of.items())
    return "; ".join(clauses) or None
