"""Checks of a machine that varies as a recorded H200, on a clock of its own: additional repeats and what they detect.

bench_detectable.py measures more of such checks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.recorded_machine import RecordedMachine, checked
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix import check_file
from stallprobes.matrix.check import schedule
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import Change, Comparison
from stallprobes.matrix.matrix import QUIET, Matrix

MINUTE = Path(__file__).parents[2] / "gpu" / "recorded" / "minute"
# With it the recorded checks had as many additional repeats as a machine had that measured one victim per block.
SLOWNESS = 1.5


@pytest.fixture(scope="module")
def recorded() -> list[Matrix]:
    return [check_file.load(MINUTE / f"check-h200-{number}.json.gz") for number in (1, 2)]


@pytest.fixture(scope="module")
def machines(recorded: list[Matrix]) -> list[RecordedMachine]:
    return [RecordedMachine(recorded, seed, SLOWNESS) for seed in (1, 2)]


@pytest.fixture(scope="module")
def checks(machines: list[RecordedMachine]) -> list[Matrix]:
    return [checked(machine) for machine in machines]


def half_and_nine_of_ten(comparison: Comparison) -> tuple[float, float]:
    """The ratios that half and nine of ten of the phases detect at p50."""
    found = comparison.detectable[Quantile.P50]
    assert found is not None
    assert found.half is not None
    assert found.nine_of_ten is not None
    return found.half, found.nine_of_ten


def test_the_checks_take_their_budget_and_no_more(machines: list[RecordedMachine], checks: list[Matrix]) -> None:
    for machine, check in zip(machines, checks, strict=True):
        assert check.repeats == schedule.LEAST_REPEATS
        budget_s = schedule.budget_s(machine.plan)
        assert 0.97 * budget_s < check.seconds < 1.01 * budget_s


def test_additional_repeats_share_blocks(machines: list[RecordedMachine], checks: list[Matrix]) -> None:
    for machine, check in zip(machines, checks, strict=True):
        columns = len(machine.plan.aggressor_sets)
        additional = machine.blocks[columns * (1 + check.repeats) :]
        windows = sum(number for _, number in additional)
        assert windows > 120
        assert windows > 3 * len(additional)
        counts = [len(cell.repeats) for key, cell in check.cells.items() if key[1] != QUIET]
        assert sum(max(count - check.repeats, 0) for count in counts) == windows


def test_they_detect_smaller_ratios_than_the_recorded_checks(recorded: list[Matrix], checks: list[Matrix]) -> None:
    before, now = (compare(*pair) for pair in (recorded, checks))
    (old_half, old_most), (half, most) = (half_and_nine_of_ten(one) for one in (before, now))
    assert most < 0.95 * old_most
    assert half < old_half
    for comparison in (before, now):
        counts = comparison.counts()
        assert counts[Change.WORSE] == counts[Change.BETTER] == 0
        assert counts[Change.UNSURE] <= 0.05 * sum(counts.values())
