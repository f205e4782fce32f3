"""Probes that allocate, free, pin and register memory."""

from __future__ import annotations

from stallprobes.catalog.entry import Cause, CheckPlacement, Entry, Hardware, Placement, Relation, synchronized
from stallprobes.catalog.kernels import TIME_SLICES, spin_op
from stallprobes.model import MIB, MS, Buffer, Load, Op, Program, Role, Space, Word

FREE_BESIDE_KERNEL_NS = 20 * MS


def _alloc_free(placement: Placement, size: int) -> Program:
    address = Word("address")
    return Program(
        ops=(
            Op("cuMemAlloc", (address, size), label="cuMemAlloc"),
            Op("cuMemFree", (Load(address),), label="cuMemFree"),
        ),
        context=placement.context,
    )


def _free_beside_kernel(placement: Placement, size: int) -> Program:
    address, started = Word("address"), Word("started", mapped=True)
    return Program(
        ops=(
            Op("cuMemAlloc", (address, size), label="cuMemAlloc"),
            spin_op(placement, 1, FREE_BESIDE_KERNEL_NS, started, label="kernel"),
            Op("cuMemFree", (Load(address),), label="cuMemFree"),
        ),
        context=placement.context,
        proof=started,
    )


def _host_alloc_free(placement: Placement, size: int) -> Program:
    address = Word("address")
    return Program(
        ops=(
            Op("cuMemHostAlloc", (address, size, 0), label="cuMemHostAlloc"),
            Op("cuMemFreeHost", (Load(address),), label="cuMemFreeHost"),
        ),
        context=placement.context,
    )


def _host_register(placement: Placement, size: int) -> Program:
    memory = Buffer("memory", Space.PAGEABLE, size, placement.context)
    return Program(
        ops=(
            Op("cuMemHostRegister", (memory, size, 0), label="cuMemHostRegister"),
            Op("cuMemHostUnregister", (memory,), label="cuMemHostUnregister"),
        ),
        context=placement.context,
    )


def _alloc_async(placement: Placement, size: int) -> Program:
    address, stream = Word("address"), placement.resolved_stream()
    return Program(
        ops=synchronized(
            stream,
            Op("cuMemAllocAsync", (address, size, stream), label="cuMemAllocAsync"),
            Op("cuMemFreeAsync", (Load(address), stream), label="cuMemFreeAsync"),
        ),
        context=placement.context,
    )


_ALLOCATE_EARLY = "Allocate before the critical part, or from a pool: cuMemAllocAsync delays only its own stream."
_PIN_ONCE = "Pin memory once before the critical part, and reuse it."

ENTRIES = (
    Entry(
        name="alloc-free",
        title="cuMemAlloc/cuMemFree",
        role=Role.AGGRESSOR,
        program=_alloc_free,
        size=64 * MIB,
        check=(CheckPlacement(position=100, quick_position=100),),
        what="cuMemAlloc and cuMemFree of 64 MiB in a loop.",
        source="NVIDIA's page on API synchronization: any call may block",
        causes=(
            Cause(
                context=Relation.SAME,
                why="Mapping and unmapping GPU memory holds locks of the context that launches and copies need.",
                remedy=_ALLOCATE_EARLY,
            ),
        ),
    ),
    Entry(
        name="free-beside-kernel",
        title="cuMemFree beside a running kernel",
        role=Role.AGGRESSOR,
        program=_free_beside_kernel,
        size=1 * MIB,
        uses=Hardware.GRAPHICS_ENGINE,
        check=(CheckPlacement(position=110, quick_position=110),),
        what="cuMemFree while a 20 ms kernel runs. The call waits for the kernel, and other calls wait for cuMemFree.",
        source="measured: cuMemFree waits for all work of the context and holds its lock meanwhile",
        causes=(
            Cause(
                context=Relation.SAME,
                why="cuMemFree waits until every kernel of the context is done and holds the context's lock meanwhile, "
                "so that no other thread can launch.",
                remedy="Use cuMemFreeAsync, or free memory after the critical part.",
            ),
            *TIME_SLICES,
        ),
    ),
    Entry(
        name="host-alloc-free",
        title="pinned alloc/free",
        role=Role.AGGRESSOR,
        program=_host_alloc_free,
        size=16 * MIB,
        check=(CheckPlacement(position=120, quick_position=120),),
        what="cuMemHostAlloc and cuMemFreeHost of 16 MiB in a loop.",
        source="a loader that pins a new buffer for each batch",
        causes=(
            Cause(
                context=Relation.SAME,
                why="Pinning pages is slow and holds locks of the context that launches and copies need.",
                remedy=_PIN_ONCE,
            ),
        ),
    ),
    Entry(
        name="host-register",
        title="cuMemHostRegister/Unregister",
        role=Role.AGGRESSOR,
        program=_host_register,
        size=64 * MIB,
        check=(CheckPlacement(position=130, quick_position=130),),
        what="cuMemHostRegister and cuMemHostUnregister of 64 MiB in a loop.",
        source="pytorch #109159: calls wait for host registration",
        causes=(
            Cause(
                context=Relation.SAME,
                why="Registering pages is slow and holds locks of the context that launches and copies need.",
                remedy=_PIN_ONCE,
            ),
        ),
    ),
    Entry(
        name="alloc-async",
        title="cuMemAllocAsync/FreeAsync",
        role=Role.AGGRESSOR,
        program=_alloc_async,
        size=64 * MIB,
        check=(CheckPlacement(position=140, quick_position=140),),
        what="cuMemAllocAsync, cuMemFreeAsync of 64 MiB from the default pool, then cuStreamSynchronize.",
        source="the stream-ordered allocator, the alternative to cuMemAlloc and cuMemFree",
        causes=(
            Cause(
                context=Relation.SAME,
                stream=Relation.SAME,
                why="By default each synchronization trims the pool, so that the next cuMemAllocAsync grows it again. "
                "Work behind it in the same stream waits (0.2 ms on an H200); other streams do not.",
                remedy="Raise the pool's release threshold, so that it keeps its memory, or use another stream.",
            ),
        ),
    ),
)
