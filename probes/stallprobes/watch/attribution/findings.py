"""Findings about a watched program: rows of calls, calls in flight, slow calls with their causes, and time lost.

Screen, text report and JSON document are made of them: they are the members of the JSON object. Times are nanoseconds
on CLOCK_MONOTONIC. What ``report`` sets, as sentences and percentiles, is empty before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import force_setattr

from stallprobes.files.codec import (
    LARGEST_INTEGER,
    Document,
    Natural,
    PlainDocument,
    Ratio,
    Rounded,
    Sentence,
    Share,
    String,
    Unsigned,
    attributes,
    brief,
)
from stallprobes.files.tables import Record, aligned
from stallprobes.native.layouts.driver_calls import CallFamily, family_of
from stallprobes.watch.attribution.wait_cause import Cause, Certainty, Sureness, WaitCause
from stallprobes.watch.beside.result import BesideResult
from stallprobes.watch.cost import AttachingCost, WatchCost
from stallprobes.watch.division.parts import Part
from stallprobes.watch.division.result import ProcessDivision
from stallprobes.watch.lines.result import ProgramSequence, Stack
from stallprobes.watch.reading.call_stack import CallStack, StackFrame, StackFrames
from stallprobes.watch.reading.cpu_supply import CpuSupply, Workers
from stallprobes.watch.reading.process import CallFigures, DriverCall, FinishedCall, ProcessHead
from stallprobes.watch.reading.process_rank import Rank
from stallprobes.watch.reading.words import Direction, GpuWork

# Cause of lost time, with the id and the name of the culprit (a thread or process; None and "" without one).
LossKey = tuple[WaitCause, int | None, str]
# Number of calls that lost time to a cause, the lost time (ns), and its proven or known part (ns).
LossSum = tuple[int, int, int]
# Key of lost time without a known cause.
_UNATTRIBUTED: LossKey = WaitCause.UNATTRIBUTED, None, ""
# Certainties with which lost time counts as proven.
_PROVEN = (Certainty.PROVEN, Certainty.KNOWN)
# Largest number of characters of a program's words in the ``repr`` of findings.
_LONGEST_PROGRAM = 80
# Shortest time (ns) from the first to the last call for which a rate (calls per second) is given.
LEAST_RATE_NS = 1_000_000_000


class WorkInFront(PlainDocument, kw_only=True):
    """Work of the GPU during a slow call: all pieces with one name, kind, context and stream."""

    kind: GpuWork
    name: String
    """Name of the kernel; empty for other work."""
    direction: Direction | None
    """Of copies; null for other work."""
    context: Unsigned
    stream: Unsigned
    """CUPTI's number of the stream."""
    count: Unsigned
    total_ns: Unsigned
    overlap_ns: Unsigned
    """Time within the call."""
    bytes: Unsigned = 0
    own: bool = False
    """Whether the slow call submitted it."""
    rank: String = ""
    """The other rank for which it waits, for a kernel of NCCL; empty without one."""
    rank_ns: Unsigned = 0
    """For how long it does so within the call."""


class CallAlongside(DriverCall, kw_only=True):
    """Calls of one function in another thread during a slow call: the longest, and what all have in common with it."""

    calls: Unsigned
    """Their number."""
    duration_ns: Unsigned
    overlap_ns: Unsigned
    """Time that the slow call and any of them had in common."""


class OthersTime(PlainDocument):
    """Time within a slow call in which another context had the graphics engine."""

    context: Unsigned | None
    """Null: another process."""
    ns: Unsigned
    process: String = ""
    """The other process with the kernel that ran longest; empty where it is not watched too."""


class WaitEvidence(PlainDocument):
    """What shows the cause of a slow call; empty where there is none."""

    overlap_ns: Unsigned = 0
    """The part of the call that the evidence covers."""
    work: tuple[WorkInFront, ...] = ()
    calls: tuple[CallAlongside, ...] = ()
    engine: tuple[OthersTime, ...] = ()
    """Others that had the graphics engine meanwhile."""
    overhead_ns: Unsigned = 0
    """Time of the call's overhead records of the cause."""
    run_delay_ns: Unsigned = 0
    """The least time for which the thread was ready to run and had no CPU."""
    known_by: String = ""
    """The check or reference that shows that the pair stalls; empty without one."""
    alike: Unsigned = 0
    """Calls like it, with records, by which the cause is known; 0 if otherwise."""


# Evidence of a wait without a known cause.
NO_EVIDENCE = WaitEvidence()


class PartOfWait(PlainDocument):
    """A part of a slow call with another cause than the main one, of the same certainty."""

    cause: Cause
    ns: Unsigned


class ExplainedCall(FinishedCall, kw_only=True):
    """A call that took at least the limit, and its cause."""

    excess_ns: Unsigned
    """The duration less the median of its row."""
    cause: Cause
    certainty: Sureness | None
    explained_ns: Unsigned
    """The part of the excess that the cause explains."""
    evidence: WaitEvidence = NO_EVIDENCE
    nested: bool = False
    """Whether another slow call of the thread contains it, so that its time counts there."""
    also: tuple[PartOfWait, ...] = ()
    """Other parts of the excess with their causes; the rest is unattributed."""
    stack: Stack = None
    sentence: Sentence = UNSET

    @classmethod
    def made(cls, call: FinishedCall, **others: Any) -> ExplainedCall:
        """``call`` with the fields that it has not, or has otherwise."""
        return cls(**attributes(call, FinishedCall) | others)

    def __post_init__(self) -> None:
        if not self.evidence.calls and self.cause.is_other_thread:
            raise ValueError("has a cause in another thread, and no call of it")

    @property
    def share(self) -> float:
        """The share (0 to 1) of the excess that the evidence covers."""
        return min(self.evidence.overlap_ns / self.excess_ns, 1.0) if self.excess_ns else 0.0

    @property
    def culprit(self) -> CallAlongside | None:
        """Calls of the other thread that are the cause; None for causes of other kinds."""
        return self.evidence.calls[0] if self.cause.is_other_thread else None

    @property
    def losses(self) -> Iterator[tuple[LossKey, LossSum]]:
        """Time lost to each cause; the call counts for its main cause."""
        cause, explained_ns, left_ns = self.cause, self.explained_ns, self.excess_ns - self.explained_ns
        proven = self.certainty in _PROVEN
        if cause is not WaitCause.UNATTRIBUTED:
            culprit = self.culprit
            key = (cause, None, "") if culprit is None else (cause, culprit.thread, culprit.thread_name)
            yield key, (1, explained_ns, explained_ns if proven else 0)
        for part in self.also:
            yield (part.cause, None, ""), (0, part.ns, part.ns if proven else 0)
            left_ns -= part.ns
        if left_ns > 0:
            yield _UNATTRIBUTED, (int(cause is WaitCause.UNATTRIBUTED), left_ns, 0)


def function_of(calls: Iterable[ExplainedCall], cause: WaitCause, thread: int | None = None) -> str:
    """Function whose slow calls lost most time to a cause, in one ``thread`` or in all; "" without any."""
    times: Counter[str] = Counter()
    for call in calls:
        if call.cause is cause and thread in (None, call.thread):
            times[call.function] += call.explained_ns
    return max(times, key=lambda function: times[function], default="")


class CallInFlight(DriverCall, kw_only=True):
    """A call that has not returned."""

    age_ns: Unsigned
    depth: Unsigned
    """Number of calls of its thread that contain it."""
    cause: Cause = WaitCause.UNATTRIBUTED
    beside: tuple[CallAlongside, ...] = ()
    """Calls in flight of other threads that last for at least 80 % of its age, the longest first."""
    stack: Stack = None
    kernel_wait: String = ""
    """Function or system call of the kernel in which the thread waits; running: on a CPU; empty if not known."""
    sentence: Sentence = UNSET


class Standstill(Document, kw_only=True):
    """A process of which no call has begun or returned for seconds, and where its first thread is."""

    ns: Unsigned
    """How long, at least."""
    begun: bool
    """Whether its recording has begun; if not, CUPTI waits in it, as for a kernel that does not end."""
    function: String = ""
    """The function of its oldest call in flight; empty without one."""
    thread: String = ""
    """The name of the thread of that call, else of the process's first thread."""
    place: StackFrame | None = None
    """The line of the program at which that thread is; null if not known."""
    kernel_wait: String = ""
    """What it waits for in the kernel, as of a call in flight."""
    collective: String = ""
    """Its last NVTX range of NCCL; empty without one."""


class CallSite(Document, kw_only=True):
    """Slow calls of one function from one place in the program, in Python from one caller of its function."""

    function: String
    bytes: Unsigned | None
    """Size of the copies, which is the same; null for other functions."""
    blocking: bool
    """Whether they are copies that return only when the data is there."""
    stack: CallStack
    """Place in the list of the process of the stack of the last one."""
    place: StackFrame | None = None
    """The innermost frame of the program's own code."""
    calls: Unsigned
    """Including a share of such calls without a stack, as in the times."""
    recorded: Unsigned
    """Calls that have such a stack."""
    per_second: Ratio | None = None
    """From the begin of the first to the return of the last; null for less than a second."""
    first_ns: Unsigned
    """When the first began, on CLOCK_MONOTONIC."""
    last_ns: Unsigned
    """When the last one returned."""
    total_ns: Unsigned
    lost_ns: Unsigned
    cause: Cause
    """That of most of the time lost."""
    sentence: Sentence = UNSET

    @property
    def is_copy(self) -> bool:
        """True if its function copies."""
        return family_of(self.function) is CallFamily.COPY

    def __post_init__(self) -> None:
        span_ns = self.last_ns - self.first_ns
        force_setattr(self, "per_second", self.calls * 1e9 / span_ns if span_ns >= LEAST_RATE_NS else None)
        super().__post_init__()


class CallRow(CallFigures, kw_only=True, eq=False):
    """All calls of one function in one thread."""

    function: String
    family: CallFamily | None
    calls: Natural | UnsetType = UNSET
    p50_ns: Unsigned | UnsetType | None = UNSET
    p99_ns: Unsigned | UnsetType | None = UNSET
    max_ns: Unsigned | UnsetType | None = UNSET
    median_ns: Unsigned
    """The duration above which time is lost: the median, or that of the calls below the limit where most calls are
    slow."""
    lost_ns: Unsigned
    """The excess of the slow calls."""
    unkept: Unsigned
    """Slow calls that were overwritten before they were read."""
    unkept_ns: Unsigned
    """Their excess by the histogram."""


class TimeLost(PlainDocument):
    """Time that slow calls lost to one cause."""

    cause: Cause
    thread: Unsigned | None
    """Thread of the calls that are the cause; null for other causes."""
    thread_name: String
    calls: Unsigned
    ns: Unsigned
    proven_ns: Unsigned
    """The part whose cause is proven, or known by what the function does or by a check or reference."""
    remedy: Sentence = UNSET
    """What helps; empty where nothing is known."""

    @property
    def key(self) -> LossKey:
        """Its cause and the culprit."""
        return self.cause, self.thread, self.thread_name


def united(losses: Iterable[TimeLost]) -> tuple[TimeLost, ...]:
    """Time of several threads by cause and culprit, the most first."""
    sums: dict[LossKey, LossSum] = {}
    for loss in losses:
        calls, ns, proven_ns = sums.get(loss.key, (0, 0, 0))
        sums[loss.key] = calls + loss.calls, ns + loss.ns, proven_ns + loss.proven_ns
    lost = (TimeLost(*key, *sum_) for key, sum_ in sums.items() if sum_[1])
    return tuple(sorted(lost, key=lambda loss: -loss.ns))


class ThreadFindings(Document, kw_only=True, eq=False):
    """A thread."""

    id: Unsigned
    name: String
    owners: Unsigned
    """Number of threads that share the row, above a thousand; id and name are the last one's."""
    alive_ns: Unsigned
    """From its first call to its end, or until now."""
    ended: bool
    headline: Sentence = UNSET
    lost_ns: Natural = 0
    lost_share: Share = 0.0
    """Of its time."""
    lost: tuple[TimeLost, ...]
    """The most time first."""
    slow_calls: Unsigned
    rows: tuple[CallRow, ...]
    """The most time lost first."""
    in_flight: tuple[CallInFlight, ...]

    def __repr__(self) -> str:
        return brief(self, "id", "name", "lost_ns", "slow_calls")

    def __post_init__(self) -> None:
        # Only a hostile process has more, in calls of years.
        lost_ns = min(sum(loss.ns for loss in self.lost), LARGEST_INTEGER)
        force_setattr(self, "lost_ns", lost_ns)
        force_setattr(self, "lost_share", min(lost_ns / self.alive_ns, 1.0) if self.alive_ns else 0.0)
        super().__post_init__()


class GpuSharer(Document, kw_only=True):
    """A process on the GPU of another one."""

    pid: Unsigned
    name: String
    watched: bool


class ProcessFindings(ProcessHead, kw_only=True, eq=False):
    """A process of the program."""

    began_ns: Unsigned
    """On CLOCK_MONOTONIC."""
    duration_ns: Unsigned
    ended: bool
    calls: Natural
    losses: Mapping[String, Natural]
    """Calls and records that were not recorded, by reason."""
    missed_records: Unsigned
    """Records that were overwritten before they were read."""
    gaps: tuple[String, ...] = ()
    """Evidence that is missing, and why."""
    cost: WatchCost | None = None
    division: ProcessDivision | None = None
    """Null where no work of the GPU was recorded."""
    sequences: tuple[ProgramSequence, ...] = ()
    """Those with most calls first. Without a division, threads that hardly ever make calls at the same time, those with
    most samples first."""
    sharers: tuple[GpuSharer, ...] = ()
    """Processes that may have had the time-slices of others, where these take time."""
    cpus: CpuSupply | None = None
    """Null where /proc does not have it, and for recordings."""
    children: tuple[Workers, ...] = ()
    """Processes that it has started, by name, and theirs, the busiest ones first."""
    others: tuple[Workers, ...] = ()
    """Its threads that make no calls of the driver, by name, the busiest ones first."""
    settings: tuple[String, ...] = ()
    """Sentences on its command, on variables of its environment, at its start, and on the NUMA nodes of its CPUs and
    GPUs."""
    libraries: Mapping[String, String] = {}
    """Versions of the libraries of CUDA and of frameworks that it has loaded, by name, as the names of their files and
    packages say; empty where these are not known, as of another user's process."""
    standstill: Standstill | None = None
    """Null while it makes calls, or if not all of them are known."""
    rank: Rank | None = None
    """Of a process that communicates or stands still; null where it is not known."""
    lost_ns: Natural = 0
    """Of all threads."""
    unattributed_ns: Natural = 0
    """The part of it without a cause."""
    lost: tuple[TimeLost, ...]
    threads: tuple[ThreadFindings, ...]
    """The most time lost first."""
    slow_calls: tuple[ExplainedCall, ...]
    """The last ones, oldest first."""
    dropped_slow_calls: Unsigned
    """Older ones, which are counted in the time lost alone."""
    sites: tuple[CallSite, ...] = ()
    """Slow calls by the stack of the program's own code, the most time lost first."""
    stacks: tuple[StackFrames, ...] = ()
    """The different stacks, innermost frames first, which others name by their place in this list."""

    def __repr__(self) -> str:
        return brief(self, "pid", "name", "duration_ns", "calls")

    def iter_records(self) -> Iterator[Record]:
        """A record for each sequence on a GPU; one of the process alone where there is none."""
        cost, threads = self.cost, {thread.id: thread.name for thread in self.threads}
        head: Record = {
            "pid": self.pid,
            "process": self.name,
            "rank": None if self.rank is None else self.rank.number,
            "duration_ns": self.duration_ns,
            "ended": self.ended,
            "calls": self.calls,
            "lost_ns": self.lost_ns,
            "cost_low_share": None if cost is None else cost.low,
            "cost_high_share": None if cost is None else cost.high,
        }
        yield from (head | _sequence_columns(sequence, threads) for sequence in self.sequences)
        if not self.sequences:
            yield head

    def __post_init__(self) -> None:
        super().__post_init__()
        unattributed = sum(loss.ns for loss in self.lost if loss.cause is WaitCause.UNATTRIBUTED)
        force_setattr(self, "unattributed_ns", min(unattributed, LARGEST_INTEGER))
        force_setattr(self, "lost_ns", min(sum(loss.ns for loss in self.lost), LARGEST_INTEGER))


class WatchedGpu(Document, kw_only=True):
    """A GPU on which a watched process worked, by NVML."""

    uuid: String
    """Without GPU- or MIG-."""
    model: String = ""
    """Empty if not known, as the versions."""
    driver: String = ""
    """Version of the driver."""
    cuda: String = ""
    """Newest version of CUDA that the driver supports."""
    sm_clock_mhz: Annotated[float, Meta(ge=0), Rounded(1)] | None = None
    """The median SM clock of the watch; null if not known."""
    clock_reasons: tuple[String, ...] = ()
    """Why the clock was not higher, for half of the watch or more."""
    power_limit_w: Annotated[float, Meta(ge=0), Rounded(1)] | None = None
    """The lowest power limit; null if not known."""


def _sequence_columns(sequence: ProgramSequence, threads: Mapping[int, str]) -> Record:
    """Columns of a sequence: its first thread, what bounds it, the parts of its time, its waits and its step."""
    first = sequence.threads[0] if sequence.threads else None
    columns: Record = {
        "thread": None if first is None else threads.get(first, ""),
        "threads": len(sequence.threads),
        "device": sequence.device,
        "verdict": str(sequence.verdict),
        "second": None if sequence.second is None else str(sequence.second),
        "covered_ns": sequence.covered_ns,
    }
    for name in ("host", "gpu", "price"):
        figure = getattr(sequence, name) if sequence.divided else None
        for suffix, part in (("", "share"), ("_low", "low"), ("_high", "high")):
            columns[f"{name}{suffix}_share"] = None if figure is None else getattr(figure, part)
    for part in Part:
        if part is not Part.END:
            share = round(sequence.share(part), 6) if sequence.divided else None
            columns[f"{part.replace('-', '_')}_part_share"] = share
    step = sequence.step
    return columns | {
        "step_ns": None if step is None else step.ns,
        "step_p99_ns": None if step is None else step.slow_ns,
        "steps": None if step is None else step.steps,
    }


class WatchFindings(Document, kw_only=True, eq=False):
    """Output of `stallscope watch --json`: the driver calls of a program, and what each slow one waited for. Times and
    durations are nanoseconds, times of events are on CLOCK_MONOTONIC. Unknown values are null."""

    schema: Literal["stallscope.watch/3"] = "stallscope.watch/3"
    program: tuple[String, ...] | None = None
    """The words of the command; null where it was started elsewhere."""
    exit_code: Natural | None = None
    """Of the program, 128 + n if signal n ended it; null where it was started elsewhere, or where a recording ends
    before it."""
    began_at: Annotated[String | None, Meta(extra_json_schema={"format": "date-time"})] = None
    """Begin of the watch, UTC; null without a process that used CUDA."""
    began_at_ns: Unsigned
    """Begin of the watch, since 1970."""
    began_ns: Unsigned
    """The same on CLOCK_MONOTONIC, as the times of events are."""
    duration_ns: Unsigned
    """From the first process's start until now or the end."""
    problems: tuple[String, ...] = ()
    """A sentence for whatever could not be recorded or read."""
    beside: BesideResult | None = None
    """What aggressors beside the program did to it (--beside); null without any."""
    attached: tuple[AttachingCost, ...] = ()
    """The processes that ran when they were attached (--pid)."""
    gpus: tuple[WatchedGpu, ...] = ()
    """Those that NVML knows; none for recordings."""
    processes: tuple[ProcessFindings, ...]

    @property
    def slow_limit_ns(self) -> int:
        """Smallest limit from which a call is slow; 0 without a process."""
        return min((process.slow_limit_ns for process in self.processes), default=0)

    def __repr__(self) -> str:
        words = " ".join(self.program or ()) or ", ".join(dict.fromkeys(process.name for process in self.processes))
        bounds = dict.fromkeys(sequence.verdict.word for process in self.processes for sequence in process.sequences)
        return (
            f"<WatchFindings of {words[:_LONGEST_PROGRAM] or 'no process'}, {self.duration_ns / 1e9:.1f} s, "
            f"{len(self.processes)} processes: {', '.join(bounds) or 'not known'}>"
        )

    def to_records(self) -> list[Record]:
        """A record for each process, sequence and GPU, for pandas, polars or Arrow.

        Times are in nanoseconds, parts of the time shares from 0 to 1 (``host_part_share``); None is not known. A
        process without a sequence has one record. All records have the same columns.
        """
        return aligned(record for process in self.processes for record in process.iter_records())

    def with_problems(self, problems: Iterable[str]) -> WatchFindings:
        """Findings with ``problems`` in front of their own."""
        return self.changed(problems=(*problems, *self.problems))
