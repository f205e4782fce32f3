"""The baseline: its range over windows, the limit of one more window, and memory that does not grow."""

from __future__ import annotations

import random

import pytest

from stallprobes.latency.baseline import Baseline, widest
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.model import Channel, Phase

CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)
P50, P99 = Quantile.P50, Quantile.P99


def window(p50_ns: int, p99_ns: int | None = None, calls: int = 100) -> dict[Channel, Histogram]:
    tail = calls * 5 // 100
    return {CALL: Histogram.of([p50_ns] * (calls - tail) + [p99_ns or 2 * p50_ns] * tail)}


def of(*p50s_ns: int) -> Baseline:
    return Baseline.of([window(ns) for ns in p50s_ns], duration_ns=len(p50s_ns) * 10**9)


def test_the_range_is_that_of_the_windows_and_not_of_the_calls() -> None:
    low, high = of(4_500, 6_100, 12_700).range_ns(CALL, P50) or (0, 0)
    assert low == pytest.approx(4_500, rel=0.02)
    assert high == pytest.approx(12_700, rel=0.02)
    assert of(4_500, 6_100, 12_700).spread(CALL, P50) == pytest.approx(2.8, rel=0.03)


def test_extending_a_baseline_gives_the_same_as_measuring_it_at_once() -> None:
    extended = of(4_500).extended(window(6_100), 10**9)
    assert extended.channels[CALL] == of(4_500, 6_100).channels[CALL]
    assert [extended.range_ns(CALL, q) for q in (P50, P99)] == [of(4_500, 6_100).range_ns(CALL, q) for q in (P50, P99)]
    assert (extended.windows(CALL), extended.duration_ns) == (2, 2 * 10**9)


def test_a_window_with_few_calls_counts_in_the_sum_only() -> None:
    baseline = Baseline.of([window(5_000), window(90_000, calls=19)])
    assert baseline.windows(CALL) == 1
    assert baseline.channels[CALL].count == 119


def test_an_unknown_channel_has_no_range_and_no_limit() -> None:
    assert of(5_000).range_ns(WAIT, P50) is None
    assert of(5_000).spread(WAIT, P50) is None
    assert of(5_000).limit_ns(WAIT, P50) is None


def test_the_limit_of_a_steady_channel_falls_with_the_number_of_windows() -> None:
    limits = [of(*[5_000] * count).limit_ns(CALL, P50) or 0.0 for count in (1, 2, 4, 8, 16, 64)]
    assert limits == sorted(limits, reverse=True)
    assert limits[1] > 2 * 5_000
    assert limits[-1] < 1.25 * 5_000


def test_the_limit_is_never_within_the_range() -> None:
    baseline = of(*[5_000] * 50, 30_000)
    assert (baseline.limit_ns(CALL, P50) or 0) >= (baseline.range_ns(CALL, P50) or (0, 1e9))[1]


def test_one_more_window_of_an_unsteady_machine_is_rarely_above_the_limit() -> None:
    """Log-normal windows with a deviation of 0.3, as launches have on a shared host."""
    rng = random.Random(1)
    above = trials = 0
    for _ in range(300):
        baseline = of(*(round(6_000 * rng.lognormvariate(0, 0.3)) for _ in range(rng.choice((2, 5, 20)))))
        above += 6_000 * rng.lognormvariate(0, 0.3) > (baseline.limit_ns(CALL, P50) or 0)
        trials += 1
    assert above / trials <= 0.03


def test_one_window_in_a_thousand_does_not_widen_the_range() -> None:
    baseline = Baseline.of([*[window(5_000)] * 999, window(50_000)])
    assert (baseline.range_ns(CALL, P50) or (0, 0))[1] < 6_000


def test_the_widest_spread_is_that_of_a_probe_with_two_windows() -> None:
    found = widest({"one": of(1_000), "steady": of(5_000, 5_500), "varies": of(5_000, 9_000)}, [CALL, WAIT], P50)
    assert found is not None
    assert found[:2] == ("varies", CALL)
    assert widest({"one": of(1_000)}, [CALL], P50) is None
