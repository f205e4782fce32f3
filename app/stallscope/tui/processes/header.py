"""The header of the screen of processes: title and state, then how the processes are known."""

from __future__ import annotations

from textual.reactive import var

from stallscope.tui.common.bars import ScreenHead
from stallscope.tui.common.lines import Line, Run, cut, fit


class ProcessesHeader(ScreenHead):
    """Draws the header in two lines. The view is the state of the list, and the parts of the second line."""

    view = var[tuple[Run, Line]]((("reading", "dim"), []))

    def lines(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        state, parts = self.view
        first = self.first_line([(3, [("processes that use the GPUs", "dim")])], [(0, [state])], width)
        return [first, fit([(cut(part, width), style) for part, style in parts], width)]
