"""A planted stall is found, and nothing else is called changed, on a few seeds; bench_check.py has a hundred."""

from __future__ import annotations

import pytest

from factories.planted_stalls import Outcome, measured, outcome, planted
from stallprobes.matrix.check.plan import plan
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.matrix import Matrix

SMALL = plan(["launch", "d2d", "d2h-pinned", "h2d-pinned"], ["spin", "alloc-async", "module-load", "d2h-pinned-large"])
SEEDS = (1, 2)


@pytest.fixture(scope="module")
def old() -> Matrix:
    """The check that others are compared with."""
    return measured(SMALL, 100)


def test_a_tail_of_one_and_a_half_times_is_found_and_the_rest_left_alone(old: Matrix) -> None:
    found = {seed: planted(SMALL, old, seed) for seed in SEEDS}
    assert {seed: place for seed, (place, said) in found.items() if not said.found} == {}
    assert [said.others for _, said in found.values() if said.others] == []


def test_another_seed_of_the_same_machine_is_no_change(old: Matrix) -> None:
    assert outcome(compare(old, measured(SMALL, 102)), None) == Outcome(False, ())
