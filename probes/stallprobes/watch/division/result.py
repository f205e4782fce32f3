"""The division of a process as data: the parts of the wall time of each sequence, its figures and its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from msgspec import UNSET, Meta, UnsetType

from stallprobes.files.codec import Document, Ratio, Rounded, Share, String, Unsigned, about
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import COMMUNICATION_PARTS, MEANINGS, Bound, Part
from stallprobes.watch.division.steps import Step
from stallprobes.watch.reading.call_stack import StackFrame

# Smallest share of the time of a sequence (threads that call by turns) that a cause must cost for the cause's verdict.
# Causes are, for example, allocation, a lock, a full launch queue, or waits. The value is also the smallest share of
# GPU work for a sentence on small kernels.
CAUSE_LIMIT = 0.15
# Smallest share of GPU work without communication in a sequence's time that suffices for the verdict "GPU-bound". With
# a smaller share, "GPU-bound" is possible in two cases: the launch queue is full for CAUSE_LIMIT of the time, or no
# other verdict applies. In both cases, the program must save at least as much time without GPU work as without host
# work.
GPU_LIMIT = 0.9
# Smallest share of communication in a sequence's time for the verdict "communication-bound". With a smaller share, this
# verdict is possible only if no other verdict applies.
COMMUNICATION_LIMIT = 0.3
# Smallest share of a sequence's time for the verdicts "idle" and "asleep", which come before "wait-bound".
# Idle: the share is the time in which the sequence sleeps for data from outside the process.
# Asleep: the share is the time in which the GPU waits for the host and the host sleeps. With a smaller share, "asleep"
# is possible only if no other verdict applies.
ASLEEP_LIMIT = 0.5
# Largest distance (share of the time) from the limit of a verdict that counts as close. A verdict that is at most this
# distance below its limit can be the second verdict. If the first verdict is closely above its limit, the second
# verdict can be the verdict for the case that no limit is reached.
CLOSE = 0.05
# Largest share of a sequence's time that may be unknown. Unknown time is in unknown parts, or in GPU work whose record
# was read too late. With a larger share, the verdict is "unknown".
MOST_UNKNOWN = 0.05
# Largest width (share of the time) of two 95 % intervals at which a verdict is given. The intervals are for GPU work,
# and for the host's time without waits. With a wider interval, the verdict is "unknown" unless GPU_LIMIT or
# _CERTAIN_HOST decides. An interval is wide if few windows had records.
_WIDEST = 0.4
# If the host is busy (without waits for the GPU) for at least this share of the time, a verdict is given even with
# intervals that are wider than _WIDEST. The lower end of the share's interval counts. The share of GPU work must also
# be below GPU_LIMIT. Reason: a busy host decides the verdict, whatever the exact share of GPU work.
_CERTAIN_HOST = 0.8
# Width of the interval of a share from which on the interval says nothing: the interval reaches from about 0 to about
# 1. If an interval is at least this wide, the report does not state how long to watch for a verdict.
_UNLIMITED = 0.95
# Smallest share of a sequence's time in waits for the work of another thread at which the thread is named.
LEAST_AWAITED = 0.05
# Smallest share of kernels of few blocks (see FEW_BLOCKS) in the time of all kernels for two conclusions. The
# conclusions are that kernels of different streams could run at the same time, and that larger kernels are the remedy.
LEAST_FEW = 0.8
# Limits (shares of a sequence's time) for a kernel that does not end: whether it computes or waits for the host, no
# record says. _ENDLESS: smallest duration of the kernel. _BESIDE_ENDLESS: smallest time in which the host does not wait
# for the GPU; with less, it waits for the kernel.
_ENDLESS, _BESIDE_ENDLESS = 0.75, 0.5
# Error (share of the time) of the price of waiting, in addition to the errors of the figures behind the price.
# Measured: without their waits, random programs gained 0 to 3 percentage points more or less than the price (H200). The
# programs were run or replayed without their waits.
PRICE_ERROR = 0.02
# Verdicts that are compared by their gains (the time that the program would save without the cause). If the first
# verdict that holds is in this list, the verdict with the largest gain replaces the first verdict.
_COMPARED = (
    Bound.LOADING, Bound.ALLOCATION, Bound.LOCK, Bound.COPY, Bound.OWN_SLEEP, Bound.CHILD, Bound.INPUT, Bound.THREAD,
    Bound.STREAMS, Bound.TURNS, Bound.GAPS, Bound.WAIT,
)  # fmt: skip

# Verdicts that state what a sequence sleeps for, or that the sequence lacks CPUs. After one of these verdicts, "asleep"
# is no second verdict, since "asleep" adds nothing.
_SLEEPS = (Bound.OWN_SLEEP, Bound.CHILD, Bound.INPUT, Bound.THREAD, Bound.IDLE, Bound.CPUS)
# Verdicts after which "wait-bound" (Bound.WAIT) becomes the second verdict if waits may cost CAUSE_LIMIT or more. These
# waits include time outside calls that may be waits. Reason: a sequence gets one of these verdicts if "wait-bound" does
# not hold.
_LAST = (Bound.GPU, Bound.HOST, Bound.SUBMISSION, Bound.ASLEEP)

# Verdicts that name the longer side, for the case that no cause costs much.
SIDES = (Bound.GPU, Bound.HOST, Bound.SUBMISSION)

# Verdicts that "host-bound" replaces where one thing takes most of the host's time (garbage collection, a compiler).
_BEHIND_HOST = (
    Bound.OWN_SLEEP, Bound.CHILD, Bound.INPUT, Bound.THREAD, Bound.IDLE, Bound.ASLEEP, Bound.WAIT, Bound.SUBMISSION,
)  # fmt: skip

# Description of a verdict about what bounds a sequence, in the JSON schema.
_BOUND = about(
    "What bounds the sequence, the first of these that holds. shared: others' time-slices take 15 % of the time. "
    "loading, allocation, lock, copy: without it the program would take 15 % less time at most, by the longer of the "
    "host's and the GPU's time that remains. own-sleep, child, input, thread: so without its sleep for a time that "
    "it sets, for the end of a child process, for data while a child process is busy for half of that, or for "
    "another thread of its process. streams: so where kernels of few blocks did not wait for those of other streams. "
    "turns: so where its GPUs did not wait for each other. Of these, gaps and wait, it is the one that gains most. "
    "communication: kernels that communicate take 30 %. gaps: the time between kernels takes 15 %, and the GPU that "
    "much longer than the host. held: so where that is 20 us or more for each operation, and the sequence has "
    "functions of the host called in its streams, or where copies block behind such functions. gpu: the GPU works 90 "
    "% beside them, or launches find the queue full 15 %. idle: the sequence sleeps half of the time or more for "
    "data from outside its process. asleep: the GPU waits for the host half of the time or more while the host "
    "sleeps, and is not ready to run, or for longer than its waits cost. cpus: so it does 15 % while the host is "
    "ready to run and has no CPU. wait: the price of waiting is 15 % or more. Else gpu, or communication where most "
    "of it is that, where the GPU works for more of the time than the host does not wait; submission: more than half "
    "of the time in which the host does not wait is inside calls that submit; asleep: half of it or more the host "
    "sleeps; host. host too, in place of its sleep or waits, where garbage collection or compilers of device code "
    "take half of the time without GPU work and more than these cost. unknown: more than 5 % of the time is not "
    "known, or the interval of the host's or the GPU's share spans more than 0.4, and the GPU's does not begin at "
    "0.9, or one kernel runs for most of the time while the host does not wait, in place of gpu."
)


class WaitShare(Document, kw_only=True):
    """The waits of one function."""

    function: String
    calls: Unsigned
    ns: Unsigned
    """The time that they took."""
    share: Share
    """Their share of the price of waiting: that is spread in proportion to the gap of the GPU's work in which each wait
    returned, or to its duration where that is shorter, and no function has more than its time."""


# Figure for time without records: from 0 to 1, since nothing is known.
NOT_KNOWN = Figure(0.0, 0.0, 1.0)


class BoundTime(Document, kw_only=True):
    """What bounds a sequence in some times, with the figures behind it."""

    verdict: Annotated[Bound, _BOUND] = Bound.UNKNOWN
    second: Bound | None = None
    """Another verdict that holds, or whose limit is at most 0.05 away; host beside a sleep, where the host computes for
    15 % of the time or more that the GPU does not hide; host or submission beside gpu, where the host works as long as
    the GPU, nearly; asleep beside host, where the host sleeps for 15 % of the time
    or more between calls, or may do so."""
    host: Figure = NOT_KNOWN
    """Share of the time in which the sequence did not wait for the GPU (h). A free is the host's own time, and so is a
    copy that blocks, except while it waits for other work of the GPU."""
    gpu: Figure = NOT_KNOWN
    """Share of the time in which the GPU worked for the sequence, or communicated (g), with the least time that it
    takes from one operation of a stream to the next."""
    price: Figure = NOT_KNOWN
    """What its waits cost at most: 1 - max(h, g), without copies in g that block the host or are in streams of their
    own; the mean of the program's phases, and no more than what is saved if frees still wait, and launches for room in
    a queue of 1024. The interval begins with what is gained where the host runs eight waits ahead at most."""


class PhaseDivision(BoundTime, kw_only=True):
    """Times of a run in which the time of a sequence is divided in one way, unlike in other times."""

    times: tuple[tuple[Unsigned, Unsigned], ...]
    """The begin and the end (ns) of each of its times, since the process began; several where it recurs."""
    step_ns: Unsigned | None = None
    """The mean time from one step to the next; null without regular steps in it."""
    sm_clock_mhz: Annotated[float, Meta(ge=0), Rounded(1)] | None = None
    """The median SM clock of its GPU, by NVML; null if not known."""
    clock_reasons: tuple[String, ...] = ()
    """Why the clock was not higher, by NVML, for half of the time or more."""
    power_limit_w: Annotated[float, Meta(ge=0), Rounded(1)] | None = None
    """The lowest power limit of its GPU, by NVML; null if not known."""
    pcie_lanes: Unsigned | None = None
    """The smallest number of lanes of its GPU's link of PCIe, by NVML; null if not known."""

    @property
    def ns(self) -> int:
        """How long (ns) it lasts in all."""
        return sum(end - begin for begin, end in self.times)


class StepGrowth(Document):
    """The time of a step that grew or shrank evenly: its means in the first and in the last five bins of time."""

    first_ns: Unsigned
    last_ns: Unsigned
    place: StackFrame | None = None
    """The line whose time in a step changed most; null where it is not half of the change."""


class GrowingLine(Document):
    """A line of the program that takes ever more of a sequence's time."""

    place: StackFrame
    shares: tuple[Share, Share, Share]
    """Its share of the time in the first third, the second and the last."""


class AwaitedThread(Document):
    """Another thread of the process, whose work on the GPU a sequence waited for."""

    thread: Unsigned
    share: Share
    """Share of the time of the sequence."""


class KernelTime(Document, kw_only=True):
    """Kernels of one name of a sequence, in the covered time."""

    name: String
    """As in the source, with template arguments and parameters; empty if not known."""
    share: Share
    """Of the time of all its kernels with a row here."""
    count: Unsigned
    mean_ns: Unsigned
    deviation_ns: Unsigned
    """Standard deviation of their durations."""
    between_ns: Unsigned = 0
    """Mean time after one in which only the GPU's own work is between it and the next operation."""
    least_blocks: Unsigned
    """The smallest number of blocks of such a kernel; 0 if not known."""
    most_blocks: Unsigned
    """The largest number."""
    threads: Unsigned = 0
    """Threads of a block, by one of its records; 0 if not known."""
    registers: Unsigned = 0
    """Registers of a thread, by one of its records; 0 if not known."""
    local_bytes: Unsigned = 0
    """Least local memory of a thread: what is reserved for it beyond that of a later kernel of its context. Registers
    that are spilled, and arrays. 0: none is known."""
    fills: Share | None = None
    """Largest share of the GPU's multiprocessors on which its blocks can be at once; null if not known."""
    waves: Ratio | None = None
    """Most blocks, divided by the number that the GPU runs at once of such a kernel; null if not known."""
    place: StackFrame | None = None
    """The line that launches most of them, or of the graphs that contain them; without a file where that is PyTorch's
    thread of the backward pass; null if no sample says so."""
    place_share: Share = 0.0
    """Share of that line in the sampled launches."""


class SequenceDivision(BoundTime, kw_only=True):
    """Threads that hardly ever call the driver at the same time, and their wall time on one GPU, in the steady state
    or in the whole run without one. Of a sequence without a GPU, no figure is known."""

    threads: tuple[Unsigned, ...]
    """Thread ids of the system, first that of the thread that submits and waits most."""
    device: Unsigned | None = None
    """CUPTI's number of the GPU; null where no work of the GPU was recorded."""
    phases: tuple[PhaseDivision, ...] = ()
    """Times with different verdicts, or with steps of different lengths. First comes that of the present, or the
    longest one if the process has ended: the verdict and all figures of the sequence are of it, those of its lines to
    the second. Then come the others by their begins."""
    covered_ns: Unsigned = 0
    """The time in which all work of the GPU was recorded, or a part of it: the sum of the parts."""
    parts: Annotated[
        Mapping[Part, Unsigned],
        about(f"The time (ns) of each part; each instant of the covered time is in one. {MEANINGS}"),
    ] = {}
    shares: Mapping[Part, Share] | UnsetType = UNSET
    """Shares of the parts in the covered time without its end."""
    operations: Unsigned = 0
    """Kernels, copies and fills that ended in the covered time."""
    waits: tuple[WaitShare, ...] = ()
    """By function, the one that costs most first."""
    submitting: Share = 0.0
    """Share of the time inside calls that submit, without waiting."""
    queue_full: Share = 0.0
    """Share of the time in which such calls waited for a place in the queue."""
    step: Step | None = None
    """From one of its NVTX ranges, or most regular blocking calls, to the next; null if none is regular."""
    growth: StepGrowth | None = None
    """Null if the time of a step did not grow or shrink evenly by a third or more."""
    growing: GrowingLine | None = None
    """Null too while the process runs, and where it has phases or growing steps."""
    off_cpu: Figure | None = None
    """Share of the time between calls in which no thread of the sequence had a CPU; null where not known."""
    ready: Figure | None = None
    """Share of the time between calls in which a thread was ready to run and had no CPU: a part of off_cpu."""
    may_wait: Share = 0.0
    """Share of the time in which the host computed, slept, or waited for the GPU outside calls. Which is not known: the
    GPU's work always takes as long, or the host's time varies with it."""
    interpreter: Share = 0.0
    """Share of the time in which it slept until it got the global lock of Python, by samples of its sleep; 0 too where
    that is not known: without call stacks, or where the kernel hides the system calls of threads."""
    collects: Share = 0.0
    """Share of the time in which Python collected garbage, by samples of its memory; 0 too where that is not known:
    before CPython 3.11 and from 3.14 on, or where the memory cannot be read."""
    recorded: Share = 0.0
    """Share of the time that is covered, less than 1 too where a sample of it is divided."""
    pace: Ratio = 1.0
    """How much it does in all time, by how much it does in as much of the covered time, in which records may make it
    slower."""
    alone: bool = False
    """Whether no other sequence of the process submits to the GPU."""
    engine_known: bool = False
    """Whether times in which others had the GPU are known; else it may seem to work in them."""
    late_ns: Unsigned = 0
    """Work that became known too late to be counted."""
    awaited: tuple[AwaitedThread, ...] = ()
    """Other threads whose work it waits for, as in a wait for the whole device; the longest waits first."""
    few_blocks: Share = 0.0
    """Share of the time of its kernels in kernels of at most 16 blocks, which leave most of a GPU unused; 0 too where
    that is not known."""
    kernels: tuple[KernelTime, ...] = ()
    """Its kernels by name, at most the first 256 names; those with most time first."""

    @property
    def divided(self) -> bool:
        """True if its figures are known."""
        return self.device is not None

    @property
    def vague(self) -> bool:
        """True if its figures are known too roughly for a verdict."""
        return is_vague(*self._sampled)

    @property
    def needed_ns(self) -> int | None:
        """How long (ns) it must be watched in all for a verdict, by the time until now and the widths of intervals;
        None where these are not known.

        The width of an interval is inversely proportional to the square root of the time.
        """
        widest = max(figure.high - figure.low for figure in self._sampled)
        known = self.recorded > 0 and widest < _UNLIMITED
        return round(self.covered_ns / self.recorded * (widest / _WIDEST) ** 2) if known else None

    @property
    def _sampled(self) -> tuple[Figure, Figure]:
        """Its figures with the intervals that come from samples of the time."""
        return Figure(self.host.share, min(self.host.low + self.may_wait, 1.0), self.host.high), self.gpu

    @property
    def endless(self) -> KernelTime | None:
        """A kernel that runs for most of the time at once while the host does something else, such as one that polls
        memory for requests; None without one, and where the program has phases."""
        if self.phases or self.host.share < _BESIDE_ENDLESS or self.gpu.share < _ENDLESS:
            return None
        least_ns = max(_ENDLESS * self.steady_ns, 1)
        return next((kernel for kernel in self.kernels if kernel.mean_ns >= least_ns), None)

    @property
    def could_overlap(self) -> bool:
        """True if nothing but overlap of kernels of its streams, which are small, makes its waits cost something."""
        return (
            self.few_blocks >= LEAST_FEW and self.price.share < CAUSE_LIMIT - CLOSE and self.price.high >= CAUSE_LIMIT
        )

    @property
    def steady_ns(self) -> int:
        """The covered time without its end (ns)."""
        return self.covered_ns - self.parts.get(Part.END, 0)

    def per_second(self, count: int) -> float:
        """How many a second there are in all time where the covered time has ``count``."""
        return count * self.pace * 1e9 / self.covered_ns if self.covered_ns else 0.0

    def share(self, *parts: Part) -> float:
        """The share (0 to 1) of some parts in the covered time without its end."""
        return _share(self.parts, parts)


class ProcessDivision(Document, kw_only=True):
    """What bounds a process: the division of its wall time in the steady state, or in the whole run without one."""

    steady: bool
    """Whether there were three seconds in a row without loading code, creating a context or a new kernel, in the first
    half hour: the steady state begins with the first that have work, if any have; after the first minute, up to half as
    late again."""
    start_up_ns: Unsigned
    """How long the start-up took; 0 without a steady state."""
    start_up: Mapping[Part, Unsigned]
    """Time (ns) of the start-up inside calls that block for a reason other than work, of all threads."""
    other_threads: Unsigned
    """Threads that made calls, and have no work that was recorded."""


class DividedProcess(NamedTuple):
    """The division of a process, and its sequences, those with most calls first."""

    division: ProcessDivision
    sequences: tuple[SequenceDivision, ...]


def is_vague(host: Figure, gpu: Figure) -> bool:
    """True if the interval of one of both shares is too wide for a verdict.

    If the GPU certainly works nearly all the time, the share of the host does not matter. If the host certainly does,
    that of the GPU does not matter, unless the GPU seems to work nearly all the time too.
    """
    certain = gpu.low >= GPU_LIMIT or (host.low >= _CERTAIN_HOST and gpu.share < GPU_LIMIT)
    return not certain and any(figure.high - figure.low > _WIDEST for figure in (host, gpu))


def hides_waits(verdict: Bound, gains: Mapping[Bound, float], possible: float) -> bool:
    """True if the verdict would be another one with a gain of ``possible`` without waits."""
    if possible < CAUSE_LIMIT or verdict is Bound.WAIT:
        return False
    return gains[verdict] < possible if verdict in _COMPARED else verdict in _LAST


def bounds_of(
    parts: Mapping[Part, int],
    gains: Mapping[Bound, float],
    host: float,
    gpu: float,
    queue_full: float,
    submitting: float,
    late: float = 0.0,
    *,
    off_cpu: Figure | None = None,
    ready: Figure | None = None,
    slept: float = 0.0,
) -> tuple[Bound, Bound | None]:
    """The verdict about a sequence, and the second one, by the time of its parts, its gains and its shares.

    ``slept``: the least share of the time for which it slept between calls, by samples; used where ``off_cpu`` is not
    known.
    """
    if not any(parts.values()) or _share(parts, (Part.UNKNOWN,)) + late > MOST_UNKNOWN:
        return Bound.UNKNOWN, None
    communicates = _share(parts, COMMUNICATION_PARTS)
    ready_low, ready_high = (0.0, 0.0) if ready is None else (ready.low, ready.high)
    between = _share(parts, (Part.HOST,))
    asleep = min(slept, between) if off_cpu is None else between * max(off_cpu.low - ready_high, 0.0)
    waits = gains[Bound.WAIT]
    rules = (
        (Bound.SHARED, _share(parts, (Part.SHARED,)), CAUSE_LIMIT),
        *((cause, gains[cause], CAUSE_LIMIT) for cause in _COMPARED[:10]),
        # While it communicates it does not compute; and what waits in front of a full queue then waits for that.
        (Bound.COMMUNICATION, communicates, COMMUNICATION_LIMIT),
        (Bound.GAPS, gains[Bound.GAPS], CAUSE_LIMIT),
        (Bound.GPU, gpu - communicates, GPU_LIMIT),
        (Bound.GPU, queue_full if gains[Bound.GPU] >= gains[Bound.HOST] else 0.0, CAUSE_LIMIT),
        (Bound.IDLE, gains[Bound.IDLE], ASLEEP_LIMIT),
        # Of sleep for a reason that is not known and of waits, the one without which the program gains more.
        (Bound.ASLEEP, asleep, waits if CAUSE_LIMIT <= waits < ASLEEP_LIMIT else ASLEEP_LIMIT),
        (Bound.CPUS, min(between * ready_low, host - gpu), CAUSE_LIMIT),
        (Bound.WAIT, waits, CAUSE_LIMIT),
    )
    of_host = Bound.ASLEEP if asleep > host / 2 else Bound.HOST
    of_gpu = Bound.COMMUNICATION if communicates > gpu / 2 else Bound.GPU
    otherwise = (
        of_gpu if gains[Bound.GPU] > gains[Bound.HOST] else Bound.SUBMISSION if submitting > host / 2 else of_host
    )
    holding = [(bound, share - limit) for bound, share, limit in rules if share >= limit]
    if holding and holding[0][0] in _COMPARED:
        holding.sort(key=lambda item: -item[1] if item[0] in _COMPARED else 1)
    verdict, margin = holding[0] if holding else (otherwise, CLOSE)
    if verdict is Bound.THREAD and any(bound is Bound.CPUS for bound, _ in holding):
        # Threads that share too few CPUs wait for each other.
        return Bound.CPUS, Bound.THREAD
    known = (verdict, Bound.ASLEEP) if verdict in _SLEEPS else (verdict,)
    # Its waits cost what its GPUs in turn cost.
    known = (*known, Bound.WAIT) if verdict is Bound.TURNS else known
    close = [bound for bound, share, limit in rules if share >= limit - CLOSE and bound not in known]
    close.sort(key=lambda bound: -gains[bound] if bound in _COMPARED else 0)
    # A verdict that barely holds names the one that holds without it.
    if margin < CLOSE and otherwise not in known:
        close.insert(sum(bound in close for bound, _ in holding), otherwise)
    # If it is not known, the host may sleep for all of the time between calls.
    if verdict is Bound.HOST and (between if off_cpu is None else asleep) >= CAUSE_LIMIT:
        close.append(Bound.ASLEEP)
    return verdict, close[0] if close else None


def because_of_host(
    verdict: Bound, second: Bound | None, share: float, gain: float, gpu: float
) -> tuple[Bound, Bound | None]:
    """The verdict and the second one where one thing of the host, such as garbage collection, takes ``share`` of the
    time: host-bound, if that is half of the time without GPU work or more, and more than the ``gain`` without what the
    verdict names."""
    if share < max(CAUSE_LIMIT, (1 - gpu) / 2) or share <= gain or verdict not in _BEHIND_HOST:
        return verdict, second
    return Bound.HOST, verdict if verdict is Bound.WAIT else second if second is Bound.WAIT else None


def beside_gpu(host: float, gpu: float, queue_full: float, submitting: float) -> Bound | None:
    """The second verdict about a GPU-bound sequence whose host works nearly all the time too, as long as the GPU; None
    if the host works less, or waits in its launches for room in the queue."""
    if host < max(GPU_LIMIT, gpu - CLOSE) or queue_full >= CAUSE_LIMIT:
        return None
    return Bound.SUBMISSION if submitting > host / 2 else Bound.HOST


def price_of(host: Figure, gpu: Figure, gain: float, least: float, most: float) -> Figure:
    """The price of waiting, which gains ``gain``, or from ``least`` to ``most`` by other ways to reckon, by the shares
    of time in which the host did not wait and in which the GPU worked."""
    error = PRICE_ERROR + max(max(each.high - each.share, each.share - each.low) for each in (host, gpu))
    return Figure(gain, max(min(gain, least) - error, 0.0), min(max(gain, most) + error, 1.0))


def _share(parts: Mapping[Part, int], chosen: tuple[Part, ...]) -> float:
    steady = sum(parts.values()) - parts.get(Part.END, 0)
    return sum(parts.get(part, 0) for part in chosen) / steady if steady else 0.0
