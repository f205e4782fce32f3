"""Parameters of a simulated machine: the sections of a profile, each parameter with its meaning.

Names that end in ``_us``, ``_ms`` and ``_ns`` are times in that unit; ``_gbps`` are bandwidths in GB/s.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any


def parameter(what: str, *, above: float | None = None, default: Any = MISSING) -> Any:
    """A dataclass field for a number that is at least 0, or above ``above``; ``what`` is its meaning."""
    return field(default=default, metadata={"what": what, "above": above})


@dataclass(frozen=True)
class MachineParameters:
    """Size and features of the machine."""

    title: str
    gpus: int = parameter("GPUs", above=0)
    sms: int = parameter("streaming multiprocessors of a GPU", above=0)
    threads_per_sm: int = parameter("threads that an SM can hold", above=0)
    memory_gib: float = parameter("GPU memory", above=0)
    peer_access: bool = True
    green_contexts: bool = True
    batch_copies: bool = True
    staged_copies_block: bool = False
    driver: str = ""
    cuda: str = ""


@dataclass(frozen=True)
class EngineParameters:
    """The graphics engine: times of kernel starts and of context switches."""

    timeslice_us: float = parameter("time-slice of a context while others have work", above=0)
    save_us: float = parameter("saving a context in the middle of its kernels")
    save_ns_per_thread: float = parameter("additional time to save, for each running thread")
    restore_us: float = parameter("restoring a context")
    yield_us: float = parameter("change-over from an idle context to another one")
    start_us: float = parameter("from the end of the call to the start of the kernel")
    gap_us: float = parameter("from the end of a job to the start of the next one in its stream")
    marker_us: float = parameter("from the end of a job to an event record behind it")
    marker_start_us: float = parameter("from the end of the call to an event record without a predecessor")
    empty_us: float = parameter("duration of an empty kernel on the GPU")
    node_us: float = parameter("duration of each further kernel of a graph")
    spin_extra_us: float = parameter("duration of a spin kernel beyond its given time")
    new_context_us: float = parameter("last piece of work on the engine to create or destroy a context")
    new_context_pieces: int = parameter("short pieces of work before it")
    piece_us: float = parameter("duration of a short piece of the driver's own work, such as loading a module")
    queue: int = parameter("launches that may be pending in a stream", above=0)
    hardware_queues: int = parameter("hardware queues of a context, which its streams share", above=0, default=8)
    wakeup_us: float = parameter(
        "additional time until a kernel starts on a GPU that was idle for wakeup_ms", default=0.0
    )
    wakeup_ms: float = parameter("that idle time; a shorter one adds less", above=0, default=1000.0)


@dataclass(frozen=True)
class CopyParameters:
    """Transfers. A base is the fixed part of a transfer's duration."""

    d2d_gbps: float = parameter("bandwidth within the GPU", above=0)
    d2d_base_us: float = parameter("base of a copy within the GPU")
    d2d_threads: int = parameter("threads of the kernel that copies within the GPU", above=0)
    d2h_gbps: float = parameter("bandwidth from GPU to pinned memory", above=0)
    h2d_gbps: float = parameter("bandwidth from pinned memory to GPU", above=0)
    base_us: float = parameter("base of a transfer by a copy engine")
    start_us: float = parameter("from the end of the call to the start of a transfer")
    gap_us: float = parameter("from the end of a job to the start of a transfer behind it")
    warm_gbps: float = parameter("bandwidth of staging to touched pageable memory", above=0)
    fresh_gbps: float = parameter("bandwidth of staging to untouched pageable memory", above=0)
    upload_gbps: float = parameter("bandwidth of staging from pageable memory", above=0)
    staging_base_us: float = parameter("base of a staged copy")
    staging_chunk: int = parameter("bytes of a staging buffer", above=0)
    staging_hold_us: float = parameter(
        "part of each chunk of a copy to the host in which no thread notices the GPU's progress"
    )
    staging_write_us: float = parameter("additional part if the pages are touched")
    staging_query_us: float = parameter("longest delay of a query of a pending event by that")
    inline_bytes: int = parameter("largest upload that travels in the command stream, bytes")
    inline_us: float = parameter("base of such an upload on the graphics engine")
    bus_read_us: float = parameter("delay of each read of the host's memory by the GPU during a transfer to the GPU")
    peer_gbps: float = parameter("bandwidth of a direct copy to the other GPU", above=0)
    peer_base_us: float = parameter("its base")
    relay_gbps: float = parameter("bandwidth of a staged copy to the other GPU", above=0)
    relay_base_us: float = parameter("its base")
    relay_call_us_per_mib: float = parameter("time in the call of a staged copy to the other GPU, for each MiB")
    relay_behind_us: float = parameter("additional time in the call if the copy has predecessors")
    slice_us: float = parameter(
        "time-slice of a context on a copy engine while others have work for it", above=0, default=1024.0
    )
    clear_gbps: float = parameter("bandwidth at which freed memory is cleared", above=0, default=421.0)


@dataclass(frozen=True)
class LockParameters:
    """Locks of the driver and threads of the host."""

    spin_us: float = parameter("how long a thread spins for a lock before it sleeps", above=0)
    spin_react_us: float = parameter("time until a spinning thread notices a free lock")
    spin_react_p99_us: float = parameter("99th percentile of that")
    wake_us: float = parameter("time until a sleeping thread wakes up")
    wake_p99_us: float = parameter("99th percentile of that")
    timer_us: float = parameter("delay of the end of a sleep")
    timer_p99_us: float = parameter("99th percentile of that")
    poll_us: float = parameter("from the end of work on the GPU until the host notices it")
    poll_p99_us: float = parameter("99th percentile of that")
    loop_ns: float = parameter("time between two calls of a probe, in which it reads the clock", above=9)
    work_ns: float = parameter("duration of one step of the host control's arithmetic")
    work_spread: float = parameter("99th percentile of that, as a multiple of the median", above=0)
    cold_us: float = parameter("additional time of the first call after a long sleep of its thread")
    cold_more_us: float = parameter("additional time of the first call of each other kind after that")
    cold_ms: float = parameter(
        "length of a sleep or wait with the full additional time; shorter ones add less", above=0
    )
    full_queue_us: float = parameter("time of a call on the legacy default stream to pass a stream with a full queue")
    cold_first_us: float = parameter("additional time of a call that its thread makes for the first time")
    switch_drift: float = parameter("delay of a switch as a fraction of the time since the last one")
    switch_most_us: float = parameter("upper limit of that")
    callback_us: float = parameter("from the end of a job to the start of a host function behind it, whose thread runs")
    null_polls_us: float = parameter(
        "how long a call on the legacy default stream polls for the end of a call on another stream before it sleeps",
        default=0.0,
    )
    backoff_us: float = parameter(
        "first pause of a thread between two looks at a context's lock; it grows with the wait, up to spin_us",
        default=100.0,
    )
    submit_share: float = parameter("last share of a submitting call in which it holds its context's lock", default=1.0)
    submit_shared: float = parameter(
        "factor of a submitting call soon after one of another thread in the same context", above=0, default=1.0
    )
    submit_shared_us: float = parameter("longest time after it with that factor", default=0.0)
    shared_look: float = parameter(
        "factor of a wait for an idle stream, and of a query, after another thread has waited for the whole context",
        above=0,
        default=1.0,
    )
    cold_wait_us: float = parameter(
        "additional time of each kind of call after a wait, awake, in another call", default=0.0
    )
    cold_wait_long_us: float = parameter("more of that after a longer wait", default=0.0)
    cold_wait_long_ms: float = parameter("length of that wait; shorter ones add less", above=0, default=10.0)
    cold_long_us: float = parameter("additional time of the first call after a sleep of cold_long_ms", default=0.0)
    cold_long_wait_us: float = parameter("additional time until the first wait after it notices the end", default=0.0)
    cold_long_ms: float = parameter("length of that sleep; shorter ones add less", above=0, default=100.0)
    profiled_call_us: float = parameter(
        "additional time of a call that submits work while a profiler of its process records", default=0.0
    )
    profiled_first_us: float = parameter(
        "additional time of each thread's first such call in a profile",
        default=0.0,
    )
    attached_call_us: float = parameter("additional time while a profiler is attached and records nothing", default=0.0)
    callback_wake_us: float = parameter("additional time where that thread has slept", default=0.0)
    callback_wake_p99_us: float = parameter("99th percentile of that", default=0.0)


@dataclass(frozen=True)
class MemoryParameters:
    """Times of memory management in addition to the call, for each MiB."""

    alloc_us_per_mib: float = parameter("cuMemAlloc")
    grow_us_per_mib: float = parameter("growing the pool of cuMemAllocAsync, in the stream's order")
    free_us_per_mib: float = parameter("cuMemFree")
    pin_us_per_mib: float = parameter("cuMemHostAlloc")
    unpin_us_per_mib: float = parameter("cuMemFreeHost")
    register_us_per_mib: float = parameter("cuMemHostRegister")
    unregister_us_per_mib: float = parameter("cuMemHostUnregister")
    pin_tail_us: float = parameter("end of a call that pins or unpins memory, after the locks are released")
    unmap_us_per_mib: float = parameter("munmap of touched pages")
    create_us_per_mib: float = parameter("cuMemCreate", default=0)
    access_us_per_mib: float = parameter("cuMemSetAccess", default=0)
    gpu_unmap_us_per_mib: float = parameter("cuMemUnmap", default=0)
    release_us_per_mib: float = parameter("cuMemRelease", default=0)


@dataclass(frozen=True)
class SlowdownParameters:
    """Factors by which calls take longer while other work keeps the bus and the caches busy."""

    d2h: float = parameter("during a transfer to the host", above=0)
    h2d: float = parameter("during a transfer to the GPU", above=0)
    warm: float = parameter("during staging to touched memory", above=0)
    fresh: float = parameter("during staging to untouched memory", above=0)
    upload: float = parameter("during staging from pageable memory", above=0)
    unmap: float = parameter("while touched pages are freed", above=0)
    poll: float = parameter("additional share of a call's time for each thread that polls without a pause", default=0)


@dataclass(frozen=True)
class SensorParameters:
    """Values that NVML reports."""

    idle_w: float = parameter("power of an idle GPU, W", above=0)
    busy_w: float = parameter("power at a utilization of 100 % by these kernels, W", above=0)
    limit_w: float = parameter("power limit, W", above=0)
    power_lag_s: float = parameter("time constant of the power, s", above=0)
    idle_c: float = parameter("temperature of an idle GPU, °C")
    c_per_w: float = parameter("rise of the temperature for each additional W, °C")
    temperature_lag_s: float = parameter("time constant of the temperature, s", above=0)
    sm_mhz: float = parameter("clock of the SMs, MHz", above=0)
    memory_mhz: float = parameter("clock of the memory, MHz", above=0)
    context_mib: float = parameter("GPU memory of a context, MiB")
