"""Drawing in frames: how often each panel is made, counted on a monitor whose clock stands still between ticks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from factories.recordings import STALL
from factories.screen import is_open, monitor, until
from stallprobes.engine.backend import Options
from stallprobes.engine.snapshot import ProbeSnapshot
from stallprobes.latency.baseline import Baseline
from stallprobes.live.analyzer import Analyzer
from stallprobes.recording.observation import Observation, ProbeSet
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.bars import KeyBar, ScreenHead
from stallscope.tui.common.lines import Panel, TargetPanel
from stallscope.tui.common.screen import TABLES_PER_S
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.monitor.probe_table import ProbeTable
from stallscope.tui.monitor.screen import OBSERVATIONS_PER_S, UNWATCHED_FRAMES_PER_S, UNWATCHED_PER_S, Monitor
from stallscope.tui.settings import Settings
from stallscope.tui.sources.live import LiveSource

PANELS = (ScreenHead, ProbeTable, Panel, HeatMap, TargetPanel, KeyBar)
# The time that is counted; the recording has 7 s, of which the first are for the baseline.
SECONDS = 3.0


class RecordedEngine(LiveSource):
    """A live source whose engine is a recording: each observation is the next one of it."""

    def __init__(self) -> None:
        super().__init__(Options(profile="h200"))
        self.frames = list(Recording(STALL).play())
        self.read = 0
        self.plots_read = 0

    def start(self) -> None:
        """There is nothing to start."""

    def observation(self) -> Observation:
        """The next observation."""
        self.read += 1
        return self.frames[min(self.read, len(self.frames)) - 1]

    def probe_snapshot(self, probe_set: ProbeSet, name: str) -> ProbeSnapshot | None:
        """The probe's last statistics."""
        self.plots_read += 1
        snapshot = self.frames[min(self.read, len(self.frames)) - 1].snapshot
        return None if snapshot is None else snapshot.probes[name]

    def update_engine(self, baseline_missing: bool) -> None:
        """There is no engine to switch."""

    def close(self) -> None:
        """There is nothing to close."""


class Frames:
    """A monitor without a timer, and how often each panel was made."""

    def __init__(self, screen: Monitor, source: RecordedEngine, made: Counter[str]) -> None:
        self.screen = screen
        self.source = source
        self.made = made
        self.rate = screen.settings.frames_per_second
        screen.set_frame_rate = self._set_rate  # type: ignore[method-assign]
        # After the ticks of the timer that has been stopped.
        self.now_s = time.monotonic() + 1.0
        screen.clock = lambda: self.now_s

    def _set_rate(self, per_second: float) -> None:
        self.rate = per_second

    def run(self, seconds: float) -> None:
        """Tick for ``seconds`` of the monitor's clock."""
        step_s = 1 / self.screen.settings.frames_per_second
        for _ in range(round(seconds / step_s)):
            self.now_s += step_s
            self.screen.tick()

    def counted(self, seconds: float = SECONDS) -> Counter[str]:
        """What was made and read within ``seconds``."""
        self.made.clear()
        read, plots = self.source.read, self.source.plots_read
        self.run(seconds)
        return self.made + Counter(read=self.source.read - read, plots=self.source.plots_read - plots)


@asynccontextmanager
async def frames(monkeypatch: pytest.MonkeyPatch, per_second: float = 10) -> AsyncIterator[Frames]:
    """The monitor with its baseline measured and nothing left to draw."""
    made: Counter[str] = Counter()
    source = RecordedEngine()
    app = StallscopeApp(lambda: source, Settings(frames_per_second=per_second, quiet_seconds=0.5))
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor) and monitor(pilot).frame_timer is not None)
        screen = monitor(pilot)
        assert screen.frame_timer is not None
        screen.frame_timer.stop()
        await until(pilot, lambda: screen.state.observation is not None)
        found = Frames(screen, source, made)
        source.read = min(source.read, 5)
        while screen.analyzer is None or not screen.analyzer.baselines or screen.analyzer.without_baseline:
            found.run(0.5)
        await pilot.pause(0.1)
        for panel in PANELS:
            count_lines(monkeypatch, panel, made)
        view = Analyzer.monitor_view

        def counting(self: Analyzer, *arguments: Any, **options: Any) -> Any:
            made["view"] += 1
            return view(self, *arguments, **options)

        monkeypatch.setattr(Analyzer, "monitor_view", counting)
        yield found


def count_lines(monkeypatch: pytest.MonkeyPatch, panel: type[Any], made: Counter[str]) -> None:
    lines = panel.lines

    def counting(self: Any, width: int, height: int) -> Any:
        made[panel.__name__] += 1
        return lines(self, width, height)

    monkeypatch.setattr(panel, "lines", counting)


@pytest.mark.parametrize("per_second", [10, 30])
async def test_each_panel_is_made_as_often_as_it_is_read_and_none_without_a_change(
    monkeypatch: pytest.MonkeyPatch, per_second: float
) -> None:
    async with frames(monkeypatch, per_second) as found:
        made = found.counted()
        wanted = {"read": SECONDS * OBSERVATIONS_PER_S, **dict.fromkeys(("view", "ProbeTable"), SECONDS * TABLES_PER_S)}
        for name, times in wanted.items():
            assert abs(made[name] - times) <= 1, (name, made)
        assert made["ScreenHead"] <= SECONDS * 2 + 1
        # Each column of the heat map is 0.4 s, and the aggressor is switched on meanwhile.
        assert made["HeatMap"] <= SECONDS / 0.4 + 3
        assert made["TargetPanel"] <= 4
        assert made["KeyBar"] == 0
        assert made["Panel"] <= SECONDS * per_second
        # Every second frame draws the histogram; between two observations only the focused probe is read.
        reads = SECONDS * (per_second / 2 - OBSERVATIONS_PER_S)
        assert reads - 0.2 * SECONDS * per_second <= made["plots"] <= reads + 1


async def test_keys_draw_nothing_and_the_next_frame_draws_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with frames(monkeypatch) as found:
        found.made.clear()
        names = found.screen.monitor_view.names  # type: ignore[union-attr]
        before = names.index(found.screen.state.focus_name or "")
        for _ in range(300):
            found.screen.action_focus_row(1)
            found.screen.action_probe("1")
        assert not found.made
        assert found.screen.state.focus_name == names[(before + 300) % len(names)]
        found.run(0.1)
        assert found.made["view"] == 1
        assert max(found.made.values()) == 1


async def test_a_paused_view_makes_nothing_but_its_header_and_reads_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    async with frames(monkeypatch) as found:
        found.screen.action_pause()
        found.run(0.5)
        made = found.counted()
        assert made["read"] <= SECONDS * UNWATCHED_PER_S + 1
        assert made["read"] >= SECONDS * UNWATCHED_PER_S - 1
        assert {name for name, times in made.items() if times} <= {"read", "ScreenHead"}
        assert made["ScreenHead"] <= SECONDS + 1


async def test_frames_are_few_while_the_view_is_paused_until_something_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with frames(monkeypatch) as found:
        found.run(0.1)
        assert found.rate == 10
        found.screen.action_pause()
        found.run(0.1)
        assert found.rate == UNWATCHED_FRAMES_PER_S
        found.screen.action_focus_row(1)
        assert found.rate == 10
        found.run(0.1)
        assert found.rate == UNWATCHED_FRAMES_PER_S
        found.screen.action_pause()
        found.run(0.1)
        assert found.rate == 10


async def test_another_rate_of_frames_replaces_the_timer() -> None:
    app = StallscopeApp(RecordedEngine, Settings(frames_per_second=10, quiet_seconds=0.5))
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor) and monitor(pilot).frame_timer is not None)
        screen = monitor(pilot)
        first = screen.frame_timer
        screen.set_frame_rate(10)
        assert screen.frame_timer is first
        screen.set_frame_rate(2)
        assert screen.frame_timer is not first
        screen.mark_changed()
        await until(pilot, lambda: not screen.changed)


async def test_nothing_is_drawn_for_a_terminal_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with frames(monkeypatch) as found:
        reads = [False]
        monkeypatch.setattr(StallscopeApp, "terminal_takes_output", lambda _: reads[0])
        found.screen.action_focus_row(1)
        made = found.counted()
        assert set(made) == {"read"}
        assert made["read"] <= SECONDS * UNWATCHED_PER_S + 1
        reads[0] = True
        assert found.counted(0.1)["ProbeTable"] == 1


async def test_a_recording_has_every_observation_whoever_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted:
        problem, dropped, count = None, 0, 0

        def put(self, observation: Observation, baselines: Mapping[str, Baseline]) -> None:
            self.count += 1

    async with frames(monkeypatch) as found:
        recorder = Counted()
        found.screen.recorder = cast(Recorder, recorder)
        found.screen.action_pause()
        found.run(0.1)
        recorder.count = 0
        found.run(SECONDS)
        assert abs(recorder.count - SECONDS * OBSERVATIONS_PER_S) <= 1
