"""View model of the monitor, frozen: rows of the probe table, the focused probe, the verdict log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.live.gpu_history import GPU_VALUES
from stallprobes.live.history import BINS
from stallprobes.model import Phase, Role
from stallprobes.recording.observation import ProbeSet
from stallprobes.units import duration_ns
from stallprobes.verdicts.evidence import STALLED
from stallprobes.verdicts.verdict import Verdict

# Remaining time (s) above which the screen shows minutes and not seconds. The remaining time is the time until a probe
# has enough calls for a baseline or a verdict.
_MINUTES_FROM_S = 100


@dataclass(frozen=True)
class CallProgress:
    """``calls`` of the ``needed`` calls of a ``baseline``, or of a verdict; the rest takes about ``left_s`` seconds.

    ``left_s`` is None while an aggressor prevents a baseline.
    """

    calls: int
    needed: int
    left_s: float | None
    baseline: bool = False

    @property
    def state(self) -> str:
        """The state of a row: ``1/3 calls``, ``base 7/20``."""
        count = f"{self.calls}/{self.needed}"
        return f"base {count}" if self.baseline else f"{count} calls"

    @property
    def text(self) -> str:
        """``1 of the 3 calls for a verdict, about 10 s left``."""
        what = "its baseline" if self.baseline else "a verdict"
        if self.left_s is None:
            when = "counted while no aggressor runs"
        elif self.left_s > _MINUTES_FROM_S:
            when = f"about {self.left_s / 60:.0f} min left"
        else:
            when = f"about {max(self.left_s, 1):.0f} s left"
        return f"{self.calls} of the {self.needed} calls for {what}, {when}"


@dataclass(frozen=True)
class ProbeRow:
    """One row of the probe table. Times are nanoseconds, None where there is none.

    - ``state``: a word or two, or the range of an unsteady probe.
    - ``mark``: the style of ``state``: "good", "warn", "bad", "dim" or "".
    - ``phase``: the phase of the percentiles: the one with the worst verdict.
    - ``ratio``: the percentile ``quantile`` over that of the baseline, ``baseline_ns``.
    - ``quantile``: "p50", or "p99" where only the tail is slow.
    - ``strip``: a bin for each column of the last minute, -1 for no call.
    - ``range_ns``: the range of an unsteady probe.
    - ``progress``: the progress of a probe with too few calls for a baseline or a verdict.
    """

    name: str
    role: Role
    on: bool
    state: str
    mark: str = ""
    calls_per_s: float | None = None
    phase: Phase | None = None
    p50_ns: float | None = None
    p99_ns: float | None = None
    ratio: float | None = None
    quantile: Quantile = Quantile.P50
    in_flight_ns: int | None = None
    period_ns: int = 0
    strip: tuple[int, ...] = ()
    range_ns: tuple[float, float] | None = None
    baseline_ns: float | None = None
    progress: CallProgress | None = None

    @property
    def now_ns(self) -> float | None:
        """The present value of the percentile that is compared with the baseline (ns), or the age of a call in flight.

        None without calls."""
        return self.in_flight_ns or (self.p99_ns if self.quantile is Quantile.P99 else self.p50_ns)


@dataclass(frozen=True)
class LogEntry:
    """A verdict in the log; ``verdict`` is the worst of its time.

    ``began_s`` and ``ended_s`` are seconds since 1970, ``ended_s`` None while it holds. ``onset`` is a sentence about
    how long after a switch it began, ``since`` the aggressor that was switched; each is "" where that is not known.
    ``cut_off`` is the reason why its end was not observed, "" for an observed end.
    """

    number: int
    began_s: float
    verdict: Verdict
    ended_s: float | None = None
    onset: str = ""
    cut_off: str = ""
    since: str = ""

    @property
    def text(self) -> str:
        """The verdict's sentence and the onset."""
        return f"{self.verdict.sentence} {self.onset}".rstrip()


@dataclass(frozen=True)
class ChannelView:
    """Live and baseline histogram of one channel of the focused probe; ``label`` is "" for all operations of the phase.

    ``first_ns`` is the first call's latency, which no histogram contains. ``stalled`` is the histogram of the same call
    in the stall before a remedy, None without one.
    """

    phase: Phase
    label: str
    live: Histogram
    baseline: Histogram | None
    first_ns: int | None = None
    stalled: Histogram | None = None


@dataclass(frozen=True, eq=False)
class StalledBefore:
    """The victim of ``probe_set`` that stalled before the present remedy was loaded: its last ``row`` and ``channels``.

    ``counterpart`` is the name of the probe of the present set that makes the same call, None where the remedy makes
    another one. ``relation`` says what differs: ``same copy, context of spin``.
    """

    probe_set: ProbeSet
    row: ProbeRow
    channels: tuple[ChannelView, ...]
    counterpart: str | None
    relation: str


@dataclass(frozen=True)
class Stretch:
    """The part of a time axis in which ``probe_set`` was measured, from column ``first`` on, by its victim ``name``.

    ``rule`` is the column of the change to it; from there to ``first`` nothing was measured, since the engine started.
    None where the change is not on the axis. ``relation`` is a remedy's relation to the stall before it.
    """

    first: int
    rule: int | None
    name: str
    probe_set: ProbeSet
    relation: str = ""


@dataclass(frozen=True, eq=False)
class FocusView:
    """The focused probe.

    - ``heat``: uint32[columns][BINS], the oldest column first.
    - ``ages_ns``: the age of the oldest call in flight in each column, 0 for none.
    - ``marks``: (column, text) of switches.
    - ``column_s``: seconds of a column.
    - ``first``: the running number of the first column.
    - ``observed_s``: the observed time of each column in seconds, empty for all of it.
    - ``gpu``: the GPU_VALUES of each column, float32[values][columns], NaN where none is known.
    - ``earlier_slow_ns``: for the leading columns that are of earlier probe sets, the latency from which calls were
      slow there (ns, NaN where unknown); own columns have ``slow_ns``.
    - ``stretches``: the probe sets on the axis, the oldest first.
    - ``was_ns``: the latency of the same call in the stall before a remedy, None without one.
    - ``recorded``: the timeline is on.
    """

    row: ProbeRow
    channels: tuple[ChannelView, ...] = ()
    heat: NDArray[np.uint32] = field(default_factory=lambda: np.zeros((0, BINS), dtype=np.uint32))
    ages_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    marks: tuple[tuple[int, str], ...] = ()
    column_s: float = 0.5
    first: int = 0
    observed_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    gpu: NDArray[np.float32] = field(default_factory=lambda: np.full((len(GPU_VALUES), 0), np.nan, dtype=np.float32))
    earlier_slow_ns: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    stretches: tuple[Stretch, ...] = ()
    was_ns: float | None = None
    recorded: bool = False

    @property
    def slow_ns(self) -> float | None:
        """The latency from which calls are slow: three times the baseline's p99 of the slowest phase, None without."""
        tails = [
            channel.baseline.percentile(99)
            for channel in self.channels
            if channel.baseline is not None and not channel.label and channel.phase is not Phase.DUE
        ]
        known = [ns for ns in tails if ns is not None]
        return STALLED * max(known) if known else None


@dataclass(frozen=True, eq=False)
class MonitorView:
    """Everything that the monitor draws except header and NVML values.

    ``rows`` are in the order of the probe set. ``baseline_age_s`` is the age of the oldest baseline, None while one is
    missing; ``baseline_left_s`` is the rest of the measuring time, None while an aggressor prevents it. ``before`` is
    the stall with which a remedy is compared, None where no remedy is measured.
    """

    rows: tuple[ProbeRow, ...]
    focus: FocusView | None
    log: tuple[LogEntry, ...]
    baseline_age_s: float | None
    baseline_left_s: float | None
    before: StalledBefore | None = None

    def row(self, name: str) -> ProbeRow | None:
        """The row of a probe, None where there is none."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def progress(self) -> tuple[str, ...]:
        """A sentence on each victim that makes few calls, while it has too few for a baseline or a verdict."""
        rows = (row for row in self.rows if row.role is Role.VICTIM)
        return tuple(f"{row.name}: {row.progress.text}." for row in rows if row.progress is not None)

    @property
    def aggressors(self) -> tuple[ProbeRow, ...]:
        """The rows of the upper table."""
        return tuple(row for row in self.rows if row.role is Role.AGGRESSOR)

    @property
    def victims(self) -> tuple[ProbeRow, ...]:
        """The rows of the lower table: victims and the host control."""
        return tuple(row for row in self.rows if row.role is not Role.AGGRESSOR)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all rows from top to bottom."""
        return tuple(row.name for row in (*self.aggressors, *self.victims))

    def with_state(self, state: str) -> MonitorView:
        """The same view with ``state`` in the row of every running probe; all values are the last known ones."""
        rows = tuple(replace(row, state=state, mark="dim") if row.on else row for row in self.rows)
        focus = self.focus
        if focus is not None:
            focus = replace(focus, row=next((row for row in rows if row.name == focus.row.name), focus.row))
        return replace(self, rows=rows, focus=focus)


def report_text(view: MonitorView, head: Sequence[str]) -> str:
    """The view as plain text for the clipboard: ``head`` lines, a table, the log."""
    lines = [*head, ""]
    table = [("probe", "state", "calls/s", "phase", "p50", "p99", "x baseline")]
    for row in view.rows:
        table.append(
            (
                row.name,
                row.state,
                "-" if row.calls_per_s is None else f"{row.calls_per_s:.0f}",
                row.phase or "-",
                duration_ns(row.p50_ns),
                duration_ns(row.p99_ns),
                "-" if row.ratio is None else f"{row.ratio:.1f}",
            )
        )
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    lines.append("")
    quiet = ["No verdict: every probe is as fast as its baseline."]
    lines += [*view.progress, *(entry.text for entry in view.log)] or quiet
    return "\n".join(lines) + "\n"
