"""The heat map: latency over time of the focused probe, with a mark at each switch, above the GPU's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray
from textual.reactive import var

from stallprobes.live.history import BINS, DECADES, PER_DECADE, position
from stallprobes.live.view_model import FocusView
from stallscope.report.columns import by_column, display_width
from stallscope.tui.common.lines import BLOCKS, SHADES, Line, LineWidget, Run, cut, runs_of_rows, short_duration
from stallscope.tui.common.plots import decade_label
from stallscope.tui.common.verdict_lines import keyed
from stallscope.tui.monitor.probe_table import probe_keys

# Width (columns) of the row labels of the heat map.
LABEL = 8
# Width (columns) of the figures at the right of the heat map.
FIGURE = 8
# Smallest width (columns) of a panel that shows figures at the right of the heat map.
_FIGURES_FROM = 64
# Decades of the latency axis, counted from 100 ns: the first one, and the one after the last.
Decades = tuple[int, int]
# Decades of the heat map's latency axis at the start, in the form of Decades: 1 µs to 100 ms. Any call above 100 ms
# widens the axis. Calls below 1 µs widen the axis only if more than 1 % of all calls are below 1 µs.
FIRST_DECADES: Decades = (1, 6)
# Largest number of heat map rows for each factor of 10 on the latency axis.
_MOST_PARTS = 4
# Smallest height (lines) of the heat map's panel that shows the GPU's values and the time axis.
_WITH_AXIS = 8
# Smallest height (lines) of the heat map's panel that shows a row for the GPU's power.
_WITH_POWER = 16
# Characters of the heat map's cells, by the level of calls per second: 0 for no calls, higher levels for more calls.
_LETTERS = np.array(list(SHADES))
# Styles of a heat map cell: without calls, with usual calls, with slow calls, with a call in flight.
_STYLES = ("faint", "heat", "hot", "bad")
# Styles in the line above the heat map: of a blank, of a mark with its text, of the name of a probe, of a remark.
_TITLE_STYLES = ("", "accent", "strong", "dim")
# Indices into _TITLE_STYLES.
_MARK, _NAME, _REMARK = 1, 2, 3
# Shortest average time (s) between two moves of the heat map to the left. If a column spans less time, a move can be by
# several columns. Reason: each move sends the whole map to the terminal.
_MOVES_S = 0.8
# Largest room (columns), above a probe's part of the heat map, that shows only the probe's key. A larger room shows the
# key and the name, cut to the size of the room.
_KEY_ONLY = 3
# Remarks in the line above the heat map. _BASELINE: remark where the baseline of a new set of probes is measured.
# _RECORDED: remark while the timeline records the driver calls, which makes the calls longer.
_BASELINE, _RECORDED = "baseline", " ●rec"


class HeatMap(LineWidget):
    """Draws the last minute of ``view``, the newest column at the right."""

    view = var[FocusView | None](None)

    def __init__(self, remedy_key: str, *, id: str | None = None) -> None:
        """``remedy_key`` is the key that measures a remedy."""
        super().__init__(id=id)
        self._remedy_key = remedy_key
        self._decades = FIRST_DECADES

    def watch_view(self, before: FocusView | None, after: FocusView | None) -> None:
        """Draw when a column is complete, and when anything but its counts changed."""
        if before is None or after is None or _drawn_once(before) != _drawn_once(after):
            self.redraw()

    def lines(self, width: int, height: int) -> list[Line]:
        """A line for stretches and marks, the map, the GPU's values and the time axis."""
        if self.view is None or height < 3:
            return []
        # The axis widens when calls leave it, and does not narrow, since it would jump when they come back.
        self._decades = widened(self.view, self._decades)
        return heat_lines(self.view, width, height, self._decades, self._remedy_key)

    @property
    def columns(self) -> int:
        """Number of columns of the time axis."""
        return columns_of(self.size.width)


def columns_of(width: int) -> int:
    """Number of columns of the time axis in a panel of ``width`` columns."""
    return max(1, width - LABEL - 1 - (FIGURE if width >= _FIGURES_FROM else 0))


def _drawn_once(focus: FocusView) -> object:
    """A value that changes whenever the map must be drawn again."""
    unjudged = focus.channels and focus.channels[0].baseline is None
    # Each movement sends the whole map to the terminal: of narrow columns several move at once.
    moves = int(focus.first * focus.column_s / _MOVES_S)
    marks = [(focus.first + column, text) for column, text in focus.marks]
    stretches = [(focus.first + stretch.first, stretch.name, stretch.relation) for stretch in focus.stretches]
    return focus.row.name, moves, marks, stretches, unjudged, focus.recorded


def widened(view: FocusView, decades: Decades) -> Decades:
    """``decades``, widened to the slowest call of ``view`` and to all but the fastest hundredth of its calls."""
    counts = view.heat.sum(axis=0).cumsum()
    aged = [position(float(ns), BINS) for ns in view.ages_ns if ns]
    if not len(counts) or not (counts[-1] or aged):
        return decades
    fastest = int(counts.searchsorted(counts[-1] // 100, side="right"))
    slowest = max(int(counts.searchsorted(counts[-1])), *aged, 0)
    return min(decades[0], fastest // PER_DECADE), max(decades[1], slowest // PER_DECADE + 1)


def heat_lines(
    view: FocusView, width: int, height: int, decades: Decades = FIRST_DECADES, remedy_key: str = ""
) -> list[Line]:
    """The map of ``decades`` in ``height`` lines: darker cells have more calls per second. Cells above three times the
    baseline's p99 have another color."""
    columns = len(view.heat)
    below: list[Line] = []
    if height >= _WITH_AXIS:
        below = [*_gpu_lines(view, width, height), _time_axis(columns, columns * view.column_s)]
    recorded: Line = [(_RECORDED, "accent")] if view.recorded else []
    out: list[Line] = [[(" " * LABEL + "│", "faint"), *_titles(view, columns, remedy_key), *recorded]]
    room = height - len(out) - len(below)
    if room < 1:
        return [*out, *below]
    bounds = _bounds(decades, room)
    rows = len(bounds) - 1
    labels = _labels(bounds)
    ruled = _ruled(view, columns)
    out += [[(" " * LABEL + "│" + "".join(ruled), "faint")]] * (room - rows)
    # The step of each column's oldest call in flight.
    where = np.array([position(float(ns), BINS) if ns else -1 for ns in view.ages_ns], dtype=np.int64)
    # Rates, not counts: a column in progress, or observed for part of its time, is as dark as its neighbors.
    seconds = np.where(view.observed_s > 0, view.observed_s, view.column_s) if len(view.observed_s) else view.column_s
    steps = np.cumsum(view.heat, axis=1, dtype=np.int64)
    steps = np.concatenate((np.zeros((columns, 1), dtype=np.int64), steps), axis=1)
    # The top line first.
    lows, highs = np.array([*bounds[-2:0:-1], 0]), np.array(bounds[:0:-1])
    level = _shades((steps[:, highs] - steps[:, lows]).T / seconds)
    in_flight = (where >= lows[:, None]) & (where < highs[:, None])
    letters = np.where(in_flight, "◆", np.where(level == 0, ruled, _LETTERS[level]))
    letters[-1] = np.where((letters[-1] == " ") & _starting(view, columns), "·", letters[-1])
    loud = lows[:, None] >= _slow_steps(view, columns)
    styles = np.where(in_flight, 3, np.where(level > 0, np.where(loud, 2, 1), 0))
    figures = _figures(view, lows, highs) if width >= _FIGURES_FROM else [("", "")] * rows
    for label, line, figure in zip(labels, runs_of_rows(letters, styles, _STYLES), figures, strict=True):
        out.append([(f"{label:>{LABEL - 1}} │", "dim"), *line, figure])
    return [*out, *below]


def _bounds(decades: Decades, room: int) -> list[int]:
    """The steps of the axis between the rows, in at most ``room`` rows, each a whole number of decades or an equal part
    of one, so that labels step evenly. Lines that would stay empty show more of the axis."""
    low, high = decades
    if room < 2 * (high - low):
        high = min(DECADES, max(high, low + room))
        low = max(0, min(low, high - room))
    if room < high - low:
        each = -(-(high - low) // room)
        return [min(step, DECADES) * PER_DECADE for step in range(low, high + each, each)]
    parts = min(room // (high - low), _MOST_PARTS)
    high = min(DECADES, low + room // parts)
    return [round(low * PER_DECADE + i * PER_DECADE / parts) for i in range((high - low) * parts + 1)]


def _ruled(view: FocusView, columns: int) -> NDArray[np.str_]:
    """The letters of an empty row: a stroke at each switch, a line at each change of the probes."""
    letters = np.full(columns, " ")
    letters[[column for column, _ in view.marks if 0 <= column < columns]] = "▏"
    letters[
        [stretch.rule for stretch in view.stretches if stretch.rule is not None and 0 <= stretch.rule < columns]
    ] = "│"
    return letters


def _starting(view: FocusView, columns: int) -> NDArray[np.bool_]:
    """The columns between two probe sets, in which nothing was measured."""
    starting = np.zeros(columns, dtype=bool)
    for stretch in view.stretches[1:]:
        if stretch.rule is not None:
            starting[max(stretch.rule, 0) : max(stretch.first, 0)] = True
    return starting


def _figures(view: FocusView, lows: NDArray[np.int64], highs: NDArray[np.int64]) -> list[Run]:
    """The figures beside the rows: the p50 of the last second, of a slow call where its baseline is, and where it was
    before a remedy."""
    row = view.row
    runs: dict[int, Run] = {}
    slow: Run = (" quiet", "dim")
    for ns, run in (
        (row.p50_ns, (f" {short_duration(row.p50_ns)}", "bad" if row.mark == "bad" else "")),
        (row.baseline_ns if row.mark == "bad" else None, slow),
        (view.was_ns, (" was", "ghost")),
    ):
        at = -1 if ns is None else position(ns, BINS)
        place = next(
            (number for number, (low, high) in enumerate(zip(lows, highs, strict=True)) if low <= at < high), -1
        )
        runs.setdefault(place, run)
    return [runs.get(number, ("", "")) for number in range(len(lows))]


def _gpu_lines(view: FocusView, width: int, height: int) -> list[Line]:
    """A row of blocks for each value of the GPU that is known, with its last figure; power where there is room."""
    out: list[Line] = []
    starting = _starting(view, len(view.heat))
    *rows, limits = view.gpu
    for values, (name, style, text, most) in zip(rows, _GPU_ROWS, strict=True):
        known = values[np.isfinite(values)]
        if not len(known) or (name == "power" and height < _WITH_POWER):
            continue
        share = 100 * values / (most or max(float(known.max()), *limits[np.isfinite(limits)].tolist(), 1.0))
        steps = np.where(share >= 1, np.minimum(1 + share * len(BLOCKS[1:]) // 101, len(BLOCKS) - 1), 0)
        nothing = starting & ~np.isfinite(values)
        letters = "".join("·" if gap else BLOCKS[int(step)] for step, gap in zip(steps, nothing, strict=True))
        figure = f" {text(float(known[-1]))}" if width >= _FIGURES_FROM else ""
        out.append([(f"{name:>{LABEL - 1}} │", "dim"), (letters, style), (figure, "")])
    return out


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


# Rows of GPU values below the heat map, one for each of GPU_VALUES except the power limit. A row has: name, style,
# function that makes the text of the latest value, value of a full bar. None as the value of a full bar: the larger of
# the power limit and the highest power.
_GPU_ROWS: tuple[tuple[str, str, Callable[[float], str], float | None], ...] = (
    ("util", "heat", _percent, 100.0),
    ("SM act.", "active", _percent, 100.0),
    ("power", "dim", lambda watts: f"{watts:.0f} W", None),
)


def _time_axis(columns: int, span_s: float) -> Line:
    """Labels of quarters of the span, the newest moment at the right."""
    letters = [" "] * columns
    for quarter in range(4):
        at = columns * quarter // 4
        text = f"╵-{span_s * (4 - quarter) / 4:.0f} s"
        if at + len(text) < (columns * (quarter + 1) // 4 if quarter < 3 else columns - 5):
            letters[at : at + len(text)] = text
    if columns > len("now╵"):
        letters[-4:] = "now╵"
    return [(" " * (LABEL + 1), ""), ("".join(letters), "dim")]


def _shades(per_second: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for no call; 1 to 4 for up to 46, 215, 1000 calls per second, and more."""
    level = 1 + 1.5 * (np.log10(np.maximum(per_second, 1e-9)) - 1)
    return np.where(per_second > 0, np.clip(level, 1, len(SHADES) - 1), 0).astype(np.int64)


def _slow_steps(view: FocusView, columns: int) -> NDArray[np.int64]:
    """The step from which calls are slow, of each column by the baseline of its probe set; above all without one."""
    steps = np.full(columns, BINS if view.slow_ns is None else position(view.slow_ns, BINS), dtype=np.int64)
    earlier = view.earlier_slow_ns
    steps[: len(earlier)] = [BINS if np.isnan(ns) else position(float(ns), BINS) for ns in earlier]
    return steps


def _labels(bounds: list[int]) -> list[str]:
    """The decade that begins in each row, the top row first."""
    return [decade_label(low // PER_DECADE) if low % PER_DECADE == 0 else "" for low in bounds[-2::-1]]


def _titles(view: FocusView, columns: int, remedy_key: str) -> Line:
    """The probe of each stretch with, if there is room, a remark on its baseline; and the switches. Of overlapping
    texts only the newer one is written."""
    letters, styles = np.full((1, columns), " "), np.zeros((1, columns), dtype=np.int64)

    def free(begin: int, end: int) -> bool:
        return begin >= 0 and end <= columns and not styles[0, begin:end].any()

    def write(text: str, begin: int, style: int) -> None:
        places = by_column(text)
        letters[0, begin : begin + len(places)], styles[0, begin : begin + len(places)] = places, style

    for stretch in view.stretches:
        if stretch.rule is not None and free(stretch.rule, stretch.rule + 1):
            write("│", stretch.rule, _MARK)
    for number, stretch in reversed(list(enumerate(view.stretches))):
        begin = max(stretch.first, 0) if stretch.rule is None else max(stretch.rule + 1, 0)
        later = view.stretches[number + 1].rule if number + 1 < len(view.stretches) else None
        end = columns if later is None else later
        marks = [(at, text) for at, text in view.marks if max(stretch.first, 0) <= at < end]
        keys_of = probe_keys(stretch.probe_set)
        key = keys_of.get(stretch.name, "").strip()
        name = f"{key} {stretch.name}".strip()
        remedy = f"{remedy_key} {name}: {stretch.relation}".strip() if stretch.relation else ""
        title_end = begin
        if remedy and begin < end:
            # What is compared matters more than when the same aggressor came on again.
            text = cut(remedy, end - begin)
            write(text, begin, _NAME)
            title_end = begin + display_width(text)
        for at, text in reversed(marks):
            switched, _, state = text.rpartition(" ")
            _write_mark((f"{keyed(switched, keys_of)} {state}".lstrip(), text), at, end, free, write)
        if not remedy and begin < end:
            # One blank before a mark.
            room = next((at - 1 for at in range(begin, end) if styles[0, at]), end) - begin
            text = cut(name, room) if room > _KEY_ONLY else key if room > 0 else ""
            write(text, begin, _NAME)
            title_end = begin + display_width(text)
        first = min((at for at, _ in marks), default=end)
        known = stretch.rule is not None and stretch.rule >= 0
        if known and title_end + 2 + len(_BASELINE) < first and free(title_end, title_end + 2 + len(_BASELINE)):
            write(_BASELINE, title_end + 2, _REMARK)
    return runs_of_rows(letters, styles, _TITLE_STYLES)[0]


def _write_mark(
    texts: Iterable[str],
    column: int,
    end: int,
    free: Callable[[int, int], bool],
    write: Callable[[str, int, int], None],
) -> None:
    """A stroke beside the first of ``texts`` that has room, at its right or near ``end`` at its left; else the stroke
    alone."""
    for text in texts:
        wide = display_width(text)
        mark, begin = (f"▏{text}", column) if column + wide + 1 <= end else (f"{text}▏", column - wide)
        # One more column at each end, so that two texts do not touch.
        if free(begin - (begin < column), min(begin + wide + 2, end)):
            write(mark, begin, _MARK)
            return
    if free(column, column + 1):
        write("▏", column, _MARK)
