"""The header of the screen of processes: title and state, then how the processes are known."""

from __future__ import annotations

from dataclasses import dataclass

from textual.reactive import var

from stallscope.tui.common.lines import Line, LineWidget, by_rank, cut, fit


@dataclass(frozen=True)
class ProcessesHeadView:
    """What the header shows: ``about`` the list, ``problems`` of a part of it, and the ``failure`` to read it anew.

    ``live``: there is a list.
    """

    about: str = ""
    problems: str = ""
    failure: str = ""
    live: bool = False


class ProcessesHeader(LineWidget):
    """Draws the header in two lines."""

    view = var(ProcessesHeadView())

    def lines(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        view = self.view
        left: list[tuple[int, Line]] = [(1, [(" stallscope", "strong"), (" processes ", "accent")])]
        left.append((3, [(" that use the GPUs", "dim")]))
        state: Line = [("● live", "good")] if view.live else [("reading", "dim")]
        first = by_rank(left, [(0, [(" NOT READ ", "alarm")] if view.failure else state)], width)
        text, style = (view.failure, "bad") if view.failure else (view.about, "dim")
        second: Line = [(f" {text}", style)] if text else []
        if view.problems and not view.failure:
            second.append((f" {view.problems}", "warn"))
        return [first, fit([(cut(part, width), of) for part, of in second], width)]
