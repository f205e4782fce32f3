"""Readings of programs that make given calls, for the divider of their time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from factories.watch_calls import ALLOC, BASE_NS, D2H, FREE, LAUNCH, SYNC, rows_of
from factories.watch_calls import call as in_flight
from factories.watch_calls import process as process_of
from factories.watch_calls import thread as thread_of
from stallprobes.native.layouts.cupti import CopyKind, MemoryKind, RecordKind
from stallprobes.records.rows import DRIVER_CALL
from stallprobes.watch.division.instants import KERNEL
from stallprobes.watch.reading.process import CallBatch, DriverCall, RecordBatch, WatchedProcess

INSTANTIATE, POOL_ALLOC = "cuGraphInstantiateWithFlags", "cuMemAllocAsync"
HOST_FUNCTION = "cuLaunchHostFunc"
FUNCTIONS = (
    LAUNCH, SYNC, D2H, ALLOC, FREE, "cuGraphLaunch", "cuModuleLoadData", "cuCtxCreate_v4", INSTANTIATE, POOL_ALLOC,
    "cuStreamCreate", "cuModuleGetFunction", "cuEventQuery", HOST_FUNCTION,
)  # fmt: skip
# An instant of the reference: a tenth of a second.
UNIT = 100_000_000


@dataclass(frozen=True)
class Call:
    """A call of a thread, and the operations (start, end, kind) that it submits. Times in units."""

    function: str
    begin: int
    end: int
    thread: int = 1
    work: tuple[tuple[int, int, int], ...] = ()
    context: int = 1


def readings(
    calls: list[Call], times: list[float], unit: int = UNIT, **of: Any
) -> list[tuple[WatchedProcess, RecordBatch, CallBatch, int]]:
    """What is read at ``times`` of a program that makes ``calls``: each once it has returned, and work once it has
    ended. ``of`` are fields of the process."""
    found, earlier = [], -1.0
    for now in times:
        rows = np.zeros(len(calls), DRIVER_CALL)
        records = []
        for number, call in enumerate(calls):
            rows[number]["began_ns"], rows[number]["returned_ns"] = (
                BASE_NS + call.begin * unit,
                BASE_NS + call.end * unit,
            )
            rows[number]["thread"], rows[number]["correlation"] = call.thread, number + 1
            rows[number]["function"], rows[number]["context"] = FUNCTIONS.index(call.function), call.context
            rows[number]["target"] = MemoryKind.PAGEABLE if call.function == D2H else 0
            records += [
                {
                    "kind": RecordKind.KERNEL if kind == KERNEL else RecordKind.COPY, "start": BASE_NS + start * unit,
                    "end": BASE_NS + end * unit, "correlation": number + 1, "context": 1, "name": 1,
                    "subkind": CopyKind.DEVICE_TO_HOST,
                }
                for start, end, kind in call.work
                if earlier < end <= now
            ]  # fmt: skip
        ends = np.array([call.end for call in calls])
        rows = rows[(ends > earlier) & (ends <= now)] if len(calls) else rows
        batch = CallBatch(rows[np.argsort(rows["returned_ns"], kind="stable")], dict(enumerate(FUNCTIONS)), 0)
        made = rows_of(records)
        flying = [
            thread_of(call.thread, in_flight=[_in_flight(call, number, unit)])
            for number, call in enumerate(calls, 1)
            if call.begin <= now < call.end
        ]
        read = process_of(*flying, now=0).changed(**of)
        found.append((read, RecordBatch(made, {1: "_Z3addPf"}, 0, 0), batch, BASE_NS + round(now * unit)))
        earlier = now
    return found


def _in_flight(call: Call, number: int, unit: int) -> DriverCall:
    target = MemoryKind.PAGEABLE if call.function == D2H else MemoryKind.UNKNOWN
    return in_flight(
        call.function,
        call.begin * unit / 1000,
        correlation=number,
        thread=call.thread,
        target=target,
        context=call.context,
    )
