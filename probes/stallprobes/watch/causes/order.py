"""All causes, and the order in which their rules hold: the first that does is the cause of a call."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import CAUSE_RANKS, WaitCause
from stallprobes.watch.causes import gpu, host, other_threads, overheads, unrecorded
from stallprobes.watch.causes.cause import CallCause, Rule

# All causes of slow calls, the cause with the strongest evidence first.
CAUSES: tuple[CallCause, ...] = tuple(
    sorted(
        (*overheads.CAUSES, *gpu.CAUSES, *other_threads.CAUSES, *host.CAUSES, *unrecorded.CAUSES),
        key=lambda cause: CAUSE_RANKS[cause.name],
    )
)

# Rules by the overhead records of a call. Unlike all other rules, these rules also apply to calls that are no longer
# than the median of similar calls.
OVERHEADS: tuple[Rule, ...] = tuple(overheads.overhead(cause.name) for cause in overheads.CAUSES)
# Rules by records of GPU work and by calls that order streams (records of events, waits for events, …). The rules apply
# to slow calls that OVERHEADS leaves without a cause.
RECORDED: tuple[Rule, ...] = (
    # Records of the call itself.
    *map(gpu.gpu_wait, (
        WaitCause.GPU_WORK, WaitCause.STAGED_COPY, WaitCause.OWN_WORK, WaitCause.OTHER_CONTEXT, WaitCause.OTHER_PROCESS,
    )),
    # What the calls say of the order of streams.
    gpu.FOLLOWED, gpu.MANY_IN_FRONT,
)  # fmt: skip
# Rules for calls that RECORDED leaves without a cause, if all GPU work during the call was recorded. The first rule
# that holds gives the cause.
BESIDE: tuple[Rule, ...] = (
    # What happened at the same time, the strongest evidence first.
    gpu.EVENT_OF_NEIGHBOUR, *map(other_threads.other_thread, other_threads.CAUSES), gpu.NEIGHBOUR,
    host.NO_CPU, gpu.HELD_STREAM,
    # What the call does.
    overheads.FIRST_LAUNCH, gpu.DESTRUCTION, host.LOADS, host.ITSELF,
)  # fmt: skip
# Rules for calls during which GPU work was not recorded. These rules are applied last, since the rules use the causes
# of the other calls.
UNRECORDED: tuple[Rule, ...] = (host.NO_CPU, unrecorded.ALIKE, unrecorded.RECORDS_OFF)
# Causes by their names.
_BY_NAME = {cause.name: cause for cause in CAUSES}


def cause_of(name: WaitCause) -> CallCause:
    """The cause with a name."""
    return _BY_NAME[name]
