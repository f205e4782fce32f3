"""The test of one percentile of one channel between two checks, on histograms that are known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.statistics import fisher_exact_at_cut
from stallprobes.latency.window import Window
from stallprobes.matrix.comparing.quantile_comparison import (
    BASELINE_RATIO,
    CALLS,
    DIFFERENCE_NS,
    RATIO,
    ChannelRepeats,
    QuantileTest,
    beyond,
    quantile_tests,
)
from stallprobes.matrix.matrix import QUIET, Cell, Repeat, Status
from stallprobes.model import Channel, Phase

CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)
P50, P99 = Quantile.P50, Quantile.P99
# Each value lies in a bucket whose middle is within 1 % of it.
GRAIN = 0.02


def cell(*repeats: Sequence[int], hosts: Sequence[str] = (), column: str = "spin", channel: Channel = CALL) -> Cell:
    """A cell whose repeats have these values (ns) in ``channel``."""
    names = hosts or [""] * len(repeats)
    made = tuple(
        Repeat(Window({channel: Histogram.of(values)}, iterations=len(values), duration_ns=10**9), host=name)
        for values, name in zip(repeats, names, strict=True)
    )
    return Cell("launch", column, Status.OK, repeats=made)


def quantile_test_of(old: Cell, new: Cell, quantile: Quantile = P50) -> QuantileTest:
    """The test of ``quantile`` of the only channel."""
    (found,) = (one for one in quantile_tests(old, new) if one.quantile is quantile)
    return found


def spread(middle: int, calls: int = 200) -> list[int]:
    """Values around ``middle``, 10 % to either side."""
    return [round(middle * (0.9 + 0.2 * i / (calls - 1))) for i in range(calls)]


def slow_tail(calls: int, slow: int, factor: int = 20) -> list[int]:
    """``calls`` calls around 3 µs, ``slow`` of which are ``factor`` times as long."""
    values = spread(3_000, calls - slow)
    return [*values, *[3_000 * factor] * slow]


# The percentiles and their ratio.


@pytest.mark.parametrize("quantile", [P50, P99])
def test_the_values_are_the_percentiles_of_all_repeats_together(quantile: Quantile) -> None:
    repeats = [spread(3_000), spread(5_000)]
    test = quantile_test_of(cell(*repeats), cell(spread(9_000), spread(9_000)), quantile)
    together = np.concatenate(repeats)
    expected = float(np.percentile(together, quantile.percent, method="inverted_cdf"))
    assert test.values_ns[0] == pytest.approx(expected, rel=GRAIN)
    assert test.ratio == test.values_ns[1] / test.values_ns[0]


def test_a_check_without_calls_counts_as_one_nanosecond() -> None:
    test = quantile_test_of(cell([], []), cell(spread(3_000), spread(3_000)))
    assert test.values_ns[0] == 1.0
    assert not test.has_calls
    assert not quantile_tests(cell([]), cell([]))


@pytest.mark.parametrize(("column", "limits"), [("spin", RATIO), (QUIET, BASELINE_RATIO)])
def test_a_change_is_relevant_from_the_limit_on_in_either_direction(column: str, limits: dict[Quantile, float]) -> None:
    def between(old: int, new: int) -> QuantileTest:
        return quantile_test_of(
            cell([old] * 50, [old] * 50, column=column), cell([new] * 50, [new] * 50, column=column)
        )

    limit = limits[P50]
    more, less = round(50_000 * limit * 1.05), round(50_000 * limit * 0.93)
    assert between(50_000, more).relevant
    assert between(more, 50_000).relevant
    assert not between(50_000, less).relevant
    assert not between(less, 50_000).relevant


def test_a_change_of_few_nanoseconds_is_not_relevant_whatever_its_ratio() -> None:
    least = DIFFERENCE_NS[P50]
    for old, new in ((100, 100 + least // 2), (100 + least // 2, 100)):
        test = quantile_test_of(cell([old] * 50, [old] * 50), cell([new] * 50, [new] * 50))
        assert beyond(test.ratio, test.limit)
        assert not test.relevant


def test_the_means_of_the_repeats_may_be_relevant_where_the_medians_of_all_calls_are_not() -> None:
    # Each check has more calls in one of its repeats, so the median of all calls is that of this repeat.
    old = cell([50_000] * 10, [50_000] * 10, [60_000] * 90)
    new = cell([80_000] * 10, [80_000] * 10, [70_000] * 90)
    for first, second, ratio in ((old, new, 7 / 6), (new, old, 6 / 7)):
        test = quantile_test_of(first, second)
        assert test.ratio == pytest.approx(ratio, rel=0.02)
        assert not test.relevant
        assert test.relevant_by_repeats
        assert not quantile_test_of(first, second, P99).relevant_by_repeats
    few = 50 + DIFFERENCE_NS[P50] // 2
    assert not quantile_test_of(cell([50] * 9, [50] * 9), cell([few] * 9, [few] * 9)).relevant_by_repeats
    assert not quantile_test_of(cell([50_000] * 9), cell([90_000] * 9)).relevant_by_repeats


def test_means_that_differ_in_the_other_direction_than_the_medians_are_not_relevant() -> None:
    old, new = cell([60_000] * 10, [60_000] * 10, [50_000] * 90), cell([30_000] * 10, [30_000] * 10, [55_000] * 90)
    test = quantile_test_of(old, new)
    assert test.ratio > 1
    assert test.log_ratio < 0
    assert not test.relevant_by_repeats


def test_beyond_is_symmetric() -> None:
    assert beyond(1.4, 1.4)
    assert beyond(1 / 1.4, 1.4)
    assert not beyond(1.39, 1.4)
    assert not beyond(1 / 1.39, 1.4)


# Repeats and their variance.


def test_the_variance_is_that_of_the_repeats_log_percentiles() -> None:
    old, new = [3_000, 3_300, 2_800, 3_100], [6_000, 6_600, 5_900, 6_100]
    test = quantile_test_of(cell(*([value] * 30 for value in old)), cell(*([value] * 30 for value in new)))
    logs_old, logs_new = np.log(old), np.log(new)
    assert test.log_ratio == pytest.approx(logs_new.mean() - logs_old.mean(), abs=GRAIN)
    variance, freedom = test.variance
    assert freedom == 6
    expected = logs_old.var(ddof=1) / 4 + logs_new.var(ddof=1) / 4
    assert variance == pytest.approx(expected, rel=0.25, abs=1e-4)


def test_checks_of_the_same_machines_are_compared_machine_by_machine() -> None:
    """Machines differ by a factor of ten, each doubles: by machine the variance is next to nothing."""
    middles, hosts = [1_000, 4_000, 10_000], ["a", "b", "c"]
    old = cell(*([one] * 40 for one in middles), hosts=hosts)
    new = cell(*([2 * one] * 40 for one in reversed(middles)), hosts=list(reversed(hosts)))
    test = quantile_test_of(old, new)
    assert test.paired
    assert test.variance[1] == 2
    assert test.variance[0] < 1e-3
    assert test.log_ratio == pytest.approx(math.log(2), abs=GRAIN)
    assert test.steady
    strangers = quantile_test_of(old, cell(*([2 * one] * 40 for one in middles), hosts=["x", "y", "z"]))
    assert not strangers.paired
    assert strangers.variance[1] == 4
    assert strangers.variance[0] > 0.1
    assert not strangers.steady


def test_repeats_without_a_host_are_not_paired() -> None:
    assert not quantile_test_of(cell([3_000] * 9, [3_000] * 9), cell([3_000] * 9, [3_000] * 9)).paired


def test_one_repeat_alone_is_never_steady() -> None:
    test = quantile_test_of(cell([3_000] * 90), cell([30_000] * 90, [30_000] * 90))
    assert test.single_repeat
    assert not test.steady


def test_steady_is_a_change_that_no_single_repeat_makes() -> None:
    flat = [[3_000] * 50] * 4
    assert quantile_test_of(cell(*flat), cell(*[[9_000] * 50] * 4)).steady
    assert quantile_test_of(cell(*[[9_000] * 50] * 4), cell(*flat)).steady
    # Without the longest repeat the median of the others is what it was.
    one_wild = [[3_000] * 50, [3_000] * 50, [90_000] * 120]
    assert quantile_test_of(cell(*flat), cell(*one_wild)).ratio > 10
    assert not quantile_test_of(cell(*flat), cell(*one_wild)).steady


def repeats_of(repeats: Iterable[Repeat], channel: Channel) -> ChannelRepeats:
    held = [(one.host, one.window.channels[channel]) for one in repeats if channel in one.window.channels]
    return ChannelRepeats.pair(held, held)[0]


def test_the_jackknife_leaves_out_one_repeat_at_a_time() -> None:
    repeats = cell([1_000] * 10, [2_000] * 10, [4_000] * 30).repeats
    found = np.exp(repeats_of(repeats, CALL).jackknife(P50))
    assert found == pytest.approx([4_000, 4_000, 1_000], rel=GRAIN)
    assert len(repeats_of(repeats[:1], CALL).jackknife(P50)) == 0


def test_repeats_without_calls_do_not_count() -> None:
    held = repeats_of(cell([3_000] * 5, [], [4_000] * 7, hosts=["b", "c", "a"]).repeats, CALL)
    assert held.hosts == ("a", "b")
    assert held.counts.sum(axis=1).tolist() == [7, 5]
    assert held.calls == 12
    assert repeats_of(cell([3_000] * 5).repeats, WAIT).calls == 0


def test_the_tail_disperses_by_one_where_calls_are_independent_and_by_more_in_bursts() -> None:
    dice = np.random.default_rng(1)

    def dispersion(burst: int) -> float:
        def repeat() -> list[int]:
            slow = np.convolve(dice.random(1_000) < 0.02 / burst, np.ones(burst))[:1_000] > 0
            return [int(one) for one in np.where(slow, 60_000, 3_000)]

        old, new = (cell(*(repeat() for _ in range(4))) for _ in range(2))
        return quantile_test_of(old, new, P99).tail_dispersion

    independent = np.mean([dispersion(1) for _ in range(30)])
    assert independent == pytest.approx(1.0, abs=0.35)
    assert np.mean([dispersion(10) for _ in range(30)]) > 4 * independent


# How sure it is.


def test_the_weight_is_half_the_harmonic_mean_of_the_calls() -> None:
    assert quantile_test_of(cell([3_000] * 100), cell([3_000] * 300)).weight == pytest.approx(75.0)


def test_the_p_value_is_fishers_for_the_best_cut_times_the_number_of_cuts() -> None:
    old, new = cell(slow_tail(1_000, 5), slow_tail(1_000, 5)), cell(slow_tail(1_000, 40), slow_tail(1_000, 40))
    test = quantile_test_of(old, new, P99)
    before, now = (one.channels[CALL].counts.astype(np.int64) for one in (old, new))
    best = min(fisher_exact_at_cut(before, now, cut).more for cut in (0.01, 0.015, 0.0225))
    assert test.p_value() == pytest.approx(min(1.0, 2 * test.cuts * best))
    assert test.p_value() < 1e-6
    assert test.distance() > 5


def test_the_direction_of_the_ratio_decides_which_tail_counts() -> None:
    slow, fast = cell(slow_tail(1_000, 40), slow_tail(1_000, 40)), cell(slow_tail(1_000, 5), slow_tail(1_000, 5))
    there, back = quantile_test_of(slow, fast, P99), quantile_test_of(fast, slow, P99)
    assert there.p_value() == pytest.approx(back.p_value(), rel=1e-6)
    assert there.distance() == pytest.approx(back.distance(), rel=1e-6)


def test_medians_that_do_not_overlap_are_certain_whatever_the_share_of_calls() -> None:
    """A tenth of the calls are new: the cut between the two lies at that share, not at one half."""
    test = quantile_test_of(cell(spread(3_000, 900)), cell(spread(30_000, 100)))
    assert test.p_value() < 1e-50


def test_equal_distributions_are_rarely_called_different() -> None:
    dice = np.random.default_rng(2)

    def check() -> Cell:
        return cell(*([int(one) for one in 3_000 * np.exp(dice.normal(0, 0.3, 300))] for _ in range(3)))

    for quantile in (P50, P99):
        found = [quantile_test_of(check(), check(), quantile).p_value() for _ in range(150)]
        assert sum(p <= 0.05 for p in found) <= 14
        assert min(found) > 1e-4


# Which tests there are.


def test_a_p99_needs_enough_calls_in_one_of_the_checks() -> None:
    few, enough = cell([3_000] * (CALLS[P99] - 1)), cell([3_000] * CALLS[P99])
    assert [one.quantile for one in quantile_tests(few, few)] == [P50]
    assert [one.quantile for one in quantile_tests(few, enough)] == [P50, P99]
    assert [one.quantile for one in quantile_tests(enough, few)] == [P50, P99]


def test_ops_with_labels_are_tested_each_by_itself() -> None:
    labelled = (Channel(Phase.CALL, "copy"), Channel(Phase.CALL, "launch"))

    def check() -> Cell:
        channels = {CALL: Histogram.of([3_000] * 40), WAIT: Histogram.of([5_000] * 20)}
        channels |= {channel: Histogram.of([3_000] * 20) for channel in labelled}
        return Cell("launch", "spin", Status.OK, repeats=(Repeat(Window(channels, 20, 10**9)),))

    assert [one.channel for one in quantile_tests(check(), check())] == [*labelled, WAIT]


def test_a_channel_that_only_one_check_has_is_tested_too() -> None:
    old, new = cell([3_000] * 20), cell([5_000] * 20, channel=WAIT)
    assert {one.channel for one in quantile_tests(old, new)} == {CALL, WAIT}
    assert not any(one.has_calls for one in quantile_tests(old, new))
