"""Probes that launch kernels and graphs or load modules."""

from __future__ import annotations

from stallprobes.catalog.entry import (
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
    repeated,
    repeated_on_stream,
    synchronized,
)
from stallprobes.model import (
    MS,
    US,
    Graph,
    Guard,
    Image,
    Kernel,
    KernelArgs,
    Load,
    Op,
    Phase,
    Program,
    Role,
    Stream,
    Text,
    Word,
)

# Number of blocks that stands for "fill the GPU": the launch gets as many blocks as the GPU runs at a time.
FILL_GPU = 0
# Number of blocks of a kernel that leaves SMs free.
FEW_BLOCKS = 16
# Number of threads in a block of the kernels that run for a given time. The empty kernel has one thread.
THREADS = 256
# Duration (ns) of the kernels of the aggressors spin and spin-full.
SPIN_NS = 50 * MS
# Duration (ns) of the kernel with which the aggressor keep-alive keeps the GPU awake.
KEEP_ALIVE_NS = 20 * US
# Period (ns) at which the aggressor keep-alive launches its short kernel, so that the GPU is never idle for long.
KEEP_ALIVE_PERIOD_NS = 10 * MS
# Number of launches with which an aggressor fills the launch queue of a stream. The queue holds about 1000 launches.
QUEUE_DEPTH = 1_100

_TWO_PROCESSES = Cause(
    process=Relation.OTHER,
    uses=Hardware.GRAPHICS_ENGINE | Hardware.INLINE_COPY,
    phases=WAITS,
    short="one process runs at a time, and the work waits for a time-slice",
    short_remedy="do the work in one process, use a copy engine, or MPS",
    why="Each process has contexts of its own, and the GPU's graphics engine runs one context at a time. Work of one "
    "process that needs the engine waits for the time-slices of the other one.",
    remedy="Do the work in one process, on a stream for each task, or move data with a copy engine. Processes that "
    "must stay apart can share the engine through NVIDIA's Multi-Process Service (MPS).",
)
TIME_SLICE = Cause(
    context=Relation.OTHER,
    uses=Hardware.GRAPHICS_ENGINE,
    phases=WAITS,
    short="one context runs at a time, and the work waits for a time-slice",
    short_remedy="submit it in the kernel's own context, or use a copy engine",
    why="The GPU's graphics engine runs one context at a time. A kernel or a device-to-device copy, which is a kernel "
    "too, waits for one time-slice (2048 µs by default) of each other busy context.",
    remedy="Submit the work in the context whose kernels run, or move the data with a copy engine (pinned D2H and "
    "H2D).",
)
INLINE = Cause(
    context=Relation.OTHER,
    uses=Hardware.INLINE_COPY,
    phases=WAITS,
    short="small H2D copies need the graphics engine, held by a context",
    short_remedy="copy in the kernel's own context, or copy 1 MiB or more at once",
    why="A small H2D copy travels in the command stream and the graphics engine writes it, so it waits for a "
    "time-slice like a kernel. A pinned D2H of the same 4 KiB uses a copy engine and does not wait (on an H200).",
    remedy="Copy in the context whose kernels run, or combine small copies: a copy of 1 MiB uses a copy engine.",
)
# Causes of the delays that an aggressor on the graphics engine adds to victims in other contexts.
TIME_SLICES = (_TWO_PROCESSES, TIME_SLICE, INLINE)
# Cause of delays in other contexts while an aggressor loads modules.
_LOADING = Cause(
    context=Relation.OTHER,
    uses=Hardware.GRAPHICS_ENGINE | Hardware.INLINE_COPY,
    phases=WAITS,
    short="loading runs work in its context, and one context at a time runs",
    short_remedy="load modules before the critical part (CUDA_MODULE_LOADING=EAGER)",
    why="Loading code runs work on the GPU in the loading context, and the graphics engine runs one context at a time. "
    "Each load makes it change over and back (on an H200 a D2D in another context waited 0.25 ms).",
    remedy="Load every module before the critical part (CUDA_MODULE_LOADING=EAGER).",
)
_NO_FREE_SM = Cause(
    context=Relation.SAME,
    phases=WAITS,
    short="the kernel occupies every SM, and work waits until it ends",
    short_remedy="use fewer blocks in the long kernel, or a copy engine",
    why="The kernel occupies every SM. Other work of its context that needs an SM, such as a device-to-device copy, "
    "starts only when the kernel ends.",
    remedy="Leave SMs free with fewer blocks in the long kernel, or use a copy engine for the transfer.",
)


# Memory words that receive handles, for the calls that destroy the objects: _EXECUTABLE the handle of an instantiated
# graph, _MODULE the handle of a loaded module.
_EXECUTABLE, _MODULE = Word("exec"), Word("module")


def launch_op(stream: Stream, label: str = "", phase: Phase | None = Phase.CALL, repeat: int = 1) -> Op:
    """Launch of the empty kernel on ``stream``."""
    args = (Kernel("empty", stream.context), 1, 1, stream, KernelArgs())
    return Op("cuLaunchKernel", args, phase, label=label, repeat=repeat)


def spin_op(stream: Stream, blocks: int, duration_ns: int, started: Word, label: str = "") -> Op:
    """Launch of the spin kernel for ``duration_ns``; the kernel counts its start in ``started``."""
    args = (Kernel("spin", stream.context), blocks, THREADS, stream, KernelArgs(duration_ns, started))
    return Op("cuLaunchKernel", args, label=label)


def _always_one(blocks: int, duration_ns: int) -> ProgramMaker:
    """Spin kernels, each submitted when the one before has started."""

    def program(placement: Placement, _size: int) -> Program:
        started = Word("started", mapped=True)
        return Program(
            ops=(spin_op(placement.resolved_stream(), blocks, duration_ns, started),),
            context=placement.context,
            guard=Guard(started, 1),
            proof=started,
        )

    return program


def _first_launch(placement: Placement, _size: int) -> Program:
    function, stream = Word("function"), placement.resolved_stream()
    return Program(
        ops=(
            called("cuModuleLoadData", _MODULE, Image()),
            called("cuModuleGetFunction", function, Load(_MODULE), Text("first")),
            Op("cuLaunchKernel", (Load(function), 1, 1, stream, KernelArgs()), label="first launch"),
            Op("cuStreamSynchronize", (stream,), Phase.WAIT),
            called("cuModuleUnload", Load(_MODULE)),
        ),
        context=placement.context,
    )


def _queue_full(placement: Placement, _size: int) -> Program:
    stream, started = placement.resolved_stream(), Word("started", mapped=True)
    spin = spin_op(stream, 1, 20 * MS, started, label="spin")
    launches = launch_op(stream, label="launches", repeat=QUEUE_DEPTH)
    return Program(ops=synchronized(stream, spin, launches), context=placement.context, proof=started)


ENTRIES = (
    Entry(
        name="launch",
        title="launch",
        role=Role.VICTIM,
        program=repeated_on_stream(lambda stream, _: (launch_op(stream),)),
        period_ns=VICTIM_PERIOD_NS,
        uses=Hardware.GRAPHICS_ENGINE,
        check=(
            CheckPlacement(position=10, quick_position=10),
            CheckPlacement(stream="shared", position=80, quick_position=20),
            CheckPlacement(stream="null", position=90),
            CheckPlacement("green", position=120),
        ),
        what="cuLaunchKernel of an empty kernel, then cuStreamSynchronize.",
        source="the report of pageable-d2h-vs-launch: one thread launches a small kernel while another thread copies",
        note="The period changes the figure. On an H200 the call takes 2 to 3 µs with 20 µs between calls, and 3 to 6 "
        "µs at 1 kHz, because the CPU's caches are cold after a pause.",
    ),
    Entry(
        name="launch-warmed",
        title="launch behind another",
        role=Role.VICTIM,
        program=repeated_on_stream(
            lambda stream, _: (
                launch_op(stream, phase=None),
                Op("cuStreamSynchronize", (stream,), phase=None),
                launch_op(stream),
            )
        ),
        period_ns=VICTIM_PERIOD_NS,
        uses=Hardware.GRAPHICS_ENGINE,
        what="cuLaunchKernel of an empty kernel and cuStreamSynchronize, which are not timed; then both again, timed.",
        source="the usual advice for the first call after an idle time: make one that does not matter just before it",
    ),
    Entry(
        name="graph-launch",
        title="graph launch",
        role=Role.VICTIM,
        program=repeated_on_stream(lambda stream, _: (Op("cuGraphLaunch", (Graph("graph", stream.context), stream)),)),
        period_ns=VICTIM_PERIOD_NS,
        uses=Hardware.GRAPHICS_ENGINE,
        check=(CheckPlacement(position=70),),
        what="cuGraphLaunch of four empty kernels in sequence, then cuStreamSynchronize.",
        source="a common remedy for slow launches",
    ),
    Entry(
        name="spin",
        title="spin kernel · 16 blocks",
        role=Role.AGGRESSOR,
        program=_always_one(FEW_BLOCKS, SPIN_NS),
        period_ns=2 * MS,
        uses=Hardware.GRAPHICS_ENGINE,
        check=(
            CheckPlacement(position=10, quick_position=10),
            CheckPlacement("secondary", position=30),
            CheckPlacement("second-process", position=35),
        ),
        beside=1,
        what="Kernels of 50 ms with 16 blocks of 256 threads, queued back to back so that one always runs.",
        source="the report of secondary-context-d2d: a long kernel of 16 × 256 threads in the primary context",
        causes=TIME_SLICES,
    ),
    Entry(
        name="spin-full",
        title="spin kernel · whole GPU",
        role=Role.AGGRESSOR,
        program=_always_one(FILL_GPU, SPIN_NS),
        period_ns=2 * MS,
        uses=Hardware.GRAPHICS_ENGINE,
        check=(CheckPlacement(position=20),),
        what="Kernels of 50 ms that occupy every SM, queued back to back.",
        source="the report of secondary-context-d2d, with a kernel that leaves no SM free",
        causes=(*TIME_SLICES, _NO_FREE_SM),
    ),
    Entry(
        name="keep-alive",
        title="keep-alive kernel",
        role=Role.AGGRESSOR,
        program=_always_one(1, KEEP_ALIVE_NS),
        period_ns=KEEP_ALIVE_PERIOD_NS,
        uses=Hardware.GRAPHICS_ENGINE,
        what="A kernel of 20 µs with one block, each 10 ms, so that the GPU is never idle for long.",
        source="the advice in reports of slow calls after an idle time",
        causes=TIME_SLICES,
    ),
    Entry(
        name="graph-instantiate",
        title="graph instantiate",
        role=Role.AGGRESSOR,
        program=repeated(
            lambda placement, _: (
                called(
                    "cuGraphInstantiate",
                    _EXECUTABLE,
                    Graph("graph", placement.context, nodes=16, instantiated=False),
                    0,
                ),
                called("cuGraphExecDestroy", Load(_EXECUTABLE)),
            )
        ),
        check=(CheckPlacement(position=170),),
        what="cuGraphInstantiate of a graph with 16 kernels, then cuGraphExecDestroy, in a loop.",
        source="a program that builds a new graph for each step",
        causes=(
            Cause(
                context=Relation.SAME,
                phases=CALLS,
                short="instantiating a graph holds the context's lock",
                short_remedy="instantiate the graph once, then update it",
                why="Instantiating a graph holds the context's lock in the driver.",
                remedy="Instantiate the graph once, then update the executable graph.",
            ),
        ),
    ),
    Entry(
        name="module-load",
        title="module load",
        role=Role.AGGRESSOR,
        program=repeated(
            lambda *_: (called("cuModuleLoadData", _MODULE, Image()), called("cuModuleUnload", Load(_MODULE)))
        ),
        uses=Hardware.GRAPHICS_ENGINE,
        check=(CheckPlacement(position=150, quick_position=150),),
        what="cuModuleLoadData and cuModuleUnload in a loop.",
        source="meta-pytorch/torchcomms #2334 and #2470: loading code delays other threads",
        causes=(
            Cause(
                context=Relation.SAME,
                phases=CALLS,
                short="loading a module holds the context's lock",
                short_remedy="load modules before the critical part (CUDA_MODULE_LOADING=EAGER)",
                why="Loading a module holds the context's lock in the driver.",
                remedy="Load every module before the critical part (CUDA_MODULE_LOADING=EAGER).",
            ),
            _LOADING,
        ),
    ),
    Entry(
        name="module-first-launch",
        title="module load + first launch",
        role=Role.AGGRESSOR,
        program=_first_launch,
        uses=Hardware.GRAPHICS_ENGINE,
        check=(CheckPlacement(position=160),),
        what="Load a module, launch its kernel for the first time and unload the module, in a loop.",
        source="meta-pytorch/torchcomms #2334: with lazy loading the first launch loads the code",
        causes=(
            Cause(
                context=Relation.SAME,
                phases=CALLS,
                short="a first launch loads its code and holds the context's lock",
                short_remedy="launch each kernel once before, or set CUDA_MODULE_LOADING=EAGER",
                why="With lazy loading the first launch of a kernel loads its code and holds the context's lock.",
                remedy="Launch each kernel once before the critical part, or set CUDA_MODULE_LOADING=EAGER.",
            ),
            _LOADING,
        ),
    ),
    Entry(
        name="launch-queue-full",
        title="full launch queue",
        role=Role.AGGRESSOR,
        program=_queue_full,
        uses=Hardware.GRAPHICS_ENGINE,
        check=(CheckPlacement(position=180),),
        what="1100 launches behind a 20 ms kernel. They fill the stream's launch queue, so the thread blocks.",
        source="microsoft/mscclpp #394 and #516: a launch blocks when about 1024 launches are pending",
        causes=(
            Cause(
                context=Relation.SAME,
                stream=Relation.SAME,
                phases=CALLS,
                short="the stream's launch queue is full",
                short_remedy="keep fewer than 1000 launches pending, or launch graphs",
                why="The stream's launch queue is full: a launch returns only when an earlier launch has completed.",
                remedy="Keep fewer than 1000 launches pending, or launch graphs.",
            ),
            Cause(
                context=Relation.SAME,
                null_stream=True,
                phases=CALLS,
                short="a NULL-stream call concerns every stream, also one that is full",
                short_remedy="launch on a non-blocking stream",
                why="A call on the NULL stream concerns every stream of the context. Beside a stream whose launch "
                "queue is full it takes longer (10 µs in place of 3 on an H200; the mechanism is not documented).",
                remedy="Launch on a non-blocking stream.",
            ),
            *TIME_SLICES,
        ),
    ),
)
