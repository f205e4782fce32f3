"""Interference matrix as data: victims in rows, aggressors in columns, and the measurements in cells.

Every cell holds its repeats, each with the victim's window with the aggressor running and its baselines before and
after. Percentiles and ratios are computed from them, not stored. The module ``runner`` measures a matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from stallprobes.latency.ratio import BaselineRatio, Quantile
from stallprobes.latency.window import ChannelMap, Window, merged_groups
from stallprobes.model import MATRIX_PHASES, Phase
from stallprobes.verdicts.kinds import Look, VerdictKind
from stallprobes.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from stallprobes.records.timeline_summary import TimelineSummary

# The column in which a victim runs with no aggressor: the cost of the driver itself.
QUIET = "quiet"
PHASES = MATRIX_PHASES


class Status(StrEnum):
    """The status of a cell.

    ``STARVED``: fewer than 3 calls returned in half a second. ``UNSUPPORTED``: this machine cannot run it.
    ``INVALID``: it was measured, but the result does not count. ``MISSING``: not reached before an interrupt.
    """

    OK = "ok"
    STARVED = "starved"
    UNSUPPORTED = "unsupported"
    INVALID = "invalid"
    MISSING = "missing"

    @property
    def measured(self) -> bool:
        """Whether the cell's figures count."""
        return self in (Status.OK, Status.STARVED)

    @property
    def look(self) -> Look:
        """Word, letter, mark and style of the status."""
        return STATUS_LOOKS[self]


STATUS_LOOKS = {
    Status.OK: VerdictKind.QUIET.look,
    Status.STARVED: VerdictKind.STARVED.look,
    Status.UNSUPPORTED: Look("unsupported", "n/a", "–", "faint", "unsupported on this machine"),
    Status.INVALID: Look("invalid", "invalid", "invalid", "warn", "measured, but the result does not count"),
    Status.MISSING: Look("not reached", "–", "·", "faint", "not reached"),
}
CellKind = VerdictKind | Status


@dataclass(frozen=True)
class MatrixRow:
    """A victim: its name on the command line (``d2d@secondary``), its catalogue entry and where it runs."""

    name: str
    title: str
    entry: str
    context: str
    stream: str


@dataclass(frozen=True)
class MatrixColumn:
    """A set of aggressors: their names on the command line, none for the column ``quiet``."""

    name: str
    title: str
    aggressors: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """One measurement of a cell: the victim's window with the aggressor running, and its baselines before and after.

    ``host`` is the machine's name in a merged matrix, else "". In the column ``quiet``
    both baselines are empty.
    """

    window: Window
    before: ChannelMap = field(default_factory=dict)
    after: ChannelMap = field(default_factory=dict)
    host: str = ""

    @property
    def values(self) -> int:
        """Number of values in all its histograms."""
        return sum([one.count for part in (self.window.channels, self.before, self.after) for one in part.values()])


@dataclass(frozen=True)
class HostStatus:
    """The status of a cell on one host of a merged matrix, with the ``reason`` where it is not ok, else ""."""

    host: str
    status: Status
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Cell:
    """The measurements of a victim with an aggressor. ``reason`` explains the status unsupported or invalid.

    ``in_flight_ns`` is the longest age (ns) of a call (``in_flight_op``) that had not returned at a window's end.
    ``hosts`` has the hosts of a merged matrix on which the status is not ok; ``reason`` is then the same as text.
    """

    row: str
    column: str
    status: Status
    reason: str | None = None
    repeats: Sequence[Repeat] = ()
    verdicts: tuple[Verdict, ...] = ()
    in_flight_ns: int | None = None
    in_flight_op: str | None = None
    hosts: tuple[HostStatus, ...] = ()

    @cached_property
    def _sums(self) -> Sequence[ChannelMap]:
        windows = (repeat.window.channels for repeat in self.repeats)
        return merged_groups((windows, (one for repeat in self.repeats for one in (repeat.before, repeat.after))))

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
        return max(self.verdicts, key=lambda verdict: verdict.weight, default=None)

    @property
    def kind(self) -> CellKind:
        """Kind of the worst verdict where the status is ok or starved, else the status."""
        if not self.status.measured:
            return self.status
        return self.worst.kind if self.worst is not None else VerdictKind.QUIET


@dataclass(frozen=True)
class LostEngine:
    """An engine that failed during a check: why, as a clause, and the cells (row name, column name) lost with it."""

    why: str
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Matrix:
    """The result of a check. ``cells`` has each (row name, column name) of the plan, whatever its status.

    ``seed`` orders the cells; ``profile`` and ``sim_seed`` are the simulated GPU's, else None. ``pace_us`` is the
    period of a victim, ``seconds`` the duration of the check. ``timeline``: it was on, which adds to each call, and
    ``timeline_summary`` says how it was recorded. ``hosts`` names the machines of a merged matrix with their
    fingerprints; it is empty for one machine. ``lost_engines`` are those of this process's check; in a saved one their
    cells have the reason.
    """

    backend: str
    fingerprint: Mapping[str, object]
    started_at: str
    seconds: float
    rows: tuple[MatrixRow, ...]
    columns: tuple[MatrixColumn, ...]
    cells: Mapping[tuple[str, str], Cell]
    seed: int
    repeats: int
    pace_us: float
    quick: bool = False
    interrupted: bool = False
    timeline: bool = False
    timeline_summary: TimelineSummary | None = None
    profile: str | None = None
    sim_seed: int | None = None
    program: str = ""
    hosts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    lost_engines: tuple[LostEngine, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether a simulated GPU was measured."""
        return self.backend == "simulated"

    def row(self, name: str) -> MatrixRow:
        """The row called ``name``. Raises KeyError."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def column(self, name: str) -> MatrixColumn:
        """The column called ``name``. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def findings(self) -> tuple[Cell, ...]:
        """The cells whose worst verdict is more than quiet, the worst first."""
        found = [(worst.weight, cell) for cell in self.cells.values() if (worst := cell.worst) and worst.kind.severity]
        return tuple(cell for _, cell in sorted(found, key=lambda each: each[0], reverse=True))


def host_reasons(hosts: Iterable[HostStatus]) -> str | None:
    """The reasons of several hosts as text: ``starved on node-b, node-c; invalid on node-d: the host control spiked``.

    None where there is no host.
    """
    hosts_of: dict[tuple[Status, str], list[str]] = {}
    for one in hosts:
        # A semicolon begins the next clause.
        hosts_of.setdefault((one.status, one.reason.replace("; ", ", ")), []).append(one.host)
    clauses = (f"{status} on {', '.join(on)}{f': {why}' if why else ''}" for (status, why), on in hosts_of.items())
    return "; ".join(clauses) or None
