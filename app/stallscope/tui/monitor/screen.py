"""The monitor: reads observations on a timer, and draws the view model that the analyzer makes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from msgspec import structs
from textual import on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key

from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import MonitorView, ProbeRow, report_text
from stallprobes.model import Role
from stallprobes.patterns import patterns
from stallprobes.recording.observation import EngineCondition, Observation
from stallscope.tui import probe_sets
from stallscope.tui.actions import AGGRESSOR_KEYS, HOST_KEY, SCREENS, VICTIM_KEYS, Group
from stallscope.tui.common.bars import KeyBar, ScreenHead
from stallscope.tui.common.histograms import histogram_lines
from stallscope.tui.common.lines import LineWidget, Panel, TargetPanel
from stallscope.tui.common.screen import MovingScreen, ScreenContext
from stallscope.tui.common.timers import Pace
from stallscope.tui.monitor import panel_views
from stallscope.tui.monitor.blame import BlameControl
from stallscope.tui.monitor.header import STARTING
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.monitor.layout import layout
from stallscope.tui.monitor.probe_table import ProbeTable, probe_keys, strip_columns, table_height
from stallscope.tui.monitor.state import MonitorState
from stallscope.tui.monitor.verdict_log import VerdictLogView, log_lines
from stallscope.tui.sources.live import LiveSource
from stallscope.tui.sources.source import ProbeSource

if TYPE_CHECKING:
    from stallprobes.recording.recorder import Recorder

# Numbers of readings ("observations") of all probes per second, for the analyzer and a recording. OBSERVATIONS_PER_S:
# usual number. UNWATCHED_PER_S: number while nobody sees, records or waits for the observations.
OBSERVATIONS_PER_S, UNWATCHED_PER_S = 5.0, 1.0
# Frames per second while nobody sees, records or waits for new values. Reason: each frame costs CPU time, even a frame
# that draws nothing.
UNWATCHED_FRAMES_PER_S = 2.0
# Redraws of the header in a second while the screen is frozen.
FROZEN_HEADERS_PER_S = 1.0
# Lengths (s) of the heat map's time axis that a key selects, in addition to the length in the settings. The demo always
# has the first length.
SPANS_S = (20.0, 60.0, 300.0)
# Keys that switch or select a probe.
_PROBE_KEYS = (*AGGRESSOR_KEYS, *VICTIM_KEYS, HOST_KEY)


class Monitor(MovingScreen[ProbeSource, MonitorState]):
    """The main screen; ``state`` is its state, ``monitor_view`` the drawn view model."""

    NAME = "monitor"
    VIEWS: ClassVar[tuple[str, ...]] = ("patterns", "matrix", "timeline", "processes")
    PROBE_BINDINGS: ClassVar[list[BindingType]] = [Binding(key, f"probe('{key}')", show=False) for key in _PROBE_KEYS]
    BINDINGS = PROBE_BINDINGS

    def __init__(self, context: ScreenContext, source: ProbeSource, recorder: Recorder | None = None) -> None:
        super().__init__(context, source, MonitorState())
        self.recorder = recorder
        context.record_trace = None if recorder is None else recorder.put_trace
        context.activities["timeline"] = self._recording_mark
        self.analyzer: Analyzer | None = None
        self.monitor_view: MonitorView | None = None
        self.clock: Callable[[], float] = time.monotonic
        # The labels of the actions' keys, with the keys of the settings.
        self._key_labels = {action.name: self.key_of(action) for action in SCREENS["monitor"]}
        self.blame = BlameControl(self.warn, lambda *dialog: self.app.push_screen(*dialog))
        frames = context.settings.frames_per_second
        self._observation_pace = Pace(min(OBSERVATIONS_PER_S, frames), frames)
        self._unwatched_pace = Pace(UNWATCHED_PER_S, frames)
        # A histogram of five frames a second reads as well as one of ten, and the terminal gets half as much.
        self._plot_pace = Pace(frames / 2, frames)
        self._frozen_header_pace = Pace(FROZEN_HEADERS_PER_S, frames)
        # Whether the layout is compact, and the lines of its header.
        self._compact, self._header = False, 2
        # An observation has come since the view model was made; and since the plots were drawn, unless they show it.
        self._observed, self._plotted_last_observation = False, True

    def compose(self) -> ComposeResult:
        """All panels; ``place_panels`` sets their sizes."""
        yield ScreenHead(STARTING, id="header")
        yield ProbeTable(id="lists")
        yield Panel(histogram_lines, id="histograms")
        yield HeatMap(self._key_labels["remedy"], id="heat")
        yield TargetPanel(log_lines, VerdictLogView(), id="log")
        yield KeyBar(id="keys")

    def suspend(self) -> None:
        """Switch the aggressors off before the program is suspended."""
        if self.live is not None:
            self.blame.stop_and_wait()
            self.live.suspend()
            # The switches belong to now, not to the next observation.
            self._feed(self.live.observation())

    def resume(self) -> None:
        """Switch the aggressors on again."""
        if self.live is not None:
            self.live.resume()
        super().resume()

    @property
    def more_keys(self) -> Mapping[Group, tuple[str, str]]:
        """The keys of probes."""
        aggressors = "select an aggressor" if self.replayed else "aggressor on or off"
        return {
            Group.RUN: (f"{AGGRESSOR_KEYS[0]} … {AGGRESSOR_KEYS[-1]}", aggressors),
            Group.LOOK: (f"{VICTIM_KEYS[0]} {VICTIM_KEYS[1]} … {HOST_KEY}", "show that call"),
        }

    @property
    def reads(self) -> bool:
        """True if the first observation has not come."""
        return self.state.observation is None

    def holds(self, event: Key) -> bool:
        """True if a key waits for the first observation: the keys of probes, and keys that act on the observation."""
        return super().holds(event) or (self.reads and event.key in _PROBE_KEYS)

    def _recording_mark(self) -> str:
        """Mark in its title while the timeline is being recorded, which makes calls longer, whatever is shown."""
        on = self.live is not None and self.live.timeline.is_on
        return "●" if on else "…" if on is None else ""

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
                self._observed, self._plotted_last_observation = True, False
        if live is not None and self.analyzer is not None:
            live.update_engine(self.analyzer.holds_aggressors)
            if self.app.screen is self:
                if self._observed and live.timeline.wanted:
                    # What is recorded is there when its view is opened.
                    live.timeline.read(self.state.observation)
                if self.context.restart_engine():
                    self.notify("The check has ended. The engine restarts, and the baseline is measured again.")
        self.blame.finish(self.analyzer, self.state.observation)
        self._freeze_on_stall()
        self.draw_frame(now_s)
        self.set_frame_rate(self.settings.frames_per_second if self._is_watched else UNWATCHED_FRAMES_PER_S)

    @property
    def _is_watched(self) -> bool:
        """True if observations are shown, recorded or waited for; otherwise a few a second are enough."""
        if self.recorder is not None or self.analyzer is None or self.analyzer.without_baseline or self.blame.status:
            return True
        return not self.frozen and self.can_draw

    def _feed(self, observation: Observation) -> None:
        replay = self.source.playback
        if replay is not None and replay.restarted:
            replay.restarted, self.analyzer = False, None
        followed = self.state.focus_name
        engine_state, self.state = self.state.engine_state, self.state.observed(observation)
        if self.analyzer is None or observation.probe_set is not self.analyzer.probe_set:
            self.analyzer = self._new_analyzer(observation, followed)
            self.mark_changed()
            # The table has a row for the stall before a remedy.
            self.rearrange()
        self.analyzer.feed(observation)
        if replay is not None:
            self.analyzer.follow_recorded(replay.baselines(observation))
        focus_name, self.state = self.state.focus_name, self.state.follow(self.analyzer.stalls, observation.wall_s)
        if focus_name != self.state.focus_name:
            self.mark_changed()
        if engine_state != observation.engine.state:
            self.mark_changed()
        self.context.observation, self.context.analyzer = observation, self.analyzer
        if self.recorder is not None:
            self.recorder.put(observation, self.analyzer.baselines)

    def _new_analyzer(self, observation: Observation, followed: str | None) -> Analyzer:
        """An analyzer for the observation's probe set. It continues the history of the analyzer before it, which
        followed the victim ``followed``; live it also continues the log."""
        probe_set, previous, replay = observation.probe_set, self.analyzer, self.source.playback
        return Analyzer(
            probe_set,
            baseline_s=self.settings.quiet_seconds,
            keep_s=max(2 * self.settings.history_seconds, *SPANS_S),
            # After a seek, a replay starts with the baselines of the recording at this time.
            baselines=None if replay is None else replay.baselines(observation),
            log=() if previous is None or self.live is None else previous.judgement.tracker.ended(observation.wall_s),
            earlier=() if previous is None else previous.earlier_sets(followed),
        )

    def _freeze_on_stall(self) -> None:
        if self.frozen or not self.trigger.armed or self.analyzer is None:
            return
        if self.stalls(self.analyzer.slowest_ns()):
            self.freeze("FROZEN on a stall")
            if self.analyzer.worst is not None:
                self.show(self.state.follow_again(self.analyzer.worst))

    def freeze(self, why: str) -> None:
        """Freeze the view."""
        if self.analyzer is not None:
            why = f"{why} at {time.strftime('%H:%M:%S')}"
            self.show(replace(self.state, frozen=self.analyzer.copy(), frozen_why=why))

    def thaw(self) -> None:
        """Have the view move again."""
        self.show(replace(self.state, frozen=None, frozen_why=""))

    # Drawing.

    @property
    def span_s(self) -> float:
        """The length of the time axis in s."""
        return self.state.span_s or self.settings.history_seconds

    @property
    def shown_analyzer(self) -> Analyzer | None:
        """The analyzer of the view: the frozen analyzer, or the present one."""
        return self.state.frozen or self.analyzer

    def draw_due(self, now_s: float) -> None:
        """Draw the panels that are due. While the view is frozen only the header moves."""
        observation = self.state.observation
        if observation is None:
            return
        if not self.frozen:
            if self._observed and self.table_pace.due(now_s):
                self._plot_pace.restart(now_s)
                self.show_panels(observation)
            elif not self._plotted_last_observation or self._plot_pace.due(now_s):
                self._plot_pace.restart(now_s)
                self._show_plots()
        if (self._frozen_header_pace if self.frozen else self.header_pace).due(now_s):
            self.show_header(observation)

    def draw(self) -> None:
        """Make the view model, and draw every panel."""
        if self.state.observation is not None:
            self.changed = False
            self.show_panels(self.state.observation)
            self.show_header(self.state.observation)

    def show_panels(self, observation: Observation) -> None:
        """Make the view model of the live or the frozen analyzer, and draw the panels that show it."""
        self._observed, self._plotted_last_observation = False, True
        analyzer, heat_map = self.shown_analyzer, self.query_one(HeatMap)
        if analyzer is not None:
            self.monitor_view = analyzer.monitor_view(
                self.state.focus_name,
                columns=heat_map.columns,
                span_s=self.span_s,
                strip=strip_columns(self.size.width, compact=self._compact),
            )
            stopped = panel_views.STOPPED_STATES.get(observation.engine.state)
            if stopped is not None and not self.frozen:
                self.monitor_view = self.monitor_view.with_state(stopped)
        model = self.monitor_view
        keys, table = self._key_labels, self.query_one(ProbeTable)
        table.view = panel_views.table_view(self.state, observation, model, keys, compact=self._compact)
        heat_map.view = None if model is None else model.focus
        self.query_one("#log", Panel).view = replace(self.log_view(observation), titled=not self._compact)
        self.query_one("#histograms", Panel).view = panel_views.histograms_view(self.state, observation, model, keys)

    def log_view(self, observation: Observation) -> VerdictLogView:
        """The view of the verdict log."""
        return panel_views.log_view(
            self.state, observation, self.monitor_view, self.shown_analyzer, self._key_labels, replayed=self.replayed
        )

    def show_header(self, observation: Observation) -> None:
        """Draw header and key bar."""
        position = None if self.source.playback is None else self.source.playback.position_text
        self.query_one(ScreenHead).view = panel_views.header_view(self.state, observation, self.monitor_view, position)
        if self._compact and self._header != panel_views.header_lines(observation):
            self.rearrange()
        self.show_note(self.blame.status or panel_views.warning_text(self.recorder, self.trigger.armed))

    def _show_plots(self) -> None:
        """Draw the histogram of the probe in focus as it is now."""
        analyzer, name = self.analyzer, self.state.focus_name
        if analyzer is None or name is None or self.monitor_view is None:
            return
        histograms = self.query_one("#histograms", Panel)
        if self._plotted_last_observation and self.live is not None:
            part = self.live.probe_snapshot(analyzer.probe_set, name)
            if part is None:
                return
            channels = analyzer.channels_until(part)
        else:
            self._plotted_last_observation = True
            channels = analyzer.channels(name)
        if histograms.view is not None:
            histograms.view = replace(histograms.view, live=channels)

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes."""
        table, heat_map, log = self.query_one(ProbeTable), self.query_one(HeatMap), self.query_one("#log", Panel)
        probe_set, header = self.state.probe_set, panel_views.header_lines(self.state.observation)
        victims = 0 if probe_set is None else sum(probe.role is not Role.AGGRESSOR for probe in probe_set.probes)
        # The victim that stalled before a remedy has a row too.
        more = 0 if self.analyzer is None or self.analyzer.before is None else 1
        rows = table_height(probe_set) + more
        sizes = layout(height, rows, victims + more, header)
        self._compact, self._header = sizes.compact, header if sizes.compact else 2
        self.query_one(ScreenHead).styles.height = self._header
        table.styles.height = sizes.table
        self.query_one("#histograms", Panel).styles.height = sizes.histograms
        heat_map.styles.height = sizes.heat_map
        heat_map.display = sizes.heat_map > 0
        log.styles.height = sizes.log

    def action_open(self, name: str) -> None:
        """Open the screen called ``name``, which may show the focused probe."""
        self.context.focus_name = self.state.focus_name
        super().action_open(name)

    # Focus and switches.

    def select_probe(self, name: str | None) -> None:
        """Show the probe called ``name`` from now on."""
        self.show(self.state.select(name))

    def _engine_usable(self, silent: bool = True) -> bool:
        """True if the engine can do what a key asks for, a ``silent`` one later; if not, the screen says why."""
        engine_state = self.state.engine_state
        if self.live is None or engine_state is None:
            return False
        obstacle = panel_views.engine_obstacle(engine_state, self._key_labels["restart"], self._key_labels["patterns"])
        if obstacle:
            self.warn(obstacle)
        return not obstacle or (silent and engine_state == EngineCondition.SILENT)

    def action_probe(self, key: str) -> None:
        """Switch the aggressor of ``key``; select a victim, or switch it if it is selected or off."""
        keys = {} if self.state.probe_set is None else probe_keys(self.state.probe_set)
        name = next((name for name, of_probe in keys.items() if of_probe == key), None)
        probe = self.state.probe(name)
        if probe is None:
            back = self._key_labels["go_back"] if self.state.way_back is not None else ""
            more = f"; {back} returns to those before {self._pattern_name}" if back else ""
            if keys:
                self.warn(f"No probe has the key {key} here{more}.")
            return
        aggressor = self.live is not None and probe.role is Role.AGGRESSOR
        # A victim that is shown only because it stalls is not switched off by the key that keeps it in view.
        selected = self.state.selected and self.state.focus_name == probe.name
        if self.live is not None and (aggressor or selected or not self.live.is_on(probe.name)):
            self._toggle(probe.name)
        if aggressor:
            # The panels stay on the victim, which shows the effect.
            self.mark_changed()
        else:
            self.select_probe(probe.name)

    @property
    def _pattern_name(self) -> str:
        return "" if self.state.probe_set is None else self.state.probe_set.pattern

    def _toggle(self, name: str) -> None:
        """Switch the probe ``name``; nothing in a recording."""
        live, probe = self.live, self.state.probe(name)
        if live is None or probe is None or self.blame.blocks_switches() or not self._engine_usable():
            return
        on = not live.is_on(name)
        self.if_sharing_allowed(lambda: live.switch(name, on), disturbs=on and probe.role is Role.AGGRESSOR)

    def action_switch(self) -> None:
        """Switch the probe that is shown, and select it."""
        name = self.state.focus_name
        if name is not None:
            self.select_probe(name)
            self._toggle(name)

    def action_all_off(self) -> None:
        """Switch all aggressors off."""
        if self.live is not None and self._engine_usable():
            self.blame.stop()
            self.live.switch_aggressors(False)
            self.mark_changed()

    def action_all_on(self) -> None:
        """Switch all aggressors on."""
        live = self.live
        if live is not None and not self.blame.blocks_switches() and self._engine_usable():
            self.if_sharing_allowed(lambda: live.switch_aggressors(True))
            self.mark_changed()

    def action_focus_row(self, rows: int) -> None:
        """Select the row above or below."""
        names = () if self.monitor_view is None else self.monitor_view.names
        if names:
            row = names.index(self.state.focus_name) if self.state.focus_name in names else 0
            self.select_probe(names[(row + rows) % len(names)])

    def action_follow(self) -> None:
        """Show the victim with the worst verdict, and follow the stall until a row is selected."""
        worst = None if self.shown_analyzer is None else self.shown_analyzer.worst
        self.show(self.state.follow_again(worst))
        if worst is None:
            self.notify("No victim stalls now; the next one that does is shown.")

    @on(LineWidget.Clicked, "ProbeTable")
    def select_clicked_row(self, message: LineWidget.Clicked) -> None:
        """Select the clicked row; on its box switch its probe, an aggressor without selecting it."""
        name, switches = message.target
        probe = self.state.probe(name)
        if not switches or self.live is None or probe is None or probe.role is not Role.AGGRESSOR:
            self.select_probe(name)
        if switches:
            self._toggle(name)
            self.mark_changed()

    @on(LineWidget.Clicked, "#log")
    def explain_clicked_entry(self, message: LineWidget.Clicked) -> None:
        """Select and explain the probe of the clicked verdict."""
        name = message.target.verdict.probe
        if self.state.probe(name) is not None:
            self.select_probe(name)
            self.action_explain()

    # Probe sets.

    def on_screen_resume(self) -> None:
        """Load the selection of the view of patterns."""
        choice, self.context.choice = self.context.choice, None
        if choice is not None:
            self._load_selected(*choice)
        self.mark_changed()

    def _load_selected(self, first: str, second: str) -> None:
        if first == "probe":
            self._edit(lambda live: self._add_probe(live, second))
        else:
            self._edit(lambda live: self._load_variant(live, first, second))

    def _edit(self, edit: Callable[[LiveSource], str | None]) -> None:
        """Edit the probe set of the live engine, and show the sentence that this returns or raises."""
        if self.live is None or self.state.observation is None or not self.engine_is_free:
            return
        try:
            sentence = edit(self.live)
        except ValueError as error:
            self.warn(str(error))
        else:
            if sentence:
                self.notify(sentence)

    def _add_probe(self, live: LiveSource, selected: str) -> None:
        """Load the probe that was ``selected`` in the picker too."""
        probe_set, on = live.requested()
        new = probe_sets.with_probe(probe_set, selected)
        live.load(new, on)
        self.select_probe(new.probes[-1].name)

    def _load_variant(self, live: LiveSource, pattern: str, variant: str) -> None:
        known = patterns()[pattern]
        present = live.requested()[0]
        if not present.pattern:
            back = present, self.state.focus_name, self.state.selected
            self.show(replace(self.state, way_back=back))
        new = probe_sets.for_variant(present, known, known.variant(variant))
        on = dict.fromkeys(probe_sets.aggressors(new), True)
        self.if_sharing_allowed(lambda: live.load(new, on), disturbs=bool(on))

    def action_remedy(self) -> None:
        """Load the next remedy of the pattern, after the last one its stall; without a pattern the remedy of the
        stall."""
        self._edit(self._load_remedy)

    def _load_remedy(self, live: LiveSource) -> None:
        probe_set, on = live.requested()
        aggressors = [probe for probe in probe_set.probes if probe.role is Role.AGGRESSOR and on.get(probe.name)]
        stalls = {} if self.analyzer is None else self.analyzer.stalls
        victim = probe_set.probe(self.state.focus_name or "") if self.state.focus_name in stalls else None
        remedy = probe_sets.next_remedy(probe_set, victim, aggressors)
        if remedy is None:
            raise ValueError("No pattern has a remedy for what runs now: select a pattern (o).")
        self._load_variant(live, *remedy)

    def action_change_span(self, steps: int) -> None:
        """Take the next shorter or longer time axis of SPANS_S and the settings."""
        spans = sorted({*SPANS_S, self.settings.history_seconds})
        chosen = min(max(spans.index(self.span_s) + steps, 0), len(spans) - 1)
        self.show(replace(self.state, span_s=spans[chosen]))

    def action_scale_rate(self, steps: int) -> None:
        """Halve or double the call rate of the victim that is shown, and select it."""
        row = self.monitor_view.row(self.state.focus_name or "") if self.monitor_view is not None else None
        if self.live is None or row is None:
            return
        self.select_probe(row.name)
        if row.role is Role.AGGRESSOR or row.period_ns <= 0:
            self.warn("Only victims have a call rate.")
        elif self._engine_usable():
            self._edit(lambda live: self._scale_period(live, row, 2.0**-steps))

    def _scale_period(self, live: LiveSource, row: ProbeRow, factor: float) -> str:
        # Not the row's: several keys may come before it is drawn again.
        old = live.period_ns(row.name)
        if old is None:
            return ""
        period = probe_sets.scaled_period_ns(old, factor)
        rate = 1e9 / period
        sentence = f"{row.name}: {rate:.{0 if rate >= 10 else 1}f} calls/s."
        if not live.set_period(row.name, period):
            return sentence
        if self.analyzer is not None:
            # Caches and clocks depend on the call rate, so the baseline does too.
            self.analyzer.discard_baselines([row.name])
        return f"{sentence} Its baseline is measured again."

    def action_blame(self) -> None:
        """Show the plan of a blame experiment and start it, or stop the running one."""
        if self.live is not None and self.state.observation is not None:
            self.blame.toggle(self.live, self.state.observation)
            self.mark_changed()

    @property
    def has_way_back(self) -> bool:
        """True if a blame experiment runs, or probes of a remedy or pattern are loaded."""
        return self.live is not None and (bool(self.blame.status) or self.state.way_back is not None)

    @property
    def urgent(self) -> tuple[str, ...]:
        """With several aggressors, the key that finds the cause among them."""
        several = self.state.observation and len(probe_sets.aggressors_on(self.state.observation)) > 1
        return ("blame",) if several else ()

    def action_go_back(self) -> None:
        """Stop the blame experiment, else return from a remedy or pattern.

        Otherwise the key has its usual effect.
        """
        if self.blame.stop():
            return
        if self.live is None or self.state.way_back is None:
            raise SkipAction
        self._edit(self._go_back)

    def _go_back(self, live: LiveSource) -> None:
        """Load the probes that were there before remedies and patterns, with the aggressors off."""
        back, present = self.state.way_back, live.requested()[0]
        if back is not None:
            # Another GPU may have been selected since.
            live.load(structs.replace(back[0], gpus=present.gpus, details=present.details), {})

    # View, engine and reports.

    def action_explain(self) -> None:
        """Open the explanation of the focused probe."""
        from stallscope.tui.common.explain import Explain

        probe_set, probe = self.state.probe_set, self.state.probe(self.state.focus_name)
        if probe_set is not None and probe is not None:
            log = self.shown_analyzer.log[::-1] if self.shown_analyzer is not None else ()
            self.ask(Explain(probe_set, probe, log, self.context), lambda _: self.action_remedy())

    def action_quiet(self) -> None:
        """Measure the baseline again; it stays where no engine answers."""
        if self.analyzer is not None and self._engine_usable(silent=False):
            self.analyzer.discard_baselines()

    def action_clear(self) -> None:
        """Clear window, history and log."""
        if self.analyzer is not None:
            self.analyzer.clear()
        self.thaw()

    def action_copy(self) -> None:
        """Copy the report to the terminal's clipboard."""
        if self.monitor_view is not None and self.state.observation is not None:
            self.copy_report(report_text(self.monitor_view, panel_views.report_head(self.state.observation)))


# Class of this module's screen, which the app looks up by this name.
SCREEN = Monitor
