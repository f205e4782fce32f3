"""What the matrix and the watch screen show: frozen states, and functions from a state to the next one."""

from __future__ import annotations

from dataclasses import replace

from factories.matrix_examples import screen_example
from factories.watch_moments import moments
from stallprobes.machine.telemetry import NAMES, TelemetryReading, TelemetrySnapshot
from stallprobes.matrix.matrix import QUIET
from stallscope.tui.matrix.controller import MatrixState
from stallscope.tui.matrix.cursor import MatrixCursor, block_view
from stallscope.tui.matrix.view_model import MatrixView
from stallscope.tui.watch.state import WatchScreenState

MATRIX = MatrixView.of(screen_example())
STATE = MatrixState(matrix_view=MATRIX)


def test_the_worst_cell_is_selected() -> None:
    cursor = MatrixCursor().on_cell_of(MATRIX)
    assert cursor.key == ("d2h-pinned", "host-alloc-free")
    # A cell that the block does not have.
    assert replace(cursor, key=("d2d", QUIET)).on_cell_of(MATRIX).key == cursor.key
    assert cursor.on_cell_of(None).key is None


def test_a_movement_ends_at_the_last_cell() -> None:
    cursor = MatrixCursor().on_cell_of(MATRIX)
    view = block_view(STATE, cursor, replayed=False)
    assert cursor.moved(view, 99, 99).key == (view.columns[-1], view.rows[-1])
    assert cursor.moved(view, -99, -99).key == (view.columns[0], view.rows[0])
    assert cursor.moved(block_view(MatrixState(), cursor, replayed=False), 1, 1) is cursor


def test_the_row_that_lost_most_is_selected_until_somebody_selects_another() -> None:
    first, *_, last = moments(3)
    state = WatchScreenState().on_row_of(first)
    assert (state.selected, state.chosen) == (first.rows[0].key, False)
    keys = [row.key for row in first.rows]
    state = state.stepped(keys, -1, around=True)
    assert state.selected == first.rows[-1].key
    assert state.on_row_of(last) is state
    assert state.stepped(keys, 99, around=False).selected == keys[-1]
    gone = replace(last, rows=last.rows[:1])
    assert state.on_row_of(gone).selected == gone.rows[0].key


def test_the_values_of_the_gpu_stay_while_the_view_is_frozen_and_count_once() -> None:
    readings = dict.fromkeys(NAMES, TelemetryReading())
    readings["utilisation_percent"] = TelemetryReading(40, 5, None)
    values = TelemetrySnapshot("GPU-1", 7, "live", None, readings), "H200"
    state = WatchScreenState().with_gpu(values).with_gpu(values)
    assert state.utilization == (40,)
    frozen = replace(state, frozen=moments(1)[0], frozen_why="PAUSED")
    assert frozen.with_gpu((None, "lost")) is frozen
    assert state.with_gpu((None, "lost")).gpu == (None, "lost")
