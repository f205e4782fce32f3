"""A check in real time, with scripted windows in place of an engine: which windows are measured, and what they form."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from factories import matrices
from stallprobes.latency.histogram import Histogram
from stallprobes.matrix.check import runner, schedule
from stallprobes.matrix.check.plan import AggressorSet, VictimProbe, plan
from stallprobes.matrix.check.progress import CheckProgress
from stallprobes.matrix.check.window_measurer import Lengths, VictimWindow
from stallprobes.matrix.matrix import QUIET, Matrix
from stallprobes.model import Channel, Phase

PLAN = plan(["launch", "d2d", "event"], ["spin", "context-churn", "alloc-free", "stream-churn"])
SLOW = "context-churn"
CALL = Channel(Phase.CALL)


@dataclass
class Clock:
    """A clock that only the scripted windows advance."""

    now_s: float = 1000.0


@dataclass
class ScriptedSession:
    """What the check asks of a session."""

    info: Mapping[str, object] = field(default_factory=lambda: {"devices": []})

    def probe_failures(self) -> list[object]:
        """No probe fails."""
        return []


class ScriptedCellRunner:
    """Windows of 20 calls each, and a list of what was measured."""

    measured: ClassVar[list[str]] = []
    window_s: ClassVar[float] = 0.01
    clock: ClassVar[Clock] = Clock()

    def __init__(self, victims: Sequence[VictimProbe], aggressor_sets: Sequence[AggressorSet], *_: Any) -> None:
        self.rows = tuple(victim.row.name for victim in victims)
        self.aggressor_sets = aggressor_sets
        self.session = ScriptedSession()
        self.timeline = None

    def __enter__(self) -> ScriptedCellRunner:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def iteration_s(self, aggressor_set: AggressorSet) -> float:
        """50 ms for the slow aggressor."""
        return 0.05 if aggressor_set.column.name == SLOW else 0.001

    def _windows(self, victims: Sequence[VictimProbe], number: int) -> dict[str, VictimWindow]:
        self.clock.now_s += len(victims) * self.window_s
        channels = {CALL: Histogram.of([1000 + 50 * number] * 20)}
        host = {CALL: Histogram.of([300] * 20)}
        return {victim.row.name: VictimWindow(matrices.window(channels, 20, 0.01), host) for victim in victims}

    def measure_baselines(
        self, victims: Sequence[VictimProbe], _lengths: Lengths, _rng: random.Random
    ) -> dict[str, VictimWindow]:
        """The baselines of the victims."""
        self.measured.append("baselines")
        return self._windows(victims, len(self.measured) % 3)

    def measure(
        self, aggressor_set: AggressorSet, victims: Sequence[VictimProbe], _lengths: Lengths, _rng: random.Random
    ) -> dict[str, VictimWindow]:
        """The windows with the aggressors of ``aggressor_set`` running."""
        self.measured.append(aggressor_set.column.name)
        return self._windows(victims, len(self.measured) % 5)


@pytest.fixture
def cell_runner(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedCellRunner]:
    """The scripted windows in place of an engine, on a clock of their own."""
    ScriptedCellRunner.measured, ScriptedCellRunner.clock, ScriptedCellRunner.window_s = [], Clock(), 0.01
    monkeypatch.setattr(runner, "CellRunner", ScriptedCellRunner)
    monkeypatch.setattr("stallprobes.matrix.check.schedule.time.monotonic", lambda: ScriptedCellRunner.clock.now_s)
    monkeypatch.setattr(runner._Check, "_fingerprint", lambda *_: {"gpu": "Scripted GPU"})
    return ScriptedCellRunner


def repeats(matrix: Matrix) -> dict[str, set[int]]:
    """The numbers of repeats of the cells of each column."""
    found: dict[str, set[int]] = {}
    for cell in matrix.cells.values():
        found.setdefault(cell.column, set()).add(len(cell.repeats))
    return found


def test_two_blocks_share_the_baselines_around_them(cell_runner: type[ScriptedCellRunner]) -> None:
    matrix = runner.run(PLAN, backend="cuda", progress=None)
    steps = cell_runner.measured
    regular = steps[: steps.index("baselines", 14)]
    gaps = [step == "baselines" for step in regular]
    # Of the four columns of the warm-up and of each full repeat: before the first, after the second, after the fourth.
    assert gaps[:7] == [True, False, False, True, False, False, True]
    for cell in matrix.cells.values():
        if cell.column != QUIET:
            assert all(repeat.before and repeat.after for repeat in cell.repeats), cell


def test_the_last_regular_repeats_leave_slow_aggressors_out(
    cell_runner: type[ScriptedCellRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "chosen_cells", lambda *_: [])
    matrix = runner.run(PLAN, backend="cuda")
    found = repeats(matrix)
    assert found.pop(SLOW) == {schedule.LEAST_REPEATS}
    assert matrix.repeats == schedule.REPEATS
    assert all(min(numbers) >= schedule.REPEATS for numbers in found.values())


def test_without_time_the_least_repeats_are_complete(cell_runner: type[ScriptedCellRunner]) -> None:
    cell_runner.window_s = 1.0
    matrix = runner.run(PLAN, backend="cuda")
    assert matrix.repeats == schedule.LEAST_REPEATS
    assert set.union(*repeats(matrix).values()) == {schedule.LEAST_REPEATS}


def test_every_window_is_counted_in_the_progress(cell_runner: type[ScriptedCellRunner]) -> None:
    steps: list[CheckProgress] = []
    cell_runner.window_s = 0.3
    runner.run(PLAN, backend="cuda", progress=steps.append, cells=True)
    assert steps[-1].done == steps[-1].total


def test_additional_repeats_share_blocks_and_baselines(
    cell_runner: type[ScriptedCellRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [("launch", "spin"), ("d2d", "spin"), ("event", SLOW), ("d2d", "alloc-free")]
    limits: list[float] = []

    def chosen(_cells: object, _costs: object, limit: float) -> list[tuple[str, str]]:
        limits.append(limit)
        return wanted if len(limits) == 1 else []

    monkeypatch.setattr(runner, "chosen_cells", chosen)
    regular = runner.run(replace(PLAN, quick=True), backend="cuda", seed=3)
    counts = {key: len(cell.repeats) for key, cell in regular.cells.items() if key[1] != QUIET and key[0] != "host"}
    least = min(counts.values())
    assert {key for key in counts if counts[key] > least} == set(wanted)
    for key in wanted:
        last = regular.cells[key].repeats[-1]
        # Two blocks share the baselines around them, which are those of the victims of both.
        assert last.before
        assert last.after
    # Three blocks: before the first, after the second, after the third.
    assert [step == "baselines" for step in cell_runner.measured[-6:]] == [True, False, False, True, False, True]
    assert all(limit > 0 for limit in limits)
