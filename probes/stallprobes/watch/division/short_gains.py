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
from stallprobes.watch.intervals import FOREVER, NONE, Int64s, distinct, int64s

# Number of waits in a group of calls, for which the time of host and GPU is compared. Reason: a step has about one
# wait, and programs rarely run more than this number of steps ahead of the GPU.
_WAITS_OF_GROUP = 8
# Flags by number of CallKind: a call of this kind waits for the GPU.
_WAITS = np.array([kind in (CallKind.WAITS, CallKind.COPIES) for kind in CallKind])
# Flags by number of CallKind: a call of this kind frees memory, and waits for all earlier work of the GPU.
_FREES = np.array([kind is CallKind.FREES for kind in CallKind])
# Smallest number of waits (or of frees) in a slice of time that can be replayed. The replay computes how long the calls
# between two waits (or frees) take if some calls are removed. Reason: the slice cuts off the first and the last group
# of calls. In a slice with fewer frees, only groups with at most _WAITS_OF_GROUP waits are replayed.
_LEAST_GROUPS = 4
# Limits of what is kept about an open group. _MOST_KNOWN: largest number of moments in a slice at which the host's time
# is kept. _KEPT_SLICES: largest number of slices with kept moments. Reason: an operation may start several slices after
# its submission.
_MOST_KNOWN, _KEPT_SLICES = 128, 16
# Flags by number of the part of the time (place in ORDER): True if the GPU is occupied in this part (GPU_PARTS).
_WORKS = np.array([part in GPU_PARTS for part in ORDER])


class WaitGroups:
    """Longer of the host's and the GPU's time in each group of waits of a sequence, over all slices."""

    def __init__(self) -> None:
        # Open group at the end of the last slice: number of its waits; its times (ns) of the host, of GPU work and of
        # copies.
        self._waits = 0
        self._open = np.zeros(3, dtype=np.int64)

    def add(self, times: SequenceTimes, instants: Instants) -> tuple[Int64s, Int64s]:
        """Add a slice. Returns int64[n] each: begins of the groups in the slice, and the growth (ns) of their times."""
        begins, lengths, parts = instants.begins, instants.ends - instants.begins, instants.parts
        returned = _within(_returned(times, _WAITS), instants)
        borders = returned[_WAITS_OF_GROUP - 1 - self._waits :: _WAITS_OF_GROUP]
        self._waits = (self._waits + len(returned)) % _WAITS_OF_GROUP
        first = _groups(borders, begins)
        waiting, apart, beside = (instants.flags[column - WAITING] for column in (WAITING, APART, BESIDE))
        hosts = ~waiting & (parts != NUMBERS[Part.END]) if times.ended else ~waiting
        works, copies = _works(instants) if apart.any() else _WORKS[parts], (parts == NUMBERS[Part.COPIES]) | beside
        groups = np.array([np.add.reduceat(lengths * chosen, first) for chosen in (hosts, works, copies)])
        before = int(self._open.max())
        groups[:, 0] += self._open
        longer = groups.max(axis=0)
        longer[0] -= before
        self._open = groups[:, -1] * _is_open(borders, instants)
        return begins[first], longer


class FreeGroups:
    """Time of a sequence without waits, in groups of frees and loads, over all slices."""

    def __init__(self) -> None:
        # Open group at the end of the last slice: number of its waits (None: no open group), times (ns) of the host and
        # of GPU work, and longest time (ns) from the group's begin to the end of an operation.
        self._waits: int | None = None
        self._host = self._gpu = self._longest = 0
        # Moments (ns) in the open group, and the host's time (ns) in the group until each moment.
        self._known = NONE, NONE

    def add(self, times: SequenceTimes, instants: Instants) -> tuple[Int64s, Int64s]:
        """Add a slice. Returns int64[n] each: begins of the counted groups in the slice, and the growth (ns) of their
        times. Groups with more than _WAITS_OF_GROUP waits count only in a slice with _LEAST_GROUPS frees and loads."""
        # A load of device code waits for all earlier work before it loads.
        loads = map(partial(_loads, times.limits.blocked_ns), times.threads.values())
        borders = _within(np.concatenate([_returned(times, _FREES), *loads]), instants)
        if not len(borders) and self._waits is None:
            return NONE, NONE
        borders.sort(kind="stable")
        begins, first = instants.begins, _groups(borders, instants.begins)
        removed = instants.flags[0] | (_WORKS[instants.parts] & _inside(times, instants, _FREES))
        host, gpu = _host_and_gpu(instants, removed, _works(instants))
        waits = np.diff(_within(_returned(times, _WAITS), instants).searchsorted(np.append(begins[first], FOREVER)))
        waits[0] += self._waits or 0
        counted = (waits <= _WAITS_OF_GROUP) | (len(borders) >= _LEAST_GROUPS)
        counted[0] &= self._waits is not None or len(borders) >= _LEAST_GROUPS
        replayed = self._replayed(times, instants, first, host, gpu)
        before = max(self._host, self._gpu, self._longest)
        self._leave_open(instants, first, host, gpu, int(replayed[-1]))
        self._waits = int(waits[-1])
        if not _is_open(borders, instants):
            self._forget()
            self._waits = 0
        elif self._waits > _WAITS_OF_GROUP and len(borders) < _LEAST_GROUPS:
            self._forget()
        replayed[0] -= before
        return begins[first[counted]], replayed[counted]

    def _replayed(self, times: SequenceTimes, instants: Instants, first: Int64s, host: Int64s, gpu: Int64s) -> Int64s:
        """Time (ns) of each group without waits, until the group or the slice ends: int64[groups]."""
        host_before, gpu_before = np.zeros((2, len(first)), dtype=np.int64)
        host_before[0], gpu_before[0] = self._host, self._gpu
        ends = np.append(first[1:], len(instants.begins))
        replayed = np.maximum(host_before + host[ends] - host[first], gpu_before + gpu[ends] - gpu[first])
        replayed[0] = max(replayed[0], self._longest + gpu[ends[0]] - gpu[first[0]])
        longest = _longest_after_submission(times, instants, first, host, gpu, self._host, self._known)
        return int64s(np.maximum(replayed, longest))

    def _leave_open(self, instants: Instants, first: Int64s, host: Int64s, gpu: Int64s, replayed: int) -> None:
        at = int(first[-1])
        if len(first) > 1:
            self._forget()
        chosen = at + np.unique(np.linspace(0, len(instants.begins) - at, _MOST_KNOWN).astype(np.int64))
        edges = np.append(instants.begins, instants.ends[-1])
        new = edges[chosen], self._host + host[chosen] - host[at]
        kept = slice(-_KEPT_SLICES * _MOST_KNOWN, None)
        self._known = (
            np.concatenate((self._known[0], new[0]))[kept],
            np.concatenate((self._known[1], new[1]))[kept],
        )
        self._host += int(host[-1] - host[at])
        self._gpu += int(gpu[-1] - gpu[at])
        self._longest = replayed

    def _forget(self) -> None:
        self._waits = None
        self._host = self._gpu = self._longest = 0
        self._known = NONE, NONE


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


def _within(times: Int64s, instants: Instants) -> Int64s:
    """The ``times`` after the begin of a slice and up to its end."""
    return int64s(times[(times > instants.begins[0]) & (times <= instants.ends[-1])])


def _is_open(borders: Int64s, instants: Instants) -> bool:
    """True if the last group of a slice continues in the next slice: no border lies at the end of the slice."""
    return not len(borders) or int(borders[-1]) <= int(instants.begins[-1])


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
    first = _groups(borders, instants.begins)
    host, gpu = _host_and_gpu(instants, removed, works)
    ends = np.append(first[1:], len(instants.begins))
    replayed = np.maximum(host[ends] - host[first], gpu[ends] - gpu[first])
    return first, np.maximum(replayed, _longest_after_submission(times, instants, first, host, gpu))


def _host_and_gpu(instants: Instants, removed: Flags, works: Flags) -> tuple[Int64s, Int64s]:
    """Cumulative times (ns) of the host without the instants ``removed``, and of the GPU in the instants ``works``:
    int64[instants + 1] each, up to the begin of each instant and up to the end."""
    host, gpu = np.zeros((2, len(removed) + 1), dtype=np.int64)
    lengths = instants.ends - instants.begins
    np.cumsum(lengths * ~removed, out=host[1:])
    np.cumsum(lengths * works, out=gpu[1:])
    return host, gpu


def _longest_after_submission(
    times: SequenceTimes,
    instants: Instants,
    first: Int64s,
    host: Int64s,
    gpu: Int64s,
    host_before: int = 0,
    known: tuple[Int64s, Int64s] = (NONE, NONE),
) -> Int64s:
    """Longest time (ns) in each group through an operation: int64[groups]. This is the host's time until it submits
    the operation, plus the GPU's time from the operation's start to the group's end.

    ``host_before`` is the host's time (ns) in the first group before the slice. ``known`` is the host's time (ns) in
    this group (second array) until some moments (ns, first array).
    """
    begins, ends = instants.begins, np.append(first[1:], len(instants.begins))
    work = times.work
    chosen = (work.starts >= begins[0]) & (work.starts < instants.ends[-1]) & (work.returned >= 0)
    starts, submitted = work.starts[chosen], work.returned[chosen]
    if not len(starts):
        return np.zeros(len(first), dtype=np.int64)
    places = np.searchsorted(begins[first], starts, "right") - 1
    edges = np.column_stack((begins, instants.ends)).ravel()
    before_host, before_gpu = (
        np.interp(at, edges, np.column_stack((sums[:-1], sums[1:])).ravel())
        for at, sums in ((submitted, host), (starts, gpu))
    )
    before_host = np.maximum(before_host - host[first][places], 0)
    if host_before:
        earlier = (places == 0) & (submitted < begins[0])
        before_host[places == 0] += host_before
        before_host[earlier] = np.interp(submitted[earlier], *known, left=0)
    waited = before_host + gpu[ends][places] - before_gpu
    return _longest(waited.astype(np.int64), places, len(first))


def _longest(values: Int64s, groups: Int64s, count: int) -> Int64s:
    """The largest of the ``values`` of each group, 0 without any."""
    longest = np.zeros(count, dtype=np.int64)
    np.maximum.at(longest, groups, values)
    return longest
