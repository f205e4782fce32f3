"""Report 1: a device-to-device copy in a secondary context starts milliseconds late."""

from __future__ import annotations

from stallprobes.catalog import Placement
from stallprobes.model import (
    GREEN,
    MIB,
    PRIMARY,
    SECONDARY,
    THIRD,
    Context,
    Kind,
    Pattern,
    Probe,
    ReportedLatency,
    Symptom,
)
from stallprobes.patterns._build import probe, variant


def _d2d(context: Context) -> Probe:
    return probe("d2d", Placement(context))


def _spin(context: Context) -> Probe:
    return probe("spin", Placement(context))


PATTERN = Pattern(
    name="secondary-context-d2d",
    title="A D2D copy in a second context starts milliseconds late",
    see="A 1 MiB copy that takes 6 µs alone takes about 2 ms while a kernel runs in another context of the same "
    "process. Its API call returns quickly; the delay is between that return and the start on the GPU.",
    why="The GPU's graphics engine runs kernels and device-to-device copies, for one context at a time. While another "
    "context keeps it busy, new work waits until that context's time-slice ends: 2048 µs by default, plus the context "
    "switch.",
    remedy="Copy in the context whose kernels run, or move the data with a copy engine (pinned D2H, then H2D): neither "
    "waits for the time-slice. A green context shares the primary context's time-slice. Stream priority and "
    "PREFER_OVERLAP_WITH_COMPUTE do not help.",
    reported="A user with a Tesla V100-PCIE-32GB, driver 580.159.03, CUDA 12.6. In Nsight Systems the copy started "
    "1.5 µs after the API call returned in the primary context, and 2.26 ms after it in a secondary one.",
    symptom=Symptom.WAITING_COPIES,
    latency=ReportedLatency(
        gpu="Tesla V100-PCIE-32GB",
        # From the call's return to the start on the GPU; with the remedy 1.5 µs.
        baseline_ns=1_600,
        stalled_ns=2_260_000,
    ),
    variants=(
        variant(
            "secondary-alone",
            Kind.CONTROL,
            "copy in the secondary context, nothing else runs",
            (_d2d(SECONDARY),),
            expect="The copy is as fast as in the primary context.",
            why="A second context does not delay a copy while no other context keeps the GPU busy.",
        ),
        variant(
            "kernel-same-context",
            Kind.REMEDY,
            "kernel and copy both in the primary context",
            (_d2d(PRIMARY), _spin(PRIMARY)),
            expect="The copy is as fast as without the kernel.",
            why="Work of one context shares its time-slice: the copy runs on the SMs that the kernel leaves free.",
            remedy="This is the remedy: one context for kernels and copies.",
        ),
        variant(
            "kernel-other-context",
            Kind.STALL,
            "kernel in the primary context, copy in the secondary",
            (_d2d(SECONDARY), _spin(PRIMARY)),
            expect="Each copy waits for a time-slice to end: about 2 ms, compared with microseconds alone.",
        ),
        variant(
            "third-context",
            Kind.STALL,
            "kernels in two contexts, copy in a third",
            (_d2d(THIRD), _spin(PRIMARY), _spin(SECONDARY)),
            expect="Each copy waits for two time-slices to end, about 4 ms.",
            why="The wait is one time-slice for each other busy context.",
            remedy="Let fewer contexts compute at the same time.",
        ),
        variant(
            "copy-engine",
            Kind.REMEDY,
            "kernel in the primary context, pinned copies in the secondary",
            (
                probe("d2h-pinned", Placement(SECONDARY), size=1 * MIB),
                probe("h2d-pinned", Placement(SECONDARY), size=1 * MIB),
                probe("d2d-by-host", Placement(SECONDARY)),
                _spin(PRIMARY),
            ),
            expect="Pinned D2H and H2D are not delayed, nor is the D2D move made of both.",
            why="Copy engines make pinned transfers, and do not wait for the graphics engine's time-slice.",
            remedy="This is the remedy if the second context must stay: move data through pinned memory.",
        ),
        variant(
            "prefer-overlap",
            Kind.STALL,
            "as the stall, but a batch copy with PREFER_OVERLAP_WITH_COMPUTE",
            (probe("d2d-batch", Placement(SECONDARY)), _spin(PRIMARY)),
            expect="The copy waits as long: on an H200 the flag changed nothing.",
            why="The flag lets the driver choose another way to copy. If it still uses a kernel, the time-slice "
            "applies.",
        ),
        variant(
            "green-context",
            Kind.REMEDY,
            "kernel in the primary context, copy in a green context",
            (_d2d(GREEN), _spin(PRIMARY)),
            expect="The copy is not delayed as long as the kernel leaves SMs free.",
            why="A green context has a share of the primary context's SMs and runs in the same time-slice.",
            remedy="Use a green context instead of a secondary one.",
        ),
    ),
)
