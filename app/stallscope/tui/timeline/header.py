"""The header of the timeline: engine and GPU, state of timeline and trigger; then span, limits and losses."""

from __future__ import annotations

from dataclasses import dataclass

from stallprobes.records.timeline import TimelineLosses
from stallprobes.units import plural
from stallscope.tui.common.header import title_line
from stallscope.tui.common.lines import SMALLEST, Line, LineWidget, fit, length, too_small_lines


@dataclass(frozen=True)
class TraceHeadView:
    """View of the header. ``state`` is that of the trace, ``parts`` the figures of the second line by importance."""

    machine: str = ""
    simulated: bool = False
    state: str = ""
    state_style: str = ""
    parts: tuple[tuple[str, str], ...] = ()


class TraceHead(LineWidget):
    """Draws ``view`` in two lines."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = TraceHeadView()

    def drawn_state(self) -> object:
        """The view, and whether the screen is large enough."""
        return self.view, self.screen.size

    def lines(self, width: int, height: int) -> list[Line]:
        """Two lines, or the notice that the terminal is too small."""
        if width < SMALLEST[0] or self.screen.size.height < SMALLEST[1]:
            return too_small_lines()
        return head_lines(self.view, width)


def head_lines(view: TraceHeadView, width: int) -> list[Line]:
    """The machine and the state, then the figures, as many as fit."""
    title: Line = [(" stallscope", "strong"), (" timeline ", "accent")]
    first = title_line(title, view.simulated, view.machine, (view.state, view.state_style), width)
    second: Line = [(" ", "")]
    for text, style in view.parts:
        if length(second) + len(text) + 3 <= width:
            second += [(text, style), ("   ", "")]
    if len(second) == 1 and view.parts:
        second = [(" ", ""), view.parts[0]]
    return [first, fit(second, width)]


def losses_text(losses: TimelineLosses) -> str:
    """What the timeline lost, "" for nothing."""
    return f"{plural(losses.lost, 'record')} lost" if losses.lost else ""
