"""Causes of slow calls of a watched program, in order of evidence, with one table of their words and remedies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from stallprobes.catalog import Relation, entries
from stallprobes.patterns import patterns


class WaitCause(StrEnum):
    """What a slow call waited for; the members are in order of evidence. The values are those of the JSON document.

    ``MODULE_LOADING`` to ``TRACING``: an overhead record of the call. ``GPU_WORK``: work of the GPU in front of a call
    that blocks. ``STAGED_COPY``: the same, where most of it is in front of another peer copy that the driver stages.
    ``OWN_WORK``: the call's own work on the GPU, such as a blocking copy. ``OTHER_CONTEXT`` and ``OTHER_PROCESS``: the
    time-slice of another context. ``PAGEABLE_COPY`` to ``STREAM``: a call of another thread.
    ``NO_CPU``: the thread was ready to run and had no CPU. ``HELD_STREAM``: its stream waited for something that is no
    work of the GPU. ``ITSELF``: what the function does takes long, such as creating a context.
    ``RECORDS_OFF``: it was made while work of the GPU was not recorded.
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
    def traits(self) -> CauseTraits:
        """Its row of the table."""
        return CAUSES[self]

    @property
    def word(self) -> str:
        """Its name in a list: ``GPU work``."""
        return self.traits.word

    @property
    def remedy(self) -> str:
        """What helps, "" where nothing is known."""
        return self.traits.remedy()

    @property
    def pattern(self) -> str:
        """The pattern whose remedies help, "" where it is none."""
        return self.traits.pattern

    @property
    def is_other_thread(self) -> bool:
        """Whether a call of another thread is the cause."""
        return self in OTHER_THREAD


class Certainty(StrEnum):
    """How the cause of a slow call is known.

    ``PROVEN``: by records of the call itself. ``KNOWN``: by what the function does, or by overlap in time where a
    check or reference shows that the pair stalls. ``BESIDE``: by overlap in time alone.
    """

    PROVEN = "proven"
    KNOWN = "known"
    BESIDE = "beside"

    @property
    def preposition(self) -> str:
        """``because of`` or ``beside``."""
        return "beside" if self is Certainty.BESIDE else "because of"


@dataclass(frozen=True)
class CauseTraits:
    """Words of a cause: ``word`` in a list, ``clause`` after "because of" or "beside" in a sentence.

    ``pattern`` is the pattern whose remedies help, "" without one.
    """

    word: str
    clause: str
    remedy: Callable[[], str]
    pattern: str = ""


def _of_entry(name: str, word: str, clause: str) -> CauseTraits:
    """Traits with the remedy that the catalogue's entry ``name`` has for victims of its context, else of any."""

    def remedy() -> str:
        causes = entries()[name].causes
        same = (cause for cause in causes if cause.context is Relation.SAME)
        return (next(same, None) or causes[0]).remedy

    return CauseTraits(word, clause, remedy)


def _of_pattern(name: str, word: str, clause: str) -> CauseTraits:
    return CauseTraits(word, clause, lambda: patterns()[name].remedy, name)


def _with_remedy(word: str, clause: str, remedy: str, pattern: str = "") -> CauseTraits:
    return CauseTraits(word, clause, lambda: remedy, pattern)


CAUSES = {
    WaitCause.MODULE_LOADING: _of_entry("module-load", "module loading", "loading a module"),
    WaitCause.LAZY_LOADING: _of_entry("module-first-launch", "lazy loading", "loading the kernel at its first launch"),
    WaitCause.COMPILATION: _with_remedy(
        "compilation",
        "compiling device code",
        "Build the program for this GPU's architecture, or keep the driver's compilation cache (CUDA_CACHE_PATH).",
    ),
    WaitCause.QUEUE_FULL: _of_entry("launch-queue-full", "full launch queue", "a full launch queue"),
    WaitCause.TRACING: _with_remedy(
        "tracing", "the recording of GPU work by stallscope itself", "Watch with --calls-only, which records no work."
    ),
    WaitCause.GPU_WORK: _with_remedy(
        "GPU work",
        "GPU work in front of it",
        "Wait later: submit the next work first, free with cuMemFreeAsync, and keep a value that only the next kernel "
        "needs on the GPU. Nothing but less work makes the wait itself shorter.",
        "scalar-readback",
    ),
    WaitCause.STAGED_COPY: _of_pattern(
        "peer-copy-behind-kernel",
        "staged peer copy",
        "a staged peer copy in front of its own, and what that waited for",
    ),
    WaitCause.OWN_WORK: _with_remedy(
        "its own GPU work",
        "its own work on the GPU",
        "Copy into pinned memory with an asynchronous call, and wait once, where the result is needed.",
        "scalar-readback",
    ),
    WaitCause.OTHER_CONTEXT: _of_pattern(
        "secondary-context-d2d", "another context's time-slice", "the time-slices of another context"
    ),
    WaitCause.OTHER_PROCESS: _with_remedy(
        "another process's time-slice",
        "the time-slices of another process",
        "Run one process on each GPU, or share it through MPS.",
    ),
    WaitCause.PAGEABLE_COPY: _of_pattern("pageable-d2h-vs-launch", "pageable copy", "a pageable copy"),
    WaitCause.ALLOCATION: _of_entry("alloc-free", "allocation", "an allocation of GPU memory"),
    WaitCause.FREE: _of_entry("free-beside-kernel", "free", "a free of GPU memory"),
    WaitCause.ASYNC_ALLOCATION: _of_entry("alloc-async", "pool allocation", "an allocation from a pool"),
    WaitCause.HOST_ALLOCATION: _of_entry("host-alloc-free", "pinned allocation", "allocating or freeing pinned memory"),
    WaitCause.HOST_REGISTRATION: _of_entry("host-register", "host registration", "registering host memory"),
    WaitCause.GRAPH: _of_entry("graph-instantiate", "graph instantiation", "instantiating a graph"),
    WaitCause.MODULE: _of_entry("module-load", "module loading in another thread", "loading a module"),
    WaitCause.CONTEXT: _of_entry("context-churn", "context creation", "creating or destroying a context"),
    WaitCause.STREAM: _of_entry("stream-churn", "stream creation", "creating or destroying a stream"),
    WaitCause.NO_CPU: _with_remedy(
        "no CPU", "a lack of CPU for the thread", "Give the program more CPUs, or let fewer threads run on them."
    ),
    WaitCause.HELD_STREAM: _of_pattern(
        "default-stream-gate", "held stream", "an event or a host function that held its stream"
    ),
    WaitCause.ITSELF: _with_remedy(
        "the call itself",
        "the call itself",
        "Create contexts, allocate and instantiate before the critical part, and keep the result.",
    ),
    WaitCause.RECORDS_OFF: _with_remedy(
        "not recorded",
        "work of the GPU, which was not recorded then",
        "Watch with --cost 100, which records all of it.",
    ),
    WaitCause.UNATTRIBUTED: _with_remedy("unattributed", "no cause that was recorded", ""),
}
OTHER_THREAD = frozenset(
    {
        WaitCause.PAGEABLE_COPY, WaitCause.ALLOCATION, WaitCause.FREE, WaitCause.ASYNC_ALLOCATION,
        WaitCause.HOST_ALLOCATION, WaitCause.HOST_REGISTRATION, WaitCause.GRAPH, WaitCause.MODULE, WaitCause.CONTEXT,
        WaitCause.STREAM,
    }
)  # fmt: skip
