"""The panel of aggressors beside a watched program: its steps over time, and a row for each aggressor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stallprobes.catalog import beside_programs
from stallprobes.units import duration_ns
from stallprobes.watch.beside.result import BesideResult, BesideRow
from stallprobes.watch.beside.turn_statistics import NO_TURN
from stallprobes.watch.beside_text import change_text, factor_text, grown_label, interval_text
from stallprobes.watch.live.beside_trial import BesideMoment
from stallscope.report.columns import display_width, padded, wrapped
from stallscope.tui.actions import AGGRESSOR_KEYS
from stallscope.tui.common.lines import Line, cut, rule

# Time (ns) that the strip of steps shows.
_SPAN_NS = 60_000_000_000
# Characters of the strip by height.
_HEIGHTS = "▁▂▃▄▅▆▇█"
# Columns of the strip's label, and of the figure behind it.
_LABEL, _FIGURE = 9, 9
# Widths (columns) of a row's cells behind the name: turns, p50, p99, ratio, interval.
_CELLS = (4, 17, 17, 7, 12)
_NAME = 18


@dataclass(frozen=True, eq=False)
class BesideView:
    """Effects of aggressors, and what a trial does now; None for neither, as in a recording."""

    result: BesideResult | None = None
    present: BesideMoment | None = None
    now_ns: int = 0

    @property
    def rows(self) -> list[tuple[str, BesideRow, bool]]:
        """The key of each aggressor that was tried or is chosen, its effect, and whether it is chosen."""
        known = {} if self.result is None else {row.aggressor: row for row in self.result.rows}
        chosen = () if self.present is None else self.present.chosen
        return [
            (key, known.get(name) or BesideRow(aggressor=name, reason=NO_TURN), name in chosen)
            for name, key in zip(beside_programs(), AGGRESSOR_KEYS, strict=False)
            if name in known or name in chosen
        ]

    @property
    def others(self) -> str:
        """The other aggressors with their keys; "" in a recording."""
        tried = {row.aggressor for _, row, _ in self.rows}
        named = zip(beside_programs(), AGGRESSOR_KEYS, strict=False)
        texts = [f"{key} {name}" for name, key in named if name not in tried]
        return f"not tried: {', '.join(texts)}" if texts and self.present is not None else ""


def beside_lines(view: BesideView, width: int, height: int) -> list[Line]:
    """A title, the strip of steps, and as many rows as fit."""
    out: list[Line] = [rule("beside the program", width, _state(view))]
    if view.present is not None and len(view.present.begins) > 2 and height >= 5:
        out += _strip(view.present, view.now_ns, width)
    out += [_row(key, row, chosen, view, width) for key, row, chosen in view.rows]
    out += [[(f" {part}", "dim")] for part in wrapped(view.others, max(width - 2, 20), indent="  ")]
    if len(out) == 1:
        out.append([(" no aggressor ran beside it", "dim")])
    return out[:height]


def _state(view: BesideView) -> str:
    present, result = view.present, view.result
    if result is not None and result.problem and (present is None or present.problem):
        return "no aggressor runs: see above"
    if present is None:
        return ""
    if present.waits_for:
        return f"waits for {present.waits_for}"
    if present.running:
        return f"{present.running} runs now"
    return "none runs now" if present.chosen else "digits let one run"


def _row(key: str, row: BesideRow, chosen: bool, view: BesideView, width: int) -> Line:
    runs = view.present is not None and view.present.running == row.aggressor
    style = "warn" if runs else "" if chosen or row.turns else "dim"
    head = f" {key} {'■' if chosen else '□'} {padded(cut(row.aggressor, _NAME - 1), _NAME)}"
    if not row.turns:
        return [(head, style), (cut(f"  not known: {row.reason}", width - display_width(head)), "dim")]
    cells = [
        (str(row.turns), ""),
        (change_text(row.off.p50_ns, row.on.p50_ns), ""),
        (change_text(row.off.p99_ns, row.on.p99_ns), "dim"),
        (factor_text(row) if row.ratio else "", row.outcome.style),
        (interval_text(row) or "too few", "dim"),
    ]
    room = width - display_width(head)
    shown = _fitting(room)
    line: Line = [(head, style)]
    line += [
        (padded(cut(text, _CELLS[at]), _CELLS[at], True), cells[at][1]) for at in shown for text in (cells[at][0],)
    ]
    left = room - sum(_CELLS[at] for at in shown)
    if left > 30 and (grown := grown_label(row)):
        line.append((cut(f"  {grown}", left), "dim"))
    return line


def _fitting(room: int) -> Sequence[int]:
    """Numbers of the cells of a row that fit: the 99th percentile is left out first, then the turns."""
    for shown in ((0, 1, 2, 3, 4), (0, 1, 3, 4), (1, 3, 4), (1, 3)):
        if sum(_CELLS[at] for at in shown) <= room:
            return shown
    return (3,)


def _strip(present: BesideMoment, now_ns: int, width: int) -> list[Line]:
    """The keys of the aggressors that ran, and below them the median step of each column, up to now."""
    columns = max(width - _LABEL - _FIGURE, 1)
    borders = np.linspace(now_ns - _SPAN_NS, now_ns, columns + 1)
    steps, ends = np.diff(present.begins), present.begins[1:]
    places = np.searchsorted(ends, borders)
    medians = [float(np.median(steps[a:b])) if b > a else 0.0 for a, b in pairwise(places.tolist())]
    most = max(medians)
    keys = dict(zip(beside_programs(), AGGRESSOR_KEYS, strict=False))
    middles = (borders[:-1] + borders[1:]) / 2
    marks = [" "] * columns
    for kind, begin_ns, end_ns in present.turns:
        if kind in keys:
            for at in np.flatnonzero((middles >= begin_ns) & (middles < end_ns)).tolist():
                marks[at] = keys[kind]
    cells: Line = []
    for median, mark in zip(medians, marks, strict=True):
        letter = _HEIGHTS[min(int(median / most * len(_HEIGHTS)), len(_HEIGHTS) - 1)] if median and most else " "
        cells.append((letter, "" if mark == " " else "warn"))
    last = next((median for median in reversed(medians) if median), None)
    head = " 60 s    "
    return [
        [(head, "dim"), ("".join(marks), "warn")],
        [(padded(" step", _LABEL), "dim"), *cells, (cut(f" {duration_ns(last)}", _FIGURE), "")],
    ]
