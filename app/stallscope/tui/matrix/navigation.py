"""Going about in the matrix: which cell is chosen, what part is seen, in which order, with which figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.screen import Screen

from stallscope.tui.matrix.grid import Grid
from stallscope.tui.matrix.view_model import Figure, Key

if TYPE_CHECKING:
    from stallscope.tui.matrix.controller import MatrixController


class Walking(Screen[bool]):
    """The actions that change nothing but the view; what they act on is declared here and made in the screen."""

    controller: MatrixController
    figure: Figure
    worst_first: bool
    focus_key: Key | None
    first: tuple[int, int]

    def draw(self) -> None:
        """Draw at once."""
        raise NotImplementedError

    def action_check_cell(self) -> None:
        """Enter the chosen cell."""
        raise NotImplementedError

    def action_check_order(self) -> None:
        """The worst first, or as measured."""
        self.worst_first = not self.worst_first
        self.first = (0, 0)
        if self.worst_first:
            self._go_to_worst()
        self.draw()
        self._reveal()

    def action_check_worst(self) -> None:
        """Go to the worst cell."""
        if not self._go_to_worst():
            self.controller.say("Every cell is quiet.")
        self.draw()
        self._reveal()

    def _go_to_worst(self) -> bool:
        matrix_view = self.controller.state.matrix_view
        worst = None if matrix_view is None else matrix_view.worst(self.figure is Figure.CHANGE)
        self.focus_key = worst or self.focus_key
        return worst is not None

    def action_check_figure(self) -> None:
        """The next figures."""
        there = [one for one in Figure if one is not Figure.CHANGE or self.controller.state.comparison is not None]
        at = there.index(self.figure) if self.figure in there else -1
        self.figure = there[(at + 1) % len(there)]
        self.draw()

    def action_check_up(self) -> None:
        """Up."""
        self.move(-1, 0)

    def action_check_down(self) -> None:
        """Down."""
        self.move(1, 0)

    def action_check_left(self) -> None:
        """To the left."""
        self.move(0, -1)

    def action_check_right(self) -> None:
        """To the right."""
        self.move(0, 1)

    def action_check_page_up(self) -> None:
        """A page up."""
        self.move(-self.query_one(Grid).places.rows, 0)

    def action_check_page_down(self) -> None:
        """A page down."""
        self.move(self.query_one(Grid).places.rows, 0)

    def action_check_home(self) -> None:
        """The row's first cell, then the first of all."""
        row, column = self.query_one(Grid).view.focus
        self.move(-row if column == 0 else 0, -column)

    def action_check_end(self) -> None:
        """The row's last cell, then the last of all."""
        view = self.query_one(Grid).view
        row, column = view.focus
        last = len(view.columns) - 1
        self.move(len(view.rows) - 1 - row if column == last else 0, last - column)

    def move(self, rows: int, columns: int) -> None:
        """Choose the cell so many rows and columns away, as far as there are any."""
        view = self.query_one(Grid).view
        if view.rows:
            row = max(0, min(view.focus[0] + rows, len(view.rows) - 1))
            column = max(0, min(view.focus[1] + columns, len(view.columns) - 1))
            self.focus_key = (view.rows[row], view.columns[column])
            self.draw()
            self._reveal()

    def _reveal(self) -> None:
        """Scroll until the chosen cell is seen."""
        grid = self.query_one(Grid)
        first = grid.places.showing(grid.view)
        if grid.view.rows and first != self.first:
            self.first = first
            self.draw()

    def on_grid_picked(self, message: Grid.Picked) -> None:
        """A click on a cell."""
        view = self.query_one(Grid).view
        self.focus_key = (view.rows[message.row], view.columns[message.column])
        self.draw()
        if message.again:
            self.action_check_cell()

    def on_grid_rolled(self, message: Grid.Rolled) -> None:
        """The wheel."""
        grid = self.query_one(Grid)
        if grid.view.rows:
            wanted = (self.first[0] + message.rows, self.first[1] + message.columns)
            self.first = grid.places.kept(grid.view, wanted)
            self.draw()
