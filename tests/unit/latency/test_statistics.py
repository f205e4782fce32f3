"""The statistics held against scipy and against drawn data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy  # its parts are imported at their first use, so that collecting the tests does not wait for them
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stallprobes.latency import statistics
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.statistics import (
    MANY,
    Int64s,
    Tails,
    VariancePrior,
    arcsine_distance,
    cut_bucket,
    fisher_exact,
    fisher_exact_at_cut,
    prior_variance,
    sample_percentiles,
    sign_test,
    student_t_two_sided,
    tail_chi_square,
    variance_of_mean,
)
from stallprobes.native.layouts.histogram import BUCKETS

COUNTS = st.lists(st.integers(0, 400), min_size=6, max_size=6)


def of(*counts: int) -> Int64s:
    return np.array(counts, dtype=np.int64)


def drawn(dice: np.random.Generator, share: float, calls: int) -> Int64s:
    """Counts in two buckets: about ``share`` of the calls in the upper one."""
    above = int(dice.binomial(calls, share))
    return of(calls - above, above)


def fisher_by_scipy(above: int, calls: int, above_before: int, calls_before: int) -> Tails:
    table = [[above, calls - above], [above_before, calls_before - above_before]]
    return Tails(*(float(scipy.stats.fisher_exact(table, alternative=side).pvalue) for side in ("greater", "less")))


# Fisher's exact test.


@given(st.data())
def test_fishers_test_is_scipys(data: st.DataObject) -> None:
    calls, calls_before = data.draw(st.integers(1, 3_000)), data.draw(st.integers(1, 3_000))
    above, above_before = data.draw(st.integers(0, calls)), data.draw(st.integers(0, calls_before))
    found = fisher_exact(above, calls, above_before, calls_before)
    expected = fisher_by_scipy(above, calls, above_before, calls_before)
    assert found.more == pytest.approx(expected.more, rel=1e-6, abs=1e-12)
    assert found.fewer == pytest.approx(expected.fewer, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    "table",
    [(40, 500, 60, 5_000), (0, 10, 0, 10), (10, 10, 0, 10), (300, 20_000, 150, 20_000), (9, 900_000, 1, 900_000)],
)
def test_fishers_test_is_scipys_far_out_too(table: tuple[int, int, int, int]) -> None:
    found, expected = fisher_exact(*table), fisher_by_scipy(*table)
    assert found.more == pytest.approx(expected.more, rel=1e-5)
    assert found.fewer == pytest.approx(expected.fewer, rel=1e-5)


def test_with_equal_shares_a_small_p_value_is_as_rare_as_it_says() -> None:
    dice = np.random.default_rng(1)
    found = [fisher_exact_at_cut(drawn(dice, 0.05, 800), drawn(dice, 0.05, 800), 0.05) for _ in range(2_000)]
    for level in (0.01, 0.05):
        assert np.mean([tails.more <= level for tails in found]) <= 1.3 * level
        assert np.mean([tails.fewer <= level for tails in found]) <= 1.3 * level


# The sign test.


@given(st.integers(0, 3_000), st.data())
def test_the_sign_test_is_scipys(calls: int, data: st.DataObject) -> None:
    above = data.draw(st.integers(0, calls))
    expected = scipy.stats.binom.sf(above - 1, calls, 0.5)
    assert sign_test(above, calls) == pytest.approx(expected, rel=1e-9, abs=1e-300)


# The cut.


@given(COUNTS, st.floats(0.001, 0.999))
def test_the_cut_is_the_border_nearest_to_the_share(counts: list[int], share: float) -> None:
    values = of(*counts)
    place = cut_bucket(values, share)
    total = values.sum()
    shares = {k: values[k:].sum() / total for k in range(1, 6) if 0 < values[k:].sum() < total} if total else {}
    if not shares:
        assert place is None
    else:
        assert place is not None
        assert abs(values[place:].sum() / total - share) == pytest.approx(
            min(abs(one - share) for one in shares.values())
        )


def test_where_nothing_divides_the_values_nothing_differs() -> None:
    one = of(0, 50, 0)
    assert cut_bucket(one + one, 0.5) is None
    assert fisher_exact_at_cut(one, one, 0.5) == Tails(1.0, 1.0)
    assert arcsine_distance(one, one, 0.5) == 0.0
    assert tail_chi_square(np.cumsum([one, one], axis=1), 0.5) == 0.0


# Distances.


def test_the_arcsine_distance_of_equal_shares_is_a_standard_normal_variable() -> None:
    dice = np.random.default_rng(2)
    for share in (0.01, 0.1, 0.5):
        found = [arcsine_distance(drawn(dice, share, 1_000), drawn(dice, share, 4_000), share) for _ in range(3_000)]
        assert np.mean(found) == pytest.approx(0.0, abs=0.08)
        assert np.std(found) == pytest.approx(1.0, abs=0.06)


def test_the_arcsine_distance_is_anscombes() -> None:
    """Cohen's h with Anscombe's correction, over its standard deviation."""
    old, new = of(900, 100), of(850, 150)
    angles = [2 * math.asin(math.sqrt((above + 3 / 8) / (1_000 + 3 / 4))) for above in (100, 150)]
    assert arcsine_distance(old, new, 0.125) == pytest.approx((angles[1] - angles[0]) / math.sqrt(2 / 1_000))
    assert arcsine_distance(new, old, 0.125) == pytest.approx(-arcsine_distance(old, new, 0.125))
    # Where shares are neither small nor few, it is the z of the usual test of two proportions.
    pooled = 0.125
    z = 0.05 / math.sqrt(pooled * (1 - pooled) * 2 / 1_000)
    assert arcsine_distance(old, new, 0.125) == pytest.approx(z, rel=0.01)


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=2, max_size=6))
def test_the_chi_square_of_the_tail_is_scipys(repeats: list[tuple[int, int]]) -> None:
    counts = np.array(repeats, dtype=np.int64)
    expected = scipy.stats.chi2_contingency(counts, correction=False).statistic
    assert tail_chi_square(counts.cumsum(axis=1), 0.5) == pytest.approx(float(expected), rel=1e-9, abs=1e-9)


def test_the_chi_square_of_one_repeat_is_none() -> None:
    assert tail_chi_square(np.cumsum([of(50, 50)], axis=1), 0.5) == 0.0


def drawn_counts(dice: np.random.Generator) -> NDArray[np.uint64]:
    return Histogram.of(dice.integers(1_000, 9_000, 300)).counts


def test_histograms_of_one_distribution_have_the_chi_square_of_chance() -> None:
    dice = np.random.default_rng(3)
    found = [
        tail_chi_square(np.cumsum([drawn_counts(dice) for _ in range(4)], axis=1, dtype=np.int64), 0.2)
        for _ in range(150)
    ]
    assert np.mean(found) == pytest.approx(3.0, abs=0.6)
    assert Histogram.empty().counts.shape == (BUCKETS,)


# Student's t.


@given(st.floats(-60, 60), st.integers(2, MANY - 1))
def test_students_t_is_scipys_for_whole_degrees_of_freedom(t: float, freedom: int) -> None:
    expected = 2 * float(scipy.stats.t.sf(abs(t), freedom))
    assert student_t_two_sided(t, freedom) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(st.floats(-6, 6), st.floats(2, MANY - 1))
def test_students_t_between_whole_degrees_is_never_more_certain_than_scipys(t: float, freedom: float) -> None:
    assert student_t_two_sided(t, freedom) >= 2 * float(scipy.stats.t.sf(abs(t), freedom)) - 1e-12


@pytest.mark.parametrize("freedom", [MANY, 1_000, 1e12, math.inf])
@pytest.mark.parametrize("t", [0.0, 0.5, 2.0, 3.0])
def test_with_many_degrees_of_freedom_it_is_normal(t: float, freedom: float) -> None:
    assert student_t_two_sided(t, freedom) == pytest.approx(2 * float(scipy.stats.norm.sf(t)), rel=1e-9)
    assert student_t_two_sided(t, freedom) == pytest.approx(2 * float(scipy.stats.t.sf(t, MANY)), rel=0.15)


@pytest.mark.parametrize("freedom", [0, 1, 1.9])
def test_with_fewer_than_two_degrees_of_freedom_nothing_is_certain(freedom: float) -> None:
    assert student_t_two_sided(1e9, freedom) == 1.0


# Variances.


@given(st.floats(0.05, 150))
def test_digamma_and_trigamma_are_scipys(x: float) -> None:
    assert statistics._digamma(x) == pytest.approx(float(scipy.special.digamma(x)), rel=1e-7, abs=1e-7)
    assert statistics._trigamma(x) == pytest.approx(float(scipy.special.polygamma(1, x)), rel=1e-7)


@pytest.mark.parametrize("freedom", [2, 3, 6, 20, 100])
def test_the_upper_limit_is_about_the_999th_thousandth_of_chi_square(freedom: float) -> None:
    assert statistics._upper_limit(freedom) == pytest.approx(
        float(scipy.stats.chi2.ppf(0.999, freedom)) / freedom, rel=0.03
    )


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_the_variance_of_the_mean_is_the_square_of_scipys_standard_error(values: list[float]) -> None:
    assert variance_of_mean(np.array(values)) == pytest.approx(float(scipy.stats.sem(values)) ** 2, rel=1e-6, abs=1e-9)


def test_the_variance_of_the_mean_of_one_value_is_zero() -> None:
    assert variance_of_mean(np.array([5.0])) == 0.0


def observed_variances(prior_freedom: float) -> list[float]:
    """Variances with six degrees of freedom whose true values have a scaled inverse chi-square law about 4."""
    dice = np.random.default_rng(4)
    true = 4.0 * prior_freedom / dice.chisquare(prior_freedom, 4_000)
    return [float(one) for one in true * dice.chisquare(6, 4_000) / 6]


@pytest.mark.parametrize("prior_freedom", [4.0, 10.0, 40.0])
def test_the_fit_finds_the_prior_that_variances_were_drawn_with(prior_freedom: float) -> None:
    found = statistics._fit(np.log(observed_variances(prior_freedom)), 3.0)
    assert found.variance == pytest.approx(4.0, rel=0.05)
    assert found.freedom == pytest.approx(prior_freedom, rel=0.25)


@pytest.mark.parametrize("prior_freedom", [4.0, 10.0, 40.0])
def test_leaving_outliers_out_makes_the_prior_more_certain_but_no_other(prior_freedom: float) -> None:
    """The tail of such a distribution counts as outliers too, so its degrees of freedom come out too many."""
    found = prior_variance(observed_variances(prior_freedom), 6)
    assert found.variance == pytest.approx(4.0, rel=0.15)
    assert 0.8 * prior_freedom < found.freedom < 2.5 * prior_freedom


def test_wild_variances_do_not_change_the_prior_of_the_others() -> None:
    dice = np.random.default_rng(7)
    tame, wild = 4.0 * dice.chisquare(6, 240) / 6, 900.0 * dice.chisquare(6, 60) / 6
    assert prior_variance([*tame, *wild], 6).variance == pytest.approx(4.0, rel=0.15)


def test_equal_variances_give_a_prior_that_is_nearly_certain() -> None:
    dice = np.random.default_rng(5)
    found = prior_variance(list(4.0 * dice.chisquare(6, 300) / 6), 6)
    assert found.freedom > 50
    assert found.variance == pytest.approx(4.0, rel=0.1)


def test_moderated_variances_are_nearer_to_the_truth_than_observed_ones() -> None:
    dice = np.random.default_rng(6)
    true = 10.0 / dice.chisquare(10, 2_000)
    observed = true * dice.chisquare(4, 2_000) / 4
    prior = prior_variance(list(observed), 4)
    moderated = np.array([prior.moderated(float(one), 4)[0] for one in observed])
    assert np.mean(np.log(moderated / true) ** 2) < 0.6 * np.mean(np.log(observed / true) ** 2)


def test_a_moderated_variance_is_the_mean_weighted_by_degrees_of_freedom() -> None:
    prior = VariancePrior(4.0, 6.0)
    assert prior.moderated(1.0, 2.0) == ((6 * 4.0 + 2 * 1.0) / 8, 8.0)
    assert prior.moderated(4.0 * 1_000, 2.0) == (4_000.0, 2.0)
    assert VariancePrior(0.0, 0.0).moderated(3.0, 2.0) == (3.0, 2.0)


@pytest.mark.parametrize(("variances", "freedom"), [([1.0] * 9, 6.0), ([1.0] * 20, 0.0), ([0.0] * 50, 6.0)])
def test_few_variances_or_no_freedom_give_no_prior(variances: list[float], freedom: float) -> None:
    assert prior_variance(variances, freedom) == VariancePrior(0.0, 0.0)


@given(st.lists(st.floats(0.1, 1e12), min_size=1, max_size=50), st.sampled_from([(5.0, 95.0), (10.0, 90.0), (0, 100)]))
def test_sample_percentiles_are_those_of_numpy(values: list[float], percents: tuple[float, float]) -> None:
    assert sample_percentiles(values, percents) == np.percentile(values, percents).tolist()


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=30))
def test_the_variance_of_the_mean_is_that_of_numpy(values: list[float]) -> None:
    assert variance_of_mean(np.array(values)) == float(np.array(values).var(ddof=1)) / len(values)
