"""The plan of a blame experiment and its conclusions, on windows made by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

import pytest

from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import InFlight, Window
from stallprobes.model import MS, Channel, Phase, Probe
from stallprobes.patterns.naming import parse_probe
from stallprobes.verdicts import experiment
from stallprobes.verdicts.blame import (
    Blame,
    BlameOutcome,
    Conclusion,
    FigureBlame,
    Interval,
    proven,
)
from stallprobes.verdicts.experiment import ALL_OFF, BUDGET_S, FEWEST_ROUNDS, AggressorState, BlameWindow
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict

CALL = Channel(Phase.CALL)
LAUNCH = parse_probe("launch")
A, B, C = "host-register", "alloc-free", "spin"
QUIET_NS, SLOW_NS = 3_000, 900_000
CALLS = 150

# The latencies (ns) of a window: from the running aggressors, the round and a random generator.
Calls = Callable[[AggressorState, int, random.Random], Sequence[int]]


def jitter(center_ns: float, rng: random.Random, count: int = CALLS) -> list[int]:
    """Latencies around ``center_ns``."""
    return [max(1, round(center_ns * rng.lognormvariate(0, 0.08))) for _ in range(count)]


def slow_if(condition: Callable[[AggressorState], bool], slow_ns: int = SLOW_NS) -> Calls:
    """Slow calls in the states of ``condition``, quiet ones in all others."""
    return lambda state, _number, rng: jitter(slow_ns if condition(state) else QUIET_NS, rng)


def window(calls: Sequence[int], flight: InFlight | None = None, duration_ns: int = 150 * MS) -> Window:
    """A window with these latencies in the phase call."""
    return Window({CALL: Histogram.of(calls)}, len(calls), duration_ns, in_flight=flight)


def windows_of(
    names: Sequence[str],
    calls: Calls,
    *,
    seed: int = 1,
    idle: Callable[[AggressorState], set[str]] = lambda _: set(),
    rounds: Iterable[int] | None = None,
    states: Collection[AggressorState] | None = None,
) -> list[BlameWindow]:
    """The windows of an experiment in which the launch has the latencies of ``calls``; all that are planned if None."""
    rng, plan = random.Random(seed), experiment.plan(names)
    return [
        BlameWindow(number, state, {LAUNCH.name: window(calls(state, number, rng))}, frozenset(idle(state)))
        for number in (range(len(plan.rounds)) if rounds is None else rounds)
        for state in plan.round(number)
        if states is None or state in states
    ]


def measured(
    names: Sequence[str], calls: Calls, *, seed: int = 1, idle: Callable[[AggressorState], set[str]] = lambda _: set()
) -> Blame:
    """The result of an experiment in which the launch has the latencies of ``calls``."""
    return experiment.conclude(names, [LAUNCH], windows_of(names, calls, seed=seed, idle=idle), 9.0)


def figure(result: Blame, quantile: Quantile = Quantile.P50) -> FigureBlame:
    """The launch's figure of the phase call."""
    found = result.find(LAUNCH.name, Phase.CALL, quantile)
    assert found is not None
    return found


def conclusions(result: Blame, quantile: Quantile = Quantile.P50) -> dict[str, Conclusion]:
    """Each aggressor's conclusion."""
    return {one.aggressor: one.conclusion for one in figure(result, quantile).aggressors}


def shares(result: Blame) -> list[Interval]:
    """Each aggressor's share of the delay of the launch's median."""
    found = [one.share for one in figure(result).aggressors]
    assert None not in found
    return [one for one in found if one is not None]


@pytest.mark.parametrize("count", range(1, 8))
def test_a_plan_has_every_state_once_in_each_round_and_keeps_its_budget(count: int) -> None:
    names = [f"a{number}" for number in range(count)]
    plan = experiment.plan(names)
    every = frozenset(names)
    wanted = {ALL_OFF, every} | {frozenset({name}) for name in names} | {every - {name} for name in names}
    assert set(plan.states) == wanted
    assert all(Counter(states) == Counter(plan.states) for states in plan.rounds)
    assert len(plan.rounds) >= FEWEST_ROUNDS
    assert plan.shortest_s <= plan.window_s
    assert plan.total_s <= BUDGET_S + 1e-9


def test_with_many_aggressors_the_windows_stay_long_enough_and_the_experiment_takes_longer() -> None:
    plan = experiment.plan([f"a{number}" for number in range(9)])
    assert len(plan.rounds) == FEWEST_ROUNDS
    assert plan.window_s == plan.shortest_s
    assert plan.total_s > BUDGET_S


def test_two_groups_of_victims_get_windows_that_hold_a_slot_of_each() -> None:
    plan = experiment.plan([A, B, C, "d"], slot_groups=2)
    assert plan.window_s >= 0.2
    assert plan.total_s <= BUDGET_S
    assert len(plan.rounds) >= FEWEST_ROUNDS


def test_an_experiment_begins_and_ends_with_all_off_and_changes_the_order_between_rounds() -> None:
    plan = experiment.plan([A, B, C])
    assert plan.rounds[0][0] == ALL_OFF
    assert plan.rounds[1] == tuple(reversed(plan.rounds[0]))
    assert len(set(plan.rounds)) == len(plan.rounds)
    pairs = Counter(pair for states in plan.rounds for pair in pairwise(states))
    # No state follows a certain other one in most of the rounds.
    assert max(pairs.values()) <= len(plan.rounds) / 2


def test_rounds_beyond_the_plan_have_every_state_once() -> None:
    plan = experiment.plan([A, B, C])
    more = [plan.round(number) for number in range(len(plan.rounds) + 3)]
    assert tuple(more[: len(plan.rounds)]) == plan.rounds
    assert all(Counter(states) == Counter(plan.states) for states in more)


def test_blame_needs_an_aggressor() -> None:
    with pytest.raises(ValueError, match="at least one"):
        experiment.plan([])


def test_one_aggressor_is_the_cause_or_none() -> None:
    assert conclusions(measured([A], slow_if(lambda state: A in state))) == {A: Conclusion.CAUSE}
    quiet = measured([A], slow_if(lambda state: False))
    assert figure(quiet).outcome is BlameOutcome.NONE
    assert conclusions(quiet) == {A: Conclusion.INNOCENT}
    assert quiet.main_figures(LAUNCH.name) == ()


def test_a_cause_among_innocent_ones_has_the_whole_share() -> None:
    result = measured([A, B, C], slow_if(lambda state: B in state))
    assert conclusions(result) == {A: Conclusion.INNOCENT, B: Conclusion.CAUSE, C: Conclusion.INNOCENT}
    share_a, share_b, _ = shares(result)
    assert share_b.value > 0.95
    assert share_b.low <= share_b.value <= share_b.high <= 1
    assert share_a.value < 0.05


def test_two_that_are_each_sufficient_are_not_necessary() -> None:
    result = measured([A, B, C], slow_if(lambda state: bool(state & {A, B})))
    assert conclusions(result) == {A: Conclusion.SUFFICIENT, B: Conclusion.SUFFICIENT, C: Conclusion.INNOCENT}
    values = [one.value for one in shares(result)]
    assert values == pytest.approx([0.5, 0.5, 0.0], abs=0.05)


def test_two_that_stall_only_together_are_both_necessary() -> None:
    result = measured([A, B, C], slow_if(lambda state: {A, B} <= state))
    assert conclusions(result) == {A: Conclusion.NECESSARY, B: Conclusion.NECESSARY, C: Conclusion.INNOCENT}


def test_any_two_of_three_together_are_named_as_such() -> None:
    result = measured([A, B, C], slow_if(lambda state: len(state) >= 2))
    assert set(conclusions(result).values()) == {Conclusion.TOGETHER}


def test_one_that_needs_no_help_and_one_that_adds_a_little() -> None:
    def calls(state: AggressorState, _number: int, rng: random.Random) -> list[int]:
        return jitter(SLOW_NS if A in state else 1.6 * QUIET_NS if B in state else QUIET_NS, rng)

    assert conclusions(measured([A, B], calls)) == {A: Conclusion.CAUSE, B: Conclusion.INNOCENT}


def test_one_that_makes_the_stall_of_another_one_longer_is_involved() -> None:
    def calls(state: AggressorState, _number: int, rng: random.Random) -> list[int]:
        return jitter((SLOW_NS * 3 if B in state else SLOW_NS) if A in state else QUIET_NS, rng)

    result = measured([A, B], calls)
    assert conclusions(result) == {A: Conclusion.CAUSE, B: Conclusion.CONTRIBUTING}
    assert not Conclusion.CONTRIBUTING.named
    assert figure(result).sentence.endswith(" which is a stall too.")


def test_aggressors_that_hold_up_each_other_do_not_hide_a_stall() -> None:
    result = measured([A, B], slow_if(lambda state: state == {A}))
    assert figure(result).outcome is BlameOutcome.MASKED
    assert conclusions(result) == {A: Conclusion.SUFFICIENT, B: Conclusion.INNOCENT}
    assert "hold up each other" in figure(result).sentence


def test_a_stall_of_one_call_in_thirty_is_found_in_the_tail_only() -> None:
    def calls(state: AggressorState, _number: int, rng: random.Random) -> list[int]:
        slow = [SLOW_NS if A in state and rng.random() < 1 / 30 else 0 for _ in range(CALLS)]
        return [max(pair) for pair in zip(jitter(QUIET_NS, rng), slow, strict=True)]

    result = measured([A, B], calls)
    assert figure(result).outcome is BlameOutcome.NONE
    assert conclusions(result, Quantile.P99) == {A: Conclusion.CAUSE, B: Conclusion.INNOCENT}
    assert [one.quantile for one in result.main_figures(LAUNCH.name)] == [Quantile.P99]


def test_slow_calls_of_one_round_prove_nothing() -> None:
    def calls(state: AggressorState, number: int, rng: random.Random) -> list[int]:
        quiet = jitter(QUIET_NS, rng)
        return [SLOW_NS] * 40 + quiet[40:] if number == 1 and state == {A, B} else quiet

    result = measured([A, B], calls)
    assert figure(result, Quantile.P99).outcome is BlameOutcome.UNDECIDED
    assert not any(one.named for one in conclusions(result, Quantile.P99).values())


def test_a_machine_that_varies_from_window_to_window_is_undecided_or_quiet_and_names_nobody() -> None:
    named = 0
    for seed in range(20):

        def calls(_state: AggressorState, _number: int, rng: random.Random) -> list[int]:
            return jitter(QUIET_NS * rng.lognormvariate(0, 0.35), rng)

        result = measured([A, B, C], calls, seed=seed)
        named += any(one.named for found in result.figures for one in (part.conclusion for part in found.aggressors))
    assert named == 0


def test_drift_between_rounds_does_not_change_the_conclusion() -> None:
    def calls(state: AggressorState, number: int, rng: random.Random) -> list[int]:
        return jitter((1.7**number) * (8 * QUIET_NS if A in state else QUIET_NS), rng)

    assert conclusions(measured([A, B], calls)) == {A: Conclusion.CAUSE, B: Conclusion.INNOCENT}


def test_an_effect_that_persists_is_undecided() -> None:
    ran = False

    def calls(state: AggressorState, _number: int, rng: random.Random) -> list[int]:
        nonlocal ran
        ran = ran or A in state
        return jitter(SLOW_NS if ran else QUIET_NS, rng)

    result = measured([A, B], calls)
    assert not any(one.named for one in conclusions(result).values())


def test_no_call_that_returns_is_at_least_as_slow_as_the_window_is_long() -> None:
    windows = []
    rng = random.Random(1)
    for number, states in enumerate(experiment.plan([A, B]).rounds):
        for state in states:
            # The call began before the window: only the part within it counts.
            stuck = InFlight(0, 0, 5_000 * MS, 0)
            one = window([], stuck) if A in state else window(jitter(QUIET_NS, rng))
            windows.append(BlameWindow(number, state, {LAUNCH.name: one}))
    result = experiment.conclude([A, B], [LAUNCH], windows, 9.0)
    assert conclusions(result) == {A: Conclusion.CAUSE, B: Conclusion.INNOCENT}
    assert figure(result).on_ns == pytest.approx(150 * MS, rel=0.02)


def test_a_call_of_usual_length_in_flight_at_the_end_does_not_count() -> None:
    short = InFlight(0, 0, 100, 0)
    windows = [
        BlameWindow(number, state, {LAUNCH.name: window([QUIET_NS] * 3, short)})
        for number, states in enumerate(experiment.plan([A]).rounds)
        for state in states
    ]
    assert figure(experiment.conclude([A], [LAUNCH], windows, 1.0)).off_ns == pytest.approx(QUIET_NS, rel=0.02)


def test_a_state_in_which_an_aggressor_did_not_run_proves_nothing_about_it() -> None:
    result = measured([A, B, C], slow_if(lambda state: A in state), idle=lambda state: {B} if state == {B} else set())
    assert result.idle == (B,)
    assert conclusions(result) == {A: Conclusion.CAUSE, B: Conclusion.UNDECIDED, C: Conclusion.INNOCENT}


def spread(rng: random.Random, median_ns: float, count: int) -> list[int]:
    """Latencies of which some are ten times as long as others."""
    return [round(median_ns * rng.lognormvariate(0, 1.2)) for _ in range(count)]


def test_few_calls_of_very_different_length_are_judged_by_all_calls_together() -> None:
    def calls(state: AggressorState, _number: int, rng: random.Random) -> list[int]:
        return spread(rng, QUIET_NS * (200 if A in state else 6 if B in state else 1), 7)

    results = [conclusions(measured([A, B, C], calls, seed=seed)) for seed in range(20)]
    assert sum(one[A] is Conclusion.CAUSE for one in results) > 10
    assert not any(one[B].named or one[C].named for one in results)


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_where_few_calls_are_quiet_or_slow_no_innocent_one_is_blamed(share: float) -> None:
    """The median of such a window, also that of all windows but one, jumps between the two."""

    def calls(state: AggressorState, _number: int, rng: random.Random) -> list[int]:
        if A in state:
            return [30 * SLOW_NS if rng.random() < share else QUIET_NS for _ in range(9)]
        return jitter(QUIET_NS, rng)

    results = [conclusions(measured([A, B, C], calls, seed=seed)) for seed in range(30)]
    assert sum(one[name].named for one in results for name in (B, C)) <= 1


def test_few_calls_of_one_round_decide_nothing() -> None:
    def calls(state: AggressorState, number: int, rng: random.Random) -> list[int]:
        if A in state:
            return jitter(SLOW_NS, rng, 5)
        # In one round 12 slow calls, in each of the others 3 quiet ones.
        slow = state == {B} and number == 1
        return jitter(SLOW_NS if slow else QUIET_NS, rng, 12 if slow else 3)

    result = measured([A, B, C], calls)
    assert conclusions(result)[A] is Conclusion.CAUSE
    assert conclusions(result)[B] is Conclusion.UNDECIDED


def test_few_calls_that_are_no_slower_blame_nobody() -> None:
    named = 0
    for seed in range(20):
        result = measured([A, B, C], lambda _state, _number, rng: spread(rng, QUIET_NS, 6), seed=seed)
        named += any(part.conclusion.named for one in result.figures for part in one.aggressors)
    assert named == 0


def between(state: AggressorState, number: int, rng: random.Random) -> list[int]:
    """A stalls; with B alone three of four rounds are nearer to that than to quiet."""
    if A in state:
        return jitter(SLOW_NS, rng)
    high = 300_000 if number % 4 else 30_000
    return jitter(high if state == {B} else QUIET_NS, rng)


def test_only_the_states_that_can_decide_something_are_open() -> None:
    decided = windows_of([A, B, C], slow_if(lambda state: A in state))
    assert experiment.open_states([A, B, C], [LAUNCH], decided) == frozenset()
    found = experiment.open_states([A, B, C], [LAUNCH], windows_of([A, B, C], between))
    assert found == {ALL_OFF, frozenset({A, B, C}), frozenset({B})}


def test_where_the_stall_itself_is_undecided_all_off_and_all_on_are_open() -> None:
    def calls(state: AggressorState, number: int, rng: random.Random) -> list[int]:
        return jitter(SLOW_NS if state == {A, B} and number else QUIET_NS, rng)

    windows = windows_of([A, B], calls)[: FEWEST_ROUNDS * 4]
    assert figure(experiment.conclude([A, B], [LAUNCH], windows, 9.0)).outcome is BlameOutcome.UNDECIDED
    assert experiment.open_states([A, B], [LAUNCH], windows) == {ALL_OFF, frozenset({A, B})}


def test_the_tail_of_a_median_that_stalls_opens_no_state() -> None:
    def calls(state: AggressorState, _number: int, rng: random.Random) -> list[int]:
        normal = jitter(SLOW_NS if A in state else QUIET_NS, rng)
        return [SLOW_NS, *normal[1:]] if state == {B} else normal

    windows = windows_of([A, B], calls)
    tail = figure(experiment.conclude([A, B], [LAUNCH], windows, 9.0), Quantile.P99)
    assert any(one.conclusion is Conclusion.UNDECIDED for one in tail.aggressors)
    assert experiment.open_states([A, B], [LAUNCH], windows) == frozenset()


def test_rounds_of_the_open_states_alone_decide_them() -> None:
    def calls(state: AggressorState, number: int, rng: random.Random) -> list[int]:
        return between(state, 1 if number > 3 else number, rng)

    names = [A, B, C]
    windows = windows_of(names, calls)
    first = experiment.conclude(names, [LAUNCH], windows, 9.0)
    assert conclusions(first)[B] is Conclusion.UNDECIDED
    opened = experiment.open_states(names, [LAUNCH], windows)
    windows += windows_of(names, calls, seed=2, rounds=range(4, 10), states=opened)
    result = experiment.conclude(names, [LAUNCH], windows, 9.0)
    assert conclusions(result)[B] is Conclusion.SUFFICIENT
    assert result.rounds == 10
    assert experiment.open_states(names, [LAUNCH], windows) == frozenset()


def test_fewer_than_three_rounds_conclude_nothing() -> None:
    windows = [
        BlameWindow(number, state, {LAUNCH.name: window([QUIET_NS] * 20)})
        for number, states in enumerate(experiment.plan([A]).rounds[:2])
        for state in states
    ]
    assert experiment.conclude([A], [LAUNCH], windows, 1.0).figures == ()


def test_a_verdict_gets_its_proven_cause_and_one_of_another_phase_keeps_its_own() -> None:
    probes: list[Probe] = [parse_probe(A), parse_probe(C)]
    result = measured([A, C], slow_if(lambda state: A in state))
    ruled = [
        Verdict(LAUNCH.name, phase, Quantile.P50, 3e3, 9e5, 300.0, VerdictKind.STALLED, "head", proof=Proof.RULE)
        for phase in (Phase.CALL, Phase.WAIT)
    ]
    call, wait = proven(ruled, result, [LAUNCH], probes)
    assert call.proof is Proof.BLAME
    assert probes[0].name in call.cause
    assert probes[1].name not in call.cause
    assert call.aggressors == (probes[0].name,)
    assert call.head == "head"
    assert wait is ruled[1]
    (own,) = result.verdicts([LAUNCH], probes)
    assert (own.kind, own.proof, own.cause) == (VerdictKind.STALLED, Proof.BLAME, call.cause)


def test_every_conclusion_and_outcome_has_words() -> None:
    assert all(one.text for one in Conclusion)
    for calls in (slow_if(lambda s: {A, B} <= s), slow_if(lambda s: bool(s)), slow_if(lambda s: False)):
        assert figure(measured([A, B], calls)).sentence.endswith(".")
