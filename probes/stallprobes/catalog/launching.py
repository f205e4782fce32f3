"""Probes that submit in bursts, in several threads at the same time: launches, records, graphs; one for all streams."""

from __future__ import annotations

from collections.abc import Callable

from stallprobes.catalog.entry import (
    CALLS,
    VICTIM_PERIOD_NS,
    Cause,
    CheckPlacement,
    Entry,
    Hardware,
    Placement,
    ProgramMaker,
    Relation,
    repeated_on_stream,
    synchronized,
)
from stallprobes.catalog.kernels import INLINE, TIME_SLICE, launch_op
from stallprobes.model import US, Event, Graph, Op, Phase, Program, Role, Stream

# Period (ns) of the bursts of launches, and of the victim launch-batch. The period is not a multiple of another
# victim's period. Reason: with a multiple, either all bursts or none would meet a victim's calls.
BURST_PERIOD_NS = 40_900 * US
# Number of launches in a burst on one stream. A burst of event records has the same number of records. A graph in place
# of a burst has the same number of nodes.
BURST = 64
# Number of streams on which the aggressor with many streams launches.
STREAMS = 16
# Number of launches in a series. Only the first launch of a series follows a pause and finds cold caches. Reason for
# the value: in a shorter series, more than a tenth of all launches would find cold caches.
SERIES = 10


def _launches(stream: Stream) -> Op:
    return launch_op(stream, label="launches", repeat=BURST)


def _burst(op: Callable[[Stream], Op]) -> ProgramMaker:
    """The bursts of several threads last less than a millisecond each: they meet only if they begin together."""

    def program(placement: Placement, _size: int) -> Program:
        stream = placement.resolved_stream()
        return Program(ops=synchronized(stream, op(stream)), context=placement.context, aligned=True)

    return program


def _all_streams(placement: Placement, _size: int) -> Program:
    streams = [Stream(f"stream {number}", placement.context) for number in range(STREAMS)]
    waits = [Op("cuStreamSynchronize", (stream,), Phase.WAIT) for stream in streams]
    return Program(ops=(*map(_launches, streams), *waits), context=placement.context, aligned=True)


_LOCK_OF_LAUNCHES = Cause(
    context=Relation.SAME,
    phases=CALLS,
    short="each submission takes the context's lock for a part of its time",
    short_remedy="launch graphs, or let one thread launch on all streams",
    why="Each call that submits work takes a lock of its context for a part of its time, whatever its stream. Threads "
    "that submit at the same time wait for each other, in no order.",
    remedy="Launch a graph in place of many kernels, or let one thread launch on all streams.",
)


def _entry(
    name: str,
    title: str,
    program: ProgramMaker,
    what: str,
    source: str,
    note: str = "",
    check: tuple[CheckPlacement, ...] = (),
    beside: int = 0,
) -> Entry:
    return Entry(
        name=name,
        title=title,
        role=Role.AGGRESSOR,
        program=program,
        period_ns=BURST_PERIOD_NS,
        uses=Hardware.GRAPHICS_ENGINE,
        what=f"{what}, each 41 ms, at the same time as all other bursts.",
        source=source,
        check=check,
        beside=beside,
        note=note,
        causes=(_LOCK_OF_LAUNCHES, TIME_SLICE, INLINE),
    )


ENTRIES = (
    _entry(
        "launch-burst",
        "launches in bursts",
        _burst(_launches),
        "64 launches of an empty kernel, then cuStreamSynchronize",
        "cms-patatrack/pixeltrack-standalone #218 and NVIDIA/TensorRT #3351: several threads launch at the same time",
        "launch-burst-x16 are 16 threads of it, each with a stream of its own. In a check each burst begins 2 ms after "
        "the one before, so that the calls of a window meet many.",
        (CheckPlacement(stream="own", position=187, threads=15),),
        beside=8,
    ),
    _entry(
        "record-burst",
        "event records in bursts",
        _burst(
            lambda stream: Op("cuEventRecord", (Event("event", stream.context), stream), label="records", repeat=BURST)
        ),
        "64 cuEventRecord, then cuStreamSynchronize",
        "cms-patatrack/pixeltrack-standalone #218: 40 % of the time in CUDA calls is in cudaEventRecord",
    ),
    _entry(
        "graph-burst",
        "graph in place of a burst",
        _burst(lambda stream: Op("cuGraphLaunch", (Graph("graph", stream.context, nodes=BURST), stream))),
        "One cuGraphLaunch of 64 empty kernels, then cuStreamSynchronize",
        "launch-burst with a graph, as discussed in NVIDIA/TensorRT #3351",
    ),
    _entry(
        "launch-all",
        "bursts of one thread on 16 streams",
        _all_streams,
        "64 launches on each of 16 streams by one thread, then cuStreamSynchronize of each",
        "NVIDIA/TensorRT #3351, its advice: a single thread with several streams",
    ),
    Entry(
        name="launch-batch",
        title="a batch of launches",
        role=Role.VICTIM,
        program=_burst(_launches),
        period_ns=BURST_PERIOD_NS,
        uses=Hardware.GRAPHICS_ENGINE,
        what="64 launches of an empty kernel, then cuStreamSynchronize, each 41 ms, at the same time as all bursts.",
        source="cms-patatrack/pixeltrack-standalone #218: the time of cudaLaunchKernel in one of several threads",
    ),
    Entry(
        name="launch-series",
        title="launches in series",
        role=Role.VICTIM,
        program=repeated_on_stream(lambda stream, _: (launch_op(stream, label="launches", repeat=SERIES),)),
        period_ns=VICTIM_PERIOD_NS,
        uses=Hardware.GRAPHICS_ENGINE,
        what="10 launches of an empty kernel, one after the other, then cuStreamSynchronize.",
        source="a training step: most of its launches follow another one, so that the CPU's caches are warm",
        note="Its p50 is that of a launch with warm caches: 3.1 to 3.5 µs on the server of an H200 where one launch "
        "each millisecond took 4.6 to 5.3 µs.",
    ),
)
