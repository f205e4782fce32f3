"""The panels of the monitor: what they draw, and where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallprobes.recording.observation import EngineCondition, Observation, ProbeSet
from stallscope.tui import probe_sets
from stallscope.tui.common.histograms import Histograms
from stallscope.tui.common.key_bar import KeyBar
from stallscope.tui.common.lines import LineWidget
from stallscope.tui.monitor import status
from stallscope.tui.monitor.header import Header
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.monitor.layout import layout
from stallscope.tui.monitor.probe_table import ProbeTable
from stallscope.tui.monitor.verdict_log import VerdictLog
from stallscope.tui.sources.replay import ReplaySource

if TYPE_CHECKING:
    from stallscope.tui.monitor.screen import Monitor


class MonitorPanels:
    """The panels of ``screen``, which takes what it draws from its attributes."""

    def __init__(self, screen: Monitor) -> None:
        self._screen = screen

    def use(self, probe_set: ProbeSet) -> None:
        """Give the panels another probe set."""
        header = self._screen.query_one(Header)
        header.gpus, header.gpu_count = probe_sets.gpu_label(probe_set), probe_sets.gpus_needed(probe_set)
        self._screen.query_one(ProbeTable).probe_set = probe_set

    def update_header(self, observation: Observation) -> None:
        """Give header and key bar what they draw."""
        screen = self._screen
        header = screen.query_one(Header)
        header.observation, header.monitor_view = observation, screen.monitor_view
        header.utilization = screen.utilization
        header.live_s = observation.wall_s - screen.ready_at
        if isinstance(screen.source, ReplaySource):
            header.view = status.replay_text(screen.source)
        else:
            frozen = screen.frozen is not None
            header.view = status.frozen_text(screen.frozen_why, observation.engine.state) if frozen else ""
        note = status.warning_text(screen.recorder, screen.trigger.armed)
        screen.query_one(KeyBar).note = screen.blame.status or note

    def update(self, observation: Observation) -> None:
        """Give all panels what they draw."""
        screen = self._screen
        view = screen.monitor_view
        self.update_header(observation)
        table = screen.query_one(ProbeTable)
        table.monitor_view, table.keys_of, table.focus_name = view, screen.keys_of_probes, screen.focus_name
        table.empty = observation.engine.sentence
        for panel in (screen.query_one(Histograms), screen.query_one(HeatMap)):
            panel.view = None if view is None else view.focus
        histograms = screen.query_one(Histograms)
        histograms.plots, histograms.live = () if view is None else view.plots, None
        log = screen.query_one(VerdictLog)
        log.entries = () if view is None else view.log
        log.engine_stopped = observation.engine.state in status.STOPPED_STATES
        log.expect = observation.probe_set.expect
        ready = observation.engine.state is EngineCondition.READY
        log.progress = view.progress if view is not None and ready else ()
        analyzer = screen.frozen or screen.analyzer
        log.empty = status.empty_log_text(observation, analyzer, replayed=screen.source.replayed)

    def redraw(self, *panels: type[LineWidget]) -> None:
        """Draw those of ``panels`` that are displayed."""
        for panel in panels:
            widget = self._screen.query_one(panel)
            if widget.display:
                widget.redraw()

    def place(self, width: int, height: int) -> None:
        """Set the panels' sizes and their order."""
        screen = self._screen
        table = screen.query_one(ProbeTable)
        sizes = layout(width, height, table.height_wanted)
        screen.set_class(sizes.wide, "wide")
        screen.set_class(sizes.spacious, "spacious")
        heat_map, log = screen.query_one(HeatMap), screen.query_one(VerdictLog)
        # A grid places its panels in their order.
        if sizes.spacious:
            screen.move_child(log, before=heat_map)
            rows = (2, sizes.upper, sizes.log, sizes.heat_map)
        else:
            screen.move_child(log, after=heat_map)
            rows = (2, sizes.upper, sizes.heat_map, sizes.log)
        screen.styles.grid_rows = " ".join(str(lines) for lines in rows if lines)
        table.styles.height = sizes.upper if sizes.table is None else sizes.table
        screen.query_one(Histograms).styles.height = sizes.histograms
        heat_map.styles.height = sizes.heat_map
        heat_map.display = sizes.heat_map > 0
        log.styles.height = sizes.log
