"""The key bar: the most important keys, as many as fit in the last line. A click on one runs its action."""

from __future__ import annotations

from textual import events
from textual.message import Message

from stallscope.report.columns import display_width
from stallscope.tui.common.lines import Line, LineWidget, length


class KeyBar(LineWidget):
    """Draws ``hints``, (key, title, action) by importance, after ``note`` where there is one."""

    class Pressed(Message):
        """The hint of ``action`` was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.hints: tuple[tuple[str, str, str], ...] = ()
        self.note = ""
        self._spans: list[tuple[int, int, str]] = []

    def show_note(self, note: str) -> None:
        """Draw the keys after ``note``."""
        self.note = note
        if self.display:
            self.redraw()

    def drawn_state(self) -> object:
        """Hints and note."""
        return self.hints, self.note

    def lines(self, width: int, height: int) -> list[Line]:
        """One line."""
        line: Line = [(f" {self.note} ", "notice"), ("  ", "")] if self.note else [(" ", "")]
        self._spans = []
        for key, title, action in self.hints:
            start = length(line)
            if start + display_width(f"{key} {title}") + 2 > width:
                continue
            line += [(key, "key"), (f" {title}  ", "dim")]
            self._spans.append((start, length(line) - 1, action))
        return [line]

    def on_click(self, event: events.Click) -> None:
        """Post the action of the clicked hint."""
        for start, end, action in self._spans:
            if start <= event.x < end:
                self.post_message(self.Pressed(action))
