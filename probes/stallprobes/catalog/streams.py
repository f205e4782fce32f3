"""Probes of events and streams, and the gated default stream."""

from __future__ import annotations

from stallprobes.catalog.copies import ERROR_NOT_READY, SCALAR_BYTES
from stallprobes.catalog.entry import (
    CALLS,
    VICTIM_PERIOD_NS,
    Cause,
    CheckPlacement,
    Entry,
    Hardware,
    Placement,
    Relation,
    called,
    on_null_stream,
    repeated,
    synchronized,
)
from stallprobes.catalog.kernels import launch_op
from stallprobes.model import (
    KIB,
    MS,
    Buffer,
    Event,
    HostFunction,
    Load,
    Op,
    Program,
    Role,
    Space,
    Stream,
    Word,
)

# Flag of a new stream that does not wait for the default stream (CU_STREAM_NON_BLOCKING).
STREAM_NON_BLOCKING = 1
# Longest wait (ns) of the aggressor mutex-holder for its mutex, and of a host function for its gate or mutex. After
# this wait, the aggressor or host function continues without the gate or mutex, which ends a deadlock. In a session,
# the option watchdog_ns replaces this wait for host functions.
WATCHDOG_NS = 250 * MS

# Memory word of the gate that holds up an aggressor's copy: 0 for closed, 1 for open. The stream of the copy waits for
# an event. The event waits for a host function, which returns once the gate is open.
_GATE = Word("gate", shared=True)
# Memory word that counts how often the host function gave up its wait with the gate still closed.
_FORCED = Word("gate forced", shared=True)
# Memory word that receives the handle of the created stream, for the call that destroys it.
_STREAM = Word("stream")


def _event(placement: Placement, _size: int) -> Program:
    event = Event("event", placement.context)
    return Program(
        ops=(
            called("cuEventRecord", event, placement.resolved_stream()),
            Op("cuEventQuery", (event,), label="cuEventQuery", ok=(ERROR_NOT_READY,)),
        ),
        context=placement.context,
    )


def _gated_copy(space: Space, placement: Placement, _size: int) -> Program:
    """Close the gate on stream G, make the copy's stream wait for it, and copy 4 bytes to the host on that stream."""
    gate_stream = Stream("G", placement.context)
    event = Event("gate passed", placement.context)
    stream = placement.resolved_stream()
    source = Buffer("source", Space.DEVICE, 4 * KIB, placement.context)
    target = Buffer("target", space, 4 * KIB, placement.context)
    return Program(
        ops=(
            Op("native:store", (_GATE, 0), phase=None),
            Op("cuLaunchHostFunc", (gate_stream, HostFunction("gate", _GATE, _FORCED, WATCHDOG_NS)), phase=None),
            Op("cuEventRecord", (event, gate_stream), phase=None),
            Op("cuStreamWaitEvent", (stream, event, 0), phase=None),
            *synchronized(stream, Op("cuMemcpyDtoHAsync", (target, source, SCALAR_BYTES, stream))),
        ),
        context=placement.context,
    )


def _launch_then_open(placement: Placement, _size: int) -> Program:
    """Launch on an unrelated stream, then open the gate."""
    return Program(
        ops=(launch_op(placement.resolved_stream()), Op("native:store", (_GATE, 1), phase=None)),
        context=placement.context,
        teardown=(Op("native:store", (_GATE, 1), phase=None),),
    )


def gated_copy_placement(own_stream: bool) -> Placement:
    """Placement on the legacy default stream, or with ``own_stream`` on a non-blocking stream of its own."""
    return Placement() if own_stream else on_null_stream()


_DEADLOCK = Cause(
    context=Relation.SAME,
    phases=CALLS,
    short="the copy waits for an event and holds the lock: a deadlock",
    short_remedy="copy into pinned memory, or on a non-blocking stream of its own",
    why="The pageable copy waits inside its call for an event and holds the context's lock in the driver meanwhile. "
    "The launch, which must return before the event can occur, waits for that lock. Neither call can proceed: a "
    "deadlock, until the watchdog opens the gate.",
    remedy="Copy into pinned memory, or on a non-blocking stream of its own: then the launch returns.",
)

ENTRIES = (
    Entry(
        name="event",
        title="event record and query",
        role=Role.VICTIM,
        program=_event,
        period_ns=VICTIM_PERIOD_NS,
        check=(CheckPlacement(position=60),),
        what="cuEventRecord and cuEventQuery on a stream.",
        source="a thread that polls the progress of the GPU",
    ),
    Entry(
        name="launch-then-open",
        title="launch, then open the gate",
        role=Role.VICTIM,
        program=_launch_then_open,
        period_ns=20 * MS,
        uses=Hardware.GRAPHICS_ENGINE,
        what="A launch on an unrelated stream. After it has returned, the probe opens the gate that a copy waits for.",
        source="the report of default-stream-gate, thread 2",
    ),
    Entry(
        name="gated-copy",
        title="gated pageable D2H",
        role=Role.AGGRESSOR,
        program=lambda placement, size: _gated_copy(Space.PAGEABLE, placement, size),
        period_ns=10 * MS,
        uses=Hardware.D2H_ENGINE | Hardware.HOST_BUS,
        check=(CheckPlacement(stream="null", position=230),),
        what="A 4-byte pageable D2H that waits for an event behind a host function. A watchdog opens the gate after "
        "250 ms, or 60 ms in a check.",
        source="the report of default-stream-gate, thread 1",
        causes=(_DEADLOCK,),
    ),
    Entry(
        name="gated-copy-pinned",
        title="gated pinned D2H",
        role=Role.AGGRESSOR,
        program=lambda placement, size: _gated_copy(Space.PINNED, placement, size),
        period_ns=10 * MS,
        uses=Hardware.D2H_ENGINE | Hardware.HOST_BUS,
        what="A 4-byte D2H into pinned memory that waits for the same event. Its call returns at once.",
        source="the report of default-stream-gate, the first remedy",
        causes=(_DEADLOCK,),
    ),
    Entry(
        name="stream-churn",
        title="stream create/destroy",
        role=Role.AGGRESSOR,
        program=repeated(
            lambda *_: (
                called("cuStreamCreate", _STREAM, STREAM_NON_BLOCKING),
                called("cuStreamDestroy", Load(_STREAM)),
            )
        ),
        check=(CheckPlacement(position=190, quick_position=190),),
        what="cuStreamCreate and cuStreamDestroy in a loop.",
        source="a library that creates a stream for each request",
        causes=(
            Cause(
                context=Relation.SAME,
                phases=CALLS,
                short="creating and destroying a stream holds locks others need",
                short_remedy="create streams once and keep them",
                why="Creating and destroying a stream holds locks of the context that launches and copies need.",
                remedy="Create streams once and keep them.",
            ),
        ),
    ),
)
