"""The blame experiment on the screen: plan, progress, result, and that it leaves the aggressors as they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from factories.screen import live_monitor, monitor, running, until
from stallprobes.latency.ratio import Quantile
from stallprobes.model import Phase
from stallprobes.verdicts import experiment
from stallprobes.verdicts.blame import Conclusion
from stallprobes.verdicts.experiment import BlamePlan
from stallprobes.verdicts.verdict import Proof
from stallscope.tui.monitor.blame import BlamePlanDialog, BlameResult
from stallscope.tui.monitor.screen import Monitor


@pytest.fixture
def short_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans with three rounds and short windows: a paced simulated GPU takes as long as a real one."""
    whole = experiment.plan

    def short(aggressors: Sequence[str], slot_groups: int = 1) -> BlamePlan:
        plan = whole(aggressors, slot_groups)
        return replace(plan, rounds=plan.rounds[:3], window_s=0.1 * slot_groups, total_s=2.0)

    monkeypatch.setattr(experiment, "plan", short)


async def _begin(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await until(pilot, lambda: "spin" in running(pilot))
    await pilot.press("B")
    assert isinstance(pilot.app.screen, BlamePlanDialog)


async def test_blame_needs_an_aggressor_that_is_on() -> None:
    async with live_monitor() as pilot:
        await pilot.press("B")
        assert isinstance(pilot.app.screen, Monitor)
        assert any("at least one aggressor" in one.message for one in pilot.app._notifications)


async def test_the_plan_is_shown_and_escape_leaves_it_without_an_experiment() -> None:
    async with live_monitor() as pilot:
        await _begin(pilot, "1")
        dialog = pilot.app.screen
        assert isinstance(dialog, BlamePlanDialog)
        assert "2 states × 6 rounds" in dialog.text()
        await pilot.press("escape")
        assert not monitor(pilot).blame.status
        assert "spin" in running(pilot)


@pytest.mark.usefixtures("short_plan")
async def test_the_result_names_the_cause_in_dialog_and_log_and_everything_is_as_before() -> None:
    async with live_monitor() as pilot:
        screen = monitor(pilot)
        analyzer = screen.analyzer
        assert analyzer is not None
        before, entries = dict(analyzer.baselines), len(analyzer.log)
        await _begin(pilot, "1")
        await pilot.press("enter")
        await until(pilot, lambda: screen.blame.status)
        await pilot.press("1")
        await until(pilot, lambda: screen.last is not None and screen.last.experiment)
        assert "escape stops" in screen.blame.status
        await until(pilot, lambda: isinstance(pilot.app.screen, BlameResult))
        dialog = pilot.app.screen
        assert isinstance(dialog, BlameResult)
        figure = dialog.result.find("d2d-secondary", Phase.WAIT, Quantile.P50)
        assert figure is not None
        assert [one.conclusion for one in figure.aggressors] == [Conclusion.CAUSE]
        await pilot.press("escape")
        await until(pilot, lambda: screen.last is not None and not screen.last.experiment)
        # The key of the aggressor had no effect during the experiment.
        assert "spin" in running(pilot)
        assert analyzer.baselines["launch"] is before["launch"]
        proven = [one.verdict for one in analyzer.log if one.verdict.proof is Proof.BLAME]
        assert {one.probe for one in proven} >= {"d2d-secondary"}
        assert all("Proven by blame" in one.cause for one in proven)
        assert len(analyzer.log) > entries


@pytest.mark.usefixtures("short_plan")
async def test_escape_stops_the_experiment_and_restores_the_aggressors() -> None:
    async with live_monitor() as pilot:
        await _begin(pilot, "1")
        await pilot.press("enter")
        screen = monitor(pilot)
        await until(pilot, lambda: "spin" not in running(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: not screen.blame.status)
        await until(pilot, lambda: "spin" in running(pilot))
        assert isinstance(pilot.app.screen, Monitor)


@pytest.mark.usefixtures("short_plan")
async def test_a_restart_of_the_engine_ends_the_experiment_with_a_sentence() -> None:
    async with live_monitor() as pilot:
        await _begin(pilot, "1")
        await pilot.press("enter")
        screen = monitor(pilot)
        await until(pilot, lambda: screen.blame.status)
        await pilot.press("r")
        await until(pilot, lambda: not screen.blame.status)
        assert any("Blame ended early" in one.message for one in pilot.app._notifications)
        await until(pilot, lambda: {"launch", "host"} <= running(pilot))
