"""What the functions of the driver do with a thread's time: submit work, wait for it, or block for another reason."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cache

import numpy as np

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import CallFamily, family_of, plain_name
from stallprobes.records.rows import Rows
from stallprobes.watch.intervals import Int64s


class Waits(IntEnum):
    """Which work of the GPU a function waits for before it returns.

    ``STREAM``: a stream's. ``CONTEXT``: the context's. ``EVENT``: what an event stands for. ``COPY``: its own copy, if
    that blocks. ``MAYBE``: work of the context, in some cases.
    """

    NOTHING = 0
    STREAM = 1
    CONTEXT = 2
    EVENT = 3
    COPY = 4
    MAYBE = 5


@cache
def waits_of(function: str, family: CallFamily | None) -> Waits:
    """What ``function`` waits for."""
    name = plain_name(function)
    if family is CallFamily.COPY and name.startswith("cuMemcpy"):
        return Waits.COPY
    if name == "cuStreamSynchronize":
        return Waits.STREAM
    if name == "cuEventSynchronize":
        return Waits.EVENT
    if name in ("cuCtxSynchronize", "cuMemFree", "cuMemFree_v2") or name.startswith("cuCtxSynchronize_"):
        return Waits.CONTEXT
    releases = any(word in name for word in ("Free", "Destroy", "Unload", "Unregister"))
    return Waits.MAYBE if releases and not name.endswith("Async") else Waits.NOTHING


def is_blocking_copy(function: str, source: MemoryKind, target: MemoryKind) -> bool:
    """Whether a copy returns only when its data has left or reached host memory."""
    return "Async" not in function or MemoryKind.PAGEABLE in (source, target)


class CallKind(IntEnum):
    """What a call does with its thread's time.

    ``SUBMITS``: it submits work or asks, and does not block. ``WORKS``: the driver does something on the host, such as
    instantiating a graph. ``QUEUES``: it submits work to a full queue, and blocks. ``WAITS``: it waits for work of the
    GPU. ``COPIES``: it returns when its copy is done. The others block for what they do.
    """

    SUBMITS = 0
    WORKS = 1
    QUEUES = 2
    WAITS = 3
    COPIES = 4
    ALLOCATES = 5
    FREES = 6
    HOST_MEMORY = 7
    CONTEXT = 8
    LOADS = 9


_BY_FAMILY = {
    CallFamily.WAIT: CallKind.WAITS,
    CallFamily.STREAM: CallKind.WORKS,
    CallFamily.GRAPH: CallKind.WORKS,
    CallFamily.OTHER: CallKind.WORKS,
    CallFamily.CONTEXT: CallKind.CONTEXT,
    CallFamily.HOST_MEMORY: CallKind.HOST_MEMORY,
}


@cache
def kind_of(function: str, pageable: bool) -> CallKind:
    """The kind of a call of ``function``; ``pageable``: an end of its copy is pageable memory.

    That a copy may block does not say that it did: it is COPIES all the same.
    """
    name, family = plain_name(function), family_of(function)
    if family is CallFamily.COPY and name.startswith("cuMemcpy"):
        kind = MemoryKind.PAGEABLE if pageable else MemoryKind.UNKNOWN
        return CallKind.COPIES if is_blocking_copy(name, kind, kind) else CallKind.SUBMITS
    if family is CallFamily.ALLOCATION:
        if name.endswith("Async"):
            return CallKind.SUBMITS
        return CallKind.FREES if name.startswith("cuMemFree") else CallKind.ALLOCATES
    if family is CallFamily.MODULE:
        return CallKind.LOADS if loads(name) or "Unload" in name else CallKind.WORKS
    return _BY_FAMILY.get(family, CallKind.SUBMITS) if family is not None else CallKind.SUBMITS


def loads(function: str) -> bool:
    """Whether ``function`` loads or links device code."""
    return family_of(function) is CallFamily.MODULE and ("Load" in function or function.startswith("cuLink"))


def creates_context(function: str) -> bool:
    """Whether ``function`` may create a context."""
    return function.startswith(("cuCtxCreate", "cuDevicePrimaryCtxRetain", "cuGreenCtxCreate"))


def kinds_of(rows: Rows, functions: Mapping[int, str]) -> Int64s:
    """The kind of each call of ``rows``, which are DRIVER_CALL."""
    count = max(functions, default=0) + 1
    tables = np.zeros((2, count), dtype=np.int64)
    for number, name in functions.items():
        tables[:, number] = kind_of(name, False), kind_of(name, True)
    pageable = (rows["source"] == int(MemoryKind.PAGEABLE)) | (rows["target"] == int(MemoryKind.PAGEABLE))
    # Without a look at the bounds of each of two numbers.
    return tables.reshape(-1).take(rows["function"] + np.where(pageable, count, 0))
