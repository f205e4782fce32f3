"""Every action of the table, by its key, on a live simulated GPU or in a replay."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import OptionList

from factories.recordings import probe_set_of
from factories.screen import QUICK, is_open, live_monitor, monitor, quiet_is_known, recorded_switches, running, until
from factories.waiting import LIMIT_S
from stallprobes.engine.backend import Options
from stallprobes.live.capture import capture
from stallprobes.machine.gpus import Survey
from stallprobes.machine.libcuda_survey import DriverReport
from stallprobes.model import MS
from stallprobes.recording.observation import EngineCondition
from stallprobes.recording.recording import Recording
from stallscope.tui import probe_sets
from stallscope.tui.actions import SCREENS
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.dialog import Ask
from stallscope.tui.common.explain import Explain
from stallscope.tui.common.help import Help
from stallscope.tui.common.lines import Panel
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.patterns.screen import PatternsScreen
from stallscope.tui.settings import Settings
from stallscope.tui.sources.live import LiveSource
from stallscope.tui.sources.replay import ReplaySource

pytestmark = pytest.mark.usefixtures("without_terminal_updates")


def test_every_action_of_the_table_has_a_method_that_does_it() -> None:
    for action in SCREENS["monitor"]:
        *namespace, method = action.call.partition("(")[0].split(".")
        assert callable(getattr(StallscopeApp if namespace else Monitor, f"action_{method}"))
        assert action.name in SCREENS or not action.opens_screen


async def test_an_aggressor_waits_until_the_baseline_is_measured() -> None:
    async with live_monitor(replace(QUICK, quiet_seconds=3600.0), wait=False) as pilot:
        await until(pilot, lambda: monitor(pilot).state.engine_state == EngineCondition.READY)
        await pilot.press("1")
        await until(pilot, lambda: monitor(pilot).state.observation.waiting == {"spin"})  # type: ignore[union-attr]
        assert "spin" not in running(pilot)
        analyzer = monitor(pilot).analyzer
        assert analyzer is not None
        analyzer._collector._baseline_ns = 300 * MS
        analyzer._collector._window_ns = 150 * MS
        await until(pilot, lambda: "spin" in running(pilot))
        assert quiet_is_known(monitor(pilot))


async def test_quiet_is_measured_again_with_what_disturbs_off_and_then_on_again() -> None:
    async with live_monitor() as pilot:
        await pilot.press("1")
        await until(pilot, lambda: "spin" in running(pilot))
        analyzer = monitor(pilot).analyzer
        assert analyzer is not None
        old = analyzer.baselines["launch"]
        with recorded_switches() as switches:
            await pilot.press("n")
            await until(pilot, lambda: analyzer.baselines.get("launch", old) is not old)
            await until(pilot, lambda: switches and switches[-1] == {"spin": True})
        assert switches == [{"spin": False}, {"spin": True}]
        await until(pilot, lambda: "spin" in running(pilot))


async def test_the_picker_sets_the_probes_and_remedies_follow_one_after_the_other() -> None:
    async with live_monitor() as pilot:
        await pilot.press("o")
        assert isinstance(pilot.app.screen, PatternsScreen)
        choices = pilot.app.screen.query_one(OptionList)
        choices.highlighted = choices.get_option_index("secondary-context-d2d/kernel-other-context")
        await pilot.press("enter")
        await until(pilot, lambda: "spin" in running(pilot))
        last = monitor(pilot).state.observation
        assert last is not None
        assert last.probe_set.variant == "kernel-other-context"
        assert "2 ms" in last.probe_set.expect
        await pilot.press("v")
        await until(pilot, lambda: monitor(pilot).state.observation.probe_set.variant == "kernel-same-context")  # type: ignore[union-attr]


async def test_one_more_probe_can_be_added_to_those_that_are_on() -> None:
    async with live_monitor() as pilot:
        await pilot.press("o")
        choices = pilot.app.screen.query_one(OptionList)
        choices.highlighted = choices.get_option_index("probe/event")
        await pilot.press("enter")
        await until(pilot, lambda: {"event", "launch"} <= running(pilot))
        assert monitor(pilot).state.focus_name == "event"


async def test_the_view_freezes_on_a_stall() -> None:
    async with live_monitor() as pilot:
        await pilot.press("t")
        await pilot.pause(0.5)
        assert monitor(pilot).state.frozen is None
        await pilot.press("1")
        await until(pilot, lambda: monitor(pilot).state.frozen is not None)
        assert "FROZEN" in monitor(pilot).state.frozen_why
        assert monitor(pilot).state.focus_name == "d2d@secondary"


async def test_clear_begins_anew_and_keeps_quiet() -> None:
    async with live_monitor() as pilot:
        await pilot.press("1")
        analyzer = monitor(pilot).analyzer
        assert analyzer is not None
        await until(pilot, lambda: analyzer.monitor_view(None).log)
        await pilot.press("x")
        await until(pilot, lambda: "spin" not in running(pilot))
        await until(pilot, lambda: all(entry.ended_s is not None for entry in analyzer.log))
        await pilot.press("l")
        await until(pilot, lambda: analyzer.monitor_view(None).log == ())
        assert analyzer.baselines


async def test_the_pace_of_a_victim_changes_and_its_quiet_is_measured_again() -> None:
    async with live_monitor() as pilot:
        analyzer = monitor(pilot).analyzer
        assert analyzer is not None
        old = analyzer.baselines["launch"]
        await pilot.press("less_than_sign")
        # On a busy machine the new one may be measured before the key is done.
        assert analyzer.baselines.get("launch") is not old
        await until(pilot, lambda: (row := monitor(pilot).monitor_view.row("launch")) and row.period_ns == 2_000_000)  # type: ignore[union-attr]
        await until(pilot, lambda: "launch" in analyzer.baselines)
        await pilot.press("greater_than_sign")
        await until(pilot, lambda: (row := monitor(pilot).monitor_view.row("launch")) and row.period_ns == 1_000_000)  # type: ignore[union-attr]


async def test_keys_faster_than_the_screen_change_the_pace_each() -> None:
    async with live_monitor() as pilot:
        monitor(pilot).action_scale_rate(1)
        monitor(pilot).action_scale_rate(1)
        monitor(pilot).action_scale_rate(1)
        await until(pilot, lambda: (row := monitor(pilot).monitor_view.row("launch")) and row.period_ns == 125_000)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("period_ns", "factor", "then_ns"),
    [
        (100_000, 0.5, 50_000),
        (60_000, 0.5, 50_000),
        (800 * MS, 2, 1_000 * MS),
        # Of a pattern whose victim is called each 5 s.
        (5_000 * MS, 0.5, 2_500 * MS),
    ],
)
def test_the_pace_has_limits(period_ns: int, factor: float, then_ns: int) -> None:
    assert probe_sets.scaled_period_ns(period_ns, factor) == then_ns


@pytest.mark.parametrize(("period_ns", "steps", "word"), [(50_000, 1, "highest"), (5_000 * MS, -1, "lowest")])
async def test_a_pace_at_its_limit_keeps_the_baseline(period_ns: int, steps: int, word: str) -> None:
    async with live_monitor() as pilot:
        screen = monitor(pilot)
        assert screen.live is not None
        assert screen.analyzer is not None
        screen.live.set_period("launch", period_ns)
        baseline = screen.analyzer.baselines["launch"]
        screen.action_scale_rate(steps)
        assert screen.analyzer.baselines["launch"] is baseline
        assert screen.live.period_ns("launch") == period_ns
        sentence = f"This probe has its {word} call rate."
        await until(pilot, lambda: sentence in [one.message for one in pilot.app._notifications])


async def test_restart_makes_another_engine() -> None:
    async with live_monitor() as pilot:
        source = monitor(pilot).source
        assert isinstance(source, LiveSource)
        engine = source.engine_pid
        await pilot.press("R")
        await until(pilot, lambda: source.engine_pid not in (None, engine))
        await until(pilot, lambda: "launch" in running(pilot))


async def test_an_aggressor_asks_first_where_others_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_monitor() as pilot:
        source = monitor(pilot).source
        assert isinstance(source, LiveSource)
        others = ("python (pid 77)",)
        monkeypatch.setattr(source, "disturbed_processes", lambda: () if source.sharing_allowed else others)
        for key in ("1", "X"):
            await pilot.press(key)
            assert isinstance(pilot.app.screen, Ask)
            await pilot.press("n")
            await pilot.pause(0.3)
            assert "spin" not in running(pilot)
        await pilot.press("1", "y")
        await until(pilot, lambda: "spin" in running(pilot))
        assert source.sharing_allowed


async def test_every_answer_can_be_clicked() -> None:
    async with live_monitor() as pilot:
        answers: list[bool | None] = []
        for answer in ("yes", "no"):
            pilot.app.push_screen(Ask("Disturb them?"), answers.append)
            await pilot.pause()
            await pilot.click(f"#{answer}", offset=(3, 0))
        assert answers == [True, False]
        await pilot.press("o")
        choices = pilot.app.screen.query_one(OptionList)
        choices.highlighted = choices.get_option_index("secondary-context-d2d/kernel-other-context")
        await pilot.press("enter")
        await until(pilot, lambda: monitor(pilot).state.observation.probe_set.variant == "kernel-other-context")  # type: ignore[union-attr]
        await pilot.press("e")
        words = pilot.app.screen.query_one("#text")
        lines = [strip.text for strip in words.render_lines(words.size.region)]
        (row,) = (number for number, line in enumerate(lines) if "loads the next remedy" in line)
        words.scroll_visible(animate=False)
        scroll = pilot.app.screen.query_one("#scroll")
        top = min(max(0, row - 3), scroll.max_scroll_y)
        scroll.scroll_to(y=top, animate=False)
        await until(pilot, lambda: scroll.scroll_y == top)
        await pilot.pause()
        await pilot.click("#text", offset=(0, row))
        await until(pilot, lambda: monitor(pilot).state.observation.probe_set.variant == "kernel-same-context")  # type: ignore[union-attr]


async def test_other_keys_from_the_settings_hold_and_the_usual_ones_do_not() -> None:
    async with live_monitor(Settings(quiet_seconds=0.5, keys={"pause": "z"})) as pilot:
        await pilot.press("p")
        assert monitor(pilot).state.frozen is None
        await pilot.press("z")
        assert monitor(pilot).state.frozen is not None


async def test_a_paused_screen_does_not_say_what_was_found_later() -> None:
    async with live_monitor(replace(QUICK, quiet_seconds=3600.0), wait=False) as pilot:
        log = monitor(pilot).query_one("#log", Panel)
        await until(pilot, lambda: log.view.guide.status.startswith("Measuring the baseline"))
        await pilot.press("p")
        analyzer = monitor(pilot).analyzer
        assert analyzer is not None
        analyzer._collector._baseline_ns = 300 * MS
        analyzer._collector._window_ns = 150 * MS
        await until(pilot, lambda: quiet_is_known(monitor(pilot)))
        # As after a change of the terminal's size.
        monitor(pilot).draw()
        assert log.view.guide.status.startswith("Measuring the baseline")
        await pilot.press("p")
        await until(pilot, lambda: log.view.guide.status.startswith("Every victim"))


async def test_leaving() -> None:
    async with live_monitor(wait=False) as pilot:
        await pilot.press("q")
        while pilot.app.is_running:
            await asyncio.sleep(0.01)


async def test_in_a_replay_it_pauses_and_seeks_and_what_needs_an_engine_does_nothing(stall: Recording) -> None:
    source = ReplaySource(stall, clock=lambda: 0.0)
    app = StallscopeApp(lambda: source, QUICK)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor) and monitor(pilot).monitor_view is not None)
        for key in ("x", "n", "r", "o", "space", "greater_than_sign", "right_square_bracket", "v"):
            await pilot.press(key)
            assert isinstance(pilot.app.screen, Monitor)
        await pilot.press("p")
        assert source.state_text == "REPLAY, PAUSED"
        await pilot.press("right")
        assert source.at_s > 4.9
        await until(pilot, lambda: (row := monitor(pilot).monitor_view.row("d2d@secondary")) and row.state == "STALLED")  # type: ignore[union-attr]
        await pilot.press("left")
        assert source.at_s < 1
        await pilot.press("1")
        assert monitor(pilot).state.focus_name == "spin"
        await pilot.press("e")
        assert isinstance(pilot.app.screen, Explain)


async def test_while_the_driver_does_not_answer_the_screen_says_so_and_keys_work() -> None:
    hung = threading.Event()

    def survey() -> Survey:
        hung.wait(LIMIT_S)
        return Survey((), DriverReport(problem="made up"))

    source = LiveSource(Options(), survey=survey)
    app = StallscopeApp(lambda: source, QUICK)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor) and monitor(pilot).state.observation is not None)
        await until(pilot, lambda: monitor(pilot).state.observation.engine.age_s > 0.3)  # type: ignore[union-attr]
        last = monitor(pilot).state.observation
        assert last is not None
        assert last.engine.state == EngineCondition.STARTING
        assert "driver" in last.engine.sentence
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, Help)
        await pilot.press("escape")
        hung.set()
        await until(pilot, lambda: monitor(pilot).state.observation.probe_set.why_simulated == "made up")  # type: ignore[union-attr]
    app.close()


async def test_the_first_call_stands_beside_the_later_ones_in_the_table_of_host_and_gpu(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    capture(probe_set_of("scalar-readback", "pageable"), file, options=Options(profile="h200"), seconds=2.0)
    *_, last = Recording(file).play()
    assert last.snapshot is not None
    probe = last.snapshot.probes["scalar-readback"]
    channel = next(channel for channel in probe.channels if channel.label)
    assert probe.first_ns[channel] is not None


async def test_without_an_engine_keys_say_why_they_have_no_effect_and_the_baseline_stays() -> None:
    async with live_monitor() as pilot:
        screen = monitor(pilot)
        assert screen.live is not None
        assert screen.analyzer is not None
        assert screen.live.engine_pid is not None
        os.kill(screen.live.engine_pid, signal.SIGKILL)
        await until(pilot, lambda: screen.state.engine_state == EngineCondition.LOST)
        # Until the engine is lost, the baselines still learn.
        baselines = dict(screen.analyzer.baselines)
        said: list[str] = []
        screen.notify = lambda message, **_: said.append(message)  # type: ignore[method-assign]
        # The first press selects the victim.
        await pilot.press("a")
        for key in ("1", "a", "space", "x", "n", "greater_than_sign", "less_than_sign"):
            said.clear()
            await pilot.press(key)
            assert said == ["The engine is lost, so this key has no effect: R restarts it."], key
        assert not screen.live.is_on("spin")
        screen.tick()
        assert screen.analyzer.baselines == baselines
