"""All causes, and the order in which their rules hold: the first that does is the cause of a call."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import CAUSE_RANKS, WaitCause
from stallprobes.watch.causes import gpu, host, other_threads, overheads, unrecorded
from stallprobes.watch.causes.cause import CallCause, Rule

CAUSES: tuple[CallCause, ...] = tuple(
    sorted(
        (*overheads.CAUSES, *gpu.CAUSES, *other_threads.CAUSES, *host.CAUSES, *unrecorded.CAUSES),
        key=lambda cause: CAUSE_RANKS[cause.name],
    )
)

# Rules for calls without an excess too.
OVERHEADS: tuple[Rule, ...] = tuple(overheads.Overhead(cause.name) for cause in overheads.CAUSES)
RECORDED: tuple[Rule, ...] = (
    # Records of the call itself.
    gpu.GpuWait(WaitCause.GPU_WORK), gpu.GpuWait(WaitCause.STAGED_COPY), gpu.GpuWait(WaitCause.OWN_WORK),
    gpu.GpuWait(WaitCause.OTHER_CONTEXT), gpu.GpuWait(WaitCause.OTHER_PROCESS),
    # What the calls say of the order of streams.
    gpu.Followed(), gpu.ManyInFront(),
)  # fmt: skip
# Rules for calls that were made while work was recorded: no record is evidence that the GPU did nothing.
BESIDE: tuple[Rule, ...] = (
    # What happened at the same time, the strongest evidence first.
    gpu.Neighbour(by_event=True), *(other_threads.OtherThread(cause) for cause in other_threads.CAUSES),
    gpu.Neighbour(by_event=False), host.NoCpu(), gpu.HeldStream(),
    # What the call does.
    overheads.FirstLaunch(), gpu.Destruction(), host.Loads(), host.Itself(),
)  # fmt: skip
# Rules for the other calls, once the causes of the recorded ones are known.
UNRECORDED: tuple[Rule, ...] = (host.NoCpu(), unrecorded.Alike(), unrecorded.RecordsOff())
_BY_NAME = {cause.name: cause for cause in CAUSES}


def cause_of(name: WaitCause) -> CallCause:
    """The cause with a name."""
    return _BY_NAME[name]
