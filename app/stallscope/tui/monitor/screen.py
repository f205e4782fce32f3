"""The monitor: reads observations on a timer, and draws the view model that the analyzer makes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import MonitorView, report_text
from stallprobes.model import MS
from stallprobes.recording.observation import EngineCondition, Observation, ProbeSet
from stallprobes.recording.recorder import Recorder
from stallscope.tui import probe_sets
from stallscope.tui.actions import AGGRESSOR_KEYS, HOST_KEY, VICTIM_KEYS
from stallscope.tui.common.histograms import Histograms
from stallscope.tui.common.key_bar import KeyBar
from stallscope.tui.common.pace import Pace
from stallscope.tui.common.screen import ActionScreen, ScreenContext
from stallscope.tui.common.stall_trigger import StallTrigger
from stallscope.tui.monitor import help_text, status
from stallscope.tui.monitor.blame import BlameControl
from stallscope.tui.monitor.frames import MonitorFrames
from stallscope.tui.monitor.header import Header
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.monitor.panels import MonitorPanels
from stallscope.tui.monitor.probe_set_editor import ProbeSetEditor
from stallscope.tui.monitor.probe_table import ProbeTable, probe_keys
from stallscope.tui.monitor.switches import ProbeSwitches
from stallscope.tui.monitor.verdict_log import VerdictLog
from stallscope.tui.sources.replay import ReplaySource
from stallscope.tui.sources.watch_replay import WatchReplaySource
from stallscope.tui.sources.watched import WatchSource

SEEK_S = 5.0
# Observations for the analyzer and for a recording; fewer while nobody reads them, or histograms alone are drawn.
OBSERVATIONS_PER_S, UNWATCHED_PER_S = 10.0, 1.0
# Frames while nothing but the header moves: each costs time, also one that draws nothing.
UNWATCHED_FRAMES_PER_S = 2.0


class Monitor(ActionScreen):
    """The main screen. ``frozen`` is a copy of the analyzer while the view is paused, ``frozen_why`` the reason."""

    NAME = "monitor"
    HELP_SECTIONS = help_text.SECTIONS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, f"probe('{key}')", show=False) for key in (*AGGRESSOR_KEYS, *VICTIM_KEYS, HOST_KEY)
    ]

    def __init__(self, context: ScreenContext, recorder: Recorder | None = None) -> None:
        super().__init__(context)
        source = context.source
        if isinstance(source, WatchSource | WatchReplaySource):
            raise TypeError("the monitor shows probes, not a watched program")
        self.source = source
        self.recorder = recorder
        context.record_trace = None if recorder is None else recorder.put_trace
        self.analyzer: Analyzer | None = None
        self.frozen: Analyzer | None = None
        self.frozen_why = ""
        self.last: Observation | None = None
        self.monitor_view: MonitorView | None = None
        self.focus_name: str | None = None
        self.keys_of_probes: dict[str, str] = {}
        self.trigger = StallTrigger()
        # When the engine became ready, and the last figures of the GPU's utilization, in percent.
        self.ready_at = 0.0
        self.utilization: list[int] = []
        self.clock: Callable[[], float] = time.monotonic
        frames = context.settings.frames_per_second
        self._observation_pace = Pace(min(OBSERVATIONS_PER_S, frames), frames)
        self._unwatched_pace = Pace(UNWATCHED_PER_S, frames)
        self.frames = MonitorFrames(self, frames)
        self.panels = MonitorPanels(self)
        self.blame = BlameControl(self)
        self.switches = ProbeSwitches(self)
        self.editor = ProbeSetEditor(self)

    def compose(self) -> ComposeResult:
        """All panels; ``place_panels`` sets their sizes."""
        yield Header(id="header")
        yield ProbeTable(id="lists")
        yield Histograms(id="histograms")
        yield HeatMap(id="heat")
        yield VerdictLog(id="log")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Start the source. Textual calls the base class's method too."""
        self.app.app_suspend_signal.subscribe(self, lambda _: self._suspend(), immediate=True)
        self.app.app_resume_signal.subscribe(self, lambda _: self._resume(), immediate=True)
        self.source.start()

    def _suspend(self) -> None:
        """Switch the aggressors off before the program is suspended."""
        if self.live is not None:
            self.blame.stop_and_wait()
            self.live.suspend()
            # The switches belong to now, not to the next observation.
            self._feed(self.live.observation())

    def _resume(self) -> None:
        if self.live is not None:
            self.live.resume()
        self.mark_changed()

    @property
    def more_keys(self) -> tuple[tuple[str, str], ...]:
        """The keys of probes."""
        aggressors, victims = "Switch an aggressor on or off.", "Focus a victim; again, or if it is off: switch it."
        if self.source.replayed:
            aggressors, victims = "Focus an aggressor.", "Focus a victim."
        return (
            (f"{AGGRESSOR_KEYS[0]} … {AGGRESSOR_KEYS[-1]}", aggressors),
            (f"{VICTIM_KEYS[0]} {VICTIM_KEYS[1]} … {HOST_KEY}", victims),
        )

    # Observations.

    def tick(self) -> None:
        """Read the observations that are due, and draw one frame."""
        live, now_s = self.live, self.clock()
        if live is not None and live.fatal is not None:
            self.app.exit(return_code=live.fatal[0])
            return
        pace = self._observation_pace if self._is_watched else self._unwatched_pace
        if live is None or pace.due(now_s):
            for observation in self.source.observations():
                self._feed(observation)
                self.frames.add_observation()
        if live is not None and self.analyzer is not None:
            live.update_engine(self.analyzer.holds_aggressors)
            if self.app.screen is self and self.frames.observed and live.timeline.wanted:
                # Kept on: what is recorded is there when its screen is opened.
                live.timeline.read()
        self.blame.finish(self.analyzer, self.last)
        self._freeze_on_stall()
        if self.can_draw and (self.app.screen is self or self.app.screen.is_modal):
            self.frames.draw(now_s)
        self.set_frame_rate(self.settings.frames_per_second if self._is_watched else UNWATCHED_FRAMES_PER_S)

    @property
    def _is_watched(self) -> bool:
        """Whether observations are shown, recorded or waited for; otherwise a few a second are enough."""
        if self.recorder is not None or self.analyzer is None or self.analyzer.without_baseline or self.blame.status:
            return True
        return self.frozen is None and self.can_draw

    def _feed(self, observation: Observation) -> None:
        source = self.source
        if isinstance(source, ReplaySource) and source.restarted:
            source.restarted, self.analyzer = False, None
        if self.analyzer is None or observation.probe_set is not self.analyzer.probe_set:
            self.analyzer = self._new_analyzer(observation)
        self.analyzer.feed(observation)
        if isinstance(source, ReplaySource):
            self.analyzer.follow_recorded(source.baselines(observation))
        states = (None if self.last is None else self.last.engine.state, observation.engine.state)
        if states[0] != states[1]:
            self.mark_changed()
        if states[0] is None or (states[0] != EngineCondition.READY and states[1] == EngineCondition.READY):
            self.ready_at = observation.wall_s
        self.last = observation
        self.context.observation, self.context.analyzer = observation, self.analyzer
        if self.recorder is not None:
            self.recorder.put(observation, self.analyzer.baselines)
        if observation.telemetry is not None:
            value = observation.telemetry["utilisation_percent"].value
            self.utilization = [*self.utilization, value][-8:] if isinstance(value, int) else []

    def _new_analyzer(self, observation: Observation) -> Analyzer:
        """An analyzer for the observation's probe set; live it continues the log of the one before."""
        probe_set, previous = observation.probe_set, self.analyzer
        self.mark_changed()
        self.keys_of_probes = probe_keys(probe_set)
        self.panels.use(probe_set)
        self.rearrange()
        if self.focus_name not in self.keys_of_probes:
            self.focus_name = probe_sets.first_victim(probe_set)
        return Analyzer(
            probe_set,
            baseline_s=self.settings.quiet_seconds,
            keep_s=2 * self.settings.history_seconds,
            # After a seek, a replay starts from what the recording knew there.
            baselines=self.source.baselines(observation) if isinstance(self.source, ReplaySource) else None,
            log=() if previous is None or self.live is None else previous.ended_log(observation.wall_s),
        )

    def _freeze_on_stall(self) -> None:
        if self.frozen is not None or self.analyzer is None:
            return
        threshold_ns = self.settings.freeze_above_ms * MS
        if self.trigger.armed and self.trigger.fires(self.analyzer.slowest_ns(), threshold_ns, time.monotonic()):
            self.frozen = self.analyzer.copy()
            self.focus_name = self.analyzer.worst or self.focus_name
            self.frozen_why = f"FROZEN on a stall at {time.strftime('%H:%M:%S')}"
            self.mark_changed()

    # Drawing.

    def draw(self) -> None:
        """Make the view model of the live or the frozen analyzer, and draw every panel."""
        if self.last is None or not self.is_mounted:
            return
        self.frames.update_view()
        self.redraw_panels()

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes."""
        self.panels.place(width, height)

    def action_open(self, name: str) -> None:
        """Open the screen called ``name``, which may show the focused probe."""
        self.context.focus_name = self.focus_name
        super().action_open(name)

    # Focus and switches.

    @property
    def probe_set(self) -> ProbeSet | None:
        """The current probe set."""
        return self.last.probe_set if self.last is not None else None

    def action_probe(self, key: str) -> None:
        """Switch the aggressor of ``key``; focus a victim, or switch it if it is focused or off."""
        self.switches.press(key)

    def action_switch(self) -> None:
        """Switch the focused probe."""
        if self.focus_name is not None:
            self.switches.toggle(self.focus_name)
            self.mark_changed()

    def action_all_off(self) -> None:
        """Switch all aggressors off."""
        self.switches.all_off()

    def action_all_on(self) -> None:
        """Switch all aggressors on."""
        self.switches.all_on()

    def action_focus_up(self) -> None:
        """Focus the row above."""
        self._focus_row(-1)

    def action_focus_down(self) -> None:
        """Focus the row below."""
        self._focus_row(1)

    def _focus_row(self, rows: int) -> None:
        names = () if self.monitor_view is None else self.monitor_view.names
        if names:
            row = names.index(self.focus_name) if self.focus_name in names else 0
            self.focus_name = names[(row + rows) % len(names)]
            self.mark_changed()

    def action_focus_worst(self) -> None:
        """Focus the victim with the worst verdict."""
        analyzer = self.frozen or self.analyzer
        worst = analyzer.worst if analyzer is not None else None
        if worst is None:
            self.notify("No victim has a verdict.")
        else:
            self.focus_name = worst
            self.mark_changed()

    def on_probe_table_row_selected(self, message: ProbeTable.RowSelected) -> None:
        """Focus the clicked row, or switch its probe."""
        self.focus_name = message.name
        if message.toggle:
            self.switches.toggle(message.name)
        self.mark_changed()

    def on_verdict_log_entry_selected(self, message: VerdictLog.EntrySelected) -> None:
        """Focus and explain the probe of the clicked verdict."""
        name = message.entry.verdict.probe
        if self.probe_set is not None and self.probe_set.probe(name) is not None:
            self.focus_name = name
            self.action_explain()

    # Probe sets.

    def action_pick(self) -> None:
        """Open the picker of patterns and probes."""
        self.editor.pick()

    def action_remedy(self) -> None:
        """Load the pattern's next remedy; after the last one, the stall."""
        self.editor.load_remedy()

    def action_faster(self) -> None:
        """Double the call rate."""
        self.editor.scale_period(0.5)

    def action_slower(self) -> None:
        """Halve the call rate."""
        self.editor.scale_period(2)

    def action_bigger(self) -> None:
        """Multiply the copy size by four."""
        self.editor.scale_size(4)

    def action_smaller(self) -> None:
        """Divide the copy size by four."""
        self.editor.scale_size(0.25)

    def action_blame(self) -> None:
        """Show the plan of a blame experiment and start it, or stop the one that runs."""
        if self.live is not None and self.last is not None:
            self.blame.toggle(self.live, self.last)
            self.mark_changed()

    def action_blame_stop(self) -> None:
        """Stop the blame experiment."""
        self.blame.stop()

    # View, engine and reports.

    def action_explain(self) -> None:
        """Open the explanation of the focused probe."""
        from stallscope.tui.common.explain import Explain

        probe = self.probe_set.probe(self.focus_name or "") if self.probe_set is not None else None
        if self.probe_set is not None and probe is not None:
            analyzer = self.frozen or self.analyzer
            log = analyzer.log[::-1] if analyzer is not None else ()
            dialog = Explain(self.probe_set, probe, log, self.live is not None, self.context)
            self.app.push_screen(dialog, self._explained)

    def _explained(self, remedy: bool | None) -> None:
        if remedy:
            self.action_remedy()

    def action_pause(self) -> None:
        """Pause or resume the view, or the recording."""
        if isinstance(self.source, ReplaySource):
            self.source.pause()
        elif self.frozen is not None:
            self.frozen = None
        elif self.analyzer is not None:
            self.frozen = self.analyzer.copy()
            self.frozen_why = f"PAUSED at {time.strftime('%H:%M:%S')}"
        self.mark_changed()

    def action_back(self) -> None:
        """Go back in the recording."""
        if isinstance(self.source, ReplaySource):
            self.source.seek(self.source.at_s - SEEK_S)
            self.mark_changed()

    def action_forward(self) -> None:
        """Go forward in the recording."""
        if isinstance(self.source, ReplaySource):
            self.source.seek(self.source.at_s + SEEK_S)
            self.mark_changed()

    def action_quiet(self) -> None:
        """Measure the baseline again; it stays where no engine answers."""
        if self.analyzer is not None and self.switches.engine_usable(silent=False):
            self.analyzer.discard_baselines()

    def action_clear(self) -> None:
        """Clear window, history and log."""
        self.frozen = None
        if self.analyzer is not None:
            self.analyzer.clear()
        self.mark_changed()

    def action_trap(self) -> None:
        """Arm or disarm "freeze on stall"."""
        self.trigger.toggle()
        if self.trigger.armed:
            self.frozen = None
        self.mark_changed()

    def action_gpu(self) -> None:
        """Open the choice of a GPU."""
        live = self.live
        if live is None:
            return
        if not live.gpus:
            self.notify("CUDA sees no GPU.", severity="warning")
            return
        from stallscope.tui.common.dialog import Choose

        def selected(uuid: str | None) -> None:
            if uuid is not None:
                live.use_gpu(uuid)

        options = [(gpu.uuid, f"{gpu.label}  {gpu.pci}") for gpu in live.gpus]
        self.app.push_screen(Choose("Select the GPU:", options), selected)

    def action_restart(self) -> None:
        """Restart the engine."""
        if self.live is not None:
            self.live.restart()

    def action_copy(self) -> None:
        """Copy the report to the terminal's clipboard."""
        if self.monitor_view is not None and self.last is not None:
            self.app.copy_to_clipboard(report_text(self.monitor_view, status.report_head(self.last)))
            self.notify("Report sent to the terminal's clipboard (OSC 52).")


SCREEN = Monitor
