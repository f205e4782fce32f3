"""Report 5: a pageable copy on the default stream waits for an event and blocks launches on every stream."""

from __future__ import annotations

from stallprobes.catalog import Placement
from stallprobes.catalog.streams import gated_copy_placement
from stallprobes.model import Kind, Pattern, Symptom
from stallprobes.patterns._build import probe, variant

# Probe that launches a kernel and then opens the gate. The gate is a memory word for which a host function waits. In a
# deadlock, the launch does not return, and the gate stays closed.
_LAUNCH = probe("launch-then-open", Placement())

PATTERN = Pattern(
    name="default-stream-gate",
    title="A pageable copy on the default stream blocks unrelated launches: a deadlock",
    see="Stream G runs a host function that waits, and the default stream waits for an event on G. Thread 1 copies 4 "
    "bytes D2H on the default stream. Thread 2 launches on an unrelated stream and then opens the gate. With pageable "
    "memory both threads hang until the watchdog opens the gate.",
    why="The pageable copy waits inside its call for an event on another stream and holds a lock of the context "
    "meanwhile. A launch on any stream of the context needs that lock. Here the event occurs only after the launch, so "
    "neither call can proceed.",
    remedy="Use pinned memory for the copy, or copy on a non-blocking stream of its own.",
    symptom=Symptom.HANG,
    reported="A PyTorch user with NCCL: an asynchronous all_reduce, its wait() on the default stream, and a tensor "
    "printed on that stream, while another thread launches the kernel that the all_reduce needs to complete.",
    variants=(
        variant(
            "pageable",
            Kind.STALL,
            "pageable copy on the default stream",
            (_LAUNCH, probe("gated-copy", gated_copy_placement(own_stream=False))),
            expect="Launch and copy hang until the watchdog opens the gate.",
        ),
        variant(
            "pinned",
            Kind.REMEDY,
            "pinned copy on the default stream",
            (_LAUNCH, probe("gated-copy-pinned", gated_copy_placement(own_stream=False))),
            expect="Both calls return at once.",
            why="A copy into pinned memory is only queued, so no thread waits inside a call.",
            remedy="This is the first remedy.",
        ),
        variant(
            "own-stream",
            Kind.REMEDY,
            "pageable copy on a stream of its own",
            (_LAUNCH, probe("gated-copy", gated_copy_placement(own_stream=True))),
            expect="The copy waits for the gate; the launch does not.",
            why="On a non-blocking stream of its own the copy waits without holding a lock that the launch needs.",
            remedy="This is the second remedy.",
        ),
    ),
)
