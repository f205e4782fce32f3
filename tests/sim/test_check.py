"""The check on the simulated GPU: its cells, its seeds, and what it does when something goes wrong.

One check has engine processes; the others, which need none, simulate in this process and give the same figures.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from factories.virtual_session import virtual_sessions
from stallprobes.engine.backend import Options
from stallprobes.errors import EngineFailed
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.check import cell_runner, runner, schedule, window_measurer
from stallprobes.matrix.check.block_choice import gain
from stallprobes.matrix.check.plan import Plan, plan
from stallprobes.matrix.check.progress import CheckProgress
from stallprobes.matrix.comparing.precision import spreads
from stallprobes.matrix.matrix import QUIET, LostEngine, Matrix, Status
from stallprobes.model import Channel, Phase

SMALL = plan(["launch", "launch/shared", "d2d@secondary"], ["spin", "d2h-pageable-warm", "alloc-async"])
SMALLEST = plan(["launch"], ["spin", "alloc-async"])
pytestmark = pytest.mark.usefixtures("forked_engines")


def measured(seed: int = 1, **more: object) -> Matrix:
    """A check without engine processes."""
    with virtual_sessions():
        return by_engines(seed, **more)  # type: ignore[arg-type]


def by_engines(seed: int = 1, profile: str | None = None, chosen: Plan = SMALL, **more: object) -> Matrix:
    return runner.run(chosen, backend="sim", options=Options(seed=seed, profile=profile), seed=seed, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return by_engines()


def test_every_chosen_pair_has_a_cell_and_every_row_its_quiet(matrix: Matrix) -> None:
    assert set(matrix.cells) == {(row.name, column.name) for row in matrix.rows for column in matrix.columns}
    assert all(cell.status in (Status.OK, Status.STARVED) for cell in matrix.cells.values())
    assert all(matrix.cells[row.name, QUIET].channels[Channel(Phase.CALL)].count > 20 for row in matrix.rows)


def test_the_stalls_are_there_and_only_they(matrix: Matrix) -> None:
    assert matrix.cells["d2d@secondary", "spin"].kind == "stalled"
    assert matrix.cells["d2d@secondary", "spin"].ratio(Phase.WAIT, Quantile.P50).ratio > 100  # type: ignore[union-attr]
    assert matrix.cells["launch/shared", "d2h-pageable-warm"].kind == "starved"
    assert matrix.cells["launch", "spin"].kind == "quiet"
    # The stream-ordered allocator works in the order of its stream.
    assert matrix.cells["launch/shared", "alloc-async"].kind == "stalled"
    for row in ("launch", "d2d@secondary", "host"):
        assert matrix.cells[row, "alloc-async"].kind == "quiet"
    assert matrix.cells["host", "spin"].kind == "quiet"


def test_calls_meet_threads_that_launch_at_the_same_time_as_often_as_they_make_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bursts each 41 ms, as outside a check, would meet hardly any call of a window."""
    monkeypatch.setattr(schedule, "VIRTUAL_REPEATS", 2)
    columns = ["launch-burst-x15/own", "launch-burst-x3/own", "record-burst-x15/own", "graph-burst-x15/own"]
    with virtual_sessions():
        found = runner.run(plan(["launch", "launch@secondary"], columns), backend="sim")
    kinds = {column: found.cells["launch", column].kind for column in columns}
    assert kinds == {column: "stalled" if column == columns[0] else "quiet" for column in columns}
    ratio = found.cells["launch", columns[0]].ratio(Phase.CALL, Quantile.P99)
    assert ratio is not None
    assert ratio.ratio > 5
    # The lock belongs to the context.
    assert found.cells["launch@secondary", columns[0]].ratio(Phase.CALL, Quantile.P99).ratio < 2  # type: ignore[union-attr]


def test_each_repeat_is_kept_with_the_baseline_on_both_sides_of_it(matrix: Matrix) -> None:
    for cell in matrix.cells.values():
        if (cell.column, cell.status) == (QUIET, Status.OK) or cell.row == "launch/shared":
            continue
        for repeat in cell.repeats:
            parts = (repeat.window.channels, repeat.before, repeat.after)
            assert all(part[Channel(Phase.CALL)].count for part in parts), (cell.row, cell.column)


def test_only_cells_that_gain_precision_have_additional_repeats(matrix: Matrix) -> None:
    counts = {key: len(cell.repeats) for key, cell in matrix.cells.items()}
    assert min(counts.values()) == schedule.VIRTUAL_REPEATS
    more = {key for key, count in counts.items() if count > schedule.VIRTUAL_REPEATS}
    # Each of the two engines may measure one.
    assert sum(counts.values()) <= len(counts) * schedule.VIRTUAL_REPEATS + 2
    regular = {key: cell.repeats[: schedule.VIRTUAL_REPEATS] for key, cell in matrix.cells.items() if key[1] != QUIET}
    gaining = {key for key, phases in spreads(regular).items() if gain(phases) > 0 and key[0] != "host"}
    assert more <= gaining


@pytest.fixture(scope="module")
def steps() -> list[CheckProgress]:
    """The progress of ``again``."""
    return []


@pytest.fixture(scope="module")
def again(steps: list[CheckProgress]) -> Matrix:
    """The same check without engine processes."""
    return measured(progress=steps.append, cells=True)


def test_the_same_seeds_give_the_same_matrix_and_others_another(matrix: Matrix, again: Matrix) -> None:

    def figures(one: Matrix) -> list[object]:
        return [(key, channel, hist) for key, cell in one.cells.items() for channel, hist in cell.channels.items()]

    assert figures(matrix) == figures(again)
    assert figures(measured(seed=1, chosen=SMALLEST)) != figures(measured(seed=2, chosen=SMALLEST))


def test_what_the_machine_cannot_do_is_unsupported_with_the_reason_and_the_rest_is_measured() -> None:
    with virtual_sessions():
        found = runner.run(
            plan(["launch", "launch@green", "peer-copy"], ["spin", "peer-copy-behind-kernel"]),
            backend="sim",
            options=Options(sim_set={"machine.gpus": "1", "machine.green_contexts": "false"}),
        )
    assert found.cells["launch", "spin"].status is Status.OK
    for key in (("launch@green", "spin"), ("peer-copy", "spin"), ("launch", "peer-copy-behind-kernel")):
        assert found.cells[key].status is Status.UNSUPPORTED
        assert found.cells[key].reason
    assert found.cells["launch@green", QUIET].status is Status.UNSUPPORTED
    assert found.cells["host", "peer-copy-behind-kernel"].status is Status.UNSUPPORTED


def test_peer_copies_with_and_without_peer_access_are_measured_apart() -> None:
    with virtual_sessions():
        found = runner.run(
            plan(["peer-copy", "peer-copy-direct"], ["peer-copy-behind-kernel", "peer-copy-direct-behind-kernel"]),
            backend="sim",
        )
    staged = found.cells["peer-copy", "peer-copy-behind-kernel"]
    direct = found.cells["peer-copy-direct", "peer-copy-direct-behind-kernel"]
    assert staged.kind in ("stalled", "starved")
    assert direct.kind == "quiet"


def test_progress_counts_up_to_the_end_and_gives_cells(again: Matrix, steps: list[CheckProgress]) -> None:
    assert [one.done for one in steps] == sorted(one.done for one in steps)
    assert steps[-1].done == steps[-1].total
    cells = {(one.cell.row, one.cell.column) for one in steps if one.cell}
    assert ("launch", "spin") in cells <= set(again.cells)
    assert any(one.left_s is not None for one in steps)


def _stopping_after(windows: int) -> Callable[[], bool]:
    lock, count = threading.Lock(), 0

    def stop() -> bool:
        nonlocal count
        with lock:
            count += 1
            return count > windows

    return stop


def test_stopped_it_keeps_what_it_has_and_says_what_is_missing() -> None:
    found = measured(stop=_stopping_after(450))
    assert found.interrupted
    statuses = {cell.status for cell in found.cells.values()}
    assert Status.MISSING in statuses or any(
        len(cell.repeats) < schedule.VIRTUAL_REPEATS for cell in found.cells.values()
    )
    assert any(cell.repeats for cell in found.cells.values())


def test_stopped_in_the_additional_repeats_it_keeps_all_others() -> None:
    stopped = threading.Event()

    def progress(step: CheckProgress) -> None:
        if step.text.startswith("additional repeats"):
            stopped.set()

    found = measured(progress=progress, stop=stopped.is_set)
    assert found.interrupted
    measured_cells = [cell for cell in found.cells.values() if cell.repeats]
    assert max(len(cell.repeats) for cell in measured_cells) >= schedule.VIRTUAL_REPEATS
    assert all(cell.status is not Status.INVALID for cell in found.cells.values())


def test_stopped_at_once_it_has_nothing_and_no_traceback() -> None:
    found = measured(stop=lambda: True)
    assert found.interrupted
    assert all(cell.status is Status.MISSING for cell in found.cells.values())


def test_an_unknown_profile_is_wrong_use() -> None:
    with pytest.raises(EngineFailed) as raised:
        by_engines(profile="h2000")
    assert raised.value.exit_code == 2


def test_a_lost_engine_costs_its_column_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = cell_runner.CellRunner.measure
    lost = threading.Event()

    def measure(self, aggressor_set, *rest):  # type: ignore[no-untyped-def]
        if aggressor_set.column.name == "alloc-async" and not lost.is_set():
            lost.set()
            raise EngineFailed(4, "the engine ended (killed)")
        return usual(self, aggressor_set, *rest)

    monkeypatch.setattr(cell_runner.CellRunner, "measure", measure)
    found = measured(chosen=SMALLEST)
    assert found.cells["launch", "alloc-async"].status is Status.INVALID
    assert "killed" in (found.cells["launch", "alloc-async"].reason or "")
    assert found.cells["launch", "spin"].status is Status.OK
    assert found.lost_engines == (LostEngine("the engine ended (killed)", (("launch", "alloc-async"),)),)


def test_each_engine_that_is_killed_is_named_with_the_cells_lost_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two engines share the columns; each of the first two is killed by a signal, after the warm-up."""
    columns = ["spin", "alloc-async", "host-alloc-free", "d2h-pageable-warm"]
    usual, lock, measured_by = cell_runner.CellRunner.measure, threading.Lock(), Counter[int]()
    # By the engine's number: one that follows a killed engine is not killed, however slow the other is.
    killed_of: dict[int, str] = {}

    def measure(self, aggressor_set, *rest):  # type: ignore[no-untyped-def]
        engine, column = self.session.engine_pid, aggressor_set.column.name
        number = columns.index(column) % 2
        with lock:
            measured_by[engine] += 1
            kill = measured_by[engine] > 2 and number not in killed_of
            if kill:
                killed_of[number] = column
        if kill:
            os.kill(engine, signal.SIGKILL)
        return usual(self, aggressor_set, *rest)

    monkeypatch.setattr(cell_runner.CellRunner, "measure", measure)
    found = by_engines(chosen=plan(["launch", "d2d@secondary"], columns))
    killed = killed_of.values()
    lost = {cell for one in found.lost_engines for cell in one.cells}
    assert lost == {(row, column) for row in ("launch", "d2d@secondary") for column in killed}
    assert len(found.lost_engines) == len(killed) == 2
    assert all("killed by SIGKILL" in one.why for one in found.lost_engines)
    for (row, column), cell in found.cells.items():
        assert (cell.status is Status.INVALID) == ((row, column) in lost or (row == "host" and column in killed))


def test_an_engine_that_is_lost_after_the_last_cell_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = runner._Check._measure_blocks

    def measure_blocks(self, cells, left):  # type: ignore[no-untyped-def]
        usual(self, cells, left)
        if not self._cells.has_repeats or self._lost_engines:
            return
        raise EngineFailed(4, "the engine ended (killed)")

    monkeypatch.setattr(runner._Check, "_measure_blocks", measure_blocks)
    found = measured(chosen=SMALLEST)
    assert found.lost_engines[0] == LostEngine("the engine ended (killed)", ())
    assert found.cells["launch", "spin"].status is Status.OK


def test_an_aggressor_that_does_not_run_makes_its_cells_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = window_measurer._AggressorProgress.update
    monkeypatch.setattr(
        window_measurer._AggressorProgress,
        "update",
        lambda self, snapshots: usual(self, snapshots) or ("it did not run" if len(snapshots) > 1 else None),
    )
    found = measured(chosen=SMALLEST)
    assert found.cells["launch", "spin"].status is Status.INVALID
    assert found.cells["launch", "spin"].reason == "it did not run"


def test_a_window_in_which_the_check_was_suspended_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    small = plan(["launch"], ["spin"])
    lengths = window_measurer.Lengths(
        window_s=0.005, baseline_s=0.005, longest_s=0.005, extended_s=0.005, calls=5, starve=False
    )
    with (
        virtual_sessions(),
        cell_runner.CellRunner(small.victims, small.aggressor_sets, "sim", Options(), lambda: False) as cells,
    ):
        # As on a GPU: the board's time runs on while the check is stopped.
        monkeypatch.setattr(cells._measurer, "_virtual", False)
        usual = cells.session.run_for
        suspended_s: list[float] = []
        monkeypatch.setattr(
            cells.session, "run_for", lambda seconds: usual(seconds + (suspended_s.pop() if suspended_s else 0.0))
        )
        windows = cells.measure_baselines(small.victims, lengths, random.Random(1))
        assert windows["launch"].rejection is None
        suspended_s[:] = [3.0, 0.0]
        windows = cells.measure_baselines(small.victims, lengths, random.Random(1))
        assert windows["launch"].rejection == "the check stood still for 3 s"
