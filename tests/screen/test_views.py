"""The views of the first line: tab goes to the next one, a click opens one, and each says what it does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from textual.pilot import Pilot

from factories.screen import SharedMonitor, drawn_strips, is_open, monitor, running, text_of, until
from stallscope.tui.common.bars import ScreenHead
from stallscope.tui.common.help import Help
from stallscope.tui.matrix.screen import MatrixScreen
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.patterns.screen import PatternsScreen
from stallscope.tui.processes.screen import ProcessesScreen
from stallscope.tui.timeline.screen import TimelineScreen

ORDER = (Monitor, PatternsScreen, MatrixScreen, TimelineScreen, ProcessesScreen)
module = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[SharedMonitor]:
    """One monitor for all tests of this module."""
    found = SharedMonitor()
    yield found
    await found.end()


def said(pilot: Pilot[None]) -> list[str]:
    """The messages that are shown."""
    return [one.message for one in pilot.app._notifications]


def shown(pilot: Pilot[None]) -> str:
    """The text of the screen."""
    return text_of(drawn_strips(pilot.app))


@module
@pytest.mark.parametrize(("key", "order"), [("tab", ORDER[1:]), ("shift+tab", ORDER[:0:-1])])
async def test_tab_goes_through_all_views_and_returns(
    shared: SharedMonitor, key: str, order: tuple[type[object], ...]
) -> None:
    async with shared.as_at_first() as pilot:
        engine = monitor(pilot).live.engine_pid  # type: ignore[union-attr]
        for kind in (*order, Monitor):
            await pilot.press(key)
            await until(pilot, lambda kind=kind: is_open(pilot, kind))  # type: ignore[misc]
        # A view only looks: nothing was started, and one screen is left.
        assert len(pilot.app.screen_stack) == 2
        live = monitor(pilot).live
        assert live is not None
        assert not live.timeline.wanted
        assert live.engine_pid == engine


@module
async def test_each_view_has_a_help(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        for kind in (*ORDER[1:], Monitor):
            await pilot.press("tab")
            await until(pilot, lambda kind=kind: is_open(pilot, kind))  # type: ignore[misc]
            await pilot.press("question_mark")
            await until(pilot, lambda: is_open(pilot, Help))
            await pilot.press("escape")
            await until(pilot, lambda kind=kind: is_open(pilot, kind))  # type: ignore[misc]


@module
async def test_a_view_in_a_terminal_that_becomes_too_small_says_so_once(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        for kind in (*ORDER[1:], Monitor):
            await pilot.press("tab")
            await until(pilot, lambda kind=kind: is_open(pilot, kind))  # type: ignore[misc]
            for columns, rows, notices in ((160, 48, 0), (40, 10, 1), (120, 36, 0)):
                await pilot.resize_terminal(columns, rows)
                await until(pilot, lambda notices=notices: shown(pilot).count("too small") == notices)  # type: ignore[misc]
                assert ("ctrl+q quits" in shown(pilot)) == bool(notices)


@module
async def test_a_click_opens_a_view_and_the_shown_one_is_marked(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        for place, name in ((2, "[Check]"), (3, "[Timeline]"), (0, "[Live]")):
            head = pilot.app.screen.query_one(ScreenHead)
            begin, _, _ = head.targets[0][place]
            await pilot.click(ScreenHead, offset=(begin + 1, 0))
            await until(pilot, lambda name=name: name in text_of(drawn_strips(pilot.app)))  # type: ignore[misc]


@module
async def test_esc_returns_from_each_view_to_the_first(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        for key in ("o", "m", "g", "P"):
            await pilot.press(key)
            await until(pilot, lambda: not is_open(pilot, Monitor))
            assert " esc back" in text_of(drawn_strips(pilot.app)).splitlines()[-1]
            await pilot.press("escape")
            await until(pilot, lambda: is_open(pilot, Monitor))


@module
async def test_a_key_of_another_view_says_where_it_has_an_effect(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        before = running(pilot)
        await pilot.press("m", "v", "1")
        assert "v (remedy) has no effect here, but in the view Live." in said(pilot)
        assert running(pilot) == before
        await pilot.press("escape")


@module
async def test_words_of_a_search_are_no_keys(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        pilot.app.clear_notifications()
        await pilot.press("o", "slash", "v", "m", "1")
        assert is_open(pilot, PatternsScreen)
        assert not any("has no effect" in one for one in said(pilot))
        await pilot.press("escape", "escape")


@module
async def test_while_a_check_has_the_gpu_no_key_starts_an_engine(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        screen = monitor(pilot)
        live = screen.live
        assert live is not None
        engine, runs = live.engine_pid, [True]
        screen.context.check_runs = lambda: runs[0]
        pilot.app.clear_notifications()
        for key in ("R", "v"):
            await pilot.press(key)
        assert len([one for one in said(pilot) if one.startswith("A check runs")]) == 2
        assert live.engine_pid == engine
        # Once it has ended the engine comes again by itself.
        runs[0] = False
        await until(pilot, lambda: live.engine_pid not in (None, engine))
        assert screen.context.check_runs is None
