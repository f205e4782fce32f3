"""The histograms panel: one plot for each phase, the baseline behind the live values, on one fixed time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import ChannelMap
from stallprobes.live.view_model import ChannelView, ProbeRow
from stallprobes.live.windows import extended_ns
from stallprobes.model import Channel, Phase
from stallprobes.units import duration_ns
from stallscope.report.columns import display_width, padded
from stallscope.tui.common.lines import Line, cut, fit, length, short_duration, short_ratio, spread
from stallscope.tui.common.plots import axis_labels, bar_lines, bars

# Smallest width (columns) of the name of a measured time (call, wait, …) before its plot.
_LABEL = 6
# FIGURES_IN_A_LINE: width (columns) of the figures at the right of a plot of one line. FIGURES: width (columns) of the
# figures at the right of a higher plot.
FIGURES_IN_A_LINE, FIGURES = 22, 30
# Heights (lines) of histograms. _TALL: smallest height of a panel that counts as tall. _MOST_TALL_LINES: largest height
# of one plot in a tall panel. _MOST_LINES: largest height of one plot in a lower panel.
_MOST_LINES, _MOST_TALL_LINES, _TALL = 8, 14, 36
# Smallest number of calls for which p99.9 is shown: of fewer calls, p99.9 is the maximum.
TAIL_CALLS = 1000
# Words before the figures beside a plot. _LIVE: word for the latest calls, and for those of a check's cell. _WAS: word
# for the calls that were measured before the remedy of a stall was loaded.
_LIVE, _WAS = "now", "was"
# Names of the baseline's histogram, which is drawn behind the live histogram: short beside the plot, long in the
# legend.
BASELINE = ("base", "baseline")


@dataclass(frozen=True)
class HistogramsView:
    """Histograms of a probe, or of another object with a probe's state; the title is the name of ``row``.

    ``now`` describes the live histograms in the legend, "" for the last second; ``behind`` the histograms behind them,
    ``stalled`` the histograms of the stall before a remedy. ``notes`` say why it is shown, the longest one first: the
    first that fits follows the title. ``live`` are later histograms of the same object: the plots move with every
    frame, the figures beside them change with ``channels``, so that they can be read.
    """

    row: ProbeRow
    channels: tuple[ChannelView, ...]
    now: str = ""
    behind: tuple[str, str] = BASELINE
    stalled: str = ""
    notes: tuple[str, ...] = ()
    live: ChannelMap | None = None

    @property
    def now_text(self) -> str:
        """Description of the live histograms."""
        return self.now or window_text(self.row.period_ns)

    @property
    def state_text(self) -> str:
        """The state, with the ratio where it is bad."""
        row = self.row
        return f"{row.state} ×{short_ratio(row.ratio)}" if row.ratio and row.mark in ("bad", "warn") else row.state


def window_text(period_ns: int) -> str:
    """The time that the live histograms of a probe show: longer for one with a long period."""
    length_ns = extended_ns(period_ns)
    return f"last {length_ns / 1e9:.0f} s" if length_ns else "last second"


def histogram_lines(view: HistogramsView | None, width: int, height: int) -> list[Line]:
    """Title of ``view``, some lines for each phase, axis, and a legend where it fits; nothing without a view."""
    if view is None:
        return []
    phases = [channel for channel in view.channels if not channel.label]
    table = host_and_device(view.channels, width)
    if not phases or height < 4:
        return [spread(*_title(view, width), width)]
    room = height - 2 - len(table)
    if room < len(phases):
        table, room = [], height - 2
    phases = phases[: max(room, 1)]
    runs = legend_runs(phases, view.now_text, view.behind[1], view.stalled)
    most = _MOST_LINES if height < _TALL else _MOST_TALL_LINES
    title, state = _title(view, width)
    # The legend has a line of its own where that costs the plots none, else the rest of the title's.
    below = room - len(phases) >= 2
    if length(title) + length(runs) + length(state) + 5 <= width:
        below = below and lines_of_each(room - 1, len(phases), most)[0] == lines_of_each(room, len(phases), most)[0]
        title += [] if below else [("  ", ""), *runs]
    each, between = lines_of_each(room - below, len(phases), most)
    out = [spread(title, state, width)]
    figures = (FIGURES_IN_A_LINE if each == 1 else FIGURES) if width >= 64 else 0
    label = max(_LABEL, *(len(channel.phase.traits.word) + 1 for channel in phases))
    plot = max(10, width - label - 1 - figures - 1)
    letters, styles = bars(
        [live_histogram(channel, view.live) for channel in phases],
        [channel.baseline for channel in phases],
        [view.row.in_flight_ns if channel.phase is Phase.CALL else None for channel in phases],
        plot,
        each,
        [channel.stalled for channel in phases],
    )
    drawn = bar_lines(letters.reshape(-1, plot), styles.reshape(-1, plot))
    for number, channel in enumerate(phases):
        plotted = drawn[number * each : (number + 1) * each]
        out += [[]] * between if number else []
        out += _beside_plot(channel, plotted, label, figures, view.behind[0])
    out.append([(" " * (label + 1), ""), (axis_labels(plot), "dim")])
    out += table
    if below:
        out.append([(" " * (label + 1), ""), *runs])
    return out


def lines_of_each(room: int, phases: int, most: int) -> tuple[int, int]:
    """The lines of each plot of ``phases`` in ``room`` lines, ``most`` at most, and of the space between two of them.

    Plots whose bars touch would look like one plot.
    """
    between = int(room >= 2 * phases - 1)
    return min(most, max(1, (room - between * (phases - 1)) // max(phases, 1))), between


def _title(view: HistogramsView, width: int) -> tuple[Line, Line]:
    """The title with why the object is shown, and its state."""
    state = view.state_text
    right = [(f"{state} ", view.row.mark)]
    title: Line = [(" ", ""), (cut(view.row.name, width - display_width(state) - 3), "strong")]
    room = width - length(title) - length(right) - 3
    note = next((note for note in view.notes if display_width(note) <= room), "")
    return [*title, (f"  {note}", "dim")] if note else title, right


def live_histogram(channel: ChannelView, live: ChannelMap | None) -> Histogram:
    """The histogram of ``channel`` in ``live``, else its own."""
    return channel.live if live is None else live.get(Channel(channel.phase), channel.live)


def legend_runs(channels: Sequence[ChannelView], now: str, behind: str = BASELINE[1], stalled: str = "") -> Line:
    """The meaning of the characters in use."""
    has_baseline = any(channel.baseline is not None for channel in channels)
    line: Line = [("░", "baseline"), (f" {behind}   ", "dim")] if has_baseline else []
    if any(channel.stalled is not None for channel in channels):
        line += [("▒", "ghost"), (f" stalled: {stalled}   ", "dim")]
    return [*line, ("█", "live"), (f" {now}", "dim")]


def _beside_plot(channel: ChannelView, plotted: Sequence[Line], label: int, figures: int, behind: str) -> list[Line]:
    """The lines of a plot with the phase before them and its figures after them."""
    rows = len(plotted)
    texts = _texts(channel, rows, behind) if figures else []
    out: list[Line] = []
    for number, drawn in enumerate(plotted):
        name = channel.phase.traits.word if number == rows - 1 else ""
        line: Line = [(f" {name:<{label}}", "dim"), *drawn]
        text = texts[number - (rows - len(texts))] if 0 <= number - (rows - len(texts)) < len(texts) else ""
        if figures:
            line.append(
                (f" {text:<{figures}}", "dim" if text.startswith(behind) else "ghost" if text.startswith(_WAS) else "")
            )
        out.append(line)
    return out


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
    if channel.stalled is not None:
        out.insert(-1, f"{_WAS:<5} {_pair(channel.stalled, 50, 99)}")
    return out[:rows]


def _pair(hist: Histogram, low: float, high: float) -> str:
    return f"p{low:g} {short_duration(hist.percentile(low))} p{high:g} {short_duration(hist.percentile(high))}"


def host_and_device(channels: Sequence[ChannelView], width: int) -> list[Line]:
    """Host time and GPU time of each operation with both, also of its first call; empty without one."""
    channels = [channel for channel in channels if channel.label]
    by_phase = {(channel.label, channel.phase): channel for channel in channels}
    if not any(channel.phase is Phase.GPU for channel in channels):
        return []
    out: list[Line] = [
        [(f" {'p50 per operation':<22}{'host':>10}{'GPU':>10}{'first host':>12}{'first GPU':>11}", "dim")]
    ]
    for label in dict.fromkeys(channel.label for channel in channels):
        host, device = by_phase.get((label, Phase.CALL)), by_phase.get((label, Phase.GPU))
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
