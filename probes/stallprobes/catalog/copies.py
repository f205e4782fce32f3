"""Copies within a GPU, copies between GPU and host, and the read-back of a scalar."""

from __future__ import annotations

from dataclasses import replace

from stallprobes.catalog.entry import (
    BOTH,
    CALLS,
    VICTIM_PERIOD_NS,
    WAITS,
    Cause,
    CheckPlacement,
    Entry,
    Hardware,
    Placement,
    ProgramMaker,
    Relation,
    called,
    repeated_on_stream,
    synchronized,
)
from stallprobes.catalog.kernels import TIME_SLICES, launch_op, spin_op
from stallprobes.model import (
    KIB,
    MIB,
    MS,
    Arg,
    Buffer,
    Context,
    CopyAttributes,
    Event,
    Image,
    KernelArgs,
    Load,
    Needs,
    Op,
    Phase,
    Program,
    Role,
    Space,
    Stream,
    Text,
    Word,
)

# Argument ``prot`` (PROT_READ | PROT_WRITE) of mmap, which probes of copies call to get new pageable memory.
PROT_READ_WRITE = 3
# Argument ``flags`` (MAP_PRIVATE | MAP_ANONYMOUS on Linux) of mmap, which probes of copies call to get new pageable
# memory.
MAP_PRIVATE_ANONYMOUS = 0x22
# Code of CUDA_ERROR_NOT_READY. A query of unfinished work returns this code, which probes do not count as a failure.
ERROR_NOT_READY = 600
# Duration (ns) of the kernel that stands for a reduction to a scalar.
REDUCTION_NS = 5 * MS
# Size (bytes) of a copied scalar: the result or the argument of a reduction. The gated copy in streams.py (a copy that
# waits until another probe opens the gate) has this size too.
SCALAR_BYTES = 4

# Numbers of copies within the GPU between two synchronizations, of large copies and of small ones: each row takes the
# GPU about 1 ms, in which the host submits nothing late.
_MEMORY_COPIES, _CACHE_COPIES = 16, 256

# Hardware that the read-back of a scalar may use.
_SCALAR_USES = Hardware.GRAPHICS_ENGINE | Hardware.D2H_ENGINE | Hardware.H2D_ENGINE | Hardware.HOST_BUS

# Remedy of the causes that come from the staging of pageable copies, except _STAGING_ONE_STREAM.
_PIN = "Use pinned memory (cuMemHostAlloc) for large copies."
_STAGING = Cause(
    context=Relation.SAME,
    phases=BOTH,
    short="staging a pageable copy holds locks that other calls need",
    short_remedy="use pinned memory for large copies (cuMemHostAlloc)",
    why="The driver stages a pageable copy on the calling thread, and meanwhile holds locks of the context that other "
    "threads' calls need, at times until the copy ends. When the next copy takes the lock first, they starve. Waits "
    "for the GPU end later too, by 12 to 25 µs on an H200.",
    remedy=_PIN,
)
_STAGING_ONE_STREAM = Cause(
    context=Relation.SAME,
    stream=Relation.SAME,
    phases=CALLS,
    short="a pageable copy holds the lock of the stream that both use",
    short_remedy="use pinned memory, and a stream for each thread",
    why="Both threads use one stream, and a pageable copy holds that stream's lock until it is complete. A launch into "
    "the stream waits for the lock.",
    remedy="Use pinned memory (cuMemHostAlloc), and give each thread its own stream.",
)
# Cause: copies of one context that the driver stages wait for each other.
_STAGING_BUFFERS = Cause(
    context=Relation.SAME,
    uses=Hardware.STAGING_BUFFERS,
    phases=CALLS,
    short="staged copies wait for each other",
    short_remedy="use pinned memory for large copies (cuMemHostAlloc)",
    why="Copies to pageable memory, and copies that the driver stages on their way to another GPU, wait for "
    "each other, small ones too. When the next large copy comes first, they starve (measured on an H200; the "
    "mechanism is not documented).",
    remedy=_PIN,
)
_STAGING_ANY_CONTEXT = Cause(
    phases=WAITS,
    short="while a copy is staged, waits end later in every context",
    short_remedy="use pinned memory for large copies (cuMemHostAlloc)",
    why="While the driver stages a copy to pageable memory, waits for the GPU end later, in every context: 17 to 30 µs "
    "in place of 5 on an H200. The mechanism is not documented.",
    remedy=_PIN,
)
_D2H_ORDER = Cause(
    uses=Hardware.D2H_ENGINE,
    phases=WAITS,
    short="one copy engine works in order, and a large copy is ahead",
    short_remedy="split large copies into chunks",
    why="There is one copy engine for each direction, and it copies in order: a small copy waits for the large "
    "copies ahead of it.",
    remedy="Split large copies into chunks, so that small copies run between them.",
)
_H2D_ORDER = Cause(
    uses=Hardware.H2D_ENGINE,
    phases=WAITS,
    short="one copy engine works in order, and a large copy is ahead",
    short_remedy="split large copies into chunks",
    why="There is one copy engine for each direction, and it copies in order: a copy waits for the large copies ahead "
    "of it. Small copies (4 KiB on an H200) travel in the command stream instead and wait only for the bus.",
    remedy="Split large copies into chunks, so that other copies run between them.",
)
_SHARED_BUS = Cause(
    uses=Hardware.HOST_BUS,
    phases=WAITS,
    short="a large transfer occupies the bus to the host",
    short_remedy="split large copies into chunks, or move less data",
    why="The large transfer occupies the bus to the host, which a small transfer in the other direction needs too.",
    remedy="Split large copies into chunks, or move less data over the bus.",
)
_MEMORY_TRAFFIC = Cause(
    context=Relation.SAME,
    uses=Hardware.GRAPHICS_ENGINE,
    phases=WAITS,
    short="copies within the GPU occupy its SMs and its memory",
    short_remedy="copy less, or at another time",
    why="The GPU makes copies of its own memory with kernels. They occupy SMs, and the work beside them shares the "
    "bandwidth of the memory, or of the L2 cache, with them.",
    remedy="Copy less, for example by fused kernels, or at another time.",
)
# Causes of the delays by an aggressor that copies to pageable memory, the most specific first.
_TO_PAGEABLE = (_STAGING_ONE_STREAM, _STAGING_BUFFERS, _D2H_ORDER, _STAGING, _STAGING_ANY_CONTEXT)


def _copy(
    function: str, source: Space = Space.DEVICE, target: Space = Space.DEVICE, *attributes: CopyAttributes
) -> ProgramMaker:
    """Copies by ``function`` between two buffers, each synchronized."""

    def ops(stream: Stream, size: int) -> tuple[Op, ...]:
        buffers = (Buffer("target", target, size, stream.context), Buffer("source", source, size, stream.context))
        return (Op(function, (*buffers, size, *attributes, stream)),)

    return repeated_on_stream(ops)


def _copies_in_a_row(count: int) -> ProgramMaker:
    """``count`` copies within the GPU, each behind the one before, then one synchronization: the GPU is hardly idle."""

    def ops(stream: Stream, size: int) -> tuple[Op, ...]:
        target, source = (Buffer(name, Space.DEVICE, size, stream.context) for name in ("target", "source"))
        return (Op("cuMemcpyDtoDAsync", (target, source, size, stream), repeat=count),)

    return repeated_on_stream(ops)


def relay_ops(stream: Stream, size: int, destination: Context) -> tuple[Op, ...]:
    """A move to device memory of the context ``destination`` by copy engines, by way of pinned memory."""
    source = Buffer("source", Space.DEVICE, size, stream.context)
    middle = Buffer("middle", Space.PINNED, size, stream.context)
    target = Buffer("target", Space.DEVICE, size, destination)
    return (
        Op("cuMemcpyDtoHAsync", (middle, source, size, stream), label="D2H"),
        Op("cuMemcpyHtoDAsync", (target, middle, size, stream), label="H2D"),
    )


def _d2h_fresh(placement: Placement, size: int) -> Program:
    source = Buffer("source", Space.DEVICE, size, placement.context)
    mapping, stream = Word("mapping"), placement.resolved_stream()
    no_file = -1
    mmap = (0, size, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, no_file, 0)
    return Program(
        ops=(
            Op("libc:mmap", mmap, phase=None, into=mapping),
            *synchronized(stream, Op("cuMemcpyDtoHAsync", (Load(mapping), source, size, stream))),
            Op("libc:munmap", (Load(mapping), size), phase=None),
        ),
        context=placement.context,
    )


def _timed(stream: Stream, *calls: Op) -> tuple[list[Op], list[Op], list[Op]]:
    """``calls`` on ``stream``, each between two timing events.

    Returns three groups of ops: the submissions, the readings of the GPU times afterwards, and the ops that must run
    once before the first reading.
    """
    submit, read, once = [], [], []
    for op in calls:
        before, after = (Event(f"{op.label} {end}", stream.context, timing=True) for end in ("begins", "ends"))
        milliseconds = Word(f"{op.label} ms")
        begin, end = (Op("cuEventRecord", (event, stream), phase=None) for event in (before, after))
        args = (milliseconds, before, after)
        submit += [begin, op, end]
        read.append(Op("cuEventElapsedTime", args, Phase.GPU, label=op.label, value=milliseconds))
        once += [begin, end]
    return submit, read, once


def _scalar_readback(space: Space | None) -> ProgramMaker:
    """A reduction of two kernels and a copy of its 4-byte result to ``space``; with None the result stays on the GPU.

    In the latter case an iteration reads the times of the previous one, so that the loop never waits for the GPU.
    """

    def program(placement: Placement, _size: int) -> Program:
        stream, started = placement.resolved_stream(), Word("started", mapped=True)
        reduction = spin_op(stream, 1, REDUCTION_NS, started, label="reduction kernel")
        final = launch_op(stream, label="final kernel")
        if space is None:
            submit, read, once = _timed(stream, reduction, final)
            return Program(
                setup=(*once, Op("cuStreamSynchronize", (stream,), phase=None)),
                # Other contexts can delay the GPU for longer than an iteration; then the events are not ready.
                ops=(*(replace(op, ok=(ERROR_NOT_READY,)) for op in read), *submit),
                context=placement.context,
                proof=started,
            )
        result = Buffer("result", Space.DEVICE, 4 * KIB, placement.context)
        host = Buffer("scalar", space, SCALAR_BYTES, placement.context)
        argument = Buffer("argument", space, SCALAR_BYTES, placement.context)
        upload = Op("cuMemcpyHtoDAsync", (result, argument, SCALAR_BYTES, stream), label="H2D 4 bytes")
        download = Op("cuMemcpyDtoHAsync", (host, result, SCALAR_BYTES, stream), label="D2H 4 bytes")
        submit, read, _ = _timed(stream, upload, reduction, final, download)
        return Program(ops=(*synchronized(stream, *submit), *read), context=placement.context, proof=started)

    return program


def _first_readback(placement: Placement, _size: int) -> Program:
    """The calls of a read-back, each made for the first time: new code, and memory new to the driver."""
    module, function, mapping, stream = Word("module"), Word("function"), Word("mapping"), placement.resolved_stream()
    result = Buffer("result", Space.DEVICE, 4 * KIB, placement.context)
    page = 4 * KIB
    fresh: tuple[Arg, ...] = (0, page, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0)
    submit, read, _ = _timed(
        stream,
        Op("cuMemcpyHtoDAsync", (result, Load(mapping), SCALAR_BYTES, stream), label="H2D 4 bytes"),
        Op("cuLaunchKernel", (Load(function), 1, 1, stream, KernelArgs()), label="final kernel"),
        Op("cuMemcpyDtoHAsync", (Load(mapping), result, SCALAR_BYTES, stream), label="D2H 4 bytes"),
    )
    return Program(
        ops=(
            Op("libc:mmap", fresh, phase=None, into=mapping),
            called("cuModuleLoadData", module, Image()),
            called("cuModuleGetFunction", function, Load(module), Text("first")),
            *synchronized(stream, *submit),
            *read,
            Op("cuModuleUnload", (Load(module),), phase=None),
            Op("libc:munmap", (Load(mapping), page), phase=None),
        ),
        context=placement.context,
    )


ENTRIES = (
    Entry(
        name="d2d",
        title="D2D",
        role=Role.VICTIM,
        program=_copy("cuMemcpyDtoDAsync"),
        period_ns=VICTIM_PERIOD_NS,
        size=1 * MIB,
        uses=Hardware.GRAPHICS_ENGINE,
        check=(
            CheckPlacement(position=20, quick_position=30),
            CheckPlacement("secondary", position=100, quick_position=50),
        ),
        what="cuMemcpyDtoDAsync within the GPU, then cuStreamSynchronize. The GPU makes this copy with a kernel.",
        source="the report of secondary-context-d2d: copies of 1 MiB on a non-blocking stream",
    ),
    Entry(
        name="d2d-batch",
        title="D2D batch, prefer overlap",
        role=Role.VICTIM,
        program=_copy("cuMemcpyBatchAsync", Space.DEVICE, Space.DEVICE, CopyAttributes(prefer_overlap=True)),
        period_ns=VICTIM_PERIOD_NS,
        size=1 * MIB,
        uses=Hardware.GRAPHICS_ENGINE,
        needs=Needs(batch_copies=True),
        what="cuMemcpyBatchAsync of one copy with PREFER_OVERLAP_WITH_COMPUTE, then cuStreamSynchronize.",
        source="the flag meant to overlap a copy with kernels, the aim of secondary-context-d2d's reporter; needs CUDA "
        "12.8",
    ),
    Entry(
        name="d2d-by-host",
        title="D2D by way of pinned memory",
        role=Role.VICTIM,
        program=repeated_on_stream(lambda stream, size: relay_ops(stream, size, stream.context)),
        period_ns=VICTIM_PERIOD_NS,
        size=1 * MIB,
        uses=Hardware.D2H_ENGINE | Hardware.H2D_ENGINE | Hardware.HOST_BUS,
        what="A device-to-device move by copy engines: D2H into pinned memory, H2D from it, then cuStreamSynchronize.",
        source="the report of secondary-context-d2d: a copy engine does not wait for the graphics engine",
    ),
    Entry(
        name="d2h-pinned",
        title="pinned D2H",
        role=Role.VICTIM,
        program=_copy("cuMemcpyDtoHAsync", target=Space.PINNED),
        period_ns=VICTIM_PERIOD_NS,
        size=4 * KIB,
        uses=Hardware.D2H_ENGINE | Hardware.HOST_BUS,
        check=(
            CheckPlacement(position=30, quick_position=40),
            CheckPlacement("secondary", position=110),
        ),
        what="cuMemcpyDtoHAsync into pinned memory, then cuStreamSynchronize.",
        source="the usual way to read a result back",
    ),
    Entry(
        name="h2d-pinned",
        title="pinned H2D",
        role=Role.VICTIM,
        program=_copy("cuMemcpyHtoDAsync", source=Space.PINNED),
        period_ns=VICTIM_PERIOD_NS,
        size=4 * KIB,
        uses=Hardware.H2D_ENGINE | Hardware.HOST_BUS | Hardware.INLINE_COPY,
        check=(CheckPlacement(position=40),),
        what="cuMemcpyHtoDAsync from pinned memory, then cuStreamSynchronize.",
        source="the usual way to send an input",
    ),
    Entry(
        name="d2h-pageable",
        title="pageable D2H",
        role=Role.VICTIM,
        program=_copy("cuMemcpyDtoHAsync", target=Space.PAGEABLE),
        period_ns=VICTIM_PERIOD_NS,
        size=4 * KIB,
        uses=Hardware.D2H_ENGINE | Hardware.HOST_BUS | Hardware.STAGING_BUFFERS,
        check=(CheckPlacement(position=50),),
        what="cuMemcpyDtoHAsync into pageable memory. The call itself waits until the copy is complete.",
        source="the reports of pageable-d2h-vs-launch, scalar-readback and default-stream-gate",
    ),
    Entry(
        name="scalar-readback",
        title="scalar read-back · pageable",
        role=Role.AGGRESSOR,
        program=_scalar_readback(Space.PAGEABLE),
        period_ns=10 * MS,
        uses=_SCALAR_USES,
        check=(CheckPlacement(position=220),),
        what="A 5 ms reduction kernel, then its 4-byte result copied to pageable memory.",
        source="the report of scalar-readback: norm in CUDA.jl, a reduction that ends in a scalar",
        causes=(_STAGING_ONE_STREAM, *TIME_SLICES, _STAGING),
    ),
    Entry(
        name="scalar-readback-pinned",
        title="scalar read-back · pinned",
        role=Role.AGGRESSOR,
        program=_scalar_readback(Space.PINNED),
        period_ns=10 * MS,
        uses=_SCALAR_USES,
        what="A 5 ms reduction kernel, then its 4-byte result copied to pinned memory.",
        source="the report of scalar-readback, with pinned memory",
        causes=TIME_SLICES,
    ),
    Entry(
        name="scalar-on-device",
        title="scalar stays on the GPU",
        role=Role.AGGRESSOR,
        program=_scalar_readback(None),
        period_ns=10 * MS,
        uses=Hardware.GRAPHICS_ENGINE,
        what="A 5 ms reduction kernel whose result stays on the GPU. No call in the loop waits.",
        source="the report of scalar-readback, its remedy: keep the scalar on the device",
        causes=TIME_SLICES,
    ),
    Entry(
        name="scalar-first-call",
        title="scalar read-back · first calls",
        role=Role.AGGRESSOR,
        program=_first_readback,
        period_ns=20 * MS,
        uses=_SCALAR_USES,
        what="A small kernel and its read-back, with each call made for the first time: new code and new memory.",
        source="the report of scalar-readback: first calls are slow, so measure from the second iteration",
    ),
    Entry(
        name="d2h-pageable-warm",
        title="pageable D2H · warm",
        role=Role.AGGRESSOR,
        program=_copy("cuMemcpyDtoHAsync", target=Space.PAGEABLE),
        size=256 * MIB,
        uses=Hardware.D2H_ENGINE | Hardware.HOST_BUS,
        check=(
            CheckPlacement(position=40, quick_position=40),
            CheckPlacement(stream="null", position=50),
        ),
        what="Large D2H copies into one pageable buffer, in a loop.",
        source="the report of pageable-d2h-vs-launch, with a buffer that is reused",
        causes=_TO_PAGEABLE,
    ),
    Entry(
        name="d2h-pageable-fresh",
        title="pageable D2H · fresh",
        role=Role.AGGRESSOR,
        program=_d2h_fresh,
        size=256 * MIB,
        uses=Hardware.D2H_ENGINE | Hardware.HOST_BUS,
        check=(CheckPlacement(position=60, quick_position=60),),
        what="Large D2H copies, each into newly mapped pageable memory, so that each page takes a page fault.",
        source="the report of pageable-d2h-vs-launch: each copy goes to a new CPU tensor",
        causes=_TO_PAGEABLE,
    ),
    Entry(
        name="d2h-pinned-large",
        title="pinned D2H · large",
        role=Role.AGGRESSOR,
        program=_copy("cuMemcpyDtoHAsync", target=Space.PINNED),
        size=256 * MIB,
        uses=Hardware.D2H_ENGINE | Hardware.HOST_BUS,
        check=(CheckPlacement(position=70, quick_position=70),),
        beside=3,
        what="Large D2H copies into pinned memory, in a loop.",
        source="the report of pageable-d2h-vs-launch: pinned memory is the remedy",
        causes=(_D2H_ORDER, _SHARED_BUS),
    ),
    Entry(
        name="h2d-pinned-large",
        title="pinned H2D · large",
        role=Role.AGGRESSOR,
        program=_copy("cuMemcpyHtoDAsync", source=Space.PINNED),
        size=256 * MIB,
        uses=Hardware.H2D_ENGINE | Hardware.HOST_BUS,
        check=(CheckPlacement(position=80),),
        beside=2,
        what="Large H2D copies from pinned memory, in a loop.",
        source="a program that loads a batch of input",
        causes=(_H2D_ORDER, _SHARED_BUS),
    ),
    Entry(
        name="h2d-pageable-large",
        title="pageable H2D · large",
        role=Role.AGGRESSOR,
        program=_copy("cuMemcpyHtoDAsync", source=Space.PAGEABLE),
        size=256 * MIB,
        uses=Hardware.H2D_ENGINE | Hardware.HOST_BUS,
        check=(CheckPlacement(position=90),),
        what="Large H2D copies from pageable memory, in a loop.",
        source="acts-project/traccc #1146: pageable staging locks the context for all threads",
        causes=(_STAGING_ONE_STREAM, _H2D_ORDER, _SHARED_BUS, _STAGING),
    ),
    Entry(
        name="dram",
        title="traffic to the GPU's memory",
        role=Role.AGGRESSOR,
        program=_copies_in_a_row(_MEMORY_COPIES),
        size=128 * MIB,
        uses=Hardware.GRAPHICS_ENGINE,
        check=(CheckPlacement(position=92),),
        beside=4,
        what="D2D copies of 128 MiB in a row, which is more than fits into the L2 cache.",
        source="the advice to profile memory-bound kernels alone: work beside them shares the memory's bandwidth",
        causes=(*TIME_SLICES, _MEMORY_TRAFFIC),
    ),
    Entry(
        name="l2",
        title="traffic to the GPU's L2 cache",
        role=Role.AGGRESSOR,
        program=_copies_in_a_row(_CACHE_COPIES),
        size=8 * MIB,
        uses=Hardware.GRAPHICS_ENGINE,
        check=(CheckPlacement(position=94),),
        beside=5,
        what="D2D copies of 8 MiB in a row between two buffers that stay in the L2 cache of a large GPU.",
        source="the advice to profile kernels alone: work beside them evicts their data from the L2 cache",
        causes=(*TIME_SLICES, _MEMORY_TRAFFIC),
    ),
)
