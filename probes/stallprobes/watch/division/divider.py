"""Divider of a process's wall time: readings become sums, slice by slice, while the program runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import GPU_WORK, RecordKind
from stallprobes.native.layouts.driver_calls import CallFamily, CallKind, DriverFunction, function_of
from stallprobes.native.layouts.watch_file import LossKind, WatchRecord
from stallprobes.records.rows import DRIVER_CALL, Rows, joined, of_kinds, rows_where
from stallprobes.watch.division.binned_sums import since
from stallprobes.watch.division.call_columns import by_number
from stallprobes.watch.division.collectives import CollectiveBatch
from stallprobes.watch.division.cpu_time import NO_SAMPLES, CpuSamples, passed_ns
from stallprobes.watch.division.divided_time import MOST_EVENTS, SECOND_NS, DividedTime
from stallprobes.watch.division.instants import (
    COPY,
    LIMITS,
    NO_CALLS,
    NO_OPERATIONS,
    NO_SPANS,
    Calls,
    CoveredTime,
    Flags,
    Limits,
    Operations,
    SequenceTimes,
    Spans,
    united,
)
from stallprobes.watch.division.outside_waits import NO_WAITS, OUTSIDE, OUTSIDE_NAME, OutsideWaits
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division.pending import (
    LOADING,
    SubmittedCalls,
    by_thread,
    calls_in_flight,
    column,
    communicate,
    divided_records,
    neighbours_of,
    operations_of,
    outermost_calls,
    reaching,
    threads_of,
    with_copies_that_block,
    with_overheads,
)
from stallprobes.watch.division.phases import divided_phases, growth_of
from stallprobes.watch.division.recorded_times import NO_ENGINE_USE, EngineUse, Tenures, away, recorded, unfollowed
from stallprobes.watch.division.result import DividedProcess, ProcessDivision, SequenceDivision
from stallprobes.watch.division.sequence_sums import SequenceSums
from stallprobes.watch.division.sequences import SequenceBook
from stallprobes.watch.division.slowdown import SlowdownSums
from stallprobes.watch.division.start_up import StartUp
from stallprobes.watch.division.steps import Step, StepBook
from stallprobes.watch.division.turns import NO_AGGRESSOR, TurnTimes
from stallprobes.watch.intervals import FOREVER, NONE, Int64s, distinct, int64s
from stallprobes.watch.reading.process import CallBatch, RecordBatch, WatchedProcess
from stallprobes.watch.reading.words import ProcessState

# Longest usual time (ns) from the end of GPU work until the record of the work is in the file. Time is divided only at
# this age. Reason: CUPTI's buffers are flushed ten times a second. A flush can take longer (3.2 s on an H200, CUPTI
# 13.5, while the GPU was never idle): work that comes later counts as late.
LAG_NS = 1_000_000_000
# Longest time (ns) from an event of a program's start-up until the record of the event is read. The time contains a
# flush of CUPTI's buffers and a reading of the file.
_EVENT_LAG_NS = 300_000_000
# Shortest slice of time (ns) that is divided into parts at once, except for the last slice of a process.
LEAST_SLICE_NS = 900_000_000
# Longest gap (ns) in a sequence's GPU work whose division waits for the record of the next operation. A longer gap is
# divided at once. Reason for waiting: an operation that still runs has no record yet, and may have ended the gap.
MAX_OPEN_GAP_NS = 10_000_000_000
# Largest number of new calls with which the division waits for the first record. Reason: a call takes some 100 bytes.
_MOST_WAITING = 1 << 20
# Largest age (ns) of kept calls and GPU work of other threads, while a gap in a sequence's GPU work is undivided. Older
# calls and work are dropped, except those of the sequence's own threads. Reason: a gap that is open for longer needs
# only the sequence's own calls.
KEPT_NS = 1_000_000_000
# Shortest duration (ns) at which a call that may create a context counts as having created a context. A shorter call
# found an existing context.
_CREATES_NS = 1_000_000
# Number of context switches on the GPUs of a process below which other processes' time-slices are negligible. From this
# number on, the times of the switches must be known on the host's clock. Without these times, use of the GPU by others
# counts as not known.
_FEW_SWITCHES = 64
# Largest number of sequences (threads that call by turns, on one GPU) that are kept: the sequences with the most calls.
MOST_SEQUENCES = 64
# Largest number of threads outside a sequence that each have a sum of their own. The sum is the time for which the
# sequence waits while the thread's GPU work runs.
_MOST_OTHERS = 64
# Array type of a record in a process's file.
_RECORD = dtype_of(WatchRecord)
# Kinds of losses that mean that calls are missing in the log of all calls.
_CALL_LOSSES = (LossKind.NO_BLOCK,)
# Longest time (ns) from the return of a call to the start of the call's work on an idle GPU. If the first recorded work
# of a process starts later, the work was queued behind work without a record. The process's time before this start then
# counts as not recorded, if the process ran before its recording.
_QUEUED_NS = 100_000
# Factor between the numbers of calls of two sequences above which the sequence with more calls is listed first. Up to
# this factor, the sequence that began first is listed first. Reason: the threads of a server would otherwise change
# places with every reading.
_DISPLACING_FACTOR = 1.25


class _Beside(NamedTuple):
    """Work and calls of the other threads of the process: when the work runs on the GPU, in the order of its starts,
    and the thread that submitted it. ``calls`` are those for which other threads may wait. ``elsewhere``: when kernels,
    and all work, of its threads run on other GPUs."""

    starts: Int64s
    ends: Int64s
    owners: Int64s
    calls: Calls
    elsewhere: tuple[Spans, Spans]

    def work(self, begin_ns: int, end_ns: int) -> Spans:
        """Times of the work between two times."""
        return Spans.united(*self._during(begin_ns, end_ns)[:2])

    def by_thread(self, begin_ns: int, end_ns: int) -> dict[int, Spans]:
        """Times of the work of each thread between two times."""
        starts, ends, owners = self._during(begin_ns, end_ns)
        return {
            thread: Spans.united(starts[owners == thread], ends[owners == thread])
            for thread in distinct(owners[owners >= 0]).tolist()[:_MOST_OTHERS]
        }

    def _during(self, begin_ns: int, end_ns: int) -> tuple[Int64s, Int64s, Int64s]:
        before = int(self.starts.searchsorted(end_ns, "left"))
        kept = self.ends[:before] > begin_ns
        starts, ends, owners = (each[:before].compress(kept) for each in (self.starts, self.ends, self.owners))
        return starts, ends, owners

    def own(self, begin_ns: int, end_ns: int) -> tuple[Spans, Spans]:
        """``elsewhere`` between two times."""
        kernels, work = self.elsewhere
        return kernels.within(begin_ns, end_ns), work.within(begin_ns, end_ns)

    def holding(self, begin_ns: int, end_ns: int) -> Calls:
        """Calls between two times for which other threads may wait."""
        return self.calls.where((self.calls.ends >= begin_ns) & (self.calls.begins < end_ns))


class _Batches:
    """Rows of several readings; those that begin before ``until_ns`` are selected."""

    def __init__(self, batches: Sequence[Rows], begin: str, end: str, until_ns: int) -> None:
        begins = [column(rows, begin) for rows in batches]
        begun = [each < until_ns for each in begins]
        self._end = end
        # Of batches with selected rows: the rows, their begins, and which have begun.
        every = zip(batches, begins, begun, strict=True)
        self._batches = [each for each in every if each[2].any()]
        self._taken = [flags for *_, flags in self._batches]
        # Rows that begin from ``until_ns`` on.
        self.later = [rows_where(rows, ~old) for rows, old in zip(batches, begun, strict=True) if not old.all()]

    @property
    def count(self) -> int:
        """Number of selected rows."""
        return sum(int(np.count_nonzero(taken)) for taken in self._taken)

    def choose(
        self,
        times: Sequence[tuple[int, int]],
        begin_ns: int,
        beside: Callable[[Rows, Int64s, Int64s], Flags] | None = None,
    ) -> None:
        """Select only what reaches into ``times`` or begins before ``begin_ns``, and what ``beside`` selects by rows,
        begins and ends."""
        self._taken = []
        for rows, begins, begun in self._batches:
            ends = column(rows, self._end)
            kept = reaching(begins, ends, times) | (begins < begin_ns)
            if beside is not None:
                kept |= beside(rows, begins, ends)
            self._taken.append(begun & kept)

    def taken(self) -> list[Rows]:
        """The selected rows."""
        return [rows_where(rows, taken) for (rows, *_), taken in zip(self._batches, self._taken, strict=True)]


class ProcessDivider:
    """Divides the wall time of one process. Feed it each reading with the records and calls since the one before."""

    def __init__(self, limits: Limits = LIMITS, most_events: int = MOST_EVENTS) -> None:
        """``most_events`` are the calls and operations in a second of all processes that are divided in full."""
        self._limits = limits
        self._time = DividedTime(most_events)
        # Calls and operations a second of the last slice.
        self.rate = 0.0
        self._process: WatchedProcess | None = None
        # New rows, which begin after the last slice (DRIVER_CALL, and records); kept rows of the slices before.
        self._new_calls: list[Rows] = []
        self._new_records: list[NDArray[Any]] = []
        self._calls = NO_CALLS
        self._operations = NO_OPERATIONS
        self._overheads: NDArray[Any] = np.zeros(0, _RECORD)
        # How long (ns) calls take that find room in the queue, by the numbers of their functions.
        self._usual: dict[int, int] = {}
        self._submitted = SubmittedCalls()
        self._book = SequenceBook()
        self._outside = OutsideWaits()
        self._start_up: StartUp | None = None
        self._sequences: dict[tuple[int, int], SequenceSums] = {}
        self._threads: set[int] = set()
        self._communication: set[int] = set()
        self._kernel_names: dict[int, str] = {}
        self._functions: dict[int, str] = {}
        self._kernels: set[int] = set()
        self._losses: tuple[int, ...] = ()
        self._lost = NO_SPANS
        self._done_ns = self._fed_ns = 0
        self._settled_ns: int | None = None
        # Whether any GPU work is known; before, the begin of the first launch whose record must come.
        self._has_work = False
        self._awaited_ns = FOREVER
        self._switches = 0
        self._placed: set[int] = set()
        self._cpu: CpuSamples = NO_SAMPLES
        self._steps = StepBook()
        self._slowdown = SlowdownSums()
        # Turns of an experiment beside the process. What follows from its time is of the time without aggressors.
        self.turns = TurnTimes()
        self._ended = False

    @property
    def done_ns(self) -> int:
        """The time until which everything is divided."""
        return min((sums.done_ns for sums in self._sequences.values()), default=self._done_ns)

    @property
    def devices(self) -> set[int]:
        """CUPTI's numbers of the GPUs with work that is divided."""
        return {device for _, device in self._sequences}

    def leader(self, thread: int) -> int:
        """The first thread of the sequence that a thread belongs to."""
        return self._book.leader(thread)

    def knows(self, thread: int, until_ns: int) -> bool:
        """True if it is known which sequence a thread belongs to that made calls until a time."""
        return self._book.knows(thread) or until_ns <= self._done_ns or self._ended

    def last_end_ns(self, leader: int) -> int:
        """The latest end of work of a sequence in the time that is divided; 0 without any."""
        return max((sums.last_end.at_ns for key, sums in self._sequences.items() if key[0] == leader), default=0)

    @property
    def divided_share(self) -> float:
        """The share (0 to 1) of the time so far that is divided: a part, where all processes make too many calls."""
        return self._time.share

    @property
    def steady_ns(self) -> int | None:
        """When the steady state began; None without one, or while that is not known."""
        if self._start_up is None:
            return None
        # An event that comes later moves the begin of the steady state, whose sums are of whole seconds.
        known_ns = max(self._done_ns, self._fed_ns - _EVENT_LAG_NS)
        return self._start_up.steady_ns(self._done_ns if self._ended else known_ns, self._ended)

    def feed(
        self,
        process: WatchedProcess,
        records: RecordBatch,
        calls: CallBatch,
        now_ns: int,
        engine_use: Callable[[], EngineUse] = lambda: NO_ENGINE_USE,
        ended: bool = False,
        cpu: CpuSamples = NO_SAMPLES,
        beside: Iterable[float] = (),
    ) -> None:
        """Add a reading at ``now_ns`` (CLOCK_MONOTONIC); ``ended``: nothing follows it.

        ``cpu`` has the last samples of CPU time, ``beside`` the ``rate`` of each other process that runs.
        """
        if self._ended:
            return
        if self._start_up is None:
            self._start_up = StartUp(process.started.monotonic_ns, process.late)
            self._steps = StepBook(self._start_up.began_ns, self.turns)
            self._done_ns = self._fed_ns = process.started.monotonic_ns
        self._process, self._ended, self._cpu = process, ended, cpu
        self._note_losses(process, records.missed, calls, now_ns)
        self._new_calls.append(calls.rows)
        self._new_records.append(divided_records(records.rows))
        correlations, began, returned = (
            column(calls.rows, name) for name in ("correlation", "began_ns", "returned_ns")
        )
        self._submitted.add(correlations, began, returned, threads_of(calls.rows))
        self._communication |= communicate(records.names)
        self._kernel_names.update(records.names)
        self._functions.update(calls.functions)
        self._note_start_up(self._start_up, process, records.rows, calls)
        until = (process.ended_ns or now_ns) if ended else self._known_until(process, records.rows, calls, now_ns)
        if process.state is ProcessState.YIELDED:
            # Nothing is recorded from then on.
            ended = self._ended = True
            ends = [self._calls.ends, self._operations.ends]
            ends += [rows["returned_ns"] for rows in self._new_calls]
            ends += [rows["end"] for rows in self._new_records]
            until = max(self._done_ns, *(int(times.max(initial=0)) for times in ends))
        if ended or until - self._done_ns >= LEAST_SLICE_NS:
            self._divide(process, until, now_ns, engine_use(), beside)
        self._fed_ns = now_ns
        self._steps.add(calls, process.ranges, self.steady_ns or 0)
        self._slowdown.add(process, calls, self.steady_ns, now_ns)

    def division(self) -> DividedProcess | None:
        """The division so far; None where no work was recorded."""
        process, start_up = self._process, self._start_up
        if process is None or start_up is None or not self._sequences:
            return None
        steady_ns = self.steady_ns
        begin_ns = start_up.began_ns if steady_ns is None else steady_ns
        keys = _in_order(self._sequences)
        sequences = (self._result(self._sequences[key], *key, begin_ns) for key in keys)
        submitting = {thread for sums in self._sequences.values() for thread in sums.threads}
        kinds = {
            Part.LOADING: CallKind.LOADS,
            Part.CONTEXT: CallKind.CONTEXT,
            Part.ALLOCATION: CallKind.ALLOCATES,
            Part.FREE: CallKind.FREES,
            Part.HOST_MEMORY: CallKind.HOST_MEMORY,
        }
        division = ProcessDivision(
            steady=steady_ns is not None,
            start_up_ns=0 if steady_ns is None else steady_ns - start_up.began_ns,
            start_up={part: ns for part, kind in kinds.items() if (ns := start_up.time_of(kind, begin_ns))},
            other_threads=len(self._threads - submitting),
        )
        return DividedProcess(division, tuple(sequence for sequence in sequences if sequence.covered_ns))

    def step_begins(self, step: Step | None) -> Int64s:
        """When its last steps of a kind began; without one, its last blocking calls of any kind."""
        return self._steps.blocking if step is None else self._steps.last_begins(step)

    def parts_in_turns(self, threads: Iterable[int], device: int) -> dict[str, Int64s]:
        """The time (ns) of each part of the sequence of ``threads`` in all turns of each kind."""
        leaders = {self._book.leader(thread) for thread in threads}
        return next((sums for leader in leaders if (sums := self.turns.sums((leader, device)))), {})

    def take_collectives(self) -> Mapping[tuple[int, int], CollectiveBatch]:
        """The kernels that communicate since the last time that this was asked, by first thread and GPU of their
        sequences."""
        batches = {key: sums.collectives.take() for key, sums in self._sequences.items()}
        return {key: batch for key, batch in batches.items() if batch is not None}

    # Readings.

    def _note_losses(self, process: WatchedProcess, records: int, calls: CallBatch, now_ns: int) -> None:
        losses = (process.lost_records, process.lost_calls, *(process.losses.get(kind, 0) for kind in _CALL_LOSSES))
        before = self._losses or (0,) * len(losses)
        if records or any(new > old for new, old in zip(losses, before, strict=True)):
            self._note_lost(self._fed_ns - LAG_NS, now_ns)
        elif calls.missed:
            self._note_lost(self._fed_ns - LAG_NS, min(calls.complete_ns, now_ns))
        if process.not_held:
            # Records of a thread may be missing from then on.
            self._note_lost(self._fed_ns - LAG_NS, FOREVER)
        self._losses = losses

    def _note_lost(self, begin_ns: int, end_ns: int) -> None:
        self._lost = united((self._lost, Spans(int64s([begin_ns]), int64s([end_ns]))))

    def _note_start_up(
        self, start_up: StartUp, process: WatchedProcess, records: NDArray[Any], calls: CallBatch
    ) -> None:
        if start_up.is_settled(self._done_ns):
            return
        outermost, _ = outermost_calls(calls.rows, calls.functions)
        start_up.note_calls(outermost.begins, outermost.ends, outermost.kinds)
        launching = by_number(calls.functions, _launches)[outermost.functions] != 0
        seconds = distinct((outermost.ends.compress(launching) - start_up.began_ns) // SECOND_NS)
        times = start_up.began_ns + seconds * SECOND_NS
        start_up.note_launches(times, times)
        start_up.note_launches(*unfollowed(process))
        overheads = rows_where(records, of_kinds(records, RecordKind.OVERHEAD))
        for kind in LOADING if len(overheads) else ():
            loading = overheads["subkind"] == int(kind)
            start_up.note(int64s(overheads["start"][loading]))
            start_up.note(int64s(overheads["end"][loading]))
        rows = calls.rows
        for number, name in calls.functions.items():
            function = function_of(name)
            least_ns = 0 if function.loads else _CREATES_NS if function.creates else None
            if least_ns is not None:
                chosen = (rows["function"] == number) & (rows["returned_ns"] - rows["began_ns"] >= least_ns)
                start_up.note(rows["began_ns"][chosen])
                start_up.note(rows["returned_ns"][chosen])
        kernel = of_kinds(records, RecordKind.KERNEL)
        new = set(distinct(records["name"].compress(kernel)).tolist()) - self._kernels
        if new:
            kernels = rows_where(records, kernel & np.isin(records["name"], list(new)))
            # Records come in the order of their buffers, so the first of a name may be a later one.
            order = np.argsort(kernels["start"], kind="stable")
            firsts = np.unique(kernels["name"][order], return_index=True)[1]
            start_up.note(int64s(kernels["start"])[order[firsts]])
            self._kernels |= new

    # Slices.

    def _known_until(self, process: WatchedProcess, records: NDArray[Any], calls: CallBatch, now_ns: int) -> int:
        """The time until which all records of work are known.

        CUPTI may return no buffer for seconds while the GPU is never idle. As long as no work is known, the first
        launch with a record shows that work is missing; afterwards the gap behind the last known work shows it
        (``_closed_until``).
        """
        until = now_ns - LAG_NS
        self._has_work = self._has_work or bool(of_kinds(records, *GPU_WORK).any())
        if self._has_work:
            return until
        if self._awaited_ns == FOREVER:
            launching = by_number(calls.functions, _launches)[calls.rows["function"]] != 0
            begins = np.sort(column(calls.rows, "began_ns").compress(launching))
            awaited = begins.compress(recorded(process).contain_ascending(begins))
            self._awaited_ns = int(awaited[0]) if len(awaited) else FOREVER
        if until - self._awaited_ns > MAX_OPEN_GAP_NS or sum(map(len, self._new_calls)) > _MOST_WAITING:
            return until
        return max(min(until, self._awaited_ns), self._done_ns)

    def _divide(
        self, process: WatchedProcess, until: int, now_ns: int, engine_use: EngineUse, beside: Iterable[float]
    ) -> None:
        begin = self._done_ns
        flying = _not_among(calls_in_flight(process, now_ns), self._calls, self._new_calls)
        self._take_new(begin, until, beside, recorded(process))
        calls, operations, overheads = self._calls, self._operations, self._overheads
        # What begins later belongs to the next slice.
        begun = operations.at(slice(int(operations.starts.searchsorted(until, "right"))))
        every = Calls.joined((calls.where(calls.begins < until), flying))
        every = with_overheads(every, overheads, self._usual)
        with_copies_that_block(every, operations, self._limits)
        self._submitted.note_callers(begun)
        made = by_thread(every)
        threads = self._outside.with_waits(made, begun, self._functions, self._cpu, begin, until)
        self._threads |= threads.keys()
        used = {thread: passed_ns(self._cpu.get(thread), begin, until) for thread in threads}
        self._book.note(
            {thread: made.spans.within(begin, until) for thread, made in threads.items()},
            {thread: passed[1] for thread, passed in used.items() if passed is not None},
            until - begin,
        )
        unknown = begun.returned < 0
        self._note_flying(begun, flying)
        every_tenure, self._switches = engine_use
        self._placed = {device for device, tenures in every_tenure.items() if len(tenures.contexts)}
        spans = self._recorded(process, begun, every)
        leaders, devices = self._leaders_of(begun), begun.devices
        work = begun.starts, begun.ends, begun.threads
        holding = Calls.joined([NO_CALLS, *(made.where(made.holds > 0) for made in threads.values())])
        for leader, device in self._keys(leaders, devices):
            mine, on_device = (leaders == leader) & (devices == device), devices == device
            apart = (leaders == leader) & ~on_device
            beside_starts, beside_ends, owners = (each.compress(on_device & ~mine) for each in work)
            kernels = apart & (begun.kinds != COPY) if apart.any() else apart
            own = {thread: made for thread, made in threads.items() if self._book.leader(thread) == leader}
            self._begin_sequence(leader, device, own, begin)
            self._add(
                (leader, device),
                own,
                begun.where(mine),
                until,
                spans,
                every_tenure.get(device),
                _Beside(
                    beside_starts,
                    beside_ends,
                    owners,
                    holding.where(~np.isin(holding.threads, list(own))),
                    (begun.union(kernels), begun.union(apart)),
                ),
            )
        begun.seen[:] = True
        # The return of a call in flight is unknown.
        begun.returned[unknown] = begun.threads[unknown] = -1
        self._done_ns = until
        self._keep(calls, operations, overheads)
        if self._ended:
            for sequence in self._sequences.values():
                sequence.cpu.end_at(sequence.last_end.at_ns)

    def _take_new(self, begin: int, until: int, beside: Iterable[float], recorded_times: Spans) -> None:
        """Take the new rows that begin before ``until``, as far as their time is divided."""
        calls = _Batches(self._new_calls, "began_ns", "returned_ns", until)
        records = _Batches(self._new_records, "start", "end", until + 1)
        self._new_calls, self._new_records = calls.later, records.later
        events = calls.count + records.count
        self.rate = events / max((until - begin) / SECOND_NS, 1.0)
        # Ranks are compared by what they do at one time.
        self._time.choose(begin, until, events, self._ended, beside, bool(self._communication), recorded_times)
        chosen = self._time.within(begin, until)
        # Few rows that began before the slice are new.
        if partly := begin < until and chosen != [(begin, until)]:
            calls.choose(chosen, begin)
        outermost, _ = outermost_calls(joined(DRIVER_CALL, calls.taken()), self._functions)
        if partly:
            # Other work shows the begin of the first gap, the end of the last gap, and whether a copy blocked.
            copies = outermost.correlations[outermost.kinds == int(CallKind.COPIES)]
            records.choose(
                chosen,
                begin,
                lambda rows, starts, ends: (
                    # A part of the next slice may begin with it.
                    neighbours_of(rows, starts, ends, [*chosen, (until, until)]) | np.isin(rows["correlation"], copies)
                ),
            )
        taken = joined(_RECORD, records.taken())
        self._calls = Calls.joined((self._calls, outermost))
        operations = (self._operations, operations_of(taken, self._communication))
        self._operations = _in_order_of_starts(Operations.joined(operations))
        overheads = rows_where(taken, taken["kind"] == int(RecordKind.OVERHEAD))
        self._overheads = joined(_RECORD, (self._overheads, overheads))

    def _recorded(self, process: WatchedProcess, begun: Operations, calls: Calls) -> Spans:
        """The times in which all work is recorded, by the operations that have ``begun``.

        Where the recording began while the program ran, they begin once nothing runs that was submitted before.
        """
        spans = recorded(process)
        if self._settled_ns is None:
            own = begun.where(begun.returned >= 0)
            if len(own):
                start = int(own.starts[0])
                self._settled_ns = start if process.late and start - int(own.returned[0]) > _QUEUED_NS else 0
        settled_ns = self._settled_ns
        if settled_ns is None:
            settled_ns = FOREVER if process.late and (calls.kinds == int(CallKind.SUBMITS)).any() else 0
        return spans.within(settled_ns, FOREVER)

    def _note_flying(self, operations: Operations, flying: Calls) -> None:
        """Note the threads of operations whose calls have not returned."""
        if len(flying) and (operations.returned < 0).any():
            submitted = SubmittedCalls()
            submitted.add(flying.correlations, flying.begins, flying.ends, flying.threads)
            submitted.note_callers(operations)

    def _leaders_of(self, operations: Operations) -> Int64s:
        """The sequence of each operation: that of its thread, else the one that submits most to its GPU."""
        owners = operations.threads
        threads = distinct(owners)
        leaders = int64s([self._book.leader(thread) if thread >= 0 else -1 for thread in threads.tolist()])
        sequences = leaders[np.searchsorted(threads, owners)] if len(threads) else NONE
        for device in distinct(operations.devices[sequences < 0]).tolist():
            here = operations.devices == device
            others = sequences[here & (sequences >= 0)]
            of_device = [key for key in self._sequences if key[1] == device]
            if len(others):
                values, counts = np.unique(others, return_counts=True)
                sequences[here & (sequences < 0)] = values[np.argmax(counts)]
            elif of_device:
                sequences[here & (sequences < 0)] = max(of_device, key=lambda key: self._sequences[key].calls)[0]
        return sequences

    def _keys(self, leaders: Int64s, devices: Int64s) -> list[tuple[int, int]]:
        # As one number: NumPy sorts pairs a hundred times as slowly.
        pairs = distinct(leaders[leaders >= 0] << 32 | devices[leaders >= 0])
        keys = dict.fromkeys((pair >> 32, pair & 0xFFFFFFFF) for pair in pairs.tolist())
        # A thread that has joined another sequence leads none.
        for key in [key for key in self._sequences if self._book.leader(key[0]) != key[0]]:
            del self._sequences[key]
        new = list(keys)[:MOST_SEQUENCES]
        busiest = sorted(self._sequences, key=lambda key: self._sequences[key].calls, reverse=True)
        self._sequences = {key: self._sequences[key] for key in busiest[:MOST_SEQUENCES]}
        return list(dict.fromkeys([*self._sequences, *new]))

    def _begin_sequence(self, leader: int, device: int, own: Mapping[int, Calls], begin: int) -> None:
        assert self._start_up is not None
        if (leader, device) not in self._sequences:
            first = min((int(made.begins[0]) for made in own.values() if len(made)), default=begin)
            first = max(first, begin)
            origin = self._start_up.began_ns
            self._sequences[leader, device] = SequenceSums(origin, first)

    def _add(
        self,
        key: tuple[int, int],
        own: Mapping[int, Calls],
        work: Operations,
        until: int,
        spans: Spans,
        tenures: Tenures | None,
        beside: _Beside,
    ) -> None:
        sequence = self._sequences[key]
        begin = sequence.done_ns
        for thread in own:
            sequence.note_thread(thread)
        sequence.contexts.update(distinct(work.contexts).tolist())
        # A call that reaches over the border of two slices counts twice; no order changes by that.
        parts = self._time.within(begin, until)
        whole = parts == [(begin, until)]
        # Hardly any call is known outside the parts.
        share = sum(last - first for first, last in parts) / max(until - begin, 1) or 1.0
        sequence.calls += round(sum(len(made.spans.within(begin, until).begins) for made in own.values()) / share)
        # Calls of a new sequence before the first part are unknown; its work may be known.
        if whole or begin > sequence.began_ns:
            sequence.note_late(*_late(work, begin))
        if not self._ended:
            until = self._closed_until(sequence, work, spans, until)
        if until <= begin:
            return
        for thread, made in own.items():
            sequence.note_thread(thread, round(_inside(made, begin, until) / share))
        elsewhere = away(tenures, sequence.contexts)
        for first, last in parts:
            last = min(last, until)
            if first >= last:
                continue
            # With the operation that ends the last gap, and those of calls that have not returned.
            reached = (work.ends > first) | (work.returned > first)
            reached[int(work.starts.searchsorted(last, "right")) + 1 :] = False
            last_end = work.latest_end(sequence.last_end, first)
            chosen = work.where(reached)
            calls = {thread: thread_calls.during(first, last) for thread, thread_calls in own.items()}
            times = SequenceTimes(
                threads=calls or {-1: NO_CALLS},
                work=chosen,
                recorded=spans,
                other_work=beside.work(first, last),
                others=partial(beside.by_thread, first, last),
                holding=beside.holding(first, last),
                elsewhere=beside.own(first, last),
                away=elsewhere.within(first, last),
                lost=self._lost,
                last_end=last_end,
                kernel_streams=sequence.kernel_streams(work, first),
                ended=self._ended,
                limits=self._limits,
            )
            self.turns.add(key, sequence.add(times, first, last))
            worked_until = max(int(chosen.ends.max(initial=0)), last_end.at_ns) if self._ended else last
            # Behind the last operation of a program, its end is no part of what bounds it.
            sequence.cpu.add(calls, self._cpu, first, max(first, min(last, worked_until)))
        sequence.advance(work, until)

    def _closed_until(self, sequence: SequenceSums, work: Operations, spans: Spans, until: int) -> int:
        """Begin of the gap that reaches over ``until``; ``until`` without one, or if it is very long.

        An operation that still runs has no record yet, and may have ended it. What ends a gap at the end of a time with
        records is not known in any case.
        """
        place = int(spans.place(int64s([until]))[0])
        if place < 0:
            return until
        before = work.ends[: int(work.starts.searchsorted(until, "left"))]
        last = max(int(before.max(initial=0)), sequence.last_end.at_ns, sequence.began_ns, int(spans.begins[place]))
        return until if last >= until or until - last > MAX_OPEN_GAP_NS else max(last, sequence.done_ns)

    def _keep(self, calls: Calls, operations: Operations, overheads: NDArray[Any]) -> None:
        """Keep what a later slice needs."""
        oldest = FOREVER if self._ended else max(self.done_ns, self._done_ns - KEPT_NS)
        # The end of its work shows whether a copy blocked that reaches over the border.
        before = self._limits.blocked_ns
        kept, kept_operations = calls.ends >= oldest, operations.ends > oldest - before
        # A sequence whose gap has been open for longer needs its own calls alone.
        for sequence in self._sequences.values() if not self._ended else ():
            if sequence.done_ns < oldest:
                own = np.isin(calls.threads, list(sequence.threads)) & (calls.ends >= sequence.done_ns)
                mine = np.isin(operations.threads, list(sequence.threads))
                kept, kept_operations = (
                    kept | own,
                    kept_operations | (mine & (operations.ends > sequence.done_ns - before)),
                )
        self._calls, self._operations = calls.where(kept), operations.where(kept_operations)
        self._overheads = rows_where(overheads, int64s(overheads["end"]) > oldest)
        self._time.drop_before(self.done_ns)
        self._lost = self._lost.ending_after(min(oldest, self.done_ns))

    def _result(self, sequence: SequenceSums, leader: int, device: int, begin_ns: int) -> SequenceDivision:
        assert self._process is not None
        assert self._start_up is not None

        def missing_ns(begins: Int64s, width_ns: int) -> Int64s:
            every = (self._outside.missing_ns(each, begins, width_ns) for each in sequence.threads)
            return max(every, key=lambda missing: abs(int(missing.sum())), default=np.zeros_like(begins))

        divide = partial(
            sequence.division,
            device,
            functions=self._functions | {OUTSIDE: OUTSIDE_NAME},
            sampled=len(self._process.windows) > 0 or self._time.share < 1,
            alone=sum(other == device for _, other in self._sequences) == 1,
            engine_known=self._knows_engine(device),
            left={each for each in sequence.threads if self._book.knows(each) and self._book.leader(each) != leader},
            possible_ns=lambda times: max(
                (self._outside.possible_ns(each, times) for each in sequence.threads),
                key=lambda waits: waits[0] + waits[1],
                default=NO_WAITS,
            ),
            missing_ns=missing_ns,
            slowdown=self._slowdown.of(sequence.threads),
        )
        times = self.turns.without(since(begin_ns), NO_AGGRESSOR, sequence.bin_ns)
        division = divide(times)
        if not division.covered_ns:
            times = since(begin_ns)
            division = divide(times)
        step, begins = self._steps.step_of(division.threads), self._steps.begins_of(division.threads)
        phases = sequence.phases(times, begins, missing_ns)
        found = divided_phases(phases, divide, begins, self._ended, self._start_up.began_ns)
        growth = None if begins is None or phases else growth_of(begins, times)
        if found is not None:
            described, times = found
            division, mean_ns = divide(times).changed(phases=described), described[0].step_ns
            step = step.changed(ns=mean_ns, low_ns=mean_ns, high_ns=mean_ns) if step and mean_ns else None
        if step is not None and (found is not None or len(self._process.windows)):
            # Where records are switched, single steps are slow because of that.
            step = step.changed(slow_ns=None)
        division = division.changed(step=step, growth=growth, kernels=sequence.kernels(times, self._kernel_names))
        if division.verdict is Bound.GPU and division.endless is not None:
            return division.changed(verdict=Bound.UNKNOWN, second=None)
        return division

    def _knows_engine(self, device: int) -> bool:
        """True if times in which others have a GPU are known."""
        assert self._process is not None
        switches = RecordKind.CONTEXT_SWITCH in self._process.kinds
        return switches and (device in self._placed or self._switches < _FEW_SWITCHES)


def _launches(function: DriverFunction) -> bool:
    return function.family is CallFamily.LAUNCH


def _in_order(sequences: Mapping[tuple[int, int], SequenceSums]) -> list[tuple[int, int]]:
    """Sequences by their number of calls, the most first; with about as many, by their begins.

    Otherwise threads of a server would change places with every reading.
    """
    ordered: list[tuple[int, int]] = []
    for key in sorted(sequences, key=lambda key: (sequences[key].began_ns, key)):
        place = len(ordered)
        while place and sequences[key].calls > _DISPLACING_FACTOR * sequences[ordered[place - 1]].calls:
            place -= 1
        ordered.insert(place, key)
    return ordered


def _not_among(flying: Calls, calls: Calls, new_calls: Iterable[Rows]) -> Calls:
    """Calls in flight of a reading that had not returned later: neither ``calls`` nor ``new_calls`` (DRIVER_CALL)
    contain them."""
    if not len(flying):
        return flying
    returned: set[tuple[int, int]] = set()
    for ids, began in [(calls.threads, calls.begins), *((threads_of(new), new["began_ns"]) for new in new_calls)]:
        some = np.isin(began, flying.begins)
        returned.update(zip(ids[some].tolist(), began[some].tolist(), strict=True))
    keys = zip(flying.threads.tolist(), flying.begins.tolist(), strict=True)
    return flying.where(np.array([key not in returned for key in keys]))


def _in_order_of_starts(operations: Operations) -> Operations:
    starts = operations.starts
    if (starts[1:] > starts[:-1]).all():
        return operations
    # Most are in order, of which only a stable sort makes use; the few that start together are sorted apart.
    order = np.argsort(starts, kind="stable")
    same = starts[order[1:]] == starts[order[:-1]]
    together = np.flatnonzero(np.append(same, False) | np.append(False, same))
    some = order[together]
    order[together] = some[np.lexsort((operations.correlations[some], starts[some]))]
    return operations.at(order)


def _late(work: Operations, begin_ns: int) -> tuple[Int64s, Int64s]:
    """Late work: times before ``begin_ns`` of new operations. Returns their begins, and the times (ns) that no known
    work covers."""
    late = ~work.seen & (work.starts < begin_ns)
    if not late.any():
        return NONE, NONE
    ends = np.minimum(work.ends, begin_ns)
    new = Spans.united(work.starts[late], ends[late])
    covered = CoveredTime(Spans.united(work.starts[work.seen], ends[work.seen]))
    return new.begins, new.ends - new.begins - covered.during(*new)


def _inside(calls: Calls, begin_ns: int, end_ns: int) -> int:
    """The time (ns) that a thread spends inside calls that submit work or wait for it."""
    spans = calls.where(calls.kinds <= int(CallKind.COPIES)).spans.within(begin_ns, end_ns)
    return int((spans.ends - spans.begins).sum())
