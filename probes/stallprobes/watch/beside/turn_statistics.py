"""Statistics of turns: what a step takes with an aggressor, compared with the turns without one just before and after.

Turns next to each other are compared, so that drift of the program cancels. As in a blame experiment, the logarithms of
the ratios are averaged over the turns, with Student's t.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallprobes.latency.statistics import t_interval
from stallprobes.watch.beside.result import (
    BesideOutcome,
    BesideRow,
    BesideUnit,
    GrownLine,
    GrownPart,
    RatioInterval,
    StepTimes,
)
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import NUMBERS, ORDER, Part
from stallprobes.watch.division.turns import NO_AGGRESSOR
from stallprobes.watch.intervals import NONE, Int64s, int64s
from stallprobes.watch.reading.call_stack import StackFrame

# Smallest number of turns with an aggressor from which its effect is known.
FEWEST_TURNS = 3
# Reason why an effect is not known before the first turn with an aggressor has ended.
NO_TURN = "no turn of it has ended"
# Smallest number of steps from which their 99th percentile is known.
_LEAST_OF_SLOW = 100
# Largest distance of a ratio's interval from 1 that is no effect. Reason: the clocks of a GPU and of a CPU move by that
# much.
_LEAST_EFFECT = 0.01
# Factor of an interval whose turns share the turns without an aggressor between them: with equal scatter in all turns,
# the variance of their mean is by this factor, squared, above that of independent ones.
_SHARED = 1.17
# Largest logarithm of an end of an interval that is written.
_MOST_LOG = 30.0
# Largest end of a ratio's interval, and the inverse of the smallest one, with which steps take as long as without an
# aggressor. With a wider interval, it is not known.
_MOST_SAME = 1.1
# Smallest growth of a part or line of the program's time, as a share of a step without an aggressor.
_LEAST_GROWTH = 0.1


@dataclass(frozen=True, eq=False)
class Turn:
    """A turn that has ended. ``aggressor`` is NO_AGGRESSOR for one without.

    ``steps`` are the durations (ns) of its whole steps. Without regular steps, ``waits`` is how many calls that wait or
    copy began in its time. ``mhz`` are readings of the SM clock. A turn that does not ``count`` separates others only.
    """

    aggressor: str
    begin_ns: int
    end_ns: int
    steps: Int64s
    waits: int = 0
    mhz: tuple[float, ...] = ()
    counts: bool = True

    @property
    def typical_ns(self) -> float:
        """The median step, or the mean time from one wait to the next."""
        return float(np.median(self.steps)) if len(self.steps) else (self.end_ns - self.begin_ns) / max(self.waits, 1)


def row_of(
    aggressor: str,
    turns: Sequence[Turn],
    unit: BesideUnit,
    parts: Mapping[str, Int64s],
    lines: Mapping[str, Mapping[StackFrame, Figure]],
) -> BesideRow:
    """The row of an aggressor by all turns in their order.

    By kind of turn, ``parts`` are the time of each part, ``lines`` the share of the time at each line.
    """
    pairs = []
    for place, turn in enumerate(turns):
        beside = [other for other in turns[max(place - 1, 0) : place + 2] if other.aggressor == NO_AGGRESSOR]
        neighbours = [other for other in beside if other.counts]
        if turn.aggressor == aggressor and turn.counts and neighbours:
            pairs.append((turn, neighbours))
    if not pairs:
        return BesideRow(aggressor=aggressor, reason=NO_TURN)
    on = [turn for turn, _ in pairs]
    off = list({id(turn): turn for _, neighbours in pairs for turn in neighbours}.values())
    row = BesideRow(aggressor=aggressor, turns=len(on), off=_times(off, unit), on=_times(on, unit))
    if len(on) < FEWEST_TURNS:
        return row.changed(reason=f"{len(on)} of at least {FEWEST_TURNS} turns")
    mean, half = t_interval(
        [
            math.log(turn.typical_ns / statistics.geometric_mean(other.typical_ns for other in neighbours))
            for turn, neighbours in pairs
        ]
    )
    # The only aggressor shares each turn without one with its next turn, so that what is averaged is correlated.
    half *= _SHARED if len(off) < sum(len(neighbours) for _, neighbours in pairs) else 1.0
    ratio = RatioInterval(*(math.exp(min(value, _MOST_LOG)) for value in (mean, mean - half, mean + half)))
    outcome = _outcome(ratio)
    if outcome is BesideOutcome.SLOWER:
        row = row.changed(grew=_grown(parts, aggressor, ratio.ratio), line=_grown_line(lines, aggressor, ratio))
    reason = "its turns differ too much" if outcome is BesideOutcome.UNKNOWN else ""
    return row.changed(ratio=ratio, outcome=outcome, reason=reason)


def _outcome(ratio: RatioInterval) -> BesideOutcome:
    if ratio.low > 1 + _LEAST_EFFECT:
        return BesideOutcome.SLOWER
    if ratio.high < 1 - _LEAST_EFFECT:
        return BesideOutcome.FASTER
    return BesideOutcome.SAME if ratio.low >= 1 / _MOST_SAME and ratio.high <= _MOST_SAME else BesideOutcome.UNKNOWN


def _times(turns: Sequence[Turn], unit: BesideUnit) -> StepTimes:
    mhz = [value for turn in turns for value in turn.mhz]
    clock = statistics.median(mhz) if mhz else None
    if unit is BesideUnit.WAIT:
        waits = sum(turn.waits for turn in turns)
        mean_ns = sum(turn.end_ns - turn.begin_ns for turn in turns) / max(waits, 1)
        return StepTimes(waits, round(mean_ns), None, clock)
    steps = int64s(np.concatenate([NONE, *(turn.steps for turn in turns)]))
    p99_ns = round(float(np.percentile(steps, 99))) if len(steps) >= _LEAST_OF_SLOW else None
    return StepTimes(len(steps), round(float(np.median(steps))), p99_ns, clock)


def _grown(parts: Mapping[str, Int64s], aggressor: str, ratio: float) -> GrownPart | None:
    """The part whose time in a step grew most, where a step took ``ratio`` times as long."""
    off, on = (_shares(parts.get(kind, NONE)) for kind in (NO_AGGRESSOR, aggressor))
    if not off or not on:
        return None
    part = max(on, key=lambda each: ratio * on[each] - off[each])
    if part is Part.UNKNOWN or ratio * on[part] - off[part] < _LEAST_GROWTH:
        return None
    return GrownPart(part, off[part], on[part])


def _grown_line(
    lines: Mapping[str, Mapping[StackFrame, Figure]], aggressor: str, ratio: RatioInterval
) -> GrownLine | None:
    """The line whose time in a step grew most, if it certainly grew."""
    off, on = (lines.get(kind, {}) for kind in (NO_AGGRESSOR, aggressor))
    growth = {
        place: ratio.ratio * on[place].share - off[place].share
        for place in off.keys() & on.keys()
        if ratio.low * on[place].low > off[place].high
    }
    place = max(growth, key=lambda each: growth[each], default=None)
    if place is None or growth[place] < _LEAST_GROWTH:
        return None
    return GrownLine(place, off[place].share, on[place].share)


def _shares(sums: Int64s) -> dict[Part, float]:
    """The share of each part in the time without its end; empty where nothing is known."""
    known = {part: int(sums[NUMBERS[part]]) for part in ORDER if part is not Part.END} if len(sums) else {}
    whole = sum(known.values())
    return {part: ns / whole for part, ns in known.items()} if whole else {}
