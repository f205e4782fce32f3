"""Windows of a check in the engine of a simulated GPU: their end by a stop, and by the end of the engine."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections.abc import Callable

import pytest

from factories import processes
from stallprobes.engine.backend import Options
from stallprobes.errors import EngineLost, Stopped
from stallprobes.matrix.check.cell_runner import CellRunner
from stallprobes.matrix.check.plan import plan
from stallprobes.matrix.check.window_measurer import Lengths

pytestmark = pytest.mark.usefixtures("forked_engines", "nothing_left")

LENGTHS = Lengths(0.01, 0.01, 0.01, 0.01, 0, False)
# So many windows take minutes.
WINDOWS = 100_000


def cell_runner(stop: Callable[[], bool]) -> CellRunner:
    small = plan(["launch"], ["spin"])
    return CellRunner(small.victims, small.aggressor_sets, "sim", Options(), stop)


def measure(cells: CellRunner) -> None:
    cells.measure_baselines([*cells.victims] * WINDOWS, LENGTHS, random.Random(1))


def test_a_stop_ends_the_windows_and_the_engine() -> None:
    begun: list[CellRunner] = []
    asked = itertools.count()
    # Not while the engine starts, however long that takes.
    with cell_runner(lambda: bool(begun) and next(asked) >= 2) as cells:
        begun.append(cells)
        with pytest.raises(Stopped):
            measure(cells)
        pid = cells.session.engine_pid
    assert pid is not None
    assert processes.has_ended(pid)
    assert cells.session.failure() is None


def test_an_engine_that_is_killed_ends_the_windows() -> None:
    begun: list[CellRunner] = []
    asked = itertools.count()

    def stop() -> bool:
        if begun and next(asked) == 2:
            engine = begun[0].session.engine_pid
            # 0 would be the whole group of processes of the tests.
            assert engine
            os.kill(engine, signal.SIGKILL)
        return False

    with cell_runner(stop) as cells:
        begun.append(cells)
        with pytest.raises(EngineLost, match="SIGKILL"):
            measure(cells)
