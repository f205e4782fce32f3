"""Where the kernels of a program are launched, by samples of launches, and the shape of their blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.driver_calls import CallFamily, family_of
from stallprobes.native.layouts.watch_file import SampledTime
from stallprobes.records.rows import Rows, rows_at
from stallprobes.watch.division.result import KernelTime
from stallprobes.watch.intervals import Int64s, distinct, int64s, numbered
from stallprobes.watch.lines.places import PACKAGES, place_of
from stallprobes.watch.reading.call_stack import CallStack, StackFrame
from stallprobes.watch.reading.kernel_names import demangle_all
from stallprobes.watch.reading.process import CallBatch, GpuLimits, RecordBatch, SampleBatch

# Largest number of sampled launches whose kernels are not known yet: the latest ones. Reason: records are read later
# than calls.
_MOST_PENDING = 1 << 12
# Largest number of sums: kernels of one name with launches from one stack of one thread.
_MOST_SUMS = 1 << 12
# Limits for naming the line that launches most kernels of a name. _LEAST_LAUNCHES: smallest number of sampled launches
# at the line. _LEAST_SHARE: its smallest share of the sampled launches of such kernels.
_LEAST_LAUNCHES, _LEAST_SHARE = 3, 0.5
# Largest number of kernels of a reading whose reserved local memory is compared: with fewer, less is known.
_MOST_COMPARED = 1 << 14
# Longest time (ns) from a sample that was taken at the begin of a call to the begin of the call in the log.
_LATE_NS = 100_000
# Smallest time (ns) between calls in which another thread may have taken the sample's stack, at another line than that
# of the next call.
_LOOKED_NS = 200_000


class KernelLaunches:
    """The launches of a process, reading after reading."""

    def __init__(self) -> None:
        # Thread and stack of sampled launches by their correlation, until their kernels are known.
        self._pending: dict[int, tuple[int, int]] = {}
        # By the name of a kernel, as the records have it: its sampled launches by thread and stack; its shape; and the
        # least local memory (bytes) of all threads that the GPU has room for.
        self._launches: dict[int, Counter[tuple[int, int]]] = {}
        self._sums = 0
        self._shapes: dict[int, int] = {}
        self._local: dict[int, int] = {}
        self._names: dict[int, str] = {}

    def add(
        self, samples: SampleBatch, calls: CallBatch, records: RecordBatch, stacks: Mapping[int, CallStack]
    ) -> None:
        """Add a reading; ``stacks`` are all that are known by now."""
        self._names.update(records.names)
        self._note_launches(samples, calls, stacks)
        kernels = np.flatnonzero(records.rows["kind"] == int(RecordKind.KERNEL))
        if not len(kernels):
            return
        self._note_shapes(records, kernels)
        self._note_local_memory(rows_at(records.rows, kernels[:_MOST_COMPARED]))
        if self._pending:
            known = np.fromiter(self._pending, np.uint32, len(self._pending))
            self._note_kernels(rows_at(records.rows, kernels[np.isin(records.rows["correlation"][kernels], known)]))

    def described(
        self,
        kernels: tuple[KernelTime, ...],
        threads: Container[int],
        stacks: Mapping[int, CallStack],
        roles: Container[int] = (),
        limits: GpuLimits | None = None,
    ) -> tuple[KernelTime, ...]:
        """``kernels`` of a sequence with what is known of the launches by its ``threads``. ``roles`` are threads of
        libraries that have a role of their own, such as a backward pass: no line of the program led to their launches.
        ``limits`` are those of the sequence's GPU.
        """
        names = demangle_all(set(self._names.values()) - {""})
        numbers: dict[str, list[int]] = {}
        for number, name in self._names.items():
            numbers.setdefault(names.get(name, ""), []).append(number)
        found = []
        for kernel in kernels:
            own = numbers.get(kernel.name, []) if kernel.name else []
            places: Counter[StackFrame] = Counter()
            for number in own:
                for (thread, stack), launches in self._launches.get(number, {}).items():
                    place = place_of(stacks.get(stack)) if thread in threads else None
                    if place is not None and (place != PACKAGES or thread in roles):
                        places[place] += launches
            place, launches = places.most_common(1)[0] if places else (None, 0)
            if launches >= max(_LEAST_LAUNCHES, _LEAST_SHARE * places.total()):
                kernel = kernel.changed(place=place, place_share=launches / places.total())
            shape = next((self._shapes[number] for number in own if number in self._shapes), None)
            if shape is not None:
                local = max(self._local.get(number, 0) for number in own)
                kernel = _shaped(kernel, shape, local, limits)
            found.append(kernel)
        return tuple(found)

    def _note_launches(self, samples: SampleBatch, calls: CallBatch, stacks: Mapping[int, CallStack]) -> None:
        launches = [number for number, name in samples.functions.items() if family_of(name) is CallFamily.LAUNCH]
        rows = samples.rows[np.isin(samples.rows["api"], launches) & (samples.rows["stack"] > 0)]
        inside, between = (rows["sampled"] == int(kind) for kind in (SampledTime.INSIDE, SampledTime.BETWEEN))
        # One that another thread took has frames of Python alone.
        native = [number for number in np.unique(rows["stack"]).tolist() if number in stacks and stacks[number].native]
        own = (rows["at_ns"] - rows["since_ns"] < _LOOKED_NS) | np.isin(rows["stack"], native)
        rows = rows[inside | (between & own)]
        if not len(rows) or not len(calls):
            return
        begins = int64s(np.where(rows["sampled"] == int(SampledTime.INSIDE), rows["since_ns"], rows["at_ns"]))
        for thread in np.unique(rows["thread"]).tolist():
            own = np.flatnonzero(rows["thread"] == thread)
            for at, correlation in _calls_at(calls.rows, thread, begins[own], rows["api"][own]):
                self._pending[correlation] = thread, int(rows["stack"][own[at]])
        while len(self._pending) > _MOST_PENDING:
            del self._pending[next(iter(self._pending))]

    def _note_shapes(self, records: RecordBatch, kernels: Int64s) -> None:
        names = records.rows["name"][kernels]
        # The first kernel of a name stands for all: they nearly always have one shape.
        for name in records.names.keys() - self._shapes.keys():
            places = kernels[names == name]
            if len(places):
                self._shapes[name] = int(records.rows["thread"][places[0]])

    def _note_local_memory(self, kernels: Rows) -> None:
        """Note how much more is reserved for a kernel than for a later one of its context.

        What is reserved has a part that all kernels of a context have, which may only grow (on an H200 it was 576 bytes
        for each thread, and 928 once code of PyTorch was loaded, for the same kernels too), and the kernel's own.
        """
        reserved = np.ascontiguousarray(kernels["bytes"])
        if (reserved == reserved[0]).all():
            return
        contexts, begins, names = (int64s(kernels[name]) for name in ("context", "start", "name"))
        for context in distinct(contexts).tolist():
            own = np.flatnonzero(contexts == context)
            own = own[np.argsort(begins[own], kind="stable")]
            beyond = reserved[own] - np.minimum.accumulate(reserved[own[::-1]])[::-1]
            own, beyond = own[beyond > 0], beyond[beyond > 0]
            found, numbers = numbered(names[own])
            most = np.zeros(len(found), beyond.dtype)
            np.maximum.at(most, numbers, beyond)
            for name, local in zip(found.tolist(), most.tolist(), strict=True):
                self._local[name] = max(local, self._local.get(name, 0))

    def _note_kernels(self, rows: NDArray[Any]) -> None:
        # A graph launches many kernels of one name at once.
        pairs = np.unique(int64s(rows["name"]) << 32 | int64s(rows["correlation"]))
        for name, correlation in zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), strict=True):
            launches = self._launches.setdefault(name, Counter())
            launch = self._pending[correlation]
            if launch in launches or self._sums < _MOST_SUMS:
                self._sums += launch not in launches
                launches[launch] += 1


def _shaped(kernel: KernelTime, shape: int, local: int, limits: GpuLimits | None) -> KernelTime:
    """A kernel with the shape of its blocks (WatchRecord.thread), the local memory of a thread, and how much of its GPU
    it fills. ``local`` is the least local memory (bytes) of all threads that the GPU has room for."""
    threads, registers, shared = (shape & 0x3FF) + 1, shape >> 10 & 0xFF, (shape >> 18) * 16
    kernel = kernel.changed(threads=threads, registers=registers)
    if limits is not None:
        kernel = kernel.changed(local_bytes=local // (limits.multiprocessors * limits.threads))
    at_once = 0 if limits is None else limits.blocks_at_once(threads, registers, shared)
    if limits is None or not at_once or not kernel.most_blocks:
        return kernel
    fills = min(kernel.most_blocks / limits.multiprocessors, 1.0)
    return kernel.changed(fills=fills, waves=kernel.most_blocks / at_once)


def _calls_at(rows: Rows, thread: int, begins: Int64s, functions: NDArray[Any]) -> list[tuple[int, int]]:
    """The number of each of ``begins`` (ns) at which a call of the thread begins, and the call's correlation."""
    own = np.flatnonzero(rows["thread"] == thread)
    starts = int64s(rows["began_ns"][own])
    order = np.argsort(starts, kind="stable")
    at = np.searchsorted(starts[order], begins)
    known = np.flatnonzero(at < len(own))
    calls = own[order[at[known]]]
    near = int64s(rows["began_ns"][calls]) - begins[known] <= _LATE_NS
    chosen = near & (rows["function"][calls] == functions[known])
    return list(zip(known[chosen].tolist(), rows["correlation"][calls[chosen]].tolist(), strict=True))
