"""Probes that wait for a kernel by querying an event or a stream, and the ways to wait without queries."""

from __future__ import annotations

from collections.abc import Callable

from stallprobes.catalog.copies import ERROR_NOT_READY
from stallprobes.catalog.entry import (
    CALLS,
    WAITS,
    Cause,
    CheckPlacement,
    Entry,
    Hardware,
    Placement,
    ProgramMaker,
    Relation,
)
from stallprobes.catalog.kernels import INLINE, TIME_SLICE, spin_op
from stallprobes.model import MS, US, Event, Op, Phase, Program, Role, Stream, Word

# Duration (ns) of the kernel for whose end the aggressors poll or wait.
KERNEL_NS = 4 * MS
# Pause (ns) between two polls of the aggressor event-backoff. During the pause, the aggressor leaves its CPU to other
# threads.
BACK_OFF_NS = 100 * US
# Longest time (ns) for which one iteration polls its kernel. After this time, the iteration ends without an error.
POLL_TIMEOUT_NS = 100 * MS


def _waiting(wait: Callable[[Stream, Event], Op], blocking: bool = False) -> ProgramMaker:
    """The program of a kernel of 4 ms, an event behind it, and ``wait``."""

    def program(placement: Placement, _size: int) -> Program:
        stream, started = placement.resolved_stream(), Word("started", mapped=True)
        event = Event("event", placement.context, blocking=blocking)
        return Program(
            ops=(
                spin_op(stream, 1, KERNEL_NS, started, label="kernel"),
                Op("cuEventRecord", (event, stream), phase=None),
                wait(stream, event),
            ),
            context=placement.context,
            proof=started,
        )

    return program


def _poll(target: Event | Stream, step_ns: int) -> Op:
    return Op("native:poll", (target, step_ns, POLL_TIMEOUT_NS), Phase.WAIT, ok=(ERROR_NOT_READY,))


# Cause: threads that query without a pause delay driver calls of other threads in the same context.
_POLLING = Cause(
    context=Relation.SAME,
    phases=CALLS,
    short="threads that query without a pause compete for caches and CPUs",
    short_remedy="sleep between queries, or wait for an event that blocks",
    why="Each query is a call of the driver, and a thread that queries without a pause makes about a million of them "
    "each second. Other calls share the CPU's caches with them, and with more such threads than cores they wait for a "
    "CPU. Queries hold no lock of launches.",
    remedy="Sleep between two queries, or wait in cuEventSynchronize for an event with CU_EVENT_BLOCKING_SYNC.",
)
_HARDWARE_QUEUE = Cause(
    context=Relation.SAME,
    uses=Hardware.GRAPHICS_ENGINE | Hardware.INLINE_COPY,
    phases=WAITS,
    short="streams share hardware queues, and a blocking event holds one",
    short_remedy="set CUDA_DEVICE_MAX_CONNECTIONS=32, or block on fewer streams",
    why="Streams of a context share its hardware queues, 8 by default. A blocking event makes the GPU interrupt the "
    "host, and kernels of other streams behind its record in the same queue wait until its own kernel ends.",
    remedy="Wait for blocking events on fewer streams than there are hardware queues, or set "
    "CUDA_DEVICE_MAX_CONNECTIONS=32 before the program's first CUDA call.",
)


def _entry(
    name: str,
    title: str,
    program: ProgramMaker,
    what: str,
    source: str,
    *causes: Cause,
    check: tuple[CheckPlacement, ...] = (),
) -> Entry:
    return Entry(
        name=name,
        title=title,
        role=Role.AGGRESSOR,
        program=program,
        uses=Hardware.GRAPHICS_ENGINE,
        what=f"A kernel of 4 ms in one block, an event behind it, and {what}, in a loop.",
        source=source,
        check=check,
        note=f"{name}-x16 are 16 threads of it, each with a stream of its own.",
        causes=(*causes, TIME_SLICE, INLINE),
    )


ENTRIES = (
    _entry(
        "event-poll",
        "event polling",
        _waiting(lambda _, event: _poll(event, 0)),
        "cuEventQuery of it without a pause until it is complete",
        "tensorflow/tensorflow #6224: a thread queries each event about 15 000 times; vllm-project/vllm #47081",
        _POLLING,
    ),
    _entry(
        "stream-poll",
        "stream polling",
        _waiting(lambda stream, _: _poll(stream, 0)),
        "cuStreamQuery of its stream without a pause until it is complete",
        "programs that poll a stream in place of an event",
        _POLLING,
    ),
    _entry(
        "event-backoff",
        "event polling with pauses",
        _waiting(lambda _, event: _poll(event, BACK_OFF_NS)),
        "cuEventQuery of it each 0.1 ms until it is complete",
        "tensorflow/tensorflow #6224, its answer: poll at longer intervals",
    ),
    _entry(
        "event-block",
        "blocking wait for an event",
        _waiting(lambda _, event: Op("cuEventSynchronize", (event,), Phase.WAIT), blocking=True),
        "cuEventSynchronize of it, which sleeps because the event has CU_EVENT_BLOCKING_SYNC",
        "vllm-project/vllm #47081, its remedy: blocking events",
        _HARDWARE_QUEUE,
        check=(CheckPlacement(stream="own", position=185, threads=16),),
    ),
)
