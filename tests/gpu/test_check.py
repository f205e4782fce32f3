"""The check on a real GPU: what every H200 showed is in it, and it ends in time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from factories.h200_facts import broken, facts_of
from stallprobes.machine import gpus
from stallprobes.matrix.check import runner, schedule
from stallprobes.matrix.check.plan import plan
from stallprobes.matrix.matrix import QUIET, Matrix, Status
from stallprobes.model import Channel, Phase

pytestmark = pytest.mark.gpu

PROMISED_S, PROMISED_QUICK_S = 75.0, 13.0


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    # The first start after an installation compiles the loop, which the promised time does not include.
    subprocess.run([sys.executable, "-c", "import stallprobes.engine.loop"], check=True)
    found = runner.run(plan(quick=True))
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def test_a_quick_check_ends_in_time(matrix: Matrix) -> None:
    assert matrix.seconds <= PROMISED_QUICK_S


def test_every_cell_of_it_was_measured(matrix: Matrix) -> None:
    assert {cell.status for cell in matrix.cells.values()} <= {Status.OK, Status.STARVED}
    counts = {len(cell.repeats) for cell in matrix.cells.values()}
    # On a slow machine the last round ends when the time is spent.
    assert min(counts) >= schedule.QUICK_REPEATS - 1
    assert max(counts) <= schedule.QUICK_REPEATS + schedule.ROUNDS


def test_what_is_known_of_an_h200_is_in_it(matrix: Matrix) -> None:
    name = str(matrix.fingerprint.get("gpu"))
    if "H200" not in name:
        pytest.skip(f"the figures are an H200's, this is {name}")
    facts = facts_of((row.name for row in matrix.rows), (column.name for column in matrix.columns))
    assert facts
    assert broken(matrix, facts) == []


def test_the_quiet_of_a_launch_has_one_hump(matrix: Matrix) -> None:
    quiet = matrix.cells["launch", QUIET].channels[Channel(Phase.CALL)]
    assert quiet.count > 500
    assert (quiet.percentile(90) or 0) < 3 * (quiet.percentile(10) or 0)


def test_the_whole_check_ends_in_time_and_says_what_the_machine_cannot_do() -> None:
    whole = runner.run(plan(), seed=2)
    assert whole.seconds <= PROMISED_S
    unsupported = {cell.column for cell in whole.cells.values() if cell.status is Status.UNSUPPORTED}
    # The cells that gain precision by it have more repeats.
    assert max(len(cell.repeats) for cell in whole.cells.values()) > whole.repeats
    assert len(gpus.survey().gpus) > 1 or "peer-copy-behind-kernel" in unsupported
    if "H200" in str(whole.fingerprint.get("gpu")):
        assert broken(whole) == []
