"""The panels follow the stall until a row is selected, and the log says which key is next."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from textual.actions import SkipAction
from textual.pilot import Pilot

from factories.recordings import STALL
from factories.screen import SharedMonitor, drawn_strips, is_open, live_monitor, monitor, running, text_of, until
from stallprobes.model import Role
from stallprobes.recording.observation import EngineCondition
from stallprobes.recording.recording import Recording
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.explain import Explain
from stallscope.tui.monitor.probe_table import ProbeTable
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.settings import Settings
from stallscope.tui.sources.replay import ReplaySource

# One event loop for all tests, since the monitor runs in it.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("without_terminal_updates")]

STALLS = "d2d@secondary"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[SharedMonitor]:
    """The monitor of this module."""
    held = SharedMonitor()
    yield held
    await held.end()


def shown(pilot: Pilot[None]) -> str:
    """The text of the screen."""
    return text_of(drawn_strips(pilot.app))


async def stalled(pilot: Pilot[None]) -> None:
    """Switch the kernel on and wait for the stall."""
    await pilot.press("1")
    await until(pilot, lambda: (analyzer := monitor(pilot).analyzer) and STALLS in analyzer.stalls)


async def observed(pilot: Pilot[None], times: int) -> None:
    """Wait for some judgements."""
    for _ in range(times):
        before = monitor(pilot).state.observation
        await until(pilot, lambda before=before: monitor(pilot).state.observation is not before)  # type: ignore[misc]


async def test_without_a_selection_the_panels_show_the_victim_that_stalls(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        assert monitor(pilot).state.focus_name == "launch"
        await stalled(pilot)
        await until(pilot, lambda: monitor(pilot).state.focus_name == STALLS)
        assert not monitor(pilot).state.selected
        await until(pilot, lambda: "▸b ■ d2d@secondary" in shown(pilot))
        await pilot.press("e")
        screen = pilot.app.screen
        assert isinstance(screen, Explain)
        assert screen.probe.name == STALLS
        await pilot.press("escape")
        assert not monitor(pilot).state.selected


async def test_after_the_stall_its_victim_stays(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await stalled(pilot)
        await pilot.press("x")
        await until(pilot, lambda: (analyzer := monitor(pilot).analyzer) and not analyzer.stalls)
        await observed(pilot, 3)
        assert monitor(pilot).state.focus_name == STALLS


async def test_a_selected_row_stays_and_a_key_follows_again(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("c")
        await stalled(pilot)
        await observed(pilot, 5)
        assert monitor(pilot).state.focus_name == "d2h-pinned"
        await until(pilot, lambda: "selected · w shows the worst" in shown(pilot))
        await until(pilot, lambda: "Next: w shows the victim that stalls worst · x aggressor off" in shown(pilot))
        await pilot.press("w")
        assert monitor(pilot).state.focus_name == STALLS
        assert not monitor(pilot).state.selected


async def test_the_arrows_and_a_click_select_and_an_aggressors_key_and_box_do_not(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.click("#lists", offset=(2, 0))
        await until(pilot, lambda: "spin" in running(pilot))
        await pilot.press("2", "2")
        assert not monitor(pilot).state.selected
        await pilot.press("down")
        assert monitor(pilot).state.selected
        await pilot.press("w")
        table = monitor(pilot).query_one(ProbeTable)
        ends = {name: (end - 1, line) for line, spans in enumerate(table.targets) for _, end, (name, _) in spans}
        await pilot.click("#lists", offset=ends["host"])
        assert (monitor(pilot).state.focus_name, monitor(pilot).state.selected) == ("host", True)


async def test_the_key_of_the_victim_that_is_followed_selects_it_and_does_not_switch_it_off(
    shared: SharedMonitor,
) -> None:
    async with shared.as_at_first() as pilot:
        await stalled(pilot)
        await until(pilot, lambda: monitor(pilot).state.focus_name == STALLS)
        await pilot.press("b")
        await observed(pilot, 2)
        assert STALLS in running(pilot)
        assert monitor(pilot).state.selected
        await pilot.press("b")
        await until(pilot, lambda: STALLS not in running(pilot))
        await pilot.press("b")
        await until(pilot, lambda: STALLS in running(pilot))


async def test_a_frozen_view_stays_and_follows_when_it_moves_again(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("p")
        await stalled(pilot)
        await observed(pilot, 2)
        assert monitor(pilot).state.focus_name == "launch"
        await pilot.press("p")
        await until(pilot, lambda: monitor(pilot).state.focus_name == STALLS)


async def test_the_log_says_what_is_measured_then_the_first_key_then_the_next_steps_to_the_remedy() -> None:
    async with live_monitor(Settings(quiet_seconds=1.0, frames_per_second=10), wait=False) as pilot:
        await until(pilot, lambda: "Measuring the baseline, about " in shown(pilot))
        assert "Then press 1 to run spin" in shown(pilot)
        await until(pilot, lambda: "\n Press 1 to run spin" in shown(pilot))
        assert "Every victim is as fast as its baseline." in shown(pilot)
        await stalled(pilot)
        await until(
            pilot, lambda: "Next: v measures a remedy · e explains it, with code · x aggressor off" in shown(pilot)
        )
        for words in (" because  of 1 spin: one context runs at a time", " v remedy submit it in"):
            assert words in shown(pilot)
        await pilot.press("x")
        await until(pilot, lambda: "Switch an aggressor on (1, 2, 3), or select a pattern (o)." in shown(pilot))
        assert "Press 1" not in shown(pilot)
        await stalled(pilot)
        await pilot.press("v")
        await until(pilot, lambda: "remedy   kernel-same-context, 1 of 3: The copy is" in shown(pilot))
        for words in (
            " was      STALLED b d2d@secondary  wait",
            ", by spin",
            "a d2d: same copy, context of spin",
        ):
            assert words in shown(pilot)
        await until(pilot, lambda: "then spin comes on by itself · esc back" in shown(pilot))
        await until(pilot, lambda: "beside spin, as without it   was " in shown(pilot))
        assert "remedy   1 of 3 measured; next: copy-engine, green-context" in shown(pilot)
        for words in ("b ▒ d2d@secondary", "before v", "▒ stalled: b d2d@secondary, before v"):
            assert words in shown(pilot)
        assert "Next: v measures the next remedy · esc leaves the pattern · x aggressor off" in shown(pilot)


async def test_without_a_stall_the_key_of_the_remedy_says_that_there_is_none(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        said: list[str] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(monitor(pilot), "notify", lambda message, **_: said.append(message))
            await pilot.press("v")
        assert said == ["No pattern has a remedy for what runs now: select a pattern (o)."]


async def test_a_recording_is_followed_too_and_names_no_key_that_needs_an_engine() -> None:
    now = [0.0]
    source = ReplaySource(Recording(STALL), clock=lambda: now[0])
    app = StallscopeApp(lambda: source, Settings())
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor) and monitor(pilot).monitor_view is not None)
        now[0] = 5.0
        await until(pilot, lambda: "STALLED" in shown(pilot))
        await until(pilot, lambda: "Next: e explains it, with code" in shown(pilot))
        assert "Press 1" not in shown(pilot)


async def test_plus_and_minus_change_the_time_axis(shared: SharedMonitor) -> None:
    def drawn_s(pilot: Pilot[None]) -> float:
        view = monitor(pilot).monitor_view
        return 0.0 if view is None or view.focus is None else len(view.focus.heat) * view.focus.column_s

    async with shared.as_at_first() as pilot:
        for keys, span_s in (("plus", 20), ("plus", 20), ("minus minus minus", 300), ("plus", 60)):
            await pilot.press(*keys.split())
            assert monitor(pilot).span_s == span_s
            # A column is a whole number of tenths of a second.
            await until(pilot, lambda span_s=span_s: span_s / 2 < drawn_s(pilot) < span_s * 1.5)  # type: ignore[misc]


async def test_escape_returns_from_a_remedy_to_the_probes_before(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        screen = monitor(pilot)
        probe_set = screen.state.probe_set
        assert probe_set is not None
        await stalled(pilot)
        await until(pilot, lambda: screen.state.focus_name == STALLS)
        await pilot.press("v")
        await until(pilot, lambda: screen.state.probe_set is not None and screen.state.probe_set.pattern)
        await until(pilot, lambda: screen.state.engine_state is EngineCondition.READY)
        await pilot.press("3")
        assert any("esc returns to those before" in one.message for one in pilot.app._notifications)
        # A second remedy has the same way back.
        await pilot.press("v")
        await until(pilot, lambda: screen.live is not None and screen.live.requested()[0].variant != "")
        await pilot.press("escape")
        await until(pilot, lambda: screen.state.probe_set is not None and not screen.state.probe_set.pattern)
        assert screen.state.probe_set is not None
        assert screen.state.probe_set.probes == probe_set.probes
        assert screen.state.focus_name == STALLS
        assert screen.state.way_back is None
        assert not screen.state.selected
        assert screen.live is not None
        assert not any(screen.live.is_on(one.name) for one in probe_set.probes if one.role is Role.AGGRESSOR)
        # There is no second way back.
        with pytest.raises(SkipAction):
            screen.action_go_back()
