"""The last line: the keys that matter most, as many as find room. A click on one does what the key does."""

from __future__ import annotations

from textual import events
from textual.message import Message

from stallscope.tui.common.lines import Drawn, Line, length


class KeyBar(Drawn):
    """Draws ``hints``: (key, words), the most important first; ``note`` before them where something is to be said."""

    class Pressed(Message):
        """The hint with these ``words`` was clicked."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.hints: tuple[tuple[str, str], ...] = ()
        self.note = ""
        self._places: list[tuple[int, int, str]] = []

    def lines(self, width: int, height: int) -> list[Line]:
        """One line."""
        line: Line = [(f" {self.note} ", "notice"), ("  ", "")] if self.note else [(" ", "")]
        self._places = []
        for key, words in self.hints:
            begin = length(line)
            if begin + len(key) + len(words) + 3 > width:
                continue
            line += [(key, "key"), (f" {words}  ", "dim")]
            self._places.append((begin, length(line) - 1, words))
        return [line]

    def on_click(self, event: events.Click) -> None:
        """Press what was clicked."""
        for begin, end, words in self._places:
            if begin <= event.x < end:
                self.post_message(self.Pressed(words))
