"""Report 4: a 4-byte read-back that appears to take milliseconds."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, ReportedLatency, Symptom
from stallprobes.patterns._build import probe, variant

PATTERN = Pattern(
    name="scalar-readback",
    title="A 4-byte read-back seems to take milliseconds that are really GPU time",
    see="A 5 ms reduction kernel, then a copy of 4 bytes to the host. By the host's clock the copy call takes 5 ms. By "
    "event pairs on the GPU the copy takes microseconds and the kernel 5 ms.",
    why="A pageable copy returns only when the copy is complete, so its call waits for the kernels before it. A "
    "profile of the host attributes their GPU time to the copy call. The copy itself takes microseconds.",
    remedy="Keep the scalar on the GPU and let the next kernel read it there. Or copy it into pinned memory and wait "
    "once, where the value is needed. Exclude first calls from a measurement.",
    reported="A CUDA.jl user with a Tesla V100-PCIE-32GB, driver 535.183.1, CUDA 11.8: 61 % of a profile in 200 "
    "cudaMemcpyAsync calls that norm and normalize! made.",
    symptom=Symptom.WAITING_COPIES,
    latency=ReportedLatency(
        gpu="Tesla V100-PCIE-32GB",
        # cudaMemcpyAsync of one scalar: on the GPU, and inside the call.
        baseline_ns=1_900,
        stalled_ns=4_950_000,
    ),
    variants=(
        variant(
            "first-call",
            Kind.CONTROL,
            "every call made for the first time",
            (probe("scalar-first-call"),),
            expect="The first calls, which load code and touch new memory, cost far more than later ones.",
            why="The first launch of a kernel loads its code, and the first copy to a page takes a page fault.",
            remedy="Measure from the second iteration.",
        ),
        variant(
            "pageable",
            Kind.STALL,
            "reduction, then 4 bytes back to pageable memory",
            (probe("scalar-readback"),),
            expect="The copy call takes the 5 ms of the kernel before it.",
        ),
        variant(
            "pinned",
            Kind.REMEDY,
            "reduction, then 4 bytes back to pinned memory",
            (probe("scalar-readback-pinned"),),
            expect="The copy call returns at once. The 5 ms appear in the wait.",
            why="A copy into pinned memory is only queued. The host is free until it needs the value.",
            remedy="Do other work between the copy and the wait.",
        ),
        variant(
            "on-device",
            Kind.REMEDY,
            "the scalar stays on the GPU",
            (probe("scalar-on-device"),),
            expect="The host spends microseconds in each iteration. The GPU time is the same.",
            why="Without a read-back no call in the loop waits for the GPU.",
            remedy="This is the remedy: pass the scalar's device address to the next kernel.",
        ),
    ),
)
