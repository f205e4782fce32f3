"""Sums of the waits of a sequence by function, in bins of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stallprobes.watch.division.binned_sums import BinnedSums, Times, add_at
from stallprobes.watch.division.call_columns import AWAITS_OR_FREES
from stallprobes.watch.division.instants import SequenceTimes
from stallprobes.watch.division.result import WaitShare
from stallprobes.watch.intervals import NONE, Int64s, distinct, int64s

# Largest number of functions that have sums of their own: the functions that waited first. Reason: programs use two or
# three functions that wait.
MOST_FUNCTIONS = 8
# Columns of the sums of each function that waited. _CALLS: number of its calls. _TIME: time (ns) inside its calls.
# _WEIGHT: sum (ns) of the weights of its calls. A call's weight is the gap in the GPU's work in which the call
# returned, at most the call's duration. _COLUMNS: number of columns.
_CALLS, _TIME, _WEIGHT, _COLUMNS = range(4)


class WaitSums:
    """The waits of a sequence since ``origin_ns``."""

    def __init__(self, origin_ns: int) -> None:
        self._sums = BinnedSums(origin_ns, columns=MOST_FUNCTIONS * _COLUMNS)
        # The place of each function's columns, by its number.
        self._places: dict[int, int] = {}

    def add(self, times: SequenceTimes, begin_ns: int, end_ns: int) -> None:
        """Add the waits that returned from ``begin_ns`` on and before ``end_ns``, or at the end, where work was
        recorded."""
        waits = [(NONE, NONE, NONE)]
        for calls in times.threads.values():
            places = np.flatnonzero(AWAITS_OR_FREES[calls.kinds])
            returned = calls.ends[places]
            # At its end, a slice may leave a gap open.
            chosen = (returned >= begin_ns) & ((returned < end_ns) | ((returned == end_ns) & times.ended))
            if chosen.any():
                places = places[chosen & times.recorded.contain(returned)]
                waits.append((calls.begins[places], calls.ends[places], calls.functions[places]))
        begins, ends, functions = map(np.concatenate, zip(*waits, strict=True))
        durations, weights = ends - begins, _weights(times, begins, ends, end_ns)
        for function in distinct(functions).tolist():
            place = self._places.setdefault(function, len(self._places))
            if place < MOST_FUNCTIONS:
                mine = functions == function
                at = np.minimum(ends[mine], end_ns - 1)
                add_at(self._sums, at, place * _COLUMNS, None, durations[mine], weights[mine])

    def counts(self, borders: Int64s) -> Int64s:
        """The number of waits that returned from each of ``borders`` (ns) to before the next."""
        return int64s(self._sums.totals(borders)[:, _CALLS::_COLUMNS].sum(axis=1))

    def shares(self, times: Times, names: Mapping[int, str]) -> tuple[WaitShare, ...]:
        """The waits of each function in ``times``, the one that costs most first."""
        totals: Int64s = self._sums.during(times).sum(axis=0, dtype=np.int64)
        totals = totals.reshape(MOST_FUNCTIONS, _COLUMNS)
        whole = int(totals[:, _WEIGHT].sum())
        shares = [
            WaitShare(
                function=names.get(function, f"function {function}"),
                calls=int(totals[place, _CALLS]),
                ns=int(totals[place, _TIME]),
                share=int(totals[place, _WEIGHT]) / whole if whole else 0.0,
            )
            for function, place in self._places.items()
            if place < MOST_FUNCTIONS and totals[place, _CALLS]
        ]
        return tuple(sorted(shares, key=lambda share: (-share.share, -share.ns, share.function)))


def _weights(times: SequenceTimes, begins: Int64s, ends: Int64s, end_ns: int) -> Int64s:
    """The weights (ns) of waits, which spread the price of waiting: the time for which each held the GPU up at most.

    A wait weighs as much as the gap of the GPU's work in which it returns, but at most its duration: without the wait,
    no more of the gap would be avoided. A return while the GPU works, or after the last operation, weighs nothing.
    """
    work = times.work
    following = np.searchsorted(work.starts, ends, "right")
    gap_begins = np.maximum.accumulate(np.concatenate(([times.last_end.at_ns], work.ends)))[following]
    gap_ends = np.append(work.starts, 0 if times.ended else end_ns)[following]
    # A gap that is cut off by a time without records is as long as it is known to be.
    until = times.recorded.ends[times.recorded.place(ends)] if len(ends) else ends
    gaps = np.minimum(gap_ends, until) - gap_begins
    return int64s(np.where(gap_begins <= ends, np.clip(gaps, 0, ends - begins), 0))


def limited(waits: Sequence[WaitShare], price_ns: float) -> tuple[WaitShare, ...]:
    """``waits`` with prices that exceed the time of none; the price (ns) of all together is ``price_ns``.

    The rest is spread over the other waits in proportion to the time that their prices leave: a blocking copy is work
    of the GPU itself, and its weight says nothing about what the program loses in it.
    """
    prices = [min(wait.share * price_ns, wait.ns) for wait in waits]
    left = [wait.ns - price for wait, price in zip(waits, prices, strict=True)]
    excess = price_ns - sum(prices)
    if excess <= 0 or not sum(left):
        return tuple(waits)
    part = min(excess / sum(left), 1.0)
    prices = [price + part * room for price, room in zip(prices, left, strict=True)]
    changed = (wait.changed(share=min(price / price_ns, 1.0)) for wait, price in zip(waits, prices, strict=True))
    return tuple(sorted(changed, key=lambda wait: (-wait.share, -wait.ns, wait.function)))
