"""Gains by groups of calls: what a program saves without some calls between those that remain.

A program can run only some steps ahead of the GPU: where the host computes for long now and then, the GPU cannot work
through it with what was submitted before. Between two calls that wait for all work, host and GPU are replayed: the host
without what is removed, the GPU as soon as its work is submitted and that before is done.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.instants import (
    ALLOCATES_BY_KIND,
    APART,
    BESIDE,
    WAITING,
    Flags,
    Instants,
    SequenceTimes,
    Spans,
    ThreadCalls,
)
from stallprobes.watch.division.parts import GPU_PARTS, NUMBERS, ORDER, Part
from stallprobes.watch.intervals import NONE, Int64s, distinct, int64s

# Number of waits in a group of calls, for which the time of host and GPU is compared. Reason: a step has about one
# wait, and programs rarely run more than this number of steps ahead of the GPU.
_WAITS_OF_GROUP = 8
# Flags by number of CallKind: a call of this kind waits for the GPU.
_WAITS = np.array([kind in (CallKind.WAITS, CallKind.COPIES) for kind in CallKind])
# Flags by number of CallKind: a call of this kind frees memory, and waits for all earlier work of the GPU.
_FREES = np.array([kind is CallKind.FREES for kind in CallKind])
# Smallest number of waits (or of frees) in a slice of time that can be replayed. The replay computes how long the calls
# between two waits (or frees) take if some calls are removed. Reason: the slice cuts off the first and the last group
# of calls.
_LEAST_GROUPS = 4
# Flags by number of the part of the time (place in ORDER): True if the GPU is occupied in this part (GPU_PARTS).
_WORKS = np.array([part in GPU_PARTS for part in ORDER])


def longer_times(times: SequenceTimes, instants: Instants) -> tuple[Int64s, Int64s]:
    """The longer of the host's and the GPU's time in each group of waits: when it begins, and the time (ns)."""
    returned = _returned(times, _WAITS)
    begins, lengths, parts = instants.begins, instants.ends - instants.begins, instants.parts
    first = _groups(returned[_WAITS_OF_GROUP - 1 :: _WAITS_OF_GROUP], begins)
    waiting, apart, beside = (instants.flags[column - WAITING] for column in (WAITING, APART, BESIDE))
    works = _WORKS[parts]
    host = np.add.reduceat(lengths * ~waiting, first)
    if times.ended:
        host -= np.add.reduceat(lengths * (parts == NUMBERS[Part.END]), first)
    longer = np.maximum(host, np.add.reduceat(lengths * (works & ~apart if apart.any() else works), first))
    copies = (parts == NUMBERS[Part.COPIES]) | beside
    if copies.any():
        longer = np.maximum(longer, np.add.reduceat(lengths * copies, first))
    return begins[first], longer


def times_without_waits(times: SequenceTimes, instants: Instants) -> tuple[Int64s, Int64s]:
    """The time (ns) that each group of frees and loads takes without waits: when it begins, and the time; none with few
    of them."""
    # A load of device code waits for all earlier work before it loads.
    loads = map(partial(_loads, times.limits.blocked_ns), times.threads.values())
    borders = np.concatenate([_returned(times, _FREES), *loads])
    if len(borders) < _LEAST_GROUPS:
        return NONE, NONE
    borders.sort(kind="stable")
    removed = instants.flags[0] | (_WORKS[instants.parts] & _inside(times, instants, _FREES))
    first, replayed = _replayed(times, instants, borders, removed, _works(instants))
    return instants.begins[first], replayed


def saved_without_frees(times: SequenceTimes, instants: Instants) -> tuple[Int64s, Int64s]:
    """The time (ns) saved without calls that allocate or free in groups of waits: when each begins, and the time.

    In a slice with few waits, that is all time inside these calls.
    """
    allocates = _inside(times, instants, ALLOCATES_BY_KIND)
    if not allocates.any():
        return NONE, NONE
    waits = _returned(times, _WAITS)
    if len(waits) < _LEAST_GROUPS:
        return instants.begins[allocates], (instants.ends - instants.begins)[allocates]
    lengths = instants.ends - instants.begins
    first, replayed = _replayed(times, instants, waits, instants.flags[0] | allocates, _works(instants))
    return instants.begins[first], np.maximum(np.add.reduceat(lengths, first) - replayed, 0)


def _groups(borders: Int64s, begins: Int64s) -> Int64s:
    """The place of the first instant of each group between ``borders``; both ascend."""
    places = distinct(begins.searchsorted(np.append(begins[:1], borders)))
    return places[: int(places.searchsorted(len(begins)))]


def _works(instants: Instants) -> Flags:
    """Flags of the instants in which the GPU works, without copies that kernels could run beside."""
    works: Flags = _WORKS[instants.parts] & ~instants.flags[APART - WAITING]
    return works


def _loads(least_ns: int, calls: ThreadCalls) -> Int64s:
    """When the calls began that loaded device code for at least ``least_ns``."""
    begins, ends = calls.spans
    chosen: Flags = (calls.kinds == int(CallKind.LOADS)) & (ends - begins >= least_ns)
    return int64s(begins[chosen])


def _returned(times: SequenceTimes, kinds: Flags) -> Int64s:
    """When the calls of some kinds returned, in order."""
    returned = np.concatenate([NONE, *(calls.spans.ends[kinds[calls.kinds]] for calls in times.threads.values())])
    if len(times.threads) > 1:
        returned.sort(kind="stable")
    return returned


def _inside(times: SequenceTimes, instants: Instants, kinds: Flags) -> Flags:
    """Flags of the instants inside a call of some kinds."""
    inside = np.zeros(len(instants.begins), dtype=np.bool_)
    for calls in times.threads.values():
        chosen = kinds[calls.kinds]
        if chosen.any():
            spans = Spans(calls.spans.begins[chosen], calls.spans.ends[chosen])
            inside |= spans.contain_ascending(instants.begins)
    return inside


def _replayed(
    times: SequenceTimes, instants: Instants, borders: Int64s, removed: Flags, works: Flags
) -> tuple[Int64s, Int64s]:
    """The first instant of each group between ``borders``, and the time (ns) that the group takes if the host skips the
    instants ``removed`` and the GPU works in those ``works``."""
    begins, lengths = instants.begins, instants.ends - instants.begins
    first = _groups(borders, begins)
    host, gpu = (np.append(0, np.cumsum(lengths * chosen)) for chosen in (~removed, works))
    ends = np.append(first[1:], len(begins))
    replayed = np.maximum(host[ends] - host[first], gpu[ends] - gpu[first])
    # The operations that start in a group, and when the host has submitted each, by its time in the group.
    work = times.work
    chosen = (work.starts >= begins[0]) & (work.starts < instants.ends[-1]) & (work.returned >= 0)
    starts, submitted = work.starts[chosen], work.returned[chosen]
    if len(starts):
        places = np.searchsorted(begins[first], starts, "right") - 1
        edges = np.column_stack((begins, instants.ends)).ravel()
        before_host, before_gpu = (
            np.interp(at, edges, np.column_stack((sums[:-1], sums[1:])).ravel())
            for at, sums in ((submitted, host), (starts, gpu))
        )
        waited = np.maximum(before_host - host[first][places], 0) + gpu[ends][places] - before_gpu
        replayed = np.maximum(replayed, _longest(waited.astype(np.int64), places, len(first)))
    return first, replayed


def _longest(values: Int64s, groups: Int64s, count: int) -> Int64s:
    """The largest of the ``values`` of each group, 0 without any."""
    longest = np.zeros(count, dtype=np.int64)
    np.maximum.at(longest, groups, values)
    return longest
