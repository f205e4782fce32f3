"""Names of the causes of slow calls, in order of evidence, and how a cause is known."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from stallprobes.files.codec import about
from stallprobes.native.layouts.driver_calls import HostTask


class WaitCause(StrEnum):
    """Cause of a slow call's wait. The causes with the strongest evidence come first.

    Each member has the cause's value in JSON, and the cause's words in a sentence.

    ``watch/causes`` has the rules for each cause.
    """

    clause: str

    def __new__(cls, value: str, clause: str) -> WaitCause:
        """The member with a value; ``clause`` follows "because of" or "beside" in a sentence."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.clause = clause
        return member

    MODULE_LOADING = "module-loading", "loading a module"
    LAZY_LOADING = "lazy-loading", "loading the kernel at its first launch"
    COMPILATION = "compilation", "compiling device code"
    QUEUE_FULL = "queue-full", "a full launch queue"
    TRACING = "tracing", "the recording of GPU work by stallscope itself"
    GPU_WORK = "gpu-work", "GPU work in front of it"
    STAGED_COPY = "staged-copy", "a staged peer copy in front of its own, and what that waited for"
    OWN_WORK = "own-work", "its own work on the GPU"
    OTHER_CONTEXT = "other-context", "the time-slices of another context"
    OTHER_PROCESS = "other-process", "the time-slices of another process"
    PAGEABLE_COPY = "pageable-copy", "a pageable copy"
    ALLOCATION = "allocation", "an allocation of GPU memory"
    FREE = "free", "a free of GPU memory"
    ASYNC_ALLOCATION = "async-allocation", "an allocation from a pool"
    HOST_ALLOCATION = "host-allocation", "allocating or freeing pinned memory"
    HOST_REGISTRATION = "host-registration", "registering host memory"
    GRAPH = "graph", "instantiating a graph"
    MODULE = "module", "loading or unloading a module"
    CONTEXT = "context", "creating or destroying a context"
    STREAM = "stream", "creating or destroying a stream"
    NO_CPU = "no-cpu", "a lack of CPU for the thread"
    HELD_STREAM = "held-stream", "an event or a host function that held its stream"
    ITSELF = "itself", "the call itself"
    RECORDS_OFF = "records-off", "work of the GPU, which was not recorded then"
    UNATTRIBUTED = "unattributed", "no cause that was recorded"

    @property
    def is_other_thread(self) -> bool:
        """True if a call of another thread is the cause."""
        return self in OTHER_THREAD


class Certainty(StrEnum):
    """How the cause of a slow call is known (see ``Sureness``). The values are those of the JSON document."""

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


Sureness = Annotated[
    Certainty,
    about(
        "proven: by records of the call itself. known: by what the function does, or by overlap in time where a check "
        "or reference shows that the pair stalls. alike: work of the GPU was not recorded then, and nearly all calls "
        "like it whose work was recorded have the cause. beside: by overlap in time alone. Null without a cause."
    ),
]
# Cause of a slow call for each task of the driver on the host (HostTask). The cause and the task have the same name.
# The driver does the task in the slow call itself, or in a call of another thread.
_OF_TASKS = {task: WaitCause[task.name] for task in HostTask if task}
# Causes that are a call of another thread of the process, such as a pageable copy or the loading of a module.
OTHER_THREAD = frozenset(_OF_TASKS.values())
Cause = Annotated[
    WaitCause,
    about(
        "What a call waited for, in order of evidence. "
        + " ".join(f"{cause}: {cause.clause}{' in another thread' * cause.is_other_thread}." for cause in WaitCause)
    ),
]
# Rank of each cause: 0 for the cause with the strongest evidence.
CAUSE_RANKS = {cause: rank for rank, cause in enumerate(WaitCause)}


def cause_of_task(task: HostTask) -> WaitCause | None:
    """The cause that a task of the driver is, for its own call or for those of other threads; None without a task."""
    return _OF_TASKS.get(task)
