"""The blame experiment on the screen: plan, progress, result, and that it leaves the aggressors as they were."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
import pytest_asyncio
from textual.app import App
from textual.pilot import Pilot

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
from stallprobes.model import Channel, Phase
from stallprobes.recording.observation import EngineCondition
from stallprobes.verdicts import experiment
from stallprobes.verdicts.blame import AggressorBlame, Blame, BlameOutcome, Conclusion, FigureBlame, Interval
from stallprobes.verdicts.experiment import BlamePlan
from stallprobes.verdicts.verdict import Proof
from stallscope.tui.monitor.blame import BlamePlanDialog, BlameResult
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.probe_sets import default_probes

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
    assert isinstance(pilot.app.screen, BlamePlanDialog)


async def test_blame_needs_an_aggressor_that_is_on(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await pilot.press("B")
        assert isinstance(pilot.app.screen, Monitor)
        assert any("at least one aggressor" in one.message for one in pilot.app._notifications)


async def test_the_plan_is_shown_and_escape_leaves_it_without_an_experiment(shared: SharedMonitor) -> None:
    async with shared.as_at_first() as pilot:
        await _begin(pilot, "1")
        dialog = pilot.app.screen
        assert isinstance(dialog, BlamePlanDialog)
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
        await pilot.press("enter")
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
            await pilot.press("enter")
            await until(pilot, lambda: "spin" not in running(pilot))
            await until(pilot, lambda: screen.state.observation is not None and screen.state.observation.experiment)
            assert "escape stops" in screen.blame.status
            # During the experiment the key of the aggressor has no effect.
            await pilot.press("1")
            assert any("escape stops it" in one.message for one in pilot.app._notifications)
            assert screen.live is not None
            assert screen.live.is_on("spin")
            assert switches == [{"spin": False}]
            await pilot.press("escape")
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
        await pilot.press("enter")
        await until(pilot, lambda: screen.blame.status)
        before = live.engine_pid
        await pilot.press("r")
        await until(pilot, lambda: any("Blame ended early" in one.message for one in pilot.app._notifications))
        assert not screen.blame.status
        await until(pilot, lambda: live.engine_pid not in (None, before) and {"launch", "host"} <= running(pilot))
        assert "spin" not in running(pilot)

        await _begin(pilot, "1")
        await pilot.press("enter")
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


@pytest.mark.parametrize("size", [(160, 48), (80, 24)])
async def test_the_result_wraps_no_cell_and_has_what_stalls_first(size: tuple[int, int]) -> None:
    app = App[None]()
    async with app.run_test(size=size) as pilot:
        probes = default_probes()
        await app.push_screen(BlameResult(_RESULT, probes))
        await pilot.pause()
        text = "\n".join(strip.text.rstrip() for strip in drawn_strips(app))
        assert text.index("D2D · secondary: wait p50") < text.index("launch · primary: wait p99")
        assert "necessary and sufficient" in text
        assert "spin kernel · 16 blocks · primary" in text
        assert "100% (97–100%)" in text
        assert "Undecided: it is slower with some or all" in " ".join(text.replace("│", " ").split())


def _part(aggressor: str, conclusion: Conclusion, share: float | None) -> AggressorBlame:
    interval = None if share is None else Interval(share, max(share - 0.03, 0.0), share)
    return AggressorBlame(aggressor, 1_890_000.0, 5_470.0, interval, conclusion)


_WAIT = Channel(Phase.WAIT)
_RESULT = Blame(
    ("spin", "host-alloc-free"),
    rounds=6,
    seconds=9.9,
    figures=(
        FigureBlame(
            "launch",
            _WAIT,
            Quantile.P99,
            5_600.0,
            5_660.0,
            BlameOutcome.UNDECIDED,
            (_part("spin", Conclusion.UNDECIDED, None), _part("host-alloc-free", Conclusion.UNDECIDED, None)),
        ),
        FigureBlame(
            "d2d@secondary",
            _WAIT,
            Quantile.P50,
            5_470.0,
            1_890_000.0,
            BlameOutcome.STALL,
            (_part("spin", Conclusion.CAUSE, 1.0), _part("host-alloc-free", Conclusion.INNOCENT, 0.0)),
        ),
    ),
)
