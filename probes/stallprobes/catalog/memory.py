"""Allocation, registration and what frees cost."""

from __future__ import annotations

from stallprobes.catalog.entry import Cause, Entry, Place, then_wait
from stallprobes.catalog.kernels import INLINE, TIME_SLICE, spin_op
from stallprobes.model import MIB, MS, Buffer, Load, Op, Program, Role, Space, Word

FREE_BESIDE_KERNEL_NS = 20 * MS


def _alloc_free(place: Place, size: int) -> Program:
    address = Word("address")
    return Program(
        ops=(
            Op("cuMemAlloc", (address, size), label="cuMemAlloc"),
            Op("cuMemFree", (Load(address),), label="cuMemFree"),
        ),
        context=place.context,
    )


def _free_beside_kernel(place: Place, size: int) -> Program:
    address, started = Word("address"), Word("started", mapped=True)
    return Program(
        ops=(
            Op("cuMemAlloc", (address, size), label="cuMemAlloc"),
            spin_op(place, 1, FREE_BESIDE_KERNEL_NS, started, label="kernel"),
            Op("cuMemFree", (Load(address),), label="cuMemFree"),
        ),
        context=place.context,
        proof=started,
    )


def _host_alloc_free(place: Place, size: int) -> Program:
    address = Word("address")
    return Program(
        ops=(
            Op("cuMemHostAlloc", (address, size, 0), label="cuMemHostAlloc"),
            Op("cuMemFreeHost", (Load(address),), label="cuMemFreeHost"),
        ),
        context=place.context,
    )


def _host_register(place: Place, size: int) -> Program:
    memory = Buffer("memory", Space.PAGEABLE, size, place.context)
    return Program(
        ops=(
            Op("cuMemHostRegister", (memory, size, 0), label="cuMemHostRegister"),
            Op("cuMemHostUnregister", (memory,), label="cuMemHostUnregister"),
        ),
        context=place.context,
    )


def _alloc_async(place: Place, size: int) -> Program:
    address, stream = Word("address"), place.own()
    return Program(
        ops=then_wait(
            stream,
            Op("cuMemAllocAsync", (address, size, stream), label="cuMemAllocAsync"),
            Op("cuMemFreeAsync", (Load(address), stream), label="cuMemFreeAsync"),
        ),
        context=place.context,
    )


_POOL = "Allocate before the critical part, or from a pool: cuMemAllocAsync stalls nothing."
_PIN_ONCE = "Pin memory once, before the critical part, and use it again."

ENTRIES = (
    Entry(
        name="alloc-free",
        title="cuMemAlloc/cuMemFree",
        role=Role.AGGRESSOR,
        program=_alloc_free,
        size=64 * MIB,
        what="cuMemAlloc and cuMemFree of 64 MiB, again and again.",
        source="NVIDIA's page on API synchronization: any call may block",
        causes=(
            Cause(
                context="same",
                why="Mapping and unmapping GPU memory holds the locks that launches and copies need.",
                helps=_POOL,
            ),
        ),
    ),
    Entry(
        name="free-beside-kernel",
        title="cuMemFree beside a running kernel",
        role=Role.AGGRESSOR,
        program=_free_beside_kernel,
        size=1 * MIB,
        what="cuMemFree while a 20 ms kernel runs: it waits for the kernel, and others wait for it.",
        source="measured: cuMemFree waits for all work of the context and holds its lock meanwhile",
        causes=(
            Cause(
                context="same",
                why="cuMemFree waits until every kernel of the context is done and holds the context's lock meanwhile: "
                "no other thread can launch.",
                helps="cuMemFreeAsync, or free after the critical part.",
            ),
            TIME_SLICE,
            INLINE,
        ),
    ),
    Entry(
        name="host-alloc-free",
        title="pinned alloc/free",
        role=Role.AGGRESSOR,
        program=_host_alloc_free,
        size=16 * MIB,
        what="cuMemHostAlloc and cuMemFreeHost of 16 MiB, again and again.",
        source="a loader that pins a new buffer for each batch",
        causes=(
            Cause(
                why="Pinning pages is slow and holds the device's memory management, which other calls need.",
                helps=_PIN_ONCE,
            ),
        ),
    ),
    Entry(
        name="host-register",
        title="cuMemHostRegister/Unregister",
        role=Role.AGGRESSOR,
        program=_host_register,
        size=64 * MIB,
        what="cuMemHostRegister and cuMemHostUnregister of 64 MiB, again and again.",
        source="pytorch #109159: calls wait behind host registration",
        causes=(
            Cause(
                why="Registering pages is slow and holds the device's memory management, which other calls need.",
                helps=_PIN_ONCE,
            ),
        ),
    ),
    Entry(
        name="alloc-async",
        title="cuMemAllocAsync/FreeAsync",
        role=Role.AGGRESSOR,
        program=_alloc_async,
        size=64 * MIB,
        what="cuMemAllocAsync and cuMemFreeAsync of 64 MiB from the default pool: the control that stalls nothing.",
        source="the stream-ordered allocator's promise",
        causes=(
            Cause(
                context="same",
                stream="other",
                why="Stream-ordered allocation grows or trims its pool.",
                helps="Raise the pool's release threshold so that it keeps its memory.",
            ),
        ),
    ),
)
