"""Keys and clicks that leave the set of probes as it is, on one live monitor for all tests of this module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import chain
from pathlib import Path

import pytest
import pytest_asyncio
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import OptionList

from factories.screen import SharedMonitor, dialog_text, monitor, running, until
from stallprobes.model import Role
from stallprobes.patterns.remedy_code import CodeLanguage
from stallscope.tui.actions import SCREENS, available, help_lines
from stallscope.tui.app import THEMES
from stallscope.tui.common.bars import KeyBar
from stallscope.tui.common.dialog import Ask, Choose
from stallscope.tui.common.explain import Explain
from stallscope.tui.common.help import Help
from stallscope.tui.common.printable_text import PrintableInput, PrintableStatic
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.patterns.screen import PatternsScreen

# One event loop for all tests, since the monitor runs in it.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("without_terminal_updates")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[SharedMonitor]:
    """The monitor of this module."""
    held = SharedMonitor()
    yield held
    await held.end()


async def test_keys_of_aggressors_switch_them_and_one_key_switches_all_off(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("1", "2")
        await until(pilot, lambda: {"spin", "d2h-pageable-fresh"} <= running(pilot))
        await pilot.press("x")
        await until(pilot, lambda: not running(pilot) & {"spin", "d2h-pageable-fresh"})
        assert {"launch", "host"} <= running(pilot)


async def test_one_key_switches_all_aggressors_on(shared: SharedMonitor) -> None:
    """A pattern may have 16 of them, and only ten have a key."""
    async with shared.as_at_first() as pilot:
        found = monitor(pilot).state.probe_set
        assert found is not None
        aggressors = {probe.name for probe in found.probes if probe.role is Role.AGGRESSOR}
        assert len(aggressors) > 2
        await pilot.press("X")
        await until(pilot, lambda: aggressors <= running(pilot))
        await pilot.press("x")
        await until(pilot, lambda: not running(pilot) & aggressors)


async def test_a_victims_key_brings_it_into_focus_and_then_switches_it(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("b")
        assert monitor(pilot).state.focus_name == "d2d@secondary"
        assert "d2d@secondary" in running(pilot)
        await pilot.press("b")
        await until(pilot, lambda: "d2d@secondary" not in running(pilot))
        await pilot.press("b")
        await until(pilot, lambda: "d2d@secondary" in running(pilot))


async def test_the_focus_moves_and_space_switches_it(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        assert monitor(pilot).state.focus_name == "launch"
        await pilot.press("up")
        assert monitor(pilot).state.focus_name == "host-alloc-free"
        await pilot.press("space")
        await until(pilot, lambda: "host-alloc-free" in running(pilot))
        await pilot.press("down", "down")
        assert monitor(pilot).state.focus_name == "d2d@secondary"


async def test_the_worst_victim_is_found(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("1")
        analyzer = monitor(pilot).analyzer
        assert analyzer is not None
        await until(pilot, lambda: analyzer.worst == "d2d@secondary")
        await pilot.press("w")
        assert monitor(pilot).state.focus_name == "d2d@secondary"


async def test_escape_closes_what_lies_over_the_monitor(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        for key, screen in (("o", PatternsScreen), ("e", Explain), ("question_mark", Help)):
            await pilot.press(key)
            assert isinstance(pilot.app.screen, screen)
            await pilot.press("escape")
            assert isinstance(pilot.app.screen, Monitor)


def offered(listed: OptionList) -> list[str]:
    """The ids of the lines of the picker that can be selected."""
    return [option.id for option in listed.options if option.id is not None]


async def test_the_key_of_a_probe_that_is_not_there_says_so(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        pilot.app.clear_notifications()
        for key in ("9", "z"):
            await pilot.press(key)
            assert f"No probe has the key {key} here." in [one.message for one in pilot.app._notifications]


async def test_the_picker_searches_names_and_titles(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("o")
        listed = pilot.app.screen.query_one(OptionList)
        all_lines = offered(listed)
        await pilot.press("slash", *"profiler", "space", *"remedy")
        await pilot.pause()
        assert offered(listed) == ["profiler-on/detached"]
        await pilot.press(*["backspace"] * len(" remedy"))
        await pilot.pause()
        found = offered(listed)
        # Of the titles too, and a probe of no context once.
        assert "profiler-on/never" in found
        assert [one for one in found if one.startswith("probe/profiler-ended")] == ["probe/profiler-ended"]
        assert listed.highlighted == 1
        await pilot.press("down")
        assert listed.highlighted == 2
        await pilot.press(*"xyz")
        await pilot.pause()
        assert offered(listed) == []
        assert str(pilot.app.screen.query_one("#details", PrintableStatic).content) == ""
        await pilot.press("enter")
        assert isinstance(pilot.app.screen, PatternsScreen)
        await pilot.press("escape")
        await pilot.pause()
        assert offered(listed) == all_lines
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, Monitor)


async def test_keys_that_arrive_together_edit_a_text_in_their_order(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("o", "slash")
        typed = pilot.app.screen.query_one(PrintableInput)
        for key in ("a", "b", "backspace", "c", "left", "d", "home", "e", "delete", "end", "f"):
            typed.post_message(Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: typed.value.endswith("f"))
        await pilot.pause()
        assert typed.value == "edcf"


async def test_explain_tells_why_and_what_helps_and_where_it_is_known_from(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("b", "e")
        assert isinstance(pilot.app.screen, Explain)
        text = dialog_text(pilot.app.screen)
        for words in ("What it does", "time-slice", "Remedy", "Source", "secondary-context-d2d"):
            assert words in text


async def test_a_key_shows_the_remedies_in_the_next_language(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("b", "e")
        headings = []
        for _ in CodeLanguage:
            text = str(pilot.app.screen.query_one("#text", PrintableStatic).content)
            headings.append([language for language in CodeLanguage if f"Remedy in {language.label} " in text])
            await pilot.press("l")
        assert headings == [[language] for language in CodeLanguage]
        await pilot.press("l", "escape", "e")
        # The language that was chosen is that of the next explanation.
        assert "Remedy in PyTorch (secondary-context-d2d)" in dialog_text(explanation_of(pilot))
        await pilot.press("l", "l")
        assert explanation_of(pilot).language is CodeLanguage.CUDA


def explanation_of(pilot: Pilot[None]) -> Explain:
    assert isinstance(pilot.app.screen, Explain)
    return pilot.app.screen


async def test_help_has_every_action(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, Help)
        text = dialog_text(pilot.app.screen)
        for _, words, _ in chain.from_iterable(help_lines(monitor(pilot).actions, {}).values()):
            assert words in text


async def test_the_view_stands_still_and_the_probes_go_on(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("p")
        # The view stands still from the frame that follows the key.
        await until(pilot, lambda: not monitor(pilot).changed)
        monitor_view = monitor(pilot).monitor_view
        assert monitor_view is not None
        assert monitor(pilot).state.observation is not None
        before = monitor(pilot).state.observation.snapshot  # type: ignore[union-attr]
        assert before is not None
        at_first = before.probes["launch"].iterations
        await until(pilot, lambda: monitor(pilot).state.observation.snapshot.probes["launch"].iterations > at_first)  # type: ignore[union-attr]
        now = monitor(pilot).monitor_view
        assert now is not None
        assert now.rows == monitor_view.rows
        assert "PAUSED" in monitor(pilot).state.frozen_why
        await pilot.press("p")
        assert monitor(pilot).state.frozen is None


async def test_the_report_goes_to_the_clipboard_and_the_screen_to_a_file(
    shared: SharedMonitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with shared.as_at_first() as pilot:
        await pilot.press("y")
        assert "SIMULATED" in pilot.app.clipboard
        assert "launch " in pilot.app.clipboard
        await pilot.press("s")
        (file,) = tmp_path.glob("stallscope-*.svg")
        assert "SIMULATED" in file.read_text(encoding="utf-8")


async def test_themes_change_light_and_dark(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        before = pilot.app.theme
        await pilot.press("T")
        await until(pilot, lambda: pilot.app.theme != before)


async def test_many_presses_of_the_theme_key_style_the_screen_once(
    shared: SharedMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared.as_at_first() as pilot:
        app = pilot.app
        frames: list[Callable[[], None]] = []
        styled: list[str] = []
        watch = app._watch_theme

        def at_next_frame(_delay_s: float, callback: Callable[[], None]) -> None:
            frames.append(callback)

        def style(theme: str) -> None:
            styled.append(theme)
            watch(theme)

        with monkeypatch.context() as patched:
            patched.setattr(app, "set_timer", at_next_frame)
            patched.setattr(app, "_watch_theme", style)
            place = THEMES.index(app.theme)
            await pilot.press(*"TTTTT")
            assert (len(frames), styled) == (1, [])
            frames[0]()
            await until(pilot, lambda: styled)
            await pilot.press("T")
        frames.pop()()
        assert styled == [THEMES[(place + 5) % len(THEMES)]]
        assert len(frames) == 1


async def test_there_is_no_gpu_to_choose_on_a_simulated_one(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("u")
        assert isinstance(pilot.app.screen, Monitor)


async def test_a_gpu_is_chosen_from_a_list(shared: SharedMonitor) -> None:
    answers: list[str | None] = []
    async with shared.as_at_first() as pilot:
        pilot.app.push_screen(Choose("Which GPU?", [("GPU-a", "one"), ("GPU-b", "two")]), answers.append)
        await pilot.pause()
        await pilot.press("down", "enter")
        assert answers == ["GPU-b"]


@pytest.mark.parametrize(("key", "answer"), [("y", True), ("n", False), ("enter", False), ("escape", None)])
async def test_only_yes_is_yes_to_disturbing_others(shared: SharedMonitor, key: str, answer: bool | None) -> None:
    answers: list[bool | None] = []
    async with shared.as_at_first() as pilot:
        pilot.app.push_screen(Ask("Disturb them?"), answers.append)
        await pilot.pause()
        await pilot.press(key)
        assert answers == [answer]


async def test_a_click_focuses_and_on_the_box_switches(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.click("#lists", offset=(20, 3))
        assert monitor(pilot).state.focus_name == "d2d@secondary"
        await pilot.click("#lists", offset=(2, 0))
        await until(pilot, lambda: "spin" in running(pilot))


async def test_a_click_on_the_last_line_does_what_its_key_does(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        line = monitor(pilot).query_one(KeyBar)
        await until(pilot, lambda: line.targets)
        for words, screen in (("help", Help), ("explain", Explain)):
            (begin,) = (begin for begin, _, action in line.targets[0] if action == words)
            await pilot.click("#keys", offset=(begin, 0))
            assert isinstance(pilot.app.screen, screen)
            # Beside the box.
            await pilot.click(offset=(0, 0))
            assert isinstance(pilot.app.screen, Monitor)
        await pilot.click("#keys", offset=(0, 0))
        assert isinstance(pilot.app.screen, Monitor)


async def test_the_palette_offers_the_actions_by_name(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        titles = [command.title for command in pilot.app.get_system_commands(monitor(pilot))]
        for action in available(False, SCREENS["monitor"]):
            assert any(title.startswith(action.title) for title in titles)
