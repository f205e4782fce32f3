"""Copies between two GPUs: the driver's own, and two ways to relay them through the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stallprobes.catalog.entry import Cause, Entry, Place, then_wait
from stallprobes.catalog.kernels import INLINE, TIME_SLICE, spin_op
from stallprobes.model import (
    MIB,
    MS,
    PEER,
    PRIMARY,
    Buffer,
    BufferPart,
    Event,
    Op,
    Phase,
    Program,
    Role,
    Space,
    Stream,
    Word,
)

KERNEL_NS = 96 * MS
CHUNK = 4 * MIB
PERIOD_NS = 5 * MS
ERROR_PEER_ACCESS_ALREADY_ENABLED = 704


def _ends(place: Place, size: int) -> tuple[Buffer, Buffer]:
    return Buffer("source", Space.DEVICE, size, place.context), Buffer("target", Space.DEVICE, size, PEER)


def _peer(place: Place, size: int) -> tuple[Op, ...]:
    source, target = _ends(place, size)
    args = (target, PEER, source, place.context, size, place.own())
    return then_wait(place.own(), Op("cuMemcpyPeerAsync", args, label="peer copy"))


def _relay_naive(place: Place, size: int) -> tuple[Op, ...]:
    """Both halves on the source's stream."""
    source, target = _ends(place, size)
    middle = Buffer("middle", Space.PINNED, size, place.context)
    stream = place.own()
    return then_wait(
        stream,
        Op("cuMemcpyDtoHAsync", (middle, source, size, stream), label="D2H"),
        Op("cuMemcpyHtoDAsync", (target, middle, size, stream), label="H2D"),
    )


def _relay(place: Place, size: int) -> tuple[Op, ...]:
    """The H2D half on a stream of the destination GPU, in chunks tied by events."""
    source, target = _ends(place, size)
    middle = Buffer("middle", Space.PINNED, size, place.context)
    stream, arrival = place.own(), Stream("arrival", PEER)
    ops: list[Op] = []
    for number, offset in enumerate(range(0, size, CHUNK)):
        chunk = min(CHUNK, size - offset)
        fetched = Event(f"chunk {number} fetched", place.context)
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
    return then_wait(arrival, *ops)


def peer_access_ops() -> tuple[Op, ...]:
    """Peer access between the two GPUs, both ways, for a program's setup. The current context is as before after it."""
    popped = Word("popped")
    fine = (ERROR_PEER_ACCESS_ALREADY_ENABLED,)
    return (
        Op("cuCtxEnablePeerAccess", (PEER, 0), phase=None, ok=fine),
        Op("cuCtxPushCurrent", (PEER,), phase=None),
        Op("cuCtxEnablePeerAccess", (PRIMARY, 0), phase=None, ok=fine),
        Op("cuCtxPopCurrent", (popped,), phase=None),
    )


Way = Callable[[Place, int], tuple[Op, ...]]


def _alone(way: Way, direct: bool = False) -> Callable[[Place, int], Program]:
    def program(place: Place, size: int) -> Program:
        setup = peer_access_ops() if direct else ()
        return Program(ops=way(place, size), context=place.context, setup=setup)

    return program


def _behind_kernel(way: Way | None, direct: bool = False) -> Callable[[Place, int], Program]:
    def program(place: Place, size: int) -> Program:
        started = Word("started", mapped=True)
        kernel = spin_op(place, 1, KERNEL_NS, started, label="kernel")
        if way is None:
            rest: tuple[Op, ...] = (Op("cuStreamSynchronize", (place.own(),), Phase.WAIT),)
        else:
            rest = way(place, size)
        setup = peer_access_ops() if direct else ()
        return Program(ops=(kernel, *rest), context=place.context, setup=setup, proof=started)

    return program


_QUEUED = Cause(
    victims=("peer-copy", "peer-copy-direct", "host-relay-naive", "host-relay"),
    why="Another stream's transfer to the same GPU is queued behind a kernel, and the transfers of the two GPUs' pair "
    "share one channel in order: this one waits until that kernel ends.",
    helps="Submit such copies only to streams with nothing pending, enable peer access, or relay them through pinned "
    "memory with the H2D half on a stream of the destination GPU, in chunks tied by events.",
)

_PEER_COPY = Entry(
    name="peer-copy",
    title="peer copy",
    role=Role.VICTIM,
    program=_alone(_peer),
    period_ns=PERIOD_NS,
    size=1 * MIB,
    what="cuMemcpyPeerAsync to the second GPU, peer access off, then a wait for it: the driver stages it in the host.",
    source="the report of peer-copy-behind-kernel, stream B",
)
_BEHIND = Entry(
    name="peer-copy-behind-kernel",
    title="kernel, then peer copy",
    role=Role.AGGRESSOR,
    program=_behind_kernel(_peer),
    size=1 * MIB,
    what="A kernel of 96 ms and a peer copy behind it on the same stream, peer access off.",
    source="the report of peer-copy-behind-kernel, stream A",
    causes=(_QUEUED, TIME_SLICE, INLINE),
)

ENTRIES = (
    _PEER_COPY,
    replace(
        _PEER_COPY,
        name="peer-copy-direct",
        title="peer copy · direct",
        program=_alone(_peer, direct=True),
        what="cuMemcpyPeerAsync to the second GPU, peer access on, then a wait for it.",
        source="the report of peer-copy-behind-kernel, the remedy that did not work on that machine",
    ),
    replace(
        _PEER_COPY,
        name="host-relay-naive",
        title="relay · one stream",
        program=_alone(_relay_naive),
        what="D2H into pinned memory, then H2D straight to the other GPU, both on the source GPU's stream.",
        source="the report of peer-copy-behind-kernel, the obvious reading of the advice",
    ),
    replace(
        _PEER_COPY,
        name="host-relay",
        title="relay · two streams",
        program=_alone(_relay),
        what="D2H into pinned memory, then H2D on a stream of the destination GPU, in 4 MiB chunks tied by events.",
        source="the report of peer-copy-behind-kernel, the advice done well",
    ),
    _BEHIND,
    replace(
        _BEHIND,
        name="peer-copy-direct-behind-kernel",
        title="kernel, then direct peer copy",
        program=_behind_kernel(_peer, direct=True),
        what="A kernel of 96 ms and a peer copy behind it on the same stream, peer access on.",
        causes=(TIME_SLICE, INLINE),
    ),
    replace(
        _BEHIND,
        name="host-relay-naive-behind-kernel",
        title="kernel, then relay on one stream",
        program=_behind_kernel(_relay_naive),
        what="A kernel of 96 ms, then D2H and H2D behind it, all on one stream.",
    ),
    replace(
        _BEHIND,
        name="host-relay-behind-kernel",
        title="kernel, then relay on two streams",
        program=_behind_kernel(_relay),
        what="A kernel of 96 ms, then D2H behind it and H2D on a stream of the destination GPU.",
        causes=(TIME_SLICE, INLINE),
    ),
    Entry(
        name="long-kernel",
        title="kernel alone",
        role=Role.AGGRESSOR,
        program=_behind_kernel(None),
        size=1 * MIB,
        what="A kernel of 96 ms on a stream, again and again, and nothing behind it.",
        source="the report of peer-copy-behind-kernel: copies only to streams with no pending work avoid the stall",
        causes=(_QUEUED, TIME_SLICE, INLINE),
    ),
)
