"""What there is to draw, frozen: rows of figures, the focused probe's histograms and history, the log of verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.live.history import BINS
from stallprobes.model import Phase, Role
from stallprobes.units import duration
from stallprobes.verdicts.verdict import Verdict


@dataclass(frozen=True)
class ProbeRow:
    """One probe in the list.

    ``state`` is in words; ``mark`` is how bad that is: "good", "warn", "bad", "dim" or "". ``phase`` is the one the
    figures are of: the worst where one is not quiet. ``ratio`` is now against quiet, by the percentile ``quantile``
    ("p50", or "p99" where only the tail is slow). ``strip`` holds the bin of each column of the last minute, -1 for
    none. Times are microseconds, None where there is none.
    """

    name: str
    title: str
    role: Role
    on: bool
    state: str
    mark: str = ""
    calls_per_s: float | None = None
    phase: Phase | None = None
    p50_us: float | None = None
    p99_us: float | None = None
    ratio: float | None = None
    quantile: Quantile = Quantile.P50
    in_flight_us: float | None = None
    in_flight_op: str | None = None
    period_ns: int = 0
    strip: tuple[int, ...] = ()


@dataclass(frozen=True)
class LogEntry:
    """A verdict and its time: ``began_s`` and ``ended_s`` are seconds since 1970, ``ended_s`` None while it lasts.

    ``verdict`` is the worst seen meanwhile. ``onset`` says after what it began, "" where that is not known.
    """

    number: int
    began_s: float
    verdict: Verdict
    ended_s: float | None = None
    onset: str = ""

    @property
    def text(self) -> str:
        """The verdict's sentence, and after what it began."""
        return f"{self.verdict.sentence} {self.onset}".rstrip()


@dataclass(frozen=True)
class ChannelView:
    """One histogram of the focused probe, and the same in quiet; ``label`` is one op's share of the phase. ``first_ns``
    is the value of the very first call, which no histogram holds."""

    phase: Phase
    label: str
    live: Histogram
    quiet: Histogram | None
    first_ns: int | None = None


@dataclass(frozen=True, eq=False)
class FocusView:
    """The focused probe. ``heat`` is uint32[columns][BINS] with the oldest column first; ``ages_ns`` the oldest call
    in flight in each column (0 for none); ``looked_s`` for how many seconds each column was looked at, empty for all
    of their time; ``marks`` the column and the words of each switch; ``column_s`` the width of a column in seconds,
    ``first`` the running number of the first one."""

    row: ProbeRow
    channels: tuple[ChannelView, ...] = ()
    heat: NDArray[np.uint32] = field(default_factory=lambda: np.zeros((0, BINS), dtype=np.uint32))
    ages_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    marks: tuple[tuple[int, str], ...] = ()
    column_s: float = 0.5
    first: int = 0
    looked_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class MonitorView:
    """Everything the monitor draws besides header and NVML.

    ``quiet_age_s`` is the age of the oldest quiet base, None while it is not measured; ``quiet_left_s`` for how many
    seconds it will still be measured, None while something that disturbs keeps it from that. ``window_s`` is what the
    figures are of.
    """

    rows: tuple[ProbeRow, ...]
    focus: FocusView | None
    log: tuple[LogEntry, ...]
    quiet_age_s: float | None
    quiet_left_s: float | None
    window_s: float

    def row(self, name: str) -> ProbeRow | None:
        """The row of a probe, None when it has none."""
        return next((row for row in self.rows if row.name == name), None)


def stale(monitor_view: MonitorView, state: str) -> MonitorView:
    """The picture with every probe that was on said to be ``state``: its figures are the last ones seen."""
    rows = tuple(replace(row, state=state, mark="dim") if row.on else row for row in monitor_view.rows)
    focus = monitor_view.focus
    if focus is not None:
        focus = replace(focus, row=next((row for row in rows if row.name == focus.row.name), focus.row))
    return replace(monitor_view, rows=rows, focus=focus)


def report_text(monitor_view: MonitorView, head: Sequence[str]) -> str:
    """The picture as plain text to paste somewhere: ``head`` lines, a table, the log."""
    lines = [*head, ""]
    table = [("probe", "state", "calls/s", "phase", "p50", "p99", "x quiet")]
    for row in monitor_view.rows:
        table.append(
            (
                row.title,
                row.state,
                "-" if row.calls_per_s is None else f"{row.calls_per_s:.0f}",
                row.phase or "-",
                duration(row.p50_us),
                duration(row.p99_us),
                "-" if row.ratio is None else f"{row.ratio:.1f}",
            )
        )
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    lines.append("")
    lines += [entry.text for entry in monitor_view.log] or ["No verdict: every measured probe is quiet."]
    return "\n".join(lines) + "\n"
