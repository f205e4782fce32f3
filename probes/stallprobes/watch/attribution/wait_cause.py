"""Names of the causes of slow calls, in order of evidence, and how a cause is known."""

from __future__ import annotations

from enum import StrEnum

from stallprobes.native.layouts.driver_calls import HostTask


class WaitCause(StrEnum):
    """What a slow call waited for; the members are in order of evidence. The values are those of the JSON document.

    What each one is, and how it is found, is in ``watch/causes``.
    """

    MODULE_LOADING = "module-loading"
    LAZY_LOADING = "lazy-loading"
    COMPILATION = "compilation"
    QUEUE_FULL = "queue-full"
    TRACING = "tracing"
    GPU_WORK = "gpu-work"
    STAGED_COPY = "staged-copy"
    OWN_WORK = "own-work"
    OTHER_CONTEXT = "other-context"
    OTHER_PROCESS = "other-process"
    PAGEABLE_COPY = "pageable-copy"
    ALLOCATION = "allocation"
    FREE = "free"
    ASYNC_ALLOCATION = "async-allocation"
    HOST_ALLOCATION = "host-allocation"
    HOST_REGISTRATION = "host-registration"
    GRAPH = "graph"
    MODULE = "module"
    CONTEXT = "context"
    STREAM = "stream"
    NO_CPU = "no-cpu"
    HELD_STREAM = "held-stream"
    ITSELF = "itself"
    RECORDS_OFF = "records-off"
    UNATTRIBUTED = "unattributed"

    @property
    def is_other_thread(self) -> bool:
        """Whether a call of another thread is the cause."""
        return self in OTHER_THREAD


class Certainty(StrEnum):
    """How the cause of a slow call is known.

    ``PROVEN``: by records of the call itself. ``KNOWN``: by what the function does, or by overlap in time where a
    check or reference shows that the pair stalls. ``ALIKE``: work of the GPU was not recorded then, and nearly all
    calls like it whose work was recorded have the cause. ``BESIDE``: by overlap in time alone.
    """

    PROVEN = "proven"
    KNOWN = "known"
    ALIKE = "alike"
    BESIDE = "beside"

    @property
    def preposition(self) -> str:
        """``because of``, ``probably because of`` or ``beside``."""
        if self is Certainty.BESIDE:
            return "beside"
        return "probably because of" if self is Certainty.ALIKE else "because of"


_OF_TASKS = {task: WaitCause[task.name] for task in HostTask if task}
OTHER_THREAD = frozenset(_OF_TASKS.values())
# Rank of each cause: stronger evidence comes first.
CAUSE_RANKS = {cause: rank for rank, cause in enumerate(WaitCause)}
CAUSES_BY_RANK = tuple(WaitCause)


def cause_of_task(task: HostTask) -> WaitCause | None:
    """The cause that a task of the driver is, for its own call or for those of other threads; None without a task."""
    return _OF_TASKS.get(task)
