"""The header of a watched program: command, state and time; then NVML's values."""

from __future__ import annotations

from stallscope.tui.common.bars import HeadView, clock, nvml_line
from stallscope.tui.common.lines import Line, cut, fit
from stallscope.tui.sources.source import ProgramSource
from stallscope.tui.watch.state import WatchScreenState


def header_view(state: WatchScreenState, source: ProgramSource) -> HeadView:
    """The header: the program as it is now, and the values of the frozen view or the present ones."""
    program, moment = source.program_state, state.frozen or source.moment
    left: list[tuple[int, Line]] = [(2, [(program.title, "")])]
    if program.pid is not None:
        left.append((6, [(f" (pid {program.pid})", "dim")]))
    right = _state(state, source)
    right.append((4, [(f" {clock(0.0 if moment is None else moment.seconds)}", "dim")]))
    return HeadView(left, right, lambda width, _: [_nvml(state, source.failure, width)])


def _state(state: WatchScreenState, source: ProgramSource) -> list[tuple[int, Line]]:
    """The parts at the right end that say whether the program runs and is followed, with their ranks."""
    program, playback = source.program_state, source.playback
    position = state.frozen_why or ("" if playback is None else playback.position_text)
    parts: list[tuple[int, Line]] = []
    if source.failure:
        parts.append((0, [(" NOT READ ", "alarm")]))
    elif program.exit_code is not None:
        code = program.exit_code
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        parts.append((0, [(f" ENDED, {how} ", "notice")]))
    elif program.problem:
        parts.append((0, [(" NOTHING RECORDED ", "alarm")]))
    elif not position:
        parts.append((0, [("● live", "good")]))
    if position:
        parts.append((1, [(" ", ""), (f" {position} ", "notice")]))
    return parts


def _nvml(state: WatchScreenState, failure: str, width: int) -> Line:
    """NVML's values, or why there are none."""
    telemetry, gpu = state.gpu
    if failure:
        return fit([(f" {failure}", "bad")], width)
    if telemetry is None:
        return fit([(f" NVML n/a: {gpu}", "dim")], width)
    return nvml_line(telemetry, (), state.utilization, width, cut(gpu, 24) or "GPU")
