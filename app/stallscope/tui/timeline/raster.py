"""Raster: the intervals of rows on the cells of their lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.traces.trace import Int64s
from stallscope.tui.timeline.time_axis import Viewport

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
_EPSILON = 1e-6


@dataclass(frozen=True, eq=False)
class Intervals:
    """The intervals of a row in the order of their starts, in ns.

    ``hollow`` are those that wait, ``slow`` those above their limit. ``numbers`` are their rows in the trace.
    """

    starts: Int64s
    ends: Int64s
    hollow: Bools
    slow: Bools
    numbers: Int64s

    @classmethod
    def solid(cls, starts: Int64s, ends: Int64s, numbers: Int64s) -> Intervals:
        """Intervals none of which is hollow or slow."""
        no = np.zeros(len(starts), dtype=np.bool_)
        return cls(starts, ends, no, no, numbers)

    def between(self, begin_ns: int, end_ns: int) -> Intervals:
        """Those that overlap a span."""
        shown = ((self.ends > begin_ns) | (self.starts >= begin_ns)) & (self.starts < end_ns)
        if shown.all():
            return self
        return Intervals(
            self.starts[shown], self.ends[shown], self.hollow[shown], self.slow[shown], self.numbers[shown]
        )


@dataclass(frozen=True, eq=False)
class Raster:
    """The cells of the rows, each an array of shape (rows, columns).

    ``solid`` and ``hollow`` are the shares of the cell's time that intervals of each kind cover, ``calls`` and
    ``waits`` the numbers of intervals that touch it. ``begin`` and ``end`` are the edges of the longest solid one, from
    0 to 1. ``slow_call`` and ``slow_wait``: a slow one touches the cell; ``short``: it is shorter than a cell.
    """

    solid: Floats
    hollow: Floats
    calls: Int64s
    waits: Int64s
    begin: Floats
    end: Floats
    slow_call: Bools
    slow_wait: Bools
    short: Bools


def raster(rows: Sequence[Intervals], view: Viewport, width: int) -> Raster:
    """The cells of ``rows`` on ``width`` columns."""
    # All rows are one line of many columns, so that the number of rows costs nothing.
    shown = [part.between(view.begin_ns, view.end_ns) for part in rows]
    offsets = np.repeat(np.arange(len(rows)) * width, [len(part.starts) for part in shown])
    scale = width / view.span_ns
    begins = (_joined([part.starts for part in shown]) - view.begin_ns) * scale
    ends = (_joined([part.ends for part in shown]) - view.begin_ns) * scale
    below_cell = ends - begins < 1
    begins, ends = np.clip(begins, 0, width), np.clip(ends, 0, width)
    # A time at a border may be a rounding error beyond it.
    first = np.minimum((begins + _EPSILON).astype(np.int64), width - 1) + offsets
    last = np.maximum(np.ceil(ends - _EPSILON).astype(np.int64) - 1 + offsets, first)
    begins, ends = begins + offsets, ends + offsets
    waits = _joined([part.hollow for part in shown]).astype(np.bool_)
    slow = _joined([part.slow for part in shown]).astype(np.bool_)
    shape, width = (len(rows), width), len(rows) * width
    solid = np.flatnonzero(~waits)
    longest = _longest((ends - begins)[solid], first[solid], last[solid], width)
    known = longest >= 0
    at = solid[longest[known]]
    begin, end, cells = np.zeros(width), np.zeros(width), np.arange(width)
    begin[known] = np.clip(begins[at] - cells[known], 0, 1)
    end[known] = np.clip(ends[at] - cells[known], 0, 1)

    def touched(which: Bools) -> Int64s:
        return _touching(first[which], last[which], width).reshape(shape)

    return Raster(
        solid=_cover(begins[~waits], ends[~waits], width).reshape(shape),
        hollow=_cover(begins[waits], ends[waits], width).reshape(shape),
        calls=touched(~waits),
        waits=touched(waits),
        begin=begin.reshape(shape),
        end=end.reshape(shape),
        slow_call=touched(slow & ~waits) > 0,
        slow_wait=touched(slow & waits) > 0,
        short=touched(slow & below_cell) > 0,
    )


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _cover(begins: Floats, ends: Floats, width: int) -> Floats:
    """The share of each cell that is covered, at most 1."""
    if not len(begins):
        return np.zeros(width)
    borders = np.arange(width + 1, dtype=np.float64)
    # The time covered before each border is a sum over begins less one over ends.
    return np.clip(np.diff(_before(np.sort(begins), borders) - _before(np.sort(ends), borders)), 0, 1)


def _before(times: Floats, borders: Floats) -> Floats:
    """For each border, the sum of its distances to the ``times`` before it."""
    count = np.searchsorted(times, borders)
    total = np.concatenate(([0.0], np.cumsum(times)))[count]
    found: Floats = count * borders - total
    return found


def _touching(first: Int64s, last: Int64s, width: int) -> Int64s:
    """The number of intervals that touch each cell."""
    change = np.bincount(first, minlength=width + 1) - np.bincount(last + 1, minlength=width + 1)
    return np.cumsum(change)[:width]


def _longest(lengths: Floats, first: Int64s, last: Int64s, width: int) -> Int64s:
    """The longest interval that touches each cell, the last of several; -1 for none."""
    item = np.full(width, -1, dtype=np.int64)
    within = first == last
    # Of the intervals within one cell only the longest counts.
    most = np.full(width, -1.0)
    np.maximum.at(most, first[within], lengths[within])
    kept = np.flatnonzero(~within | (lengths == most[first]))
    # The last assignment to a cell is that of the longest.
    order = kept[np.argsort(lengths[kept], kind="stable")]
    first, count = first[order], (last - first + 1)[order]
    total = int(count.sum())
    cells = np.arange(total) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    item[cells] = np.repeat(order, count)
    return item
