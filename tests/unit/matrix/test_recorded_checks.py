"""Recorded checks of H200s: what they must show, that nothing changed, and the package's reference made from them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from factories.h200_facts import FACTS, broken, facts_of
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix import check_file, reference_choice, reference_file, reference_maker
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import Change
from stallprobes.matrix.matrix import Matrix, Status
from stallprobes.model import Phase

RECORDED = Path(__file__).parents[2] / "gpu" / "recorded"


@cache
def recorded(number: int) -> Matrix:
    return check_file.load(RECORDED / f"check-h200x2-{number}.json.gz")


@pytest.mark.parametrize("number", [1, 2])
def test_every_known_fact_of_an_h200_about_its_columns_is_in_it(number: int) -> None:
    matrix = recorded(number)
    facts = facts_of((row.name for row in matrix.rows), (column.name for column in matrix.columns))
    assert len(facts) > 40
    assert broken(matrix, facts) == []


def test_every_known_fact_of_an_h200_is_in_the_newest() -> None:
    assert broken(recorded(5)) == []


def test_a_fact_without_a_cell_is_broken() -> None:
    matrix = recorded(1)
    fact = FACTS[0]
    cells = {key: cell for key, cell in matrix.cells.items() if key != (fact.row, fact.column)}
    assert broken(matrix.changed(cells=cells), [fact]) == [f"{fact.row} beside {fact.column}: no cell"]


@pytest.mark.parametrize("number", [1, 2])
def test_it_says_where_it_was_measured_and_took_no_longer_than_promised(number: int) -> None:
    matrix = recorded(number)
    assert matrix.seconds <= 90
    assert {"gpu", "driver", "cuda", "date"} <= {key for key, value in matrix.fingerprint.items() if value}
    assert {cell.status for cell in matrix.cells.values()} <= {Status.OK, Status.STARVED}


def test_a_peer_copy_behind_a_kernel_holds_up_other_peer_copies() -> None:
    assert recorded(1).cells["peer-copy", "peer-copy-behind-kernel"].kind == "stalled"
    assert recorded(1).cells["d2h-pinned", "peer-copy-behind-kernel"].kind == "quiet"


def test_two_checks_in_a_row_are_no_change() -> None:
    comparison = compare(recorded(1), recorded(2))
    assert comparison.differences == ()
    assert comparison.regressions() == ()
    assert not [cell for cell in comparison.cells if cell.change in (Change.WORSE, Change.BETTER)]


@cache
def noisy(number: int) -> Matrix:
    return check_file.load(RECORDED / f"check-h200-noisy-{number}.json.gz")


def test_a_tail_that_the_machine_s_baselines_have_too_is_no_change() -> None:
    """Two checks in a row on a noisy host: in one the pinned D2H waits 12 to 17 µs at p99 in all repeats of a cell, in
    the other 6 µs; without an aggressor it waits 5 to 19 µs."""
    folder = RECORDED / "consecutive"
    older, newer = (check_file.load(folder / f"check-h200-{number}.json.gz") for number in (3, 5))
    comparison = compare(older, newer)
    counts = comparison.counts()
    assert counts[Change.WORSE] == counts[Change.BETTER] == 0
    assert counts[Change.UNSURE] <= 0.05 * sum(counts.values())
    (cell,) = (
        one for one in comparison.cells if (one.row, one.column) == ("d2h-pinned@secondary", "free-beside-kernel")
    )
    (tail,) = (part for part in cell.parts if part.channel.phase is Phase.WAIT and part.quantile is Quantile.P99)
    assert tail.change is Change.UNSURE
    assert "the baselines of this row vary as much" in tail.why


def test_the_reference_in_the_package_is_what_the_maker_makes_from_them() -> None:
    """If it is not: python -m stallprobes.matrix.reference_maker FILE CHECK..., and look at the difference."""
    name = "h200-580.159.04"
    made = reference_maker.make(name, [recorded(1), recorded(2), noisy(1), noisy(2)])
    assert reference_file.text(made) == reference_file.text(reference_choice.shipped(name))


def test_each_of_them_is_as_the_reference_that_is_made_from_it() -> None:
    for matrix in (recorded(1), noisy(2)):
        found = reference_choice.unusual(matrix)
        assert found is not None
        assert (found.stalled_here, found.stalled_there, found.differences) == ((), (), ())
        assert found.compared > 280
