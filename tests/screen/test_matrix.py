"""The matrix screen: what it looks like, what its keys do, and that it and the monitor leave each other alone.

``STALLSCOPE_REMAKE=1`` writes the expected screens anew; look at the difference before you commit it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.style import Style
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import Input, OptionList

from factories.matrix_examples import screen_example
from factories.recordings import STALL
from factories.screen import (
    QUICK,
    assert_snapshot,
    dialog_text,
    drawn_strips,
    is_open,
    monitor,
    quiet_is_known,
    settled,
    short_settling,
    text_of,
    until,
)
from factories.scripted_check import ScriptedCheck
from stallprobes.engine.backend import Options
from stallprobes.machine.gpus import Gpu, GpuProcess, Survey
from stallprobes.machine.libcuda_survey import DriverReport
from stallprobes.matrix import check_file
from stallprobes.matrix.check import plan
from stallprobes.matrix.check.plan import Plan
from stallprobes.matrix.matrix import Status
from stallprobes.recording.observation import CUDA, EngineCondition
from stallprobes.recording.recording import Recording
from stallscope.report.matrix_block import MatrixBlock
from stallscope.tui.actions import SCREENS, available, help_lines
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.dialog import Ask, Choose, Prompt
from stallscope.tui.common.help import Help
from stallscope.tui.common.lines import length, paragraph_lines
from stallscope.tui.matrix.block import SymbolBlock
from stallscope.tui.matrix.cell import CellScreen
from stallscope.tui.matrix.controller import CheckRun, MatrixController, MatrixState, suggestion
from stallscope.tui.matrix.cursor import KEYS, MatrixCursor
from stallscope.tui.matrix.header import HEAD_HEIGHT, head_view
from stallscope.tui.matrix.screen import MatrixScreen
from stallscope.tui.matrix.view_model import MatrixView
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.settings import Settings
from stallscope.tui.sources.live import LiveSource
from stallscope.tui.sources.replay import ReplaySource

pytestmark = pytest.mark.usefixtures("without_terminal_updates")


def screen(pilot: Pilot[None]) -> MatrixScreen:
    found = next(one for one in pilot.app.screen_stack if isinstance(one, MatrixScreen))
    assert isinstance(found, MatrixScreen)
    return found


def state(pilot: Pilot[None]) -> MatrixState:
    return screen(pilot).controller.state


@pytest.fixture(autouse=True)
def _no_saved_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No check that another test saved is shown."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def shown(pilot: Pilot[None]) -> str:
    shown_screen = pilot.app.screen
    if isinstance(shown_screen, MatrixScreen) and shown_screen.changed:
        # What the next frame shows.
        shown_screen.draw()
    return text_of(drawn_strips(pilot.app))


def key(action: str) -> str:
    """The first key of an action of the matrix."""
    return KEYS[action].split(",")[0]


async def until_shown(pilot: Pilot[None], words: str) -> None:
    await until(pilot, lambda: words in shown(pilot))


@asynccontextmanager
async def looking(
    given: MatrixState | None = None,
    size: tuple[int, int] = (120, 36),
    settings: Settings | None = None,
) -> AsyncIterator[Pilot[None]]:
    """The matrix screen over a recording: no engine, so that nothing is measured."""
    app = StallscopeApp(lambda: ReplaySource(Recording(STALL), clock=lambda: 0.0), settings or Settings())
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor))
        controller = MatrixController()
        controller.state = given or MatrixState()
        monitor(pilot).context.controllers[MatrixController] = controller
        await pilot.press("m")
        await until(pilot, lambda: is_open(pilot, MatrixScreen))
        await settled(pilot)
        yield pilot


@asynccontextmanager
async def live(check: ScriptedCheck | None, size: tuple[int, int] = (140, 44)) -> AsyncIterator[Pilot[None]]:
    """The matrix screen over a simulated GPU."""
    source = LiveSource(Options(profile="h200"))
    app = StallscopeApp(lambda: source, QUICK)
    try:
        with short_settling(), nullcontext() if check is None else check.replacing():
            async with app.run_test(size=size, notifications=True) as pilot:
                await until(pilot, lambda: is_open(pilot, Monitor))
                await until(pilot, lambda: quiet_is_known(monitor(pilot)))
                if check is not None:
                    check.engine_pid = lambda: source.engine_pid
                await pilot.press("m")
                await until(pilot, lambda: is_open(pilot, MatrixScreen))
                yield pilot
    finally:
        app.close()


async def begin(pilot: Pilot[None], which: str = "quick") -> None:
    """Choose how much, and wait until it measures."""
    await pilot.press("r")
    assert isinstance(pilot.app.screen, Choose)
    choices = pilot.app.screen.query_one(OptionList)
    choices.highlighted = choices.get_option_index(which)
    await pilot.press("enter")


async def answered(pilot: Pilot[None], key: str, path: str) -> None:
    """Press a key that asks for a file, and type its name."""
    await pilot.press(key)
    assert isinstance(pilot.app.screen, Prompt)
    pilot.app.screen.query_one(Input).value = path
    await pilot.press("enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, Prompt) and not state(pilot).busy)


ON_THE_TABLE = MatrixState(matrix_view=MatrixView.of(screen_example()), origin="new.json")


# What it looks like.

# Keys that open something over the matrix.
OPENING = ("enter", "question_mark")


async def strips(
    given: MatrixState, size: tuple[int, int], *keys: str, settings: Settings | None = None
) -> list[Strip]:
    async with looking(given, size, settings) as pilot:
        for key in keys:
            await pilot.press(key)
            if key in OPENING:
                await until(pilot, lambda: pilot.app.screen is not screen(pilot))
            else:
                # What it changes is drawn before another key opens something over it.
                await until(pilot, lambda: not screen(pilot).changed)
        if not keys:
            await until(pilot, lambda: not screen(pilot).changed)
        return await settled(pilot)


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_matrix(size: tuple[int, int]) -> None:
    found = await strips(ON_THE_TABLE, size)
    assert [strip.cell_length for strip in found] == [size[0]] * size[1]
    assert_snapshot(f"matrix-{size[0]}x{size[1]}", text_of(found))


@pytest.mark.parametrize(("name", "keys"), [("cell", ("enter",)), ("help", ("question_mark",))])
async def test_what_lies_over_it(name: str, keys: tuple[str, ...]) -> None:
    assert_snapshot(f"matrix-{name}-120x36", text_of(await strips(ON_THE_TABLE, (120, 36), *keys)))


async def test_in_ascii_it_is_the_same_in_other_letters() -> None:
    text = text_of(await strips(ON_THE_TABLE, (120, 36), settings=Settings(ascii=True)))
    assert text.isascii()
    # A middle dot would be the symbol of what was not reached.
    assert "[X]+ % .   STARVED" in text
    assert_snapshot("matrix-120x36-ascii", text)


async def test_without_colour_no_colour_is_left_and_every_cell_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    found = await strips(ON_THE_TABLE, (80, 24))
    styles: list[Style] = [segment.style for strip in found for segment in strip if segment.style is not None]
    assert all(style.color is None and style.bgcolor is None for style in styles)
    assert_snapshot("matrix-80x24", text_of(found))


async def test_sizes_up_to_very_large_have_no_line_too_long_or_short() -> None:
    for size in ((60, 18), (100, 30), (150, 40), (250, 70)):
        found = await strips(ON_THE_TABLE, size)
        assert [strip.cell_length for strip in found] == [size[0]] * size[1]
        assert "STARVED" in text_of(found)
    assert "too small" in text_of(await strips(ON_THE_TABLE, (40, 10)))


async def test_an_empty_table_says_what_can_be_done() -> None:
    async with looking() as pilot:
        assert f"{key('check_open')} opens a saved check" in shown(pilot)
        asking = ("check_open", "check_back", "help", "quit")
        for action in SCREENS["matrix"]:
            if action.name.startswith("check_") and action.name not in asking:
                await pilot.press(key(action.name))
                assert isinstance(pilot.app.screen, MatrixScreen)
        await pilot.press(key("check_save"))
        await until_shown(pilot, "no check yet")


def test_every_action_of_the_table_has_a_method_that_does_it() -> None:
    for action in SCREENS["matrix"]:
        *namespace, method = action.call.partition("(")[0].split(".")
        assert callable(getattr(StallscopeApp if namespace else MatrixScreen, f"action_{method}"))


async def test_palette_help_and_last_line_have_the_actions() -> None:
    async with looking(ON_THE_TABLE, (250, 60)) as pilot:
        titles = [command.title for command in pilot.app.get_system_commands(screen(pilot))]
        line = shown(pilot).splitlines()[-1]
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, Help)
        text = dialog_text(pilot.app.screen)
        for lines in help_lines(available(True, SCREENS["matrix"]), {}).values():
            assert all(words in text for _, words, _ in lines)
        for action in available(True, SCREENS["matrix"]):
            assert any(title.startswith(action.title) for title in titles)
            # Another view is on the first line.
            assert not action.rank or action.opens_screen or action.title in line


# Looking around.


async def test_it_opens_at_the_worst_cell_and_the_selected_cell_moves() -> None:
    async with looking(ON_THE_TABLE, (80, 24)) as pilot:
        seen = screen(pilot)
        assert seen.cursor.key == ("d2h-pinned", "host-alloc-free")
        await until_shown(pilot, "[X]")
        await pilot.press("down", "right", "right")
        assert seen.cursor.key == ("launch", "spin")
        await until_shown(pilot, "── C launch beside spin ─")
        await pilot.press("end")
        assert seen.cursor.key == ("d2d@secondary", "spin")
        await until_shown(pilot, "[▓]")
        await pilot.press("end")
        assert seen.cursor.key == ("d2d@secondary", "context-churn")
        await pilot.press("home")
        assert seen.cursor.key == ("d2h-pinned", "context-churn")
        await pilot.press("home")
        assert seen.cursor.key == ("d2h-pinned", "host-alloc-free")
        await pilot.press("pagedown")
        assert seen.cursor.key == ("d2h-pinned", "context-churn")
        await pilot.press("pageup", "left", "up")
        assert seen.cursor.key == ("d2h-pinned", "host-alloc-free")


async def test_a_click_chooses_a_cell_and_another_one_enters_it() -> None:
    async with looking(ON_THE_TABLE) as pilot:
        block = screen(pilot).query_one(SymbolBlock)
        where = (block.view.layout(*block.size).label + 3, 3)
        await pilot.click("#block", offset=where)
        assert screen(pilot).cursor.key == block.view.key(2, 1)
        await pilot.click("#block", offset=where)
        assert isinstance(pilot.app.screen, CellScreen)


async def test_a_click_on_the_last_line_does_what_the_key_does() -> None:
    async with looking(ON_THE_TABLE, (160, 44)) as pilot:
        titles = {action.name: action.title for action in SCREENS["matrix"]}
        line = shown(pilot).splitlines()[-1]
        await pilot.click("#keys", offset=(line.index(titles["check_save"]) + 2, 0))
        await until(pilot, lambda: is_open(pilot, Prompt))


async def test_the_wheel_scrolls_and_leaves_the_chosen_cell_alone() -> None:
    recorded = check_file.load(Path(__file__).parents[1] / "gpu" / "recorded" / "check-h200x2-1.json.gz")
    async with looking(MatrixState(MatrixView.of(recorded)), (60, 18)) as pilot:
        seen = screen(pilot)
        before = seen.cursor.key
        block = seen.query_one(SymbolBlock)
        await until(pilot, lambda: not seen.changed)
        for steps, sideways in ((1, True), (1, True), (-1, True), (99, False), (99, True)):
            seen.on_wheel_widget_turned(SymbolBlock.Turned(0, steps, sideways))
        assert seen.cursor.key == before
        last = block.view.layout(*block.size).clamped(block.view, (99, 99))
        assert last[0] > 0
        assert seen.cursor.first == last


async def test_rows_and_columns_are_the_worst_first() -> None:
    block = MatrixBlock.of(screen_example())
    async with looking(ON_THE_TABLE) as pilot:
        view = screen(pilot).query_one(SymbolBlock).view
        assert (view.columns, view.rows) == (block.victims, block.lines)
        await pilot.press("end", key("check_worst"))
        assert screen(pilot).cursor.key == ("d2h-pinned", "host-alloc-free")


async def test_a_cell_shows_its_histograms_its_sentence_and_what_helps() -> None:
    async with looking(ON_THE_TABLE) as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "Remedy")
        text = shown(pilot)
        for words in ("call", "wait", "░ baseline", "█ with aggressor", "STARVED", "Pinning pages is slow", "◆"):
            assert words in text
        await pilot.press("right")
        await until_shown(pilot, "d2d beside host-alloc-free")
        await pilot.press("escape")
        assert screen(pilot).cursor.key == ("d2d", "host-alloc-free")


async def test_a_cell_without_calls_says_why() -> None:
    async with looking(ON_THE_TABLE) as pilot:
        screen(pilot).cursor = MatrixCursor(key=("launch", "context-churn"))
        screen(pilot).draw()
        await pilot.press("enter")
        await until_shown(pilot, "did not run")


# Running.


async def test_a_check_runs_cell_by_cell_while_the_monitors_engine_rests() -> None:
    check = ScriptedCheck(pauses_after=4)
    async with live(check) as pilot:
        await pilot.press("r")
        await until_shown(pilot, "Order by seed 1")
        await pilot.press("escape")
        await begin(pilot)
        await until(pilot, lambda: state(pilot).run is not None and state(pilot).run.done > 2)  # type: ignore[union-attr]
        assert not check.engine_was_there
        # What is measured fills its place.
        for words in ("measuring", "s left", "order by seed 1", "quick check", "[·]- -", "- not reached"):
            await until_shown(pilot, words)
        check.go.set()
        await until(pilot, lambda: state(pilot).run is None)
        matrix_view = state(pilot).matrix_view
        assert matrix_view is not None
        assert not any(cell.status is Status.MISSING for cell in matrix_view.matrix.cells.values())
        assert state(pilot).unsaved
        assert check.options[0].paced is False
        await until_shown(pilot, "not saved")
        await pilot.press("escape")
        await until(pilot, lambda: is_open(pilot, Monitor))
        await until_shown(pilot, "The engine restarts")
        await until(pilot, lambda: monitor(pilot).state.engine_state == EngineCondition.READY)
        await until(pilot, lambda: quiet_is_known(monitor(pilot)))
        await pilot.press("m")
        await until(pilot, lambda: is_open(pilot, MatrixScreen))
        assert state(pilot).matrix_view is matrix_view


async def test_the_newest_stall_is_followed_until_an_arrow_is_pressed_and_at_the_end_the_worst_is_selected() -> None:
    check = ScriptedCheck(pauses_after=5)
    async with live(check) as pilot:
        await begin(pilot)
        await until(pilot, lambda: screen(pilot).cursor.key == ("d2d@secondary", "spin"))
        assert state(pilot).run is not None
        await until_shown(pilot, "d2d@secondary beside spin")
        await pilot.press("left")
        assert not screen(pilot).cursor.follows
        await until_shown(pilot, "launch beside spin")
        check.go.set()
        await until(pilot, lambda: state(pilot).run is None)
        await until_shown(pilot, "d2d@secondary beside spin")


async def test_without_a_check_the_monitors_engine_stays() -> None:
    async with live(ScriptedCheck()) as pilot:
        source = monitor(pilot).source
        assert isinstance(source, LiveSource)
        engine = source.engine_pid
        await pilot.press("escape")
        await until(pilot, lambda: is_open(pilot, Monitor))
        await pilot.pause(0.3)
        assert source.engine_pid == engine


async def test_stopped_it_keeps_what_was_measured() -> None:
    async with live(ScriptedCheck(pauses_after=5)) as pilot:
        await begin(pilot, "full")
        await until(pilot, lambda: state(pilot).run is not None and state(pilot).run.done > 3)  # type: ignore[union-attr]
        await pilot.press(*map(key, ("check_run", "check_open", "check_save")))
        assert isinstance(pilot.app.screen, MatrixScreen)
        await pilot.press("x")
        await until(pilot, lambda: state(pilot).run is None)
        matrix_view = state(pilot).matrix_view
        assert matrix_view is not None
        assert matrix_view.matrix.interrupted
        measured = sum(bool(cell.repeats) for cell in matrix_view.matrix.cells.values())
        assert 0 < measured < len(matrix_view.matrix.cells)
        await until_shown(pilot, f"Stopped: {measured} of {len(matrix_view.matrix.cells)} cells")
        assert "INTERRUPTED" in shown(pilot)


async def test_an_engine_that_is_lost_is_told_and_measured_cells_stay() -> None:
    async with live(ScriptedCheck(fails_after=6)) as pilot:
        await begin(pilot)
        await until(pilot, lambda: state(pilot).run is None and state(pilot).note)
        await until_shown(pilot, "killed by SIGKILL")
        assert "measured cells are kept" in shown(pilot)
        matrix_view = state(pilot).matrix_view
        assert matrix_view is not None
        assert matrix_view.matrix.interrupted
        assert any(cell.status is Status.OK for cell in matrix_view.matrix.cells.values())


async def test_a_check_that_fails_at_once_leaves_what_was_there() -> None:
    async with live(ScriptedCheck(fails_after=0)) as pilot:
        screen(pilot).controller.state = ON_THE_TABLE
        await begin(pilot)
        await until(pilot, lambda: state(pilot).run is None and state(pilot).failed)
        assert state(pilot).matrix_view is ON_THE_TABLE.matrix_view
        assert state(pilot).origin == "new.json"


async def test_a_mistake_in_the_program_is_told_and_nothing_waits_for_ever() -> None:
    class Broken(ScriptedCheck):
        def plan(self, quick: bool) -> Plan:
            raise ZeroDivisionError("made up")

    async with live(Broken()) as pilot:
        await begin(pilot)
        await until(pilot, lambda: state(pilot).run is None and state(pilot).note)
        assert "ZeroDivisionError: made up" in state(pilot).note


async def test_it_continues_in_other_views_and_after_it_the_monitors_engine_restarts() -> None:
    check = ScriptedCheck(pauses_after=9)
    async with live(check) as pilot:
        await begin(pilot, "full")
        await until(pilot, lambda: state(pilot).run is not None and state(pilot).run.done > 3)  # type: ignore[union-attr]
        await pilot.press("escape")
        await until(pilot, lambda: is_open(pilot, Monitor))
        controller = monitor(pilot).context.controllers[MatrixController]
        assert isinstance(controller, MatrixController)
        assert controller.state.run is not None
        await pilot.press("m")
        await until(pilot, lambda: is_open(pilot, MatrixScreen))
        # The newest stall is followed again.
        await until(pilot, lambda: screen(pilot).cursor.follows)
        await pilot.press(key("check_stop"), "escape")
        await until(pilot, lambda: is_open(pilot, Monitor) and controller.state.run is None)
        assert controller.state.matrix_view is not None
        await until(pilot, lambda: monitor(pilot).state.engine_state == EngineCondition.READY)


async def test_on_a_shared_gpu_it_asks_before_it_disturbs(monkeypatch: pytest.MonkeyPatch) -> None:
    check = ScriptedCheck()
    async with live(check) as pilot:
        monkeypatch.setattr(monitor(pilot).source, "disturbed_processes", lambda: ("python (pid 77)",))
        await begin(pilot)
        assert isinstance(pilot.app.screen, Ask)
        await pilot.press("n")
        await pilot.pause(0.2)
        assert state(pilot).run is None
        assert not check.options
        await begin(pilot)
        await pilot.press("y")
        await until(pilot, lambda: check.running.is_set())


async def test_keys_answer_and_leaving_does_not_wait_also_while_the_check_is_deaf() -> None:
    check = ScriptedCheck(deaf=True)
    async with live(check) as pilot:
        await begin(pilot)
        await until(pilot, lambda: check.running.is_set())
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, Help)
        await pilot.press("escape")
        await pilot.press("q")
        while pilot.app.is_running:
            await asyncio.sleep(0.01)
    # Nobody waited for the check: it is still deaf.
    assert not check.hears.is_set()
    check.hears.set()


async def test_in_a_replay_nothing_can_be_measured_and_files_can_be_opened(tmp_path: Path) -> None:
    check_file.save(screen_example(), tmp_path / "a.json")
    async with looking() as pilot:
        await pilot.press("r", "x")
        assert isinstance(pilot.app.screen, MatrixScreen)
        await answered(pilot, key("check_open"), str(tmp_path / "a.json"))
        assert state(pilot).matrix_view is not None


# Files.


async def test_the_name_of_a_folder_is_no_file_to_save_to(tmp_path: Path) -> None:
    async with looking(replace(ON_THE_TABLE, origin="", unsaved=True)) as pilot:
        await answered(pilot, key("check_save"), f"{tmp_path}/check/")
        await until_shown(pilot, "name a file in it")
        assert state(pilot).unsaved
    assert list(tmp_path.iterdir()) == []


async def test_saved_and_opened_it_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    async with looking(replace(ON_THE_TABLE, origin="", unsaved=True)) as pilot:
        assert suggestion(state(pilot)).startswith("check-")
        await answered(pilot, key("check_save"), str(file))
        assert state(pilot).origin == str(file)
        assert not state(pilot).unsaved
        await until_shown(pilot, "Saved to")
        await answered(pilot, key("check_open"), str(file))
        matrix_view = state(pilot).matrix_view
        assert matrix_view is not None
        assert matrix_view is not ON_THE_TABLE.matrix_view
        before = ON_THE_TABLE.matrix_view
        assert before is not None
        assert {key: cell.kind for key, cell in matrix_view.matrix.cells.items()} == {
            key: cell.kind for key, cell in before.matrix.cells.items()
        }


@pytest.mark.parametrize(("answer", "changed"), [("n", False), ("y", True)])
async def test_it_asks_before_it_overwrites(tmp_path: Path, answer: str, changed: bool) -> None:
    file = tmp_path / "a.json"
    file.write_text("something else")
    async with looking(ON_THE_TABLE) as pilot:
        await answered(pilot, key("check_save"), str(file))
        await until(pilot, lambda: is_open(pilot, Ask))
        await until_shown(pilot, "Overwrite")
        await pilot.press(answer)
        if changed:
            await until(pilot, lambda: file.read_text() != "something else")
        await until(pilot, lambda: not state(pilot).busy)
    assert (file.read_text() != "something else") is changed


async def test_escape_at_the_prompt_does_nothing(tmp_path: Path) -> None:
    async with looking(ON_THE_TABLE) as pilot:
        for name in ("check_open", "check_save"):
            await pilot.press(key(name))
            assert isinstance(pilot.app.screen, Prompt)
            await pilot.press("escape")
        await pilot.press(key("check_open"), "enter")
        assert state(pilot) is ON_THE_TABLE
        await pilot.press(key("check_open"), *"~/q.json")
        assert isinstance(pilot.app.screen, Prompt)
        assert pilot.app.screen.query_one(Input).value == "~/q.json"


async def test_a_file_that_is_no_check_is_told_in_a_sentence_and_nothing_changes(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    told: dict[str | None, str] = {
        None: "cannot be read",
        "": "is empty",
        "{}": "is not a check",
        '{"schema": "stallscope.check/3': "cut off",
    }
    async with looking(ON_THE_TABLE, (200, 40)) as pilot:
        for content, words in told.items():
            if content is not None:
                file.write_text(content)
            await answered(pilot, key("check_open"), str(file))
            assert words in state(pilot).note
            assert state(pilot).failed
            await until_shown(pilot, words)
            assert state(pilot).matrix_view is ON_THE_TABLE.matrix_view


async def test_a_folder_that_is_not_there_is_told_when_saving(tmp_path: Path) -> None:
    async with looking(ON_THE_TABLE) as pilot:
        await answered(pilot, key("check_save"), str(tmp_path / "none" / "a.json"))
        assert state(pilot).failed
        assert "none" in state(pilot).note


# The whole of it, on a simulated GPU.


async def test_a_real_check_of_the_simulated_gpu_finds_its_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(plan.plan, ("launch", "d2d@secondary"), ("spin", "alloc-async"))
    monkeypatch.setattr(plan, "plan", small)
    async with live(None) as pilot:
        await begin(pilot)
        await until(pilot, lambda: state(pilot).run is None and state(pilot).matrix_view is not None)
        matrix_view = state(pilot).matrix_view
        assert matrix_view is not None
        assert not state(pilot).failed
        assert matrix_view.matrix.simulated
        assert matrix_view.worst == ("d2d@secondary", "spin")
        await until_shown(pilot, "SIMULATED")


# Panels as functions.


def test_words_that_do_not_fit_end_with_an_ellipsis() -> None:
    lines = paragraph_lines((("STALLED", "bad", "word " * 60),), 40, 3)
    assert len(lines) == 3
    assert "".join(part for part, _ in lines[-1]).endswith("…")
    assert all(length(line) <= 40 for line in lines)


@pytest.mark.parametrize("width", [60, 80, 120, 250])
def test_the_lines_above_say_how_far_it_is(width: int) -> None:
    run = CheckRun(began_s=100.0, done=30, total=60, left_s=12.4, text="repeat 1 of 4 · spin kernel")
    view = head_view(replace(ON_THE_TABLE, run=run), 165.5)
    assert "● measuring 1:05" in "".join(text for _, part in view.right for text, _ in part)
    text = "\n".join("".join(part for part, _ in line) for line in view.below(width, HEAD_HEIGHT))
    for words in ("50%", "12 s left", "30 of 60"):
        assert words in text
    assert all(length(line) <= width for line in view.below(width, HEAD_HEIGHT))


def test_a_gpu_that_is_lent_is_free_and_comes_with_what_is_known_of_it() -> None:
    source = LiveSource(Options(profile="h200", seed=7))
    source.start()
    try:
        ground = source.release_gpu().result(20)
        assert source.engine_pid is None
        assert ground.backend != CUDA
        assert ground.options.gpu is None
        assert ground.options == Options(profile="h200", seed=7)
    finally:
        source.close()


@pytest.mark.parametrize(
    ("processes", "count", "lent"),
    [((), 2, "GPU-aaaa,GPU-bbbb"), ((), 1, "GPU-aaaa"), ((GpuProcess(7, "train", None),), 2, "GPU-aaaa")],
)
def test_a_second_gpu_comes_along_only_when_it_is_wanted_and_nobody_computes_there(
    processes: tuple[GpuProcess, ...], count: int, lent: str
) -> None:
    gpus = tuple(
        Gpu(uuid, pci, "Made-up GPU", nvml_index=n, cuda_index=n, processes=there)
        for n, (uuid, pci, there) in enumerate(
            (("GPU-aaaa", "0000:01:00.0", (GpuProcess(8, "other", None),)), ("GPU-bbbb", "0000:02:00.0", processes))
        )
    )
    source = LiveSource(Options(), survey=lambda: Survey(gpus, DriverReport(cuda_version=13000)))
    source.start()
    try:
        ground = source.release_gpu(count).result(40)
        assert ground.backend == CUDA
        assert ground.options.gpu == lent
        assert ground.survey is not None
        assert "Made-up GPU" in ground.label
    finally:
        source.close()


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_the_check_that_was_saved_last_is_shown_and_marked(tmp_path: Path, size: tuple[int, int]) -> None:
    file = tmp_path / "last.json"
    check_file.save(screen_example(), file)
    check_file.remember(file)
    async with looking(size=size) as pilot:
        await until_shown(pilot, "SAVED CHECK")
        # On one line, so that the file is named beside it.
        assert "The last saved check, not measured now." in shown(pilot)
        assert str(file.parent)[:30] in shown(pilot)
        assert pilot.app.screen.controller.state.origin == str(file)  # type: ignore[attr-defined]
    file.unlink()
    async with looking(size=size) as pilot:
        await until_shown(pilot, "opens a saved check")
