"""The blame experiment on the screen: plan, progress, result, and that it leaves the aggressors as they were."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import ClassVar

import pytest
import pytest_asyncio
from textual.actions import SkipAction
from textual.app import App
from textual.pilot import Pilot

from factories.blame_results import SEVERAL
from factories.screen import (
    SharedMonitor,
    drawn_strips,
    is_open,
    live_monitor,
    monitor,
    recorded_switches,
    running,
    until,
)
from stallprobes.latency.ratio import Quantile
from stallprobes.measurement import blame as blame_experiment
from stallprobes.model import Phase
from stallprobes.recording.observation import EngineCondition
from stallprobes.verdicts import experiment
from stallprobes.verdicts.blame import Conclusion
from stallprobes.verdicts.experiment import BlamePlan
from stallprobes.verdicts.verdict import Proof
from stallscope import tui
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.dialog import Ask
from stallscope.tui.monitor.blame import BlameLines, BlameResult
from stallscope.tui.monitor.screen import Monitor

# One event loop for all tests, since the shared monitor runs in it.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("without_terminal_updates")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[SharedMonitor]:
    """The monitor of the tests that leave its engine alone."""
    held = SharedMonitor()
    yield held
    await held.end()


@pytest.fixture
def short_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans with three rounds and short windows: a paced simulated GPU takes as long as a real one."""
    whole = experiment.plan

    def short(aggressors: Sequence[str], slot_groups: int = 1) -> BlamePlan:
        plan = whole(aggressors, slot_groups)
        return replace(plan, rounds=plan.rounds[:3], window_s=0.1 * slot_groups, total_s=2.0)

    monkeypatch.setattr(experiment, "plan", short)
    # No rounds beyond the plan.
    monkeypatch.setattr(blame_experiment, "BUDGET_S", 0.0)


@pytest.fixture
def endless_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans whose first state, all off, does not end by itself."""
    whole = experiment.plan
    monkeypatch.setattr(experiment, "plan", lambda *asked: replace(whole(*asked), window_s=3600.0))


async def _begin(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await until(pilot, lambda: "spin" in running(pilot))
    await pilot.press("B")
    assert isinstance(pilot.app.screen, Ask)


async def test_blame_needs_an_aggressor_that_is_on(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("B")
        assert isinstance(pilot.app.screen, Monitor)
        assert any("at least one aggressor" in one.message for one in pilot.app._notifications)


async def test_the_plan_is_shown_and_escape_leaves_it_without_an_experiment(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await _begin(pilot, "1")
        dialog = pilot.app.screen
        assert isinstance(dialog, Ask)
        assert "2 states × 6 rounds" in dialog.question
        await pilot.press("escape")
        assert not monitor(pilot).blame.status
        assert "spin" in running(pilot)


@pytest.mark.usefixtures("short_plan")
async def test_the_result_names_the_cause_in_dialog_and_log_and_everything_is_as_before(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        screen = monitor(pilot)
        analyzer = screen.analyzer
        assert analyzer is not None
        await _begin(pilot, "1")
        # Without an aggressor each second extends them.
        before = dict(analyzer.baselines)
        await pilot.press("y")
        await until(pilot, lambda: is_open(pilot, BlameResult))
        dialog = pilot.app.screen
        assert isinstance(dialog, BlameResult)
        figure = dialog.result.find("d2d@secondary", Phase.WAIT, Quantile.P50)
        assert figure is not None
        assert [one.conclusion for one in figure.aggressors] == [Conclusion.CAUSE]
        await pilot.press("escape")
        await until(pilot, lambda: screen.state.observation is not None and not screen.state.observation.experiment)
        await until(pilot, lambda: "spin" in running(pilot))
        assert analyzer.baselines["launch"] is before["launch"]
        proven = [one.verdict for one in analyzer.log if one.verdict.proof is Proof.BLAME]
        assert {one.probe for one in proven} >= {"d2d@secondary"}
        assert all("Proven by blame" in one.cause for one in proven)


@pytest.mark.usefixtures("endless_plan")
async def test_escape_stops_the_experiment_and_restores_the_aggressors(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await _begin(pilot, "1")
        screen = monitor(pilot)
        with recorded_switches() as switches:
            await pilot.press("y")
            await until(pilot, lambda: "spin" not in running(pilot))
            await until(pilot, lambda: screen.state.observation is not None and screen.state.observation.experiment)
            assert "esc ends it" in screen.blame.status
            # During the experiment the key of the aggressor has no effect.
            await pilot.press("1")
            assert any("esc ends it" in one.message for one in pilot.app._notifications)
            assert screen.live is not None
            assert screen.live.is_on("spin")
            assert switches == [{"spin": False}]
            await pilot.press("escape")
            # Once is enough: the key is then what it is without an experiment.
            with pytest.raises(SkipAction):
                screen.action_go_back()
            await until(pilot, lambda: not screen.blame.status)
        assert switches == [{"spin": False}, {"spin": True}]
        await until(pilot, lambda: "spin" in running(pilot))
        assert isinstance(pilot.app.screen, Monitor)


@pytest.mark.usefixtures("endless_plan")
async def test_a_restart_and_a_killed_engine_end_the_experiment_with_a_sentence() -> None:
    async with live_monitor() as pilot:
        screen = monitor(pilot)
        live = screen.live
        assert live is not None
        await _begin(pilot, "1")
        await pilot.press("y")
        await until(pilot, lambda: screen.blame.status)
        before = live.engine_pid
        await pilot.press("R")
        await until(pilot, lambda: any("Blame ended early" in one.message for one in pilot.app._notifications))
        assert not screen.blame.status
        # Until an observation is the new engine's.
        await until(
            pilot,
            lambda: live.engine_pid not in (None, before) and {"launch", "host"} <= running(pilot) - {"spin"},
        )
        await until(pilot, lambda: "spin" not in running(pilot))

        await _begin(pilot, "1")
        await pilot.press("y")
        await until(pilot, lambda: screen.blame.status)
        killed = live.engine_pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        ended = ("Blame ended early", "SIGKILL")
        await until(pilot, lambda: any(all(word in one.message for word in ended) for one in pilot.app._notifications))
        assert not screen.blame.status
        await until(
            pilot,
            lambda: screen.state.engine_state == EngineCondition.LOST,
        )
        await pilot.press("B")
        await until(pilot, lambda: any("running engine" in one.message for one in pilot.app._notifications))


class _Dialogs(App[None]):
    """An app with the style sheets of the product."""

    CSS_PATH: ClassVar[list[str | PurePath]] = [Path(tui.__file__).parent / path for path in StallscopeApp.CSS_PATH]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_result_wraps_no_row_and_has_what_stalls_worst_first(size: tuple[int, int]) -> None:
    app = _Dialogs()
    async with app.run_test(size=size) as pilot:
        await app.push_screen(BlameResult(SEVERAL))
        await pilot.pause()
        lines = [strip.text for strip in drawn_strips(app)]
        text = "\n".join(lines)
        assert "Blame: which aggressor is the cause?" in text
        assert text.index("d2h-pinned: ") < text.index("d2d@secondary")
        row = next(line for line in lines if "99 %  77–100" in line)
        assert "host-alloc-free" in row
        assert "necessary, sufficient" in row
        assert "…" not in text
        assert app.screen.query_one(BlameLines).size.width >= size[0] - 5
        # All of it can be scrolled to.
        await pilot.press("end")
        await pilot.pause()
        assert "event-record, d2d: none of them" in "\n".join(strip.text for strip in drawn_strips(app))
        await pilot.press("enter")
        assert not isinstance(app.screen, BlameResult)
