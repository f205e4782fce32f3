"""Spread of the baselines: what is taken, what is left out, and the largest one's victim."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from factories import matrices
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.matrix import QUIET, Matrix, Repeat
from stallprobes.matrix.noise import baseline_range, baseline_spread
from stallprobes.model import Channel

FEW = 19


def with_baselines(row: str, medians_ns: list[int], calls: int = 50) -> Matrix:
    """A matrix in which every baseline's p50 is 2 µs, but those of ``row`` are ``medians_ns`` in turn."""
    made = matrices.made_up(1)
    cells = dict(made.cells)
    number = 0

    def window(mine: bool) -> dict[Channel, Histogram]:
        nonlocal number
        number += mine
        ns = medians_ns[number % len(medians_ns)] if mine else 2000
        return {matrices.CALL: Histogram.of([ns] * calls)}

    for key, cell in made.cells.items():
        if key[1] != QUIET:
            mine = key[0] == row
            repeats = [replace(one, before=window(mine), after=window(mine)) for one in cell.repeats]
            cells[key] = cell.changed(repeats=tuple(repeats))
    return made.changed(cells=cells)


def test_no_masked_arrays_are_loaded_for_the_spread() -> None:
    code = (
        "import sys; from factories import matrices; from stallprobes.matrix import noise;"
        "from stallprobes.matrix.comparing import compare;"
        "made = matrices.made_up(1); noise.baseline_spread(made); compare.compare(made, matrices.made_up(2));"
        "assert 'numpy.ma' not in sys.modules"
    )
    path = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True)


def test_the_worst_victim_is_named_and_the_median_is_over_victims() -> None:
    spread = baseline_spread(with_baselines("d2d", [2000, 4000]))
    assert spread is not None
    assert spread.typical == pytest.approx(1.0)
    assert spread.worst == pytest.approx(2.0, rel=0.05)
    assert spread.worst_row == "d2d"


def test_a_single_slow_window_makes_no_spread() -> None:
    spread = baseline_spread(with_baselines("d2d", [100_000, *[2000] * 31]))
    assert spread is not None
    assert spread.worst == pytest.approx(1.0)


def test_windows_with_few_calls_and_the_column_quiet_do_not_count() -> None:
    assert baseline_spread(with_baselines("d2d", [2000, 4000], calls=FEW)) is None


def test_hosts_of_a_merged_matrix_are_not_compared_with_each_other() -> None:
    made = with_baselines("d2d", [2000, 4000])
    cells = {}
    for key, cell in made.cells.items():
        repeats: list[Repeat] = []
        for repeat in cell.repeats:
            slow = key[0] == "d2d" and key[1] != QUIET
            repeats += [
                replace(repeat, host="a", after=repeat.before) if slow else replace(repeat, host="a"),
                replace(repeat, host="b", before=repeat.after) if slow else replace(repeat, host="b"),
            ]
        cells[key] = cell.changed(repeats=tuple(repeats))
    spread = baseline_spread(made.changed(cells=cells))
    assert spread is not None
    assert spread.worst == pytest.approx(1.0)


def test_the_range_of_the_baselines_is_that_of_8_in_10_windows_of_the_row() -> None:
    made = with_baselines("d2d", [*[2000] * 4, 4000, 100_000])
    low, high = baseline_range([made, made], "d2d", matrices.CALL, Quantile.P50) or (0.0, 0.0)
    assert (low, high) == pytest.approx((2000, 100_000), rel=0.05)
    assert baseline_range([made], "launch", matrices.CALL, Quantile.P50) == pytest.approx((2000, 2000), rel=0.05)


def test_windows_with_few_calls_have_no_range() -> None:
    made = with_baselines("d2d", [2000], calls=49)
    assert baseline_range([made], "d2d", matrices.CALL, Quantile.P99) is None
    assert baseline_range([made], "d2d", matrices.CALL, Quantile.P50) is not None
