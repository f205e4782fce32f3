"""Cursor of the matrix: the selected cell, and the view of the block on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stallscope.tui.actions import SCREENS
from stallscope.tui.matrix.block import BlockLayout, BlockView
from stallscope.tui.matrix.cell import summary
from stallscope.tui.matrix.controller import MatrixState
from stallscope.tui.matrix.view_model import Key, MatrixView, block_symbols

# Default keys of the matrix screen by the name of the action.
KEYS = {action.name: action.keys for action in SCREENS["matrix"]}


@dataclass(frozen=True)
class MatrixCursor:
    """Part of a check in the block; each method returns the cursor after a change.

    ``key`` is the selected cell, None before there is one. ``first`` are the block's upper left row and column.
    ``follows``: the newest stall of a running check is selected.
    """

    key: Key | None = None
    first: tuple[int, int] = (0, 0)
    follows: bool = False

    def on_cell_of(self, matrix_view: MatrixView | None) -> MatrixCursor:
        """On a cell of ``matrix_view``: the present one, else the worst one, or the first one with an aggressor; on
        none where there is no cell."""
        if matrix_view is None:
            return replace(self, key=None)
        victims, aggressors = matrix_view.order
        if not (victims and aggressors):
            return replace(self, key=None)
        if self.key is not None and self.key[0] in victims and self.key[1] in aggressors:
            return self
        worst = self.at_worst(matrix_view)
        return worst or replace(self, key=(victims[0], aggressors[0]))

    def at_worst(self, matrix_view: MatrixView | None) -> MatrixCursor | None:
        """On the worst cell; None if all are quiet."""
        if matrix_view is None:
            return None
        worst = matrix_view.worst
        return None if worst is None else replace(self, key=worst, first=(0, 0), follows=False)

    def at_newest_stall(self, state: MatrixState) -> MatrixCursor:
        """On the newest stall of a running check, if it is followed."""
        return replace(self, key=state.run.stall) if self.follows and state.run and state.run.stall else self

    def moved(self, view: BlockView, rows: int, columns: int) -> MatrixCursor:
        """On the cell ``rows`` and ``columns`` away from the selected one of ``view``, or the nearest one."""
        if not view.rows:
            return self
        row = max(0, min(view.focus[0] + rows, len(view.rows) - 1))
        column = max(0, min(view.focus[1] + columns, len(view.columns) - 1))
        return replace(self, key=view.key(row, column), follows=False)

    def scrolled(self, view: BlockView, layout: BlockLayout, rows: int, columns: int) -> MatrixCursor:
        """With another part of the block visible, and the same cell selected."""
        return replace(self, first=layout.clamped(view, (self.first[0] + rows, self.first[1] + columns)))


def block_view(state: MatrixState, cursor: MatrixCursor, replayed: bool, ascii_only: bool = False) -> BlockView:
    """The block of symbols; where nothing was measured it says how to get a check, in a replay without running one."""
    matrix_view, key = state.matrix_view, cursor.on_cell_of(state.matrix_view).key
    if matrix_view is None or key is None:
        run = "" if replayed else f"{KEYS['check_run']} runs a check on this machine; "
        return BlockView("check", empty=("", f"{run}{KEYS['check_open']} opens a saved check; ? shows the help."))
    block, (symbols, entries, worst) = matrix_view.block, block_symbols(matrix_view, ascii_only)
    victims, aggressors = matrix_view.order
    rest = []
    if block is not None and block.lines:
        rest += [f"quiet for all: {', '.join(block.quiet)}"] if block.quiet else []
        rest += [f"not reached: {', '.join(block.unreached)}"] if block.unreached else []
    return BlockView(
        title=f"victims{'' if block is None else ', worst first'}",
        rows=aggressors,
        columns=victims,
        focus=(aggressors.index(key[1]), victims.index(key[0])),
        first=cursor.first,
        fresh=None if state.run is None else state.run.last,
        symbols=symbols,
        worst=worst,
        rest="; ".join(rest),
        entries=entries,
        cell=summary(matrix_view, key),
    )
