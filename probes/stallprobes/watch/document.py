"""JSON document of a watched program, published schema ``stallscope.watch/2``.

Latencies and ages are microseconds with three decimals, times of events are seconds from the begin of the watch.
Unknown values are null.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from stallprobes.files import codec
from stallprobes.files.codec import Document, Natural, Seconds, Text, about
from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.watch_file import WatchState
from stallprobes.units import us_of
from stallprobes.watch.attribution.findings import (
    CallAlongside,
    CallInFlight,
    CallRow,
    CallSite,
    ExplainedCall,
    ProcessFindings,
    ThreadFindings,
    TimeLost,
    WaitEvidence,
    WatchFindings,
    function_of,
)
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause, described
from stallprobes.watch.causes.order import cause_of
from stallprobes.watch.cost import AttachingCost, Share, WatchCost
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division.result import ProcessDivision, SequenceDivision
from stallprobes.watch.division.steps import Step
from stallprobes.watch.division_text import verdict_text
from stallprobes.watch.line_text import line_text, remedy_text, sequence_of, wait_text
from stallprobes.watch.lines.result import LineTime, SequenceLines
from stallprobes.watch.rank_text import partners_text, rank_name, ranks_of, waits_clause
from stallprobes.watch.ranks.result import Partners
from stallprobes.watch.reading.call_stack import CallStack, StackFrame
from stallprobes.watch.sentences import call_text, headline, in_flight_text, site_text

Us = Annotated[float, Meta(ge=0)]
_MEMORY = ["pageable", "pinned", "device", "array", "managed", "device-static", "managed-static"]
Memory = Annotated[Text, Meta(extra_json_schema={"enum": _MEMORY})]
StackNumber = Annotated[
    Natural | None,
    about("Place of the call's stack in the list of the process; null if it was not recorded."),
]
Cause = Annotated[WaitCause, about(described())]


TimePart = Annotated[
    Part,
    about("What an instant is. " + " ".join(f"{part}: {part.traits.meaning}." for part in Part)),
]


class WatchError(Document):
    """The call of CUPTI that failed."""

    function: Text
    code: int


class WatchCupti(Document):
    """The CUPTI that recorded."""

    path: Text
    version: Natural


class WatchLoss(Document):
    """Time that slow calls lost to one cause."""

    cause: Cause
    thread: Annotated[Natural | None, about("Thread of the calls that are the cause; null for other causes.")]
    thread_name: Text
    calls: Natural
    us: Us
    proven_us: Annotated[
        Us,
        about("The part whose cause is proven, or known by what the function does or by a check or reference."),
    ]
    remedy: Annotated[Text, about("What helps; empty where nothing is known.")]


class WatchRow(Document):
    """All calls of one function in one thread."""

    function: Text
    family: Text | None
    calls: Natural
    failed: Natural
    slow: Annotated[Natural, about("Calls that took at least the limit.")]
    total_us: Us
    p50_us: Us | None
    p99_us: Us | None
    max_us: Us | None
    median_us: Annotated[
        Us,
        about(
            "The duration above which time is lost: the median, or that of the calls below the limit where most calls "
            "are slow."
        ),
    ]
    lost_us: Us
    unkept: Annotated[Natural, about("Slow calls that were overwritten before they were read.")]
    unkept_us: Annotated[Us, about("Their excess by the histogram.")]
    histogram_ns: Annotated[
        list[tuple[Natural, Natural]], about("Lower bound of each bucket in ns, and its number of calls.")
    ]


class WatchAlongside(Document):
    """Calls of one function in another thread, with the figures of the longest."""

    thread: Natural
    thread_name: Text
    function: Text
    calls: Natural
    at_s: float
    duration_us: Us
    overlap_us: Annotated[Us, about("Time that both took.")]
    stream: int | None
    bytes: int | None
    source: Memory | None
    target: Memory | None


class WatchArguments(Document):
    """A call of the driver: who made it, and with which arguments."""

    function: Annotated[Text, about("Function of the driver.")]
    thread: Annotated[Natural, about("Thread id of the system.")]
    thread_name: Text
    context: Annotated[Natural, about("CUPTI's number of the context.")]
    stream: Annotated[int | None, about("Handle of the stream; null without such an argument. 0 is the NULL stream.")]
    bytes: Annotated[int | None, about("Null without such an argument.")]
    source: Annotated[Memory | None, about("Memory that a copy reads.")]
    target: Annotated[Memory | None, about("Memory that it writes.")]
    correlation: Annotated[Natural, about("CUPTI's number of the call.")]


class WatchInFlight(WatchArguments):
    """A call that has not returned."""

    since_s: float
    age_us: Us
    depth: Annotated[Natural, about("Number of calls of its thread that contain it.")]
    cause: Cause
    beside: Annotated[
        list[WatchAlongside], about("Calls in flight of other threads that last for at least 80 % of its age.")
    ]
    sentence: Text
    stack: StackNumber
    kernel_wait: Annotated[
        Text,
        about(
            "Function or system call of the kernel in which the thread waits; running: on a CPU; empty if not known."
        ),
    ]


class WatchThread(Document):
    """A thread."""

    id: Natural
    name: Text
    owners: Annotated[Natural, about("Number of threads that share the row; id and name are the last one's.")]
    seconds: Seconds
    ended: bool
    headline: Text
    lost_us: Us
    lost_share: Annotated[float, Meta(ge=0, le=1)]
    lost: Annotated[list[WatchLoss], about("The most time first.")]
    slow_calls: Natural
    rows: list[WatchRow]
    in_flight: list[WatchInFlight]


class WatchPart(Document):
    """A part of a wait with its cause."""

    cause: Cause
    us: Us


class WatchWork(Document):
    """Pieces of work with one name, kind, context and stream."""

    kind: Annotated[Text, Meta(extra_json_schema={"enum": ["kernel", "copy", "peer copy", "memset"]})]
    name: Annotated[Text, about("Name of the kernel; empty for other work.")]
    direction: Text | None
    context: Natural
    stream: Annotated[Natural, about("CUPTI's number of the stream.")]
    count: Natural
    total_us: Us
    overlap_us: Annotated[Us, about("Time within the call.")]
    bytes: Natural
    own: Annotated[bool, about("Whether the slow call submitted it.")]
    rank: Annotated[Text | None, about("The other rank for which it waits, for a kernel of NCCL; else null.")]
    rank_us: Annotated[Us, about("For how long it does so within the call.")]


class WatchEngineUse(Document):
    """Another context's use of the graphics engine."""

    context: Annotated[Natural | None, about("Null: another process.")]
    us: Us
    process: Annotated[
        Text | None, about("The other process with the kernel that ran longest, where it is watched too; else null.")
    ]


class WatchEvidence(Document):
    """What shows the cause; empty where there is none."""

    overlap_us: Annotated[Us, about("The part of the call that the evidence covers.")]
    overhead_us: Annotated[Us, about("Time of the call's overhead records of the cause.")]
    run_delay_us: Annotated[Us, about("The least time for which the thread was ready to run and had no CPU.")]
    work: list[WatchWork]
    calls: list[WatchAlongside]
    engine: Annotated[list[WatchEngineUse], about("Others that had the graphics engine meanwhile.")]
    known_by: Annotated[Text | None, about("The check or reference that shows that the pair stalls.")]
    alike: Annotated[Natural, about("Calls like it, with records, by which the cause is known; 0 if otherwise.")]


class WatchSlowCall(WatchArguments):
    """A call that took at least the limit."""

    at_s: Annotated[float, about("When it began.")]
    duration_us: Us
    excess_us: Annotated[Us, about("The duration less the median of its row.")]
    result: Annotated[int, about("The driver's code, 0 for success.")]
    nested: Annotated[
        bool, about("Whether another slow call of the thread contains it, so that its time counts there.")
    ]
    cause: Cause
    certainty: Annotated[
        Certainty | None,
        about(
            "proven: by records of the call itself. known: by what the function does, or by overlap in time where a "
            "check or reference shows that the pair stalls. alike: work of the GPU was not recorded then, and nearly "
            "all calls like it whose work was recorded have the cause. beside: by overlap in time alone."
        ),
    ]
    explained_us: Annotated[Us, about("The part of the excess that the cause explains.")]
    also: Annotated[list[WatchPart], about("Other parts of the excess with their causes; the rest is unattributed.")]
    evidence: WatchEvidence
    sentence: Text
    stack: StackNumber
    range: Annotated[
        Text | None,
        about(
            "The innermost NVTX range that the thread had pushed, else the last one that was started before the call "
            "and had not ended; null without one."
        ),
    ]


class WatchSite(Document):
    """Slow calls of one function and size that the same frames of the program's own code made."""

    function: Text
    bytes: int | None
    blocking: Annotated[bool, about("Whether they are copies that return only when the data is there.")]
    stack: Annotated[StackNumber, about("Of the last one.")]
    place: Annotated[StackFrame | None, about("The innermost frame of the program's own code.")]
    calls: Annotated[
        Natural,
        about("Including a share of the calls of the function and size that have no stack, as in the times."),
    ]
    recorded: Annotated[Natural, about("Calls that have such a stack.")]
    per_second: Annotated[
        Us | None, about("From the begin of the first to the return of the last; null for less than a second.")
    ]
    first_s: float
    last_s: float
    total_us: Us
    lost_us: Us
    cause: Annotated[Cause, about("That of most of the time lost.")]
    sentence: Text


class WatchCosts(Document):
    """What watching costs a process, as shares of the time of the thread that makes most calls."""

    low: Share
    high: Annotated[Share, about("With low the 95 % interval; without comparisons the most that it can be.")]
    compared: Annotated[Natural, about("Comparisons of windows with records and without; 0: not measured.")]
    recorded: Annotated[Share, about("The share of time in which work of the GPU was recorded.")]
    budget: Annotated[Share, about("What watching may cost (--cost); 1: no limit.")]


class WatchFigure(Document):
    """A share of the time with its 95 % interval, which is the share itself where all of the time was recorded."""

    share: Share
    low: Share
    high: Share


class WatchTimePart(Document):
    """A part of the time of a sequence."""

    part: TimePart
    us: Us
    share: Annotated[Share, about("In the covered time without its end; 0 for the end.")]


class WatchWait(Document):
    """The waits of one function."""

    function: Text
    calls: Natural
    us: Annotated[Us, about("The time that they took.")]
    share: Annotated[
        Share,
        about(
            "Their share of the price of waiting: that is spread in proportion to the gap of the GPU's work in which "
            "each wait returned, or to its duration where that is shorter, and no function has more than its time."
        ),
    ]


class WatchStep(Document):
    """A step of a sequence, from one NVTX range to the next one of the same name and thread, else from one blocking
    call to the next one of the same function, size and thread."""

    range: Annotated[Text, about("The name of the range, in which each number is #; empty for calls.")]
    function: Annotated[Text, about("Empty for ranges.")]
    bytes: Natural
    thread: Natural
    us: Annotated[Us, about("The median, to 4 %.")]
    low_us: Annotated[Us, about("The lower quartile.")]
    high_us: Annotated[Us, about("The upper quartile.")]
    steps: Annotated[Natural, about("How many were counted in the steady state.")]


class WatchRankDelay(Document):
    """Why a rank is late: what it did for longer, between their collectives, than the one that waits for it."""

    bound: Annotated[Bound | None, about("What most of that is, as a verdict says it; null where nothing is most.")]
    share: Annotated[Share, about("Its part of that.")]
    place: Annotated[StackFrame | None, about("The line at which it has more time; null where none is known.")]
    function: Annotated[Text, about("Function of the driver that is called there, or next; empty if not known.")]
    kernel: Annotated[Text, about("The kernel of the GPU that takes longer; empty if not known.")]
    off_cpu: Annotated[bool, about("Whether most of its host time is off the CPU.")]
    rank: Annotated[Text, about("Another rank that it waits for itself, in communication; empty without one.")]


class WatchRankWait(Document):
    """The time that a sequence waits, in kernels that communicate, for a rank that begins them later."""

    name: Annotated[Text, about("The rank as a sentence names it.")]
    pid: Natural
    image: Natural
    gpu: Annotated[Natural, about("CUPTI's number of its GPU in its process.")]
    share: Annotated[WatchFigure, about("Of the time of the sequence, while no other kernel runs.")]
    rounds: Annotated[Natural, about("Collectives that had to wait for it.")]
    back: Annotated[Share, about("Share of its own time in which that rank waits for this one.")]
    sure: Annotated[bool, about("Whether kernels that belong together are known; else it is probable.")]
    blamed: Annotated[
        bool, about("Whether it slows the sequence down: 5 % of the time, and twice what it waits for the sequence.")
    ]
    delay: Annotated[WatchRankDelay | None, about("Why it is late; null where it is not blamed.")]


class WatchRanks(Document):
    """How a sequence communicates by NCCL's kernels, and for which ranks it waits in them."""

    partners: Annotated[
        Partners,
        about(
            "watched: its kernels were matched with those of other processes, by when they ended. some: and the job "
            "has ranks that are not watched. none: no other process that is watched communicates. unmatched: others "
            "do, and which kernels belong together is not known."
        ),
    ]
    collectives: Annotated[Natural, about("Its kernels that communicate.")]
    matched: Annotated[Natural, about("Those that were matched with kernels of others.")]
    waiting: Annotated[
        WatchFigure | None,
        about("Share of its time in which they wait for other ranks, and no other kernel runs; null if not known."),
    ]
    waits: Annotated[list[WatchRankWait], about("By rank, the most time first.")]
    sentence: Annotated[Text, about("The rank that slows it down, and what is not known; empty without either.")]


class WatchSequence(Document):
    """Threads that hardly ever call the driver at the same time, and their wall time on one GPU."""

    threads: Annotated[
        list[Natural], about("Thread ids of the system, first that of the thread that submits and waits most.")
    ]
    gpu: Annotated[Natural, about("CUPTI's number of the GPU.")]
    verdict: Annotated[
        Bound,
        about(
            "What bounds the sequence, the first of these that holds. shared: others' time-slices take 15 % of the "
            "time. loading, allocation, lock, copy: calls that block for it take 15 %, or copies on the GPU 50 %. "
            "communication: kernels that communicate take 30 %. gpu: the GPU works 90 % beside them, or launches find "
            "the queue full 15 %. wait: the price of waiting is 15 % or more. Else gpu, or communication where most of "
            "it is that, where the GPU works for more of the time than the host does not wait; "
            "submission: more than half of the time in which the host does not wait is inside calls that submit; host. "
            "unknown: more than 5 % of the time is not known."
        ),
    ]
    second: Annotated[Bound | None, about("Another verdict that holds, or whose limit is at most 0.05 away.")]
    covered_us: Annotated[
        Us, about("The time in which all work of the GPU was recorded, or a part of it: the sum of the parts.")
    ]
    parts: Annotated[list[WatchTimePart], about("Each instant of the covered time is in one of them.")]
    host: Annotated[WatchFigure, about("Share of the time in which the sequence did not wait for the GPU (h).")]
    gpu_works: Annotated[
        WatchFigure, about("Share of the time in which the GPU worked for the sequence, or communicated (g).")
    ]
    price: Annotated[WatchFigure, about("What its waits cost at most: 1 - max(h, g).")]
    waits: Annotated[list[WatchWait], about("By function, the one that costs most first.")]
    submitting: Annotated[Share, about("Share of the time inside calls that submit, without waiting.")]
    queue_full: Annotated[Share, about("Share of the time in which such calls waited for a place in the queue.")]
    step: Annotated[
        WatchStep | None,
        about("From one of its NVTX ranges, or most regular blocking calls, to the next; null if none is regular."),
    ]
    off_cpu: Annotated[
        WatchFigure | None,
        about("Share of the time between calls in which no thread of the sequence had a CPU; null where not known."),
    ]
    recorded: Annotated[Share, about("Share of the time that is covered.")]
    alone: Annotated[bool, about("Whether no other sequence of the process submits to the GPU.")]
    engine_known: Annotated[
        bool, about("Whether times in which others had the GPU are known; else it may seem to work in them.")
    ]
    late_us: Annotated[Us, about("Work that became known too late to be counted.")]
    ranks: Annotated[WatchRanks | None, about("Null where it has no kernels of NCCL.")]
    sentence: Text


class WatchLineTime(Document):
    """The time of one sort at a line."""

    share: Annotated[Share, about("Of the time of the sequence.")]
    function: Annotated[Text, about("Function of the driver with most of it; empty without any.")]


class WatchInnerPlace(Document):
    """The innermost frame at a line, such as that of a library's function, or the line itself."""

    place: StackFrame
    cost: Annotated[Share, about("Its part of what the line costs.")]


class WatchLine(Document):
    """The time of a sequence at one place of the program's own code, by samples."""

    place: Annotated[
        StackFrame | None,
        about(
            "The innermost frame of the program's own code, which led to code in a library; without an offset where "
            "a compiled function is known; null for time without a call stack."
        ),
    ]
    stack: Annotated[StackNumber, about("The one with most of the time.")]
    thread: Annotated[Natural, about("Thread id of the system, of the thread with most of the time.")]
    samples: Natural
    share: Annotated[WatchFigure, about("Share of the time of the sequence, with its interval by the samples.")]
    waits: Annotated[WatchLineTime, about("Inside calls that wait for the GPU, copies that block, and frees.")]
    calls: Annotated[WatchLineTime, about("Inside other calls.")]
    between: Annotated[WatchLineTime, about("Before the next call at the line, which is of the function.")]
    price: Annotated[Share, about("What its waits cost at most, as a share of the time; 0 without a division.")]
    cost: Annotated[
        WatchFigure,
        about("What it costs at most: price, calls and between; its share of the time where the GPU is the limit."),
    ]
    inner: Annotated[
        list[WatchInnerPlace],
        about("At most three, the one that costs most first; none if there is only the line itself."),
    ]
    sentence: Text
    remedy: Annotated[Text, about("What helps; empty where nothing is known.")]


class WatchWaitPlace(Document):
    """Waits of one function at one innermost frame of one line."""

    place: Annotated[StackFrame | None, about("The line, as in the lines.")]
    inner: Annotated[StackFrame | None, about("The innermost frame; null where that is the line.")]
    function: Text
    thread: Annotated[Natural, about("Thread id of the system, of the thread with most of them.")]
    calls: Annotated[float, Meta(ge=0), about("Their number by the log of calls, of which samples say what is here.")]
    per_second: Annotated[float, Meta(ge=0)]
    share: Annotated[Share, about("Of the time of the sequence.")]
    price: Annotated[Share, about("What they cost at most, as a share of the time; 0 without a division.")]
    sentence: Text


class WatchHoldingCalls(Document):
    """Calls of a function in another thread beside which calls of the sequence are unusually long."""

    thread: Annotated[Natural, about("Thread id of the system, of the thread that makes them.")]
    function: Text
    place: Annotated[StackFrame | None, about("The line that made most of them; null if no sample says so.")]
    held: Annotated[Text, about("Function of most of the calls that they hold up.")]
    calls: Annotated[Natural, about("Calls of the sequence that they hold up.")]
    per_second: Annotated[float, Meta(ge=0)]
    share: Annotated[Share, about("Part of the time of the sequence in which its calls are held up.")]


class WatchLines(Document):
    """The lines of a sequence in the steady state, or in the whole run without one."""

    threads: Annotated[list[Natural], about("Thread ids of the system, as in the sequence of the division.")]
    gpu: Annotated[Natural | None, about("As in the division; null without one.")]
    samples: Natural
    us: Annotated[Us, about("The time for which all samples stand.")]
    lines: Annotated[list[WatchLine], about("Those that cost most first.")]
    waits: Annotated[list[WatchWaitPlace], about("Those that cost most first, also such as cost hardly anything.")]
    holding: Annotated[
        list[WatchHoldingCalls],
        about("Calls of other threads that hold up those of the sequence, those with most of its time first."),
    ]


class WatchStartUpPart(Document):
    """Time of the start-up inside calls that block, of all threads together."""

    part: TimePart
    us: Us


class WatchDivision(Document):
    """What bounds a process: the division of its wall time in the steady state, or in the whole run without one."""

    steady: Annotated[
        bool,
        about(
            "Whether there were three seconds in a row without loading code, creating a context or a new kernel, in "
            "the first minute: the steady state begins with the first that have work, if any have."
        ),
    ]
    start_up_s: Annotated[Seconds, about("0 without a steady state.")]
    start_up: list[WatchStartUpPart]
    other_threads: Annotated[Natural, about("Threads that made calls, and have no work that was recorded.")]
    sequences: Annotated[list[WatchSequence], about("Those with most calls first.")]


class WatchSharer(Document):
    """A process on the GPU of another one."""

    pid: Natural
    name: Text
    watched: bool


class WatchRank(Document):
    """A rank of a job."""

    number: Natural
    size: Annotated[Natural | None, about("How many the job has; null where that is not known.")]
    variable: Annotated[Text, about("The environment variable that says so; empty: by the numbers of their GPUs.")]


class WatchProcess(Document):
    """A process of the program."""

    pid: Natural
    parent_pid: Natural
    image: Annotated[Natural, about("Number of programs that the process has executed with CUDA before.")]
    name: Text
    command: Text
    began_s: Seconds
    seconds: Seconds
    ended: bool
    state: Annotated[
        Text,
        Meta(
            description="What the injected library does in the process.",
            extra_json_schema={"enum": [state.name.lower().replace("_", "-") for state in WatchState]},
        ),
    ]
    error: WatchError | None
    cupti: WatchCupti
    calls_only: bool
    slow_us: Annotated[Us, about("The limit from which a call is slow.")]
    calls: Natural
    records: Natural
    losses: Annotated[dict[str, Natural], about("Calls and records that were not recorded, by reason.")]
    missed_records: Annotated[Natural, about("Records that were overwritten before they were read.")]
    gaps: Annotated[list[Text], about("Evidence that is missing, and why.")]
    cost: WatchCosts | None
    division: Annotated[WatchDivision | None, about("Null where no work of the GPU was recorded.")]
    sharers: Annotated[
        list[WatchSharer], about("Processes that may have had the time-slices of others, where these take time.")
    ]
    rank: Annotated[WatchRank | None, about("Of a process that communicates; null where it is not known.")]
    lines: Annotated[
        list[WatchLines],
        about(
            "Where the time of each sequence of the division passes; without a division, that of threads that hardly "
            "ever make calls at the same time."
        ),
    ]
    lost_us: Us
    unattributed_us: Us
    lost: list[WatchLoss]
    threads: Annotated[list[WatchThread], about("The most time lost first.")]
    slow_calls: Annotated[list[WatchSlowCall], about("The last ones, oldest first.")]
    slow_calls_dropped: Natural
    sites: Annotated[
        list[WatchSite],
        about("Slow calls by the stack of the program's own code, the most time lost first."),
    ]
    stacks: Annotated[
        list[CallStack],
        about("The different stacks, innermost frames first, which others name by their place in this list."),
    ]


class WatchAttached(Document):
    """What attaching to a process that ran cost it."""

    pid: Natural
    stopped_us: Annotated[
        Us, about("For so long, one of its threads was stopped to load the library; 0 where that was there already.")
    ]
    held_up_us: Annotated[Us, about("A call was held up for so long at most when the recording began or ended.")]


class WatchDocument(Document):
    """Output of `stallscope watch --json`: the driver calls of a program, and what each slow one waited for. Latencies
    are microseconds, times are seconds from the begin of the watch. Unknown values are null."""

    schema: Literal["stallscope.watch/2"]
    program: Annotated[list[Text] | None, about("The words of the command; null where it was started elsewhere.")]
    exit_code: Annotated[
        Natural | None,
        about(
            "Of the program, 128 + n if signal n ended it; null where it was started elsewhere, or where a recording "
            "ends before it."
        ),
    ]
    began_at: Annotated[
        Text | None,
        Meta(
            description="Begin of the watch, UTC; null without a process that used CUDA.",
            extra_json_schema={"format": "date-time"},
        ),
    ]
    seconds: Seconds
    problems: Annotated[list[Text], about("A sentence for whatever could not be recorded or read.")]
    attached: Annotated[list[WatchAttached], about("The processes that ran when they were attached (--pid).")]
    processes: list[WatchProcess]


def document(
    findings: WatchFindings,
    program: Sequence[str] | None = None,
    exit_code: int | None = None,
    problems: Sequence[str] = (),
    attached: Sequence[AttachingCost] = (),
) -> dict[str, Any]:
    """The document of ``findings``.

    ``program`` are the words of the command, None where it was started elsewhere; ``problems`` are further sentences,
    ``attached`` what it cost to attach to processes that ran.
    """
    first_ns = min((process.began_ns for process in findings.processes), default=0)
    began = datetime.datetime.fromtimestamp(findings.began_at_ns / 1e9, datetime.UTC)
    found: dict[str, Any] = codec.plain(
        WatchDocument(
            schema="stallscope.watch/2",
            program=None if program is None else list(program),
            exit_code=exit_code,
            began_at=began.isoformat(timespec="milliseconds") if findings.processes else None,
            seconds=_seconds(findings.duration_ns),
            problems=[*problems, *findings.problems],
            attached=[WatchAttached(one.pid, us_of(one.stopped_ns), us_of(one.held_up_ns)) for one in attached],
            processes=[_process(process, first_ns) for process in findings.processes],
        )
    )
    return found


# The different stacks of a process with their places in its list, by which calls name them.
_Stacks = dict[CallStack, int]


def _place(stack: CallStack | None, stacks: _Stacks) -> int | None:
    """The place of ``stack``, which may be new; None without one."""
    return None if stack is None else stacks.setdefault(stack, len(stacks))


def _process(process: ProcessFindings, first_ns: int) -> WatchProcess:
    stacks: _Stacks = {}
    return WatchProcess.of(
        process,
        began_s=_seconds(process.began_ns - first_ns),
        seconds=_seconds(process.duration_ns),
        state=_word(process.state.name),
        error=WatchError(process.failed_function, process.code) if process.code else None,
        cupti=WatchCupti(process.cupti_path, process.cupti_version),
        slow_us=us_of(process.slow_limit_ns),
        losses={_word(kind.name): count for kind, count in process.losses.items()},
        cost=None if process.cost is None else _costs(process.cost),
        division=None if process.division is None else _division(process.division, process),
        sharers=[WatchSharer.of(one) for one in process.sharers],
        rank=None if process.rank is None else WatchRank.of(process.rank),
        lines=[_lines(one, process, stacks) for one in process.lines],
        lost=[_loss(loss, process) for loss in process.lost],
        threads=[_thread(thread, process, first_ns, stacks) for thread in process.threads],
        slow_calls=[_slow(call, first_ns, stacks) for call in process.slow_calls],
        slow_calls_dropped=process.dropped_slow_calls,
        sites=[_call_site(site, first_ns, stacks) for site in process.sites],
        # The last, as it has the stacks that the others name.
        stacks=list(stacks),
    )


def _costs(cost: WatchCost) -> WatchCosts:
    return WatchCosts(
        low=round(cost.low, 6),
        high=round(cost.high, 6),
        compared=cost.compared,
        recorded=round(cost.recorded, 6),
        budget=cost.budget,
    )


def _division(division: ProcessDivision, process: ProcessFindings) -> WatchDivision:
    return WatchDivision(
        steady=division.steady,
        start_up_s=_seconds(division.start_up_ns),
        start_up=[WatchStartUpPart(part, us_of(ns)) for part, ns in division.start_up.items()],
        other_threads=division.other_threads,
        sequences=[_sequence(one, process) for one in division.sequences],
    )


def _sequence(sequence: SequenceDivision, process: ProcessFindings) -> WatchSequence:
    return WatchSequence.of(
        sequence,
        threads=list(sequence.threads),
        gpu=sequence.device,
        parts=[
            WatchTimePart(part, us_of(ns), 0.0 if part is Part.END else round(sequence.share(part), 6))
            for part, ns in sequence.parts.items()
        ],
        host=_figure(sequence.host),
        gpu_works=_figure(sequence.gpu),
        price=_figure(sequence.price),
        waits=[WatchWait(one.function, one.calls, us_of(one.ns), round(one.share, 6)) for one in sequence.waits],
        submitting=round(sequence.submitting, 6),
        queue_full=round(sequence.queue_full, 6),
        step=None if sequence.step is None else _step(sequence.step),
        off_cpu=None if sequence.off_cpu is None else _figure(sequence.off_cpu),
        recorded=round(sequence.recorded, 6),
        ranks=_ranks(sequence, process),
        sentence=verdict_text(sequence, process),
    )


def _ranks(sequence: SequenceDivision, process: ProcessFindings) -> WatchRanks | None:
    ranks = ranks_of(sequence, process)
    if ranks is None:
        return None
    blamed = "" if ranks.blamed is None else f"{rank_name(process)} {waits_clause(ranks.blamed)}."
    return WatchRanks.of(
        ranks,
        waiting=None if ranks.waiting is None else _figure(ranks.waiting),
        waits=[
            WatchRankWait.of(
                wait,
                gpu=wait.device,
                share=_figure(wait.share),
                back=round(wait.back, 6),
                delay=None if wait.delay is None else WatchRankDelay.of(wait.delay, share=round(wait.delay.share, 6)),
            )
            for wait in ranks.waits
        ],
        sentence=" ".join(filter(None, (blamed, partners_text(sequence, process)))),
    )


def _step(step: Step) -> WatchStep:
    return WatchStep.of(step, us=us_of(step.ns), low_us=us_of(step.low_ns), high_us=us_of(step.high_ns))


def _lines(lines: SequenceLines, process: ProcessFindings, stacks: _Stacks) -> WatchLines:
    sequence = sequence_of(lines, process)
    return WatchLines(
        threads=list(lines.threads),
        gpu=lines.device,
        samples=lines.samples,
        us=us_of(lines.ns),
        lines=[
            WatchLine.of(
                line,
                stack=_place(line.stack, stacks),
                share=_figure(line.share),
                waits=_line_time(line.waits),
                calls=_line_time(line.calls),
                between=_line_time(line.between),
                price=round(line.price, 6),
                cost=_figure(line.cost),
                inner=[WatchInnerPlace(one.place, round(one.cost, 6)) for one in line.inner],
                sentence=line_text(line, process, sequence, lines.threads[0]),
                remedy=remedy_text(line, process, sequence, lines),
            )
            for line in lines.lines
        ],
        waits=[
            WatchWaitPlace.of(
                wait,
                calls=round(wait.calls, 1),
                per_second=round(wait.per_second, 3),
                share=round(wait.share, 6),
                price=round(wait.price, 6),
                sentence=wait_text(wait, process, sequence),
            )
            for wait in lines.waits
        ],
        holding=[
            WatchHoldingCalls.of(one, per_second=round(one.per_second, 3), share=round(one.share, 6))
            for one in lines.holding
        ],
    )


def _line_time(time: LineTime) -> WatchLineTime:
    return WatchLineTime(round(time.share, 6), time.function)


def _figure(figure: Figure) -> WatchFigure:
    return WatchFigure(round(figure.share, 6), round(figure.low, 6), round(figure.high, 6))


def _call_site(site: CallSite, first_ns: int, stacks: _Stacks) -> WatchSite:
    return WatchSite.of(
        site,
        stack=_place(site.stack, stacks),
        place=site.stack.place,
        per_second=None if site.rate is None else round(site.rate, 3),
        first_s=_seconds(site.first_ns - first_ns, 9),
        last_s=_seconds(site.last_ns - first_ns, 9),
        sentence=f"{site_text(site)}.",
    )


def _thread(thread: ThreadFindings, process: ProcessFindings, first_ns: int, stacks: _Stacks) -> WatchThread:
    return WatchThread.of(
        thread,
        seconds=_seconds(thread.alive_ns),
        headline=headline(thread),
        lost_share=round(thread.lost_share, 6),
        lost=[_loss(loss, process, thread.id) for loss in thread.lost],
        rows=[_row(row) for row in thread.rows],
        in_flight=[_in_flight(call, first_ns, stacks) for call in thread.in_flight],
    )


def _row(row: CallRow) -> WatchRow:
    total = row.total
    return WatchRow.of(
        row,
        calls=total.count,
        p50_us=us_of(total.percentile(50)),
        p99_us=us_of(total.percentile(99)),
        max_us=us_of(total.max_ns) if total.count else None,
        histogram_ns=total.pairs(),
    )


def _loss(loss: TimeLost, process: ProcessFindings, thread: int | None = None) -> WatchLoss:
    return WatchLoss.of(
        loss,
        us=us_of(loss.ns),
        remedy=cause_of(loss.cause).helps(function_of(process.slow_calls, loss.cause, thread)).remedy,
    )


def _slow(call: ExplainedCall, first_ns: int, stacks: _Stacks) -> WatchSlowCall:
    return WatchSlowCall.of(
        call,
        source=_memory(call.source),
        target=_memory(call.target),
        at_s=_seconds(call.begin_ns - first_ns, 9),
        also=[WatchPart(part.cause, us_of(part.ns)) for part in call.also],
        evidence=_evidence(call.evidence, first_ns),
        sentence=call_text(call),
        stack=_place(call.stack, stacks),
        range=call.range or None,
    )


def _in_flight(call: CallInFlight, first_ns: int, stacks: _Stacks) -> WatchInFlight:
    return WatchInFlight.of(
        call,
        source=_memory(call.source),
        target=_memory(call.target),
        since_s=_seconds(call.begin_ns - first_ns, 9),
        beside=[_alongside(each, first_ns) for each in call.beside],
        sentence=in_flight_text(call),
        stack=_place(call.stack, stacks),
    )


def _evidence(evidence: WaitEvidence, first_ns: int) -> WatchEvidence:
    return WatchEvidence.of(
        evidence,
        work=[
            WatchWork.of(
                work,
                kind=work.kind.word,
                direction=None if work.copy is None else _word(work.copy.name),
                rank=work.rank or None,
            )
            for work in evidence.work
        ],
        calls=[_alongside(call, first_ns) for call in evidence.calls],
        engine=[WatchEngineUse(use.context, us_of(use.ns), use.process or None) for use in evidence.engine],
        known_by=evidence.known_by or None,
    )


def _alongside(call: CallAlongside, first_ns: int) -> WatchAlongside:
    return WatchAlongside.of(
        call,
        at_s=_seconds(call.begin_ns - first_ns, 9),
        source=_memory(call.source),
        target=_memory(call.target),
    )


def _memory(kind: MemoryKind) -> str | None:
    return None if kind is MemoryKind.UNKNOWN else _word(kind.name)


def _word(name: str) -> str:
    """The name of a member as a value of the document: ``cupti-taken``."""
    return name.lower().replace("_", "-")


def _seconds(ns: int, digits: int = 6) -> float:
    return round(ns / 1e9, digits)
