"""The timeline screen: what it looks like over recorded traces, and what its keys do over a live engine.

``STALLSCOPE_REMAKE=1`` writes the expected screens anew; look at the difference before you commit it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from rich.style import Style
from textual import events
from textual.pilot import Pilot

from factories.recordings import STALL
from factories.screen import (
    QUICK,
    SharedMonitor,
    assert_snapshot,
    drawn_strips,
    is_open,
    monitor,
    running,
    settled,
    text_of,
    until,
)
from factories.timeline_traces import SECONDARY, recorded, report_1, trace_of
from stallprobes.model import MS
from stallprobes.recording.observation import EngineCondition
from stallprobes.recording.recording import Recording
from stallprobes.records.timeline import TimelineProblem, TimelineStatus
from stallprobes.traces.rows import RowKey, RowKind
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.help import Help
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.settings import Settings
from stallscope.tui.sources.live_timeline import TimelineCondition, TimelineReport
from stallscope.tui.sources.replay import ReplaySource
from stallscope.tui.timeline import screen as timeline_screen
from stallscope.tui.timeline.screen import FROZEN_FRAMES_PER_S, TimelineScreen
from stallscope.tui.timeline.trace_capture import CaptureState, limit_text
from stallscope.tui.timeline.trace_plot import TracePlot
from stallscope.tui.timeline.traces import LiveTrace
from stallscope.tui.timeline.view_model import Selection

pytestmark = pytest.mark.usefixtures("without_terminal_updates")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with two traces: the first report, and one without a delay."""
    path = tmp_path_factory.mktemp("traces") / "traced.rec"
    quiet = trace_of([(0, 0, 100, 110), (0, 1, 110, 150)], [(0, 0, 100, 110, 112, 148)], [(SECONDARY, 0, None)])
    return recorded(path, report_1(), quiet)


def timeline(pilot: Pilot[None]) -> TimelineScreen:
    screen = pilot.app.screen_stack[-1]
    assert isinstance(screen, TimelineScreen)
    return screen


def state_of(screen: TimelineScreen) -> CaptureState:
    return screen.capture.state


def kind_of(screen: TimelineScreen) -> RowKind | None:
    return None if screen.cursor.selection is None else screen.cursor.selection.row.kind


def shown(pilot: Pilot[None]) -> str:
    screen = pilot.app.screen
    if isinstance(screen, TimelineScreen):
        # What the next frame shows.
        screen.draw()
    return text_of(drawn_strips(pilot.app))


@asynccontextmanager
async def replayed(
    path: Path, size: tuple[int, int] = (120, 36), settings: Settings | None = None
) -> AsyncIterator[Pilot[None]]:
    """The timeline screen over a recording."""
    app = StallscopeApp(lambda: ReplaySource(Recording(path), clock=lambda: 0.0), settings or Settings())
    try:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: is_open(pilot, Monitor) and monitor(pilot).state.observation is not None)
            await pilot.press("g")
            await until(pilot, lambda: is_open(pilot, TimelineScreen))
            plot = pilot.app.screen.query_one(TracePlot)
            await until(pilot, lambda: plot.view.rows or plot.view.sentences)
            timeline(pilot).rearrange()
            await settled(pilot)
            yield pilot
    finally:
        app.close()


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 36), (250, 70)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_a_recorded_trace(traced: Path, size: tuple[int, int]) -> None:
    async with replayed(traced, size) as pilot:
        text = shown(pilot)
        strips = drawn_strips(pilot.app)
        assert [strip.cell_length for strip in strips] == [size[0]] * size[1]
        assert "context primary had the engine" in text
        assert_snapshot(f"timeline-{size[0]}x{size[1]}", text)


async def test_in_ascii_it_is_the_same_in_other_glyphs(traced: Path) -> None:
    async with replayed(traced, settings=Settings(ascii=True)) as pilot:
        text = shown(pilot)
        assert text.isascii()
        assert_snapshot("timeline-120x36-ascii", text)


async def test_without_colour_no_colour_is_left(traced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with replayed(traced, (80, 24)) as pilot:
        text = shown(pilot)
        strips = drawn_strips(pilot.app)
        styles: list[Style] = [segment.style for strip in strips for segment in strip if segment.style is not None]
        assert all(style.color is None and style.bgcolor is None for style in styles)
        assert_snapshot("timeline-80x24", text)


async def test_keys_move_zoom_and_select_in_a_recorded_trace(traced: Path) -> None:
    async with replayed(traced) as pilot:
        screen = timeline(pilot)
        first = screen.cursor.viewport
        await pilot.press("minus", "minus", "plus")
        assert screen.cursor.viewport.span_ns == 2 * first.span_ns
        await pilot.press("home")
        assert screen.cursor.viewport == first
        await pilot.press("right")
        assert screen.cursor.viewport.begin_ns == first.begin_ns + first.span_ns // 10
        await pilot.press("pageup", "left")
        assert screen.cursor.viewport.begin_ns == first.begin_ns - first.span_ns
        await pilot.press(*["pageup"] * 40)
        assert screen.cursor.trace is not None
        assert screen.cursor.viewport.end_ns > screen.cursor.trace.begin_ns
        await pilot.press("home")
        before = screen.cursor.selection
        assert before is not None
        assert before.start_ns is not None
        await pilot.press("full_stop")
        assert screen.cursor.selection is not None
        assert screen.cursor.selection.start_ns is not None
        assert screen.cursor.selection.start_ns > before.start_ns
        await pilot.press("comma")
        assert screen.cursor.selection == before
        await pilot.press("down")
        assert screen.cursor.selection.row == RowKey(RowKind.CALLS, 1)
        await pilot.press("up", "up")
        assert kind_of(screen) is RowKind.TENURES
        await pilot.press("home", "plus", "plus", "enter")
        assert screen.cursor.viewport.begin_ns <= before.start_ns < screen.cursor.viewport.end_ns
        await pilot.press("w")
        assert kind_of(screen) is RowKind.CALLS
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, Help)
        await pilot.press("escape", "escape")
        assert isinstance(pilot.app.screen, Monitor)


async def test_the_mouse_selects_zooms_and_drags(traced: Path) -> None:
    async with replayed(traced) as pilot:
        screen, plot = timeline(pilot), timeline(pilot).query_one(TracePlot)
        at = plot.plot_layout
        first, engine = (at.lines.index(key) + 1 for key in (RowKey(RowKind.CALLS, 1), RowKey(RowKind.TENURES, 1)))
        await pilot.click(TracePlot, offset=(2, first))
        assert screen.cursor.selection == Selection(RowKey(RowKind.CALLS, 1))
        await pilot.click(TracePlot, offset=(at.names + 40, engine))
        assert screen.cursor.selection.row == RowKey(RowKind.TENURES, 1)
        assert screen.cursor.selection.start_ns is not None
        before = screen.cursor.viewport
        await pilot._post_mouse_events([events.MouseScrollDown], TracePlot, offset=(at.names + 10, 3))
        assert screen.cursor.viewport.span_ns == 2 * before.span_ns
        await pilot._post_mouse_events([events.MouseScrollUp], TracePlot, offset=(at.names + 10, 3))
        assert screen.cursor.viewport.span_ns == before.span_ns
        before = screen.cursor.viewport
        await pilot.mouse_down(TracePlot, offset=(at.names + 40, 3))
        await pilot.hover(TracePlot, offset=(at.names + 30, 3))
        await pilot.mouse_up(TracePlot, offset=(at.names + 30, 3))
        await until(pilot, lambda: screen.cursor.viewport.begin_ns > before.begin_ns)


async def test_a_recording_steps_through_its_traces_and_one_without_says_so(traced: Path) -> None:
    async with replayed(traced) as pilot:
        assert "TRACE 1/2" in shown(pilot)
        await pilot.press("N")
        assert "TRACE 2/2" in shown(pilot)
        await pilot.press("N", "backspace", "backspace")
        assert "TRACE 1/2" in shown(pilot)
    async with replayed(STALL) as pilot:
        assert "This recording has no trace." in shown(pilot)
        await pilot.press("w", "N", "home", "comma", "plus", "right", "E", "y")
        assert "NO TRACE" in shown(pilot)


async def test_a_trace_is_written_for_perfetto_and_copied_as_it_is_drawn(
    traced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replayed(traced) as pilot:
        monkeypatch.chdir(tmp_path)
        await pilot.press("E")
        await until(pilot, lambda: list(tmp_path.glob("stallscope-trace-*.json")))
        assert '"traceEvents"' in next(tmp_path.glob("*.json")).read_text(encoding="utf-8")
        copied: list[str] = []
        monkeypatch.setattr(pilot.app, "copy_to_clipboard", copied.append)
        await pilot.press("y")
        await until(pilot, lambda: copied)
        for words in ("SIMULATED", "host calls", "d2d@secondary", "delay", "D2D copy, 1 MiB"):
            assert words in copied[0]
        # A folder that cannot be written is a notice.
        screen = timeline(pilot)
        notices: list[str] = []
        monkeypatch.setattr(screen, "notify", lambda text, **_: notices.append(text))
        monkeypatch.setattr(timeline_screen, "FILE_NAME", "missing/name.json")
        await pilot.press("E")
        await until(pilot, lambda: notices)
        assert "missing" in notices[0]


async def test_too_small_says_so(traced: Path) -> None:
    async with replayed(traced, (40, 10)) as pilot:
        assert "too small" in shown(pilot)


# Live.


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[SharedMonitor]:
    """One monitor for all tests of this module that leave its engine alive."""
    found = SharedMonitor()
    yield found
    await found.end()


@asynccontextmanager
async def opened(shared: SharedMonitor) -> AsyncIterator[Pilot[None]]:
    """The timeline screen over the shared engine, which records."""
    async with shared.as_at_first() as pilot:
        # That of the test before may still be switched off.
        await until(pilot, lambda: _condition(pilot) is TimelineCondition.OFF)
        await pilot.press("g", "r")
        await until(pilot, lambda: is_open(pilot, TimelineScreen))
        timeline(pilot).capture.go_live()
        # The screen reads the engine's condition less often than it draws.
        await until(pilot, lambda: "● live" in shown(pilot))
        assert _condition(pilot) is TimelineCondition.ON
        yield pilot
        if isinstance(pilot.app.screen, TimelineScreen):
            await pilot.press("r", "escape")


def _condition(pilot: Pilot[None]) -> TimelineCondition:
    live = monitor(pilot).live
    assert live is not None
    return live.timeline.report.condition


@pytest.mark.asyncio(loop_scope="module")
async def test_a_timeline_that_is_closed_is_drawn_no_more(shared: SharedMonitor) -> None:
    async with opened(shared) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, TimelineScreen)
        assert screen.can_draw
        await pilot.press("escape")
        await until(pilot, lambda: not is_open(pilot, TimelineScreen))
        # Its timer may fire once more, when its panels have gone.
        screen.mark_changed()
        screen.tick()
        assert not screen.can_draw
        await pilot.press("g", "r", "escape")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_key_starts_and_ends_the_recording(shared: SharedMonitor) -> None:
    async with opened(shared) as pilot:
        await until(pilot, lambda: "● live" in shown(pilot) and "host calls" in shown(pilot))
        await until(pilot, lambda: "▌" in shown(pilot) or "▐" in shown(pilot))
        observation = monitor(pilot).state.observation
        assert observation is not None
        await until(pilot, lambda: (last := monitor(pilot).state.observation) and last.timeline)
        await pilot.press("r")
        await until(pilot, lambda: _condition(pilot) is TimelineCondition.OFF)
        assert "FROZEN recording ended" in shown(pilot)
        await pilot.press("home")
        await until(pilot, lambda: "r records" in shown(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: not monitor(pilot).state.observation.timeline)  # type: ignore[union-attr]


@pytest.mark.asyncio(loop_scope="module")
async def test_counters_of_the_gpu_stand_below_the_calls(shared: SharedMonitor) -> None:
    async with opened(shared) as pilot:
        await until(pilot, lambda: "counters of the GPU" in shown(pilot) and "SM active" in shown(pilot))
        await until(pilot, lambda: "full: 100 %, " in shown(pilot))
        assert "SIMULATED" in shown(pilot)
        await pilot.press("p")
        await until(pilot, lambda: "FROZEN" in shown(pilot))
        assert "SM active" in shown(pilot)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_recording_goes_on_in_other_views_and_each_says_so(shared: SharedMonitor) -> None:
    async with opened(shared) as pilot:
        await pilot.press("escape")
        await until(pilot, lambda: "Timeline●" in shown(pilot))
        live = monitor(pilot).live
        assert live is not None
        history = live.timeline.history
        assert history is not None
        before = history.at_ns
        await until(pilot, lambda: history.at_ns > before)
        await pilot.press("o")
        await until(pilot, lambda: "Timeline●" in shown(pilot))
        await pilot.press("g", "r", "escape")
        await until(pilot, lambda: _condition(pilot) is TimelineCondition.OFF)
        await until(pilot, lambda: "Timeline●" not in shown(pilot))


@pytest.mark.asyncio(loop_scope="module")
async def test_aggressors_are_switched_on_the_timeline_too(shared: SharedMonitor) -> None:
    async with opened(shared) as pilot:
        await pilot.press("1")
        await until(pilot, lambda: "spin" in running(pilot))
        await pilot.press("x")
        await until(pilot, lambda: "spin" not in running(pilot))


@pytest.mark.asyncio(loop_scope="module")
async def test_a_freeze_stands_still_and_home_returns_to_live(shared: SharedMonitor) -> None:
    async with opened(shared) as pilot:
        screen = timeline(pilot)
        await until(pilot, lambda: "host calls" in shown(pilot))
        for key in ("p", "left", "comma", "w"):
            await pilot.press(key)
            assert state_of(screen) is CaptureState.FROZEN
            assert "FROZEN paused" in shown(pilot)
            before = screen.query_one(TracePlot).view
            await pilot.pause(0.3)
            assert screen.query_one(TracePlot).view == before
            await until(pilot, lambda: screen.frames_per_s == FROZEN_FRAMES_PER_S)
            await pilot.press("home")
            assert state_of(screen) is CaptureState.LIVE
            await until(pilot, lambda: "host calls" in shown(pilot))
            assert screen.frames_per_s == screen.settings.frames_per_second


@pytest.mark.asyncio(loop_scope="module")
async def test_the_trigger_freezes_on_the_next_slow_call_and_is_armed_again(shared: SharedMonitor) -> None:
    async with opened(shared) as pilot:
        screen = timeline(pilot)
        await pilot.press("t")
        assert state_of(screen) is CaptureState.ARMED
        assert "ARMED" in shown(pilot)
        await pilot.press("t")
        assert state_of(screen) is CaptureState.LIVE
        # No key sets a limit that every call exceeds.
        screen.capture.set_limit(1)
        await pilot.press("t")
        await until(pilot, lambda: state_of(screen) is CaptureState.FROZEN)
        assert screen.capture.trace is not None
        assert screen.capture.trace.trigger is not None
        assert screen.cursor.selection is not None
        assert screen.cursor.selection.start_ns == screen.capture.trace.trigger.began_ns
        await pilot.press("right_square_bracket")
        assert screen.capture.above_ns == 20_000
        await pilot.press("A")
        assert limit_text(screen.capture, None) == "baseline, not known yet"
        await pilot.press("t")
        assert state_of(screen) is CaptureState.ARMED
        await pilot.press("home")


@pytest.mark.asyncio(loop_scope="module")
async def test_from_a_stalled_probe_it_freezes_on_its_worst_call(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("1")
        await until(pilot, lambda: monitor(pilot).analyzer and monitor(pilot).analyzer.worst == "d2d@secondary")  # type: ignore[union-attr]
        await pilot.press("w", "g", "r")
        await until(pilot, lambda: is_open(pilot, TimelineScreen))
        screen = timeline(pilot)
        assert screen.capture.stalled == "d2d@secondary"
        assert state_of(screen) is not CaptureState.LIVE
        await until(pilot, lambda: state_of(screen) is CaptureState.FROZEN)
        assert screen.capture.found is not None
        assert screen.capture.found.ns > MS
        text = shown(pilot)
        assert "FROZEN d2d@secondary" in text
        assert "context primary had the engine" in text
        # The aggressor that ran when the timeline was switched on still does.
        last = monitor(pilot).state.observation
        assert last is not None
        assert last.snapshot is not None
        assert last.snapshot.probes["spin"].on
        # The frozen trace is there when the screen is opened again.
        trace = screen.capture.trace
        await pilot.press("x", "escape")
        await until(pilot, lambda: not monitor(pilot).state.observation.snapshot.probes["spin"].on)  # type: ignore[union-attr]
        await until(pilot, lambda: monitor(pilot).analyzer and monitor(pilot).analyzer.worst is None)  # type: ignore[union-attr]
        await pilot.press("g")
        await until(pilot, lambda: is_open(pilot, TimelineScreen))
        assert timeline(pilot).capture.trace is trace
        await pilot.press("home", "r", "escape")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_flood_of_keys_leaves_a_screen_that_works(shared: SharedMonitor) -> None:
    async with opened(shared) as pilot:
        screen = timeline(pilot)
        await until(pilot, lambda: "host calls" in shown(pilot))
        keys = "plus minus left right up down comma full_stop w p t home enter left_square_bracket A pageup pagedown"
        for _ in range(6):
            await pilot.press(*keys.split())
        await pilot.press("home", "p")
        assert state_of(screen) is CaptureState.FROZEN
        assert "FROZEN" in shown(pilot)
        await pilot.press("home")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (TimelineReport(TimelineCondition.SWITCHING_ON, 3.2), "being switched on (3 s)"),
        (
            TimelineReport(
                TimelineCondition.PROBLEM,
                0,
                TimelineStatus(False, TimelineProblem.NO_LIBRARY, "libcupti was not found", "install it"),
            ),
            "libcupti was not found; install it.",
        ),
        (TimelineReport(TimelineCondition.NO_ENGINE), "begins with the next engine"),
        (TimelineReport(TimelineCondition.OFF), "No call is recorded now."),
    ],
    ids=lambda one: one.condition if isinstance(one, TimelineReport) else "",
)
async def test_sentences_in_place_of_a_trace(shared: SharedMonitor, report: TimelineReport, expected: str) -> None:
    async with opened(shared) as pilot:
        screen = timeline(pilot)
        assert isinstance(screen.traces, LiveTrace)
        screen.traces.follow = lambda cursor: (cursor, False)  # type: ignore[method-assign]
        screen.traces.report = report
        assert expected in " ".join(shown(pilot).split())


async def test_the_engine_is_killed_with_the_timeline_on_and_restarted() -> None:
    from stallprobes.engine.backend import Options
    from stallscope.tui.sources.live import LiveSource

    source = LiveSource(Options(profile="h200"))
    app = StallscopeApp(lambda: source, QUICK)
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            await until(pilot, lambda: is_open(pilot, Monitor) and monitor(pilot).analyzer is not None)
            # Before the engine is ready.
            await pilot.press("g", "r")
            await until(pilot, lambda: "host calls" in shown(pilot))
            pid = source.engine_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            screen = timeline(pilot)
            await until(pilot, lambda: source.observation().engine.state is EngineCondition.LOST)
            await until(pilot, lambda: state_of(screen) is CaptureState.FROZEN)
            await until(pilot, lambda: "ENGINE LOST" in shown(pilot))
            assert "FROZEN the engine ended" in shown(pilot)
            await pilot.press("w", "plus", "left", "comma")
            assert "FROZEN the engine ended" in shown(pilot)
            await pilot.press("home")
            assert "begins with the next engine" in shown(pilot)
            await pilot.press("R")
            await until(pilot, lambda: source.engine_pid not in (None, pid))
            await until(pilot, lambda: "● live" in shown(pilot) and "host calls" in shown(pilot))
    finally:
        source.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_frozen_trace_of_other_probes_is_shown_as_it_was(shared: SharedMonitor) -> None:
    """The limits are those of the present probes, and the selected row is one of the trace."""
    async with opened(shared) as pilot:
        screen = timeline(pilot)
        await until(pilot, lambda: "host calls" in shown(pilot))
        screen.capture.freeze(report_1(), None, "earlier")
        other = replace(screen.cursor, selection=Selection(RowKey(RowKind.CALLS, 6)))
        assert isinstance(screen.traces, LiveTrace)
        screen.cursor = screen.traces.frozen(other)
        screen.mark_changed()
        text = shown(pilot)
        assert "FROZEN earlier" in text
        assert "spin" in text
        assert screen.cursor.selection == Selection(RowKey(RowKind.CALLS, 0))
        await pilot.press("left_square_bracket", "w", "comma", "down", "minus")
        assert "spin" in shown(pilot)
        await pilot.press("home")
        await until(pilot, lambda: "launch" in shown(pilot))
