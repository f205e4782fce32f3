"""Small multiples: the histograms of the victims side by side on one latency axis; where there is no room, of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from textual.reactive import var

from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import ChannelMap
from stallprobes.live.view_model import ChannelView, FocusView
from stallprobes.model import Phase
from stallscope.report.columns import display_width
from stallscope.tui.common.histograms import (
    LABEL,
    MOST_LINES,
    HistogramsView,
    histogram_lines,
    host_and_device,
    legend_runs,
    lines_of_each,
    live_histogram,
    window_text,
)
from stallscope.tui.common.lines import (
    Line,
    LineWidget,
    Targets,
    cut,
    fit,
    length,
    short_duration,
    short_ratio,
    spread,
)
from stallscope.tui.common.plots import axis_labels, bar_lines, bars

# _LEAST_COLUMNS: smallest width (columns) of a plot; a narrower plot is not drawn. _ENOUGH_COLUMNS: width (columns)
# above which a plot shows no more detail. The choice of the grid counts a wider plot as a plot of this width.
_LEAST_COLUMNS, _ENOUGH_COLUMNS = 27, 56
# _HEAD_LINES: number of lines of a plot for title, figures and axis. _ENOUGH_LINES: height (lines) above which a plot
# shows no more detail. The choice of the grid counts a higher plot as a plot of this height.
_HEAD_LINES, _ENOUGH_LINES = 3, 14
# Number of measured times (call, wait, due) for which a plot's smallest height has room; a victim seldom has more.
_USUAL_PHASES = 3
# Assumed height (lines) of a victim's plot, from which the panel computes how many plots have room. A plot with fewer
# measured times than _USUAL_PHASES may be lower.
_LEAST_LINES = _HEAD_LINES + _USUAL_PHASES
# Smallest height (lines) of the bars of each measured time at which a plot keeps a line for the baseline's figures.
# Reason: lower bars have no visible shape. With lower bars, a plot shows the figures only if the bars leave a line
# free.
_HIGH = 3
# The panel shows several victims if at least this number of plots have room, in all rows together. With less room, the
# panel shows the histogram of a single victim, with all figures.
_LEAST_PLACES = 3
# Width (columns) of the names of the measured times (call, wait, …) at the left of a row of plots.
_BEFORE = LABEL + 1
# Blanks before the note behind the legend.
_LEGEND_GAP = "   "


@dataclass(frozen=True, eq=False)
class MultiplesView:
    """The histograms of ``focus``, or ``plots`` side by side with ``focus`` among them.

    ``notes`` say why the probe has the focus, the longest text first; ``keys`` are the keys of the probes. ``live`` are
    later histograms by probe: plots move with every frame, figures change with ``plots``, so that they can be read.
    ``stalled`` names the stall before a remedy.
    """

    focus: FocusView | None = None
    plots: tuple[FocusView, ...] = ()
    notes: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    live: Mapping[str, ChannelMap] = field(default_factory=dict)
    stalled: str = ""


@dataclass(frozen=True, kw_only=True)
class PlotGrid:
    """A grid of plots: ``across`` of them in a row, each of ``columns`` columns and ``lines`` lines."""

    across: int
    columns: int
    lines: int


def places(width: int, height: int) -> int:
    """The number of probes whose histograms have room side by side in a panel of this size; 1 for one histogram."""
    across = (width - _BEFORE + 1) // (_LEAST_COLUMNS + 1)
    count = across * ((height - 1) // _LEAST_LINES)
    return count if count >= _LEAST_PLACES else 1


def grid(count: int, phases: int, width: int, height: int) -> PlotGrid | None:
    """The grid of ``count`` plots with ``phases`` phases that has the largest plots; None where none has room."""
    best, largest = None, 0
    for across in range(1, count + 1):
        columns, lines = (width - _BEFORE + 1) // across - 1, height // -(-count // across)
        if columns < _LEAST_COLUMNS or lines < _HEAD_LINES + phases:
            continue
        size = min(columns, _ENOUGH_COLUMNS) * min(lines, _ENOUGH_LINES)
        if size > largest:
            best, largest = PlotGrid(across=across, columns=columns, lines=lines), size
    return best


class Multiples(LineWidget):
    """Draws the histograms of one probe, or of several side by side; the target of a click is a probe's name."""

    view = var(MultiplesView())

    @property
    def places(self) -> int:
        """The number of probes that have room."""
        return places(*self.size)

    def lines(self, width: int, height: int) -> list[Line]:
        """The plots side by side; of one probe title, some lines for each phase, axis, and a legend where it fits."""
        view = self.view
        self.targets = []
        if view.focus is None:
            return []
        # The times of each operation have room beside one histogram only.
        if len(view.plots) > 1 and not host_and_device(view.focus.channels, width):
            phases = _phases(view.plots)
            # The last line is the legend.
            cells = grid(len(view.plots), len(phases), width, height - 1)
            if cells is not None:
                return self._side_by_side(cells, phases, width)
        row = view.focus.row
        live = view.live.get(row.name)
        alone = HistogramsView(row, view.focus.channels, stalled=view.stalled, notes=view.notes, live=live)
        return histogram_lines(alone, width, height)

    def _side_by_side(self, cells: PlotGrid, phases: Sequence[Phase], width: int) -> list[Line]:
        out: list[Line] = []
        for first in range(0, len(self.view.plots), cells.across):
            row = self.view.plots[first : first + cells.across]
            lines = _row_lines(self.view, row, phases, cells)
            spans: Targets = []
            for number, plot in enumerate(row):
                begin = _BEFORE + number * (cells.columns + 1)
                spans.append((begin, begin + cells.columns, plot.row.name))
            self.targets += [spans] * len(lines)
            out += lines
        return [*out, _legend(self.view, width)]


def _phases(plots: Sequence[FocusView]) -> tuple[Phase, ...]:
    """The phases with a plot, in their order."""
    phases = {channel.phase for plot in plots for channel in plot.channels if not channel.label}
    return tuple(phase for phase in Phase if phase in phases)


def _row_lines(view: MultiplesView, row: Sequence[FocusView], phases: Sequence[Phase], cells: PlotGrid) -> list[Line]:
    """The lines of the plots of ``row``: titles, figures, some lines for each phase, and the axis."""
    room = cells.lines - _HEAD_LINES
    # The baseline's figures have a line where high plots are left, or where plots leave one.
    heads = 3 if lines_of_each(room - 1, len(phases), MOST_LINES)[0] >= _HIGH else 2
    each, between = lines_of_each(room - (heads - 2), len(phases), MOST_LINES) if phases else (0, 0)
    titles: list[list[Line]] = [_titles(plot, view, cells.columns) for plot in row]
    if room > each * len(phases) + between * (len(phases) - 1):
        heads = 3
    out: list[Line] = [
        [(" " * _BEFORE, ""), *_joined([fit(title[number], cells.columns) for title in titles])]
        for number in range(heads)
    ]
    if phases:
        plotted = _plot_lines(view, row, phases, cells.columns, each)
        for number in range(len(phases)):
            out += [*([[]] * between if number else []), *plotted[number * each : (number + 1) * each]]
    axes = " ".join([axis_labels(cells.columns)] * len(row))
    return [*out, [(" " * _BEFORE + axes, "dim")]]


def _plot_lines(
    view: MultiplesView, row: Sequence[FocusView], phases: Sequence[Phase], columns: int, each: int
) -> list[Line]:
    """``each`` lines for each of ``phases`` with the plots of ``row`` side by side, all drawn in one pass."""
    channels = [_channel(plot, phase) for phase in phases for plot in row]
    lives = [view.live.get(plot.row.name) for _ in phases for plot in row]
    letters, styles = bars(
        [
            Histogram.empty() if channel is None else live_histogram(channel, live)
            for channel, live in zip(channels, lives, strict=True)
        ],
        [None if channel is None else channel.baseline for channel in channels],
        [plot.row.in_flight_ns if phase is Phase.CALL else None for phase in phases for plot in row],
        columns,
        each,
        [None if channel is None else channel.stalled for channel in channels],
    )
    shape = (len(phases), len(row), each, columns)
    wide = np.full((len(phases), each, len(row), columns + 1), " ")
    wide[..., :-1] = letters.reshape(shape).swapaxes(1, 2)
    styled = np.zeros(wide.shape, dtype=np.int64)
    styled[..., :-1] = styles.reshape(shape).swapaxes(1, 2)
    lines = len(phases) * each
    # Without the blank after the last plot.
    drawn = bar_lines(wide.reshape(lines, -1)[:, :-1], styled.reshape(lines, -1)[:, :-1])
    out: list[Line] = []
    for number, line in enumerate(drawn):
        name = phases[number // each].traits.word if number % each == each - 1 else ""
        out.append([(f" {cut(name, LABEL):<{LABEL}}", "dim"), *line])
    return out


def _joined(parts: Sequence[Line]) -> Line:
    """The parts in one line with a blank between them."""
    return [run for part in parts for run in (*part, (" ", ""))][:-1]


def _channel(plot: FocusView, phase: Phase) -> ChannelView | None:
    return next((channel for channel in plot.channels if channel.phase is phase and not channel.label), None)


def _titles(plot: FocusView, view: MultiplesView, columns: int) -> list[Line]:
    """Title and state; the figures of the phase with the worst verdict; those of its baseline."""
    row = plot.row
    focused = view.focus is not None and row.name == view.focus.row.name
    state = cut(row.state, columns // 2)
    key = view.keys.get(row.name, " ")
    name = cut(row.name, columns - display_width(state) - 5)
    mark = f"focus-{row.mark}" if row.mark in ("bad", "warn") else row.mark
    head: Line = [("▸" if focused else " ", "accent"), (key, "key"), (f" {name}", "strong")]
    bad = row.mark in ("bad", "warn")
    ratio = f" ×{short_ratio(row.ratio)}" if row.ratio and bad else ""
    word = "" if row.phase is None else row.phase.traits.word
    if row.in_flight_ns is not None:
        texts = [f"in flight {short_duration(row.in_flight_ns)}{ratio}"]
    else:
        pair = f"p50 {short_duration(row.p50_ns)} p99 {short_duration(row.p99_ns)}{ratio}"
        texts = [f"{word} {pair}".lstrip(), pair]
    known = None if row.phase is None else _channel(plot, row.phase)
    if known is not None and known.stalled is not None and row.baseline_ns:
        was_ns = known.stalled.percentile(50) or 0.0
        texts.insert(0, f"{texts[0]}  was p50 {short_duration(was_ns)} ×{short_ratio(was_ns / row.baseline_ns)}")
    base: Line = []
    if known is not None and known.baseline is not None:
        p50, p99 = (short_duration(known.baseline.percentile(q)) for q in (50, 99))
        base = [(f" {_first_that_fits((f'base p50 {p50} p99 {p99}', f'base {p50} {p99}'), columns - 1)}", "dim")]
    return [
        spread(head, [(state, mark)], columns),
        [(f" {_first_that_fits(texts, columns - 1)}", row.mark if bad else "")],
        base,
    ]


def _first_that_fits(texts: Sequence[str], width: int) -> str:
    """The first of ``texts`` that has room, else the last one, cut."""
    return next((text for text in texts if display_width(text) <= width), cut(texts[-1], width))


def _legend(view: MultiplesView, width: int) -> Line:
    """The meaning of the characters in use, and why the focus is the focus."""
    channels = [channel for plot in view.plots for channel in plot.channels]
    periods = {window_text(plot.row.period_ns) for plot in view.plots}
    line: Line = [
        (" " * _BEFORE, ""),
        *legend_runs(channels, periods.pop() if len(periods) == 1 else "now", stalled=view.stalled),
    ]
    room = width - length(line) - len(_LEGEND_GAP) - 2
    note = next((note for note in view.notes if display_width(note) <= room), "")
    return [*line, (_LEGEND_GAP, ""), ("▸ ", "accent"), (note, "dim")] if note else line
