"""Cursor of the matrix: the selected cell, the order and the values of the cells, and the view of the grid on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stallprobes.matrix.matrix import QUIET
from stallscope.tui.matrix.controller import MatrixState
from stallscope.tui.matrix.grid import GridLayout, GridView
from stallscope.tui.matrix.view_model import CHANGE_LEGEND, LEGEND, CellValue, Key, MatrixView, all_labels


@dataclass(frozen=True)
class MatrixCursor:
    """What the grid shows of a check; each method returns the cursor after a change.

    ``key`` is the selected cell, None before there is one. ``first`` are the grid's upper left row and column.
    """

    value: CellValue = CellValue.JUDGED
    worst_first: bool = False
    key: Key | None = None
    first: tuple[int, int] = (0, 0)

    def names(self, matrix_view: MatrixView) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of rows and columns in their order."""
        return matrix_view.order(self.worst_first, self.value is CellValue.CHANGE)

    def on_cell_of(self, matrix_view: MatrixView | None) -> MatrixCursor:
        """On a cell of ``matrix_view``: the present one, or the first one with an aggressor; on none without a view."""
        if matrix_view is None:
            return replace(self, key=None)
        if self.key in matrix_view.matrix.cells:
            return self
        rows, columns = self.names(matrix_view)
        return replace(self, key=(rows[0], next((name for name in columns if name != QUIET), columns[0])))

    def with_changes(self, compared: bool) -> MatrixCursor:
        """With changes as values if the check is ``compared``, else with what was judged."""
        return replace(self, value=CellValue.CHANGE if compared else CellValue.JUDGED)

    def with_next_value(self, compared: bool) -> MatrixCursor:
        """With the next values; changes are among them if the check is ``compared``."""
        values = [one for one in CellValue if one is not CellValue.CHANGE or compared]
        position = values.index(self.value) if self.value in values else -1
        return replace(self, value=values[(position + 1) % len(values)])

    def reordered(self, matrix_view: MatrixView | None) -> MatrixCursor:
        """With the worst cell first and selected, or as measured."""
        cursor = replace(self, worst_first=not self.worst_first, first=(0, 0))
        return (cursor.at_worst(matrix_view) if cursor.worst_first else None) or cursor

    def at_worst(self, matrix_view: MatrixView | None) -> MatrixCursor | None:
        """On the worst cell; None if all are quiet."""
        worst = None if matrix_view is None else matrix_view.worst(self.value is CellValue.CHANGE)
        return None if worst is None else replace(self, key=worst)

    def moved(self, view: GridView, rows: int, columns: int) -> MatrixCursor:
        """On the cell ``rows`` and ``columns`` away from the selected one of ``view``, or the nearest one."""
        if not view.rows:
            return self
        row = max(0, min(view.focus[0] + rows, len(view.rows) - 1))
        column = max(0, min(view.focus[1] + columns, len(view.columns) - 1))
        return replace(self, key=(view.rows[row], view.columns[column]))

    def scrolled(self, view: GridView, layout: GridLayout, rows: int, columns: int) -> MatrixCursor:
        """With another part of the grid visible, and the same cell selected."""
        return replace(self, first=layout.clamped(view, (self.first[0] + rows, self.first[1] + columns)))


def grid_view(state: MatrixState, cursor: MatrixCursor, replayed: bool) -> GridView:
    """The grid; where nothing was measured it says how to get a check, in a replay without running one."""
    matrix_view, key = state.matrix_view, cursor.on_cell_of(state.matrix_view).key
    if matrix_view is None or key is None:
        run = "" if replayed else "r runs a check on this machine; "
        return GridView("check", empty=("", f"{run}o opens a saved check; ? shows the help."))
    rows, columns = cursor.names(matrix_view)
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
