"""Report 5: a pageable copy on the default stream, waiting for an event, blocks launches everywhere."""

from __future__ import annotations

from stallprobes.catalog import Place
from stallprobes.catalog.streams import gated_copy_place
from stallprobes.model import Kind, Pattern, Variant
from stallprobes.patterns._build import probe, with_control

_WHY = (
    "The pageable copy waits inside its call for an event on another stream, and holds a lock of the context while it "
    "waits. A launch on any stream of the context needs that lock. Here the event comes only after the launch, so "
    "neither goes on."
)

_LAUNCH = probe("launch-then-open", Place())

PATTERN = Pattern(
    name="default-stream-gate",
    title="A pageable copy on the default stream blocks unrelated launches: a deadlock",
    see="Stream G waits in a host function, the default stream waits for an event on G, thread 1 copies 4 bytes D2H on "
    "the default stream, thread 2 launches on an unrelated stream and then opens the gate. With pageable memory both "
    "hang until the watchdog opens the gate.",
    why=_WHY,
    helps="Pinned memory for the copy, or a non-blocking stream of its own for it.",
    reported="A PyTorch user with NCCL: an asynchronous all_reduce, its wait() on the default stream, and a tensor "
    "printed there, while another thread launches the kernel that would let the all_reduce end.",
    variants=(
        Variant(
            "pageable",
            Kind.STALL,
            "pageable copy on the default stream",
            with_control(_LAUNCH, probe("gated-copy", gated_copy_place(own_stream=False))),
            expect="Launch and copy hang until the watchdog opens the gate.",
            why=_WHY,
            helps="Pinned memory, or a stream of its own.",
        ),
        Variant(
            "pinned",
            Kind.REMEDY,
            "pinned copy on the default stream",
            with_control(_LAUNCH, probe("gated-copy-pinned", gated_copy_place(own_stream=False))),
            expect="Both calls return at once.",
            why="Into pinned memory the copy is only queued: nobody waits inside a call.",
            helps="This is the first remedy.",
        ),
        Variant(
            "own-stream",
            Kind.REMEDY,
            "pageable copy on a stream of its own",
            with_control(_LAUNCH, probe("gated-copy", gated_copy_place(own_stream=True))),
            expect="The copy waits for the gate, the launch does not.",
            why="On a non-blocking stream of its own the copy waits without a lock that the launch needs.",
            helps="This is the second remedy.",
        ),
    ),
)
