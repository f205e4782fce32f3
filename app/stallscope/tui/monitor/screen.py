"""The monitor: pulls frames on a timer, lets the scope make pictures of them, and hands those to the widgets."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen

from stallprobes.live.analyzer import Analyzer
from stallprobes.live.observation import CUDA, LOST, READY, SILENT, Observation
from stallprobes.live.view_model import MonitorView, stale
from stallprobes.model import MS, Role
from stallscope.tui.actions import ACTIONS, AGGRESSOR_KEYS, HOST_KEY, VICTIM_KEYS, hints, keys_of, known, shown
from stallscope.tui.common.key_bar import KeyBar
from stallscope.tui.common.lines import Drawn
from stallscope.tui.monitor.actions import Doing
from stallscope.tui.monitor.header import SMALLEST, Header
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.monitor.histograms import Histograms
from stallscope.tui.monitor.probe_table import STRIP, STRIP_FROM, ProbeTable
from stallscope.tui.monitor.verdict_log import VerdictLog
from stallscope.tui.probe_sets import gpu_words, gpus_needed
from stallscope.tui.settings import Settings
from stallscope.tui.sources.live import Live
from stallscope.tui.sources.replay import Replay

if TYPE_CHECKING:
    from stallprobes.live.recording import Recorder

SIDE_BY_SIDE = 150
_FREEZE_AFTER_S = 1.5
_LEAST_HISTOGRAMS, _LEAST_HEAT = 6, 5
_STATES = {LOST: "engine lost", SILENT: "silent"}


class Monitor(Doing, Screen[None]):
    """The main screen."""

    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(action.keys, action.name, action.title, show=False, id=action.name, tooltip=action.what)
            for action in ACTIONS
        ),
        *(Binding(key, f"probe('{key}')", show=False) for key in (*AGGRESSOR_KEYS, *VICTIM_KEYS, HOST_KEY)),
    ]

    def __init__(self, source: Live | Replay, settings: Settings, recorder: Recorder | None = None) -> None:
        super().__init__()
        self.source = source
        self.settings = settings
        self.recorder = recorder
        self.analyzer: Analyzer | None = None
        self.frozen: Analyzer | None = None
        self.frozen_why = ""
        self.last: Observation | None = None
        self.monitor_view: MonitorView | None = None
        self.focus_name: str | None = None
        self.keys_of_probes: dict[str, str] = {}
        self.trap = False
        self._trap_at: float | None = None
        self._ready_at = 0.0
        self._busy: list[int] = []

    def compose(self) -> ComposeResult:
        """All panels; ``_arrange`` gives them their places."""
        yield Header(id="header")
        with Container(id="upper"):
            yield ProbeTable(id="lists")
            yield Histograms(id="histograms")
        yield HeatMap(id="heat")
        yield VerdictLog(id="log")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Begin to look."""
        self.source.start()
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.call_after_refresh(self._repaint))
        keys = self.query_one(KeyBar)
        keys.hints = hints(self.source.replayed, self.settings.keys)
        self.set_interval(1 / self.settings.frames_per_second, self.tick)
        self.tick()

    def on_resize(self, event: events.Resize) -> None:
        """Give every panel its place."""
        self._arrange(event.size.width, event.size.height)
        self.call_after_refresh(self.draw)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of actions that make no sense here do nothing."""
        mine = {one.name: one for one in ACTIONS}
        return mine[action] in known(self.source.replayed) if action in mine else True

    async def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        """A click on a hint of the last line."""
        action = next((one for one in known(self.source.replayed) if one.title == message.words), None)
        if action is not None:
            await self.run_action(action.name)

    def commands(self) -> Iterable[SystemCommand]:
        """What the command palette offers."""
        for action in known(self.source.replayed):
            key = shown(keys_of(action, self.settings.keys))
            run = getattr(self, f"action_{action.name}")
            yield SystemCommand(f"{action.title} ({key})", action.what, run)

    def tick(self) -> None:
        """Take what there is, and draw."""
        if isinstance(self.source, Live) and self.source.fatal is not None:
            self.app.exit(return_code=self.source.fatal[0])
            return
        for observation in self.source.take():
            self._feed(observation)
        if isinstance(self.source, Live) and self.analyzer is not None:
            self.source.apply(bool(self.analyzer.without_baseline))
        self._spring()
        if self.app.screen is self or self.app.screen.is_modal:
            self.draw()

    def draw(self) -> None:
        """Make a picture of what is looked at, and hand it to the panels."""
        if self.last is None or not self.is_mounted:
            return
        looked_at = self.frozen or self.analyzer
        heat = self.query_one(HeatMap)
        if looked_at is not None:
            monitor_view = looked_at.monitor_view(
                self.focus_name,
                columns=heat.columns,
                span_s=self.settings.history_seconds,
                strip=STRIP if self.size.width >= STRIP_FROM else 0,
            )
            state = _STATES.get(self.last.engine.state)
            self.monitor_view = (
                stale(monitor_view, state) if state is not None and self.frozen is None else monitor_view
            )
        self._hand_out()

    def _feed(self, observation: Observation) -> None:
        restarted = self._restarted()
        if self.analyzer is None or restarted or observation.probe_set is not self.analyzer.probe_set:
            self._new_analyzer(observation)
        assert self.analyzer is not None
        if isinstance(self.source, Replay):
            # What was the yardstick then is the yardstick now.
            self.analyzer.baselines = dict(self.source.baselines())
        self.analyzer.feed(observation)
        if self.last is None or (observation.engine.state == READY and self.last.engine.state != READY):
            self._ready_at = observation.wall_s
        self.last = observation
        if self.recorder is not None:
            self.recorder.put(observation, self.analyzer.baselines)
        if observation.telemetry is not None:
            busy = observation.telemetry["utilisation_percent"].value
            self._busy = [*self._busy, busy][-8:] if isinstance(busy, int) else []

    def _restarted(self) -> bool:
        if isinstance(self.source, Replay) and self.source.fresh:
            self.source.fresh = False
            return True
        return False

    def _new_analyzer(self, observation: Observation) -> None:
        told = (
            self.analyzer.ended_log(observation.wall_s)
            if self.analyzer is not None and isinstance(self.source, Live)
            else ()
        )
        self.analyzer = Analyzer(
            observation.probe_set,
            baseline_s=self.settings.quiet_seconds,
            keep_s=2 * self.settings.history_seconds,
            log=told,
        )
        self.keys_of_probes = assign_keys(observation)
        header = self.query_one(Header)
        header.gpus, header.gpu_count = gpu_words(observation.probe_set), gpus_needed(observation.probe_set)
        self.rearrange()
        if self.focus_name not in self.keys_of_probes:
            victims = [probe.name for probe in observation.probe_set.probes if probe.role is Role.VICTIM]
            # Patterns without a victim are about the aggressor's own calls.
            others = [probe.name for probe in observation.probe_set.probes]
            self.focus_name = next(iter(victims or others), None)

    def _spring(self) -> None:
        """Freeze the view a moment after the first stall above the threshold, when that was asked for."""
        if not self.trap or self.frozen is not None or self.analyzer is None:
            return
        if self._trap_at is None:
            if self.analyzer.slowest_ns() >= self.settings.freeze_above_ms * MS:
                self._trap_at = time.monotonic() + _FREEZE_AFTER_S
        elif time.monotonic() >= self._trap_at:
            self.trap, self._trap_at = False, None
            self.frozen = self.analyzer.copy()
            self.focus_name = self.analyzer.worst or self.focus_name
            self.frozen_why = f"FROZEN on a stall at {time.strftime('%H:%M:%S')}"

    def _hand_out(self) -> None:
        assert self.last is not None
        observation, monitor_view = self.last, self.monitor_view
        header = self.query_one(Header)
        header.observation, header.monitor_view, header.busy = observation, monitor_view, self._busy
        header.view = self._view()
        header.live_s = observation.wall_s - self._ready_at
        lists = self.query_one(ProbeTable)
        lists.monitor_view, lists.keys_of, lists.focus_name = monitor_view, self.keys_of_probes, self.focus_name
        lists.empty = observation.engine.sentence
        self.query_one(Histograms).view = monitor_view.focus if monitor_view is not None else None
        self.query_one(HeatMap).view = monitor_view.focus if monitor_view is not None else None
        log = self.query_one(VerdictLog)
        log.entries = monitor_view.log if monitor_view is not None else ()
        log.stale = observation.engine.state in _STATES
        log.expect = observation.probe_set.watch
        log.note = self._note(observation)
        keys = self.query_one(KeyBar)
        keys.note = self._warning()
        for widget in self.query(Drawn):
            if widget.display:
                widget.redraw()

    def _view(self) -> str:
        if isinstance(self.source, Replay):
            place = f"{_clock(self.source.at_s)}/{_clock(self.source.recording.seconds)}"
            return f"{'REPLAY, PAUSED' if self.source.paused else 'REPLAY'} {place}"
        if self.frozen is None:
            return ""
        goes_on = self.last is not None and self.last.engine.state == READY
        return f"{self.frozen_why}, probes go on" if goes_on else self.frozen_why

    def _note(self, observation: Observation) -> str:
        if observation.engine.state != READY:
            return observation.engine.sentence
        if self.analyzer is not None and self.analyzer.without_baseline:
            return "Quiet is being measured; then switch something on that disturbs (1, 2, 3 …), or pick a pattern (o)."
        if self.analyzer is not None and self.analyzer.worst is not None:
            return "Something is slower than quiet; the sentence on it follows as soon as it has lasted a moment."
        return "All is quiet. Switch something on that disturbs (1, 2, 3 …), or pick a pattern (o)."

    def _warning(self) -> str:
        if self.recorder is not None and (self.recorder.problem or self.recorder.dropped):
            return self.recorder.problem or f"recording: {self.recorder.dropped} frames left out, the disk is slow"
        return "freezes on the next stall" if self.trap else ""

    def _repaint(self) -> None:
        for widget in self.query(Drawn):
            widget.repaint()

    def _arrange(self, width: int, height: int) -> None:
        """Places by size: side by side where there is room; heat map and log share what the lists leave."""
        small = width < SMALLEST[0] or height < SMALLEST[1]
        self.set_class(small, "small")
        if small:
            return
        wide = width >= SIDE_BY_SIDE
        self.set_class(wide, "wide")
        lists = self.query_one(ProbeTable)
        wanted = max(lists.height_wanted(self.analyzer.probe_set if self.analyzer is not None else None), 5)
        rest = height - 3
        if wide:
            upper = max(min(wanted, rest - 6), min(20, rest // 2))
            log = max(3, min(14, (rest - upper) * 2 // 5))
            heat = min(24, rest - upper - log)
            heat = heat if heat >= _LEAST_HEAT else 0
            upper = rest - heat - log
        else:
            log = min(12, 3 + rest // 6)
            # The map gives way before a probe does.
            heat = min(18, rest // 4, rest - log - wanted - _LEAST_HISTOGRAMS) if height >= 28 else 0
            heat = heat if heat >= _LEAST_HEAT else 0
            upper = rest - log - heat
        self.query_one("#upper").styles.height = upper
        if not wide:
            lists.styles.height = max(3, min(wanted, upper - _LEAST_HISTOGRAMS))
        else:
            lists.styles.height = "100%"
        self.query_one(HeatMap).styles.height = heat
        self.query_one(HeatMap).display = heat > 0
        self.query_one(VerdictLog).styles.height = log

    def rearrange(self) -> None:
        """Give the panels their places anew, as another bench has another number of probes."""
        self._arrange(self.size.width, self.size.height)

    def shared_with(self) -> tuple[str, ...]:
        """Processes of others on the GPU, as long as nobody said that they may be disturbed."""
        if not isinstance(self.source, Live) or self.source.allowed or self.last is None:
            return ()
        return self.last.others if self.last.probe_set.backend == CUDA else ()

    def report_head(self) -> list[str]:
        """The first lines of the report: on what this was seen, and when."""
        assert self.last is not None
        probe_set = self.last.probe_set
        simulated = "SIMULATED " if probe_set.backend != CUDA else ""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.last.wall_s))
        return [
            f"stallscope · {simulated}{' · '.join(part for part in (gpu_words(probe_set), *probe_set.facts) if part)} · {when}",
            f"bench: {probe_set.title}",
        ]


def assign_keys(observation: Observation) -> dict[str, str]:
    """A key for each probe, as far as there are keys."""
    aggressors, victims = iter(AGGRESSOR_KEYS), iter(VICTIM_KEYS)
    found: dict[str, str] = {}
    for probe in observation.probe_set.probes:
        if probe.role is Role.AGGRESSOR:
            key = next(aggressors, " ")
        elif probe.role is Role.HOST and HOST_KEY not in found.values():
            key = HOST_KEY
        else:
            key = next(victims, " ")
        found[probe.name] = key
    return found


def shown_rows(monitor_view: MonitorView | None) -> tuple[str, ...]:
    """The names of the rows from top to bottom."""
    if monitor_view is None:
        return ()
    order = sorted(monitor_view.rows, key=lambda row: row.role is not Role.AGGRESSOR)
    return tuple(row.name for row in order)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
