"""Keys that arrive together: each goes to the dialog, the list or the line that the one before it has opened.

Where a screen reads what its keys act on, they wait for that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from textual.app import App
from textual.events import Key, MouseDown, MouseUp
from textual.pilot import Pilot

from factories.matrix_examples import screen_example
from factories.screen import QUICK, SharedMonitor, is_open, monitor, running, until
from factories.terminal import OpenTerminal
from factories.waiting import LIMIT_S
from stallprobes.engine.backend import Options
from stallprobes.matrix import check_file
from stallprobes.patterns.remedy_code import CodeLanguage
from stallscope.tui import key_order
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.dialog import Ask, Choose, Dialog, Prompt
from stallscope.tui.common.explain import Explain
from stallscope.tui.common.help import Help
from stallscope.tui.common.printable_text import PrintableInput
from stallscope.tui.matrix import controller
from stallscope.tui.matrix.cell import CellScreen
from stallscope.tui.matrix.screen import MatrixScreen
from stallscope.tui.matrix.view_model import MatrixView
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.patterns.screen import PatternsScreen
from stallscope.tui.sources.live import LiveSource

# One event loop for all tests, since the monitor runs in it.
pytestmark = pytest.mark.usefixtures("without_terminal_updates")
module = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[SharedMonitor]:
    """The monitor of this module."""
    held = SharedMonitor()
    yield held
    await held.end()


def send(pilot: Pilot[None], *keys: str) -> None:
    """Send ``keys`` as a terminal does what was typed ahead."""
    for key in keys:
        event = Key(key, key if len(key) == 1 else None)
        event.set_sender(pilot.app)
        pilot.app.post_message(event)


async def burst(pilot: Pilot[None], *keys: str) -> None:
    """Send ``keys``, and wait until all are handled."""
    send(pilot, *keys)
    keys_of_app = pilot.app.keys  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    await until(
        pilot, lambda: not len(keys_of_app) and keys_of_app._target is None and not pilot.app.message_queue_size
    )
    await pilot.pause()


@module
async def test_letters_behind_the_keys_of_a_search_are_its_words(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        before = running(pilot)
        await burst(pilot, "o", "slash", *"spin", "2")
        assert isinstance(pilot.app.screen, PatternsScreen)
        assert pilot.app.screen.query_one(PrintableInput).value == "spin2"
        await burst(pilot, "escape", "escape")
        assert isinstance(pilot.app.screen, Monitor)
        assert running(pilot) == before


@module
async def test_arrows_and_enter_behind_the_key_of_a_list_select_in_it(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        chosen: list[str | None] = []
        pilot.app.push_screen(Choose("title", [(name, name) for name in "abcd"]), chosen.append)
        await burst(pilot, "down", "down", "enter")
        await until(pilot, lambda: chosen)
        assert chosen == ["c"]


@module
async def test_an_answer_behind_the_key_of_a_question_is_its_answer(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        answers: list[bool | None] = []
        screen = monitor(pilot)

        def ask() -> None:
            pilot.app.push_screen(Ask("Disturb them?"), answers.append)

        screen.action_select_worst = ask  # type: ignore[attr-defined]
        screen._bindings.bind("f12", "select_worst")
        await burst(pilot, "f12", "y", "up")
        assert answers == [True]


@module
async def test_keys_behind_the_one_that_closes_a_dialog_go_to_the_screen_below(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await burst(pilot, "e", "l", "escape", "question_mark")
        assert isinstance(pilot.app.screen, Help)
        await burst(pilot, "escape", "e", "escape", "up")
        assert isinstance(pilot.app.screen, Monitor)
        assert monitor(pilot).state.focus_name == "host-alloc-free"


@module
async def test_each_key_behind_that_of_the_explanation_changes_its_language(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await burst(pilot, "b", "e")
        first = pilot.app.screen
        assert isinstance(first, Explain)
        await burst(pilot, "escape", "e", *["l"] * len(CodeLanguage))
        assert isinstance(pilot.app.screen, Explain)
        await burst(pilot, "q")
        assert isinstance(pilot.app.screen, Monitor)


@module
async def test_keys_behind_that_of_the_matrix_go_to_the_matrix(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await burst(pilot, "m", "question_mark")
        assert isinstance(pilot.app.screen, Help)
        assert isinstance(pilot.app.screen_stack[-2], MatrixScreen)
        await burst(pilot, "escape", "escape", "e")
        assert isinstance(pilot.app.screen, Explain)
        assert isinstance(pilot.app.screen_stack[-2], Monitor)
        await burst(pilot, "escape")


@module
async def test_a_widget_that_gives_no_answer_holds_no_key_up(shared: SharedMonitor) -> None:
    """Such as one that is removed, or whose action takes its time."""
    async with shared.as_at_first() as pilot:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pilot.app.screen, "post_message", lambda _: False)
            await burst(pilot, "e")
        await burst(pilot, "question_mark")
        assert isinstance(pilot.app.screen, Help | Dialog)
        await burst(pilot, "escape")


def test_a_pasted_burst_of_keys_in_a_terminal_goes_to_the_dialog(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200")
    screen.wait_for("launch")
    screen.wait_for("● live")
    # One write: the key that opens the list, that of its search, and words in which keys of the monitor are.
    since = screen.press("o/register xq")
    screen.wait_for("register xq", since=since)
    assert screen.alive
    since = screen.press("\x7f\x7f\x7f\r")
    screen.wait_for("register", since=since)
    assert screen.quit() == 0


@module
async def test_a_key_behind_a_click_that_closes_a_dialog_goes_to_the_screen_below(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await burst(pilot, "question_mark")
        assert isinstance(pilot.app.screen, Help)
        for kind in (MouseDown, MouseUp):
            event = kind(None, 0, 0, 0, 0, 1, False, False, False)
            event.set_sender(pilot.app)
            pilot.app.post_message(event)
        await burst(pilot, "o")
        assert isinstance(pilot.app.screen, PatternsScreen)
        await burst(pilot, "escape")


@contextmanager
def saved_check_read(released: threading.Event) -> Iterator[None]:
    """Within it, a matrix without a check finds a saved one, whose reading ends once it is ``released``."""

    def read() -> tuple[MatrixView, str]:
        released.wait(LIMIT_S)
        return MatrixView.of(screen_example()), "a.json"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(controller, "saved_check", read)
        try:
            yield
        finally:
            released.set()


def without_check(pilot: Pilot[None]) -> None:
    """Have the matrix begin anew."""
    monitor(pilot).context.controllers.pop(controller.MatrixController, None)


@module
async def test_a_key_behind_that_of_the_matrix_waits_for_the_saved_check(shared: SharedMonitor) -> None:
    released = threading.Event()
    async with shared.as_at_first() as pilot:
        without_check(pilot)
        with saved_check_read(released):
            send(pilot, "m", "S")
            await until(pilot, lambda: isinstance(pilot.app.screen, MatrixScreen))
            await until(pilot, lambda: len(pilot.app.keys))  # type: ignore[attr-defined]
            assert isinstance(pilot.app.screen, MatrixScreen)
            released.set()
            await until(pilot, lambda: isinstance(pilot.app.screen, Prompt))
        await burst(pilot, "escape", "enter")
        assert isinstance(pilot.app.screen, CellScreen)
        await burst(pilot, "escape", "escape")
        without_check(pilot)


@module
async def test_help_and_the_way_back_wait_for_no_check_and_no_key_waits_for_ever(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        without_check(pilot)
        with saved_check_read(threading.Event()):
            await burst(pilot, "m", "question_mark")
            assert isinstance(pilot.app.screen, Help)
            await burst(pilot, "escape")
            left: list[str] = []
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(pilot.app, "action_quit", lambda: left.append("ctrl+c"))
                await burst(pilot, "ctrl+c", "escape")
            assert left
            assert isinstance(pilot.app.screen, Monitor)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(key_order, "_LONGEST_HELD_S", 0.05)
                await burst(pilot, "m", "w", "down", "question_mark")
                assert isinstance(pilot.app.screen, Help)
            await burst(pilot, "escape", "escape")
            without_check(pilot)


@contextmanager
def loading_app(released: threading.Event) -> Iterator[StallscopeApp]:
    """An app whose first screen is not there before ``released`` is set."""
    source = LiveSource(Options(profile="h200"))

    def created() -> LiveSource:
        assert released.wait(LIMIT_S)
        return source

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_order, "_LONGEST_HELD_S", LIMIT_S)
        yield StallscopeApp(created, QUICK)
    source.close()


async def test_keys_wait_for_the_first_screen_and_for_the_probes_that_they_switch() -> None:
    released = threading.Event()
    with loading_app(released) as app:
        async with app.run_test() as pilot:
            send(pilot, "2", "x", "1", "question_mark")
            await until(pilot, lambda: len(app.keys))
            assert not is_open(pilot, Monitor)
            released.set()
            await until(pilot, lambda: isinstance(app.screen, Help))
            await burst(pilot, "escape")
            await until(pilot, lambda: "spin" in running(pilot))
            assert "d2h-pageable-fresh" not in running(pilot)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_a_key_that_quits_waits_for_no_screen(key: str) -> None:
    released = threading.Event()
    with loading_app(released) as app:
        async with app.run_test() as pilot:
            send(pilot, key)
            await until(pilot, lambda: app._exit)
            assert not len(app.keys)
            released.set()


@pytest.mark.parametrize(
    ("keys", "words"),
    [("m\r", "Measurement"), ("mS", "Save the check"), ("grp", "FROZEN paused"), ("P\x1b[B?", "attach")],
)
def test_a_key_behind_one_that_opens_a_screen_takes_effect(
    terminal: OpenTerminal, tmp_path: Path, keys: str, words: str
) -> None:
    file = tmp_path / "last.json"
    check_file.save(screen_example(), file)
    state = tmp_path / "stallscope"
    state.mkdir()
    (state / "last-check.txt").write_text(f"{file}\n")
    screen = terminal("--sim", "h200", XDG_STATE_HOME=str(tmp_path))
    screen.wait_for("● live")
    # One write.
    since = screen.press(keys)
    screen.wait_for(words, since=since)
    assert screen.quit() == 0


@module
async def test_keys_behind_the_end_of_the_screen_go_nowhere() -> None:
    handled: list[key_order.Ordered] = []

    async def handle(event: key_order.Ordered) -> None:
        handled.append(event)

    # An app that has no screen any more.
    order = key_order.KeyOrder(App[None](), handle)
    await order.put(Key("w", "w"))
    assert (handled, len(order)) == ([], 0)
