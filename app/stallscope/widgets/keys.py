"""The last line: the keys that matter most, as many as find room."""

from __future__ import annotations

from stallscope.widgets.paint import Drawn, Line, length


class Keys(Drawn):
    """Draws ``hints``: (key, words), the most important first; ``note`` before them where something is to be said."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.hints: tuple[tuple[str, str], ...] = ()
        self.note = ""

    def lines(self, width: int, height: int) -> list[Line]:
        """One line."""
        line: Line = [(f" {self.note} ", "notice"), ("  ", "")] if self.note else [(" ", "")]
        for key, words in self.hints:
            if length(line) + len(key) + len(words) + 3 > width:
                continue
            line += [(key, "key"), (f" {words}  ", "dim")]
        return [line]
