"""Copies within a GPU and between it and the host, and the read-back of a scalar."""

from __future__ import annotations

from dataclasses import replace

from stallprobes.catalog.entry import VICTIM_PERIOD_NS, Cause, Entry, Place, then_wait
from stallprobes.catalog.kernels import INLINE, TIME_SLICE, spin_op
from stallprobes.model import (
    KIB,
    MIB,
    MS,
    Arg,
    Buffer,
    CopyAttributes,
    Event,
    Image,
    Kernel,
    KernelArgs,
    Load,
    Op,
    Phase,
    Program,
    Role,
    Space,
    Text,
    Word,
)

PROT_READ_WRITE = 3
MAP_PRIVATE_ANONYMOUS = 0x22
ERROR_NOT_READY = 600
REDUCTION_NS = 5 * MS
SCALAR = 4

_STAGING = Cause(
    context="same",
    why="A pageable copy is staged by the driver on the calling thread, which holds locks that other threads' calls "
    "need; they wait until the copy ends, or for ever when the next one begins before they get their turn.",
    helps="Pinned memory (cuMemHostAlloc), or a copy on a stream that no other thread uses.",
)
_STAGING_NULL = Cause(
    context="same",
    stream="same",
    why="Both threads use one stream, and a pageable copy holds that stream's lock all the while: a launch there waits "
    "until the copy is done.",
    helps="Pinned memory (cuMemHostAlloc), and a stream for each thread.",
)


def _copy_engine(*victims: str) -> Cause:
    return Cause(
        victims=victims,
        why="There is one copy engine in each direction and it works in order: a small copy waits for the large one "
        "ahead of it.",
        helps="Cut large copies into chunks, so that small ones slip in between.",
    )


_SHARED_BUS = Cause(
    victims=("d2h-pinned", "h2d-pinned", "d2h-pageable", "d2d-by-host", "scalar-readback", "scalar-readback-pinned"),
    why="The large transfer keeps the bus to the host busy, and a small one the other way needs its turns there too.",
    helps="Cut large copies into chunks, or move less over the bus.",
)
_D2H_ENGINE = _copy_engine(
    "d2h-pinned", "d2h-pageable", "d2d-by-host", "scalar-readback", "scalar-readback-pinned", "peer-copy"
)
_H2D_ENGINE = _copy_engine("h2d-pinned", "d2d-by-host", "scalar-readback", "scalar-readback-pinned", "peer-copy")


def _d2d(place: Place, size: int) -> Program:
    source = Buffer("source", Space.DEVICE, size, place.context)
    target = Buffer("target", Space.DEVICE, size, place.context)
    stream = place.own()
    return Program(
        ops=then_wait(stream, Op("cuMemcpyDtoDAsync", (target, source, size, stream))), context=place.context
    )


def _d2d_batch(place: Place, size: int) -> Program:
    source = Buffer("source", Space.DEVICE, size, place.context)
    target = Buffer("target", Space.DEVICE, size, place.context)
    stream = place.own()
    copy = Op("cuMemcpyBatchAsync", (target, source, size, CopyAttributes(prefer_overlap=True), stream))
    return Program(ops=then_wait(stream, copy), context=place.context)


def _d2d_by_host(place: Place, size: int) -> Program:
    source = Buffer("source", Space.DEVICE, size, place.context)
    target = Buffer("target", Space.DEVICE, size, place.context)
    middle = Buffer("middle", Space.PINNED, size, place.context)
    stream = place.own()
    return Program(
        ops=then_wait(
            stream,
            Op("cuMemcpyDtoHAsync", (middle, source, size, stream), label="D2H"),
            Op("cuMemcpyHtoDAsync", (target, middle, size, stream), label="H2D"),
        ),
        context=place.context,
    )


def _d2h(space: Space, place: Place, size: int) -> Program:
    source = Buffer("source", Space.DEVICE, size, place.context)
    target = Buffer("target", space, size, place.context)
    stream = place.own()
    return Program(
        ops=then_wait(stream, Op("cuMemcpyDtoHAsync", (target, source, size, stream))), context=place.context
    )


def _h2d(space: Space, place: Place, size: int) -> Program:
    source = Buffer("source", space, size, place.context)
    target = Buffer("target", Space.DEVICE, size, place.context)
    stream = place.own()
    return Program(
        ops=then_wait(stream, Op("cuMemcpyHtoDAsync", (target, source, size, stream))), context=place.context
    )


def _d2h_fresh(place: Place, size: int) -> Program:
    source = Buffer("source", Space.DEVICE, size, place.context)
    mapping, stream = Word("mapping"), place.own()
    no_file = -1
    mmap = (0, size, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, no_file, 0)
    return Program(
        ops=(
            Op("libc:mmap", mmap, phase=None, into=mapping),
            *then_wait(stream, Op("cuMemcpyDtoHAsync", (Load(mapping), source, size, stream))),
            Op("libc:munmap", (Load(mapping), size), phase=None),
        ),
        context=place.context,
    )


def _timed(stream_op: Op, label: str, place: Place) -> tuple[tuple[Op, ...], tuple[Op, ...], tuple[Op, ...]]:
    """``stream_op`` between two events: the ops to submit it, those that read its time on the GPU afterwards, and
    those that must run once beforehand so that the first reading has something to read."""
    before = Event(f"{label} begins", place.context, timing=True)
    after = Event(f"{label} ends", place.context, timing=True)
    stream, milliseconds = place.own(), Word(f"{label} ms")
    begin = Op("cuEventRecord", (before, stream), phase=None)
    end = Op("cuEventRecord", (after, stream), phase=None)
    read = Op("cuEventElapsedTime", (milliseconds, before, after), Phase.GPU, label=label, value=milliseconds)
    return (begin, stream_op, end), (read,), (begin, end)


def _scalar_readback(space: Space | None, place: Place, _size: int) -> Program:
    """A reduction of two kernels whose result, a 4-byte scalar, is read back to ``space``, or stays on the GPU (None).

    Where it stays, the times of one turn are read at the start of the next: nothing in the loop waits for the GPU.
    """
    stream, started = place.own(), Word("started", mapped=True)
    result = Buffer("result", Space.DEVICE, 4 * KIB, place.context)
    reduce_, read_reduce, once_reduce = _timed(
        spin_op(place, 1, REDUCTION_NS, started, label="reduction kernel"), "reduction kernel", place
    )
    final = Op("cuLaunchKernel", (Kernel("empty", place.context), 1, 1, stream, KernelArgs()), label="final kernel")
    finish, read_finish, once_finish = _timed(final, "final kernel", place)
    if space is None:
        # Other contexts may hold up the GPU for longer than a turn: then there is nothing to read yet.
        reads = (replace(op, ok=(ERROR_NOT_READY,)) for op in (*read_reduce, *read_finish))
        return Program(
            setup=(*once_reduce, *once_finish, Op("cuStreamSynchronize", (stream,), phase=None)),
            ops=(*reads, *reduce_, *finish),
            context=place.context,
            proof=started,
        )
    host = Buffer("scalar", space, SCALAR, place.context)
    argument = Buffer("argument", space, SCALAR, place.context)
    upload = Op("cuMemcpyHtoDAsync", (result, argument, SCALAR, stream), label="H2D 4 bytes")
    give, read_give, _ = _timed(upload, "H2D 4 bytes", place)
    download = Op("cuMemcpyDtoHAsync", (host, result, SCALAR, stream), label="D2H 4 bytes")
    fetch, read_fetch, _ = _timed(download, "D2H 4 bytes", place)
    return Program(
        ops=(
            *give,
            *reduce_,
            *finish,
            *fetch,
            Op("cuStreamSynchronize", (stream,), Phase.WAIT),
            *read_give,
            *read_reduce,
            *read_finish,
            *read_fetch,
        ),
        context=place.context,
        proof=started,
    )


def _first_readback(place: Place, _size: int) -> Program:
    """The same calls, each for the first time: code just loaded, memory the driver has never seen."""
    module, function, mapping, stream = Word("module"), Word("function"), Word("mapping"), place.own()
    result = Buffer("result", Space.DEVICE, 4 * KIB, place.context)
    page = 4 * KIB
    fresh: tuple[Arg, ...] = (0, page, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0)
    upload = Op("cuMemcpyHtoDAsync", (result, Load(mapping), SCALAR, stream), label="H2D 4 bytes")
    give, read_give, _ = _timed(upload, "H2D 4 bytes", place)
    launch = Op("cuLaunchKernel", (Load(function), 1, 1, stream, KernelArgs()), label="final kernel")
    run, read_run, _ = _timed(launch, "final kernel", place)
    download = Op("cuMemcpyDtoHAsync", (Load(mapping), result, SCALAR, stream), label="D2H 4 bytes")
    fetch, read_fetch, _ = _timed(download, "D2H 4 bytes", place)
    return Program(
        ops=(
            Op("libc:mmap", fresh, phase=None, into=mapping),
            Op("cuModuleLoadData", (module, Image()), label="cuModuleLoadData"),
            Op("cuModuleGetFunction", (function, Load(module), Text("first")), label="cuModuleGetFunction"),
            *give,
            *run,
            *fetch,
            Op("cuStreamSynchronize", (stream,), Phase.WAIT),
            *read_give,
            *read_run,
            *read_fetch,
            Op("cuModuleUnload", (Load(module),), phase=None),
            Op("libc:munmap", (Load(mapping), page), phase=None),
        ),
        context=place.context,
    )


ENTRIES = (
    Entry(
        name="d2d",
        title="D2D",
        role=Role.VICTIM,
        program=_d2d,
        period_ns=VICTIM_PERIOD_NS,
        size=1 * MIB,
        what="cuMemcpyDtoDAsync within the GPU, then a wait for it. The GPU does it with a kernel.",
        source="the report of secondary-context-d2d: copies of 1 MiB on a non-blocking stream",
    ),
    Entry(
        name="d2d-batch",
        title="D2D batch, prefer overlap",
        role=Role.VICTIM,
        program=_d2d_batch,
        period_ns=VICTIM_PERIOD_NS,
        size=1 * MIB,
        what="cuMemcpyBatchAsync of one copy with PREFER_OVERLAP_WITH_COMPUTE, then a wait for it.",
        source="the flag that promises what the reporter of secondary-context-d2d wanted; needs CUDA 12.8",
    ),
    Entry(
        name="d2d-by-host",
        title="D2D by way of pinned memory",
        role=Role.VICTIM,
        program=_d2d_by_host,
        period_ns=VICTIM_PERIOD_NS,
        size=1 * MIB,
        what="The same move by copy engines: D2H into pinned memory, H2D out of it, then a wait.",
        source="the report of secondary-context-d2d: a copy engine does not wait for the graphics engine",
    ),
    Entry(
        name="d2h-pinned",
        title="pinned D2H",
        role=Role.VICTIM,
        program=lambda place, size: _d2h(Space.PINNED, place, size),
        period_ns=VICTIM_PERIOD_NS,
        size=4 * KIB,
        what="cuMemcpyDtoHAsync into pinned memory, then a wait for it.",
        source="the usual way to fetch a result",
    ),
    Entry(
        name="h2d-pinned",
        title="pinned H2D",
        role=Role.VICTIM,
        program=lambda place, size: _h2d(Space.PINNED, place, size),
        period_ns=VICTIM_PERIOD_NS,
        size=4 * KIB,
        what="cuMemcpyHtoDAsync from pinned memory, then a wait for it.",
        source="the usual way to give an input",
    ),
    Entry(
        name="d2h-pageable",
        title="pageable D2H",
        role=Role.VICTIM,
        program=lambda place, size: _d2h(Space.PAGEABLE, place, size),
        period_ns=VICTIM_PERIOD_NS,
        size=4 * KIB,
        what="cuMemcpyDtoHAsync into pageable memory: the call itself waits for the copy.",
        source="the reports of pageable-d2h-vs-launch, scalar-readback and default-stream-gate",
    ),
    Entry(
        name="scalar-readback",
        title="scalar read-back · pageable",
        role=Role.AGGRESSOR,
        program=lambda place, size: _scalar_readback(Space.PAGEABLE, place, size),
        period_ns=10 * MS,
        what="A 5 ms reduction, then its 4-byte result read back to pageable memory.",
        source="the report of scalar-readback: norm in CUDA.jl, a reduction that ends in a scalar",
        causes=(_STAGING_NULL, TIME_SLICE, INLINE, _STAGING),
    ),
    Entry(
        name="scalar-readback-pinned",
        title="scalar read-back · pinned",
        role=Role.AGGRESSOR,
        program=lambda place, size: _scalar_readback(Space.PINNED, place, size),
        period_ns=10 * MS,
        what="A 5 ms reduction, then its 4-byte result read back to pinned memory.",
        source="the report of scalar-readback, with pinned memory",
        causes=(TIME_SLICE, INLINE),
    ),
    Entry(
        name="scalar-on-device",
        title="scalar stays on the GPU",
        role=Role.AGGRESSOR,
        program=lambda place, size: _scalar_readback(None, place, size),
        period_ns=10 * MS,
        what="A 5 ms reduction whose result stays on the GPU; nothing in the loop waits.",
        source="the report of scalar-readback, what helps: keep the scalar on the device",
        causes=(TIME_SLICE, INLINE),
    ),
    Entry(
        name="scalar-first-call",
        title="scalar read-back · first calls",
        role=Role.AGGRESSOR,
        program=_first_readback,
        period_ns=20 * MS,
        what="A small kernel and its read-back with every call made for the first time: code just loaded, new memory.",
        source="the report of scalar-readback: the first calls are slow, measure the second iteration",
    ),
    Entry(
        name="d2h-pageable-warm",
        title="pageable D2H · warm",
        role=Role.AGGRESSOR,
        program=lambda place, size: _d2h(Space.PAGEABLE, place, size),
        size=256 * MIB,
        what="Large D2H copies into one pageable buffer, again and again.",
        source="the report of pageable-d2h-vs-launch, with a buffer that was in use before",
        causes=(_STAGING_NULL, _D2H_ENGINE, _SHARED_BUS, _STAGING),
    ),
    Entry(
        name="d2h-pageable-fresh",
        title="pageable D2H · fresh",
        role=Role.AGGRESSOR,
        program=_d2h_fresh,
        size=256 * MIB,
        what="Large D2H copies, each into pageable memory just mapped, which the copy must fault in page by page.",
        source="the report of pageable-d2h-vs-launch: each copy into a new CPU tensor",
        causes=(_STAGING_NULL, _D2H_ENGINE, _SHARED_BUS, _STAGING),
    ),
    Entry(
        name="d2h-pinned-large",
        title="pinned D2H · large",
        role=Role.AGGRESSOR,
        program=lambda place, size: _d2h(Space.PINNED, place, size),
        size=256 * MIB,
        what="Large D2H copies into pinned memory, again and again.",
        source="the report of pageable-d2h-vs-launch: pinned memory cures it",
        causes=(_D2H_ENGINE, _SHARED_BUS),
    ),
    Entry(
        name="h2d-pinned-large",
        title="pinned H2D · large",
        role=Role.AGGRESSOR,
        program=lambda place, size: _h2d(Space.PINNED, place, size),
        size=256 * MIB,
        what="Large H2D copies from pinned memory, again and again.",
        source="the loading of a batch",
        causes=(_H2D_ENGINE, _SHARED_BUS),
    ),
    Entry(
        name="h2d-pageable-large",
        title="pageable H2D · large",
        role=Role.AGGRESSOR,
        program=lambda place, size: _h2d(Space.PAGEABLE, place, size),
        size=256 * MIB,
        what="Large H2D copies from pageable memory, again and again.",
        source="acts-project/traccc #1146: pageable staging locks the context for all threads",
        causes=(_STAGING_NULL, _H2D_ENGINE, _SHARED_BUS, _STAGING),
    ),
)
