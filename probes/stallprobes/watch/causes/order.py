"""All causes, and the order in which their rules hold: the first that does is the cause of a call."""

from __future__ import annotations

from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes import (
    alike,
    compilation,
    gpu_work,
    held_stream,
    itself,
    lazy_loading,
    module_loading,
    no_cpu,
    other_context,
    other_process,
    own_work,
    queue_full,
    records_off,
    staged_copy,
    tracing,
    unattributed,
)
from stallprobes.watch.causes.blame import OTHER_THREADS
from stallprobes.watch.causes.cause import Cause, Rule
from stallprobes.watch.causes.other_thread import OtherThread

# In the order of WaitCause.
CAUSES: tuple[Cause, ...] = (
    module_loading.CAUSE, lazy_loading.CAUSE, compilation.CAUSE, queue_full.CAUSE, tracing.CAUSE,
    gpu_work.CAUSE, staged_copy.CAUSE, own_work.CAUSE, other_context.CAUSE, other_process.CAUSE,
    *OTHER_THREADS,
    no_cpu.CAUSE, held_stream.CAUSE, itself.CAUSE, records_off.CAUSE, unattributed.CAUSE,
)  # fmt: skip

# These hold for calls without an excess too.
OVERHEADS: tuple[Rule, ...] = (
    module_loading.OVERHEAD, lazy_loading.OVERHEAD, compilation.OVERHEAD, queue_full.OVERHEAD, tracing.OVERHEAD,
)  # fmt: skip
RECORDED: tuple[Rule, ...] = (
    # Records of the call itself.
    gpu_work.IN_FRONT, staged_copy.IN_FRONT, own_work.OWN, other_context.TIME_SLICE, other_process.TIME_SLICE,
    # What the calls say of the order of streams.
    gpu_work.FOLLOWED, queue_full.MANY_IN_FRONT,
)  # fmt: skip
# For calls of a time in which work was recorded: these take it as evidence that the GPU did nothing else.
BESIDE: tuple[Rule, ...] = (
    # What happened at the same time, the strongest evidence first.
    gpu_work.EVENT, *(OtherThread(cause) for cause in OTHER_THREADS), gpu_work.BESIDE, no_cpu.RULE, held_stream.RULE,
    # What the call does.
    lazy_loading.FIRST_LAUNCH, gpu_work.DESTRUCTION, module_loading.FUNCTION, itself.RULE,
)  # fmt: skip
# For the others, once the causes of those are known.
UNRECORDED: tuple[Rule, ...] = (no_cpu.RULE, alike.RULE, records_off.RULE)
_BY_NAME = {cause.name: cause for cause in CAUSES}


def cause_of(name: WaitCause) -> Cause:
    """The cause with a name."""
    return _BY_NAME[name]
