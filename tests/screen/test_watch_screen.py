"""The screen of a watched program: what it looks like over a recording made by hand, its keys, and a live program."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from textual.pilot import Pilot

from factories.beside import FakeAggressors, beside_result
from factories.hostile_text import HOSTILE, forbidden, poisoned
from factories.screen import assert_snapshot, dialog_text, is_open, settled, text_of, until
from factories.watch_calls import slow_batch
from factories.watch_moments import moments, record, training
from stallprobes.latency.histogram import Histogram
from stallprobes.machine.telemetry import NAMES, TelemetryReading, TelemetrySnapshot
from stallprobes.watch.intervals import int64s
from stallprobes.watch.line_text import place_text
from stallprobes.watch.live.beside_trial import BesideMoment, BesideTrial
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram, WatchRow, WatchRowKey
from stallprobes.watch.live.recording import RecordedWatch, WatchRecording
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallscope.report.columns import display_width
from stallscope.tui.actions import SCREENS
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.dialog import Ask, TextDialog
from stallscope.tui.common.help import Help
from stallscope.tui.common.lines import Panel
from stallscope.tui.settings import Settings
from stallscope.tui.sources.pane_program import PaneProgram
from stallscope.tui.sources.watch_replay import WatchReplaySource
from stallscope.tui.sources.watched import ProgramGpu, WatchedProgramSource
from stallscope.tui.timeline.screen import TimelineScreen
from stallscope.tui.watch.beside_panel import BesideView, beside_lines
from stallscope.tui.watch.call_table import CallTableView, WatchTable, thread_labels
from stallscope.tui.watch.explain_call import frames_text
from stallscope.tui.watch.screen import WatchScreen

# The position at which the screen is drawn, and the last one, where the program has ended.
AT_S, END_S = 2.0, 3.0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "watch.rec"
    record(path, moments(4, exit_code=3))
    return path


@asynccontextmanager
async def replayed(
    recorded: Path, size: tuple[int, int], at_s: float = AT_S, settings: Settings | None = None
) -> AsyncIterator[tuple[Pilot[None], WatchScreen]]:
    """The screen at a position of the recording, which stands still."""
    now = [0.0]
    source = WatchReplaySource(WatchRecording(recorded), clock=lambda: now[0])
    app = StallscopeApp(lambda: source, settings or Settings(), first="watch")
    with closing(source):
        async with _opened(app, source, size, now, at_s) as found:
            yield found


@asynccontextmanager
async def _opened(
    app: StallscopeApp, source: WatchReplaySource, size: tuple[int, int], now: list[float], at_s: float
) -> AsyncIterator[tuple[Pilot[None], WatchScreen]]:
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: is_open(pilot, WatchScreen))
        screen = app.screen
        assert isinstance(screen, WatchScreen)
        await until(pilot, lambda: "PAUSED" not in source.position_text)
        now[0] = at_s
        await drawn(pilot, screen)
        yield pilot, screen


async def drawn(pilot: Pilot[None], screen: WatchScreen) -> str:
    """The lines of the screen, once everything is drawn."""
    screen.rearrange()
    await settled(pilot)
    screen.draw()
    return text_of(await settled(pilot))


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (160, 48), (250, 70)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_screen(recorded: Path, size: tuple[int, int]) -> None:
    async with replayed(recorded, size) as (pilot, screen):
        strips = await settled(pilot)
        assert [strip.cell_length for strip in strips] == [size[0]] * size[1]
        assert_snapshot(f"watch-{size[0]}x{size[1]}", await drawn(pilot, screen))


async def test_the_end_of_the_program_is_said(recorded: Path) -> None:
    async with replayed(recorded, (80, 24), END_S) as (pilot, screen):
        text = await drawn(pilot, screen)
        assert "ENDED, exit code 3" in text
        assert "in flight" not in text.partition("slow calls")[2]


async def test_in_ascii_and_without_colour_every_state_is_still_said(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with replayed(recorded, (80, 40), settings=Settings(ascii=True)) as (pilot, screen):
        strips = await settled(pilot)
        styles = [segment.style for strip in strips for segment in strip if segment.style is not None]
        assert all(style.color is None and style.bgcolor is None for style in styles)
        text = await drawn(pilot, screen)
        assert text.isascii()
        assert "GPU work" in text


async def test_too_small_says_so(recorded: Path) -> None:
    async with replayed(recorded, (50, 12)) as (pilot, screen):
        assert "too small" in await drawn(pilot, screen)


async def test_every_action_has_a_method_and_keys_of_its_own(recorded: Path) -> None:
    for action in SCREENS["watch"]:
        *namespace, method = action.call.partition("(")[0].split(".")
        assert callable(getattr(StallscopeApp if namespace else WatchScreen, f"action_{method}"))
    keys = [key for action in SCREENS["watch"] for key in action.keys.split(",")]
    assert len(keys) == len(set(keys))


async def test_keys_select_explain_and_enlarge(recorded: Path) -> None:
    async with replayed(recorded, (120, 36)) as (pilot, screen):
        keys = [row.key for row in screen.query_one(WatchTable).view.rows]
        assert screen.state.selected == keys[0]
        await pilot.press("down")
        assert screen.state.selected == keys[1]
        await pilot.press("up", "up")
        lines = screen.query_one("#division", Panel).view.program_lines
        assert screen.state.line(screen.moment) == lines[-1]
        await pilot.press(*["up"] * len(lines))
        assert screen.state.selected == keys[-1]
        await pilot.press("w")
        assert screen.state.selected == keys[0]
        await pilot.press("down", "e")
        await until(pilot, lambda: is_open(pilot, TextDialog))
        dialog = pilot.app.screen
        assert isinstance(dialog, TextDialog)
        text = dialog_text(dialog)
        assert "took 5.00 ms in each of 30 calls, the last one because of GPU work in front of it: add" in text
        assert "What helps" in text
        assert "As code: `stallscope explain scalar-readback`." in text
        await pilot.press("escape", "O")
        assert "step 29 loss" in await drawn(pilot, screen)
        assert not screen.query_one(WatchTable).display
        await pilot.press("O", "question_mark")
        await until(pilot, lambda: is_open(pilot, Help))


@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_kernels_are_shown_in_place_of_the_slow_calls(recorded: Path, size: tuple[int, int]) -> None:
    async with replayed(recorded, size) as (pilot, screen):
        await pilot.press("K")
        assert_snapshot(f"watch-kernels-{size[0]}x{size[1]}", await drawn(pilot, screen))
        assert not screen.query_one("#slow").display
        await pilot.press("K")
        assert "slow calls" in await drawn(pilot, screen)
        assert not screen.query_one("#kernels").display


async def test_a_line_of_the_program_is_selected_and_explained(recorded: Path) -> None:
    async with replayed(recorded, (120, 36)) as (pilot, screen):
        await pilot.press("up")
        panel = screen.query_one("#division", Panel)
        shown = panel.view.drawn_lines(panel.size.height)[-1]
        assert "▸" in await drawn(pilot, screen)
        assert panel.view.selected == screen.state.selected == shown.key
        assert screen.query_one(WatchTable).view.selected is None
        await pilot.press("enter")
        await until(pilot, lambda: is_open(pilot, TextDialog))
        dialog = pilot.app.screen
        assert isinstance(dialog, TextDialog)
        text = dialog_text(dialog)
        assert place_text(shown.line, shown.process) in text.splitlines()[0]
        for title in ("What it costs", "What helps", "Call stack with most of it", "Its sequence"):
            assert title in text
        await pilot.press("enter")
        await until(pilot, lambda: is_open(pilot, WatchScreen))
        # A click selects another one, a second click explains it.
        first = panel.region.y + panel.size.height - len(panel.view.drawn_lines(panel.size.height))
        await pilot.click(offset=(10, first))
        assert screen.state.selected == panel.view.program_lines[0].key
        await pilot.click(offset=(10, first))
        await until(pilot, lambda: is_open(pilot, TextDialog))


async def test_a_click_selects_a_row_and_a_slow_call_is_explained(recorded: Path) -> None:
    async with replayed(recorded, (120, 36)) as (pilot, screen):
        table = screen.query_one(WatchTable)
        await pilot.click(WatchTable, offset=(10, 2))
        assert screen.state.selected == table.view.rows[1].key
        await pilot.click("#slow", offset=(30, 3))
        await until(pilot, lambda: is_open(pilot, TextDialog))


async def test_a_replay_is_paused_and_moved_in(recorded: Path) -> None:
    async with replayed(recorded, (120, 36)) as (pilot, screen):
        await pilot.press("p")
        assert "REPLAY, PAUSED 0:02/0:03" in await drawn(pilot, screen)
        shown = screen.state.utilization
        # It stands still: no value is new.
        await drawn(pilot, screen)
        assert screen.state.utilization == shown
        await pilot.press("left")
        assert "0:00/0:03" in await drawn(pilot, screen)
        await pilot.press("right")
        assert "ENDED" in await drawn(pilot, screen)


async def test_the_timeline_shows_the_slow_call_of_the_recording(recorded: Path) -> None:
    async with replayed(recorded, (160, 48)) as (pilot, screen):
        await pilot.press("g")
        await until(pilot, lambda: is_open(pilot, TimelineScreen))
        timeline = pilot.app.screen
        assert isinstance(timeline, TimelineScreen)
        timeline.draw()
        text = text_of(await settled(pilot))
        assert "TRACE 1/1" in text
        assert "cuMemcpyDtoHAsync_v2" in text
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is screen)


async def test_text_of_programs_and_of_their_output_is_never_shown_raw(recorded: Path) -> None:
    async with replayed(recorded, (160, 48)) as (pilot, screen):
        source = screen.source
        assert isinstance(source, WatchReplaySource)
        shown = source.recording.at(2)
        source._shown = RecordedWatch(poisoned(shown.moment), tuple(HOSTILE.split("\n")))
        text = await drawn(pilot, screen)
        assert not forbidden(text)
        assert "\ufffd" in text
        await pilot.press("e")
        await until(pilot, lambda: is_open(pilot, TextDialog))
        assert not forbidden(text_of(await settled(pilot)))


# A live program, without the injected library.


def no_nvml() -> object:
    raise AssertionError("no process uses a GPU")


@asynccontextmanager
async def live(script: str, folder: Path) -> AsyncIterator[tuple[Pilot[None], WatchScreen, PaneProgram]]:
    """The screen beside a Python program that runs ``script``; nothing of it is recorded."""
    program = PaneProgram([sys.executable, "-u", "-c", script], {"PATH": "/usr/bin:/bin"})
    folder.chmod(0o700)
    source = WatchedProgramSource(LiveProgram(folder, WatchedProgram("python")), program, ProgramGpu(no_nvml))
    app = StallscopeApp(lambda: source, Settings(), first="watch")
    try:
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: isinstance(app.screen, WatchScreen) and app.screen.moment is not None)
            screen = app.screen
            assert isinstance(screen, WatchScreen)
            yield pilot, screen, program
    finally:
        program.send(signal.SIGKILL)
        program.wait()
        source.close()


def row(pid: int, thread: int, function: str) -> WatchRow:
    """A row without calls."""
    return WatchRow(WatchRowKey(pid, 0, thread, function), "ranks", "ranks", Histogram.empty(), Histogram.empty(), 1, 0)


@pytest.mark.parametrize("width", [80, 90, 120])
def test_threads_of_several_processes_are_told_apart_by_their_numbers(width: int) -> None:
    functions = ("cuStreamSynchronize", "cuLaunchKernel")
    rows = [row(pid, pid + more, name) for pid in (15734, 15735) for more in (0, 1) for name in functions]
    table = WatchTable()
    table.view = CallTableView(rows)
    _, *drawn = ["".join(text for text, _ in line) for line in table.lines(width, 9)]
    assert len(drawn) == len(rows)
    for line, one in zip(drawn, rows, strict=True):
        assert f"ranks {one.key.pid}" in line
        assert one.key.function[:12] in line


def test_a_call_stack_begins_where_the_program_made_the_call() -> None:
    inside = [("", "/lib/stallscope-inject.so"), ("on_call", "/lib/libcupti.so.13"), ("cuMemAlloc_v2", "libcuda.so.1")]
    frames = tuple(
        StackFrame(FrameKind.NATIVE, function, file)
        for function, file in (*inside, ("step", "a.out"), ("main", "a.out"))
    )
    assert frames_text(CallStack(native=frames)) == "step in a.out\nmain in a.out"
    assert "libcupti.so.13" in frames_text(CallStack(native=frames[:3]))


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([row(1, 1, "cuLaunchKernel"), row(1, 1, "cuEventRecord")], ["ranks", "ranks"]),
        ([row(1, 1, "cuLaunchKernel"), row(1, 7, "cuLaunchKernel")], ["ranks 1", "ranks 7"]),
        ([row(1, 1, "cuLaunchKernel"), row(2, 2, "cuLaunchKernel")], ["ranks 1", "ranks 2"]),
    ],
)
def test_threads_of_one_name_are_told_apart_by_their_numbers(rows: list[WatchRow], labels: list[str]) -> None:
    assert list(thread_labels(rows).values()) == labels


async def test_a_program_without_calls_has_a_timeline_that_says_so(tmp_path: Path) -> None:
    async with live(WAITING, tmp_path) as (pilot, _, _):
        await pilot.press("e")
        assert "There is no call to explain yet." in [one.message for one in pilot.app._notifications]
        await pilot.press("g")
        await until(pilot, lambda: is_open(pilot, TimelineScreen))
        timeline = pilot.app.screen
        assert isinstance(timeline, TimelineScreen)
        timeline.draw()
        assert "No call and no GPU work was recorded in this time." in text_of(await settled(pilot))
        await pilot.press("w")
        assert "No call is in this span." in [one.message for one in pilot.app._notifications]


WAITING = "import time\nprint('ready')\nwhile True: time.sleep(0.01)"


async def test_the_output_and_the_end_of_a_live_program(tmp_path: Path) -> None:
    async with live("import sys; print('hello'); print('\\x1b[31mworld', file=sys.stderr); sys.exit(3)", tmp_path) as (
        pilot,
        screen,
        program,
    ):
        await until(pilot, lambda: program.exit_code == 3)
        await until(pilot, lambda: "world" in program.output.lines())
        text = await drawn(pilot, screen)
        assert "hello" in text
        assert "ENDED, exit code 3" in text
        # It has ended, so nothing is asked.
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running)


async def test_quitting_asks_while_the_program_runs(tmp_path: Path) -> None:
    async with live(WAITING, tmp_path) as (pilot, screen, program):
        await pilot.press("q")
        await until(pilot, lambda: is_open(pilot, Ask))
        await pilot.press("n")
        await until(pilot, lambda: pilot.app.screen is screen)
        assert program.running
        await pilot.press("ctrl+c")
        await until(pilot, lambda: is_open(pilot, Ask))
        await pilot.press("y")
        await until(pilot, lambda: not pilot.app.is_running)
        assert program.running


async def test_a_view_is_paused_and_resumed(tmp_path: Path) -> None:
    async with live(WAITING, tmp_path) as (pilot, screen, _):
        await pilot.press("p")
        frozen = screen.state.frozen
        assert frozen is not None
        assert "PAUSED at" in await drawn(pilot, screen)
        await until(pilot, lambda: screen.source.moment is not frozen)
        assert screen.moment is frozen
        await pilot.press("p")
        assert not screen.frozen


class ReadGpu(ProgramGpu):
    """A GPU with ``percent`` of utilization."""

    def __init__(self, percent: int) -> None:
        super().__init__(no_nvml)
        self.name, self.percent = "H200", percent

    def snapshot(self) -> TelemetrySnapshot:
        readings = dict.fromkeys(NAMES, TelemetryReading())
        readings["utilisation_percent"] = TelemetryReading(self.percent, 5, None)
        return TelemetrySnapshot("GPU-1", 7, "live", None, readings)


async def test_a_frozen_view_shows_the_values_of_the_gpu_at_its_moment(tmp_path: Path) -> None:
    async with live(WAITING, tmp_path) as (pilot, screen, _):
        source = screen.source
        assert isinstance(source, WatchedProgramSource)
        gpu = source.gpu = ReadGpu(41)
        assert "H200  41%" in await drawn(pilot, screen)
        await pilot.press("p")
        gpu.percent = 87
        frozen = await drawn(pilot, screen)
        assert "PAUSED at" in frozen
        assert "H200  41%" in frozen
        assert "87%" not in frozen
        await pilot.press("p")
        assert "H200  87%" in await drawn(pilot, screen)


async def test_it_freezes_on_a_stall_and_keeps_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live(WAITING, tmp_path) as (pilot, screen, _):
        source = screen.source
        assert isinstance(source, WatchedProgramSource)
        source.close()
        made = moments(2)
        watched, records = training(2)
        source.live.history.feed(watched, records, slow_batch(watched), made[1].at_ns)
        source.live.moment = made[0]
        await pilot.press("t")
        assert "freezes on the next stall" in await drawn(pilot, screen)
        source.live.moment = made[1]
        clock = [time.monotonic()]
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])
        screen.tick()
        assert not screen.frozen
        clock[0] += 2
        screen.tick()
        assert screen.state.frozen is made[1]
        assert "FROZEN on a stall" in screen.state.frozen_why
        # The slowest since the trigger was armed: a copy of the loader.
        assert screen.state.selected is not None
        assert screen.state.selected.thread == 101
        trace = source.kept_traces.trace(source.kept_traces.traces[0])
        assert trace is not None
        assert trace.trigger is not None
        assert trace.trigger.returned_ns - trace.trigger.began_ns == 40_000_000


def trial_of(screen: WatchScreen) -> BesideTrial:
    """A trial beside the program of a live screen."""
    source = screen.source
    assert isinstance(source, WatchedProgramSource)
    trial = source.live.trial = BesideTrial(lambda *_: FakeAggressors(time.monotonic_ns))
    return trial


async def test_a_digit_asks_before_an_aggressor_runs_beside_the_program(tmp_path: Path) -> None:
    async with live(WAITING, tmp_path) as (pilot, screen, _):
        trial = trial_of(screen)
        await pilot.press("2")
        await until(pilot, lambda: is_open(pilot, Ask))
        dialog = pilot.app.screen
        assert isinstance(dialog, Ask)
        question = dialog.question
        assert "h2d-pinned-large runs in a process of stallscope's on the GPU of python (pid " in question
        assert "all ranks of its job" in question
        await pilot.press("n")
        await until(pilot, lambda: not is_open(pilot, Ask))
        assert trial.chosen == ()
        await pilot.press("2")
        await until(pilot, lambda: is_open(pilot, Ask))
        await pilot.press("y")
        await until(pilot, lambda: trial.chosen == ("h2d-pinned-large",))
        # Asked once.
        await pilot.press("1", "9", "2")
        await until(pilot, lambda: trial.chosen == ("spin", "alloc-free"))
        shown = await drawn(pilot, screen)
        assert "waits for its steady state, and regular steps" in shown
        assert " 1 ■ spin" in shown
        assert "2 h2d-pinned-large, 3 d2h-pinned-large, 4 dram" in shown
        assert "x all off" in shown
        await pilot.press("x")
        await until(pilot, lambda: trial.chosen == ())
        assert "x all off" not in await drawn(pilot, screen)
        # No tenth aggressor.
        await pilot.press("0")
        assert trial.chosen == ()
        await pilot.press("b")
        assert "slow calls" in await drawn(pilot, screen)


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (100, 30), (160, 48)])
def test_the_panel_of_aggressors_fits(size: tuple[int, int]) -> None:
    width, height = size[0], 10
    begins = int64s(np.arange(0, 60_000_000_000, 14_000_000))
    turns = (("", 0, 10_000_000_000), ("spin", 10_000_000_000, 20_000_000_000), ("dram", 40_000_000_000, 2**62))
    present = BesideMoment(("spin", "dram"), "dram", "", "", begins, turns)
    view = BesideView(beside_result(), present, 60_000_000_000)
    lines = ["".join(text for text, _ in line) for line in beside_lines(view, width, height)]
    assert all(display_width(line) <= width for line in lines)
    assert "dram runs now" in lines[0]
    assert set(lines[1].split("60 s")[1].split()) >= {"1" * len(lines[1].split()[2])}
    assert lines[2].rstrip().endswith("14.0 ms")
    assert lines[3].startswith(" 1 ■ spin")
    assert "14.1 → 27.9 ms" in lines[3]
    assert "×1.98" in lines[3]
    assert "not known" in next(line for line in lines if "dram" in line and "■" in line)


def test_in_a_recording_the_panel_has_the_effects_alone() -> None:
    lines = ["".join(text for text, _ in line) for line in beside_lines(BesideView(beside_result()), 80, 8)]
    assert [line[:12] for line in lines[1:]] == [" 1 □ spin   ", " 2 □ h2d-pin"]
    assert "no aggressor ran beside it" in "".join(text for text, _ in beside_lines(BesideView(), 80, 8)[1])


async def test_effects_are_in_the_headlines_and_in_recordings(tmp_path: Path) -> None:
    path = tmp_path / "beside.rec"
    made = [replace(moment, findings=moment.findings.changed(beside=beside_result())) for moment in moments(4)]
    record(path, made)
    async with replayed(path, (100, 30)) as (pilot, screen):
        assert "Beside spin a step takes 14.1 → 27.9 ms, ×1.98 (1.95 to 2.01)." in await drawn(pilot, screen)
        await pilot.press("b")
        assert "×1.98" in (await drawn(pilot, screen)).split("beside the program")[1]
        await pilot.press("1")
        assert not is_open(pilot, Ask)
