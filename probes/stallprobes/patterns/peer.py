"""Report 2: a peer copy queued behind a kernel stalls later peer copies on other streams."""

from __future__ import annotations

from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, variant

PATTERN = Pattern(
    name="peer-copy-behind-kernel",
    title="A peer copy queued behind a kernel stalls other peer copies",
    see="Stream A has a long kernel and, behind it, a copy to another GPU. A copy of other buffers on stream B, which "
    "depends on nothing, completes only when the kernel on A ends.",
    why="Without peer access the driver stages the copy in host memory. The staging buffers belong to the pair of GPUs "
    "and are used in order. The copy behind the kernel already has its place in that order, so later copies wait for "
    "the kernel too.",
    remedy="Enable peer access where the machine supports it. Otherwise submit peer copies only to streams with no "
    "pending work, or relay them through pinned memory: D2H on the source's stream, H2D on a stream of the "
    "destination GPU, in chunks tied by events. A relay with both halves on one stream stalls like the staged copy.",
    symptom=Symptom.WAITING_COPIES,
    reported="A user with four RTX 3090, Linux 5.15 and CUDA 12.2. Enabling peer access locked up the kernel, so that "
    "every copy is staged.",
    variants=(
        variant(
            "staged",
            Kind.STALL,
            "peer access off: copy behind a kernel on A, copy on B",
            (probe("peer-copy"), probe("peer-copy-behind-kernel")),
            expect="The copy on B takes as long as the kernel on A, about 96 ms.",
        ),
        variant(
            "direct",
            Kind.REMEDY,
            "the same with peer access on",
            (probe("peer-copy-direct"), probe("peer-copy-direct-behind-kernel")),
            expect="The copy on B completes in a fraction of a millisecond.",
            why="With peer access the copy uses NVLink or PCIe without staging, and shares no order.",
            remedy="This is the remedy where cuDeviceCanAccessPeer returns 1 and peer access works.",
        ),
        variant(
            "idle-stream",
            Kind.REMEDY,
            "peer access off: only a kernel on A, copy on B",
            (probe("peer-copy"), probe("long-kernel")),
            expect="The kernel alone does not delay the copy on B.",
            why="A kernel without a copy behind it has no place in the order of staged copies.",
            remedy="This is a remedy: wait for the kernel, then submit the copy to the idle stream.",
        ),
        variant(
            "host-relay-naive",
            Kind.STALL,
            "D2H and H2D by hand, both on the source's stream",
            (probe("host-relay-naive"), probe("host-relay-naive-behind-kernel")),
            expect="It stalls like the staged copy.",
            why="The H2D to the other GPU is queued behind the kernel on A and keeps its place in the destination's "
            "order.",
            remedy="Submit the H2D half to a stream of the destination GPU.",
        ),
        variant(
            "host-relay",
            Kind.REMEDY,
            "D2H on the source's stream, H2D on the destination's, tied by events",
            (probe("host-relay"), probe("host-relay-behind-kernel")),
            expect="The copy on B completes in about 0.1 ms.",
            why="A stream of the destination GPU that waits for an event delays no other stream's transfers.",
            remedy="This is the remedy without peer access.",
        ),
    ),
)
