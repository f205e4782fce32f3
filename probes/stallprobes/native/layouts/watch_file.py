"""Layout of the file that the injected library writes, one for each process.

All values are little-endian; each word has one writer, except the counts that several threads add to. What is not yet
in use is a hole of the file.
"""

import ctypes
from enum import IntEnum
from typing import Annotated, Any

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.histogram import BUCKETS
from stallprobes.native.layouts.structure import Int32, UInt8, UInt16, UInt32, UInt64, structure

# Version of the layout of the file in which the injected library records one process; another version is not read.
FILE_FORMAT = 9
# First 8 bytes of the file in which the injected library records one process.
FILE_MAGIC = int.from_bytes(b"stallsw1", "little")

# Environment variable of the injected library: absolute path of the folder for the file of the library's
# process.
FOLDER_VARIABLE = "STALLSCOPE_WATCH_FOLDER"
# Environment variable of the injected library: path of the libcupti that the library loads.
CUPTI_VARIABLE = "STALLSCOPE_WATCH_CUPTI"
# Environment variable of the injected library: shortest duration (ns) of a call that is kept as a slow call.
SLOW_VARIABLE = "STALLSCOPE_WATCH_SLOW_NS"
# Environment variable of the injected library: with 1, the library records calls alone, and no GPU work.
CALLS_ONLY_VARIABLE = "STALLSCOPE_WATCH_CALLS_ONLY"
# Environment variable of the injected library: with 1, the library stops recording and gives CUPTI to a
# profiler that the program starts.
YIELD_VARIABLE = "STALLSCOPE_WATCH_YIELD"
# Environment variable of the injected library: with 1, the library records no call stacks.
NO_STACKS_VARIABLE = "STALLSCOPE_WATCH_NO_STACKS"
# Environment variable of the injected library: largest cost of watching (ppm of the program's time).
COST_VARIABLE = "STALLSCOPE_WATCH_COST_PPM"
# Name of the lock file in the folder of the processes' files. Each stallscope that uses the folder holds a shared lock
# on this file. If no process holds the lock, the folder is not in use.
LOCK_FILE = "in-use.lock"
# Shortest duration (ns) of a call that is kept as a slow call, where SLOW_VARIABLE is not set.
DEFAULT_SLOW_NS = 1_000_000

# Size (bytes) of a page, to which the sections of a process's file are aligned.
PAGE = 4096
# Largest number of driver functions in a process's file.
APIS = 512
# Largest number of GPUs of a process whose UUIDs are in its file.
DEVICES = 16
# Number of the values of a GPU in a process's file that limit how many blocks of a kernel run at once. In this order:
# multiprocessors; and for each of these, its threads, its registers, its shared memory (bytes), its blocks, and the
# shared memory (bytes) that the system takes of each block.
DEVICE_LIMITS = 6
# Number of slots in a process's file. A slot holds the figures of a thread. A new thread may continue the slot of an
# ended thread.
SLOTS = 1024
# Largest number of histograms in a process's file: a histogram for each pair of a slot and a called function.
HISTOGRAMS = 8192
# Largest number of nested driver calls of a thread that are recorded: each is made inside the previous call.
DEPTH = 4
# Number of slow calls that a process's file keeps for each thread. A newer call replaces the oldest. Reason: stallscope
# reads the file at least once a second, and a second has fewer slow calls of 1 ms or more.
SLOW_CALLS = 1024
# Number of slow calls by which the memory of a process's file grows at a time.
SLOW_STEP = 128
# Largest number of GPU records in the ring of a process's file: several seconds of a program with 60 000 records a
# second. The file's header has the actual number, a multiple of RECORDS_STEP.
RECORDS = 1 << 19
# Number of GPU records by which the memory of a process's file grows at a time.
RECORDS_STEP = 1 << 14
# Largest number of blocks in the log of all calls in a process's file: 1.7 s of a program that makes 300 000 calls
# a second. The file's header has the actual number: at least LEAST_BLOCKS, and a multiple of BLOCKS_STEP.
CALL_BLOCKS = 1 << 11
# Smallest number of blocks in the log of all calls in a process's file.
LEAST_BLOCKS = 64
# Number of calls in a block of the log of all calls. A thread that has filled its block continues in the
# next free block.
BLOCK_CALLS = 256
# Number of blocks of the log of all calls by which the memory of a process's file grows at a time.
BLOCKS_STEP = 16
# Time (ns) in which a thread's repeated queries (such as cuEventQuery of the same event) are not logged. The time
# begins when the thread has logged two equal queries in a row. A query that finds the work ended is always logged.
# Reason: a polling thread makes millions of queries a second.
QUERIES_NS = 20_000
# Size (bytes) of the section of a process's file with the names of kernels.
NAME_BYTES = 1 << 22
# Size (bytes) for names of kernels by which the memory of a process's file grows at a time.
NAMES_STEP = 1 << 18
# Longest name (bytes) of a kernel that is kept whole, while less than half of NAME_BYTES is used.
LONGEST_NAME = 4096
# Longest name (bytes) of a kernel that is kept whole, once half of NAME_BYTES is used.
LONGEST_LATE_NAME = 512
# Number of bytes that are kept at each end of a kernel's name that is too long.
NAME_ENDS = 200
# Text in place of the middle of a kernel's name that is too long.
NAME_GAP = "..."
# Largest number of modules (executable and libraries) in a process's file.
MODULES = 512
# Largest number of different call stacks in a process's file.
STACKS = 1024
# Largest number of native frames (addresses) in a call stack.
STACK_FRAMES = 64
# Largest size (bytes) of the Python frames of a call stack, which are text. Reason: a stack then fills two pages.
STACK_TEXT = 7664
# Average time (ns) between two samples of a thread's call stack. The injected library samples the time inside
# driver calls and the time between them separately.
SAMPLE_NS = 5_000_000
# Average time (ns) between two additional call-stack samples of a thread's waits. Reason: short waits hardly ever get a
# sample by SAMPLE_NS. An additional sample stands for all waits since the previous additional sample, and holds their
# number.
WAIT_SAMPLE_NS = 50_000_000
# Number of call-stack samples in the ring of a process's file: about 80 s of one thread.
TIME_SAMPLES = 1 << 14
# Size (bytes) of the name of an NVTX range in a process's file, with the final zero.
RANGE = 64
# Largest number of different NVTX range names in one thread. A process's file keeps begin times for these names
# only.
THREAD_RANGES = 64
# Largest number of NVTX range names in a process's file, each counted once for each thread that uses it. The file keeps
# begin times for these names only.
RANGES = 256
# Number of begin times that a process's file keeps for each name and thread of NVTX ranges. Newer begin times replace
# the oldest. If a range begins every millisecond, its begin times cover a second.
RANGE_BEGINS = 1024
# Largest share of a thread's time that may be spent on its call stacks, as a divisor: 100 stands for 1 %. If
# COST_VARIABLE is below DEFAULT_COST_PPM, the share is lower in proportion.
STACK_SHARE = 100
# Largest cost of watching (ppm of the program's time), where COST_VARIABLE is not set.
DEFAULT_COST_PPM = 50_000
# Smallest value of COST_VARIABLE (ppm of the program's time) that sets no limit: everything is recorded.
EVERYTHING_PPM = 1_000_000
# Assumed time (ns) by which recording lengthens an NVTX range. Measured: 65 to 80 ns in a loop of ranges alone, with
# warm caches.
RANGE_NS = 100
# Assumed cost (ns) of a GPU record for the thread that submits the work. The injected library limits its recording by
# this figure. The 95 % intervals of the measured cost ended at 4.9 us in a ResNet training and at 5.6 us in a JAX step
# (H100, CUPTI 13.5).
RECORD_NS = 6000
# Assumed cost (ns) of the record of a graph's node. The injected library limits its recording by this figure. The
# measured cost was 0.25 us in a graph that was launched repeatedly, and 1.4 us in a graph that was just instantiated
# (H200, CUPTI 13.5).
NODE_RECORD_NS = 1500
# Smallest number of graph instantiations per second at which the injected library records no GPU work, unless the cost
# of watching has no limit. Recording slowed a program that did little else than instantiate graphs by 15 to 30 %
# (H200, CUPTI 13.5).
GRAPHS_PER_S = 100
# Number of windows that a process's file keeps. In a window, GPU work was recorded, or was not recorded. With four
# switches a second, the windows cover half an hour.
WINDOWS = 1 << 13
# Number of a thread's CUPTI callbacks per timed callback. The injected library times callbacks to measure its own cost.
# The number is odd, so that the begins and the ends of calls are timed equally often.
TIMED_CALLBACKS = 255

# Kinds of CUPTI records that the injected library collects, if CUPTI has them. Records of synchronizations (kind 38)
# would cost each launch 0.2 to 0.4 us, and contain no more than the log of the calls (see
# attribution/stream_numbers.py).
COLLECTED = (
    RecordKind.KERNEL, RecordKind.COPY, RecordKind.PEER_COPY, RecordKind.MEMSET, RecordKind.OVERHEAD,
    RecordKind.CONTEXT_SWITCH,
)  # fmt: skip
# Kinds of CUPTI records that stallscope accepts in a process's file.
READABLE = (*COLLECTED, RecordKind.STREAM, RecordKind.SYNCHRONIZATION)
# Kinds of CUPTI records of GPU work. The injected library switches them off for some windows of time, to limit its
# cost. The other kinds are rare, and switching them takes milliseconds.
SWITCHED = (RecordKind.KERNEL, RecordKind.COPY, RecordKind.PEER_COPY, RecordKind.MEMSET)


class WatchState(IntEnum):
    """State of the library in a process.

    STARTING: no recording has begun. RECORDING: a recording has begun. NO_CUPTI: no libcupti could be loaded.
    CUPTI_TOO_OLD: the libcupti is older than stallscope supports. CUPTI_TAKEN: CUPTI has another subscriber, such as a
    profiler. CUPTI_FAILED: a function of CUPTI failed. YIELDED: the library has given CUPTI to a profiler of the
    program.
    """

    STARTING = 0
    RECORDING = 1
    NO_CUPTI = 2
    CUPTI_TOO_OLD = 3
    CUPTI_TAKEN = 4
    CUPTI_FAILED = 5
    YIELDED = 6


class Lack(IntEnum):
    """Resource that a process lacks for a recording.

    MEMORY: memory of the machine. CGROUP: memory within the limit of the process's cgroup. FOLDER: space in the folder.
    ADDRESSES: address space. FILE_SIZE: a limit of file sizes that is high enough. LOCKED: a limit of locked memory
    that is high enough. DESCRIPTORS: a file descriptor. MEMFD: the right to make a memfd. THREADS: a thread. UNKNOWN: a
    resource without a number of its own.
    """

    UNKNOWN = 0
    MEMORY = 1
    CGROUP = 2
    FOLDER = 3
    ADDRESSES = 4
    FILE_SIZE = 5
    LOCKED = 6
    DESCRIPTORS = 7
    MEMFD = 8
    THREADS = 9


class SlotUse(IntEnum):
    """Owner of a slot.

    UNUSED: nobody yet. LIVE: a live thread. ENDED: an ended thread. CLAIMED: the next thread, which prepares the slot.
    """

    UNUSED = 0
    LIVE = 1
    ENDED = 2
    CLAIMED = 3


class LossKind(IntEnum):
    """What was not recorded, and why. The numbers are indices of the header's ``losses``.

    Calls. NO_SLOT: the thread had no slot. NO_HISTOGRAM: the thread had no histogram for the function. UNMATCHED: the
    library did not see the call's begin. BEFORE_FILE: the call returned before the recording had its file. NO_BLOCK:
    the log of all calls had no block for the call; the call's histogram has the call.
    Records. NO_BUFFER: CUPTI asked for a buffer and got none; the requests are counted, not the records.
    DROPPED_BY_CUPTI: CUPTI dropped the record, such as for lack of a buffer. UNKNOWN_RECORD: the library cannot read
    the record. NO_TIME: the start and end of the work are 0, as in some versions of CUPTI. NO_SPACE: the file had no
    space for the record.
    Names and stacks. NO_NAME: the file had no space for a kernel's name. NO_STACK: the file had no space for a call
    stack.
    """

    NO_SLOT = 0
    NO_HISTOGRAM = 1
    UNMATCHED = 2
    BEFORE_FILE = 3
    NO_BUFFER = 4
    DROPPED_BY_CUPTI = 5
    UNKNOWN_RECORD = 6
    NO_NAME = 7
    NO_STACK = 8
    NO_TIME = 9
    NO_SPACE = 10
    NO_BLOCK = 11

    @property
    def is_call(self) -> bool:
        """True if the lost entries are calls."""
        return self <= LossKind.BEFORE_FILE

    @property
    def is_record(self) -> bool:
        """True if the lost entries are activity records."""
        return self in (LossKind.DROPPED_BY_CUPTI, LossKind.UNKNOWN_RECORD, LossKind.NO_TIME, LossKind.NO_SPACE)


class Flag(IntEnum):
    """A bit of the header's flags.

    CALLS_ONLY: no GPU work is recorded. YIELD: the library gives CUPTI to a profiler that the program starts. FORKED:
    the process was forked by a recorded process. NO_STACKS: the user wants no stacks. NATIVE_STACKS, PYTHON_STACKS: the
    library can record native or Python frames. FREE_THREADED: Python has no global lock, so its frames are not read.
    LATE: the recording began while the program ran. GRAPHS: for some time GPU work was not recorded, since the program
    instantiated graphs again and again. FINALIZED: the recording has ended and CUPTI was finalized, so nothing of CUPTI
    slows the program. BESIDE: CUPTI is a second libcupti that was loaded beside the program's own; in a request: it
    may be.
    """

    CALLS_ONLY = 1
    YIELD = 2
    FORKED = 4
    NO_STACKS = 8
    NATIVE_STACKS = 16
    PYTHON_STACKS = 32
    FREE_THREADED = 64
    LATE = 128
    GRAPHS = 256
    FINALIZED = 512
    BESIDE = 1024


class CallFlag(IntEnum):
    """A bit of a call's flags.

    STREAM: the call has a stream. BYTES: the call has a number of bytes. NESTED: the call was made inside another call.
    EVENT: ``bytes`` is the handle of an event. BLOCKING: the call has created ``stream``; this stream and the legacy
    default stream wait for each other.
    """

    STREAM = 1
    BYTES = 2
    NESTED = 4
    EVENT = 8
    BLOCKING = 16


class BlockState(IntEnum):
    """State of a block of the log: free, or owned by the thread that fills it."""

    FREE = 0
    OWNED = 1


class StackFlag(IntEnum):
    """A bit of a stack's flags.

    NATIVE_CUT: the stack has more native frames than were recorded. PYTHON_CUT: the stack has more Python frames than
    were recorded.
    """

    NATIVE_CUT = 1
    PYTHON_CUT = 2


class SampledTime(IntEnum):
    """Kind of time that a sample of a thread stands for: time inside its outermost calls, time between them, or
    waits."""

    INSIDE = 0
    BETWEEN = 1
    WAITS = 2


@structure
class FileHeader(ctypes.Structure):
    """The file's first words. The library writes ``magic`` last, so a file without it is not yet complete.

    - ``python``: version of the Python interpreter in the process, empty without one.
    - ``stacks`` and ``stacks_ns``: number of stacks that were taken, and the time on a CPU that they took.
    - ``cost_ppm``: largest cost of watching.
    - ``windows``: number of windows that have begun; without any, records were never off.
    - ``not_held``: calls that began while kinds were switched; CUPTI may give no more records of their threads.
    - ``unfinished``: records of calls in flight when CUPTI gave a buffer back; they never get their content.
    - ``timed`` and ``timed_ns``: number of timed callbacks, one of ``TIMED_CALLBACKS``, and the time of all of them.
    - ``samples``: samples of the threads' time that were taken.
    - ``record_places`` and ``call_blocks``: how many records and blocks of calls the file keeps, by the room that the
      process had.
    - ``out_of_space``: 1 while there is no more room.
    - ``graphs``: number of graphs that were instantiated.
    - ``devices``: number of GPUs whose UUIDs are known; ``uuids`` has them, 16 bytes each, by CUDA's numbers.
    - ``limits``: ``DEVICE_LIMITS`` values of each of these GPUs; 0 for one that is not known.
    - ``recorded_ns`` and ``unrecorded_ns``: between these times GPU work was recorded, apart from windows without
      records; 0 as long as it is not.
    - ``cpus_ppm``: how many CPUs the process used in the mean of the recording, in millionths; 0 if not known.
    - ``interpreter`` and ``interpreter_bytes``: where the state of the Python interpreter is, with its global lock; 0
      without one, or where it is not known.
    """

    magic: UInt64
    format: UInt32
    flags: UInt32
    pid: UInt32
    parent_pid: UInt32
    start_ticks: UInt64
    state: UInt32
    code: Int32
    cupti_version: UInt32
    refused_kind: UInt32
    refused_code: Int32
    not_held: UInt32
    kinds: UInt64
    slow_ns: UInt64
    started_ns: UInt64
    started_realtime_ns: UInt64
    blocks: UInt64
    clock_sequence: UInt64
    clock_ns: UInt64
    clock_realtime_ns: UInt64
    yielded_ns: UInt64
    ended_ns: UInt64
    records: UInt64
    losses: Annotated[Any, ctypes.c_uint64 * len(LossKind)]
    apis: UInt32
    slots: UInt32
    histograms: UInt32
    name_bytes: UInt32
    out_of_space: UInt32
    ended_slots: UInt32
    modules: UInt32
    unfinished: UInt32
    stacks: UInt64
    stacks_ns: UInt64
    windows: UInt64
    timed: UInt64
    timed_ns: UInt64
    cost_ppm: UInt64
    function: Annotated[bytes, ctypes.c_char * 48]
    program: Annotated[bytes, ctypes.c_char * 16]
    python: Annotated[bytes, ctypes.c_char * 16]
    cupti_path: Annotated[bytes, ctypes.c_char * 512]
    command: Annotated[bytes, ctypes.c_char * 1024]
    samples: UInt64
    ranges: UInt32
    record_places: UInt32
    call_blocks: UInt32
    graphs: UInt32
    devices: UInt32
    unused: UInt32
    uuids: Annotated[Any, ctypes.c_uint8 * (16 * DEVICES)]
    interpreter: UInt64
    interpreter_bytes: UInt64
    recorded_ns: UInt64
    unrecorded_ns: UInt64
    cpus_ppm: UInt64
    limits: Annotated[Any, ctypes.c_uint32 * (DEVICE_LIMITS * DEVICES)]


@structure
class Api(ctypes.Structure):
    """A watched function of the driver: its number in this libcupti, and its name."""

    number: UInt32
    name: Annotated[bytes, ctypes.c_char * 60]


@structure
class Call(ctypes.Structure):
    """A call of the program."""

    start_ns: UInt64
    stream: UInt64
    bytes: UInt64
    context: UInt32
    correlation: UInt32
    api: UInt32
    source: UInt8
    target: UInt8
    flags: UInt8
    unused: UInt8


@structure
class SlowCall(ctypes.Structure):
    """A call that took long. ``stack`` is the number of its stack from 1, 0 for none; ``range`` its NVTX range.

    ``sequence`` is 2n + 1 while entry number n is written and 2n + 2 once it is complete; so in the ring of records.
    """

    sequence: UInt64
    end_ns: UInt64
    call: Annotated[Call, Call]
    result: Int32
    thread: UInt32
    stack: UInt32
    unused: UInt32
    range: Annotated[bytes, ctypes.c_char * RANGE]


@structure
class LoggedCall(ctypes.Structure):
    """A finished call in a block of the log."""

    call: Annotated[Call, Call]
    end_ns: UInt64


@structure
class CallBlock(ctypes.Structure):
    """Block of the log of all calls: ``calls`` finished calls of one thread, in the order of their ends.

    ``number`` counts the blocks that were taken, from 1; it is 0 while the block passes to another thread. The block's
    first call is number ``first`` of its slot, from 0.
    """

    number: UInt64
    first: UInt64
    slot: UInt32
    thread: UInt32
    calls: UInt32
    state: UInt32


@structure
class Slot(ctypes.Structure):
    """A thread of the program.

    Without a free slot, a new thread continues the slot of an ended thread and adds to its figures.

    - ``owners``: number of these threads.
    - ``finished``, ``asked``: returned calls that do more than ask, and those that only ask.
    - ``kept``: returned calls that are not frequent, whose callbacks are never off.
    - ``sequence``: odd while ``depth`` and ``calls`` change.
    - ``logged``: calls in blocks that the slot has filled.
    - ``histograms``: for each API the number of the slot's histogram, from 1.
    - ``stack``: number of a stack of the owner, from 1, by which a thread of Python's is named; 0 for none.
    """

    use: UInt32
    thread: UInt32
    started_ns: UInt64
    ended_ns: UInt64
    lost: UInt64
    logged: UInt64
    finished: UInt64
    slow_calls: UInt64
    sequence: UInt64
    depth: UInt32
    owners: UInt32
    name: Annotated[bytes, ctypes.c_char * 16]
    calls: Annotated[Any, Call * DEPTH]
    histograms: Annotated[Any, ctypes.c_uint32 * APIS]
    stack: UInt32
    unused: UInt32
    slow: Annotated[Any, SlowCall * SLOW_CALLS]
    asked: UInt64
    kept: UInt64


@structure
class CallHistogram(ctypes.Structure):
    """The calls of one function by one thread."""

    api: UInt32
    slot: UInt32
    max_ns: UInt64
    total_ns: UInt64
    slow: UInt64
    failed: UInt64
    counts: Annotated[Any, ctypes.c_uint64 * BUCKETS]


@structure
class WatchRecord(ctypes.Structure):
    """An activity record.

    ``name`` is the offset of the kernel's name in the names, plus 1. ``subkind`` is the direction of a copy, the reason
    of an overhead, or the operation of a context switch, whose ``start`` is the GPU's own clock; of a kernel, the
    number of its blocks. ``thread`` is the thread of an overhead, and the other device of a peer copy; of a kernel, the
    shape of a block: from the lowest bit on its threads less 1 (10 bits), the registers of each (8 bits), and its
    shared memory in units of 16 bytes (14 bits). ``bytes`` of a kernel are those of local memory that are
    reserved for all threads that the GPU has room for.
    """

    sequence: UInt64
    start: UInt64
    end: UInt64
    bytes: UInt64
    kind: UInt16
    source: UInt8
    target: UInt8
    subkind: UInt32
    correlation: UInt32
    device: UInt32
    context: UInt32
    stream: UInt32
    name: UInt32
    thread: UInt32


@structure
class Window(ctypes.Structure):
    """A time in which records of the GPU's work are on, or off (``records``: 1 or 0). In a ``quiet`` one callbacks of
    frequent calls are off too, so that these calls are in no log and no figure.

    ``sequence`` is 2n + 1 while entry number n is written and 2n + 2 after that. ``ended_ns`` is 0 in the last window.
    ``calls`` counts the calls of all slots that returned in the window, as ``finished`` does, and ``took_ns`` is the
    time of the window without the switches at its ends. ``busiest`` is the largest number of these calls in one slot,
    or of all slots by the number of CPUs that the process used: threads that call by turns are slowed one after the
    other. ``kept`` counts the calls that are not frequent.
    ``counted`` records of all kinds were read in it, up to a flush after their work. ``settled_ns`` is when a call that
    waits for the GPU and began in the window had returned, 0 before: until then, work may run that was submitted
    without records.
    """

    sequence: UInt64
    began_ns: UInt64
    ended_ns: UInt64
    calls: UInt64
    busiest: UInt32
    kept: UInt32
    took_ns: UInt64
    settled_ns: UInt64
    records: UInt16
    quiet: UInt16
    counted: UInt32


@structure
class Module(ctypes.Structure):
    """A program or library with frames of stacks: its code is from ``start`` to ``end``, moved by ``base`` from the
    addresses for which it is linked."""

    start: UInt64
    end: UInt64
    base: UInt64
    build_id_bytes: UInt32
    build_id: Annotated[Any, ctypes.c_uint8 * 20]
    path: Annotated[bytes, ctypes.c_char * 464]


@structure
class Stack(ctypes.Structure):
    """A call stack: ``addresses`` of its native frames, and ``text`` of its Python frames as Python writes it; both
    begin with the innermost."""

    ready: UInt32
    frames: UInt32
    text_bytes: UInt32
    flags: UInt32
    addresses: Annotated[Any, ctypes.c_uint64 * STACK_FRAMES]
    text: Annotated[bytes, ctypes.c_char * STACK_TEXT]


@structure
class NamedRange(ctypes.Structure):
    """The NVTX ranges of one thread with one ``name``; each number in it is ``#``, so that all steps have one name.

    ``begun`` ranges have begun; ``begins`` has the last RANGE_BEGINS begins, number n at n modulo RANGE_BEGINS. The
    ended ranges took ``inside_ns``. ``use`` is as in a slot: another thread continues an entry whose owner has ended.
    """

    use: UInt32
    thread: UInt32
    begun: UInt64
    inside_ns: UInt64
    name: Annotated[bytes, ctypes.c_char * RANGE]
    begins: Annotated[Any, ctypes.c_uint64 * RANGE_BEGINS]


@structure
class TimeSample(ctypes.Structure):
    """A sample of a thread's time, taken at ``at_ns``, which stands for ``ns`` of it, or for ``ns`` waits.

    ``sampled`` is a ``SampledTime``. Inside calls, the sampled one began at ``since_ns`` and returned at ``at_ns``, as
    did a wait; between calls, the one before returned at ``since_ns`` and the next began at ``at_ns``. ``api`` is the
    function of that call, ``stack`` the number of the stack from 1, 0 if none could be taken. ``cpu_ns`` is the time
    that the thread had spent on a CPU. ``sequence`` is as in the ring of records. ``holder`` is the number of the stack
    of the thread that had Python's global lock, if that was another one while the thread was looked at between calls,
    else 0; where the thread slept for a lock of the module threading, it is STACKS and the number of the stack of the
    thread that had that, if it was found.
    """

    sequence: UInt64
    at_ns: UInt64
    since_ns: UInt64
    ns: UInt64
    cpu_ns: UInt64
    thread: UInt32
    stack: UInt32
    api: UInt32
    sampled: UInt16
    holder: UInt16


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


# Offset (bytes) of the driver functions in a process's file, behind its header.
APIS_AT = _pages(ctypes.sizeof(FileHeader))
# Offset (bytes) in a process's file of the descriptions of the blocks of the log of all calls.
BLOCKS_AT = APIS_AT + _pages(APIS * ctypes.sizeof(Api))
# Offset (bytes) of the names of kernels in a process's file.
NAMES_AT = BLOCKS_AT + _pages(CALL_BLOCKS * ctypes.sizeof(CallBlock))
# Offset (bytes) of the ring of GPU records in a process's file.
RECORDS_AT = NAMES_AT + NAME_BYTES
# Offset (bytes) in a process's file of the logged calls, block after block.
CALLS_AT = RECORDS_AT + RECORDS * ctypes.sizeof(WatchRecord)
# Distance (bytes) between the starts of two blocks of calls in a process's file.
BLOCK_PITCH = BLOCK_CALLS * ctypes.sizeof(LoggedCall)
# Offset (bytes) of the threads' slots in a process's file.
SLOTS_AT = CALLS_AT + CALL_BLOCKS * BLOCK_PITCH
# Distance (bytes) between the starts of two threads' slots in a process's file.
SLOT_PITCH = _pages(ctypes.sizeof(Slot))
# Offset (bytes) of the histograms in a process's file.
HISTOGRAMS_AT = SLOTS_AT + SLOTS * SLOT_PITCH
# Distance (bytes) between the starts of two histograms in a process's file.
HISTOGRAM_PITCH = _pages(ctypes.sizeof(CallHistogram))
# Offset (bytes) of the call stacks in a process's file.
STACKS_AT = HISTOGRAMS_AT + HISTOGRAMS * HISTOGRAM_PITCH
# Distance (bytes) between the starts of two call stacks in a process's file.
STACK_PITCH = _pages(ctypes.sizeof(Stack))
# Offset (bytes) of the modules in a process's file.
MODULES_AT = STACKS_AT + STACKS * STACK_PITCH
# Offset (bytes) of the windows (times with or without records of GPU work) in a process's file.
WINDOWS_AT = MODULES_AT + _pages(MODULES * ctypes.sizeof(Module))
# Offset (bytes) of the ring of call-stack samples in a process's file.
SAMPLES_AT = WINDOWS_AT + _pages(WINDOWS * ctypes.sizeof(Window))
# Offset (bytes) of the begin times of NVTX ranges in a process's file.
RANGES_AT = SAMPLES_AT + _pages(TIME_SAMPLES * ctypes.sizeof(TimeSample))
# Distance (bytes) between the starts of two NVTX range names' entries in a process's file. An entry holds the begin
# times of a name in a thread.
RANGE_PITCH = _pages(ctypes.sizeof(NamedRange))
# Size (bytes) of a process's file.
FILE_BYTES = RANGES_AT + RANGES * RANGE_PITCH
