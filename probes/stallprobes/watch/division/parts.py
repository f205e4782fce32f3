"""Parts of a program's wall time, and verdicts about what bounds it, with one table of words for each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """What an instant of a sequence's wall time on a GPU is; each instant is one. The values are those of JSON.

    ``KERNELS`` to ``COPIES``: the GPU works; ``RANK_WAIT``: in a kernel that waits for one of another rank to start,
    which ``ranks`` takes out of communication. ``SHARED``: another context or process had the GPU. The others are
    parts of gaps, each of which ends with the next operation of the sequence on the GPU. ``QUEUED``: that was
    submitted, and did not start yet. ``SUBMITTING``: inside calls that do not block. ``HOST``: between calls.
    ``WAKE_UP``: inside a wait whose work had ended. ``COPY`` to ``BLOCKED``: inside a call that blocked, by its cause.
    ``END``: after the last operation. ``UNKNOWN``: records or calls are missing.
    """

    KERNELS = "kernels"
    COMMUNICATION = "communication"
    RANK_WAIT = "rank-wait"
    COPIES = "copies"
    SHARED = "shared"
    QUEUED = "queued"
    SUBMITTING = "submitting"
    HOST = "host"
    WAKE_UP = "wake-up"
    COPY = "blocking-copy"
    ALLOCATION = "allocation"
    FREE = "free"
    HOST_MEMORY = "host-memory"
    CONTEXT = "context"
    LOADING = "loading"
    LOCK = "lock"
    OTHER_WORK = "other-work"
    BLOCKED = "blocked"
    END = "end"
    UNKNOWN = "unknown"

    @property
    def traits(self) -> PartTraits:
        """Its row of the table."""
        return PARTS[self]

    @property
    def word(self) -> str:
        """Its name in a list: ``host``."""
        return self.traits.word


@dataclass(frozen=True)
class PartTraits:
    """Words of a part: ``word`` in a list, ``meaning`` in an explanation; ``style`` and ``mark`` draw it in a bar."""

    word: str
    meaning: str
    style: str
    mark: str


PARTS = {
    Part.KERNELS: PartTraits("kernels", "kernels run on the GPU", "good", "█"),
    Part.COMMUNICATION: PartTraits("communication", "kernels of NCCL or NVSHMEM run, and no other one", "accent", "▓"),
    Part.RANK_WAIT: PartTraits("waiting for ranks", "such kernels wait for another rank that is late", "bad", "w"),
    Part.COPIES: PartTraits("copies", "copies or fills run on the GPU, and no kernel", "accent", "▒"),
    Part.SHARED: PartTraits("others' time-slices", "another context or process has the GPU", "bad", "x"),
    Part.QUEUED: PartTraits("queued", "the next operation is submitted, and has not started", "dim", "~"),
    Part.SUBMITTING: PartTraits("submitting", "inside driver calls that do not block", "warn", "/"),
    Part.HOST: PartTraits("host", "between driver calls, computing or off the CPU", "warn", "░"),
    Part.WAKE_UP: PartTraits("wake-up", "inside a wait whose work has ended", "dim", "^"),
    Part.COPY: PartTraits("blocking copies", "inside a copy that blocks, outside its work", "bad", "c"),
    Part.ALLOCATION: PartTraits("allocation", "inside allocations of GPU memory", "bad", "a"),
    Part.FREE: PartTraits("free", "inside frees of GPU memory", "bad", "f"),
    Part.HOST_MEMORY: PartTraits(
        "host memory", "inside calls that allocate, register or free pinned memory", "bad", "m"
    ),
    Part.CONTEXT: PartTraits("contexts", "inside calls that create or destroy contexts", "bad", "k"),
    Part.LOADING: PartTraits("loading", "inside calls that load or compile device code", "bad", "l"),
    Part.LOCK: PartTraits("locks", "inside a call that another thread's call holds up", "bad", "!"),
    Part.OTHER_WORK: PartTraits("other threads' work", "inside a wait for work of other threads", "dim", "o"),
    Part.BLOCKED: PartTraits("blocked", "inside a call that blocks for a reason that is not known", "bad", "b"),
    Part.END: PartTraits("end", "after the last operation", "dim", "-"),
    Part.UNKNOWN: PartTraits("not known", "records or calls are missing", "dim", "?"),
}
# Kernels that communicate, and no other one meanwhile.
COMMUNICATION_PARTS = (Part.COMMUNICATION, Part.RANK_WAIT)
GPU_PARTS = (Part.KERNELS, *COMMUNICATION_PARTS, Part.COPIES)
# In this order, arrays have one number for each part.
ORDER = tuple(Part)
NUMBERS = {part: number for number, part in enumerate(ORDER)}


class Bound(StrEnum):
    """What bounds a sequence, in the order in which the rules are tried. The values are those of the JSON document."""

    SHARED = "shared"
    LOADING = "loading"
    ALLOCATION = "allocation"
    LOCK = "lock"
    COPY = "copy"
    COMMUNICATION = "communication"
    GPU = "gpu"
    WAIT = "wait"
    HOST = "host"
    SUBMISSION = "submission"
    UNKNOWN = "unknown"

    @property
    def traits(self) -> BoundTraits:
        """Its row of the table."""
        return BOUNDS[self]

    @property
    def word(self) -> str:
        """The verdict in a word: ``host-bound``."""
        return self.traits.word


@dataclass(frozen=True)
class BoundTraits:
    """Words of a verdict: ``word`` alone, ``clause`` as a reason, ``style`` on a screen."""

    word: str
    clause: str
    style: str


BOUNDS = {
    Bound.SHARED: BoundTraits("shared", "other contexts or processes have the GPU", "bad"),
    Bound.LOADING: BoundTraits("loading-bound", "it waits for device code that is loaded or compiled", "bad"),
    Bound.ALLOCATION: BoundTraits("allocation-bound", "it waits for memory that is allocated or freed", "bad"),
    Bound.LOCK: BoundTraits("lock-bound", "its calls wait for a lock that another thread's call holds", "bad"),
    Bound.COPY: BoundTraits("copy-bound", "it waits for copies", "warn"),
    Bound.COMMUNICATION: BoundTraits("communication-bound", "kernels that communicate take the time", "warn"),
    Bound.GPU: BoundTraits("GPU-bound", "the GPU works nearly all the time", "good"),
    Bound.WAIT: BoundTraits("wait-bound", "the host waits for the GPU and then the GPU for the host", "warn"),
    Bound.HOST: BoundTraits("host-bound", "the GPU waits for the host", "warn"),
    Bound.SUBMISSION: BoundTraits("submission-bound", "the GPU waits for the host, which submits work", "warn"),
    Bound.UNKNOWN: BoundTraits("not known", "too much was not recorded for a verdict", "dim"),
}
