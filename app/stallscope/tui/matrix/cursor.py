"""Cursor of the matrix: the selected cell, the order and the values of the cells, and the view of the grid on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stallprobes.matrix.matrix import QUIET
from stallscope.tui.actions import MATRIX_ACTIONS
from stallscope.tui.matrix.block import BlockView
from stallscope.tui.matrix.cell import summary
from stallscope.tui.matrix.controller import MatrixState
from stallscope.tui.matrix.grid import GridLayout, GridView
from stallscope.tui.matrix.view_model import (
    CHANGE_LEGEND,
    LEGEND,
    CellValue,
    Key,
    MatrixView,
    all_labels,
    block_symbols,
)

# Contents of the matrix's cells that are ratios to the baseline. If the cells show ratios, the key "worst cell" selects
# the cell with the most severe verdict. Otherwise, the key first looks for the most important change since the compared
# check.
_RATIOS = (CellValue.JUDGED, CellValue.P50, CellValue.P99)
# Default keys of the matrix screen by the name of the action.
KEYS = {action.name: action.keys for action in MATRIX_ACTIONS}


@dataclass(frozen=True)
class MatrixCursor:
    """Part of a check in the grid; each method returns the cursor after a change.

    ``key`` is the selected cell, None before there is one. ``first`` are the grid's upper left row and column.
    ``follows``: the newest stall of a running check is selected.
    """

    value: CellValue = CellValue.SYMBOLS
    worst_first: bool = True
    key: Key | None = None
    first: tuple[int, int] = (0, 0)
    follows: bool = False

    def names(self, matrix_view: MatrixView) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of victims and aggressors in their order."""
        if self.value is CellValue.SYMBOLS:
            return matrix_view.block_order(self.worst_first)
        return matrix_view.order(self.worst_first, self.value is CellValue.CHANGE)

    def on_cell_of(self, matrix_view: MatrixView | None) -> MatrixCursor:
        """On a cell of ``matrix_view``: the present one, else the worst one, or the first one with an aggressor; on
        none where there is no cell."""
        if matrix_view is None:
            return replace(self, key=None)
        victims, aggressors = self.names(matrix_view)
        if not (victims and aggressors):
            return replace(self, key=None)
        if self.key is not None and self.key[0] in victims and self.key[1] in aggressors:
            return self
        worst = self.at_worst(matrix_view)
        first = next((name for name in aggressors if name != QUIET), aggressors[0])
        return worst or replace(self, key=(victims[0], first))

    def with_changes(self, compared: bool) -> MatrixCursor:
        """With changes in the table if the check is ``compared``, else with verdicts."""
        if self.value is CellValue.SYMBOLS:
            return self
        return replace(self, value=CellValue.CHANGE if compared else CellValue.JUDGED)

    def with_next_value(self, compared: bool) -> MatrixCursor:
        """With the next values; changes are among them if the check is ``compared``."""
        values = [value for value in CellValue if value is not CellValue.CHANGE or compared]
        position = values.index(self.value) if self.value in values else -1
        return replace(self, value=values[(position + 1) % len(values)])

    def reordered(self, matrix_view: MatrixView | None) -> MatrixCursor:
        """With the worst cell first and selected, or as measured."""
        cursor = replace(self, worst_first=not self.worst_first, first=(0, 0))
        return (cursor.at_worst(matrix_view) if cursor.worst_first else None) or cursor

    def at_worst(self, matrix_view: MatrixView | None) -> MatrixCursor | None:
        """On the worst cell, in the block of a comparison on the one that changed most; None if all are quiet."""
        if matrix_view is None:
            return None
        columns = self.names(matrix_view)[1]
        worst = None if self.value in _RATIOS else matrix_view.worst(True, columns)
        if worst is None and self.value is not CellValue.CHANGE:
            worst = matrix_view.worst(False, columns)
        return None if worst is None else replace(self, key=worst, first=(0, 0), follows=False)

    def at_newest_stall(self, state: MatrixState) -> MatrixCursor:
        """On the newest stall of a running check, if it is followed."""
        return replace(self, key=state.run.stall) if self.follows and state.run and state.run.stall else self

    def moved(self, view: GridView, rows: int, columns: int) -> MatrixCursor:
        """On the cell ``rows`` and ``columns`` away from the selected one of ``view``, or the nearest one."""
        if not view.rows:
            return self
        row = max(0, min(view.focus[0] + rows, len(view.rows) - 1))
        column = max(0, min(view.focus[1] + columns, len(view.columns) - 1))
        return replace(self, key=view.key(row, column), follows=False)

    def scrolled(self, view: GridView, layout: GridLayout, rows: int, columns: int) -> MatrixCursor:
        """With another part of the grid visible, and the same cell selected."""
        return replace(self, first=layout.clamped(view, (self.first[0] + rows, self.first[1] + columns)))


def grid_view(state: MatrixState, cursor: MatrixCursor, replayed: bool, ascii_only: bool = False) -> GridView:
    """The block of symbols, or a table; where nothing was measured it says how to get a check, in a replay without
    running one."""
    matrix_view, key = state.matrix_view, cursor.on_cell_of(state.matrix_view).key
    if matrix_view is None or key is None:
        run = "" if replayed else f"{KEYS['check_run']} runs a check on this machine; "
        return GridView("check", empty=("", f"{run}{KEYS['check_open']} opens a saved check; ? shows the help."))
    rows, columns = cursor.names(matrix_view)
    if cursor.value is CellValue.SYMBOLS:
        return _block_view(state, matrix_view, key, cursor, ascii_only)
    changed = cursor.value is CellValue.CHANGE
    order = ", worst first" if cursor.worst_first else ""
    return GridView(
        title=f"{'change' if changed else f'× baseline, {cursor.value}'}{order}",
        rows=rows,
        columns=columns,
        labels=all_labels(matrix_view, cursor.value),
        focus=(rows.index(key[0]), columns.index(key[1])),
        first=cursor.first,
        pinned=int(QUIET in columns[:1]),
        parts=("", "") if changed else ("call", "wait"),
        legend=CHANGE_LEGEND if changed else LEGEND,
        fresh=None if state.run is None else state.run.last,
    )


def _block_view(
    state: MatrixState, matrix_view: MatrixView, key: Key, cursor: MatrixCursor, ascii_only: bool
) -> BlockView:
    block, drawn = matrix_view.block, block_symbols(matrix_view, ascii_only)
    victims, aggressors = cursor.names(matrix_view)
    rest = []
    if block is not None and block.lines:
        rest += [f"quiet for all: {', '.join(block.quiet)}"] if block.quiet else []
        rest += [f"not reached: {', '.join(block.unreached)}"] if block.unreached else []
    return BlockView(
        title=f"victims{', worst first' if cursor.worst_first and block is not None else ''}",
        rows=aggressors,
        columns=victims,
        focus=(aggressors.index(key[1]), victims.index(key[0])),
        first=cursor.first,
        pinned=0,
        fresh=None if state.run is None else state.run.last,
        symbols=drawn.symbols,
        worst=drawn.worst,
        rest="; ".join(rest),
        entries=drawn.legend,
        compared=bool(matrix_view.changes),
        cell=summary(matrix_view, key),
    )
