"""Report 4: a 4-byte read-back that seems to take milliseconds."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Variant
from stallprobes.patterns._build import probe, with_control

_BOOKED = (
    "A pageable copy returns only when its bytes are there, so it waits for the kernels before it, and a profile of "
    "the host books their GPU time on the copy call. The copy itself takes microseconds."
)

PATTERN = Pattern(
    name="scalar-readback",
    title="A 4-byte read-back seems to take milliseconds that are really GPU time",
    see="A 5 ms reduction, then 4 bytes back to the host. The host's clock says the copy call took 5 ms; event pairs "
    "on the GPU say that the copy took microseconds and the kernel 5 ms.",
    why=_BOOKED,
    helps="Keep the scalar on the GPU and let the next kernel read it there; read back into pinned memory and wait "
    "once, where the number is needed; leave the first calls out of a measurement.",
    reported="A CUDA.jl user with a Tesla V100-PCIE-32GB, driver 535.183.1, CUDA 11.8: 61 % of a profile in 200 "
    "cudaMemcpyAsync calls that came from norm and normalize!.",
    variants=(
        Variant(
            "first-call",
            Kind.CONTROL,
            "every call made for the first time",
            with_control(probe("scalar-first-call")),
            expect="Loading code and touching new memory cost far more than the same calls later on.",
            why="The first launch of a kernel loads its code, and the first copy from a page has to fault it in.",
            helps="Measure from the second iteration on.",
        ),
        Variant(
            "pageable",
            Kind.STALL,
            "reduction, then 4 bytes back to pageable memory",
            with_control(probe("scalar-readback")),
            expect="The copy call takes the 5 ms of the kernel before it.",
            why=_BOOKED,
            helps="Pinned memory, or no read-back in the loop.",
        ),
        Variant(
            "pinned",
            Kind.REMEDY,
            "reduction, then 4 bytes back to pinned memory",
            with_control(probe("scalar-readback-pinned")),
            expect="The copy call returns at once; the 5 ms stand where they belong, in the wait.",
            why="Into pinned memory the copy is only queued; the host is free until it asks for the number.",
            helps="Do other work between the copy and the wait.",
        ),
        Variant(
            "on-device",
            Kind.REMEDY,
            "the scalar stays on the GPU",
            with_control(probe("scalar-on-device")),
            expect="The host spends microseconds in each turn; the GPU works as long as before.",
            why="Without a read-back nothing in the loop waits for the GPU.",
            helps="This is the remedy: hand the scalar to the next kernel by its address.",
        ),
    ),
)
