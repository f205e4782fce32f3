"""An interference matrix as data: victims in rows, aggressors in columns, and what was seen in each cell.

Every cell holds its repeats, each with the victim's histograms beside the aggressor and in quiet just before and
after it. Figures follow from them and are never stored apart. Who measures it is ``check``; this module runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import BUCKETS, Histogram
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.kinds import Look, VerdictKind
from stallprobes.verdicts.rules import Verdict, severity

# The column in which a victim runs beside nothing: what a driver costs by itself.
QUIET = "quiet"
PHASES = (Phase.CALL, Phase.WAIT)


class Status(StrEnum):
    """What can be said of a cell.

    ``STARVED``: fewer than 3 calls returned in half a second. ``UNSUPPORTED``: this machine cannot do it.
    ``INVALID``: it was run, and what was seen does not count. ``MISSING``: not reached before an interrupt.
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
    """What disturbs: the aggressors' names on the command line, none for the column ``quiet``."""

    name: str
    title: str
    aggressors: tuple[str, ...]


class Channels(Mapping[Channel, Histogram]):
    """Histograms by channel that take memory only for the buckets in use: a matrix holds some ten thousand of them."""

    def __init__(self, channels: Mapping[Channel, Histogram]) -> None:
        self._packed: dict[Channel, tuple[NDArray[np.uint16], NDArray[np.uint64], int]] = {}
        for channel, histogram in channels.items():
            places = np.flatnonzero(histogram.counts).astype(np.uint16)
            self._packed[channel] = places, histogram.counts[places], histogram.max_ns

    def __getitem__(self, channel: Channel) -> Histogram:
        places, packed, max_ns = self._packed[channel]
        counts = np.zeros(BUCKETS, dtype=np.uint64)
        counts[places] = packed
        counts.flags.writeable = False
        return Histogram(counts, max_ns)

    def __contains__(self, channel: object) -> bool:
        return channel in self._packed

    def __iter__(self) -> Iterator[Channel]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


@dataclass(frozen=True, eq=False)
class Repeat:
    """One measuring of a cell: the victim's histograms beside the aggressor, and its quiet before and after it.

    ``calls`` turns ended within ``window_s`` seconds. ``host`` is the machine's name in a merged matrix, else "".
    In the column ``quiet`` both quiets are empty.
    """

    channels: Mapping[Channel, Histogram]
    before: Mapping[Channel, Histogram]
    after: Mapping[Channel, Histogram]
    calls: int
    window_s: float
    host: str = ""

    def __post_init__(self) -> None:
        for name in ("channels", "before", "after"):
            given = getattr(self, name)
            if not isinstance(given, Channels):
                object.__setattr__(self, name, Channels(given))

    @property
    def quiet(self) -> Mapping[Channel, Histogram]:
        """Both quiets taken together."""
        return merged((self.before, self.after))


@dataclass(frozen=True)
class Times:
    """One channel of a cell against its own quiet: microseconds at ``q`` (50 or 99) and how many times quiet that is."""

    channel: Channel
    q: int
    quiet_us: float
    now_us: float

    @property
    def ratio(self) -> float:
        """Now over quiet; a quiet below a nanosecond counts as one."""
        return self.now_us / max(self.quiet_us, 0.001)


@dataclass(frozen=True, eq=False)
class Cell:
    """A victim beside an aggressor. ``reason`` says why the status is unsupported or invalid.

    ``in_flight_us`` is the longest age of a call (``in_flight_op``) that had not returned at a window's end.
    """

    row: str
    column: str
    status: Status
    reason: str | None = None
    repeats: tuple[Repeat, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    in_flight_us: float | None = None
    in_flight_op: str | None = None

    @cached_property
    def channels(self) -> Mapping[Channel, Histogram]:
        """All repeats beside the aggressor taken together."""
        return merged(repeat.channels for repeat in self.repeats)

    @cached_property
    def quiet(self) -> Mapping[Channel, Histogram]:
        """All quiets of this cell taken together."""
        return merged(repeat.quiet for repeat in self.repeats)

    def times(self, phase: Phase, q: int) -> Times | None:
        """``phase`` at percentile ``q`` against quiet, None where either has no calls.

        Where a turn makes several calls of the phase it is the one that is most times quiet: their common histogram
        has a hump for each, and its percentiles may fall on either.
        """
        labelled = [channel for channel in self.channels if channel.phase is phase and channel.label]
        found = [self._times(channel, q) for channel in labelled or [Channel(phase)]]
        return max((one for one in found if one is not None), key=lambda one: one.ratio, default=None)

    def _times(self, channel: Channel, q: int) -> Times | None:
        now = self.channels[channel].percentile(q) if channel in self.channels else None
        quiet = self.quiet[channel].percentile(q) if channel in self.quiet else None
        return None if now is None or quiet is None else Times(channel, q, quiet / 1000, now / 1000)

    @property
    def worst(self) -> Verdict | None:
        """The verdict that matters most, None where there is none."""
        return max(self.verdicts, key=lambda one: (severity(one), one.ratio or 0.0), default=None)

    @property
    def kind(self) -> CellKind:
        """Kind of the worst verdict where the status is ok or starved, else the status."""
        if not self.status.measured:
            return self.status
        return VerdictKind(self.worst.kind) if self.worst is not None else VerdictKind.QUIET


@dataclass(frozen=True, eq=False)
class Matrix:
    """A whole check. ``cells`` has each (row name, column name) that was chosen, whatever became of it.

    ``seed`` orders the cells; ``profile`` and ``sim_seed`` are the simulated GPU's, else None. ``pace_us`` is the
    time between two calls of a victim, ``seconds`` what the whole took. ``hosts`` names the machines of a merged
    matrix with their fingerprints; it is empty for one machine.
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
    profile: str | None = None
    sim_seed: int | None = None
    program: str = ""
    hosts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

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
        found = [cell for cell in self.cells.values() if cell.worst is not None and severity(cell.worst) > 0]
        return tuple(sorted(found, key=_weight, reverse=True))


def _weight(cell: Cell) -> tuple[int, float]:
    worst = cell.worst
    return (0, 0.0) if worst is None else (severity(worst), worst.ratio or 0.0)


def merged(parts: Iterable[Mapping[Channel, Histogram]]) -> dict[Channel, Histogram]:
    """Histograms of the same channels added up."""
    whole: dict[Channel, Histogram] = {}
    for part in parts:
        for channel, histogram in part.items():
            whole[channel] = whole[channel].merge(histogram) if channel in whole else histogram
    return whole
