"""Analysis of a watched process: its readings and records become findings, also while it runs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from stallprobes.files.codec import attributes
from stallprobes.latency.histogram import MIDDLE, Histogram, index
from stallprobes.native.layouts.driver_calls import family_of
from stallprobes.native.layouts.watch_file import DEFAULT_SLOW_NS
from stallprobes.watch.attribution.alike_calls import AlikeCalls
from stallprobes.watch.attribution.findings import (
    CallRow,
    ExplainedCall,
    ProcessFindings,
    ThreadFindings,
    TimeLost,
    WatchFindings,
    united,
)
from stallprobes.watch.attribution.gpu_waits import WAKE_UP_NS
from stallprobes.watch.attribution.other_processes import OthersWork, OtherWork, nobody
from stallprobes.watch.attribution.record_store import RecordStore
from stallprobes.watch.attribution.stream_numbers import StreamNumbers
from stallprobes.watch.attribution.stream_order import StreamOrder, may_hold_streams
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.call_sums import CallSums, SiteSums
from stallprobes.watch.causes.facts import Recorded
from stallprobes.watch.causes.known_stalls import KnownStalls
from stallprobes.watch.causes.order import attribute
from stallprobes.watch.causes.other_threads import calls_in_flight
from stallprobes.watch.cost import cost_of
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.cpu_time import NO_SAMPLES
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.recorded_times import EngineUse, unfollowed
from stallprobes.watch.division.result import ProcessDivision
from stallprobes.watch.intervals import Int64s
from stallprobes.watch.lines.kernel_launches import KernelLaunches
from stallprobes.watch.lines.lines import lines_of
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.lines.sample_sums import SampleSums
from stallprobes.watch.lines.turn_lines import TurnLines
from stallprobes.watch.reading.call_stack import CallStack, StackFrame
from stallprobes.watch.reading.process import (
    NO_CALLS,
    NO_FIGURES,
    NO_SAMPLES_OF_TIME,
    NOTHING_READ,
    CallBatch,
    CallFigures,
    GpuLimits,
    OutsideReading,
    ProcessHead,
    RecordBatch,
    SampleBatch,
    SlowDriverCall,
    WatchedProcess,
    WatchedThread,
)
from stallprobes.watch.reading.settled_windows import WindowSettler
from stallprobes.watch.sentences import gaps
from stallprobes.watch.thread_names import has_role

# Shortest time (ns) from a slow call's end until its cause becomes final. Reason: all records that may explain the call
# have been read by then.
SETTLED_NS = 2_000_000_000
# Longest time (ns) for which the cause of a slow call waits for other causes, after SETTLED_NS. Causes become final in
# groups. Reason: one search for the causes of many calls takes as long as a search for one cause.
SETTLED_TOGETHER_NS = 1_000_000_000
# Largest number of explained calls that are kept individually. The sums also include older calls.
MOST_CALLS = 10_000
# Smallest number of readings of a process's file for which a slow call is remembered after the last reading with the
# call. Reason: a thread may lose its part of the file and later get a part with the same slow calls. The calls must not
# count twice.
_FORGET_READINGS = 64


@dataclass(slots=True)
class _HeldCall:
    """A slow call whose cause is not final, or that may be the cause of such a call."""

    slot: int
    slow: SlowDriverCall
    end_ns: int
    final: bool = False
    # By py-spy, while it was in flight.
    stack: CallStack | None = None


class ProcessAnalysis:
    """The analysis of one process. Feed it each reading of the file with the records since the one before."""

    def __init__(self, known: KnownStalls | None = None) -> None:
        """``known`` are the pairs that stall on this machine, by a saved check or a reference."""
        self._known = known
        self._store = RecordStore()
        self._held: list[_HeldCall] = []
        # The held calls as the present reading explains them; None until it does.
        self._present: tuple[ExplainedCall, ...] | None = None
        # The calls of the last readings by thread, begin, duration and correlation, and those of as many before.
        self._read: set[tuple[int, int, int, int]] = set()
        self._read_before: set[tuple[int, int, int, int]] = set()
        self._final: deque[ExplainedCall] = deque(maxlen=MOST_CALLS)
        self._dropped = self._readings = 0
        self._sums = CallSums()
        self._process: WatchedProcess | None = None
        self._now_ns = 0
        self._ended = False
        self._run_delays: dict[int, Int64s] = {}
        self._preempted: Mapping[int, Int64s] = {}
        self._names: dict[int, str] = {}
        self._stacks: dict[int, CallStack] = {}
        self._outside = NOTHING_READ
        # What divides its time.
        self.divider = ProcessDivider()
        self._samples: SampleSums | None = None
        self._launches = KernelLaunches()
        self._turn_lines = TurnLines()
        self._settler = WindowSettler()
        self._streams = StreamNumbers()
        self._order = StreamOrder(self._streams)
        self._alike = AlikeCalls()
        # Kernels of the other processes that are watched.
        self.others: OthersWork = nobody
        # The ``rate`` of each other process that runs.
        self.rates_beside: Callable[[], Iterable[float]] = tuple
        self._kernels: tuple[int, OtherWork] | None = None

    def feed(
        self,
        process: WatchedProcess,
        records: RecordBatch,
        now_ns: int,
        run_delays: Mapping[int, Int64s] | None = None,
        stacks: Mapping[int, CallStack] | None = None,
        outside: OutsideReading = NOTHING_READ,
        calls: CallBatch = NO_CALLS,
        ended: bool = False,
        samples: SampleBatch = NO_SAMPLES_OF_TIME,
        preempted: Mapping[int, Int64s] = NO_SAMPLES,
    ) -> None:
        """Add a reading at ``now_ns`` (CLOCK_MONOTONIC).

        ``run_delays`` has, by thread id, the samples since the start as ``Recorded`` describes them, and so has
        ``preempted`` the latest times without a CPU; ``stacks`` are the call stacks by their number in the file.
        ``calls`` are those of the log since the reading before, and so are ``samples``; ``ended``: nothing follows this
        reading.
        """
        process = self._settler.feed(process, records, calls)
        self._process, self._now_ns, self._ended = process, now_ns, ended
        self._readings += 1
        self._run_delays, self._preempted = dict(run_delays or {}), preempted
        self._stacks.update(stacks or {})
        self._outside = outside
        self._store.realtime_ns = process.clocks.realtime_ns - process.clocks.monotonic_ns
        self._store.add(records)
        self._names.update((thread.id, thread.name) for thread in process.threads)
        for thread in process.threads:
            for slow in thread.slow_calls:
                key = slow.thread, slow.begin_ns, slow.duration_ns, slow.correlation
                if key not in self._read:
                    self._read.add(key)
                    if key not in self._read_before:
                        self._held.append(_HeldCall(thread.slot, slow, slow.end_ns))
        # Stacks, read in flight, of calls that have returned.
        for held in self._held if outside.stacks else ():
            held.stack = outside.stacks.get(held.slow.key, held.stack)
        if self._readings % _FORGET_READINGS == 0:
            self._read_before, self._read = self._read, set()
        self._streams.add(calls, records.rows)
        self._order.add(calls, now_ns, records.rows)
        beside = self.rates_beside()
        self.divider.feed(process, records, calls, now_ns, self._engine_use, ended, self._run_delays, beside)
        self._samples = self._samples or SampleSums(process.started.monotonic_ns)
        in_flight = {each.id: each.in_flight[0].begin_ns for each in process.threads if each.in_flight}
        self._samples.add(samples, calls, self.divider, in_flight, unfollowed(process))
        self._launches.add(samples, calls, records, self._stacks)
        self._turn_lines.add(samples, self.divider.turns)
        self._settle()

    def findings(self) -> ProcessFindings:
        """The findings by all readings so far. Raises ValueError before the first one."""
        process, samples = self._process, self._samples
        if process is None or samples is None:
            raise ValueError("there is no reading of the process")
        sums = self._sums.copy()
        if self._present is None:
            self._present = self._explained(process)
        explained = zip(self._held, self._present, strict=True)
        recent = [(held.slot, call) for held, call in explained if not held.final]
        sums.add(recent)
        end_ns = process.ended_ns or self._now_ns
        threads = [self._thread(process, thread, sums, end_ns) for thread in process.threads]
        lost = united(loss for thread in threads for loss in thread.lost)
        calls = sorted((*self._final, *(call for _, call in recent)), key=lambda call: call.end_ns)
        division, sequences = self._sequences(process, samples)
        return ProcessFindings(
            **attributes(process, ProcessHead),
            losses={kind.name.lower().replace("_", "-"): count for kind, count in process.losses.items()},
            began_ns=process.started.monotonic_ns,
            duration_ns=max(end_ns - process.started.monotonic_ns, 0),
            ended=process.ended_ns is not None,
            threads=tuple(sorted(threads, key=lambda thread: -thread.lost_ns)),
            slow_calls=tuple(calls[-MOST_CALLS:]),
            dropped_slow_calls=self._dropped + max(len(calls) - MOST_CALLS, 0),
            lost=lost,
            calls=process.calls,
            missed_records=self._store.missed,
            gaps=(*self._gaps(process, samples, lost, sums.sites, end_ns), *self._outside.problems),
            sites=sums.sites.sites_by_time(_unkept(threads)),
            cost=cost_of(process, end_ns),
            division=division,
            sequences=sequences,
        )

    def _gaps(
        self, process: WatchedProcess, samples: SampleSums, lost: Iterable[TimeLost], sites: SiteSums, end_ns: int
    ) -> Iterator[str]:
        return gaps(
            process,
            lost,
            self._store,
            self._has_run_delays,
            sites,
            end_ns,
            sampled=samples.samples > 0,
            missed_samples=samples.missed,
            divided_share=self.divider.divided_share,
        )

    def _sequences(
        self, process: WatchedProcess, samples: SampleSums
    ) -> tuple[ProcessDivision | None, tuple[ProgramSequence, ...]]:
        """The division of the process, and its sequences with their lines."""
        division, divided = self.divider.division() or (None, None)
        begin_ns = self.divider.steady_ns or process.started.monotonic_ns
        roles = {thread.id for thread in process.threads if has_role(thread.name)}
        limits: dict[int | None, GpuLimits | None] = dict(enumerate(process.limits))
        if divided is not None:
            divided = tuple(
                each.changed(
                    kernels=self._launches.described(
                        each.kernels, each.threads, self._stacks, roles, limits.get(each.device)
                    )
                )
                for each in divided
            )
        return division, lines_of(samples, begin_ns, divided, self._stacks, self.divider.leader, self._ended, roles)

    def lines_in_turns(self, threads: Container[int]) -> Mapping[str, Mapping[StackFrame, Figure]]:
        """The share of the threads' time at each line of the program in all turns of each kind."""
        return self._turn_lines.shares(threads, self._stacks)

    def kernels(self) -> OtherWork:
        """Its kernels, as far as they are held, for other processes that wait for it. After the first reading."""
        assert self._process is not None
        if self._kernels is None or self._kernels[0] != self._readings:
            who = f"{self._process.name or 'process'} (pid {self._process.pid})"
            self._kernels = self._readings, OtherWork.of(who, self._store.rows, self._store.names)
        return self._kernels[1]

    @property
    def kernel_names(self) -> Mapping[int, str]:
        """The names of kernels by their places."""
        return self._store.names

    @property
    def switches(self) -> int:
        """The context switches so far."""
        return self._store.switches

    def _engine_use(self) -> EngineUse:
        return self._store.tenures(self._ended), self._store.switches

    @property
    def _has_run_delays(self) -> bool:
        """True if lack of a CPU can be detected: that needs samples before and after a call."""
        return any(len(samples) > 1 for samples in self._run_delays.values())

    def _settle(self) -> None:
        """Make the causes final to which no further record can contribute, and drop the records of their time."""
        assert self._process is not None
        border = self._now_ns - SETTLED_NS
        self._present = None
        # Several at a time: the search for causes takes as long for one call as for many.
        if any(held.end_ns < border - SETTLED_TOGETHER_NS and not held.final for held in self._held):
            self._present, final = self._explained(self._process), []
            for held, call in zip(self._held, self._present, strict=True):
                if held.end_ns < border and not held.final:
                    held.final = True
                    final.append((held.slot, call))
                    self._alike.note(held.slow, call.cause, call.certainty, call.excess_ns, call.explained_ns)
            self._sums.add(final)
            self._dropped += max(len(self._final) + len(final) - MOST_CALLS, 0)
            self._final.extend(call for _, call in final)
        open_calls = (call.begin_ns for thread in self._process.threads for call in thread.in_flight)
        not_final = (held.slow.begin_ns for held in self._held if not held.final)
        oldest = min((border, *open_calls, *not_final)) - WAKE_UP_NS
        kept = [held.end_ns >= oldest for held in self._held]
        self._held = list(compress(self._held, kept))
        if self._present is not None:
            self._present = tuple(compress(self._present, kept))
        self._store.drop_before(oldest, min(oldest, self.divider.done_ns))

    def _explained(self, process: WatchedProcess) -> tuple[ExplainedCall, ...]:
        """The calls that are held, in their order."""
        slow = [held.slow for held in self._held]
        if not slow:
            return ()
        usual: dict[tuple[int, str], int] = {}
        for thread in process.threads:
            for function, figures in thread.figures.items():
                usual[thread.slot, function] = usual_ns(figures.total, process.slow_limit_ns)
        excess = [max(held.slow.duration_ns - usual.get((held.slot, held.slow.function), 0), 0) for held in self._held]
        recorded = Recorded(
            records=self._store.beside(slow),
            names=self._store.names,
            tenures=self._store.tenures(self._ended),
            run_delays=self._run_delays,
            preempted=self._preempted,
            thread_names=dict(self._names),
            stacks=self._stacks,
            first_launches=self._store.first_launches,
            complete=bool(process.kinds) and not (self._store.missed + process.lost_records),
            windows=process.windows,
            may_hold_streams=may_hold_streams(name for thread in process.threads for name in thread.figures),
            streams=self._streams,
            order=self._order,
            alike=self._alike,
            others=self.others,
            noted=[held.final for held in self._held],
        )
        explained = attribute(slow, excess, recorded, self._known)
        if not any(held.stack for held in self._held):
            return explained
        return tuple(_with_stack(call, held.stack) for call, held in zip(explained, self._held, strict=True))

    def _thread(self, process: WatchedProcess, thread: WatchedThread, sums: CallSums, end_ns: int) -> ThreadFindings:
        # The begin of the first owner is unknown.
        began_ns = thread.started_ns if thread.owners < 2 else process.started.monotonic_ns
        last_ns = thread.ended_ns or end_ns
        rows = [
            _row(name, thread.figures.get(name, NO_FIGURES), process.slow_limit_ns, sums.kept_of(thread.slot, name))
            for name in thread.functions
        ]
        # The causes of slow calls that were not kept are unknown.
        unkept = (TimeLost(WaitCause.UNATTRIBUTED, None, "", row.unkept, row.unkept_ns, 0) for row in rows)
        return ThreadFindings(
            id=thread.id,
            name=thread.name,
            owners=thread.owners,
            alive_ns=max(last_ns - began_ns, 0),
            ended=thread.ended_ns is not None,
            rows=tuple(sorted(rows, key=lambda row: (-row.lost_ns, -row.total_ns, row.function))),
            in_flight=tuple(calls_in_flight(process, thread, end_ns, self._outside)),
            slow_calls=sum(row.slow for row in rows),
            lost=united((*sums.lost_of(thread.slot), *unkept)),
        )


def watch_findings(
    processes: Iterable[ProcessFindings], began_at_ns: int, problems: Iterable[str] = ()
) -> WatchFindings:
    """The findings of several processes together. ``began_at_ns`` is the first one's start on CLOCK_REALTIME."""
    ordered = tuple(sorted(processes, key=lambda process: (process.began_ns, process.pid)))
    end_ns = max((process.began_ns + process.duration_ns for process in ordered), default=0)
    first_ns = min((process.began_ns for process in ordered), default=0)
    return WatchFindings(
        began_at_ns=began_at_ns,
        began_ns=first_ns,
        duration_ns=end_ns - first_ns,
        problems=tuple(problems),
        processes=ordered,
    )


def _with_stack(call: ExplainedCall, outside: CallStack | None) -> ExplainedCall:
    """``call`` with the Python frames of ``outside``, read by py-spy, where it has none of its own."""
    if outside is None or (call.stack is not None and call.stack.python):
        return call
    native = call.stack.native if call.stack is not None else outside.native
    return call.changed(stack=CallStack(outside.python, native, outside.complete))


def _unkept(threads: Iterable[ThreadFindings]) -> Mapping[str, int]:
    """The slow calls of each function that were overwritten before they were read."""
    found: Counter[str] = Counter()
    for thread in threads:
        found.update({row.function: row.unkept for row in thread.rows if row.unkept})
    return found


def usual_ns(histogram: Histogram, slow_ns: int) -> int:
    """The duration (ns) above which the time of a call is lost: the median.

    Where most calls are slow, as those of a loop that waits for the GPU each time, their median is itself a wait: then
    the median of the calls that are not slow, 0 without any.
    """
    limit = max(slow_ns, DEFAULT_SLOW_NS)
    median = histogram.percentile(50)
    if median is None:
        return 0
    if median < limit:
        return int(median)
    fast = histogram.counts
    fast[index(limit) :] = 0
    return int(Histogram.of_counts(fast, limit).percentile(50) or 0)


def _unkept_ns(histogram: Histogram, slow_ns: int, median_ns: int, unkept: int, kept_ns: int) -> int:
    """The excess (ns, to 1 %) of the slow calls of a histogram beside those that were kept, whose excess is known."""
    if not unkept:
        return 0
    first = index(slow_ns)
    excess = np.maximum(MIDDLE[first:] - median_ns, 0)
    return max(int(histogram.counts[first:] @ excess) - kept_ns, 0)


def _row(function: str, figures: CallFigures, slow_ns: int, kept: Sequence[int]) -> CallRow:
    """The row of ``function`` in a thread; its calls are slow from ``slow_ns`` on, and
    ``kept`` as ``CallSums`` has them."""
    median_ns = usual_ns(figures.total, slow_ns)
    calls, excess_ns, lost_ns = kept
    unkept = max(figures.slow - calls, 0)
    rest_ns = _unkept_ns(figures.total, slow_ns, median_ns, unkept, excess_ns)
    return CallRow(
        **attributes(figures, CallFigures),
        function=function,
        family=family_of(function),
        median_ns=median_ns,
        lost_ns=lost_ns + rest_ns,
        unkept=unkept,
        unkept_ns=rest_ns,
    )
