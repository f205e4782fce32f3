"""The histograms panel: one plot for each phase, the baseline behind the live values, on one fixed time axis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from textual.reactive import var

from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import ChannelMap
from stallprobes.live.history import DECADES, LOW_NS, binned, position
from stallprobes.live.view_model import ChannelView, FocusView
from stallprobes.live.windows import extended_ns
from stallprobes.model import Channel, Phase
from stallprobes.units import duration_ns
from stallscope.report.columns import display_width, padded
from stallscope.tui.common.lines import (
    BLOCKS,
    Line,
    LineWidget,
    cut,
    fit,
    runs_of_rows,
    short_duration,
    short_ratio,
    spread,
)

LABEL = 6
FIGURES_IN_A_LINE, FIGURES = 22, 30
# Columns of the longest label of the axis.
_AXIS_LABEL = 6
# Lines of a plot at most, the second in a panel of _TALL lines or more.
MOST_LINES, MOST_TALL_LINES, _TALL = 8, 14, 36
TAIL_CALLS = 1000
_LIVE = "now"
# What is plotted behind the live histograms: its short name beside the plot, and that in the legend.
BASELINE = ("base", "baseline")
_STYLES = ("", "baseline", "live", "both", "bad")
_LETTERS = np.array(list(BLOCKS))


# Columns and lines from which several probes have a place each.
_PLACE_COLUMNS, _PLACE_LINES = 64, 14


@dataclass(frozen=True)
class HistogramsView:
    """The histograms of one object under its title.

    ``name`` tells it from others. ``state`` and ``ratio`` are shown beside the title in the style ``mark``.
    ``in_flight_ns`` is the age of a call that has not returned. ``now`` describes the live histograms in the legend,
    ``behind`` those behind them.
    """

    name: str
    title: str
    channels: tuple[ChannelView, ...]
    state: str = ""
    mark: str = ""
    ratio: float | None = None
    in_flight_ns: float | None = None
    now: str = "last second"
    behind: tuple[str, str] = BASELINE


def probe_histograms(view: FocusView) -> HistogramsView:
    """The histograms of a probe."""
    row, length_ns = view.row, extended_ns(view.row.period_ns)
    return HistogramsView(
        row.name,
        row.title,
        view.channels,
        row.state,
        row.mark,
        row.ratio,
        row.in_flight_ns,
        # The window of a probe with a long period is longer.
        f"last {length_ns / 1e9:.0f} s" if length_ns else "last second",
    )


@dataclass(frozen=True)
class PlotsView:
    """The histograms of ``focus``, or ``plots`` side by side, of which it is one.

    ``live`` are later histograms of the same object, None for those of ``focus``: the plots move with every frame, the
    figures beside them change with ``focus``, so that they can be read.
    """

    focus: HistogramsView | None = None
    plots: tuple[HistogramsView, ...] = ()
    live: ChannelMap | None = None


class Histograms(LineWidget):
    """Draws the histograms of one object, or of several side by side."""

    view = var(PlotsView())

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        # The panel of each of several objects as it was last made: only one of them moves with every frame.
        self._panels: dict[str, tuple[HistogramsView, ChannelMap | None, object, list[Line]]] = {}

    @property
    def places(self) -> int:
        """The number of probes that have room."""
        width, height = self.size
        return max(1, (width + 1) // (_PLACE_COLUMNS + 1)) * max(1, height // _PLACE_LINES)

    def lines(self, width: int, height: int) -> list[Line]:
        """Title, some lines for each phase, axis, and a legend where it fits."""
        view = self.view
        if view.focus is None:
            return []
        if len(view.plots) < 2:
            return histogram_lines(view.focus, width, height, view.live)
        across = min(len(view.plots), max(1, (width + 1) // (_PLACE_COLUMNS + 1)))
        down = -(-len(view.plots) // across)
        each, lines = (width + 1) // across - 1, height // down
        out: list[Line] = []
        for first in range(0, len(view.plots), across):
            panels = [self._panel(one, each, lines) for one in view.plots[first : first + across]]
            for number in range(lines):
                out.append([run for panel in panels for run in _padded(panel, number, each)])
        return out

    def _panel(self, view: HistogramsView, width: int, height: int) -> list[Line]:
        """The panel of one of several objects."""
        focused = self.view.focus is not None and view.name == self.view.focus.name
        live = self.view.live if focused else None
        drawn = self._panels.get(view.name)
        if drawn is not None and drawn[0] == view and drawn[1] is live and drawn[2] == (width, height, focused):
            return drawn[3]
        made = histogram_lines(view, width, height, live, focused)
        self._panels[view.name] = view, live, (width, height, focused), made
        return made


def _padded(panel: list[Line], number: int, width: int) -> Line:
    """Line ``number`` of a panel in ``width`` columns and a blank."""
    return [*fit(panel[number] if number < len(panel) else [], width), (" ", "")]


def histogram_lines(
    view: HistogramsView, width: int, height: int, live: ChannelMap | None = None, focused: bool = False
) -> list[Line]:
    """The panel of ``view``; ``live`` replaces the live histograms, ``focused`` marks it among several."""
    state = f"{view.state} ×{short_ratio(view.ratio)}" if view.ratio and view.mark in ("bad", "warn") else view.state
    out: list[Line] = [
        spread(
            [
                ("▸" if focused else " ", "accent"),
                (cut(view.title, width - display_width(state) - 3), "strong"),
            ],
            [(f"{state} ", view.mark)],
            width,
        )
    ]
    phases = [channel for channel in view.channels if not channel.label]
    labelled = [channel for channel in view.channels if channel.label]
    table = _host_and_device(labelled, width) if labelled else []
    if not phases or height < 4:
        return out
    room = height - 2 - len(table)
    if room < len(phases):
        table, room = [], height - 2
    phases = phases[: max(room, 1)]
    legend = room - len(phases) >= 2
    each = min(MOST_LINES if height < _TALL else MOST_TALL_LINES, max(1, (room - legend) // len(phases)))
    figures = (FIGURES_IN_A_LINE if each == 1 else FIGURES) if width >= 64 else 0
    label = max(LABEL, *(len(channel.phase.traits.word) + 1 for channel in phases))
    plot = max(10, width - label - 1 - figures - 1)
    for channel in phases:
        plotted = channel.live if live is None else live.get(Channel(channel.phase), channel.live)
        in_flight_ns = view.in_flight_ns if channel.phase is Phase.CALL else None
        out += _channel(channel, plotted, in_flight_ns, label, plot, each, figures, view.behind[0])
    out.append([(" " * (label + 1), ""), (axis_labels(plot), "dim")])
    out += table
    if legend:
        out.append([(" " * (label + 1), ""), *_legend(phases, view.now, view.behind[1])])
    return out


def _legend(channels: list[ChannelView], now: str, behind: str) -> Line:
    """The meaning of the characters in use."""
    known = any(channel.baseline is not None for channel in channels)
    baseline: Line = [("░", "baseline"), (f" {behind}   ", "dim")] if known else []
    return [*baseline, ("█", "live"), (f" {now}", "dim")]


def decade_label(decade: int) -> str:
    """The lower end of a decade of the axis: ``100 ns``, ``1 µs``, ``10 ms``."""
    value, unit = LOW_NS * 10**decade, 0
    while value >= 1000 and unit < 3:
        value, unit = value // 1000, unit + 1
    return f"{value} {('ns', 'µs', 'ms', 's')[unit]}"


def axis_labels(columns: int) -> str:
    """Times at every decade of the axis, or at fewer where they would touch."""
    letters = [" "] * columns
    step = max(1, -(-DECADES * _AXIS_LABEL // columns))
    for decade in range(0, DECADES, step):
        text = f"╵{decade_label(decade)}".replace(" ", "")
        at = round(decade * columns / DECADES)
        if at + len(text) <= columns:
            letters[at : at + len(text)] = list(text)
    return "".join(letters)


def _channel(
    channel: ChannelView,
    plotted: Histogram,
    in_flight_ns: float | None,
    label: int,
    plot: int,
    rows: int,
    figures: int,
    behind: str,
) -> list[Line]:
    heights = _heights(plotted, plot, rows)
    base_heights = np.zeros(plot, dtype=np.int64)
    if channel.baseline is not None:
        base_heights = _baseline_heights(channel.baseline, plot, rows)
    # Eighths of a line by row, the top one first.
    below = np.arange(rows - 1, -1, -1)[:, None] * 8
    # ``np.clip`` takes several times as long for so few.
    now, before = (np.minimum(np.maximum(one - below, 0), 8) for one in (heights, base_heights))
    baseline_only = (now == 0) & (before > 0)
    letters = np.where(baseline_only, "░", _LETTERS[now])
    styles = np.where(now == 0, baseline_only, np.where(before > now, 3, 2))
    if in_flight_ns is not None:
        at = position(in_flight_ns, plot)
        letters[-1, at], styles[-1, at] = "◆", 4
    drawn = runs_of_rows(letters, styles, _STYLES)
    texts = _texts(channel, rows, behind) if figures else []
    out: list[Line] = []
    for number in range(rows):
        name = channel.phase.traits.word if number == rows - 1 else ""
        line: Line = [(f" {name:<{label}}", "dim"), *drawn[number]]
        text = texts[number - (rows - len(texts))] if 0 <= number - (rows - len(texts)) < len(texts) else ""
        if figures:
            line.append((f" {text:<{figures}}", "dim" if text.startswith(behind) else ""))
        out.append(line)
    return out


def _heights(histogram: Histogram, columns: int, rows: int) -> NDArray[np.int64]:
    """Heights in eighths of a line: square roots of counts, at least 1, so that a single slow call is visible."""
    counts = binned(histogram, columns)
    most = counts.max(initial=0)
    if most == 0:
        return np.zeros(len(counts), dtype=np.int64)
    heights = np.ceil(np.sqrt(counts / most) * (rows * 8)).astype(np.int64)
    return np.where(counts > 0, np.maximum(heights, 1), 0)


# A baseline changes once a second at most.
_baseline_heights = lru_cache(32)(_heights)


def _texts(channel: ChannelView, rows: int, behind: str) -> list[str]:
    """Percentiles beside ``rows`` lines; several lines say whether they are of ``behind`` or live."""
    middle = _pair(channel.live, 50, 99)
    if rows == 1:
        return [middle]
    tail = channel.live.percentile_or_none(99.9, TAIL_CALLS)
    highest = short_duration(channel.live.max_ns) if channel.live.count else "–"
    slowest = (f"p99.9 {short_duration(tail)} " if tail is not None else "") + f"max {highest}"
    out = [f"{_LIVE:<5} {middle}", f"{_LIVE:<5} {slowest}"]
    if channel.baseline is not None:
        out.insert(0, f"{behind:<5} {_pair(channel.baseline, 50, 99)}")
    return out[:rows]


def _pair(hist: Histogram, one: float, other: float) -> str:
    return f"p{one:g} {short_duration(hist.percentile(one))} p{other:g} {short_duration(hist.percentile(other))}"


def _host_and_device(channels: list[ChannelView], width: int) -> list[Line]:
    """Host time and GPU time of each operation that has both, and those of its first call."""
    known = {(channel.label, channel.phase): channel for channel in channels}
    if not any(channel.phase is Phase.GPU for channel in channels):
        return []
    out: list[Line] = [
        [(f" {'p50 per operation':<22}{'host':>10}{'GPU':>10}{'first host':>12}{'first GPU':>11}", "dim")]
    ]
    for label in dict.fromkeys(channel.label for channel in channels):
        host, device = known.get((label, Phase.CALL)), known.get((label, Phase.GPU))
        now = [None if channel is None else channel.live.percentile(50) for channel in (host, device)]
        first = [None if channel is None else channel.first_ns for channel in (host, device)]
        hidden = now[0] is not None and now[1] is not None and now[0] > max(3 * now[1], 100_000)
        texts = [duration_ns(ns) for ns in (*now, *first)]
        out.append(
            [
                (f" {padded(cut(label, 21), 22)}{texts[0]:>10}", "warn" if hidden else ""),
                (f"{texts[1]:>10}", ""),
                (f"{texts[2]:>12}{texts[3]:>11}", "dim"),
            ]
        )
    return [fit(line, width) for line in out]
