"""Streams and events: record and query, churn, the gated default stream."""

from __future__ import annotations

from stallprobes.catalog.copies import ERROR_NOT_READY, SCALAR
from stallprobes.catalog.entry import VICTIM_PERIOD_NS, Cause, Entry, Place, then_wait
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
    null_stream,
)

STREAM_NON_BLOCKING = 1
WATCHDOG_NS = 250 * MS

_GATE = Word("gate", shared=True)
_FORCED = Word("gate forced", shared=True)


def _event(place: Place, _size: int) -> Program:
    event = Event("event", place.context)
    return Program(
        ops=(
            Op("cuEventRecord", (event, place.own()), label="cuEventRecord"),
            Op("cuEventQuery", (event,), label="cuEventQuery", ok=(ERROR_NOT_READY,)),
        ),
        context=place.context,
    )


def _stream_churn(place: Place, _size: int) -> Program:
    stream = Word("stream")
    return Program(
        ops=(
            Op("cuStreamCreate", (stream, STREAM_NON_BLOCKING), label="cuStreamCreate"),
            Op("cuStreamDestroy", (Load(stream),), label="cuStreamDestroy"),
        ),
        context=place.context,
    )


def _gated_copy(space: Space, place: Place, _size: int) -> Program:
    """Closes the gate on stream G, makes the copy's stream wait for it, and copies 4 bytes to the host there."""
    gate_stream = Stream("G", place.context)
    event = Event("gate passed", place.context)
    stream = place.own()
    source = Buffer("source", Space.DEVICE, 4 * KIB, place.context)
    target = Buffer("target", space, 4 * KIB, place.context)
    return Program(
        ops=(
            Op("native:store", (_GATE, 0), phase=None),
            Op("cuLaunchHostFunc", (gate_stream, HostFunction("gate", _GATE, _FORCED, WATCHDOG_NS)), phase=None),
            Op("cuEventRecord", (event, gate_stream), phase=None),
            Op("cuStreamWaitEvent", (stream, event, 0), phase=None),
            *then_wait(stream, Op("cuMemcpyDtoHAsync", (target, source, SCALAR, stream))),
        ),
        context=place.context,
    )


def _launch_then_open(place: Place, _size: int) -> Program:
    """Launches on an unrelated stream and only then opens the gate."""
    return Program(
        ops=(launch_op(place), Op("native:store", (_GATE, 1), phase=None)),
        context=place.context,
        teardown=(Op("native:store", (_GATE, 1), phase=None),),
    )


def gated_copy_place(own_stream: bool) -> Place:
    """The legacy default stream, or with ``own_stream`` a non-blocking stream that only the copy uses."""
    context = Place().context
    return Place(context) if own_stream else Place(context, null_stream(context))


_DEADLOCK = Cause(
    context="same",
    why="The pageable copy waits on the default stream for an event and holds the context's lock in the driver all the "
    "while; the launch that would lead to the event waits for that lock. Neither can go on: a deadlock, until the "
    "watchdog opens the gate.",
    helps="Pinned memory for the copy, or a non-blocking stream of its own: then the launch goes through.",
)

ENTRIES = (
    Entry(
        name="event",
        title="event record and query",
        role=Role.VICTIM,
        program=_event,
        period_ns=VICTIM_PERIOD_NS,
        what="cuEventRecord and cuEventQuery on a stream.",
        source="how a polling thread follows the GPU",
    ),
    Entry(
        name="launch-then-open",
        title="launch, then open the gate",
        role=Role.VICTIM,
        program=_launch_then_open,
        period_ns=20 * MS,
        what="A launch on an unrelated stream; only after it returned is the gate opened that a copy waits for.",
        source="the report of default-stream-gate, thread 2",
    ),
    Entry(
        name="gated-copy",
        title="gated pageable D2H",
        role=Role.AGGRESSOR,
        program=lambda place, size: _gated_copy(Space.PAGEABLE, place, size),
        period_ns=10 * MS,
        what="A 4-byte pageable D2H that waits for an event behind a host function. A watchdog opens the gate after "
        "250 ms.",
        source="the report of default-stream-gate, thread 1",
        causes=(_DEADLOCK,),
    ),
    Entry(
        name="gated-copy-pinned",
        title="gated pinned D2H",
        role=Role.AGGRESSOR,
        program=lambda place, size: _gated_copy(Space.PINNED, place, size),
        period_ns=10 * MS,
        what="The same with pinned memory: the copy's call returns at once.",
        source="the report of default-stream-gate, the first remedy",
        causes=(_DEADLOCK,),
    ),
    Entry(
        name="stream-churn",
        title="stream create/destroy",
        role=Role.AGGRESSOR,
        program=_stream_churn,
        what="cuStreamCreate and cuStreamDestroy, again and again.",
        source="a library that makes a stream for each request",
        causes=(
            Cause(
                context="same",
                why="Making and ending a stream takes the context's lock and work on the GPU's channels.",
                helps="Make streams once and keep them.",
            ),
        ),
    ),
)
