"""Blame experiment: its plan, and the conclusions from its windows.

The plan has these states: all off, all on, each alone, and each off with all others on. Every round measures every
state once. States are compared within a round, so that drift between rounds cancels.

A state makes the stall if its latency is nearer, by ratio, to that with all aggressors on than to that with all off.
The median is compared by Student's t over the rounds, the tail by Fisher's exact test, which must hold without the
round with the most slow calls too: a single disturbance of the machine proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce

from stallprobes.latency.baseline import ENOUGH_CALLS
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import PERCENTILES, Quantile, phase_channels
from stallprobes.latency.statistics import fisher_exact, student_t_limit
from stallprobes.latency.window import Window
from stallprobes.model import JUDGED_PHASES, Channel, Probe
from stallprobes.verdicts.blame import AggressorBlame, Blame, BlameOutcome, Conclusion, FigureBlame, Interval
from stallprobes.verdicts.evidence import SLOWER, SLOWER_NS, STALLED, STALLED_NS, TAIL_NS
from stallprobes.verdicts.rules import TAIL_CALLS, TAIL_SHARE

BUDGET_S = 10.0
FEWEST_ROUNDS = 3
# Records of the GPU arrive some 10 ms later, in the window of another state; the wait contains the start.
EXPERIMENT_PHASES = tuple(phase for phase in JUDGED_PHASES if phase.traits.host)
# The error probability of each comparison; the tail needs two at once.
_ALPHA = 0.05
_USUAL_ROUNDS, _FEW_STATES, _FEW_STATES_ROUNDS = 4, 4, 6
_SHORTEST_S, _LONGEST_S = 0.1, 0.35
# The time of a change of states: calls return, work on the GPU ends, caches warm up.
_CHANGE_S = 0.1

# A part of the delay that is worth a word. By ratio, a stall of 13 of 49 ms is the same stall, and of 50 us is none.
_LEAST_SHARE = 0.1

AggressorState = frozenset[str]
ALL_OFF: AggressorState = frozenset()


@dataclass(frozen=True)
class BlamePlan:
    """States of the experiment in the order in which they are measured, by round; lengths in seconds.

    ``window_s`` is the intended length of a window, at least ``shortest_s``. ``total_s`` includes the changes of state.
    """

    aggressors: tuple[str, ...]
    rounds: tuple[tuple[AggressorState, ...], ...]
    window_s: float
    shortest_s: float
    total_s: float

    @property
    def states(self) -> tuple[AggressorState, ...]:
        """Every state once: all off, all on, each alone, each off."""
        return states_of(self.aggressors)

    @property
    def windows(self) -> int:
        """Number of windows in all rounds."""
        return sum(len(one) for one in self.rounds)

    def round(self, number: int) -> tuple[AggressorState, ...]:
        """The states of a round, also of one beyond those of the plan."""
        return self.rounds[number] if number < len(self.rounds) else _round_order(self.states, number)


def states_of(aggressors: Sequence[str]) -> tuple[AggressorState, ...]:
    """All off, all on, each alone, each off with the others on; each state once."""
    every = frozenset(aggressors)
    alone = [frozenset({name}) for name in aggressors]
    without = [every - {name} for name in aggressors]
    return tuple(dict.fromkeys([ALL_OFF, every, *alone, *without]))


def plan(aggressors: Sequence[str], slot_groups: int = 1) -> BlamePlan:
    """The experiment for ``aggressors``.

    It takes BUDGET_S at most for up to seven aggressors, four with two groups of victims. With more, the windows and
    rounds stay as few and short as for these, and it takes longer. ``slot_groups`` is the number of groups of victims
    that run in slots; a window holds a slot of each. Raises ValueError without aggressors.
    """
    if not aggressors:
        raise ValueError("blame needs at least one aggressor")
    states = states_of(aggressors)
    shortest_s = _SHORTEST_S * max(1, slot_groups)
    rounds = _FEW_STATES_ROUNDS if len(states) <= _FEW_STATES else _USUAL_ROUNDS
    while rounds > FEWEST_ROUNDS and rounds * len(states) * (shortest_s + _CHANGE_S) > BUDGET_S:
        rounds -= 1
    windows = rounds * len(states)
    longest_s = max(_LONGEST_S, shortest_s)
    window_s = min(max(BUDGET_S / windows - _CHANGE_S, shortest_s), longest_s)
    order = tuple(_round_order(states, number) for number in range(rounds))
    return BlamePlan(tuple(aggressors), order, window_s, shortest_s, windows * (window_s + _CHANGE_S))


def _round_order(states: Sequence[AggressorState], number: int) -> tuple[AggressorState, ...]:
    """The order of one round: a row of Williams's Latin square, reversed in every second round.

    In the rows of the square each state follows each other one equally often; a row and its reverse cancel linear
    drift.
    """
    count = len(states)
    row = [(place + 1) // 2 if place % 2 else (count - place // 2) % count for place in range(count)]
    shifted = [states[(place + number // 2) % count] for place in row]
    return tuple(reversed(shifted)) if number % 2 else tuple(shifted)


@dataclass(frozen=True, eq=False)
class BlameWindow:
    """The victims' windows in one state of one round, by name. ``idle`` are aggressors that were on and did not run."""

    round: int
    state: AggressorState
    windows: Mapping[str, Window]
    idle: frozenset[str] = frozenset()


def conclude(
    aggressors: Sequence[str], victims: Sequence[Probe], measured: Sequence[BlameWindow], seconds: float
) -> Blame:
    """The result of an experiment with ``aggressors`` from its windows, which took ``seconds``.

    Only rounds in which every state was measured count.
    """
    states = states_of(aggressors)
    by_round: dict[int, dict[AggressorState, BlameWindow]] = {}
    for one in measured:
        by_round.setdefault(one.round, {})[one.state] = one
    rounds = [found for _, found in sorted(by_round.items()) if all(state in found for state in states)]
    figures: list[FigureBlame] = []
    for victim in victims:
        usable = [found for found in rounds if all(victim.name in found[state].windows for state in states)]
        if len(usable) >= FEWEST_ROUNDS:
            figures += _victim_figures(aggressors, victim, usable)
    idle = {name for found in rounds for one in found.values() for name in one.idle}
    return Blame(
        tuple(aggressors), len(rounds), seconds, tuple(figures), tuple(name for name in aggressors if name in idle)
    )


def _victim_figures(
    aggressors: Sequence[str], victim: Probe, rounds: Sequence[Mapping[AggressorState, BlameWindow]]
) -> list[FigureBlame]:
    figures = []
    windows = [{state: one.windows[victim.name] for state, one in found.items()} for found in rounds]
    shortest_ns = min(one.duration_ns for found in windows for one in found.values())
    # A state without one of its aggressors is another state.
    valid = [{state for state, one in found.items() if not one.idle} for found in rounds]
    known = list(dict.fromkeys(channel for found in windows for one in found.values() for channel in one.channels))
    for phase in EXPERIMENT_PHASES:
        for channel in phase_channels(known, phase):
            calls = [
                {state: _calls(victim, channel, one) for state, one in found.items() if state in usable}
                for found, usable in zip(windows, valid, strict=True)
            ]
            for quantile in PERCENTILES:
                figure = _Figure(channel, quantile, calls, shortest_ns)
                found = figure.conclude(victim.name, aggressors)
                if found is not None:
                    figures.append(found)
    return figures


def _calls(victim: Probe, channel: Channel, window: Window) -> Histogram:
    """The calls of a channel, with the one in flight by the time it waited within the window."""
    calls = window.channels.get(channel, Histogram.empty())
    flight = window.in_flight
    if flight is None:
        return calls
    op = victim.program.ops[flight.op]
    age_ns = min(flight.age_ns, window.duration_ns)
    inside = op.phase is channel.phase and channel.label in ("", op.label)
    # A call of usual length that the snapshot met would count with a part of its time.
    if not inside or age_ns < (calls.percentile(50) or 0.0):
        return calls
    return calls.merge(Histogram.of([age_ns]))


class _Slow(StrEnum):
    """Whether a state makes the stall."""

    YES = "yes"
    NO = "no"
    UNCLEAR = "unclear"


class _Figure:
    """Statistics of one quantile of one channel of a victim; ``calls`` are those of each state, by round.

    Latencies above ``cap_ns``, the length of the shortest window, are compared as equal: how long a call waits that
    does not return depends on the window.
    """

    def __init__(
        self,
        channel: Channel,
        quantile: Quantile,
        calls: Sequence[Mapping[AggressorState, Histogram]],
        cap_ns: float,
    ) -> None:
        self._cap_ns = max(cap_ns, 1.0)
        self.channel = channel
        self.quantile = quantile
        self._rounds = calls
        self._reference: AggressorState = ALL_OFF

    def conclude(self, victim: str, aggressors: Sequence[str]) -> FigureBlame | None:
        """The result; None if the victim made no calls with all aggressors off, or none with all on."""
        every = frozenset(aggressors)
        off_ns, on_ns = self._value(ALL_OFF), self._value(every)
        if off_ns is None or on_ns is None:
            return None
        self._reference, outcome = every, self._outcome(every)
        slower = outcome is not BlameOutcome.NONE
        if outcome is BlameOutcome.NONE:
            # Aggressors can stall each other, so that all together do less than one alone.
            masked = [state for state in states_of(aggressors) if self._outcome(state, stalled=True) == "stall"]
            if masked:
                self._reference = max(masked, key=lambda state: self._value(state) or 0.0)
                # With all on there can be too few calls to say so.
                clear = self._slow(every) is _Slow.NO
                outcome = BlameOutcome.MASKED if clear else BlameOutcome.UNDECIDED
        parts = tuple(self._part(name, every, outcome) for name in aggressors)
        alone_only = all(one is _Slow.NO for one in (self._slow(frozenset({name})) for name in aggressors))
        if outcome is BlameOutcome.STALL and alone_only and len(aggressors) > 1:
            ends = any(one.conclusion is not Conclusion.INNOCENT for one in parts)
            parts = tuple(one if ends else replace(one, conclusion=Conclusion.TOGETHER) for one in parts)
        shares = self._shares(aggressors) if slower else None
        if shares is not None:
            parts = tuple(_with_share(one, share, outcome) for one, share in zip(parts, shares, strict=True))
        return FigureBlame(victim, self.channel, self.quantile, off_ns, on_ns, outcome, parts)

    def _part(self, name: str, every: AggressorState, outcome: BlameOutcome) -> AggressorBlame:
        alone, without = frozenset({name}), every - {name}
        conclusion = Conclusion.UNDECIDED
        if outcome is BlameOutcome.NONE:
            conclusion = Conclusion.INNOCENT
        elif outcome is BlameOutcome.MASKED:
            slow = self._slow(alone)
            conclusion = {_Slow.YES: Conclusion.SUFFICIENT, _Slow.NO: Conclusion.INNOCENT}.get(slow, conclusion)
        elif outcome is BlameOutcome.STALL:
            conclusion = _CONCLUSION_OF.get((self._slow(alone), self._slow(without)), Conclusion.UNDECIDED)
        return AggressorBlame(name, self._value(alone), self._value(without), None, conclusion)

    def _merged(self, state: AggressorState, leave_out: int | None = None) -> Histogram:
        parts = [found[state] for i, found in enumerate(self._rounds) if i != leave_out and state in found]
        return reduce(Histogram.merge, parts, Histogram.empty())

    def _value(self, state: AggressorState, leave_out: int | None = None) -> float | None:
        """The percentile (ns) in all rounds, at least 1; None without calls."""
        value = self._merged(state, leave_out).percentile(self.quantile.percent)
        return None if value is None else max(value, 1.0)

    def _capped(self, state: AggressorState, leave_out: int | None = None) -> float | None:
        value = self._value(state, leave_out)
        return None if value is None else min(value, self._cap_ns)

    def _outcome(self, state: AggressorState, stalled: bool = False) -> BlameOutcome:
        """Whether ``state`` is slower than all off by as much as a verdict requires; ``stalled``: than a stall does."""
        off_ns, now_ns = self._value(ALL_OFF), self._value(state)
        if off_ns is None or now_ns is None or state == ALL_OFF:
            return BlameOutcome.NONE
        if self.quantile is Quantile.P99:
            limit = max(STALLED * off_ns, off_ns + TAIL_NS)
            calls = self._merged(state)
            share = calls.share_above(int(limit))
            if share < TAIL_SHARE:
                return BlameOutcome.NONE
            if share * calls.count < TAIL_CALLS:
                return BlameOutcome.UNDECIDED
            return BlameOutcome.STALL if self._more_slow_calls(state, ALL_OFF, limit) else BlameOutcome.UNDECIDED
        ratio, excess_ns = (STALLED, STALLED_NS) if stalled else (SLOWER, SLOWER_NS)
        if now_ns < ratio * off_ns or now_ns - off_ns < excess_ns:
            return BlameOutcome.NONE
        log = self._contrast(lambda values: math.log(values[state] / values[ALL_OFF]), (state, ALL_OFF))
        return BlameOutcome.STALL if log is not None and log.low > 0 else BlameOutcome.UNDECIDED

    def _slow(self, state: AggressorState) -> _Slow:
        """Whether ``state`` is nearer, by ratio, to the reference than to all off."""
        if state == self._reference:
            return _Slow.YES
        if state == ALL_OFF:
            return _Slow.NO
        if self.quantile is Quantile.P99:
            return self._slow_tail(state)
        reference = self._reference
        beyond = self._contrast(
            lambda v: math.log(v[state]) - (math.log(v[ALL_OFF]) + math.log(v[reference])) / 2,
            (state, ALL_OFF, reference),
        )
        if beyond is None:
            return _Slow.UNCLEAR
        return _Slow.YES if beyond.low > 0 else _Slow.NO if beyond.high < 0 else _Slow.UNCLEAR

    def _slow_tail(self, state: AggressorState) -> _Slow:
        off_ns, on_ns = self._capped(ALL_OFF), self._capped(self._reference)
        calls = self._merged(state)
        if off_ns is None or on_ns is None or not calls.count:
            return _Slow.UNCLEAR
        cut = math.sqrt(off_ns * on_ns)
        more = self._more_slow_calls(state, ALL_OFF, cut)
        fewer = self._more_slow_calls(self._reference, state, cut)
        if more and fewer:
            share = calls.share_above(int(cut))
            return _Slow.YES if share >= TAIL_SHARE else _Slow.NO if share < TAIL_SHARE / 2 else _Slow.UNCLEAR
        return _Slow.YES if more else _Slow.NO if fewer else _Slow.UNCLEAR

    def _more_slow_calls(self, state: AggressorState, other: AggressorState, cut: float) -> bool:
        """Whether more of the calls in ``state`` are above ``cut`` than in ``other``: Fisher's exact test.

        It must hold in all rounds, and without the round in which ``state`` has most of them.
        """
        above = [_above(found[state], cut) if state in found else 0 for found in self._rounds]
        worst = max(range(len(above)), key=lambda number: above[number])
        for leave_out in (None, worst):
            here, there = self._merged(state, leave_out), self._merged(other, leave_out)
            if not here.count or not there.count:
                return False
            if fisher_exact(_above(here, cut), here.count, _above(there, cut), there.count).more > _ALPHA:
                return False
        return True

    def _contrast(
        self, figure: Callable[[Mapping[AggressorState, float]], float], states: Iterable[AggressorState]
    ) -> Interval | None:
        """``figure`` of the percentiles of ``states`` with its t interval; None with too few rounds.

        It is the mean over the rounds. The percentile of a few calls says little: where a window has fewer than
        ENOUGH_CALLS, it is that of all rounds, with the jackknife over the rounds.
        """
        wanted = tuple(dict.fromkeys(states))
        rounds = [found for found in self._rounds if all(state in found for state in wanted)]
        count = len(rounds)
        if count < FEWEST_ROUNDS:
            return None
        if all(found[state].count >= ENOUGH_CALLS for found in rounds for state in wanted):
            values = [self._of_rounds(figure, wanted, [found]) for found in rounds]
        else:
            whole = self._of_rounds(figure, wanted, rounds)
            parts = [self._of_rounds(figure, wanted, [*rounds[:i], *rounds[i + 1 :]]) for i in range(count)]
            values = [None if whole is None or one is None else count * whole - (count - 1) * one for one in parts]
        known = [value for value in values if value is not None]
        return _t_interval(known) if len(known) == count else None

    def _of_rounds(
        self,
        figure: Callable[[Mapping[AggressorState, float]], float],
        states: Sequence[AggressorState],
        rounds: Sequence[Mapping[AggressorState, Histogram]],
    ) -> float | None:
        numbers = {}
        for state in states:
            calls = reduce(Histogram.merge, (found[state] for found in rounds))
            value = calls.percentile(self.quantile.percent)
            if value is None:
                return None
            numbers[state] = min(max(value, 1.0), self._cap_ns)
        return figure(numbers)

    def _shares(self, aggressors: Sequence[str]) -> list[Interval] | None:
        """Each aggressor's share of the delay with its interval, by the jackknife over rounds with Student's t."""
        whole = self._share_values(aggressors)
        count = len(self._rounds)
        parts = [self._share_values(aggressors, number) for number in range(count)]
        if whole is None or any(part is None for part in parts):
            return None
        found = []
        for place, value in enumerate(whole):
            pseudo = [count * value - (count - 1) * part[place] for part in parts if part is not None]
            spread = _t_interval(pseudo)
            half = spread.high - spread.value
            found.append(Interval(value, max(value - half, 0.0), min(value + half, 1.0)))
        return found

    def _share_values(self, aggressors: Sequence[str], leave_out: int | None = None) -> list[float] | None:
        every = frozenset(aggressors)
        delay = {}
        off_ns = self._capped(ALL_OFF, leave_out)
        for state in states_of(aggressors):
            value = self._capped(state, leave_out)
            if value is None or off_ns is None:
                return None
            delay[state] = value - off_ns
        added = [max((delay[frozenset({one})] + delay[every] - delay[every - {one}]) / 2, 0.0) for one in aggressors]
        total = sum(added)
        return [one / total for one in added] if total > 0 else None


_CONCLUSION_OF = {
    # (slow with the aggressor alone, slow with only this one off)
    (_Slow.YES, _Slow.NO): Conclusion.CAUSE,
    (_Slow.YES, _Slow.YES): Conclusion.SUFFICIENT,
    (_Slow.NO, _Slow.NO): Conclusion.NECESSARY,
    (_Slow.NO, _Slow.YES): Conclusion.INNOCENT,
}


def _with_share(part: AggressorBlame, share: Interval, outcome: BlameOutcome) -> AggressorBlame:
    adds = outcome is BlameOutcome.STALL and part.conclusion is Conclusion.INNOCENT and share.low >= _LEAST_SHARE
    return replace(part, share=share, conclusion=Conclusion.CONTRIBUTING if adds else part.conclusion)


def _t_interval(values: Sequence[float]) -> Interval:
    """Mean with its 95 % interval by Student's t, of at least two values."""
    count = len(values)
    mean = sum(values) / count
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    half = student_t_limit(count - 1) * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half)


def _above(calls: Histogram, cut: float) -> int:
    return round(calls.share_above(int(cut)) * calls.count)
