"""Probes that allocate, free, pin and register memory."""

from __future__ import annotations

from stallprobes.catalog.entry import (
    BOTH,
    CALLS,
    WAITS,
    Cause,
    CheckPlacement,
    Entry,
    Hardware,
    Placement,
    ProgramMaker,
    Relation,
    called,
    repeated,
    repeated_on_stream,
    synchronized,
)
from stallprobes.catalog.kernels import TIME_SLICES, spin_op
from stallprobes.model import (
    MIB,
    MS,
    US,
    Buffer,
    Load,
    MemoryStruct,
    MemoryStructKind,
    Op,
    Program,
    Role,
    Space,
    Word,
)

# Duration (ns) of the kernel beside which memory is freed.
FREE_BESIDE_KERNEL_NS = 20 * MS
# Number of equal pieces in which the aggressor map-unmap-pieces maps and unmaps its memory.
PIECES = 16
# Kinds of the structures that calls for virtual memory and for memory pools take as arguments.
_ALLOCATION, _ACCESS, _POOL = MemoryStructKind.ALLOCATION, MemoryStructKind.ACCESS, MemoryStructKind.POOL
# Attribute CU_MEMPOOL_ATTR_RELEASE_THRESHOLD of a pool.
_RELEASE_THRESHOLD = 4
# Memory words for the call that frees new memory: _ADDRESS receives the address of the memory, _HANDLE the handle.
_ADDRESS, _HANDLE = Word("address"), Word("handle")


def _free_beside_kernel(placement: Placement, size: int) -> Program:
    started = Word("started", mapped=True)
    return Program(
        ops=(
            called("cuMemAlloc", _ADDRESS, size),
            spin_op(placement.resolved_stream(), 1, FREE_BESIDE_KERNEL_NS, started, label="kernel"),
            called("cuMemFree", Load(_ADDRESS)),
        ),
        context=placement.context,
        proof=started,
    )


def _host_register(placement: Placement, size: int) -> Program:
    memory = Buffer("memory", Space.PAGEABLE, size, placement.context)
    return Program(
        ops=(
            called("cuMemHostRegister", memory, size, 0),
            called("cuMemHostUnregister", memory),
        ),
        context=placement.context,
    )


def _map_unmap(pieces: int) -> ProgramMaker:
    """Create, map, unmap and release memory in ``pieces`` of equal size at addresses that are reserved once."""

    def program(placement: Placement, size: int) -> Program:
        properties, access = (MemoryStruct(kind, placement.context.device) for kind in (_ALLOCATION, _ACCESS))
        nbytes = size // pieces
        ranges = [Word(f"range {number}") for number in range(pieces)]
        handles = [Word(f"handle {number}") for number in range(pieces)]
        both = tuple(zip(ranges, handles, strict=True))
        return Program(
            ops=(
                *(called("cuMemCreate", handle, nbytes, properties, 0) for handle in handles),
                *(called("cuMemMap", Load(at), nbytes, 0, Load(handle), 0) for at, handle in both),
                *(called("cuMemSetAccess", Load(at), nbytes, access, 1) for at in ranges),
                *(called("cuMemUnmap", Load(at), nbytes) for at in ranges),
                *(called("cuMemRelease", Load(handle)) for handle in handles),
            ),
            context=placement.context,
            setup=tuple(Op("cuMemAddressReserve", (at, nbytes, 0, 0, 0), phase=None) for at in ranges),
            teardown=tuple(Op("cuMemAddressFree", (Load(at), nbytes), phase=None) for at in ranges),
        )

    return program


def _alloc_from_pool(placement: Placement, size: int) -> Program:
    """Allocate and free in a pool of its own that keeps its memory."""
    pool, threshold = Word("pool"), Word("threshold")
    stream = placement.resolved_stream()
    everything = -1
    return Program(
        ops=synchronized(
            stream,
            called("cuMemAllocFromPoolAsync", _ADDRESS, size, Load(pool), stream),
            called("cuMemFreeAsync", Load(_ADDRESS), stream),
        ),
        context=placement.context,
        setup=(
            Op("cuMemPoolCreate", (pool, MemoryStruct(_POOL, placement.context.device)), phase=None),
            Op("native:store", (threshold, everything), phase=None),
            Op("cuMemPoolSetAttribute", (Load(pool), _RELEASE_THRESHOLD, threshold), phase=None),
        ),
        teardown=(Op("cuMemPoolDestroy", (Load(pool),), phase=None),),
    )


_MAPPING = Cause(
    context=Relation.SAME,
    phases=BOTH,
    short="mapping and unmapping memory changes page tables",
    short_remedy="allocate from a pool that keeps its memory, or keep memory mapped",
    why="Mapping and unmapping GPU memory changes its page tables. On an H200 no other call waits for it, and work on "
    "the GPU takes 1 to 2 µs longer. A driver that holds a lock meanwhile delays other calls.",
    remedy="Allocate from a pool that keeps its memory (cuMemAllocFromPoolAsync with a release threshold), or keep "
    "memory mapped and reuse it.",
)
_MEMORY_OF_GPU = Cause(
    context=Relation.SAME,
    phases=CALLS,
    short="creating and releasing memory is work in the driver",
    short_remedy="keep the memory and reuse it",
    why="Creating and releasing GPU memory is memory management of the driver, in which copies look up their buffers. "
    "On an H200 no other call waits for it.",
    remedy="Keep the memory and reuse it.",
)
# Remedy for stalls by cuMemAlloc and cuMemFree.
_ALLOCATE_EARLY = "Allocate before the critical part, or from a pool: cuMemAllocAsync delays only its own stream."
# Remedy for stalls by pinning and unpinning memory.
_PIN_ONCE = "Pin memory once before the critical part, and reuse it."

ENTRIES = (
    Entry(
        name="alloc-free",
        title="cuMemAlloc/cuMemFree",
        role=Role.AGGRESSOR,
        program=repeated(
            lambda _, size: (called("cuMemAlloc", _ADDRESS, size), called("cuMemFree", Load(_ADDRESS))),
        ),
        size=64 * MIB,
        check=(CheckPlacement(position=100, quick_position=100),),
        beside=9,
        what="cuMemAlloc and cuMemFree of 64 MiB in a loop.",
        source="NVIDIA's page on API synchronization: any call may block",
        causes=(
            Cause(
                context=Relation.SAME,
                phases=CALLS,
                short="cuMemAlloc and cuMemFree hold locks that other calls need",
                short_remedy="allocate before the critical part, or use cuMemAllocAsync",
                why="cuMemAlloc and cuMemFree hold locks of the context that launches and copies need.",
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
                phases=CALLS,
                short="cuMemFree waits for kernels and holds the context's lock",
                short_remedy="use cuMemFreeAsync, or free memory after the critical part",
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
        program=repeated(
            lambda _, size: (called("cuMemHostAlloc", _ADDRESS, size, 0), called("cuMemFreeHost", Load(_ADDRESS))),
        ),
        size=16 * MIB,
        check=(CheckPlacement(position=120, quick_position=120),),
        what="cuMemHostAlloc and cuMemFreeHost of 16 MiB in a loop.",
        source="a loader that pins a new buffer for each batch",
        causes=(
            Cause(
                context=Relation.SAME,
                phases=CALLS,
                short="pinning pages holds locks that other calls need",
                short_remedy="pin memory once before the critical part, and reuse it",
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
                phases=CALLS,
                short="registering pages holds locks that other calls need",
                short_remedy="pin memory once before the critical part, and reuse it",
                why="Registering pages is slow and holds locks of the context that launches and copies need.",
                remedy=_PIN_ONCE,
            ),
        ),
    ),
    Entry(
        name="alloc-async",
        title="cuMemAllocAsync/FreeAsync",
        role=Role.AGGRESSOR,
        program=repeated_on_stream(
            lambda stream, size: (
                called("cuMemAllocAsync", _ADDRESS, size, stream),
                called("cuMemFreeAsync", Load(_ADDRESS), stream),
            )
        ),
        size=64 * MIB,
        check=(CheckPlacement(position=140, quick_position=140),),
        what="cuMemAllocAsync, cuMemFreeAsync of 64 MiB from the default pool, then cuStreamSynchronize.",
        source="the stream-ordered allocator, the alternative to cuMemAlloc and cuMemFree",
        causes=(
            Cause(
                context=Relation.SAME,
                stream=Relation.SAME,
                phases=WAITS,
                short="each synchronization trims the pool, which then grows again",
                short_remedy="raise the pool's release threshold, or use another stream",
                why="By default each synchronization trims the pool, so that the next cuMemAllocAsync grows it again. "
                "Work behind it in the same stream waits (0.2 ms on an H200); other streams do not.",
                remedy="Raise the pool's release threshold, so that it keeps its memory, or use another stream.",
            ),
        ),
    ),
    Entry(
        name="map-unmap",
        title="cuMemMap/cuMemUnmap · one piece",
        role=Role.AGGRESSOR,
        program=_map_unmap(1),
        size=64 * MIB,
        check=(CheckPlacement(position=125),),
        what="cuMemCreate, cuMemMap, cuMemSetAccess, cuMemUnmap and cuMemRelease of 64 MiB in one piece, in a loop.",
        source="pytorch #96995: expandable segments map and unmap memory as they grow and shrink",
        causes=(_MAPPING,),
    ),
    Entry(
        name="map-unmap-pieces",
        title="cuMemMap/cuMemUnmap · 16 pieces",
        role=Role.AGGRESSOR,
        program=_map_unmap(PIECES),
        size=64 * MIB,
        what="cuMemCreate, cuMemMap, cuMemSetAccess, cuMemUnmap and cuMemRelease of 64 MiB in 16 pieces, in a loop.",
        source="pytorch #96995: the cost grows with the number of pieces, 10 of 2 MiB cost as much as 10 of any size",
        causes=(_MAPPING,),
    ),
    Entry(
        name="create-release",
        title="cuMemCreate/cuMemRelease",
        role=Role.AGGRESSOR,
        program=repeated(
            lambda placement, size: (
                called("cuMemCreate", _HANDLE, size, MemoryStruct(_ALLOCATION, placement.context.device), 0),
                called("cuMemRelease", Load(_HANDLE)),
            )
        ),
        size=64 * MIB,
        what="cuMemCreate and cuMemRelease of 64 MiB that is mapped nowhere, in a loop.",
        source="map-unmap without its mapping, for comparison",
        causes=(_MEMORY_OF_GPU,),
    ),
    Entry(
        name="pool-alloc",
        title="allocation from a pool that keeps its memory",
        role=Role.AGGRESSOR,
        program=_alloc_from_pool,
        # About as often as map-unmap maps its memory.
        period_ns=200 * US,
        size=64 * MIB,
        what="cuMemAllocFromPoolAsync and cuMemFreeAsync of 64 MiB, then cuStreamSynchronize, each 0.2 ms. The pool "
        "releases no memory.",
        source="the stream-ordered allocator with a release threshold, the alternative to mapping memory by hand",
    ),
)
