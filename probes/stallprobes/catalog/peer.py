"""Copies between two GPUs: by the driver, and relayed through the host in two ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stallprobes.catalog.copies import relay_ops
from stallprobes.catalog.entry import (
    WAITS,
    Cause,
    CheckPlacement,
    Entry,
    Hardware,
    Placement,
    ProgramMaker,
    synchronized,
)
from stallprobes.catalog.kernels import TIME_SLICES, spin_op
from stallprobes.model import (
    MIB,
    MS,
    PEER,
    PRIMARY,
    Buffer,
    BufferPart,
    Event,
    Needs,
    Op,
    Phase,
    Program,
    Role,
    Space,
    Stream,
    Word,
)

# Duration (ns) of the kernel behind which a transfer to another GPU is queued.
KERNEL_NS = 96 * MS
# Largest part (bytes) that the chunked relay to another GPU copies through host memory at a time.
CHUNK = 4 * MIB
# Period (ns) at which the victims copy to another GPU.
PERIOD_NS = 5 * MS
# Code of CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, which probes accept.
ERROR_PEER_ACCESS_ALREADY_ENABLED = 704


def _ends(placement: Placement, size: int) -> tuple[Buffer, Buffer]:
    return Buffer("source", Space.DEVICE, size, placement.context), Buffer("target", Space.DEVICE, size, PEER)


def _peer(placement: Placement, size: int) -> tuple[Op, ...]:
    source, target = _ends(placement, size)
    args = (target, PEER, source, placement.context, size, placement.resolved_stream())
    return synchronized(placement.resolved_stream(), Op("cuMemcpyPeerAsync", args, label="peer copy"))


def _relay_naive(placement: Placement, size: int) -> tuple[Op, ...]:
    """A relay with both halves on the source's stream."""
    stream = placement.resolved_stream()
    return synchronized(stream, *relay_ops(stream, size, PEER))


def _relay(placement: Placement, size: int) -> tuple[Op, ...]:
    """A relay with the H2D half on a stream of the destination GPU, in chunks tied by events."""
    source, target = _ends(placement, size)
    middle = Buffer("middle", Space.PINNED, size, placement.context)
    stream, arrival = placement.resolved_stream(), Stream("arrival", PEER)
    ops: list[Op] = []
    for number, offset in enumerate(range(0, size, CHUNK)):
        chunk = min(CHUNK, size - offset)
        fetched = Event(f"chunk {number} fetched", placement.context)
        ops += [
            Op(
                "cuMemcpyDtoHAsync",
                (BufferPart(middle, offset), BufferPart(source, offset), chunk, stream),
                label="D2H",
            ),
            Op("cuEventRecord", (fetched, stream), phase=None),
            Op("cuStreamWaitEvent", (arrival, fetched, 0), phase=None),
            Op(
                "cuMemcpyHtoDAsync",
                (BufferPart(target, offset), BufferPart(middle, offset), chunk, arrival),
                label="H2D",
            ),
        ]
    return synchronized(arrival, *ops)


def peer_access_ops() -> tuple[Op, ...]:
    """Setup ops that enable peer access between the two GPUs both ways; the current context stays the same."""
    popped = Word("popped")
    fine = (ERROR_PEER_ACCESS_ALREADY_ENABLED,)
    return (
        Op("cuCtxEnablePeerAccess", (PEER, 0), phase=None, ok=fine),
        Op("cuCtxPushCurrent", (PEER,), phase=None),
        Op("cuCtxEnablePeerAccess", (PRIMARY, 0), phase=None, ok=fine),
        Op("cuCtxPopCurrent", (popped,), phase=None),
    )


Transfer = Callable[[Placement, int], tuple[Op, ...]]


def _alone(transfer: Transfer, direct: bool = False) -> ProgramMaker:
    def program(placement: Placement, size: int) -> Program:
        setup = peer_access_ops() if direct else ()
        return Program(ops=transfer(placement, size), context=placement.context, setup=setup)

    return program


def _behind_kernel(transfer: Transfer | None, direct: bool = False) -> ProgramMaker:
    def program(placement: Placement, size: int) -> Program:
        started = Word("started", mapped=True)
        kernel = spin_op(placement.resolved_stream(), 1, KERNEL_NS, started, label="kernel")
        if transfer is None:
            rest: tuple[Op, ...] = (Op("cuStreamSynchronize", (placement.resolved_stream(),), Phase.WAIT),)
        else:
            rest = transfer(placement, size)
        setup = peer_access_ops() if direct else ()
        return Program(ops=(kernel, *rest), context=placement.context, setup=setup, proof=started)

    return program


_PEER_ORDER = Cause(
    uses=Hardware.PEER_TRANSFER,
    phases=WAITS,
    short="a transfer to that GPU is queued behind a kernel, in order",
    short_remedy="enable peer access, or relay through pinned memory",
    why="A transfer to the same GPU is queued behind a kernel on another stream. Transfers between two GPUs share one "
    "channel and run in order, so this one waits until that kernel ends.",
    remedy="Submit such copies only to streams with no pending work, enable peer access, or relay them through pinned "
    "memory with the H2D half on a stream of the destination GPU, in chunks tied by events.",
)

# Hardware that a transfer through host memory uses.
_STAGED_USES = Hardware.D2H_ENGINE | Hardware.H2D_ENGINE | Hardware.HOST_BUS | Hardware.PEER_TRANSFER

_PEER_COPY = Entry(
    name="peer-copy",
    title="peer copy",
    role=Role.VICTIM,
    program=_alone(_peer),
    period_ns=PERIOD_NS,
    size=1 * MIB,
    uses=_STAGED_USES | Hardware.STAGING_BUFFERS,
    check=(CheckPlacement(position=130),),
    needs=Needs(gpus=2, peer_access=False),
    what="cuMemcpyPeerAsync to the second GPU without peer access, then cuStreamSynchronize. The driver stages the "
    "copy in host memory.",
    source="the report of peer-copy-behind-kernel, stream B",
)
_BEHIND = Entry(
    name="peer-copy-behind-kernel",
    title="kernel, then peer copy",
    role=Role.AGGRESSOR,
    program=_behind_kernel(_peer),
    size=1 * MIB,
    uses=_STAGED_USES | Hardware.GRAPHICS_ENGINE,
    check=(CheckPlacement(position=240),),
    needs=Needs(gpus=2, peer_access=False),
    what="A kernel of 96 ms and a peer copy behind it on the same stream, without peer access.",
    source="the report of peer-copy-behind-kernel, stream A",
    causes=(_PEER_ORDER, *TIME_SLICES),
)

ENTRIES = (
    _PEER_COPY,
    replace(
        _PEER_COPY,
        name="peer-copy-direct",
        title="peer copy · direct",
        program=_alone(_peer, direct=True),
        uses=Hardware.PEER_TRANSFER,
        check=(),
        needs=Needs(gpus=2, peer_access=True),
        what="cuMemcpyPeerAsync to the second GPU with peer access, then cuStreamSynchronize.",
        source="the report of peer-copy-behind-kernel, the remedy that locked up that machine",
    ),
    replace(
        _PEER_COPY,
        name="host-relay-naive",
        title="relay · one stream",
        program=_alone(_relay_naive),
        uses=_STAGED_USES,
        check=(),
        needs=Needs(gpus=2),
        what="D2H into pinned memory, then H2D to the other GPU, both on the source GPU's stream.",
        source="the report of peer-copy-behind-kernel, its advice in the simplest form",
    ),
    replace(
        _PEER_COPY,
        name="host-relay",
        title="relay · two streams",
        program=_alone(_relay),
        uses=_STAGED_USES,
        check=(),
        needs=Needs(gpus=2),
        what="D2H into pinned memory, then H2D on a stream of the destination GPU, in 4 MiB chunks tied by events.",
        source="the report of peer-copy-behind-kernel, its advice in the form that avoids the stall",
    ),
    _BEHIND,
    replace(
        _BEHIND,
        name="peer-copy-direct-behind-kernel",
        title="kernel, then direct peer copy",
        program=_behind_kernel(_peer, direct=True),
        uses=Hardware.PEER_TRANSFER | Hardware.GRAPHICS_ENGINE,
        check=(),
        needs=Needs(gpus=2, peer_access=True),
        what="A kernel of 96 ms and a peer copy behind it on the same stream, with peer access.",
        causes=TIME_SLICES,
    ),
    replace(
        _BEHIND,
        name="host-relay-naive-behind-kernel",
        title="kernel, then relay on one stream",
        program=_behind_kernel(_relay_naive),
        check=(),
        needs=Needs(gpus=2),
        what="A kernel of 96 ms, then D2H and H2D behind it, all on one stream.",
    ),
    replace(
        _BEHIND,
        name="host-relay-behind-kernel",
        title="kernel, then relay on two streams",
        program=_behind_kernel(_relay),
        check=(),
        needs=Needs(gpus=2),
        what="A kernel of 96 ms, then D2H behind it and H2D on a stream of the destination GPU.",
        causes=TIME_SLICES,
    ),
    Entry(
        name="long-kernel",
        title="kernel alone",
        role=Role.AGGRESSOR,
        program=_behind_kernel(None),
        size=1 * MIB,
        uses=Hardware.GRAPHICS_ENGINE,
        what="A kernel of 96 ms on a stream, in a loop, with no work behind it.",
        source="the report of peer-copy-behind-kernel: copies only to streams with no pending work avoid the stall",
        causes=TIME_SLICES,
    ),
)
