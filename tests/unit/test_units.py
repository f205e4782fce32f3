"""Figures in words: three digits, a unit, and never a fourth digit by rounding."""

from __future__ import annotations

import pytest

from stallprobes.units import compact, duration, in_us, range_ns, times


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "–"),
        (0, "0.00 µs"),
        (2.314, "2.31 µs"),
        (24.3, "24.3 µs"),
        (9.996, "10.0 µs"),
        (99.96, "100 µs"),
        (999.4, "999 µs"),
        (999.6, "1.00 ms"),
        (2378, "2.38 ms"),
        (127_800, "128 ms"),
        (1_200_000, "1.20 s"),
        (3_600_000_000, "3600 s"),
        (-3.2, "-3.20 µs"),
    ],
)
def test_a_duration_has_three_figures_and_the_fitting_unit(us: float | None, text: str) -> None:
    assert duration(us) == text


@pytest.mark.parametrize(("value", "text"), [(1.0, "×1.0"), (9.94, "×9.9"), (9.96, "×10"), (427.3, "×427")])
def test_a_ratio_has_no_more_figures_than_it_deserves(value: float, text: str) -> None:
    assert times(value) == text


@pytest.mark.parametrize(
    ("low_ns", "high_ns", "text"),
    [
        (4_511.5, 12_700, "4.5–12.7 µs"),
        (140_300, 144_400, "140–144 µs"),
        (870, 1_360_000, "0.9 µs–1.4 ms"),
        (900_000, 2_400_000, "0.9–2.4 ms"),
        (1_200_000_000, 3_000_000_000, "1.2–3.0 s"),
    ],
)
def test_a_range_has_one_unit_where_it_fits_both_ends(low_ns: float, high_ns: float, text: str) -> None:
    assert range_ns(low_ns, high_ns) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04, "0.0"), (1, "1.0"), (9.96, "10"), (999.4, "999"), (999.6, "1.0k"), (2260, "2.3k"), (3e6, "3.0M")],
)
def test_a_compact_figure_takes_at_most_four_characters(value: float, text: str) -> None:
    assert compact(value) == text


@pytest.mark.parametrize(("ns", "text"), [(None, "–"), (372, "0.37"), (24_300, "24.3"), (93_847_552, "93848")])
def test_a_figure_in_microseconds_has_its_unit_in_the_title(ns: float | None, text: str) -> None:
    assert in_us(ns) == text
