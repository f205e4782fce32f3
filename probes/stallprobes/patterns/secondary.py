"""Report 1: a device-to-device copy in a secondary context starts milliseconds late."""

from __future__ import annotations

from stallprobes.catalog import Place
from stallprobes.model import GREEN, MIB, PRIMARY, SECONDARY, THIRD, Context, Kind, Needs, Pattern, Probe, Variant
from stallprobes.patterns._build import probe, with_control

_SLICE = (
    "The GPU's graphics engine, which runs kernels and also device-to-device copies, serves one context at a time. "
    "While another context keeps it busy, a newcomer waits until that context's time-slice is over: 2048 µs by "
    "default, and a little for the switch."
)


def _d2d(context: Context) -> Probe:
    return probe("d2d", Place(context))


def _spin(context: Context) -> Probe:
    return probe("spin", Place(context), name=f"spin-{context.name}")


PATTERN = Pattern(
    name="secondary-context-d2d",
    title="A D2D copy in a second context starts milliseconds late",
    see="A 1 MiB copy that takes 6 µs alone takes about 2 ms while a kernel runs in another context of the same "
    "process. Its API call returns quickly; the time passes before the GPU starts it.",
    why=_SLICE,
    helps="Copy in the context whose kernels run, or let a copy engine move the data (pinned D2H, then H2D): neither "
    "waits for the slice. A green context shares the primary's slice. Stream priority and PREFER_OVERLAP do not help.",
    reported="A user with a Tesla V100-PCIE-32GB, driver 580.159.03, CUDA 12.6, who saw it in Nsight Systems: 1.5 µs "
    "from the API's return to the GPU's start in the primary context, 2.26 ms in a secondary one.",
    variants=(
        Variant(
            "secondary-alone",
            Kind.CONTROL,
            "copy in the secondary context, nothing else runs",
            with_control(_d2d(SECONDARY)),
            expect="The copy is as quick as in the primary context.",
            why="A second context costs a copy nothing as long as no other context keeps the GPU busy.",
        ),
        Variant(
            "kernel-same-context",
            Kind.REMEDY,
            "kernel and copy both in the primary context",
            with_control(_d2d(PRIMARY), _spin(PRIMARY)),
            expect="The copy stays as quick as without the kernel.",
            why="Work of one context shares its time-slice: the copy runs on the SMs that the kernel leaves free.",
            helps="This is the remedy: one context for kernels and copies.",
        ),
        Variant(
            "kernel-other-context",
            Kind.STALL,
            "kernel in the primary context, copy in the secondary",
            with_control(_d2d(SECONDARY), _spin(PRIMARY)),
            expect="Each copy waits for a time-slice to end: about 2 ms, where alone it takes microseconds.",
            why=_SLICE,
            helps="Copy in the primary context, or through a copy engine.",
        ),
        Variant(
            "third-context",
            Kind.STALL,
            "kernels in two contexts, copy in a third",
            with_control(_d2d(THIRD), _spin(PRIMARY), _spin(SECONDARY)),
            expect="Each copy waits for two time-slices to end, about 4 ms.",
            why="The wait is one time-slice for each other context that is busy.",
            helps="Fewer contexts that compute at the same time.",
        ),
        Variant(
            "copy-engine",
            Kind.REMEDY,
            "kernel in the primary context, pinned copies in the secondary",
            with_control(
                probe("d2h-pinned", Place(SECONDARY), size=1 * MIB),
                probe("h2d-pinned", Place(SECONDARY), size=1 * MIB),
                probe("d2d-by-host", Place(SECONDARY)),
                _spin(PRIMARY),
            ),
            expect="Pinned D2H and H2D are not delayed, nor is the D2D move made of the two.",
            why="Pinned transfers are done by copy engines, which do not wait for the graphics engine's time-slice.",
            helps="This is the remedy where the second context must stay: move data by way of pinned memory.",
        ),
        Variant(
            "prefer-overlap",
            Kind.STALL,
            "as the stall, but a batch copy with PREFER_OVERLAP_WITH_COMPUTE",
            with_control(probe("d2d-batch", Place(SECONDARY)), _spin(PRIMARY)),
            expect="The copy waits just as long: on an H200 the flag changed nothing.",
            why="The flag lets the driver pick another way to copy; where it keeps to a kernel, the slice still rules.",
            helps="Copy in the primary context, or through a copy engine.",
            needs=Needs(batch_copies=True),
        ),
        Variant(
            "green-context",
            Kind.REMEDY,
            "kernel in the primary context, copy in a green context",
            with_control(_d2d(GREEN), _spin(PRIMARY)),
            expect="The copy is not delayed, as long as the kernel leaves SMs free.",
            why="A green context is a share of the primary context's SMs and lives in the same time-slice.",
            helps="A green context in place of a secondary one.",
            needs=Needs(green_contexts=True),
        ),
    ),
)
