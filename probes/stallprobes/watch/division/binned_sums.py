"""Sums of a sequence's time in bins, of which a run of any length has a limited number, and their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.files.codec import Document, Share
from stallprobes.watch.division.instants import COLUMNS
from stallprobes.watch.intervals import FOREVER, NONE, Int64s, int64s

# Initial width (ns) of the bins by which the time of a sequence (threads that call by turns) is summed up. The width
# doubles when there are more than MOST_BINS bins.
BIN_NS = 1_000_000_000
# Largest number of bins for the sums of the time. With more bins, each pair of neighbouring bins is merged. Bins of a
# second cover more than an hour.
MOST_BINS = 4096
# Times (begin, end) in ns, in their order, without overlap.
Times = Sequence[tuple[int, int]]
# Half-width of a 95 % interval of the normal distribution, in standard deviations.
_DEVIATIONS = 1.96
# Smallest half-width of the interval of a figure (share of the time). Reason: the clocks of records and calls have
# errors.
CLOCK_ERROR = 0.01
# Largest width (share of the time) of the interval of a known figure.
_LARGEST_INTERVAL = 0.5


class Figure(Document):
    """A share of the time with its 95 % interval."""

    share: Share
    low: Share
    high: Share

    @property
    def is_known(self) -> bool:
        """True if the interval is at most _LARGEST_INTERVAL wide."""
        return self.high - self.low <= _LARGEST_INTERVAL


class BinnedSums:
    """Sums in bins of ``width_ns`` since ``origin_ns``: int64[bins][columns]."""

    def __init__(self, origin_ns: int, width_ns: int = BIN_NS, most: int = MOST_BINS, columns: int = COLUMNS) -> None:
        self.origin_ns, self.width_ns = origin_ns, width_ns
        self._most = most
        self._sums = np.zeros((0, columns), dtype=np.int64)

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self._sums.shape[1]

    def borders(self, begin_ns: int, end_ns: int) -> Int64s:
        """The borders of bins between two times, the first at or before ``begin_ns``.

        Bins become wider where there would be too many until ``end_ns``, also by times of a damaged file.
        """
        self.reach(end_ns)
        first = begin_ns - (begin_ns - self.origin_ns) % self.width_ns
        return np.arange(first, end_ns, self.width_ns, dtype=np.int64)

    def reach(self, end_ns: int) -> None:
        """Make bins wider until those before ``end_ns`` are not too many."""
        while (end_ns - self.origin_ns) // self.width_ns >= self._most:
            self._widen()

    def add(self, first: int, sums: Int64s, column: int = 0) -> None:
        """Add the sums of bins from number ``first`` on, made after ``borders`` or ``reach``, from a column on."""
        missing = first + len(sums) - len(self._sums)
        if missing > 0:
            self._sums = np.concatenate((self._sums, np.zeros((missing, self._sums.shape[1]), dtype=np.int64)))
        self._sums[first : first + len(sums), column : column + sums.shape[1]] += sums

    def widen(self, columns: int) -> None:
        """Add columns of zeros, so that there are at least ``columns``."""
        if columns > self.columns:
            # More than needed: the next ones come soon.
            added = np.zeros((len(self._sums), max(columns, 2 * self.columns) - self.columns), dtype=np.int64)
            self._sums = np.concatenate((self._sums, added), axis=1)

    def with_added(self, column: int, added: Callable[[Int64s, int], Int64s | int], most: Int64s) -> BinnedSums:
        """A copy with values added to a column, at most up to ``most``, at least to 0: those that ``added`` returns of
        the begins of all bins and their width (ns)."""
        changed = BinnedSums(self.origin_ns, self.width_ns, self._most, self.columns)
        begins = self.origin_ns + self.width_ns * np.arange(len(self._sums), dtype=np.int64)
        changed._sums = self._sums.copy()
        changed._sums[:, column] = np.clip(self._sums[:, column] + added(begins, self.width_ns), 0, most)
        return changed

    def during(self, times: Times) -> Int64s:
        """Bins that begin in ``times``."""
        return self._sums[self._places(times)]

    def totals(self, borders: Int64s) -> Int64s:
        """Sums of all bins that begin from each of ``borders`` (ns) to before the next: int64[borders - 1][columns]."""
        zero = np.zeros((1, self._sums.shape[1]), dtype=np.int64)
        sums = np.concatenate((zero, np.cumsum(self._sums, axis=0)))[self._numbers(borders)]
        return int64s(np.diff(sums, axis=0))

    def begins(self, times: Times) -> Int64s:
        """The begins (ns) of the bins that ``during`` returns."""
        found: Int64s = self.origin_ns + self._places(times) * self.width_ns
        return found

    def _places(self, times: Times) -> Int64s:
        """The numbers of the bins that begin in ``times``."""
        borders = self._numbers(int64s(times).reshape(-1, 2))
        return np.concatenate([NONE, *(np.arange(*each, dtype=np.int64) for each in borders.tolist())])

    def _numbers(self, times: Int64s) -> Int64s:
        """The number of the first bin that begins at or after each time."""
        return np.clip(-((self.origin_ns - times) // self.width_ns), 0, len(self._sums))

    def _widen(self) -> None:
        columns = self._sums.shape[1]
        odd = np.zeros((len(self._sums) % 2, columns), dtype=np.int64)
        self._sums = np.concatenate((self._sums, odd)).reshape(-1, 2, columns).sum(axis=1)
        self.width_ns *= 2


def since(begin_ns: int) -> Times:
    """All times from ``begin_ns`` on."""
    return ((begin_ns, FOREVER),)


def add_at(sums: BinnedSums, times: Int64s, columns: Int64s | int = 0, *values: NDArray[Any] | None) -> None:
    """Add ``values`` to the bins of some times, or 1 for None or without values.

    The first of ``values`` is added in a column, or in the column of each time, the others in the columns behind it.
    """
    if not len(times):
        return
    origin_ns, size = sums.origin_ns, sums.columns
    first_ns, last_ns = (max(int(each), origin_ns) for each in (times.min(), times.max()))
    sums.reach(last_ns + 1)
    first, last = ((each - origin_ns) // sums.width_ns for each in (first_ns, last_ns))
    values = values or (None,)
    if first == last and isinstance(columns, int):
        row = [len(times) if each is None else round(each.sum().item()) for each in values]
        sums.add(first, int64s([row]), columns)
        return
    codes = np.maximum(times - (origin_ns + first * sums.width_ns), 0) // sums.width_ns * size + columns
    # Sums in float64 are exact: the times of a bin are far below 2**53 ns.
    added = sum(np.bincount(codes + at, each, (last + 1 - first) * size) for at, each in enumerate(values))
    sums.add(first, int64s(np.rint(added)).reshape(-1, size))


def figure(part: Int64s, whole: Int64s, recorded: float, error: float = 0.0) -> Figure:
    """The share of ``part`` in ``whole``, both by bin; ``recorded`` is the share (0 to 1) of time that was recorded.

    The interval is that of a ratio of sums of bins (Student's distribution) for a sample of a limited whole. ``error``
    is how far both of its ends may be off beside, at least that of clocks.
    """
    total = int(whole.sum())
    if not total:
        return Figure(0.0, 0.0, 1.0)
    share = int(part.sum()) / total
    used = whole > 0
    count = int(np.count_nonzero(used))
    if recorded < 1 and count < 2:
        return Figure(share, 0.0, 1.0)
    error = max(error, CLOCK_ERROR)
    if recorded < 1:
        errors = part[used] - share * whole[used]
        variance = float(np.square(errors).sum()) * count / (count - 1)
        error += _student(count - 1) * (variance * (1 - recorded)) ** 0.5 / total
    return Figure(share, max(share - error, 0.0), min(share + error, 1.0))


def _student(freedom: int) -> float:
    """Half of a 95 % interval of Student's distribution (its expansion about the normal one)."""
    z = _DEVIATIONS
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
