"""Work of the GPU in front of a call: of its stream or context, or of another stream that ends with the call."""

from __future__ import annotations

from dataclasses import dataclass

from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, Cause, text
from stallprobes.watch.causes.facts import Facts, Flags, flags
from stallprobes.watch.causes.gpu_wait import GpuWait
from stallprobes.watch.division.call_kinds import Waits

CAUSE = Cause(
    WaitCause.GPU_WORK,
    "GPU work",
    "GPU work in front of it",
    text(
        "Wait later: submit the next work first, free with cuMemFreeAsync, and keep a value that only the next kernel "
        "needs on the GPU. Nothing but less work makes the wait itself shorter."
    ),
    pattern="scalar-readback",
)


@dataclass(frozen=True)
class Neighbour:
    """Work of a stream ends with the call and covers most of it.

    A call that waits for an event waited for it if there is only one such stream (``by_event``).
    """

    by_event: bool

    def mask(self, facts: Facts, asked: Flags) -> Flags:
        near = facts.near(asked)
        if not self.by_event:
            return near.count > 0
        return flags((facts.calls.waits == Waits.EVENT) & (near.count == 1))

    def answer(self, facts: Facts, at: int) -> Answer:
        near = facts.near(facts.nothing)
        certainty = Certainty.PROVEN if self.by_event else Certainty.BESIDE
        return Answer(CAUSE.name, certainty, int(near.covered[at]), facts.evidence.neighbour(at, near))


IN_FRONT = GpuWait(CAUSE.name)
EVENT, BESIDE = Neighbour(by_event=True), Neighbour(by_event=False)
