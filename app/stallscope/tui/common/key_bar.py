"""The key bar: the most important keys, as many as fit in the last line. A click on one runs its action."""

from __future__ import annotations

from dataclasses import dataclass

from textual.reactive import var

from stallscope.report.columns import display_width
from stallscope.tui.common.lines import Line, LineWidget, length


@dataclass(frozen=True)
class KeyBarView:
    """The ``hints``, (key, title, action) by importance, after ``note`` where there is one."""

    hints: tuple[tuple[str, str, str], ...] = ()
    note: str = ""


class KeyBar(LineWidget):
    """Draws the hints; the target of a click is an action."""

    view = var(KeyBarView())

    def lines(self, width: int, height: int) -> list[Line]:
        """One line."""
        line: Line = [(f" {self.view.note} ", "notice"), ("  ", "")] if self.view.note else [(" ", "")]
        self.targets = [[]]
        for key, title, action in self.view.hints:
            start = length(line)
            if start + display_width(f"{key} {title}") + 2 > width:
                continue
            line += [(key, "key"), (f" {title}  ", "dim")]
            self.targets[0].append((start, length(line) - 1, action))
        return [line]
