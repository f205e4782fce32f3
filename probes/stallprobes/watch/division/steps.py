"""Steps of a sequence: the most regular of its blocking calls, and the time from one of them to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stallprobes.files.codec import Unsigned
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.records.rows import rows_at, rows_where
from stallprobes.watch.division.call_kinds import CallKind, kinds_of
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.reading.process import CallBatch

# A call is regular if so many of the times from one to the next, of at least so many, are so near their median.
LEAST_STEPS = 20
NEAR, LEAST_NEAR = 0.25, 0.75
# Shorter steps are parts of one.
LEAST_NS = 100_000
# Calls that are compared, the first ones of a program, by thread, function and size.
MOST_CALLS = 64
# Buckets of times, 16 in each octave: 4 % wide.
_IN_OCTAVE = 16
_BUCKETS = _IN_OCTAVE * 48
_BLOCKS = (int(CallKind.WAITS), int(CallKind.COPIES))


@dataclass(frozen=True, kw_only=True)
class Step:
    """The time (ns) from one call of ``function`` with ``bytes`` in ``thread`` to the next.

    ``ns`` is the median of ``steps``, ``low_ns`` and ``high_ns`` are the quartiles, each to 4 %.
    """

    thread: Unsigned
    function: str
    bytes: Unsigned
    ns: Unsigned
    low_ns: Unsigned
    high_ns: Unsigned
    steps: Unsigned


class _Key(NamedTuple):
    """Calls of one thread that do the same."""

    thread: int
    function: int
    bytes: int


class StepBook:
    """The times from one blocking call to the next of the same thread, function and size."""

    def __init__(self) -> None:
        self._functions: dict[int, str] = {}
        self._begin_ns = 0
        self._last: dict[_Key, int] = {}
        self._counts: dict[_Key, Int64s] = {}

    def add(self, calls: CallBatch, begin_ns: int) -> None:
        """Add the calls of a reading; those before ``begin_ns``, when the steady state began, do not count."""
        if begin_ns != self._begin_ns:
            self._begin_ns = begin_ns
            self._last, self._counts = {}, {}
        self._functions.update(calls.functions)
        rows = rows_where(calls.rows, np.isin(kinds_of(calls.rows, calls.functions), _BLOCKS))
        kept = ((rows["flags"] & int(CallFlag.NESTED)) == 0) & (rows["began_ns"] >= begin_ns)
        rows = rows_where(rows, kept)
        if not len(rows):
            return
        columns = rows["thread"], rows["function"], rows["bytes"]
        rows = rows_at(rows, np.lexsort((rows["began_ns"], *columns[::-1])))
        begins = int64s(rows["began_ns"])
        same = np.ones(len(rows) - 1, dtype=np.bool_)
        for column in ("thread", "function", "bytes"):
            same &= rows[column][1:] == rows[column][:-1]
        borders = [0, *(np.flatnonzero(~same) + 1).tolist(), len(rows)]
        for first, last in pairwise(borders):
            row = rows[first]
            key = _Key(int(row["thread"]), int(row["function"]), int(row["bytes"]))
            if key not in self._counts and len(self._counts) >= MOST_CALLS:
                continue
            times = begins[first:last]
            before = self._last.get(key)
            periods = np.diff(times if before is None else np.concatenate(([before], times)))
            self._last[key] = int(times[-1])
            found = np.bincount(_bucket(periods), minlength=_BUCKETS)
            self._counts[key] = int64s(self._counts.get(key, 0) + found)

    def step_of(self, threads: Iterable[int]) -> Step | None:
        """The step of a sequence of ``threads``; None if none of their blocking calls is regular."""
        mine = set(threads)
        found = [
            (share, step)
            for key, counts in self._counts.items()
            if key.thread in mine and (step := self._step(key, counts)) is not None
            for share in (_share_near(counts, step.ns),)
            if share >= LEAST_NEAR
        ]
        return max(found, key=lambda one: (one[0], one[1].ns))[1] if found else None

    def _step(self, key: _Key, counts: Int64s) -> Step | None:
        steps = int(counts.sum())
        if steps < LEAST_STEPS:
            return None
        sums = np.cumsum(counts)
        low, middle, high = (_middle(int(np.searchsorted(sums, share * steps))) for share in (0.25, 0.5, 0.75))
        if middle < LEAST_NS:
            return None
        return Step(
            thread=key.thread,
            function=self._functions.get(key.function, ""),
            bytes=key.bytes,
            ns=middle,
            low_ns=low,
            high_ns=high,
            steps=steps,
        )


def _bucket(ns: Int64s) -> Int64s:
    return np.clip(np.round(_IN_OCTAVE * np.log2(np.maximum(ns, 1))), 0, _BUCKETS - 1).astype(np.int64)


def _middle(bucket: int) -> int:
    return round(2 ** (bucket / _IN_OCTAVE))


def _share_near(counts: Int64s, ns: int) -> float:
    """The share of the times that are near a time."""
    first, last = (int(_bucket(int64s([round(ns * factor)]))[0]) for factor in (1 - NEAR, 1 + NEAR))
    return float(counts[first : last + 1].sum()) / float(counts.sum())
