"""Frames of the monitor: which of its panels each frame draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallscope.tui.common.histograms import Histograms
from stallscope.tui.common.key_bar import KeyBar
from stallscope.tui.common.pace import Pace
from stallscope.tui.monitor import status
from stallscope.tui.monitor.header import Header
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.monitor.probe_table import STRIP, STRIP_FROM, ProbeTable
from stallscope.tui.monitor.verdict_log import VerdictLog

if TYPE_CHECKING:
    from stallscope.tui.monitor.screen import Monitor

# Panels move as often as a person reads them; the histograms' plots move with every frame.
TABLES_PER_S, HEADERS_PER_S, FROZEN_HEADERS_PER_S = 4.0, 2.0, 1.0


class MonitorFrames:
    """The frames of ``screen``, at most ``per_second``."""

    def __init__(self, screen: Monitor, per_second: float) -> None:
        self._screen = screen
        self._table_pace, self._header_pace = Pace(TABLES_PER_S, per_second), Pace(HEADERS_PER_S, per_second)
        self._frozen_header_pace = Pace(FROZEN_HEADERS_PER_S, per_second)
        # An observation has come since the view model was made; and since the plots were drawn, unless they show it.
        self.observed, self._plotted_last_observation = False, True

    def add_observation(self) -> None:
        """Note that an observation has come."""
        self.observed, self._plotted_last_observation = True, False

    def draw(self, now_s: float) -> None:
        """Draw the panels that are due, or all after a change. While the view is frozen only the header moves."""
        screen = self._screen
        if screen.last is None or not screen.is_mounted:
            return
        if screen.take_changed():
            self._table_pace.restart(now_s)
            self._header_pace.restart(now_s)
            screen.draw()
            return
        if screen.frozen is None:
            if self.observed and self._table_pace.due(now_s):
                self.update_view()
                screen.panels.redraw(ProbeTable, HeatMap, VerdictLog, Histograms)
            else:
                self._draw_plots()
        if (self._header_pace if screen.frozen is None else self._frozen_header_pace).due(now_s):
            screen.panels.update_header(screen.last)
            screen.panels.redraw(Header, KeyBar)

    def _draw_plots(self) -> None:
        """Draw the focused probe's histograms as they are now."""
        screen = self._screen
        analyzer, name = screen.analyzer, screen.focus_name
        if analyzer is None or name is None or screen.monitor_view is None:
            return
        if self._plotted_last_observation and screen.live is not None:
            part = screen.live.probe_snapshot(analyzer.probe_set, name)
            if part is None:
                return
            channels = analyzer.channels_until(part)
        else:
            self._plotted_last_observation = True
            channels = analyzer.channels(name)
        screen.query_one(Histograms).live = channels
        screen.panels.redraw(Histograms)

    def update_view(self) -> None:
        """Make the view model of the live or the frozen analyzer, and give it to the panels."""
        screen = self._screen
        assert screen.last is not None
        self.observed, self._plotted_last_observation = False, True
        analyzer = screen.frozen or screen.analyzer
        if analyzer is not None:
            screen.monitor_view = analyzer.monitor_view(
                screen.focus_name,
                columns=screen.query_one(HeatMap).columns,
                span_s=screen.settings.history_seconds,
                strip=STRIP if screen.size.width >= STRIP_FROM else 0,
                plots=screen.query_one(Histograms).places,
            )
            stopped = status.STOPPED_STATES.get(screen.last.engine.state)
            if stopped is not None and screen.frozen is None:
                screen.monitor_view = screen.monitor_view.with_state(stopped)
        screen.panels.update(screen.last)
