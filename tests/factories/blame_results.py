"""Results of blame experiments made by hand."""

from __future__ import annotations

from stallprobes.latency.ratio import Quantile
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.blame import AggressorBlame, Blame, BlameOutcome, Conclusion, FigureBlame, Interval

CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)
SPIN, COPY, PIN = "spin", "d2h-pageable-fresh", "host-alloc-free"


def part(
    aggressor: str,
    conclusion: Conclusion,
    alone_ns: float | None = None,
    without_ns: float | None = None,
    share: tuple[float, float, float] | None = None,
) -> AggressorBlame:
    """An aggressor's part in a figure; ``share`` is value, lower and upper bound."""
    return AggressorBlame(aggressor, alone_ns, without_ns, None if share is None else Interval(*share), conclusion)


def figure(
    victim: str,
    channel: Channel,
    off_ns: float,
    on_ns: float,
    *parts: AggressorBlame,
    quantile: Quantile = Quantile.P50,
    outcome: BlameOutcome = BlameOutcome.STALL,
) -> FigureBlame:
    """A figure of a victim with the parts of the aggressors."""
    return FigureBlame(victim, channel.phase, channel.label or None, quantile, off_ns, on_ns, outcome, parts)


def result(*figures: FigureBlame, idle: tuple[str, ...] = ()) -> Blame:
    """The result of four rounds."""
    aggressors = dict.fromkeys(one.aggressor for found in figures for one in found.aggressors)
    return Blame(tuple(aggressors), rounds=4, seconds=8.8, figures=figures, idle=idle)


UNDECIDED = figure(
    "launch",
    WAIT,
    5_600.0,
    5_660.0,
    *(part(name, Conclusion.UNDECIDED, 5_600.0, 5_640.0) for name in (SPIN, COPY, PIN)),
    quantile=Quantile.P99,
    outcome=BlameOutcome.UNDECIDED,
)
PINNED = figure(
    "d2h-pinned",
    CALL,
    1_520.0,
    4_750_000.0,
    part(SPIN, Conclusion.INNOCENT, 1_520.0, 4_880_000.0, (0.0, 0.0, 0.1)),
    part(COPY, Conclusion.INNOCENT, 2_010.0, 4_690_000.0, (0.01, 0.0, 0.16)),
    part(PIN, Conclusion.CAUSE, 4_110_000.0, 2_020.0, (0.99, 0.77, 1.0)),
)
SECONDARY = figure(
    "d2d@secondary",
    WAIT,
    5_600.0,
    1_920_000.0,
    part(SPIN, Conclusion.CAUSE, 1_910_000.0, 5_620.0, (1.0, 0.99, 1.0)),
    part(COPY, Conclusion.INNOCENT, 5_610.0, 1_920_000.0, (0.0, 0.0, 0.01)),
    part(PIN, Conclusion.INNOCENT, 5_600.0, 1_920_000.0, (0.0, 0.0, 0.01)),
)
QUIET = tuple(figure(name, CALL, 5_600.0, 5_610.0, outcome=BlameOutcome.NONE) for name in ("event-record", "d2d"))
# Two causes, an undecided figure and two quiet victims; what stalls worst is not the first.
SEVERAL = result(UNDECIDED, SECONDARY, PINNED, *QUIET)
