"""The caption of the demo: the pattern with its position, what runs, and what to look at."""

from __future__ import annotations

from dataclasses import dataclass

from textual.reactive import var

from stallscope.report.columns import wrapped
from stallscope.tui.common.lines import Line, LineWidget, cut, rule

# From this width on, the longest text fits in one line.
_WIDE = 160
# Columns of a heading beside its title and its note.
_BESIDE_TITLE = 9


@dataclass(frozen=True)
class CaptionView:
    """``title`` with ``note`` at its end, then ``runs``, what runs, and ``look``, what to look at."""

    title: str = ""
    note: str = ""
    runs: str = ""
    look: str = ""


class DemoCaption(LineWidget):
    """Draws a caption."""

    view = var(CaptionView())

    def lines(self, width: int, height: int) -> list[Line]:
        """Three lines; four where the terminal is narrow."""
        view, room = self.view, max(20, width - 2)
        out: list[Line] = [
            _heading(view.title, view.note, width),
            [(f" {cut(view.runs, room)}", "strong")],
        ]
        looks = wrapped(view.look, room)
        most = max(1, height - 2)
        if len(looks) > most:
            looks = [*looks[: most - 1], cut(" ".join(looks[most - 1 :]), room)]
        return [*out, *([(f" {text}", "accent")] for text in looks)][:height]


def _heading(title: str, note: str, width: int) -> Line:
    """The title, cut so that the note fits."""
    return rule(cut(title, max(10, width - len(note) - _BESIDE_TITLE)), width, note)


def caption_height(width: int) -> int:
    """Number of lines of the caption in a terminal of ``width`` columns."""
    return 3 if width >= _WIDE else 4
