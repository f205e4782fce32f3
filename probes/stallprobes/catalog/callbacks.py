"""Probes of host functions: an empty one, long ones, and other ways to do the same work."""

from __future__ import annotations

from stallprobes.catalog.entry import (
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
from stallprobes.catalog.kernels import INLINE, TIME_SLICE, launch_op
from stallprobes.catalog.streams import WATCHDOG_NS
from stallprobes.model import MS, Event, HostFunction, Op, Phase, Program, Role, Stream, Word

# Duration (ns) of the CPU work in one iteration of callback-10ms, callback-short and event-thread. In callback-10ms,
# the host function does the work. In the other two aggressors, the aggressor's thread does the work.
LONG_NS = 10 * MS
# Time (ns) for which the aggressor mutex-holder holds the mutex that the host function of callback-mutex takes.
HOLD_NS = 5 * MS
# Pause (ns) of the aggressor mutex-holder between the release of its mutex and the next lock.
_PAUSE_NS = 1 * MS

# Memory words that a host function increments: _CALLS each time that it ran, _FORCED each time that its wait timed out.
_CALLS, _FORCED = Word("calls"), Word("forced")
# Mutex that the aggressor mutex-holder and the host function of callback-mutex take in turn.
_MUTEX = Word("mutex", shared=True)


def _host_function(stream: Stream, ns: int) -> Op:
    return called("cuLaunchHostFunc", stream, HostFunction("busy", _CALLS, _FORCED, ns))


def _busy_callback(ns: int, rest_ns: int = 0) -> ProgramMaker:
    """A kernel, a host function of ``ns`` behind it, and ``rest_ns`` of work by the thread itself."""

    def program(placement: Placement, _size: int) -> Program:
        stream = placement.resolved_stream()
        work = (Op("native:spin", (rest_ns,), phase=None),) if rest_ns else ()
        ops = synchronized(stream, launch_op(stream, label="kernel"), _host_function(stream, ns))
        return Program(ops=(*ops, *work), context=placement.context, proof=_CALLS)

    return program


def _mutex_holder(placement: Placement, _size: int) -> Program:
    """Hold the mutex for some time and launch a kernel before it is released."""
    timed_out = 1
    return Program(
        ops=(
            Op("native:lock", (_MUTEX, WATCHDOG_NS), phase=None, ok=(timed_out,)),
            Op("native:sleep", (HOLD_NS,), phase=None),
            launch_op(placement.resolved_stream(), label="launch with the mutex"),
            Op("native:store", (_MUTEX, 0), phase=None),
            Op("native:sleep", (_PAUSE_NS,), phase=None),
        ),
        context=placement.context,
        teardown=(Op("native:store", (_MUTEX, 0), phase=None),),
    )


def _event_thread(placement: Placement, _size: int) -> Program:
    stream, event = placement.resolved_stream(), Event("event", placement.context, blocking=True)
    return Program(
        ops=(
            launch_op(stream, label="kernel"),
            called("cuEventRecord", event, stream),
            Op("cuEventSynchronize", (event,), Phase.WAIT),
            Op("native:spin", (LONG_NS,), phase=None),
        ),
        context=placement.context,
    )


_ONE_THREAD = Cause(
    context=Relation.SAME,
    uses=Hardware.HOST_THREAD,
    phases=WAITS,
    short="host functions run one after the other, and a long one is ahead",
    short_remedy="keep host functions short: let a thread do the work",
    why="The driver may call host functions one after the other, also those of independent streams (CUDA's "
    "documentation). A short one waits until a long one returns, and the work behind it in its stream waits with it.",
    remedy="Keep host functions short: let them wake a thread of the program that does the work, or let that thread "
    "wait for an event in place of a host function.",
)


def _entry(
    name: str,
    title: str,
    program: ProgramMaker,
    what: str,
    source: str,
    *causes: Cause,
    uses: Hardware = Hardware.GRAPHICS_ENGINE | Hardware.HOST_THREAD,
    check: tuple[CheckPlacement, ...] = (),
) -> Entry:
    return Entry(
        name=name,
        title=title,
        role=Role.AGGRESSOR,
        program=program,
        uses=uses,
        what=what,
        source=source,
        check=check,
        # Each of these probes launches a small kernel.
        causes=(*causes, TIME_SLICE, INLINE),
    )


ENTRIES = (
    Entry(
        name="callback",
        title="host function",
        role=Role.VICTIM,
        program=repeated_on_stream(lambda stream, _: (_host_function(stream, 0),)),
        period_ns=VICTIM_PERIOD_NS,
        uses=Hardware.HOST_THREAD,
        what="cuLaunchHostFunc of a host function that returns at once, then cuStreamSynchronize.",
        source="NVIDIA/nccl #1742: host functions of other streams",
    ),
    _entry(
        "callback-1ms",
        "host function · 1 ms",
        _busy_callback(1 * MS),
        "A small kernel and a host function behind it that computes for 1 ms, then cuStreamSynchronize, in a loop.",
        "pytorch/FBGEMM #5462: callbacks that do the work of a step",
        _ONE_THREAD,
    ),
    _entry(
        "callback-10ms",
        "host function · 10 ms",
        _busy_callback(LONG_NS),
        "A small kernel and a host function behind it that computes for 10 ms, then cuStreamSynchronize, in a loop.",
        "pytorch/FBGEMM #5462: callbacks that do the work of a step",
        _ONE_THREAD,
        check=(CheckPlacement(position=235),),
    ),
    _entry(
        "callback-mutex",
        "host function · mutex",
        repeated_on_stream(
            lambda stream, _: (
                launch_op(stream, label="kernel"),
                called("cuLaunchHostFunc", stream, HostFunction("mutex", _MUTEX, _FORCED, WATCHDOG_NS)),
            )
        ),
        "A small kernel and a host function behind it that takes a mutex, then cuStreamSynchronize, in a loop. After "
        "250 ms without the mutex (60 ms in a check) the host function gives up.",
        "LMCache/LMCache #2952: a host function that waits for Python's interpreter lock",
        _ONE_THREAD,
    ),
    _entry(
        "mutex-holder",
        "thread with the mutex",
        _mutex_holder,
        "Takes the mutex of callback-mutex for 5 ms, launches a kernel, and releases it, in a loop.",
        "LMCache/LMCache #2952: a thread that holds Python's interpreter lock in a CUDA call",
        uses=Hardware.GRAPHICS_ENGINE,
    ),
    _entry(
        "callback-short",
        "short host function",
        _busy_callback(0, LONG_NS),
        "A small kernel and a host function behind it that only counts, then cuStreamSynchronize, then 10 ms of work "
        "by the thread itself, in a loop.",
        "LMCache/LMCache #2952, its remedy: the host function only stores a result for another thread",
        _ONE_THREAD,
    ),
    _entry(
        "event-thread",
        "event and thread",
        _event_thread,
        "A small kernel and a blocking event behind it, cuEventSynchronize, then 10 ms of work by the thread itself, "
        "in a loop.",
        "the usual way to do work after a kernel without a host function",
        uses=Hardware.GRAPHICS_ENGINE,
    ),
)
