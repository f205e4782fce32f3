"""The simulated H200 against recorded checks of real ones, cell by cell.

One simulated check serves all tests. It has one repeat of each cell, a quarter of the usual number; the
benchmark bench_agreement.py makes a whole one and prints every disagreement.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from factories.agreement import MatrixAgreement, agreement, recorded_checks
from stallprobes.engine.backend import Options
from stallprobes.matrix.check import runner, schedule
from stallprobes.matrix.check.plan import plan
from stallprobes.matrix.matrix import Matrix

REPEATS = 1
pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture(scope="module")
def simulated(in_this_process: None) -> Iterator[Matrix]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "VIRTUAL_REPEATS", REPEATS)
        yield runner.run(plan(), backend="sim", options=Options(seed=1))


@pytest.fixture(scope="module")
def compared(simulated: Matrix) -> MatrixAgreement:
    return agreement(list(recorded_checks().values()), simulated)


def test_the_same_cells_are_stalled(compared: MatrixAgreement) -> None:
    assert len(compared.cells) > 300
    assert compared.share_of_cells >= 0.95, compared.report()


def test_the_medians_are_within_a_factor_of_two(compared: MatrixAgreement) -> None:
    assert len(compared.medians) > 500
    assert compared.share_of_medians_apart <= 0.03, compared.report()


def test_recorded_checks_agree_among_themselves_as_much() -> None:
    """What the comparison says of two real checks in a row."""
    checks = list(recorded_checks().values())
    found = agreement(checks[:1], checks[1])
    assert found.share_of_cells > 0.95
    assert found.share_of_medians_apart < 0.05
