"""Report 2: a peer copy queued behind a kernel stalls later peer copies on other streams."""

from __future__ import annotations

from stallprobes.model import Kind, Needs, Pattern, Probe, Variant
from stallprobes.patterns._build import probe, with_control

_STAGED = (
    "Without peer access the driver carries the copy through host memory with staging buffers that belong to the pair "
    "of GPUs and are used in order. The copy behind the kernel is already in that order, so later ones wait for the "
    "kernel too."
)


def _pair(victim: str, aggressor: str) -> tuple[Probe, ...]:
    return with_control(probe(victim), probe(aggressor))


PATTERN = Pattern(
    name="peer-copy-behind-kernel",
    title="A peer copy queued behind a kernel stalls other peer copies",
    see="On stream A a long kernel and a copy to another GPU behind it; a copy of other buffers on stream B, which has "
    "nothing to wait for, is done only when A's kernel is.",
    why=_STAGED,
    helps="Peer access where the machine has it; else submit peer copies only to streams with nothing pending, or "
    "relay through pinned memory: D2H on the source's stream, H2D on a stream of the destination GPU, in chunks tied "
    "by events. Both halves on one stream stall as before.",
    reported="A user with four RTX 3090, Linux 5.15, CUDA 12.2, where enabling peer access locked up the kernel, so "
    "that every copy is staged.",
    variants=(
        Variant(
            "staged",
            Kind.STALL,
            "peer access off: copy behind a kernel on A, copy on B",
            _pair("peer-copy", "peer-copy-behind-kernel"),
            expect="B's copy takes as long as A's kernel, about 96 ms.",
            why=_STAGED,
            helps="Peer access, streams with nothing pending, or a relay on two streams.",
            needs=Needs(gpus=2, peer_access=False),
        ),
        Variant(
            "direct",
            Kind.REMEDY,
            "the same with peer access on",
            _pair("peer-copy-direct", "peer-copy-direct-behind-kernel"),
            expect="B's copy is done in a fraction of a millisecond.",
            why="With peer access the copy goes over NVLink or PCIe without staging, and no order is shared.",
            helps="This is the remedy where cuDeviceCanAccessPeer says yes and it works.",
            needs=Needs(gpus=2, peer_access=True),
        ),
        Variant(
            "idle-stream",
            Kind.REMEDY,
            "peer access off: only a kernel on A, copy on B",
            _pair("peer-copy", "long-kernel"),
            expect="B's copy is not held up by the kernel alone.",
            why="A kernel by itself takes no place in the order of staged copies.",
            helps="Wait for the kernel before submitting the copy behind it.",
            needs=Needs(gpus=2, peer_access=False),
        ),
        Variant(
            "host-relay-naive",
            Kind.STALL,
            "D2H and H2D by hand, both on the source's stream",
            _pair("host-relay-naive", "host-relay-naive-behind-kernel"),
            expect="It stalls as the staged copy does.",
            why="The H2D to the other GPU is queued behind A's kernel and keeps its place in the destination's order.",
            helps="Put the H2D half on a stream of the destination GPU.",
            needs=Needs(gpus=2),
        ),
        Variant(
            "host-relay",
            Kind.REMEDY,
            "D2H on the source's stream, H2D on the destination's, tied by events",
            _pair("host-relay", "host-relay-behind-kernel"),
            expect="B's copy is done in about 0.1 ms.",
            why="An event wait on a stream of the destination takes no place in anybody else's order.",
            helps="This is the remedy without peer access.",
            needs=Needs(gpus=2),
        ),
    ),
)
