"""What the slow calls of the example programs wait for, and a test of findings against it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

from stallprobes.watch.attribution.findings import ExplainedCall, ProcessFindings
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.reading.words import Memory
from stallprobes.watch.sentences import call_text

# The part of a program's slow time that must have its right cause.
RIGHT = 0.95

# What each call of the example programs waits for when it is slow, by how the programs are written. A copy from
# pageable memory waits for the work in front of it and then copies.
Truth = Callable[[ExplainedCall], Collection[WaitCause]]
STARTS: dict[str, WaitCause] = {
    "cuDevicePrimaryCtxRetain": WaitCause.ITSELF,
    "cuCtxCreate": WaitCause.ITSELF,
    "cuMemHostAlloc": WaitCause.ITSELF,
    "cuMemAlloc": WaitCause.ITSELF,
    "cuModuleLoadData": WaitCause.MODULE_LOADING,
    "cuLibraryLoadData": WaitCause.MODULE_LOADING,
    "cuKernelGetFunction": WaitCause.MODULE_LOADING,
}
SYNC, LAUNCH, D2H, H2D = "cuStreamSynchronize", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"


def secondary_context(call: ExplainedCall) -> Collection[WaitCause]:
    """Copies of the second context wait for the first one, which waits for its own kernel."""
    return (WaitCause.GPU_WORK,) if call.context == 1 else (WaitCause.OTHER_CONTEXT,)


def pageable_copies(call: ExplainedCall) -> Collection[WaitCause]:
    """Launches wait for the copies of the other thread."""
    if call.function == LAUNCH:
        assert call.culprit is None or (call.culprit.function, call.culprit.target) == (D2H, Memory.PAGEABLE)
        return (WaitCause.PAGEABLE_COPY,)
    return (WaitCause.OWN_WORK,)


def gate(call: ExplainedCall) -> Collection[WaitCause]:
    """Launches wait for the copies, which wait for the host function."""
    if call.function == LAUNCH:
        return pageable_copies(call)
    return (WaitCause.HELD_STREAM,)


def training(call: ExplainedCall) -> Collection[WaitCause]:
    """Kernels load at their first launch, synchronizations wait for kernels, and launches for a place in the queue.

    A loop that waits for nothing is ahead of the GPU by a full launch queue: CUPTI records that as COMMAND_BUFFER_FULL.
    """
    if call.function == LAUNCH:
        return (WaitCause.LAZY_LOADING, WaitCause.QUEUE_FULL)
    return (WaitCause.GPU_WORK, WaitCause.OWN_WORK) if call.function == H2D else (WaitCause.GPU_WORK,)


def peer_copy(call: ExplainedCall) -> Collection[WaitCause]:
    """Synchronizations behind the second copy wait for the first one, which waits for the kernel."""
    return (WaitCause.STAGED_COPY,)


def gpu_work(call: ExplainedCall) -> Collection[WaitCause]:
    """Every slow call waits for a kernel."""
    return (WaitCause.GPU_WORK,)


def nothing(call: ExplainedCall) -> Collection[WaitCause]:
    """No call but the first ones is slow."""
    return ()


def require_right_causes(name: str, found_by_watch: ProcessFindings, truth: Truth) -> None:
    """That the slow time of a program has its right causes, and no call a wrong one."""
    slow = [call for call in found_by_watch.slow_calls if not call.nested]
    # Each program creates a context, which is slow.
    assert slow
    total = sum(call.excess_ns for call in slow)
    found = {id(call): {call.cause, *(part.cause for part in call.also)} for call in slow}
    right = sum(
        call.explained_ns + sum(part.ns for part in call.also)
        for call in slow
        if call.cause in (expected(call, truth) or (None,))
    )
    sys.stderr.write(f"{name}: {len(slow)} slow calls, {total / 1e6:.1f} ms, {right / total:.1%} right\n")
    wrong = [call_text(call) for call in slow if not found[id(call)] <= allowed(call, truth)]
    assert not wrong, "\n".join(wrong)
    unattributed = [call_text(call) for call in slow if call.cause is WaitCause.UNATTRIBUTED]
    assert right >= RIGHT * total, "\n".join(unattributed)


def allowed(call: ExplainedCall, truth: Truth) -> set[WaitCause]:
    """The causes that are not wrong: the right ones, none, smaller parts that the GPU had in the same wait, and what
    CUPTI measured of its own."""
    parts = {WaitCause.GPU_WORK, WaitCause.OWN_WORK, WaitCause.OTHER_CONTEXT} - {call.cause}
    return {*expected(call, truth), *parts, WaitCause.TRACING, WaitCause.UNATTRIBUTED}


def expected(call: ExplainedCall, truth: Truth) -> Collection[WaitCause]:
    """What a call may be found to wait for."""
    start = next((cause for name, cause in STARTS.items() if call.function.startswith(name)), None)
    return (start,) if start else truth(call)
