"""Findings about a watched program: rows of calls, calls in flight, slow calls with their causes, and time lost.

Plain values: screen, text report and JSON document are made of them. Times are nanoseconds on CLOCK_MONOTONIC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from stallprobes.files.codec import Unsigned
from stallprobes.native.layouts.cupti import CopyKind, RecordKind
from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.cost import WatchCost
from stallprobes.watch.division.result import ProcessDivision
from stallprobes.watch.lines.result import SequenceLines
from stallprobes.watch.ranks.result import SequenceRanks
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.process import CallFigures, DriverCall, FinishedCall, ProcessHead
from stallprobes.watch.reading.process_rank import Rank

# A cause, and the id and the name of the culprit.
LossKey = tuple[WaitCause, int | None, str]
# Calls, their time, and the part of it that is proven or known (ns).
LossSum = tuple[int, int, int]
_UNATTRIBUTED: LossKey = WaitCause.UNATTRIBUTED, None, ""
_PROVEN = (Certainty.PROVEN, Certainty.KNOWN)
# Calls during less time have no rate.
LEAST_RATE_NS = 1_000_000_000


@dataclass(frozen=True)
class WorkInFront:
    """Work of the GPU during a slow call: all pieces with one name, kind, context and stream.

    ``name`` is a kernel's demangled name, "" for other work. ``copy`` is the direction of a copy. ``count`` pieces took
    ``total_ns``, of that ``overlap_ns`` within the call. ``own``: the slow call submitted it. ``rank`` is the other one
    for which it waits for ``rank_ns`` within the call, "" without one.
    """

    kind: RecordKind
    name: str
    copy: CopyKind | None
    context: Unsigned
    stream: Unsigned
    count: Unsigned
    total_ns: Unsigned
    overlap_ns: Unsigned
    bytes: Unsigned = 0
    own: bool = False
    rank: str = ""
    rank_ns: Unsigned = 0


@dataclass(frozen=True, kw_only=True)
class CallAlongside(DriverCall):
    """The longest call of another thread during a slow call, for all ``calls`` of its function in that time.

    ``overlap_ns`` is the time that the slow call and any of them had in common.
    """

    calls: Unsigned
    duration_ns: Unsigned
    overlap_ns: Unsigned


@dataclass(frozen=True)
class EngineUse:
    """Time within a slow call in which others had the graphics engine: ``context``, or None for another process.

    ``process`` names that with its kernel, as by ``other_processes.user_of``, "" where it is not watched.
    """

    context: Unsigned | None
    ns: Unsigned
    process: str = ""


@dataclass(frozen=True)
class WaitEvidence:
    """What shows the cause of a slow call; empty where there is none.

    ``overhead_ns`` is the time of the call's overhead records of the cause, ``run_delay_ns`` the least time for which
    the thread was ready to run and had no CPU. ``overlap_ns`` is the part of the call that everything together covers.
    ``known_by`` is the check or reference that shows that the pair stalls, "" without one. ``alike`` counts the calls
    like it by which the cause is known, 0 if it is known otherwise.
    """

    overlap_ns: Unsigned = 0
    work: tuple[WorkInFront, ...] = ()
    calls: tuple[CallAlongside, ...] = ()
    engine: tuple[EngineUse, ...] = ()
    overhead_ns: Unsigned = 0
    run_delay_ns: Unsigned = 0
    known_by: str = ""
    alike: Unsigned = 0


NO_EVIDENCE = WaitEvidence()


@dataclass(frozen=True)
class PartOfWait:
    """A part of a slow call with another cause than the main one, of the same certainty."""

    cause: WaitCause
    ns: Unsigned


@dataclass(frozen=True, kw_only=True)
class ExplainedCall(FinishedCall):
    """A slow call and its cause.

    ``excess_ns`` is its duration less the row's median. ``explained_ns`` of it have the cause, the rest is
    unattributed, except the parts in ``also``. ``certainty`` is None without a cause. ``nested``: another slow call of
    the thread contains it, so that its time counts there. ``stack`` is where the program made it, None if not recorded.
    """

    excess_ns: Unsigned
    cause: WaitCause
    certainty: Certainty | None
    explained_ns: Unsigned
    evidence: WaitEvidence = NO_EVIDENCE
    nested: bool = False
    also: tuple[PartOfWait, ...] = ()
    stack: CallStack | None = None

    @classmethod
    def of(cls, call: FinishedCall, **others: Any) -> ExplainedCall:
        """``call`` with the fields that it has not, or has otherwise."""
        # As ``made``, without a copy of all fields.
        found = cls.__new__(cls)
        fields = vars(found)
        fields.update(vars(call))
        fields.update(others)
        found.__post_init__()
        return found

    def __post_init__(self) -> None:
        if not self.evidence.calls and self.cause.is_other_thread:
            raise ValueError("has a cause in another thread, and no call of it")

    @property
    def share(self) -> float:
        """The share (0 to 1) of the excess that the evidence covers."""
        return min(self.evidence.overlap_ns / self.excess_ns, 1.0) if self.excess_ns else 0.0

    @property
    def culprit(self) -> CallAlongside | None:
        """The other thread's calls that are the cause; None for causes of other kinds."""
        return self.evidence.calls[0] if self.cause.is_other_thread else None

    @property
    def losses(self) -> Iterator[tuple[LossKey, LossSum]]:
        """The time that it lost to each cause; it counts as a call of its main one."""
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
    """The function of the slow calls that lost most time to a cause, of one ``thread`` or of all; "" without any."""
    times: Counter[str] = Counter()
    for call in calls:
        if call.cause is cause and thread in (None, call.thread):
            times[call.function] += call.explained_ns
    return max(times, key=lambda function: times[function], default="")


@dataclass(frozen=True, kw_only=True)
class CallInFlight(DriverCall):
    """A call in flight. ``depth`` counts the calls of its thread that contain it.

    ``beside`` are calls in flight of other threads that last for at least 80 % of its age, the longest first.
    ``stack`` is where the program made it, ``kernel_wait`` the function of the kernel in which its thread waits; None
    and "" where they are not known, as for a call that has only begun.
    """

    age_ns: Unsigned
    depth: Unsigned
    cause: WaitCause = WaitCause.UNATTRIBUTED
    beside: tuple[CallAlongside, ...] = ()
    stack: CallStack | None = None
    kernel_wait: str = ""


@dataclass(frozen=True)
class CallSite:
    """Slow calls of one function and size that the same frames of the program's own code made.

    ``stack`` is that of the last one. ``recorded`` calls have such a stack. ``calls`` adds a share of those of the
    function and size that have none, as do ``total_ns``, the time inside the calls, and ``lost_ns``, most of it to
    ``cause``. ``first_ns`` is the begin of the first, ``last_ns`` the last time at which one returned. ``blocking``:
    copies that return only when the data is there.
    """

    stack: CallStack
    function: str
    family: CallFamily | None
    bytes: Unsigned | None
    blocking: bool
    recorded: Unsigned
    calls: Unsigned
    total_ns: Unsigned
    lost_ns: Unsigned
    first_ns: Unsigned
    last_ns: Unsigned
    cause: WaitCause

    @property
    def estimated(self) -> bool:
        """Whether calls without a stack are among ``calls``."""
        return self.calls > self.recorded

    @property
    def rate(self) -> float | None:
        """Calls per second; None for less than a second."""
        span_ns = self.last_ns - self.first_ns
        return self.calls * 1e9 / span_ns if span_ns >= LEAST_RATE_NS else None


@dataclass(frozen=True, eq=False, kw_only=True)
class CallRow(CallFigures):
    """All calls of one function in one thread.

    ``median_ns`` is that of ``total``; where it is not below the limit, that of the calls below the limit, 0 without
    any. ``lost_ns`` is the excess of the slow calls. ``unkept`` slow calls were overwritten before they were read;
    ``unkept_ns`` is their excess by the histogram.
    """

    function: str
    family: CallFamily | None
    median_ns: Unsigned
    lost_ns: Unsigned
    unkept: Unsigned
    unkept_ns: Unsigned


@dataclass(frozen=True)
class TimeLost:
    """Time that slow calls lost to one cause. ``thread`` and ``thread_name`` are those of the culprit, None and "" for
    causes other than a call of another thread. ``proven_ns`` of ``ns`` are proven or known, the rest is beside."""

    cause: WaitCause
    thread: Unsigned | None
    thread_name: str
    calls: Unsigned
    ns: Unsigned
    proven_ns: Unsigned

    @property
    def key(self) -> LossKey:
        """Its cause and the culprit."""
        return self.cause, self.thread, self.thread_name


def united(losses: Iterable[TimeLost]) -> tuple[TimeLost, ...]:
    """The time of several threads by cause and culprit, the most first."""
    sums: dict[LossKey, LossSum] = {}
    for one in losses:
        calls, ns, proven_ns = sums.get(one.key, (0, 0, 0))
        sums[one.key] = calls + one.calls, ns + one.ns, proven_ns + one.proven_ns
    found = (TimeLost(*key, *sum_) for key, sum_ in sums.items())
    return tuple(sorted((one for one in found if one.ns), key=lambda one: -one.ns))


@dataclass(frozen=True, eq=False)
class ThreadFindings:
    """A thread: its rows, the most time first, its calls in flight, and its time lost by cause, the most first.

    In a process of more than a thousand threads, several share one; ``owners`` is their number, and ``id`` and ``name``
    are the last one's. ``alive_ns`` is the time from the first call to the thread's end, or until now.
    """

    id: Unsigned
    name: str
    owners: Unsigned
    alive_ns: Unsigned
    ended: bool
    rows: tuple[CallRow, ...]
    in_flight: tuple[CallInFlight, ...]
    slow_calls: Unsigned
    lost: tuple[TimeLost, ...]

    @property
    def lost_ns(self) -> int:
        """Time lost to all causes together."""
        return sum(one.ns for one in self.lost)

    @property
    def lost_share(self) -> float:
        """The share (0 to 1) of its time that was lost."""
        return min(self.lost_ns / self.alive_ns, 1.0) if self.alive_ns else 0.0


@dataclass(frozen=True, kw_only=True)
class GpuSharer:
    """A process on the GPU of a watched one. ``watched``: it is watched too."""

    pid: Unsigned
    name: str
    watched: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class ProcessFindings(ProcessHead):
    """Findings about a watched process.

    ``slow_calls`` are those that were kept, oldest first; ``dropped_slow_calls`` older ones are only counted in
    ``lost``. ``gaps`` are sentences that say which evidence is missing, and why. ``missed_records`` were overwritten
    before they were read. ``sites`` are the places in the program's code that made slow calls, the most time lost
    first. ``cost`` is what watching costs the process, ``division`` what bounds it; None where that is not known.
    ``lines`` are where the time of each sequence of the division passes; without a division, that of threads that
    hardly ever make calls at the same time. ``sharers`` are processes that may have had the time-slices of others.
    ``rank`` is its rank where it communicates with others, None where that is not known; ``ranks`` is how its sequences
    do.
    """

    began_ns: Unsigned
    duration_ns: Unsigned
    ended: bool
    threads: tuple[ThreadFindings, ...]
    slow_calls: tuple[ExplainedCall, ...]
    dropped_slow_calls: Unsigned
    lost: tuple[TimeLost, ...]
    calls: Unsigned
    missed_records: Unsigned
    gaps: tuple[str, ...] = ()
    sites: tuple[CallSite, ...] = ()
    cost: WatchCost | None = None
    division: ProcessDivision | None = None
    lines: tuple[SequenceLines, ...] = ()
    sharers: tuple[GpuSharer, ...] = ()
    rank: Rank | None = None
    ranks: tuple[SequenceRanks, ...] = ()

    @property
    def lost_ns(self) -> int:
        """Time that all threads together lost."""
        return sum(one.ns for one in self.lost)

    @property
    def unattributed_ns(self) -> int:
        """The part of it without a cause."""
        return sum(one.ns for one in self.lost if one.cause is WaitCause.UNATTRIBUTED)


@dataclass(frozen=True, eq=False)
class WatchFindings:
    """Findings about all processes of a watched program, and a sentence for each file that could not be read.

    ``began_at_ns`` is CLOCK_REALTIME, ``duration_ns`` the time from the first process's start until now or the end.
    """

    began_at_ns: Unsigned
    duration_ns: Unsigned
    processes: tuple[ProcessFindings, ...]
    problems: tuple[str, ...] = ()
