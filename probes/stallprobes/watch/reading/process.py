"""A watched process as its file describes it: threads, calls in flight, histograms, slow calls, activity records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stallprobes.files.codec import Document, Int64, PlainDocument, String, Unsigned
from stallprobes.latency.histogram import Histogram
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.driver_calls import CallFamily, family_of
from stallprobes.native.layouts.watch_file import LossKind, TimeSample
from stallprobes.records.rows import DRIVER_CALL, Rows
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.record_windows import NO_WINDOWS, RecordWindows
from stallprobes.watch.reading.words import Memory, ProcessState

# Granularity of a GPU's resources (CUDA's occupancy calculator, compute capability 8.0 and later). _WARP: threads of a
# warp. _REGISTERS_AT_ONCE: registers that a warp gets at a time. _SHARED_AT_ONCE: bytes of shared memory that a block
# gets at a time. _PARTITIONS: parts of a multiprocessor, among which its registers are divided equally.
_WARP, _REGISTERS_AT_ONCE, _SHARED_AT_ONCE, _PARTITIONS = 32, 256, 128, 4
# A call of a process: the id of its thread, and when it began (ns).
CallKey = tuple[int, int]


class DriverCall(PlainDocument, kw_only=True):
    """A call of the driver: who made it, and with which arguments."""

    function: String
    """Function of the driver."""
    thread: Unsigned
    """Thread id of the system."""
    # "" in a reading, which has the names by thread.
    thread_name: String = ""
    begin_ns: Unsigned
    """When it began, on CLOCK_MONOTONIC."""
    stream: Unsigned | None
    """Handle of the stream; null without such an argument. 0 is the NULL stream."""
    bytes: Unsigned | None
    """Null without such an argument."""
    source: Memory | None
    """Memory that a copy reads; null if it is not known, as for other calls."""
    target: Memory | None
    """Memory that it writes."""
    context: Unsigned
    """CUPTI's number of the context, as in records."""
    correlation: Unsigned
    """CUPTI's number of the call."""

    @property
    def family(self) -> CallFamily | None:
        """What its function does; None for one that is not known."""
        return family_of(self.function)

    @property
    def key(self) -> CallKey:
        """What identifies the call in its process."""
        return self.thread, self.begin_ns

    @property
    def pageable(self) -> bool:
        """True if it copies from or to pageable memory."""
        return Memory.PAGEABLE in (self.source, self.target)


class FinishedCall(DriverCall, kw_only=True):
    """A call that has returned."""

    duration_ns: Unsigned
    result: Int64
    """The driver's code, 0 for success."""
    range: String = ""
    """The innermost NVTX range that the thread had pushed, else the last one that was started before the call and had
    not ended; empty without one."""

    @property
    def end_ns(self) -> int:
        """When it returned."""
        return self.begin_ns + self.duration_ns


class SlowDriverCall(FinishedCall, kw_only=True):
    """A call that took at least the limit. ``stack`` is the number of its stack in the file, 0 for none."""

    stack: int = 0


class CallFigures(Document, kw_only=True):
    """All finished calls of one function in one thread."""

    # In JSON, its place has the name of what it is.
    total: Histogram = msgspec.field(name="histogram_ns")
    """Of the durations: lower bound of each bucket in ns, and its number of calls."""
    total_ns: Unsigned
    slow: Unsigned
    """Calls that took at least the limit."""
    failed: Unsigned
    """Calls that gave an error."""


# Figures of a function that a thread has not called.
NO_FIGURES = CallFigures(total=Histogram.empty(), total_ns=0, slow=0, failed=0)


@dataclass(frozen=True)
class WatchedThread:
    """A thread that made a call. ``figures`` are by function; ``slot`` is its place in the file.

    In a process of more than a thousand threads, several share one: ``owners`` is their number, the last one is
    described, and the figures and slow calls are of all of them. ``in_flight`` is empty too if the file changed at each
    attempt to read it. ``slow_calls`` are the last of ``slow_count``, oldest first. ``lost`` calls are in no histogram.
    ``stack`` is the number of one of its stacks in the file, by which a thread of Python's is named, 0 for none.
    ``logged`` calls at least are or were in the log of all calls.
    """

    id: int
    name: str
    started_ns: int
    ended_ns: int | None
    in_flight: tuple[DriverCall, ...]
    figures: Mapping[str, CallFigures]
    slow_calls: tuple[SlowDriverCall, ...]
    slow_count: int
    stack: int
    slot: int
    owners: int
    lost: int
    logged: int = 0

    @property
    def functions(self) -> Iterable[str]:
        """The functions that it has called, also those that have not returned."""
        return dict.fromkeys((*self.figures, *(call.function for call in self.in_flight)))

    @property
    def calls(self) -> int:
        """Finished calls in histograms."""
        return sum(figures.total.count for figures in self.figures.values())


@dataclass(frozen=True)
class LoadedModule:
    """A program or library in the memory of the process, with its code from ``start`` to ``end``.

    ``base`` is what it was moved by from the addresses for which it is linked. ``path`` is "" if it was too long.
    """

    start: int
    end: int
    base: int
    build_id: bytes
    path: str


@dataclass(frozen=True, eq=False)
class NamedRange:
    """The NVTX ranges of one thread with one ``name``, in which each number is ``#``.

    ``place`` is that in the file. ``begun`` have begun, the last of them at ``begins`` (int64[n], ns on
    CLOCK_MONOTONIC, in their order). Those that have ended took ``inside_ns``.
    """

    place: int
    thread: int
    name: str
    begun: int
    begins: NDArray[np.int64]
    inside_ns: int


@dataclass(frozen=True)
class RecordedStack:
    """A call stack as the file has it: addresses of native frames, and the text that Python wrote of its own.

    Both begin with the innermost frame; ``native_cut`` and ``text_cut`` say that the outermost are missing.
    """

    addresses: tuple[int, ...]
    text: str
    native_cut: bool
    text_cut: bool


@dataclass(frozen=True)
class ClockPair:
    """The same moment on CLOCK_MONOTONIC and on CLOCK_REALTIME."""

    monotonic_ns: int
    realtime_ns: int


class ProcessHead(Document, kw_only=True):
    """A process and how it is recorded."""

    pid: Unsigned
    parent_pid: Unsigned
    image: Unsigned
    """Number of programs that the process has executed with CUDA before."""
    name: String
    """Of the program."""
    command: String
    state: ProcessState
    """What the injected library does in the process."""
    failed_function: String
    """Function of CUPTI that failed; empty if none did."""
    code: Int64
    """What it returned, else 0."""
    cupti_path: String
    cupti_version: Unsigned
    python: String = ""
    """Version of the Python interpreter in the process; empty without one."""
    calls_only: bool
    slow_limit_ns: Unsigned
    """The limit from which a call is slow."""
    records: Unsigned
    gpus: tuple[String, ...] = ()
    """UUIDs, without GPU- or MIG-, of the GPUs that it sees, by CUDA's numbers in it; empty if not known."""


class GpuLimits(NamedTuple):
    """How much a GPU runs at once: the number of its multiprocessors, and for each of these its threads, registers,
    shared memory (bytes) and blocks, and the shared memory (bytes) that the system takes of each block."""

    multiprocessors: int
    threads: int
    registers: int
    shared: int
    blocks: int
    reserved: int

    def blocks_at_once(self, threads: int, registers: int, shared: int) -> int:
        """How many blocks of a kernel it runs at once, by the threads of a block, the registers of a thread and the
        shared memory (bytes) of a block (CUDA's occupancy calculator, compute capability 8.0 and later)."""
        warps = -(-max(threads, 1) // _WARP)
        of_warp = -(-max(registers, 1) * _WARP // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE
        used = -(-(shared + self.reserved) // _SHARED_AT_ONCE) * _SHARED_AT_ONCE
        by_registers = self.registers // _PARTITIONS // of_warp * _PARTITIONS
        limits = (self.blocks, self.threads // _WARP // warps, by_registers // warps, self.shared // used)
        return self.multiprocessors * min(limits)


class WatchedProcess(ProcessHead, kw_only=True):
    """A process and what was recorded of it.

    - ``losses``: counts of what the library could not record.
    - ``start_ticks``: when it began, as in /proc.
    - ``ended_ns``: None unless the program ended by exit, or the recording before it.
    - ``no_stacks``: the user wants no call stacks.
    - ``native_stacks`` and ``python_stacks``: which frames of a stack the library can record.
    - ``interpreter``: the address and the bytes of the state of its Python interpreter, with the global lock; zeros
      where that is not known.
    - ``free_threaded``: the library records no frames of Python, since it is a build without the global lock.
    - ``budget``: the share (0 to 1) of the program's time that watching may cost.
    - ``callback_ns``: the mean time of a callback of the library.
    - ``stacks_ns``: the time that all stacks took.
    - ``not_held``: calls that began while records were switched, so that CUPTI may give no more records of their
      threads; records are switched on no more then.
    - ``unfinished``: records that were given back while their calls were held up, and never had any content.
    - ``late``: the recording began while the program ran.
    - ``recorded_ns`` and ``unrecorded_ns``: from when and until when GPU work was recorded at all (ns on
      CLOCK_MONOTONIC); None until it ends.
    - ``cpus``: how many CPUs it used in the mean, at least 1; None where that is not known.
    - ``leaves_graphs``: work of the GPU was not recorded while it instantiated graphs again and again.
    - ``finalized``: its recording has ended, and CUPTI has left the driver.
    - ``beside``: a second libcupti recorded it, not that which the program has loaded itself.
    - ``ranges``: the program's own names for parts of its time.
    - ``limits``: of each of ``gpus``, None where they are not known.
    """

    losses: Mapping[LossKind, int]
    start_ticks: int
    kinds: frozenset[int]
    started: ClockPair
    clocks: ClockPair
    ended_ns: int | None
    threads: tuple[WatchedThread, ...]
    no_stacks: bool = False
    native_stacks: bool = False
    python_stacks: bool = False
    free_threaded: bool = False
    interpreter: tuple[int, int] = (0, 0)
    windows: RecordWindows = NO_WINDOWS
    budget: float = 1.0
    callback_ns: float = 0.0
    stacks_ns: int = 0
    not_held: int = 0
    unfinished: int = 0
    late: bool = False
    recorded_ns: int = 0
    unrecorded_ns: int | None = None
    cpus: float | None = None
    leaves_graphs: bool = False
    finalized: bool = False
    beside: bool = False
    ranges: tuple[NamedRange, ...] = ()
    limits: tuple[GpuLimits | None, ...] = ()

    @property
    def calls(self) -> int:
        """Finished calls in histograms."""
        return sum(thread.calls for thread in self.threads)

    @property
    def lost_calls(self) -> int:
        """Finished calls that are in no histogram."""
        return sum(count for kind, count in self.losses.items() if kind.is_call)

    @property
    def lost_records(self) -> int:
        """Activity records that were dropped before they reached the file, as far as they were counted."""
        return sum(count for kind, count in self.losses.items() if kind.is_record)

    @property
    def nameless_kernels(self) -> int:
        """Records of kernels that came without a name, since the file had no space for it."""
        return self.losses.get(LossKind.NO_NAME, 0)


@dataclass(frozen=True)
class RecordBatch:
    """Records from one position of the ring to another: ``rows`` in the layout of the file, names by their place.

    ``next`` is the position after them; ``missed`` records were overwritten before they were read.
    """

    rows: NDArray[Any]
    names: Mapping[int, str]
    next: int
    missed: int

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class CallBatch:
    """Calls that finished since the reading before: DRIVER_CALL[n] in the order of their ends.

    ``functions`` are the names of functions by their numbers. ``missed`` calls were overwritten before they were read;
    they had returned at ``complete_ns`` (CLOCK_MONOTONIC). ``filled`` is the share of the log that was filled.
    """

    rows: Rows
    functions: Mapping[int, str]
    missed: int
    complete_ns: int = 0
    filled: float = 0.0

    def __len__(self) -> int:
        return len(self.rows)


# The calls of a reading in which none finished.
NO_CALLS = CallBatch(np.zeros(0, DRIVER_CALL), {}, 0)


@dataclass(frozen=True)
class SampleBatch:
    """Samples of the threads' time from one position of the ring to another, in the layout of the file (TimeSample).

    ``functions`` are the names of functions by their numbers. ``next`` is the position after them; ``missed`` samples
    were overwritten before they were read.
    """

    rows: NDArray[Any]
    functions: Mapping[int, str]
    next: int
    missed: int

    def __len__(self) -> int:
        return len(self.rows)


# The samples of a reading in which none was taken.
NO_SAMPLES_OF_TIME = SampleBatch(np.zeros(0, dtype_of(TimeSample)), {}, 0, 0)


@dataclass(frozen=True)
class OutsideReading:
    """What is known of a process from outside: of its calls in flight, and of those that have returned since.

    ``stacks`` are by py-spy. ``kernel_waits`` are the functions of the kernel in which their threads wait, or RUNNING.
    ``problems`` are sentences that say what could not be read.
    """

    stacks: Mapping[CallKey, CallStack] = field(default_factory=dict)
    kernel_waits: Mapping[CallKey, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


# Reading without call stacks and kernel waits: the calls in flight of a process were not inspected from outside.
NOTHING_READ = OutsideReading()
