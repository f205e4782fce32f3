"""The smallest change that a comparison could have detected: from its tests, in words, and found when planted."""

from __future__ import annotations

import pytest

from factories import documents
from factories.matrices import COLUMNS, ROWS, made_up
from factories.planted_changes import planted
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import Comparison, Sensitivity
from stallprobes.matrix.comparing.sensitivity import student_t_limit
from stallprobes.matrix.matrix import Matrix
from stallprobes.wording import comparison_wording
from stallprobes.wording.headline import headline


def noisy(seed: int, noise: float = 2.2, calls: int = 500) -> Matrix:
    """A check of six cells, enough for the variances of similar ones, whose repeats vary by up to ``noise``."""
    return made_up(seed, rows=ROWS[:3], columns=COLUMNS[:4], steps=noise, calls=calls)


def half(comparison: Comparison, quantile: Quantile) -> float:
    found = comparison.detectable[quantile]
    assert found is not None
    assert found.half is not None
    return found.half


def test_half_and_nine_of_ten_are_ranks_and_what_detects_nothing_is_the_worst() -> None:
    assert Sensitivity.of_phases([1.0 + n / 10 for n in range(1, 11)]) == Sensitivity(10, 1.5, 1.9)
    assert Sensitivity.of_phases([1.5, None]) == Sensitivity(2, 1.5, None)
    assert Sensitivity.of_phases([]) is None


@pytest.mark.parametrize(("p_value", "freedom", "limit"), [(0.05, 10, 2.2281), (0.01, 6, 3.7074), (0.05, 10**6, 1.96)])
def test_the_limit_of_student_s_t_is_that_of_the_tables(p_value: float, freedom: int, limit: float) -> None:
    assert student_t_limit(p_value, freedom) == pytest.approx(limit, rel=1e-3)


def test_noise_between_repeats_and_fewer_calls_make_a_comparison_less_sensitive() -> None:
    calm, rough = (compare(noisy(1, noise), noisy(2, noise)) for noise in (1.0, 2.2))
    assert half(calm, Quantile.P50) < 1.6 < half(rough, Quantile.P50)
    few = compare(noisy(1, 1.0, calls=50), noisy(2, 1.0, calls=50)).detectable[Quantile.P99]
    assert few == Sensitivity(24, None, None)


def test_one_repeat_states_nothing() -> None:
    comparison = compare(made_up(1, repeats=1), made_up(2, repeats=1))
    assert {part.detectable for cell in comparison.cells for part in cell.parts} == {None}


@pytest.mark.parametrize("quantile", PERCENTILES)
def test_a_planted_change_of_the_stated_size_is_shown_and_nothing_else(quantile: Quantile) -> None:
    """The same as ``tests/benchmarks/bench_sensitivity.py``, which takes a hundred seeds, with fewer."""
    found = []
    for seed in range(5):
        old, other, new = (noisy(3 * seed + number) for number in range(3))
        found.append(planted(compare(old, other), old, new, quantile, seed))
    assert sum(one.found for one in found) >= 4
    assert not any(one.others for one in found)


def test_a_cell_that_is_the_same_says_what_it_could_have_detected() -> None:
    comparison = compare(noisy(1, 1.0), noisy(2, 1.0))
    (cell,) = (one for one in comparison.cells if (one.row, one.column) == ("d2d", "spin"))
    assert comparison_wording.detectable_text(cell).startswith("no change above call p50 ×1.")
    assert "half of the phases would have shown ×1." in dict(headline(comparison.new, comparison))["Changes"]
    mute = cell.changed(parts=tuple(part.changed(detectable=None) for part in cell.parts))
    assert comparison_wording.detectable_text(mute) == "too few calls to detect a change"


def test_a_check_states_what_a_comparison_with_another_like_it_could_detect() -> None:
    matrix = noisy(1, 1.0)
    document = documents.of_check(matrix)
    own = compare(matrix, matrix)
    assert document["detectable"]["p50"]["half"] == round(half(own, Quantile.P50), 3)
    assert document["detectable"]["p50"]["phases"] == 24
    first = document["cells"][0]["figures"]["call"]
    assert first["detectable_p50"] == round(own.cells[0].parts[0].detectable or 0, 3)
