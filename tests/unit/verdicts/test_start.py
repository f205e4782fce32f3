"""Verdicts with the timeline: one for each delay, with the start on the GPU in its sentence."""

from __future__ import annotations

import pytest

from stallprobes.catalog import Placement, entries
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import ChannelMap, Window, judged_histogram
from stallprobes.model import MS, SECONDARY, TIMELINE_PHASES, US, Channel, Phase, Source
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.experiment import EXPERIMENT_PHASES
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.rules import judge
from stallprobes.verdicts.verdict import Verdict

CALL, WAIT, START, EARLY, GPU = map(Channel, (Phase.CALL, Phase.WAIT, Phase.START, Phase.EARLY, Phase.GPU))
D2D = entries()["d2d"].probe(Placement(SECONDARY))
SPIN = entries()["spin"].probe()
PHRASE = "returned → GPU start"


def around(ns: int, count: int = 1000) -> Histogram:
    """``count`` values within 2 % of ``ns``."""
    return Histogram.of(ns + ns * i // (50 * count) for i in range(count))


USUAL: ChannelMap = {CALL: around(3 * US), WAIT: around(5_500), START: around(2_200), GPU: around(1_100)}


def verdicts(now: ChannelMap, before: ChannelMap | None = None, after: ChannelMap | None = None) -> list[Verdict]:
    """The verdicts on a D2D whose usual calls are USUAL, while a kernel runs."""
    before = before or USUAL
    one = Evidence(D2D, Window({**before, **now}, 1000, 1000 * MS, period_ns=MS), (before, after or before))
    other = Evidence(SPIN, Window({CALL: around(5 * US, 20)}, 20, 1000 * MS))
    return [found for found in judge([one, other]) if found.probe == D2D.name]


def test_a_stall_of_the_wait_names_the_start_and_is_one_verdict() -> None:
    [one] = verdicts({WAIT: around(2_400_000), START: around(2_380_000)})
    assert (one.kind, one.phase) == (VerdictKind.STALLED, Phase.WAIT)
    assert "wait p50 5.54 µs → 2.41 ms (×435), returned → GPU start 2.22 µs → 2.41 ms while" in one.head
    assert "one context at a time" in one.cause


def test_a_wait_that_the_gpu_time_explains_names_that_too() -> None:
    [one] = verdicts({WAIT: around(55_000), START: around(2_250), GPU: around(50_000)})
    assert f"{PHRASE} 2.22 µs → 2.29 µs, time on the GPU 1.11 µs → 50.4 µs" in one.head


def test_without_the_timeline_the_sentence_is_as_before() -> None:
    usual = {CALL: USUAL[CALL], WAIT: USUAL[WAIT]}
    [one] = verdicts({WAIT: around(2_400_000)}, usual)
    assert "wait p50 5.54 µs → 2.41 ms (×435) while" in one.head


def test_drift_in_wait_and_start_is_one_verdict() -> None:
    slow = {**USUAL, WAIT: around(2_400_000), START: around(2_380_000)}
    [one] = verdicts(slow, after=slow)
    assert (one.kind, one.phase) == (VerdictKind.DRIFT, Phase.WAIT)


def test_a_stall_of_the_start_alone_is_a_verdict_and_a_smaller_delay_is_none() -> None:
    usual = {**USUAL, WAIT: around(5 * MS)}
    [one] = verdicts({START: around(40_000)}, usual)
    assert (one.kind, one.phase) == (VerdictKind.STALLED, Phase.START)
    assert f"{PHRASE} p50 2.22 µs → 40.2 µs (×18)" in one.head
    # The clock of the GPU is converted with an error, and a call may return earlier.
    for delay_ns in (4_500, 9_000):
        [one] = verdicts({START: around(delay_ns)}, usual)
        assert one.kind is VerdictKind.QUIET


def test_without_a_wait_a_stalled_start_is_a_verdict_too() -> None:
    usual = {CALL: USUAL[CALL], START: USUAL[START]}
    [one] = verdicts({START: around(4_500)}, usual)
    assert one.kind is VerdictKind.QUIET
    [one] = verdicts({START: around(400_000)}, usual)
    assert (one.kind, one.phase) == (VerdictKind.STALLED, Phase.START)


def test_calls_that_return_before_the_start_instead_of_after_it_are_no_stall() -> None:
    usual = {**USUAL, START: around(500, 400), EARLY: around(1_500, 600)}
    [one] = verdicts({START: around(3_000), EARLY: Histogram.empty()}, usual)
    assert one.kind is VerdictKind.QUIET


@pytest.mark.parametrize(
    ("usual_ns", "words", "baseline_ns"), [(None, "before the return", 0.0), (400, "0.40 µs", 404.0)]
)
def test_a_start_has_no_ratio_to_one_that_is_not_known_so_well(
    usual_ns: int | None, words: str, baseline_ns: float
) -> None:
    starts = {EARLY: around(1_500)} if usual_ns is None else {START: around(usual_ns)}
    usual = {CALL: USUAL[CALL], **starts}
    [one] = verdicts({START: around(300_000), EARLY: Histogram.empty()}, usual)
    assert (one.kind, one.phase, one.ratio, one.detectable) == (VerdictKind.STALLED, Phase.START, None, None)
    assert one.baseline_ns == pytest.approx(baseline_ns, rel=0.01)
    assert f"{PHRASE} p50 {words} → 301 µs while" in one.head
    # Behind a wait, the clause says the same.
    usual = {**usual, WAIT: around(5_500)}
    [wait] = verdicts({WAIT: around(310_000), START: around(300_000), EARLY: Histogram.empty()}, usual)
    assert f", {PHRASE} {words} → 301 µs while" in wait.head
    assert wait.ratio == pytest.approx(56, rel=0.05)


def test_a_start_before_the_return_while_the_work_waits_for_something_else() -> None:
    usual = {**USUAL, START: Histogram.empty(), EARLY: around(9_000)}
    [one] = verdicts({WAIT: around(55_000), GPU: around(50_000)}, usual)
    assert f"{PHRASE} before the return, time on the GPU 1.11 µs → 50.4 µs" in one.head


def test_a_start_near_zero_makes_no_machine_unsteady() -> None:
    windows = [{**USUAL, START: around(ns, 100), EARLY: around(900, 100)} for ns in (100, 4_000)]
    windows.append({**USUAL, START: around(5_000, 200)})
    baseline = Baseline.of(windows)
    one = Evidence(D2D, Window(windows[2], 200, 1000 * MS, period_ns=MS), (baseline.channels,), None, baseline)
    [found] = judge([one])
    assert found.kind is VerdictKind.QUIET


@pytest.mark.parametrize("early_ns", [10 * US, 50 * MS])
def test_a_start_before_the_return_is_never_a_stall(early_ns: int) -> None:
    usual = {**USUAL, EARLY: around(10 * US, 300)}
    [one] = verdicts({EARLY: around(early_ns)}, usual)
    assert one.kind is VerdictKind.QUIET


def test_a_few_starts_after_the_return_among_early_ones_are_no_stalled_tail() -> None:
    usual = {**USUAL, START: around(2_200, 500), EARLY: around(10 * US, 500)}
    late = Histogram.of([60_000] * 4)
    # 4 of 5 starts after the return, but 4 of 1000 calls.
    [one] = verdicts({START: late, EARLY: around(10 * US, 996)}, usual)
    assert one.kind is VerdictKind.QUIET
    [one] = verdicts({START: Histogram.of([60_000] * 40), EARLY: around(10 * US, 960)}, usual)
    assert (one.kind, one.phase) == (VerdictKind.STALLED, Phase.START)


def test_early_starts_count_as_no_delay_in_the_histogram_and_in_the_windows_of_a_baseline() -> None:
    window = {START: Histogram.of([2_000] * 30), EARLY: Histogram.of([9_000] * 70)}
    judged = judged_histogram(window, START)
    assert judged is not None
    assert (judged.count, judged.percentile(50), judged.max_ns) == (100, 0.0, 2_000)
    assert judged_histogram(window, EARLY) is window[EARLY]
    only_early = judged_histogram({EARLY: window[EARLY]}, START)
    assert only_early == Histogram.of([0] * 70)
    baseline = Baseline.of([window, window])
    assert baseline.range_ns(START, Quantile.P50) == (0.0, 0.0)
    assert baseline.percentile_ns(START, Quantile.P50) == 0.0
    assert baseline.channels[START].count == 60


def test_labels_have_starts_of_their_own() -> None:
    first, second = Channel(Phase.START, "D2H"), Channel(Phase.START, "H2D")
    usual = {CALL: USUAL[CALL], WAIT: USUAL[WAIT], first: around(2_000), second: around(3_000)}
    [one] = verdicts({WAIT: around(900_000), second: around(880_000)}, usual)
    assert f"{PHRASE} of H2D 3.02 µs → 889 µs" in one.head


def test_an_experiment_compares_what_the_host_measures() -> None:
    assert not set(EXPERIMENT_PHASES) & set(TIMELINE_PHASES)
    assert Phase.WAIT in EXPERIMENT_PHASES


def test_the_program_decides_what_measures_a_phase() -> None:
    assert [D2D.program.source(phase) for phase in Phase] == [
        Source.HOST, Source.HOST, Source.TIMELINE, Source.TIMELINE, Source.TIMELINE, Source.HOST,
    ]  # fmt: skip
    timed = entries()["scalar-readback"].probe().program
    assert timed.source(Phase.GPU) is Source.EVENTS
    assert timed.source(Phase.START) is Source.TIMELINE
