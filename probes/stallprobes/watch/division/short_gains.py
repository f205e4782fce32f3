"""Gains by groups of calls: what a program saves without some calls between those that remain.

A program can run only some steps ahead of the GPU: where the host computes for long now and then, the GPU cannot work
through it with what was submitted before. Between two calls that wait for all work, host and GPU are replayed: the host
without what is removed, the GPU as soon as its work is submitted and that before is done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.call_columns import ALLOCATES_BY_KIND, AWAITS_OR_FREES, AWAITS_WORK, flags_by_kind
from stallprobes.watch.division.instants import (
    APART,
    BESIDE,
    COPY,
    LATE_FREES,
    WAITING,
    Calls,
    Flags,
    Instants,
    Operations,
    SequenceTimes,
)
from stallprobes.watch.division.parts import GPU_PARTS, NUMBERS, ORDER, Part
from stallprobes.watch.division.work_order import WorkOrder
from stallprobes.watch.intervals import FOREVER, NONE, Int64s, distinct, int64s, numbered

# Number of waits in a group of calls, for which the time of host and GPU is compared. Reason: a step has about one
# wait, and programs rarely run more than this number of steps ahead of the GPU.
_WAITS_OF_GROUP = 8
# Number of launches that the queue of a stream holds: a further launch waits. Measured on H200s.
_QUEUE = 1024
# Calls that free memory, and wait for all earlier work of the GPU.
_FREES = flags_by_kind(CallKind.FREES)
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


class CallGroups:
    """Longer of the host's and the GPU's time in each group of waits, and of launches, of a sequence, over all slices.

    Groups of _WAITS_OF_GROUP waits say what is gained without waits where the host runs some steps ahead of the GPU at
    most; those of as many launches as a queue holds, what is gained where it runs ahead by these.
    """

    def __init__(self, bin_borders: Callable[[int, int], Int64s]) -> None:
        """``bin_borders``: borders (ns) of bins between two times, the first at or before the first time."""
        self._bin_borders = bin_borders
        # Open groups at the end of the last slice, of waits and of launches: numbers of their calls; their times (ns)
        # of the host, of GPU work and of copies.
        self._calls = [0, 0]
        self._open = np.zeros((2, 3, 1), dtype=np.int64)

    def add(self, times: SequenceTimes, instants: Instants) -> tuple[Int64s, Int64s, Int64s]:
        """Add a slice. Returns int64[n] each: begins of groups and of bins in the slice, and the growths (ns) of the
        longer time of groups of waits, and of launches, until the next begin."""
        begins, lengths, parts = instants.begins, instants.ends - instants.begins, instants.parts
        borders = [
            self._borders(kind, _within(counted, instants))
            for kind, counted in enumerate((_returned(times, AWAITS_WORK), _launched(times)))
        ]
        within = self._bin_borders(int(begins[0]), int(instants.ends[-1]))[1:]
        first = _groups(np.sort(np.concatenate((*borders, within))), begins)
        waiting, apart, beside = (instants.flags[column - WAITING] for column in (WAITING, APART, BESIDE))
        hosts = ~waiting & (parts != NUMBERS[Part.END]) if times.ended else ~waiting
        works, copies = _works(instants) if apart.any() else _WORKS[parts], (parts == NUMBERS[Part.COPIES]) | beside
        sums = np.array([np.add.reduceat(lengths * chosen, first) for chosen in (hosts, works, copies)])
        # The times of the open groups, until each begin and until the next one; ``base`` is those until the group.
        until = np.cumsum(sums, axis=1) + self._open
        before, base = until - sums, np.zeros_like(until)
        for kind, of_kind in enumerate(borders):
            new = begins[first].searchsorted(of_kind)
            new = new[: int(new.searchsorted(len(first)))]
            base[kind][:, new] = before[kind][:, new]
        np.maximum.accumulate(base, axis=2, out=base)
        self._open = (until - base)[:, :, -1:] * [[[_is_open(of_kind, instants)]] for of_kind in borders]
        waits, launches = (until - base).max(axis=1) - (before - base).max(axis=1)
        return begins[first], waits, launches

    def _borders(self, kind: int, times: Int64s) -> Int64s:
        """When groups end whose calls are counted at ``times`` (ns)."""
        size = (_WAITS_OF_GROUP, _QUEUE)[kind]
        borders = times[size - 1 - self._calls[kind] :: size]
        self._calls[kind] = (self._calls[kind] + len(times)) % size
        return borders


class FreeGroups:
    """Time of a sequence without waits, in groups of frees and loads, over all slices."""

    def __init__(self) -> None:
        # Open group at the end of the last slice: number of its waits (None: no open group), times (ns) of the host and
        # of GPU work, and longest time (ns) from the group's begin to the end of an operation.
        self._waits: int | None = None
        self._host = self._gpu = self._longest = 0
        # Moments (ns) in the open group, and the host's time (ns) in the group until each moment.
        self._known = NONE, NONE

    def add(
        self, times: SequenceTimes, instants: Instants, order: SubmittedOrder | None = None
    ) -> tuple[Int64s, Int64s]:
        """Add a slice. Returns int64[n] each: begins of the counted groups in the slice, and the growth (ns) of their
        times. Groups with more than _WAITS_OF_GROUP waits count only in a slice with _LEAST_GROUPS frees and loads.
        ``order``: that of the work, if it is in several streams."""
        # A load of device code waits for all earlier work before it loads.
        loads = map(partial(_loads, times.limits.blocked_ns), times.threads.values())
        borders = _within(np.concatenate([_returned(times, _FREES), *loads]), instants)
        if not len(borders) and self._waits is None:
            return NONE, NONE
        borders.sort(kind="stable")
        begins, first = instants.begins, _groups(borders, instants.begins)
        removed = _host_waits(times, instants)
        host, gpu = _host_and_gpu(instants, removed, _works(instants))
        waits = np.diff(
            _within(_returned(times, AWAITS_WORK), instants).searchsorted(np.append(begins[first], FOREVER))
        )
        waits[0] += self._waits or 0
        counted = (waits <= _WAITS_OF_GROUP) | (len(borders) >= _LEAST_GROUPS)
        counted[0] &= self._waits is not None or len(borders) >= _LEAST_GROUPS
        replayed = self._replayed(times, instants, first, host, gpu)
        if order is not None:
            # The begin of the first group is in the slice before.
            replayed[1:] = order.replayed(instants, borders, removed)[1][1:]
        before = max(self._host, self._gpu, self._longest)
        self._leave_open(instants, first, host, gpu, int(replayed[-1]))
        if order is not None:
            self._gpu = min(self._gpu, self._longest)
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


def saved_without_frees(
    times: SequenceTimes, instants: Instants, order: SubmittedOrder | None = None
) -> tuple[Int64s, Int64s]:
    """The time (ns) saved without calls that allocate or free in groups of waits: when each begins, and the time.

    In a slice with few waits, that is all time inside these calls, except late frees. ``order``: that of the work, if
    it is in several streams.
    """
    allocates = _inside(times, instants, ALLOCATES_BY_KIND)
    if not allocates.any():
        return NONE, NONE
    waits = _returned(times, AWAITS_WORK)
    if len(waits) < _LEAST_GROUPS:
        allocates &= ~instants.flags[LATE_FREES - WAITING]
        return instants.begins[allocates], (instants.ends - instants.begins)[allocates]
    lengths, removed = instants.ends - instants.begins, instants.flags[0] | allocates
    if order is None:
        first, replayed = _replayed(times, instants, waits, removed, _works(instants))
    else:
        first, replayed = order.replayed(instants, waits, removed)
    return instants.begins[first], np.maximum(np.add.reduceat(lengths, first) - replayed, 0)


class SubmittedOrder(NamedTuple):
    """The order of the work in a slice of time, and replays with when its calls returned.

    ``until_ns``: end of the first part of the slice, which has the work; ``factor``: by how much longer the slice is.
    """

    order: WorkOrder
    work: Operations
    until_ns: int
    factor: float = 1.0

    @classmethod
    def of(cls, times: SequenceTimes, begin_ns: int, until_ns: int) -> SubmittedOrder | None:
        """The order of the work that starts from ``begin_ns`` on and before ``until_ns``; None if that is known by the
        order of starts."""
        if not len(times.work) or (times.work.streams == times.work.streams[0]).all():
            return None
        work = times.work.at(slice(*times.work.starts.searchsorted((begin_ns, until_ns))))
        order = WorkOrder.of(work, times.limits.launch_ns)
        if order is None or len(order.lines) == len(work):
            return order and cls(order, work, until_ns)
        part_ns = int(work.starts[len(order.lines)])
        factor = (until_ns - begin_ns) / max(part_ns - begin_ns, 1)
        return cls(order, work.at(slice(len(order.lines))), part_ns, factor)

    @property
    def overlap(self) -> tuple[Int64s, Int64s]:
        """The time (ns) that the GPU's work would save in its order alone, if the host kept no stream waiting: when
        operations start, and by how much they change that time."""
        starts, begins = self.work.starts, self.work.ends - self.order.took
        ends = np.maximum.accumulate(self.work.ends)
        alone = np.maximum(ends - np.maximum(begins, np.append(begins[:1], ends[:-1])), 0)
        none = np.zeros(len(starts), dtype=np.int64)
        places, ends_of_chain = self.order.replayed(none, none)
        grown = np.diff(np.maximum.accumulate(ends_of_chain), prepend=0)
        saved = np.concatenate((alone, -grown)) * self.factor
        return np.concatenate((starts, starts[places])), saved.astype(np.int64)

    def replayed(self, instants: Instants, borders: Int64s, removed: Flags) -> tuple[Int64s, Int64s]:
        """The first instant of each group between ``borders``, and the time (ns) that the group takes if the host skips
        the instants ``removed``."""
        first = _groups(borders, instants.begins)
        host, _ = _host_and_gpu(instants, removed, removed)
        starts, returned = self.work.starts, self.work.returned
        groups = np.maximum(instants.begins[first].searchsorted(starts, "right") - 1, 0)
        edges = np.append(instants.begins, instants.ends[-1])
        submitted = np.interp(np.where(returned < 0, starts, returned), edges, host).astype(np.int64)
        released = np.maximum(submitted - host[first][groups], 0)
        places, ends = self.order.replayed(released, groups)
        longest = _longest(ends, groups[places], len(first))
        return first, np.maximum(longest, host[self._ends(instants, first)] - host[first])

    def _ends(self, instants: Instants, first: Int64s) -> Int64s:
        """Place behind the last instant of each group with work, by the first ones."""
        last = int(instants.begins.searchsorted(self.until_ns))
        return int64s(np.maximum(np.minimum(np.append(first[1:], len(instants.begins)), last), first))

    def saved_order(self, times: SequenceTimes, instants: Instants) -> tuple[Int64s, Int64s]:
        """The time (ns) saved if kernels with room for each other did not wait for each other, in groups of calls for
        which the host waits: when each begins, and the time."""
        order = self.order
        changed = order._replace(behind=np.where(order.avoidable, -1, order.behind))
        return self._saved(times, instants, changed) if order.avoidable.any() else (NONE, NONE)

    def saved_copies(self, times: SequenceTimes, instants: Instants) -> tuple[Int64s, Int64s]:
        """The time (ns) saved without copies, in groups as those of ``saved_order``."""
        copies = self.work.kinds == COPY
        changed = self.order._replace(took=np.where(copies, 0, self.order.took))
        return self._saved(times, instants, changed) if copies.any() else (NONE, NONE)

    def _saved(self, times: SequenceTimes, instants: Instants, changed: WorkOrder) -> tuple[Int64s, Int64s]:
        """The time (ns) saved in groups of waits and frees, in each of which the host still waits for all work."""
        waits, waiting = _returned(times, AWAITS_OR_FREES), _host_waits(times, instants)
        first, before = self.replayed(instants, waits, waiting)
        _, after = self._replace(order=changed).replayed(instants, waits, waiting)
        edges = np.append(instants.begins, instants.ends[-1])
        lengths = edges[self._ends(instants, first)] - edges[first]
        saved = np.maximum(np.minimum(before, lengths) - after, 0) * self.factor
        return instants.begins[first], saved.astype(np.int64)


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


def _loads(least_ns: int, calls: Calls) -> Int64s:
    """When the calls began that loaded device code for at least ``least_ns``."""
    return calls.where((calls.kinds == int(CallKind.LOADS)) & (calls.lengths >= least_ns)).begins


def _returned(times: SequenceTimes, kinds: Flags) -> Int64s:
    """When the calls of some kinds returned, in order."""
    returned = np.concatenate([NONE, *(calls.ends[kinds[calls.kinds]] for calls in times.threads.values())])
    if len(times.threads) > 1:
        returned.sort(kind="stable")
    return returned


def _launched(times: SequenceTimes) -> Int64s:
    """When the kernels start of the launches in the stream with most of them, in order: each stream has its queue. Of
    the nodes of a graph, which have one launch, the first counts."""
    work = times.work
    chosen = np.append(True, work.returned[1:] != work.returned[:-1])[: len(work)] & (work.kinds != COPY)
    if chosen.any() and (work.streams != work.streams[0]).any():
        streams, numbers = numbered(work.streams[chosen])
        chosen &= work.streams == streams[np.bincount(numbers).argmax()]
    return work.starts.compress(chosen)


def _host_waits(times: SequenceTimes, instants: Instants) -> Flags:
    """Flags of the instants in which the host waits for the GPU, also inside a free."""
    waits: Flags = instants.flags[0] | (_WORKS[instants.parts] & _inside(times, instants, _FREES))
    return waits


def _inside(times: SequenceTimes, instants: Instants, kinds: Flags) -> Flags:
    """Flags of the instants inside a call of some kinds."""
    inside = np.zeros(len(instants.begins), dtype=np.bool_)
    for calls in times.threads.values():
        chosen = calls.where(kinds[calls.kinds])
        if len(chosen):
            inside |= chosen.spans.contain_ascending(instants.begins)
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
