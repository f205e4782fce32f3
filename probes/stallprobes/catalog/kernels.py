"""Launches, spin kernels, graphs and modules."""

from __future__ import annotations

from stallprobes.catalog.entry import VICTIM_PERIOD_NS, Cause, Entry, Place, then_wait
from stallprobes.model import (
    MS,
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
    Text,
    Word,
)

FILL_GPU = 0
FEW_BLOCKS = 16
THREADS = 256
SPIN_NS = 50 * MS
QUEUE_DEPTH = 1_100

# What the graphics engine does: kernels, and copies that are kernels.
ON_THE_ENGINE = ("launch", "d2d", "d2d-batch", "graph-launch", "spin", "scalar-readback")

TIME_SLICE = Cause(
    context="other",
    victims=ON_THE_ENGINE,
    why="The GPU's graphics engine runs one context at a time, and a device-to-device copy is a kernel too: it waits "
    "one time-slice (2048 µs unless set otherwise) for each other context that is busy.",
    helps="Do the work in the context whose kernels run, or move the data with a copy engine (pinned D2H and H2D).",
)
INLINE = Cause(
    context="other",
    victims=("h2d-pinned",),
    why="A small H2D copy travels in the command stream and is written by the graphics engine, so it waits for a "
    "time-slice as a kernel does; a pinned D2H by a copy engine does not (4 KiB each, seen on an H200).",
    helps="Copy in the context whose kernels run, or send much at once: 1 MiB goes by a copy engine.",
)
_LOADED = Cause(
    context="other",
    victims=ON_THE_ENGINE,
    why="Loading code makes the GPU work in the loader's context, and its graphics engine runs one context at a time "
    "(a D2D in another context waited 0.25 ms for each load on an H200).",
    helps="Load every module before the critical part (CUDA_MODULE_LOADING=EAGER).",
)
_NO_ROOM = Cause(
    context="same",
    why="The kernel holds every SM, so that nothing else in its context, not even a copy made by a kernel, finds room.",
    helps="Leave SMs free: fewer blocks in the long kernel, or a copy engine for the transfer.",
)


def launch_op(place: Place, label: str = "") -> Op:
    """One launch of the empty kernel on the place's stream."""
    kernel = Kernel("empty", place.context)
    return Op("cuLaunchKernel", (kernel, 1, 1, place.own(), KernelArgs()), label=label)


def _launch(place: Place, _size: int) -> Program:
    return Program(ops=then_wait(place.own(), launch_op(place)), context=place.context)


def _graph_launch(place: Place, _size: int) -> Program:
    stream = place.own()
    return Program(
        ops=then_wait(stream, Op("cuGraphLaunch", (Graph("graph", place.context), stream))), context=place.context
    )


def spin_op(place: Place, blocks: int, duration_ns: int, started: Word, label: str = "") -> Op:
    """One launch of the spin kernel for ``duration_ns``; it counts its start in ``started``."""
    args = KernelArgs(duration_ns, started)
    return Op("cuLaunchKernel", (Kernel("spin", place.context), blocks, THREADS, place.own(), args), label=label)


def _spin(place: Place, blocks: int) -> Program:
    started = Word("started", mapped=True)
    return Program(
        ops=(spin_op(place, blocks, SPIN_NS, started),),
        context=place.context,
        guard=Guard(started, 1),
        proof=started,
    )


def _graph_instantiate(place: Place, _size: int) -> Program:
    exec_ = Word("exec")
    graph = Graph("graph", place.context, nodes=16, instantiated=False)
    return Program(
        ops=(
            Op("cuGraphInstantiate", (exec_, graph, 0), label="cuGraphInstantiate"),
            Op("cuGraphExecDestroy", (Load(exec_),), label="cuGraphExecDestroy"),
        ),
        context=place.context,
    )


def _module_load(place: Place, _size: int) -> Program:
    module = Word("module")
    return Program(
        ops=(
            Op("cuModuleLoadData", (module, Image()), label="cuModuleLoadData"),
            Op("cuModuleUnload", (Load(module),), label="cuModuleUnload"),
        ),
        context=place.context,
    )


def _first_launch(place: Place, _size: int) -> Program:
    module, function, stream = Word("module"), Word("function"), place.own()
    return Program(
        ops=(
            Op("cuModuleLoadData", (module, Image()), label="cuModuleLoadData"),
            Op("cuModuleGetFunction", (function, Load(module), Text("first")), label="cuModuleGetFunction"),
            Op("cuLaunchKernel", (Load(function), 1, 1, stream, KernelArgs()), label="first launch"),
            Op("cuStreamSynchronize", (stream,), Phase.WAIT),
            Op("cuModuleUnload", (Load(module),), label="cuModuleUnload"),
        ),
        context=place.context,
    )


def _queue_full(place: Place, _size: int) -> Program:
    started = Word("started", mapped=True)
    return Program(
        ops=(
            spin_op(place, 1, 20 * MS, started, label="spin"),
            Op(
                "cuLaunchKernel",
                (Kernel("empty", place.context), 1, 1, place.own(), KernelArgs()),
                label="launches",
                repeat=QUEUE_DEPTH,
            ),
            Op("cuStreamSynchronize", (place.own(),), Phase.WAIT),
        ),
        context=place.context,
        proof=started,
    )


ENTRIES = (
    Entry(
        name="launch",
        title="launch",
        role=Role.VICTIM,
        program=_launch,
        period_ns=VICTIM_PERIOD_NS,
        what="cuLaunchKernel of an empty kernel, then a wait for it.",
        source="the report of pageable-d2h-vs-launch: launches of a small kernel in one thread while another copies",
    ),
    Entry(
        name="graph-launch",
        title="graph launch",
        role=Role.VICTIM,
        program=_graph_launch,
        period_ns=VICTIM_PERIOD_NS,
        what="cuGraphLaunch of four empty kernels in a row, then a wait for them.",
        source="the remedy people reach for when launches are slow",
    ),
    Entry(
        name="spin",
        title="spin kernel · 16 blocks",
        role=Role.AGGRESSOR,
        program=lambda place, _: _spin(place, FEW_BLOCKS),
        period_ns=2 * MS,
        what="Kernels of 50 ms, 16 blocks of 256 threads, queued back to back so that one always runs.",
        source="the report of secondary-context-d2d: a long kernel of 16 × 256 threads in the primary context",
        causes=(
            TIME_SLICE,
            INLINE,
        ),
    ),
    Entry(
        name="spin-full",
        title="spin kernel · whole GPU",
        role=Role.AGGRESSOR,
        program=lambda place, _: _spin(place, FILL_GPU),
        period_ns=2 * MS,
        what="Kernels of 50 ms that hold every SM, queued back to back.",
        source="the report of secondary-context-d2d, with a kernel that leaves no SM free",
        causes=(TIME_SLICE, INLINE, _NO_ROOM),
    ),
    Entry(
        name="graph-instantiate",
        title="graph instantiate",
        role=Role.AGGRESSOR,
        program=_graph_instantiate,
        what="cuGraphInstantiate of 16 kernels and cuGraphExecDestroy, again and again.",
        source="a graph that is built anew for each step",
        causes=(
            Cause(
                context="same",
                why="Building an executable graph takes the context's lock in the driver.",
                helps="Instantiate once and update the executable graph.",
            ),
        ),
    ),
    Entry(
        name="module-load",
        title="module load",
        role=Role.AGGRESSOR,
        program=_module_load,
        what="cuModuleLoadData and cuModuleUnload, again and again.",
        source="meta-pytorch/torchcomms #2334 and #2470: loading code holds up other threads",
        causes=(
            Cause(
                context="same",
                why="Loading a module takes the context's lock in the driver.",
                helps="Load every module before the critical part (CUDA_MODULE_LOADING=EAGER).",
            ),
            _LOADED,
        ),
    ),
    Entry(
        name="module-first-launch",
        title="module load + first launch",
        role=Role.AGGRESSOR,
        program=_first_launch,
        what="Load a module, launch its kernel for the first time, unload it, again and again.",
        source="meta-pytorch/torchcomms #2334: with lazy loading the first launch loads the code",
        causes=(
            Cause(
                context="same",
                why="With lazy loading the first launch of a kernel loads its code and holds the context's lock.",
                helps="Launch each kernel once before the critical part, or set CUDA_MODULE_LOADING=EAGER.",
            ),
            _LOADED,
        ),
    ),
    Entry(
        name="launch-queue-full",
        title="full launch queue",
        role=Role.AGGRESSOR,
        program=_queue_full,
        what="Behind a 20 ms kernel 1100 launches, more than a stream's queue takes: the launching thread blocks.",
        source="microsoft/mscclpp #394 and #516: a launch blocks when about 1024 are pending",
        causes=(
            Cause(
                context="same",
                stream="same",
                why="The stream's launch queue is full: a launch returns only when an earlier one is done.",
                helps="Keep fewer than 1000 launches pending, or launch graphs.",
            ),
            TIME_SLICE,
            INLINE,
        ),
    ),
)
