"""The output of the watched program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.reactive import var

from stallscope.report.columns import by_column, display_width
from stallscope.tui.common.lines import Line, LineWidget, rule


@dataclass(frozen=True)
class OutputView:
    """The lines that the program wrote, or ``instead``, where they are elsewhere."""

    output: Sequence[str] = ()
    instead: str = ""


class OutputPane(LineWidget):
    """Draws the last of the output."""

    view = var(OutputView())

    def lines(self, width: int, height: int) -> list[Line]:
        """A title, and the end of the output; long lines continue in the next one."""
        out: list[Line] = [rule("output of the program", width)]
        if self.view.instead:
            return [*out, [(f" {self.view.instead}", "dim")]]
        found: list[str] = []
        for text in reversed(self.view.output):
            if len(found) >= height - 1:
                break
            found[:0] = _pieces(text, max(width - 1, 1))
        return [*out, *([(f" {text}", "")] for text in found[-(height - 1) :] if height > 1)]


def _pieces(text: str, width: int) -> list[str]:
    if display_width(text) <= width:
        return [text]
    letters = by_column(text)
    return ["".join(letters[first : first + width]) for first in range(0, len(letters), width)]
