"""Names of the causes of slow calls, in order of evidence, and how a cause is known."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from stallprobes.files.codec import about
from stallprobes.native.layouts.driver_calls import HostTask


class WaitCause(StrEnum):
    """What a slow call waited for, in order of evidence. The values are those of the JSON document."""

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
    """How the cause of a slow call is known. The values are those of the JSON document."""

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


Cause = Annotated[
    WaitCause,
    about(
        "In order of evidence. module-loading to tracing: an overhead record of the call. gpu-work: work of the GPU in "
        "front of the call. staged-copy: the same, most of it in front of another peer copy that the driver stages. "
        "own-work: its own work on the GPU. other-context, other-process: the time-slice of another context. "
        "pageable-copy to stream: a call of another thread. no-cpu: the thread was ready to run and had no CPU. "
        "held-stream: its stream waited for something that is no work of the GPU. itself: what the function does takes "
        "long. records-off: it was made while work of the GPU was not recorded. unattributed: nothing that was "
        "recorded explains it."
    ),
]
Sureness = Annotated[
    Certainty,
    about(
        "proven: by records of the call itself. known: by what the function does, or by overlap in time where a check "
        "or reference shows that the pair stalls. alike: work of the GPU was not recorded then, and nearly all calls "
        "like it whose work was recorded have the cause. beside: by overlap in time alone. Null without a cause."
    ),
]
_OF_TASKS = {task: WaitCause[task.name] for task in HostTask if task}
OTHER_THREAD = frozenset(_OF_TASKS.values())
# Rank of each cause: stronger evidence comes first.
CAUSE_RANKS = {cause: rank for rank, cause in enumerate(WaitCause)}
CAUSES_BY_RANK = tuple(WaitCause)


def cause_of_task(task: HostTask) -> WaitCause | None:
    """The cause that a task of the driver is, for its own call or for those of other threads; None without a task."""
    return _OF_TASKS.get(task)
