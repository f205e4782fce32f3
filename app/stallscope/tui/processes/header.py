"""The header of the screen of processes: title and state, then how the processes are known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from textual.reactive import var

from stallscope.tui.common.bars import ScreenHead
from stallscope.tui.common.lines import Line, Run, cut, fit


class ListState(Enum):
    """State of the list, with its word and style: not read yet, read again and again, or there can be none."""

    READING = ("reading", "dim")
    LIVE = ("● live", "good")
    NONE = (" NOT LISTED ", "notice")


@dataclass(frozen=True)
class ProcessesHeadView:
    """Content of the header: ``about`` the list, ``problems`` of a part of it, and the ``failure`` to read it anew."""

    about: str = ""
    problems: str = ""
    failure: str = ""
    state: ListState = ListState.READING


class ProcessesHeader(ScreenHead):
    """Draws the header in two lines."""

    view = var(ProcessesHeadView())

    def lines(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        view = self.view
        left: list[tuple[int, Line]] = [(3, [("processes that use the GPUs", "dim")])]
        state: Run = (" NOT READ ", "alarm") if view.failure else view.state.value
        first = self.first_line(left, [(0, [state])], width)
        text, style = (view.failure, "bad") if view.failure else (view.about, "dim")
        second: Line = [(f" {text}", style)] if text else []
        if view.problems and not view.failure:
            second.append((f" {view.problems}", "warn"))
        return [first, fit([(cut(part, width), part_style) for part, part_style in second], width)]
