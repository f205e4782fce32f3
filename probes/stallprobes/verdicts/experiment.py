"""Blame experiment: its plan, and the conclusions from its windows.

The plan has these states: all off, all on, each alone, and each off with all others on. A round measures every state
once; when enough rounds are complete, only those that can decide something. A state's median is compared with that of
all off in the same round, so that drift between rounds cancels.

A state makes the stall if its latency is nearer, by ratio, to that with all aggressors on than to that with all off.
The median is compared by Student's t over the rounds, and by the sign test where a window has few calls, whose median
says little; the tail by Fisher's exact test. The exact tests must hold without any one round too: a single disturbance
of the machine proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import TypeVar

from stallprobes.latency.baseline import ENOUGH_CALLS
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import PERCENTILES, Quantile, phase_channels
from stallprobes.latency.statistics import fisher_exact, sign_test, t_interval
from stallprobes.latency.window import Window
from stallprobes.model import JUDGED_PHASES, Channel, Probe
from stallprobes.verdicts.blame import AggressorBlame, Blame, BlameOutcome, Conclusion, FigureBlame, Interval
from stallprobes.verdicts.evidence import SLOWER, SLOWER_NS, STALLED, STALLED_NS, TAIL_NS
from stallprobes.verdicts.rules import TAIL_CALLS, TAIL_SHARE

# Longest planned time (s) of a blame experiment, unless FEWEST_ROUNDS rounds take longer. A blame experiment switches
# the aggressors on and off to find the cause.
BUDGET_S = 10.0
# Smallest number of complete rounds of a blame experiment. A complete round measures every state (set of running
# aggressors) once. With fewer complete rounds, the experiment has no conclusion.
FEWEST_ROUNDS = 3
# Phases (parts of a call's latency) that a blame experiment compares: the judged phases that the host measures. Reason:
# GPU records arrive some 10 ms late, perhaps after a switch of aggressors. The wait contains the start on the GPU, and
# the experiment needs no phase for the start.
EXPERIMENT_PHASES = tuple(phase for phase in JUDGED_PHASES if phase.traits.host)
# Error probability of each exact test (Fisher's test or sign test) in a blame experiment.
_ALPHA = 0.05
# Planned number of rounds of a blame experiment with more than _FEW_STATES states. The plan has fewer rounds if the
# planned rounds would take longer than BUDGET_S.
_USUAL_ROUNDS = 4
# Largest number of states (sets of running aggressors) with which a blame experiment has _FEW_STATES_ROUNDS planned
# rounds.
_FEW_STATES = 4
# Planned number of rounds of a blame experiment with at most _FEW_STATES states.
_FEW_STATES_ROUNDS = 6
# Shortest planned window (s) for one state (set of running aggressors). If groups of victims take turns, the shortest
# window has this length for each group.
_SHORTEST_S = 0.1
# Longest planned window (s) for one state, unless the shortest window (_SHORTEST_S for each group of victims) is
# longer. Every window then has the length of the shortest window.
_LONGEST_S = 0.35
# Estimated time (s) that each change of state takes in an experiment, while calls return, GPU work ends and caches warm
# up.
_CHANGE_S = 0.1

# If an otherwise innocent aggressor adds at least this share of a stall's delay, the aggressor counts as contributing.
# The low end of the share's 95 % interval must reach this limit. Reason: the ratio to the baseline alone would not show
# that an aggressor adds 13 ms of 49 ms.
_LEAST_SHARE = 0.1

# Aggressors that run.
AggressorState = frozenset[str]
_State = TypeVar("_State")
# State in which no aggressor runs.
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
        return sum(len(windows) for windows in self.rounds)

    def round(self, number: int) -> tuple[AggressorState, ...]:
        """The states of a round, also of one beyond those of the plan."""
        return self.rounds[number] if number < len(self.rounds) else round_order(self.states, number)


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
    order = tuple(round_order(states, number) for number in range(rounds))
    return BlamePlan(tuple(aggressors), order, window_s, shortest_s, windows * (window_s + _CHANGE_S))


def round_order(states: Sequence[_State], number: int) -> tuple[_State, ...]:
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

    A victim has figures if every state was measured in FEWEST_ROUNDS rounds; later ones may lack some states.
    """
    rounds = _by_round(measured)
    concluded = [
        known
        for victim in victims
        for figure in _victim_figures(aggressors, victim, rounds)
        if (known := figure.conclude(victim.name, aggressors)) is not None
    ]
    idle = {name for window in measured for name in window.idle}
    return Blame(
        tuple(aggressors), len(rounds), seconds, tuple(concluded), tuple(name for name in aggressors if name in idle)
    )


def open_states(
    aggressors: Sequence[str], victims: Sequence[Probe], measured: Sequence[BlameWindow]
) -> frozenset[AggressorState]:
    """The states of which more windows could decide what ``measured`` leaves undecided in a report's figures."""
    rounds, states = _by_round(measured), set()
    for victim in victims:
        stalled: set[Channel] = set()
        for figure in _victim_figures(aggressors, victim, rounds):
            known = figure.conclude(victim.name, aggressors)
            # A report shows the tail of a channel whose median does not stall.
            if known is not None and known.outcome is not BlameOutcome.NONE and figure.channel not in stalled:
                stalled.add(figure.channel)
                states |= figure.open_states(known)
    return frozenset(states)


def _by_round(measured: Sequence[BlameWindow]) -> list[dict[AggressorState, BlameWindow]]:
    by_round: dict[int, dict[AggressorState, BlameWindow]] = {}
    for window in measured:
        by_round.setdefault(window.round, {})[window.state] = window
    return [states for _, states in sorted(by_round.items())]


def _victim_figures(
    aggressors: Sequence[str], victim: Probe, measured: Sequence[Mapping[AggressorState, BlameWindow]]
) -> list[_Figure]:
    """The figures of a victim, the median of a channel before its tail; none with too few rounds of every state."""
    rounds = [states for states in measured if all(victim.name in window.windows for window in states.values())]
    if sum(all(state in states for state in states_of(aggressors)) for states in rounds) < FEWEST_ROUNDS:
        return []
    figures = []
    windows = [{state: window.windows[victim.name] for state, window in states.items()} for states in rounds]
    shortest_ns = min(window.duration_ns for states in windows for window in states.values())
    # A state without one of its aggressors is another state.
    valid = [{state for state, window in states.items() if not window.idle} for states in rounds]
    known = list(
        dict.fromkeys(channel for states in windows for window in states.values() for channel in window.channels)
    )
    for phase in EXPERIMENT_PHASES:
        for channel in phase_channels(known, phase):
            calls = [
                {state: _calls(victim, channel, window) for state, window in states.items() if state in usable}
                for states, usable in zip(windows, valid, strict=True)
            ]
            figures += [_Figure(channel, quantile, calls, shortest_ns) for quantile in PERCENTILES]
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
    """Answer to whether a state makes the stall."""

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
        # By state and the round that is left out: many questions are asked of the same calls.
        self._sums: dict[tuple[AggressorState, int | None], Histogram] = {}

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
        alone_only = all(slow is _Slow.NO for slow in (self._slow(frozenset({name})) for name in aggressors))
        if outcome is BlameOutcome.STALL and alone_only and len(aggressors) > 1:
            ends = any(part.conclusion is not Conclusion.INNOCENT for part in parts)
            parts = tuple(part if ends else part.changed(conclusion=Conclusion.TOGETHER) for part in parts)
        shares = self._shares(aggressors) if slower else None
        if shares is not None:
            parts = tuple(_with_share(part, share, outcome) for part, share in zip(parts, shares, strict=True))
        channel = self.channel
        return FigureBlame(victim, channel.phase, channel.label or None, self.quantile, off_ns, on_ns, outcome, parts)

    def open_states(self, concluded: FigureBlame) -> set[AggressorState]:
        """The states that can decide the open questions of ``conclude``, with the states to compare them with."""
        every = frozenset(part.aggressor for part in concluded.aggressors)
        compared = {ALL_OFF, every, self._reference}
        if concluded.outcome is BlameOutcome.UNDECIDED:
            # What the aggressors do is a question once it is known that there is a stall.
            return compared
        names = [part.aggressor for part in concluded.aggressors if part.conclusion is Conclusion.UNDECIDED]
        states = {state for name in names for state in (frozenset({name}), every - {name})}
        unclear = {state for state in states if self._slow(state) is _Slow.UNCLEAR}
        return unclear | compared if unclear else set()

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
        key = state, leave_out
        if key not in self._sums:
            parts = [calls[state] for i, calls in enumerate(self._rounds) if i != leave_out and state in calls]
            self._sums[key] = reduce(Histogram.merge, parts, Histogram.empty())
        return self._sums[key]

    def _value(self, state: AggressorState, leave_out: int | None = None) -> float | None:
        """The percentile (ns) in all rounds, at least 1; None without calls."""
        value = self._merged(state, leave_out).percentile(self.quantile.percent)
        return None if value is None else max(value, 1.0)

    def _capped(self, state: AggressorState, leave_out: int | None = None) -> float | None:
        value = self._value(state, leave_out)
        return None if value is None else min(value, self._cap_ns)

    def _outcome(self, state: AggressorState, stalled: bool = False) -> BlameOutcome:
        """Outcome of ``state``: slower than all off by as much as a verdict requires; ``stalled``: as a stall does."""
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
        slower = log is not None and log[0] > 0
        if not slower and self._few_calls(state, ALL_OFF):
            slower = self._side(state, max(ratio * off_ns, off_ns + excess_ns)) is _Slow.YES
        return BlameOutcome.STALL if slower else BlameOutcome.UNDECIDED

    def _slow(self, state: AggressorState) -> _Slow:
        """Answer to whether ``state`` is nearer, by ratio, to the reference than to all off."""
        if state == self._reference:
            return _Slow.YES
        if state == ALL_OFF:
            return _Slow.NO
        if self.quantile is Quantile.P99:
            return self._slow_tail(state)
        off_ns, half_ns = self._capped(ALL_OFF), self._half_way()
        if off_ns is None or half_ns is None:
            return _Slow.UNCLEAR
        half = math.log(half_ns / off_ns)
        beyond = self._contrast(lambda values: math.log(values[state] / values[ALL_OFF]) - half, (state, ALL_OFF))
        if beyond is not None and not beyond[0] <= 0 <= beyond[1]:
            return _Slow.YES if beyond[0] > 0 else _Slow.NO
        few = self._few_calls(state, ALL_OFF, self._reference)
        return self._side(state, half_ns) if few else _Slow.UNCLEAR

    def _few_calls(self, *states: AggressorState) -> bool:
        """True if a window of one of ``states`` has too few calls for a median of its own."""
        return any(calls[state].count < ENOUGH_CALLS for calls in self._rounds for state in states if state in calls)

    def _half_way(self) -> float | None:
        """The latency (ns) half way by ratio between all off and the reference."""
        off_ns, on_ns = self._capped(ALL_OFF), self._capped(self._reference)
        return None if off_ns is None or on_ns is None else math.sqrt(off_ns * on_ns)

    def _side(self, state: AggressorState, cut_ns: float) -> _Slow:
        """On which side of ``cut_ns`` most calls of ``state`` are: the sign test of all rounds, and without any one."""
        if sum(state in calls for calls in self._rounds) < FEWEST_ROUNDS:
            return _Slow.UNCLEAR
        sides = {_most(self._merged(state, left_out), cut_ns) for left_out in (None, *range(len(self._rounds)))}
        return sides.pop() if len(sides) == 1 else _Slow.UNCLEAR

    def _slow_tail(self, state: AggressorState) -> _Slow:
        cut, calls = self._half_way(), self._merged(state)
        if cut is None or not calls.count:
            return _Slow.UNCLEAR
        more = self._more_slow_calls(state, ALL_OFF, cut)
        fewer = self._more_slow_calls(self._reference, state, cut)
        if more and fewer:
            share = calls.share_above(int(cut))
            return _Slow.YES if share >= TAIL_SHARE else _Slow.NO if share < TAIL_SHARE / 2 else _Slow.UNCLEAR
        return _Slow.YES if more else _Slow.NO if fewer else _Slow.UNCLEAR

    def _more_slow_calls(self, state: AggressorState, other: AggressorState, cut: float) -> bool:
        """True if more of the calls in ``state`` are above ``cut`` than in ``other``: Fisher's exact test.

        The difference must be significant in all rounds together, and without the round with the most slow calls of
        ``state``.
        """
        above = [_above(calls[state], cut) if state in calls else 0 for calls in self._rounds]
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
    ) -> tuple[float, float] | None:
        """The t interval of ``figure`` of the percentiles of ``states``; None with too few rounds.

        It is the mean over the rounds.
        """
        wanted = tuple(dict.fromkeys(states))
        rounds = [calls for calls in self._rounds if all(state in calls for state in wanted)]
        values = []
        for calls in rounds:
            numbers = {state: calls[state].percentile(self.quantile.percent) for state in wanted}
            known = {state: min(max(ns, 1.0), self._cap_ns) for state, ns in numbers.items() if ns is not None}
            if len(known) == len(wanted):
                values.append(figure(known))
        if len(values) < FEWEST_ROUNDS:
            return None
        mean, half = t_interval(values)
        return mean - half, mean + half

    def _shares(self, aggressors: Sequence[str]) -> list[Interval] | None:
        """Each aggressor's share of the delay with its interval, by the jackknife over rounds with Student's t."""
        whole = self._share_values(aggressors)
        count = len(self._rounds)
        parts = [self._share_values(aggressors, number) for number in range(count)]
        if whole is None or any(part is None for part in parts):
            return None
        intervals = []
        for place, value in enumerate(whole):
            pseudo = [count * value - (count - 1) * part[place] for part in parts if part is not None]
            _, half = t_interval(pseudo)
            intervals.append(Interval(value, max(value - half, 0.0), min(value + half, 1.0)))
        return intervals

    def _share_values(self, aggressors: Sequence[str], leave_out: int | None = None) -> list[float] | None:
        every = frozenset(aggressors)
        delay = {}
        off_ns = self._capped(ALL_OFF, leave_out)
        for state in states_of(aggressors):
            value = self._capped(state, leave_out)
            if value is None or off_ns is None:
                return None
            delay[state] = value - off_ns
        added = [max((delay[frozenset({name})] + delay[every] - delay[every - {name}]) / 2, 0.0) for name in aggressors]
        total = sum(added)
        return [ns / total for ns in added] if total > 0 else None


# Conclusion on an aggressor, by two results: whether the victim is slow while only the aggressor runs, and whether the
# victim is slow while all other aggressors run.
_CONCLUSION_OF = {
    (_Slow.YES, _Slow.NO): Conclusion.CAUSE,
    (_Slow.YES, _Slow.YES): Conclusion.SUFFICIENT,
    (_Slow.NO, _Slow.NO): Conclusion.NECESSARY,
    (_Slow.NO, _Slow.YES): Conclusion.INNOCENT,
}


def _with_share(part: AggressorBlame, share: Interval, outcome: BlameOutcome) -> AggressorBlame:
    adds = outcome is BlameOutcome.STALL and part.conclusion is Conclusion.INNOCENT and share.low >= _LEAST_SHARE
    return part.changed(share=share, conclusion=Conclusion.CONTRIBUTING if adds else part.conclusion)


def _above(calls: Histogram, cut: float) -> int:
    return round(calls.share_above(int(cut)) * calls.count)


def _most(calls: Histogram, cut: float) -> _Slow:
    """Result of the sign test: most calls take longer than ``cut`` (ns), or less long."""
    above = _above(calls, cut)
    if sign_test(above, calls.count) <= _ALPHA:
        return _Slow.YES
    return _Slow.NO if sign_test(calls.count - above, calls.count) <= _ALPHA else _Slow.UNCLEAR
