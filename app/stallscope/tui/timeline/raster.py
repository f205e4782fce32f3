"""Raster: the intervals of rows on the cells of their lines, from sums of whole numbers that do not depend on order."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stallprobes.traces.rows import RowSpans
from stallprobes.traces.trace import Int64s

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Intervals(RowSpans):
    """The spans of a row; ``slow`` marks the intervals above their limit."""

    slow: Bools

    def span(self, index: int) -> tuple[int, int]:
        """Start and end of an interval."""
        return int(self.starts[index]), int(self.ends[index])


@dataclass(frozen=True, eq=False)
class Raster:
    """The cells of the rows, each an array of shape (rows, columns).

    ``solid`` and ``hollow`` are the shares of the cell's time under intervals of each kind, ``calls`` and ``waits`` the
    numbers of these intervals. ``begin`` and ``end`` are the edges of a single solid interval, from 0 to 1.
    ``slow_call`` and ``slow_wait``: a slow interval touches the cell; ``short``: it is shorter than a cell.
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


@dataclass(frozen=True)
class CellGrid:
    """Cells of equal length without end: cell ``n`` begins at ``origin_ns + n * span_ns / width``.

    A time is exact as a whole number of ``1 / width`` ns; a cell has ``span_ns`` of these units.
    """

    origin_ns: int
    span_ns: int
    width: int

    def cell(self, at_ns: int) -> int:
        """The cell of a time."""
        return (at_ns - self.origin_ns) * self.width // self.span_ns

    def begin_ns(self, cell: int) -> int:
        """The first time in a cell."""
        return self.origin_ns - (-cell * self.span_ns // self.width)

    def units(self, at_ns: Int64s) -> Int64s:
        """Times in units from the origin on."""
        units: Int64s = (at_ns - self.origin_ns) * self.width
        return units


@dataclass(frozen=True, eq=False)
class CellSpans:
    """The given intervals in the visible cells, which are numbered from 0 on.

    ``kept`` are their indices. ``first`` and ``last`` are their cells, ``begin`` and ``end`` the units from the begin
    of the cell on. ``within``: shorter than a cell.
    """

    kept: Int64s
    first: Int64s
    last: Int64s
    begin: Int64s
    end: Int64s
    within: Bools

    @classmethod
    def of(cls, grid: CellGrid, first_cell: int, starts: Int64s, ends: Int64s) -> CellSpans:
        """The placement on ``grid.width`` cells from ``first_cell`` on."""
        cell, room = grid.span_ns, grid.width * grid.span_ns
        # Times far outside stay outside, and cannot overflow.
        least_ns = grid.begin_ns(first_cell) - grid.span_ns
        most_ns = least_ns + 3 * grid.span_ns
        begins = grid.units(np.clip(starts, least_ns, most_ns)) - first_cell * cell
        finishes = grid.units(np.clip(ends, least_ns, most_ns)) - first_cell * cell
        kept = np.flatnonzero(((finishes > 0) | (begins >= 0)) & (begins < room))
        begins, finishes = begins[kept], finishes[kept]
        within = finishes - begins < cell
        begins, finishes = np.maximum(begins, 0), np.clip(finishes, 0, room)
        first = begins // cell
        last = np.maximum((finishes + cell - 1) // cell - 1, first)
        return cls(kept, first, last, begins - first * cell, finishes - last * cell, within)

    def only(self, which: Int64s) -> CellSpans:
        """Some of them, by their indices in ``kept``."""
        return CellSpans(
            self.kept[which],
            self.first[which],
            self.last[which],
            self.begin[which],
            self.end[which],
            self.within[which],
        )


class CellValues:
    """Values of visible cells, which are the last axis of an array."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    def copy(self) -> Self:
        """A copy of the present values."""
        other = copy.copy(self)
        other._values = self._values.copy()
        return other

    def move(self, cells: int) -> None:
        """Have the cells begin so many cells later; the new ones are 0."""
        if cells == 0:
            return
        kept = self._values[..., cells:]
        self._values = np.zeros_like(self._values)
        self._values[..., : kept.shape[-1]] = kept

    def clear_before(self, cell: int) -> None:
        """Empty the cells before ``cell``."""
        self._values[..., : max(cell, 0)] = 0


# Indices of the two groups of intervals (calls, waits, GPU work) that the timeline sums up for each character cell.
# _HOLLOW: waits, and GPU work that has not ended. _SOLID: all other intervals.
_SOLID, _HOLLOW = range(2)
# Indices of the three sums over a group of intervals (see _SOLID) in a character cell. _COUNT: number of intervals.
# _BEGINS, _ENDS: sums of the begins and of the ends, as distances from the cell's begin in the units of CellGrid.
_COUNT, _BEGINS, _ENDS = range(3)


class CellSums(CellValues):
    """Sums by cell of ``rows`` rows over the added intervals, in any order and any parts.

    All sums are whole numbers below 2^53, and therefore exact.
    """

    def __init__(self, rows: int, grid: CellGrid) -> None:
        super().__init__(np.zeros((2, 3, rows, grid.width)))
        self._grid = grid

    def grow(self, rows: int) -> None:
        """Have at least so many rows; the new ones are empty."""
        more = rows - self._values.shape[2]
        if more > 0:
            self._values = np.concatenate((self._values, np.zeros((2, 3, more, self._grid.width))), axis=2)

    def add(self, rows: Int64s, at: CellSpans, hollow: Bools) -> None:
        """Add intervals: ``rows`` are their rows, ``hollow`` those that wait."""
        for kind, which in ((_SOLID, ~hollow), (_HOLLOW, hollow)):
            if which.any():
                self._add(self._values[kind], rows[which] * self._grid.width, at, which)

    def _add(self, sums: Floats, offsets: Int64s, at: CellSpans, which: Bools) -> None:
        shape = sums.shape[1:]
        first, last, size = offsets + at.first[which], offsets + at.last[which], shape[0] * shape[1]
        touching, ending = touches(first, last, size), np.bincount(last, minlength=size)
        # All but the last cell are left at their ends.
        ends = np.bincount(last, at.end[which], size) + (touching - ending) * float(self._grid.span_ns)
        sums[_COUNT] += touching.reshape(shape)
        sums[_BEGINS] += np.bincount(first, at.begin[which], size).reshape(shape)
        sums[_ENDS] += ends.reshape(shape)

    def raster(self, rows: Int64s, slow_call: Bools, slow_wait: Bools, short: Bools) -> Raster:
        """The raster of ``rows``; the others are the marks of slow intervals in their cells."""
        (calls, begins, ends), (waits, wait_begins, wait_ends) = self._values[:, :, rows]
        cell = self._grid.span_ns
        single = calls == 1
        return Raster(
            solid=np.clip((ends - begins) / cell, 0, 1),
            hollow=np.clip((wait_ends - wait_begins) / cell, 0, 1),
            calls=calls.astype(np.int64),
            waits=waits.astype(np.int64),
            begin=np.where(single, begins / cell, 0),
            end=np.where(single, ends / cell, 0),
            slow_call=slow_call,
            slow_wait=slow_wait,
            short=short,
        )


def raster(rows: Sequence[Intervals], grid: CellGrid, first_cell: int = 0) -> Raster:
    """The cells of ``rows`` from ``first_cell`` of a grid on."""
    # All rows are one line of many columns, so that the number of rows costs nothing.
    at = CellSpans.of(grid, first_cell, _joined([part.starts for part in rows]), _joined([part.ends for part in rows]))
    numbers = np.repeat(np.arange(len(rows)), [len(part.starts) for part in rows])[at.kept]
    hollow = _joined([part.hollow for part in rows]).astype(np.bool_)[at.kept]
    slow = _joined([part.slow for part in rows]).astype(np.bool_)[at.kept]
    sums = CellSums(len(rows), grid)
    sums.add(numbers, at, hollow)
    first, last, size = numbers * grid.width + at.first, numbers * grid.width + at.last, len(rows) * grid.width
    marks = [
        (touches(first[which], last[which], size) > 0).reshape(len(rows), grid.width)
        for which in (slow & ~hollow, slow & hollow, slow & at.within)
    ]
    return sums.raster(np.arange(len(rows)), *marks)


def touches(first: Int64s, last: Int64s, cells: int) -> Int64s:
    """The number of intervals that touch each of ``cells`` cells, each from its first to its last one."""
    change = np.bincount(first, minlength=cells + 1) - np.bincount(last + 1, minlength=cells + 1)
    return np.cumsum(change)[:cells]


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
