"""Report 3: a pageable copy in one thread delays launches in another."""

from __future__ import annotations

from stallprobes.catalog import Placement, on_null_stream, on_shared_stream
from stallprobes.model import Kind, Pattern, Symptom, Variant
from stallprobes.patterns._build import probe, variant

# Placement of both probes (copies and launches), and its description, by the last part of the variant's name.
_PLACEMENTS = {
    "other-stream": (Placement(), "launches on another non-blocking stream"),
    "same-stream": (on_shared_stream(), "launches on the same stream"),
    "null-stream": (on_null_stream(), "both threads on the NULL stream, as in PyTorch"),
}
# Catalogue entry of the copy, and a description of its memory, by the first part of the variant's name.
_COPIES = {
    "pinned": ("d2h-pinned-large", "copies into pinned memory"),
    "warm": ("d2h-pageable-warm", "copies into a reused pageable buffer"),
    "fresh": ("d2h-pageable-fresh", "copies into newly mapped pageable memory"),
}
# Expected result of pinned copies on the stream of the launches.
_IN_ORDER = "The launch calls stay fast. The kernels wait in the stream behind the copies, which is its order."
# Expected result of copies into a reused pageable buffer on the stream of the launches.
_STARVES = "The launching thread starves: almost none of its calls return."
# Expected result of copies into newly mapped pageable memory on the stream of the launches.
_WHOLE_COPY = "A launch call takes as long as a whole copy: over 100 ms at p99."
# Kind and expected result of each variant, by its keys in _COPIES and _PLACEMENTS.
_EXPECTED = {
    ("pinned", "other-stream"): (Kind.REMEDY, "The launches stay at their baseline."),
    ("pinned", "same-stream"): (Kind.REMEDY, _IN_ORDER),
    ("pinned", "null-stream"): (Kind.REMEDY, _IN_ORDER),
    ("warm", "other-stream"): (Kind.CONTROL, "The launches take a few times as long, but still microseconds."),
    ("warm", "same-stream"): (Kind.STALL, _STARVES),
    ("warm", "null-stream"): (Kind.STALL, _STARVES),
    ("fresh", "other-stream"): (Kind.CONTROL, "The launches change little."),
    ("fresh", "same-stream"): (Kind.STALL, _WHOLE_COPY),
    ("fresh", "null-stream"): (Kind.STALL, _WHOLE_COPY),
}


def _variant(copy: str, stream: str) -> Variant:
    (entry, copies), (placement, streams), (kind, expect) = _COPIES[copy], _PLACEMENTS[stream], _EXPECTED[copy, stream]
    remedy = kind is Kind.REMEDY
    return variant(
        f"{copy}-{stream}",
        kind,
        f"{copies}; {streams}",
        (probe("launch", placement), probe(entry, placement)),
        expect=expect,
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
    variants=tuple(_variant(*each) for each in _EXPECTED),
)
