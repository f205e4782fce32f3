"""Layout of the data of the timeline's collector, and its constants."""

import ctypes
from typing import Annotated, Any

from stallprobes.native.layouts.structure import Address, Function, Int64, LineInt64, Pointer, UInt64, structure

# Largest number of calls of a track (a stream that a probe uses) that wait for their GPU records. The number is larger
# than the driver's launch queue. If more calls wait, the oldest call is dropped.
QUEUE = 4_096
# Number of driver calls that the collector of GPU records keeps by correlation id. Ids count up, so a new call replaces
# the oldest call.
IDS = 1 << 16
# Number in place of a probe's number, for a driver call whose GPU record has not been matched with a call of a probe.
NO_PROBE = -1

# Largest number of GPU records that the collector decodes in one batch.
BATCH = 8_192
# Largest number of GPU records that the collector keeps until it knows the calls that submitted their work. Further
# records are published without a call.
MOST_KEPT = 2_048
# Largest number of batches in one round of the collector, so that a round ends even if CUPTI keeps returning buffers.
MOST_BATCHES = 64
# Number of the collector's rounds for which a GPU record waits for its call: 2 s with PERIOD_NS. After these rounds,
# the record is published without a call.
USUAL_PATIENCE = 200
# Usual period (ns) of the collector's rounds, in which it takes records from CUPTI.
PERIOD_NS = 10_000_000

# Tolerance (ns) in comparisons of the times of records with the times of calls. A record's time, converted to the
# host's clock, may be wrong by this much.
TOLERANCE_NS = 1_000

# Number of samples of the difference of the GPU's and the host's clock; their median is the offset.
CLOCK_SAMPLES = 16
# Time (ns) from the switch of the GPU to a context until the start of the kernel that waited for the switch, on an
# H200. Each pair of a switch and a kernel gives a sample of the offset of the GPU's clock.
SWITCH_TO_WORK_NS = 3_840
# Largest difference (ns) between a new sample of the GPU clock's offset to the host's clock and the offset in use. A
# sample with a larger difference is ignored. The limit grows with the time since the offset was confirmed, by
# CLOCK_DRIFT_PER_MILLION.
CLOCK_ERROR_NS = 30_000
# Largest drift (ppm) of the GPU's clock against the host's that is assumed since the offset was last confirmed. The
# drift raises the limit CLOCK_ERROR_NS.
CLOCK_DRIFT_PER_MILLION = 50
# Upper bound (ns) of the limit for samples of the GPU clock's offset (CLOCK_ERROR_NS plus the drift). The bound is half
# a time-slice. Reason: a sample that is further off may pair a kernel with the switch of another time-slice.
MOST_CLOCK_ERROR_NS = 1_000_000
# Largest spread (ns, between the quartiles) of the samples that set a new offset of the GPU's clock. With a larger
# spread, the old offset stays. Each sample contains the error of CUPTI's own conversion of GPU times, a microsecond.
MOST_CLOCK_SPREAD_NS = 8_000
# Longest time (ns) since the offset of the GPU's clock was last confirmed. After this time, the clocks are read again.
CLOCK_STALE_NS = 20_000_000_000

# Number of histograms to which each latency of an operation (such as its start on the GPU) is added: the histogram of
# all operations of the probe, and the histogram of its operations with the same label.
PHASE_ROWS = 2
# Number that stands for "no histogram row".
NO_ROW = -1


@structure
class TrackOp(ctypes.Structure):
    """An op of a track: the records that one call yields (0: the op submits nothing on the track's stream).

    ``awaited``: the iteration waits for its work. The rows of its histograms are NO_ROW for none.
    """

    records: Int64
    awaited: Int64
    start_rows: Annotated[Any, ctypes.c_int64 * PHASE_ROWS]
    early_rows: Annotated[Any, ctypes.c_int64 * PHASE_ROWS]
    gpu_rows: Annotated[Any, ctypes.c_int64 * PHASE_ROWS]


@structure
class Track(ctypes.Structure):
    """One probe's use of one stream.

    ``depth`` is how many calls later on the stream a call's work has certainly started. ``thread`` is the kernel's
    number of the probe's thread where calls are found by correlation id, else 0. ``loaded`` is the number of the next
    host call to be queued, ``oldest`` and ``newest`` number the calls in the queue. For the last matched call, ``left``
    is the number of records to come, and the members with ``group`` describe it.
    """

    probe: Int64
    context: Int64
    stream: Int64
    depth: Int64
    thread: Int64
    loaded: Int64
    oldest: Int64
    newest: Int64
    left: Int64
    has_group: Int64
    group_start_ns: Int64
    group_correlation: Int64
    group_place: Int64
    ops: Annotated[int, ctypes.c_uint64, Pointer("const struct ss_track_op")]
    queue: Annotated[int, ctypes.c_uint64, Pointer("struct ss_host_call")]
    words: Annotated[int, ctypes.c_uint64, Pointer("const struct ss_probe_words")]
    host_calls: Annotated[int, ctypes.c_uint64, Pointer("const struct ss_host_call")]
    hist: Annotated[int, ctypes.c_uint64, Pointer("uint64_t")]
    stats: Annotated[int, ctypes.c_uint64, Pointer("struct ss_channel_stats")]


@structure
class DriverCall(ctypes.Structure):
    """A driver call by its correlation id. Each of the two records of an id writes one cache line.

    From the record of the call: ``id``, thread, start and end. From the first record of its work: ``owned_id``, and the
    probe's call with its bits; the probe is NO_PROBE while that record waits for its call. Of a staged copy whose
    second half is to come: the number of its track from 1, and the length of the first half.
    """

    id: Int64
    thread: Int64
    start_ns: Int64
    end_ns: Int64
    owned_id: LineInt64
    probe: Int64
    iteration: Int64
    began_ns: Int64
    returned_ns: Int64
    op: Int64
    staged_track: Int64
    staged_ns: Int64


@structure
class GpuClock(ctypes.Structure):
    """The clock of a GPU: its time minus CLOCK_MONOTONIC, when that was read or confirmed, and samples of it.

    ``last_context`` is the number of the context whose work started last.
    """

    offset_ns: Int64
    confirmed_ns: Int64
    last_context: Int64
    sampled: Int64
    samples: Annotated[Any, ctypes.c_int64 * CLOCK_SAMPLES]


@structure
class TracedContext(ctypes.Structure):
    """A context: its number in records, that of its clock, and what the clock is followed by.

    ``switched_gpu_ns`` is when it was switched to last, on the GPU's clock, and ``worked_ns`` when its work started
    last, on the host's; 0 where a sample has used the time up.
    """

    number: Int64
    clock: Int64
    switched_gpu_ns: Int64
    worked_ns: Int64


@structure
class Collector(ctypes.Structure):
    """Data of the collector.

    ``stop`` ends it. ``exhausted_before`` is the pool's count when it began. ``kept`` records wait for their call in
    ``batch``, for ``patience`` rounds. ``batch`` and ``waiting`` have BATCH and MOST_KEPT records, ``order`` and
    ``merged`` BATCH numbers each, ``calls`` IDS entries.
    """

    stop: Int64
    version: Int64
    period_ns: LineInt64
    patience: Int64
    kept: Int64
    exhausted_before: Int64
    flush: Annotated[int, ctypes.c_uint64, Function("ss_flush")]
    next_record: Annotated[int, ctypes.c_uint64, Function("ss_next_record")]
    count_dropped: Annotated[int, ctypes.c_uint64, Function("ss_count_dropped")]
    context_count: UInt64
    clock_count: UInt64
    track_count: UInt64
    contexts: Annotated[int, ctypes.c_uint64, Pointer("struct ss_traced_context")]
    clocks: Annotated[int, ctypes.c_uint64, Pointer("struct ss_gpu_clock")]
    tracks: Annotated[int, ctypes.c_uint64, Pointer("struct ss_track")]
    calls: Annotated[int, ctypes.c_uint64, Pointer("struct ss_driver_call")]
    batch: Annotated[int, ctypes.c_uint64, Pointer("struct ss_gpu_record")]
    waiting: Annotated[int, ctypes.c_uint64, Pointer("struct ss_gpu_record")]
    order: Annotated[int, ctypes.c_uint64, Pointer("uint32_t")]
    merged: Annotated[int, ctypes.c_uint64, Pointer("uint32_t")]
    timeline: Annotated[int, ctypes.c_uint64, Pointer("struct ss_timeline_words")]
    records: Annotated[int, ctypes.c_uint64, Pointer("struct ss_gpu_record")]


@structure
class Detachment(ctypes.Structure):
    """Work of the subscriber's callback at the exit of a driver call: it calls ``finalize`` once, if that is not 0.

    ``code`` is what it returned, NOT_FINALIZED before.
    """

    finalize: Address
    code: Int64


# Result of cuptiFinalize that stands for "not called yet".
NOT_FINALIZED = -1
