"""The header of a watched program: command, state and time; then NVML's values."""

from __future__ import annotations

from dataclasses import dataclass

from textual.reactive import var

from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.watch.live.live_view import WatchedProgram
from stallscope.tui.common.bars import ScreenHead, clock, nvml_line
from stallscope.tui.common.lines import Line, cut, fit


@dataclass(frozen=True)
class WatchHeadView:
    """What the header shows. ``view`` is the state of a view that does not follow the program, "" if it does.

    ``gpu`` is the GPU's name, or the reason why ``telemetry`` is None.
    """

    program: WatchedProgram | None = None
    seconds: float = 0.0
    view: str = ""
    failure: str = ""
    telemetry: TelemetrySnapshot | None = None
    gpu: str = ""
    utilization: tuple[int, ...] = ()


class WatchHeader(ScreenHead):
    """Draws the header in two lines."""

    view = var(WatchHeadView())

    def lines(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        view = self.view
        if view.program is None:
            return [self.first_line([], [], width), []]
        left: list[tuple[int, Line]] = [(2, [(view.program.title, "")])]
        if view.program.pid is not None:
            left.append((6, [(f" (pid {view.program.pid})", "dim")]))
        return [self.first_line(left, list(_state(view, view.program)), width), self._nvml(width)]

    def _nvml(self, width: int) -> Line:
        view = self.view
        if view.failure:
            return fit([(f" {view.failure}", "bad")], width)
        if view.telemetry is None:
            return fit([(f" NVML n/a: {view.gpu}", "dim")], width)
        return nvml_line(view.telemetry, (), list(view.utilization), width, cut(view.gpu, 24) or "GPU")


def _state(view: WatchHeadView, program: WatchedProgram) -> list[tuple[int, Line]]:
    """The parts at the right end with their ranks."""
    parts: list[tuple[int, Line]] = []
    if view.failure:
        parts.append((0, [(" NOT READ ", "alarm")]))
    elif program.exit_code is not None:
        code = program.exit_code
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        parts.append((0, [(f" ENDED, {how} ", "notice")]))
    elif program.problem:
        parts.append((0, [(" NOTHING RECORDED ", "alarm")]))
    elif not view.view:
        parts.append((0, [("● live", "good")]))
    if view.view:
        parts.append((1, [(" ", ""), (f" {view.view} ", "notice")]))
    parts.append((4, [(f" {clock(view.seconds)}", "dim")]))
    return parts
