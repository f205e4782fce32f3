"""Parts of a program's wall time, and verdicts about what bounds it, with one table of words for each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """Part of a sequence's wall time on a GPU; each instant belongs to one part. The values are those of JSON.

    ``KERNELS`` to ``COPIES``: the GPU works. ``RANK_WAIT``: kernels that communicate wait for a rank that is late.
    ``BETWEEN``, ``OTHER_GPU`` and all parts after it except ``END`` are parts of gaps. A gap ends with the next
    operation of the sequence on the GPU.
    """

    KERNELS = "kernels"
    COMMUNICATION = "communication"
    RANK_WAIT = "rank-wait"
    COPIES = "copies"
    BETWEEN = "between-kernels"
    SHARED = "shared"
    OTHER_GPU = "other-gpu"
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
    def traits(self) -> Traits:
        """Its row of the table."""
        return PARTS[self]

    @property
    def word(self) -> str:
        """Its name in a list: ``host``."""
        return self.traits.word


@dataclass(frozen=True)
class Traits:
    """Words of a part or a verdict, ``word`` in a list, ``clause`` in a sentence; ``style`` and ``mark`` draw it."""

    word: str
    clause: str
    style: str
    mark: str = ""


# Word, meaning, style and bar character of each part of the time.
PARTS = {
    Part.KERNELS: Traits("kernels", "kernels run on the GPU", "good", "█"),
    Part.COMMUNICATION: Traits(
        "communication", "kernels that communicate with other GPUs run, and no other one", "accent", "▓"
    ),
    Part.RANK_WAIT: Traits("waiting for ranks", "such kernels wait for another rank that is late", "bad", "w"),
    Part.COPIES: Traits("copies", "copies or fills run on the GPU, and no kernel", "accent", "▒"),
    Part.BETWEEN: Traits(
        "between kernels", "the GPU goes from an operation of a stream to the next one, which is submitted", "good", "="
    ),
    Part.SHARED: Traits("others' time-slices", "another context or process has the GPU", "bad", "x"),
    Part.OTHER_GPU: Traits("another GPU", "another GPU works for it meanwhile, and this one waits", "bad", "g"),
    Part.QUEUED: Traits("queued", "the next operation is submitted, and has not started", "dim", "~"),
    Part.SUBMITTING: Traits("submitting", "inside driver calls that do not block", "warn", "/"),
    Part.HOST: Traits("host", "between driver calls, computing or off the CPU", "warn", "░"),
    Part.WAKE_UP: Traits("wake-up", "inside a wait whose work has ended", "dim", "^"),
    Part.COPY: Traits("blocking copies", "inside a copy that blocks, outside its work", "bad", "c"),
    Part.ALLOCATION: Traits("allocation", "inside allocations of GPU memory", "bad", "a"),
    Part.FREE: Traits("free", "inside calls that free memory or unload code", "bad", "f"),
    Part.HOST_MEMORY: Traits("host memory", "inside calls that allocate or register pinned memory", "bad", "m"),
    Part.CONTEXT: Traits("contexts", "inside calls that create or destroy contexts", "bad", "k"),
    Part.LOADING: Traits("loading", "inside calls that load or compile device code", "bad", "l"),
    Part.LOCK: Traits("locks", "inside a call that another thread's call holds up", "bad", "!"),
    Part.OTHER_WORK: Traits("other threads' work", "inside a wait for work of other threads", "dim", "o"),
    Part.BLOCKED: Traits("blocked", "inside a call that blocks for a reason that is not known", "bad", "b"),
    Part.END: Traits("end", "after the last operation", "dim", "-"),
    Part.UNKNOWN: Traits("not known", "records or calls are missing", "dim", "?"),
}
# Meanings of all parts of the time, for the description in the JSON schema.
MEANINGS = " ".join(f"{part}: {traits.clause}." for part, traits in PARTS.items())
# Parts of the time in which only kernels that communicate run.
COMMUNICATION_PARTS = (Part.COMMUNICATION, Part.RANK_WAIT)
# Parts of the time in which the GPU is occupied. A faster host would not shorten these parts.
GPU_PARTS = (Part.KERNELS, *COMMUNICATION_PARTS, Part.COPIES, Part.BETWEEN)
# Parts of the time that count together for the verdict "allocation-bound".
ALLOCATION_PARTS = (Part.ALLOCATION, Part.FREE, Part.HOST_MEMORY)
# Order of the parts in the columns of arrays.
ORDER = tuple(Part)
# Number of each part: its column in arrays.
NUMBERS = {part: number for number, part in enumerate(ORDER)}


class Bound(StrEnum):
    """What bounds a sequence. The values are those of the JSON document."""

    SHARED = "shared"
    LOADING = "loading"
    ALLOCATION = "allocation"
    LOCK = "lock"
    COPY = "copy"
    COMMUNICATION = "communication"
    TURNS = "turns"
    GAPS = "gaps"
    HELD = "held"
    GPU = "gpu"
    OWN_SLEEP = "own-sleep"
    CHILD = "child"
    INPUT = "input"
    THREAD = "thread"
    STREAMS = "streams"
    IDLE = "idle"
    ASLEEP = "asleep"
    CPUS = "cpus"
    WAIT = "wait"
    HOST = "host"
    SUBMISSION = "submission"
    UNKNOWN = "unknown"

    @property
    def traits(self) -> Traits:
        """Its row of the table."""
        return BOUNDS[self]

    @property
    def word(self) -> str:
        """The verdict in a word: ``host-bound``."""
        return self.traits.word


# Word, meaning and style of each verdict about what bounds a sequence (threads that call by turns).
BOUNDS = {
    Bound.SHARED: Traits("shared", "other contexts or processes have the GPU", "bad"),
    Bound.LOADING: Traits("loading-bound", "it waits for device code that is loaded or compiled", "bad"),
    Bound.ALLOCATION: Traits("allocation-bound", "it waits for memory that is allocated or freed", "bad"),
    Bound.LOCK: Traits("lock-bound", "its calls wait for a lock that another thread's call holds", "bad"),
    Bound.COPY: Traits("copy-bound", "it waits for copies", "warn"),
    Bound.COMMUNICATION: Traits("communication-bound", "kernels that communicate take the time", "warn"),
    Bound.TURNS: Traits("bound by GPUs in turn", "while one of its GPUs works, the others wait", "warn"),
    Bound.GAPS: Traits("bound by small kernels", "the GPU spends much of its time between them", "warn"),
    Bound.HELD: Traits(
        "bound by host functions", "its GPU work waits in its streams for functions on the host", "warn"
    ),
    Bound.GPU: Traits("GPU-bound", "the GPU works nearly all the time", "good"),
    Bound.WAIT: Traits("wait-bound", "the host waits for the GPU and then the GPU for the host", "warn"),
    Bound.OWN_SLEEP: Traits("bound by its own sleep", "it sleeps for a time that it sets itself", "warn"),
    Bound.CHILD: Traits("bound by child processes", "it waits for the end of processes that it has started", "warn"),
    Bound.INPUT: Traits("input-bound", "it waits for data that a child process of its own prepares, probably", "warn"),
    Bound.THREAD: Traits("bound by another thread", "it waits for a thread of its process, for data or a lock", "warn"),
    Bound.STREAMS: Traits(
        "bound by the order of its streams",
        "its kernels wait for those of other streams, though the GPU has room for both",
        "warn",
    ),
    Bound.IDLE: Traits("idle", "it waits for data or requests from outside, and no process of its own works", "dim"),
    Bound.ASLEEP: Traits(
        "asleep", "the GPU waits for the host, and the host for input, a lock, a timer or a request", "warn"
    ),
    Bound.HOST: Traits("host-bound", "the GPU waits for the host", "warn"),
    Bound.CPUS: Traits("short of CPUs", "the GPU waits for the host, which is ready to run and has no CPU", "bad"),
    Bound.SUBMISSION: Traits("submission-bound", "the GPU waits for the host, which submits work", "warn"),
    Bound.UNKNOWN: Traits("not known", "too much was not recorded for a verdict", "dim"),
}
