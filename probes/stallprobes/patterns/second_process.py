"""A second process that computes on the same GPU delays launches and copies of the first one."""

from __future__ import annotations

from stallprobes.catalog import Placement
from stallprobes.model import MIB, SECONDARY, Kind, Pattern, Process, Symptom
from stallprobes.patterns._build import probe, variant

# Probes whose work runs on the graphics engine.
_ON_ENGINE = (probe("launch"), probe("d2d"))
# Probes whose work runs on a copy engine.
_BY_COPY_ENGINE = (probe("d2h-pinned", size=1 * MIB), probe("h2d-pinned", size=1 * MIB))


PATTERN = Pattern(
    name="second-process",
    title="A second process on the GPU delays the launches and copies of the first",
    see="A launch and a 1 MiB copy within the GPU, which take microseconds alone, take milliseconds while another "
    "process computes on the same GPU. The calls return quickly; the wait is on the GPU: 1.88 ms at p50 in place "
    "of 5.2 µs on an H200, as beside a second context of the same process. Transfers between host and GPU by a copy "
    "engine are not delayed.",
    why="Each process has contexts of its own, and the GPU's graphics engine runs one context at a time. While the "
    "other process keeps it busy, new work waits until that process's time-slice ends. Container platforms that share "
    "a GPU by time-slicing do the same. To the driver the two processes are like two contexts of one process, but "
    "they share no lock.",
    remedy="Do the work in one process, on a stream for each task: kernels of one context run at the same time. Or "
    "move data with a copy engine. Processes that must stay apart can run as clients of NVIDIA's Multi-Process "
    "Service (MPS): by its documentation, kernels and copies of several clients overlap on the GPU, which then has no "
    "scheduling resources to swap between them. stallscope does not start MPS, since its daemon serves all programs "
    "of a user.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="A user of Kubernetes on Bottlerocket (bottlerocket-os/bottlerocket #4673), who shares a GPU between "
    "containers by time-slicing, saw very high latency with it, and asks for MPS.",
    variants=(
        variant(
            "alone",
            Kind.CONTROL,
            "launches and copies of one process, nothing else runs",
            (*_ON_ENGINE, *_BY_COPY_ENGINE),
            expect="Launches and copies take microseconds.",
            why="No other context keeps the graphics engine busy.",
        ),
        variant(
            "other-process",
            Kind.STALL,
            "the kernel in a second process",
            (*_ON_ENGINE, probe("spin", Placement(process=Process.SECOND))),
            expect="Each launch and each D2D copy waits for a time-slice of the other process.",
        ),
        variant(
            "other-context",
            Kind.STALL,
            "for comparison: the kernel in a second context of the same process",
            (*_ON_ENGINE, probe("spin", Placement(SECONDARY))),
            expect="Each launch and each D2D copy waits as long as for another process.",
            why="Two contexts take the engine by time-slices, whether they are of one process or of two.",
            remedy="Use one context for all work of a process.",
        ),
        variant(
            "copy-engine",
            Kind.REMEDY,
            "kernel in a second process, pinned copies in the first",
            (*_BY_COPY_ENGINE, probe("spin", Placement(process=Process.SECOND))),
            expect="Pinned D2H and H2D copies are not delayed.",
            why="Copy engines make pinned transfers, and do not wait for the graphics engine's time-slice.",
            remedy="This is a remedy for data that the process can move through pinned memory.",
        ),
        variant(
            "one-process",
            Kind.REMEDY,
            "the kernel in the same process, on a stream of its own",
            (*_ON_ENGINE, *_BY_COPY_ENGINE, probe("spin", Placement())),
            expect="Launches and copies are as fast as without the kernel.",
            why="Work of one context shares its time-slice: it runs on the SMs that the kernel leaves free.",
            remedy="This is the remedy: one process with a stream for each task.",
        ),
    ),
)
