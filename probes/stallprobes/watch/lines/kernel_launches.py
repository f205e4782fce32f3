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
from stallprobes.watch.intervals import Int64s, int64s
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
        # By the name of a kernel, as the records have it: its sampled launches by thread and stack; its device, its
        # shape, and the local memory (bytes) that is reserved for it.
        self._launches: dict[int, Counter[tuple[int, int]]] = {}
        self._sums = 0
        self._shapes: dict[int, tuple[int, int, int]] = {}
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
        least: dict[int, int] = {}
        for device, _, local in self._shapes.values():
            least[device] = min(local, least.get(device, local))
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
                device, block, local = shape
                kernel = _shaped(kernel, block, local - least[device], limits)
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
                first = records.rows[places[0]]
                self._shapes[name] = int(first["device"]), int(first["thread"]), int(first["bytes"])

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
    it fills. ``local`` is what is reserved for it of local memory (bytes) beyond the kernel with the least."""
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
