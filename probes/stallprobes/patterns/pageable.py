"""Report 3: a pageable copy in one thread delays launches in another."""

from __future__ import annotations

from stallprobes.catalog import Placement, on_null_stream, on_shared_stream
from stallprobes.model import Kind, Pattern, Symptom, Variant
from stallprobes.patterns._build import probe, variant

_PLACEMENTS: dict[str, tuple[Placement, Placement, str]] = {
    "other-stream": (Placement(), Placement(), "launches on another non-blocking stream"),
    "same-stream": (on_shared_stream(), on_shared_stream(), "launches on the same stream"),
    "null-stream": (on_null_stream(), on_null_stream(), "both threads on the NULL stream, as in PyTorch"),
}
_COPIES = {
    "pinned": ("d2h-pinned-large", "copies into pinned memory"),
    "warm": ("d2h-pageable-warm", "copies into a reused pageable buffer"),
    "fresh": ("d2h-pageable-fresh", "copies into newly mapped pageable memory"),
}


def _expect(copy: str, stream: str) -> str:
    match copy, stream:
        case "pinned", "other-stream":
            return "The launches stay at their baseline."
        case "pinned", _:
            return "The launch calls stay fast. The kernels wait in the stream behind the copies, which is its order."
        case "warm", "other-stream":
            return "The launches take a few times as long, but still microseconds."
        case "fresh", "other-stream":
            return "The launches change little."
        case "warm", _:
            return "The launching thread starves: almost none of its calls return."
        case _:
            return "A launch call takes as long as a whole copy: over 100 ms at p99."


def _kind(copy: str, stream: str) -> Kind:
    if copy == "pinned":
        return Kind.REMEDY
    return Kind.CONTROL if stream == "other-stream" else Kind.STALL


def _variant(copy: str, stream: str) -> Variant:
    entry, copies = _COPIES[copy]
    victim, aggressor, streams = _PLACEMENTS[stream]
    remedy = copy == "pinned"
    return variant(
        f"{copy}-{stream}",
        _kind(copy, stream),
        f"{copies}; {streams}",
        (probe("launch", victim), probe(entry, aggressor)),
        expect=_expect(copy, stream),
        why="The copy engine writes pinned memory directly: the call only queues the copy and then holds no lock."
        if remedy
        else "",
        remedy="This is the remedy: pinned memory." if remedy else "",
    )


PATTERN = Pattern(
    name="pageable-d2h-vs-launch",
    title="A pageable copy in one thread delays launches in another",
    see="One thread copies 256 MiB to the host in a loop, another launches a small kernel. With pageable memory and "
    "one stream for both, the launch call blocks for a whole copy, or starves. With pinned memory it does not block.",
    why="The driver stages a pageable copy through its own pinned buffer on the calling thread. It holds the stream's "
    "lock, and at times the context's, until the copy is complete. A launch that needs the lock waits. The lock is not "
    "fair, so a thread that copies without a pause can keep other threads out.",
    remedy="Use pinned memory for the copies, and a non-blocking stream for each thread instead of the default stream.",
    symptom=Symptom.SLOW_LAUNCHES,
    reported="A PyTorch user with two threads, one copying a 256 MB tensor to new CPU memory, one computing on 1024 "
    "elements: in Nsight Systems the second thread is in cudaLaunchKernel while the first one copies.",
    variants=tuple(_variant(copy, stream) for copy in _COPIES for stream in _PLACEMENTS),
)
