"""Steps of a sequence: the time from one of its NVTX ranges, or of its most regular blocking calls, to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.files.codec import Document, String, Unsigned
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.records.rows import rows_at, rows_where
from stallprobes.watch.division.binned_sums import BinnedSums, add_at
from stallprobes.watch.division.call_columns import AWAITS_WORK, by_number, columns_of, kind_if_pageable
from stallprobes.watch.division.turns import TurnTimes
from stallprobes.watch.intervals import NONE, Int64s, int64s
from stallprobes.watch.reading.process import CallBatch, NamedRange

# Smallest number of intervals at which the regularity of the intervals is judged. An interval lies between calls of one
# kind, or between NVTX ranges of one name. Regular intervals may be the steps of a program.
LEAST_STEPS = 20
# Largest difference between a step (time from one call or NVTX range to the next) and a reference step at which the
# step counts as near, as a share of the reference step. In reports, the reference is the median step. In counts of
# steps in bins of time, the reference is the step before.
NEAR = 0.25
# Smallest share of steps near the reference step (see NEAR) at which a call or NVTX range is regular.
LEAST_NEAR = 0.75
# Smallest share of the time that is in steps near the reference step. Reason: ranges of work that is submitted ahead
# begin at short intervals, and then none for most of the time of a step.
_LEAST_OF_TIME = 0.5
# Shortest time (ns) of a program's step. A step is one round of the main loop, such as a training step. Shorter
# intervals are parts of a step.
LEAST_NS = 100_000
# Smallest number of steps at which the 99th percentile of the step durations is known.
_LEAST_OF_SLOW = 500
# Beginnings of the names of NVTX ranges of XLA's passes and of functions of NCCL, CUB and Thrust, which are no steps of
# the program.
_OF_LIBRARIES = ("XlaPass:", "nccl", "cub::", "thrust::")
# Smallest time inside the regular NVTX ranges of one name at which the ranges can be the steps. The value is a share of
# the longest time inside the regular ranges of any name.
LEAST_INSIDE = 0.9
# Largest number of kinds of calls (thread, function, size) that are compared to find a program's steps: the first kinds
# that the program makes.
MOST_CALLS = 64
# Number of readings whose calls are counted together.
_TOGETHER = 8
# Number of buckets of durations in each octave (factor of two): a bucket is 4 % wide.
_IN_OCTAVE = 16
# Number of all buckets of durations: 48 octaves, up to 2**48 ns.
_BUCKETS = _IN_OCTAVE * 48
# Largest number of begins of steps that are kept, the last ones.
_MOST_BEGINS = 1 << 14


class Step(Document, kw_only=True):
    """A step of a sequence, from one NVTX range to the next one of the same name and thread, else from one blocking
    call to the next one of the same function, size and thread."""

    range: String = ""
    """The name of the range, in which each number is #; empty for calls."""
    function: String
    """Empty for ranges."""
    bytes: Unsigned
    thread: Unsigned
    ns: Unsigned
    """The median, to 4 %; of a sequence with phases the mean, as its quartiles."""
    low_ns: Unsigned
    """The lower quartile."""
    high_ns: Unsigned
    """The upper quartile."""
    slow_ns: Unsigned | None = None
    """The 99th percentile; null where fewer than 500 were counted, or records were switched on and off."""
    steps: Unsigned
    """How many were counted in the steady state."""


@dataclass
class _Steps:
    """The times from one call, or one range, to the next: ``counts`` by bucket, and when they began. Those in which an
    aggressor of ``turns`` may run are not counted. ``thread``, ``range``, ``function`` and ``bytes`` are as of a step;
    each range took ``mean_ns``."""

    thread: int
    begins: BinnedSums
    turns: TurnTimes
    range: str = ""
    function: str = ""
    bytes: int = 0
    begun: int = 0
    mean_ns: float = 0.0
    counts: Int64s = field(default_factory=lambda: int64s(np.zeros(_BUCKETS)))
    last_ns: int = 0
    # Times that are near the one before, and all that have one before.
    near: int = 0
    compared: int = 0
    # The last begins, in their order.
    recent: Int64s = field(default_factory=lambda: NONE)
    _last_period: Int64s = field(default_factory=lambda: NONE)
    # Begins that are not counted yet.
    _noted: list[Int64s] = field(default_factory=list)

    def note(self, begins: Int64s) -> None:
        """Have ``begins`` counted together with others, which takes less time."""
        self._noted.append(begins)
        if len(self._noted) >= _TOGETHER:
            self.count()

    def count(self) -> None:
        """Count all that were noted."""
        if self._noted:
            self.add(np.concatenate(self._noted))
            self._noted = []

    @property
    def step(self) -> Step | None:
        """The step by the times between its begins; None if these are few, short or not regular."""
        steps = int(self.counts.sum())
        if steps < LEAST_STEPS:
            return None
        sums, shares = np.cumsum(self.counts), (0.25, 0.5, 0.75, 0.99)
        low, middle, high, slow = (_middle(int(np.searchsorted(sums, share * steps))) for share in shares)
        if middle < LEAST_NS or _share_near(self.counts, middle) < LEAST_NEAR:
            return None
        if _share_near(self.counts * _MIDDLES, middle) < _LEAST_OF_TIME:
            return None
        return Step(
            thread=self.thread,
            function=self.function,
            bytes=self.bytes,
            ns=middle,
            low_ns=low,
            high_ns=high,
            slow_ns=slow if steps >= _LEAST_OF_SLOW else None,
            steps=steps,
            range=self.range,
        )

    @property
    def regular(self) -> float:
        """The share of times that are near the one before; 0 where they are few, or too short for steps."""
        middle = int(np.searchsorted(np.cumsum(self.counts), self.counts.sum() / 2))
        return self.near / self.compared if self.compared >= LEAST_STEPS and _middle(middle) >= LEAST_NS else 0.0

    def add(self, begins: Int64s, missed: int = 0) -> None:
        """Add ``begins``, before which ``missed`` ones are not known."""
        every = begins if missed or not self.last_ns else np.append(self.last_ns, begins)
        # Beside an aggressor, steps take longer.
        undisturbed = ~self.turns.disturb(every)
        periods = (every[1:] - every[:-1])[undisturbed[1:] & undisturbed[:-1]]
        self.counts += np.bincount(_bucket(periods), minlength=_BUCKETS)
        self.last_ns = int(begins[-1])
        self.recent = int64s(np.concatenate((self.recent, begins))[-_MOST_BEGINS:])
        if len(periods):
            both = np.concatenate((self._last_period, periods))
            self.near += int(np.count_nonzero(np.abs(both[1:] - both[:-1]) <= NEAR * both[:-1]))
            self.compared += len(both) - 1
            self._last_period = periods[-1:]
        add_at(self.begins, begins, 0, np.full(len(begins), 1 + missed / len(begins)) if missed else None)

    def add_ranges(self, ranges: NamedRange, begin_ns: int) -> None:
        """Add those that began since the last reading, and since ``begin_ns``."""
        count = ranges.begun - self.begun
        new = ranges.begins[max(len(ranges.begins) - count, 0) :]
        missed = count - len(new)
        new = new[new >= begin_ns]
        self.begun, self.mean_ns = ranges.begun, ranges.inside_ns / ranges.begun
        if len(new):
            self.add(new, missed)


class StepBook:
    """The times from one NVTX range to the next of the same thread and name, and from one blocking call to the next of
    the same thread, function and size."""

    def __init__(self, origin_ns: int = 0, turns: TurnTimes | None = None) -> None:
        """``origin_ns`` is where the first bin of ``begins_of`` begins. ``turns`` are those of an experiment beside."""
        self._origin_ns, self._turns = origin_ns, turns or TurnTimes()
        # Begins of the last blocking calls of any kind.
        self.blocking: Int64s = NONE
        self._begin_ns = 0
        # By thread, number of the function and bytes; by thread and place of the range in the file.
        self._calls: dict[tuple[int, ...], _Steps] = {}
        self._ranges: dict[tuple[int, ...], _Steps] = {}
        # Begins that were counted before it was known when the steady state began.
        self._before: dict[tuple[int, ...], BinnedSums] = {}

    def add(self, calls: CallBatch, ranges: Iterable[NamedRange], begin_ns: int) -> None:
        """Add the calls and the ranges of a reading; what began before ``begin_ns``, when the steady state began, does
        not count."""
        if begin_ns != self._begin_ns:
            self._begin_ns = begin_ns
            self._count()
            self._before = {key: row.begins for key, row in (*self._calls.items(), *self._ranges.items())}
            self._calls, self._ranges = {}, {}
        for named in ranges:
            if named.name.startswith(_OF_LIBRARIES):
                continue
            key = named.thread, named.place
            if key not in self._ranges:
                self._ranges[key] = _Steps(named.thread, self._begins(key), self._turns, named.name)
            self._ranges[key].add_ranges(named, begin_ns)
        self._add_calls(calls, begin_ns)

    def _add_calls(self, calls: CallBatch, begin_ns: int) -> None:
        rows = rows_where(calls.rows, AWAITS_WORK[by_number(calls.functions, kind_if_pageable)][calls.rows["function"]])
        kept = ((rows["flags"] & int(CallFlag.NESTED)) == 0) & (rows["began_ns"] >= begin_ns)
        kept &= AWAITS_WORK[columns_of(rows, calls.functions)[0]]
        rows = rows_where(rows, kept)
        if not len(rows):
            return
        columns = rows["thread"], rows["function"], rows["bytes"]
        rows = rows_at(rows, np.lexsort((rows["began_ns"], *columns[::-1])))
        begins = int64s(rows["began_ns"])
        self.blocking = int64s(np.concatenate((self.blocking, np.sort(begins)))[-_MOST_BEGINS:])
        same = np.ones(len(rows) - 1, dtype=np.bool_)
        for column in ("thread", "function", "bytes"):
            same &= rows[column][1:] == rows[column][:-1]
        borders = [0, *(np.flatnonzero(~same) + 1).tolist(), len(rows)]
        for first, last in pairwise(borders):
            row = rows[first]
            key = thread, number, size = int(row["thread"]), int(row["function"]), int(row["bytes"])
            if key not in self._calls:
                if len(self._calls) >= MOST_CALLS:
                    continue
                self._calls[key] = _Steps(thread, self._begins(key), self._turns, bytes=size)
            self._calls[key].function = calls.functions[number]
            self._calls[key].note(begins[first:last])

    def step_of(self, threads: Iterable[int]) -> Step | None:
        """The step of a sequence of ``threads``; None if none of their ranges and blocking calls is regular.

        Of regular ranges it is the one in which most of the time passes, of calls the most regular one.
        """
        mine = set(threads)
        self._count()
        ranges, calls = (
            [(row, step) for row in rows.values() if row.thread in mine and (step := row.step) is not None]
            for rows in (self._ranges, self._calls)
        )
        if not ranges:
            of_calls = ((_share_near(row.counts, step.ns), step.ns, step) for row, step in calls)
            return max(of_calls, key=lambda item: item[:2], default=(0, 0, None))[2]
        times = [(row.mean_ns * float(row.counts.sum()), step) for row, step in ranges]
        least_ns = LEAST_INSIDE * max(inside_ns for inside_ns, _ in times)
        return max((item for item in times if item[0] >= least_ns), key=lambda item: (item[1].ns, item[0]))[1]

    def last_begins(self, step: Step) -> Int64s:
        """When the last steps of a kind began, in their order."""
        self._count()
        rows = (
            row
            for row in (*self._ranges.values(), *self._calls.values())
            if (row.thread, row.range, row.function, row.bytes) == (step.thread, step.range, step.function, step.bytes)
        )
        return int64s(np.sort(np.concatenate([NONE, *(row.recent for row in rows)])))

    def begins_of(self, threads: Iterable[int]) -> BinnedSums | None:
        """How many steps of a sequence of ``threads`` began in each bin, by the range or call of which most are about
        as long as the one before; None without any that is so regular."""
        mine = set(threads)
        self._count()
        for rows in (self._ranges, self._calls):
            own = ((row.regular, row) for row in rows.values() if row.thread in mine)
            if regular := [item for item in own if item[0] >= LEAST_NEAR]:
                return max(regular, key=lambda item: (item[0], -item[1].compared))[1].begins
        return None

    def _count(self) -> None:
        for row in self._calls.values():
            row.count()

    def _begins(self, key: tuple[int, ...]) -> BinnedSums:
        return self._before.pop(key, None) or BinnedSums(self._origin_ns, columns=1)


def _bucket(ns: Int64s) -> Int64s:
    return int64s(np.minimum(np.rint(_IN_OCTAVE * np.log2(np.maximum(ns, 1))), _BUCKETS - 1))


def _middle(bucket: int) -> int:
    return round(2 ** (bucket / _IN_OCTAVE))


# The duration (ns) of each bucket.
_MIDDLES = 2.0 ** (np.arange(_BUCKETS) / _IN_OCTAVE)


def _share_near(counts: NDArray[Any], ns: int) -> float:
    """The share of ``counts``, one for each bucket, of the times that are near a time."""
    first, last = (int(_bucket(int64s([round(ns * factor)]))[0]) for factor in (1 - NEAR, 1 + NEAR))
    return float(counts[first : last + 1].sum()) / float(counts.sum())
