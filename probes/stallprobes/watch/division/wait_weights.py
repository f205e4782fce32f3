"""Weights of waits: the time for which each held the GPU up at most; they spread the price of waiting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.instants import SequenceTimes
from stallprobes.watch.intervals import Int64s, int64s

# Flags by number of CallKind: a call of this kind waits for the GPU's work.
_WAITING = np.array([kind in (CallKind.WAITS, CallKind.COPIES, CallKind.FREES) for kind in CallKind])


class WaitWeights(NamedTuple):
    """Calls that waited: when they returned, their functions, their durations and their weights (ns), int64[n] each."""

    ends: Int64s
    functions: Int64s
    durations: Int64s
    weights: Int64s


def wait_weights(times: SequenceTimes, begin_ns: int, end_ns: int) -> WaitWeights:
    """Waits that returned from ``begin_ns`` on and before ``end_ns``, or at the end, where work was recorded.

    A wait weighs as much as the gap of the GPU's work in which it returns, but at most its duration: without the wait,
    no more of the gap would be avoided. A return while the GPU works, or after the last operation, weighs nothing.
    """
    begins, ends, functions = (np.concatenate(columns) for columns in _columns(times, begin_ns, end_ns))
    work, durations = times.work, ends - begins
    following = np.searchsorted(work.starts, ends, "right")
    gap_begins = np.maximum.accumulate(np.concatenate(([times.last_end.at_ns], work.ends)))[following]
    gap_ends = np.append(work.starts, 0 if times.ended else end_ns)[following]
    # A gap that is cut off by a time without records is as long as it is known to be.
    until = times.recorded.ends[times.recorded.place(ends)] if len(ends) else ends
    gaps = np.minimum(gap_ends, until) - gap_begins
    weights = np.where(gap_begins <= ends, np.clip(gaps, 0, durations), 0)
    return WaitWeights(ends, functions, durations, weights)


def _columns(times: SequenceTimes, begin_ns: int, end_ns: int) -> tuple[list[Int64s], list[Int64s], list[Int64s]]:
    """Begins, ends and functions of the waits of each thread."""
    begins, ends, functions = [int64s([])], [int64s([])], [int64s([])]
    for calls in times.threads.values():
        waits = np.flatnonzero(_WAITING[calls.kinds])
        returned = calls.spans.ends[waits]
        # At its end, a slice may leave a gap open.
        chosen = (returned >= begin_ns) & ((returned < end_ns) | ((returned == end_ns) & times.ended))
        if chosen.any() and len(calls.functions):
            waits = waits[chosen & times.recorded.contain(returned)]
            begins.append(calls.spans.begins[waits])
            ends.append(calls.spans.ends[waits])
            functions.append(calls.functions[waits])
    return begins, ends, functions
