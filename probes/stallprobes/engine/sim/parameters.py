"""What a profile has to say: the figures of a simulated machine, section by section, each with what it is.

Times are in microseconds where a name ends so, and bandwidths in GB/s.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any


def number(what: str, *, above: float | None = None, default: Any = MISSING) -> Any:
    """A field that is a number: at least 0, or above ``above``."""
    return field(default=default, metadata={"what": what, "above": above})


@dataclass(frozen=True)
class MachineParameters:
    """What the machine has. Bandwidths are in GB/s."""

    title: str
    gpus: int = number("GPUs", above=0)
    sms: int = number("streaming multiprocessors of a GPU", above=0)
    threads_per_sm: int = number("threads that an SM holds at once", above=0)
    memory_gib: float = number("GPU memory", above=0)
    peer_access: bool = True
    green_contexts: bool = True
    batch_copies: bool = True
    staged_copies_block: bool = False
    driver: str = ""
    cuda: str = ""


@dataclass(frozen=True)
class EngineParameters:
    """The graphics engine: what a kernel needs to start, and what changing the context takes."""

    timeslice_us: float = number("how long a context keeps the engine while others want it", above=0)
    save_us: float = number("taking a context off the engine in the middle of its kernels")
    save_ns_per_thread: float = number("the same, for each of their threads")
    restore_us: float = number("putting a context back")
    yield_us: float = number("changing from a context that has nothing to do")
    start_us: float = number("from the end of the call to the start of the kernel")
    gap_us: float = number("from the end of an op to the start of the next one of its stream")
    marker_us: float = number("the same where the next one is an event")
    marker_start_us: float = number("from the end of the call to an event with nothing before it")
    empty_us: float = number("an empty kernel on the GPU")
    node_us: float = number("each further kernel of a graph")
    spin_extra_us: float = number("what a spin kernel takes beyond its time")
    new_context_us: float = number("work on the engine for a context that is made or ended")
    queue: int = number("launches that may be pending in a stream", above=0)


@dataclass(frozen=True)
class CopyParameters:
    """Transfers. The base is what one takes without its bytes."""

    d2d_gbps: float = number("within the GPU", above=0)
    d2d_base_us: float = number("base of a copy within the GPU")
    d2d_threads: int = number("threads of the kernel that makes it", above=0)
    d2h_gbps: float = number("GPU to pinned memory", above=0)
    h2d_gbps: float = number("pinned memory to GPU", above=0)
    base_us: float = number("base of a transfer by a copy engine")
    start_us: float = number("from the end of the call to the start of a transfer")
    gap_us: float = number("from the end of an op to the start of a transfer behind it")
    warm_gbps: float = number("staging to pageable memory that was touched", above=0)
    fresh_gbps: float = number("staging to pageable memory that was not", above=0)
    upload_gbps: float = number("staging from pageable memory", above=0)
    staging_base_us: float = number("base of a staged copy")
    staging_chunk: int = number("bytes of a staging buffer", above=0)
    staging_hold_us: float = number("for how long of each chunk no thread of the context sees the GPU's progress")
    staging_write_us: float = number("how much longer where the pages are there")
    inline_bytes: int = number("the largest upload from pageable memory that needs no staging")
    peer_gbps: float = number("direct copy to the other GPU", above=0)
    peer_base_us: float = number("its base")
    relay_gbps: float = number("staged copy to the other GPU", above=0)
    relay_base_us: float = number("its base")
    relay_call_us_per_mib: float = number("time in the call of a staged copy, for each MiB")
    relay_behind_us: float = number("more of it when the copy has to wait for others")


@dataclass(frozen=True)
class LockParameters:
    """The driver's locks and the host's threads."""

    spin_us: float = number("how long a thread spins for a lock before it sleeps", above=0)
    spin_react_us: float = number("how soon a spinning thread sees a free lock")
    spin_react_p99_us: float = number("99th percentile of that")
    wake_us: float = number("how long a sleeping thread takes to wake")
    wake_p99_us: float = number("99th percentile of that")
    timer_us: float = number("how late a sleep until a given time ends")
    timer_p99_us: float = number("99th percentile of that")
    poll_us: float = number("from the end of work on the GPU to the host's seeing it")
    poll_p99_us: float = number("99th percentile of that")
    loop_ns: float = number("between two calls of a probe, which read the clock", above=9)
    work_ns: float = number("one step of the host control's arithmetic")
    work_spread: float = number("99th percentile of that, as a multiple", above=0)
    cold_us: float = number("what the first call after a long sleep of its thread costs more")
    cold_more_us: float = number("the same for the first one of each other kind")
    cold_ms: float = number("how long such a sleep is; shorter ones cost less", above=0)
    cold_first_us: float = number("what a call costs more that its thread never made before")
    switch_drift: float = number("how much longer than counted a pause before a switch is, as a part of it")
    switch_most_us: float = number("the most of that")
    callback_us: float = number("from the end of the work before it to the begin of a host function")


@dataclass(frozen=True)
class MemoryParameters:
    """What allocation costs beyond the call itself, for each MiB."""

    alloc_us_per_mib: float = number("cuMemAlloc")
    free_us_per_mib: float = number("cuMemFree")
    pin_us_per_mib: float = number("cuMemHostAlloc")
    unpin_us_per_mib: float = number("cuMemFreeHost")
    register_us_per_mib: float = number("cuMemHostRegister")
    unregister_us_per_mib: float = number("cuMemHostUnregister")
    register_tail_us: float = number("the end of both, after the locks are given back")
    unmap_us_per_mib: float = number("munmap of touched pages")


@dataclass(frozen=True)
class SlowdownParameters:
    """By what factor calls take longer while something else keeps the bus and the caches busy."""

    d2h: float = number("a transfer to the host", above=0)
    h2d: float = number("a transfer to the GPU", above=0)
    warm: float = number("staging to touched memory", above=0)
    fresh: float = number("staging to fresh memory", above=0)
    upload: float = number("staging from memory", above=0)
    unmap: float = number("giving touched pages back", above=0)


SECTIONS: dict[str, type[Any]] = {
    "machine": MachineParameters,
    "engine": EngineParameters,
    "copy": CopyParameters,
    "locks": LockParameters,
    "memory": MemoryParameters,
    "drag": SlowdownParameters,
}
