"""Sums of the samples of a process by thread, stack, function and what was done, for the time since any second."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Set

import numpy as np

from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.driver_calls import CallKind, function_of
from stallprobes.native.layouts.watch_file import SampledTime, TimeSample
from stallprobes.records.rows import Rows, joined
from stallprobes.watch.division.binned_sums import Times
from stallprobes.watch.division.call_columns import AWAITS_OR_FREES
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.instants import LIMITS, NO_SPANS, Calls, Spans
from stallprobes.watch.division.start_up import SECOND_NS, periods_in, times_of
from stallprobes.watch.intervals import FOREVER, Int64s, int64s, numbered
from stallprobes.watch.lines.call_times import BETWEEN, NOTHING_IN_FLIGHT, CallLog
from stallprobes.watch.lines.held_calls import HeldCalls, HeldSum, HeldUp
from stallprobes.watch.lines.logged_calls import WAITING, Reading
from stallprobes.watch.lines.second_sums import KeyedTimes, SampleKey, SampleSum, SecondSums
from stallprobes.watch.reading.process import CallBatch, SampleBatch

# Largest number of sums of samples by two keys: a call stack of one thread, and the function that another thread called
# last before the sample. The sums show which calls give a library's own threads their work.
_MOST_ENTERED = 4096
# Largest number of sums of samples between calls by their call stack in one thread, and the function that the thread
# called before.
_MOST_LEFT = 4096
# Longest time (ns) that a sample may stand for. The value is also the largest number of waits, in thousandths, that a
# sample may stand for. Larger values are replaced by this limit, since they may not fit into 64 bits.
_MOST_NS = 2.0**55


class SampleSums:
    """Samples of a process that began at ``began_ns``, in the seconds in which its steady state may begin.

    The log of calls gives the time of each thread inside and before calls of each function; the samples give the
    places. Points that are sampled less often than others then move no time between threads or functions. ``functions``
    are names by number; ``samples`` were added, ``missed`` ones overwritten before they were read.
    """

    def __init__(self, began_ns: int) -> None:
        self.functions: dict[int, str] = {}
        self.samples = self.missed = 0
        self._began_ns = began_ns
        self._unfollowed = NO_SPANS
        self._sums, self._times = SecondSums(began_ns), SecondSums(began_ns)
        # Thousandths of waits in place of times: by their own samples, and by those of their time.
        self._counted, self._estimated = SecondSums(began_ns), SecondSums(began_ns)
        # By thread and stack: how long (ns) its samples stand for behind a call (thread, function) of another thread.
        self._entered: dict[tuple[int, int], Counter[tuple[int, int]]] = {}
        self._pairs = 0
        # By thread, stack and function: how long (ns) samples between calls stand for since a call of the function.
        self._left: Counter[tuple[int, int, int]] = Counter()
        # By thread: how long (ns) its samples between calls stand for while another thread had Python's lock, or one
        # of the module threading for which it slept, by the ``holder`` and the ``stack`` of TimeSample.
        self._holders: dict[int, Counter[tuple[int, int]]] = {}
        # Until it is known who is in a sequence with whom.
        self._held: deque[Reading] = deque()
        self._log = CallLog(began_ns)
        self._held_calls = HeldCalls(began_ns)

    def add(
        self,
        samples: SampleBatch,
        calls: CallBatch,
        divider: ProcessDivider,
        in_flight: Mapping[int, int] = NOTHING_IN_FLIGHT,
        unfollowed: Spans = NO_SPANS,
    ) -> None:
        """Add the samples of a reading, with the calls that finished since the reading before.

        ``in_flight`` is when calls began that have not returned, by thread. What lies in ``unfollowed`` times is left
        out, since other calls of these times are in no log.
        """
        self._unfollowed = unfollowed
        self.functions.update(samples.functions)
        self.functions.update(calls.functions)
        self.samples += len(samples)
        self.missed += samples.missed
        self._held.append(Reading(samples.rows, calls, in_flight, unfollowed))
        while self._held and self._held[0].is_known(divider):
            self._add(self._held.popleft(), divider)

    def periods_in(self, times: Times) -> Set[int]:
        """The seconds, or longer periods, of which most is in ``times`` (ns) since the process began."""
        return periods_in(times, self._log.until_ns - self._began_ns)

    def since(
        self, begin_ns: int, ended: bool = False, within: Set[int] | None = None
    ) -> Mapping[SampleKey, SampleSum]:
        """The sums since a time of the start-up, to the second; if the run has ``ended``, until the last work of each
        sequence. Unless it is None, only those of the periods ``within`` are summed."""
        apart = self._log.ended if ended else frozenset()
        sums, times = (each.since(begin_ns, apart, within) for each in (self._sums, self._times))
        sampled: Counter[SampleKey] = Counter()
        for key, total in sums.items():
            sampled[key.without_stack] += total.ns
        # Time of each thread in the log, and the part of it in functions with samples.
        logged: Counter[int] = Counter()
        placed: Counter[int] = Counter()
        for key, total in times.items():
            logged[key.thread] += total.ns
            placed[key.thread] += total.ns if sampled[key] else 0
        factors = {
            key: times[key].ns / ns * (logged[key.thread] / placed[key.thread])
            for key, ns in sampled.items()
            if ns and key in times
        }
        return {key: sample_sum.times(factors.get(key.without_stack, 1.0)) for key, sample_sum in sums.items()}

    def waits_since(
        self, begin_ns: int, ended: bool = False, within: Set[int] | None = None
    ) -> Mapping[SampleKey, float]:
        """Number of waits of each key since a time, as ``since``; without a stack those that have no sample.

        The log gives their number. Their places come from the waits that were sampled, or else from the samples of
        their time: the shorter a sampled wait, the more waits it stands for.
        """
        apart = self._log.ended if ended else frozenset()
        counted, estimated, every = (
            each.since(begin_ns, apart, within) for each in (self._counted, self._estimated, self._times)
        )
        made = {key: time for key, time in every.items() if key.kind in WAITING}
        places: dict[SampleKey, dict[SampleKey, int]] = {}
        for sums in (estimated, counted):
            by_call: dict[SampleKey, dict[SampleKey, int]] = {}
            for key, total in sums.items():
                by_call.setdefault(key.without_stack, {})[key] = total.ns
            places.update(by_call)
        waits: dict[SampleKey, float] = {}
        for key, total in made.items():
            parts = places.get(key, {key: 1})
            waits.update({each: total.samples * part / sum(parts.values()) for each, part in parts.items()})
        return waits

    def calls_since(
        self, begin_ns: int, ended: bool, within: Set[int] | None, chosen: Callable[[SampleKey], bool]
    ) -> Counter[int]:
        """Number of the ``chosen`` calls of each thread since a time, as ``since``."""
        calls: Counter[int] = Counter()
        for key, total in self._times.since(begin_ns, self._log.ended if ended else frozenset(), within).items():
            if chosen(key):
                calls[key.thread] += total.samples
        return calls

    def entered_before(self, thread: int, stack: int) -> Mapping[tuple[int, int], int]:
        """How long (ns) the samples of a thread with a stack stand for by the last call of another thread before them,
        (thread, function). What a library's own thread works for entered the library so."""
        return self._entered.get((thread, stack), {})

    @property
    def left_before(self) -> Mapping[tuple[int, int, int], int]:
        """How long (ns) samples between calls stand for, by thread, stack and the function that the thread called
        before."""
        return self._left

    def lock_holders(self, threads: Iterable[int]) -> Counter[tuple[int, int]]:
        """How long (ns) samples of threads between calls stand for while other threads had Python's lock, or one
        of the module threading for which they slept, by the ``holder`` and the ``stack`` of TimeSample."""
        return sum((self._holders.get(thread, Counter()) for thread in threads), Counter())

    def held_since(self, begin_ns: int, within: Set[int] | None = None) -> Mapping[HeldUp, HeldSum]:
        """Calls since a time that calls of other threads held up, as ``since``."""
        return self._held_calls.since(begin_ns, within)

    @property
    def until_ns(self) -> int:
        """The end of the last call; 0 without any."""
        return self._log.until_ns

    def seconds_since(self, begin_ns: int, within: Set[int] | None = None) -> float:
        """The seconds from a time to the last call in which all calls were followed, as ``since``."""
        passed_ns = 0
        for first, last in ((begin_ns - self._began_ns, FOREVER),) if within is None else times_of(within):
            first, last = first + self._began_ns, min(last + self._began_ns, self._log.until_ns)
            begins, ends = self._unfollowed.within(first, max(last, first))
            passed_ns += max(last - first - int((ends - begins).sum()), 0)
        return passed_ns / SECOND_NS

    def _add(self, reading: Reading, divider: ProcessDivider) -> None:
        self._log.read(reading, divider)
        self._held_calls.add(reading.calls)
        every = (self._sums, self._times, self._counted, self._estimated)
        for leader in self._log.resumed:
            for sums in every:
                sums.settle(leader)
        for owners, made in self._log.times():
            self._times.add(owners, made)
        if reading.samples:
            self._note_entered(reading.samples, reading.calls)
            self._note_left(reading)
            self._note_holders(reading.samples)
            self._add_samples(reading.samples, reading.calls)

    def _note_entered(self, samples: Mapping[int, Rows], calls: Calls) -> None:
        if len(samples) < 2 and not (calls.threads[1:] != calls.threads[:-1]).any():
            return
        for thread, rows in samples.items():
            others = np.flatnonzero(calls.threads != thread)
            if not len(others):
                continue
            # Inside a call it works since the begin of that, between calls until the next one.
            between = rows["sampled"] == int(SampledTime.BETWEEN)
            times = int64s(np.where(between, rows["at_ns"], rows["since_ns"]))
            places = np.searchsorted(calls.ends[others], times, "right") - 1
            known = places >= 0
            before = others[places[known]]
            columns = (rows["stack"][known], calls.threads[before], calls.functions[before], rows["ns"][known])
            for stack, caller, function, ns in zip(*(column.tolist() for column in columns), strict=True):
                entered = self._entered.get((thread, stack), Counter())
                if (caller, function) in entered or self._pairs < _MOST_ENTERED:
                    self._pairs += (caller, function) not in entered
                    entered[caller, function] += int(ns)
                    self._entered[thread, stack] = entered

    def _note_left(self, reading: Reading) -> None:
        calls = reading.calls
        for thread, rows in reading.samples.items():
            own = reading.places_of(thread)
            rows = rows[rows["sampled"] == int(SampledTime.BETWEEN)]
            if not len(own) or not len(rows):
                continue
            since = int64s(rows["since_ns"])
            places = own[np.minimum(np.searchsorted(calls.ends[own], since), len(own) - 1)]
            known = calls.ends[places] == since
            columns = (rows["stack"][known], calls.functions[places][known], rows["ns"][known])
            for stack, function, ns in zip(*(column.tolist() for column in columns), strict=True):
                if (thread, stack, function) in self._left or len(self._left) < _MOST_LEFT:
                    self._left[thread, stack, function] += ns

    def _note_holders(self, samples: Mapping[int, Rows]) -> None:
        for thread, rows in samples.items():
            held = np.flatnonzero(rows["holder"])
            if len(held):
                sums = self._holders.setdefault(thread, Counter())
                columns = (rows[name][held].tolist() for name in ("holder", "stack", "ns"))
                for holder, stack, ns in zip(*columns, strict=True):
                    sums[holder, stack] += ns

    def _add_samples(self, samples: Mapping[int, Rows], calls: Calls) -> None:
        counts = [len(mine) for mine in samples.values()]
        ends = zip(samples, counts, np.cumsum(counts).tolist(), strict=True)
        parts = [(thread, slice(end - count, end)) for thread, count, end in ends]
        rows = joined(dtype_of(TimeSample), samples.values())
        at, since, functions = (int64s(rows[name]) for name in ("at_ns", "since_ns", "api"))
        between, counted = (rows["sampled"] == int(kind) for kind in (SampledTime.BETWEEN, SampledTime.WAITS))
        kinds, lengths, weights = self._kinds(functions, at - since), np.maximum(at - since, 1), rows["ns"]
        for thread, part in parts:
            logged, kinds_of_ends = self._log.logged(thread, at[part])
            kinds[part][logged] = kinds_of_ends
            polled, polls = self._log.polled(thread, at[part])
            between[part][polled] = False
            kinds[part][polled], functions[part][polled] = int(CallKind.WAITS), calls.functions[polls]
            since[part][polled], lengths[part][polled] = calls.begins[polls], calls.lengths[polls]
        kinds[between] = BETWEEN
        waits = AWAITS_OR_FREES[kinds]
        # A sampled wait stands for its number of waits of the same duration.
        whole = np.where(counted, np.minimum(weights * lengths.astype(np.float64), _MOST_NS), weights)
        times = int64s(whole)
        for thread, part in parts:
            for chosen, weigh in ((between, self._log.alone), (waits, self._log.without_others)):
                places = part.start + np.flatnonzero(chosen[part])
                if len(places):
                    times[places] = weigh(thread, since[places], at[places], times[places])
        owners = [self._log.owner(thread) for thread in samples]
        numbers = np.repeat(np.arange(len(owners)), counts)
        # The time between calls of each thread comes first.
        twice = [owner for owner in owners for _ in range(2)]
        made = KeyedTimes(2 * numbers + ~between, int64s(rows["stack"]), functions, kinds, times, at)
        self._sums.add(twice, made.where(~counted | waits))
        thousandths = int64s(np.minimum(1000 * weights / np.where(counted, 1.0, lengths), _MOST_NS))
        made = made._replace(owners=numbers, times=thousandths)
        for sums, chosen in ((self._counted, waits & counted), (self._estimated, waits & ~counted)):
            sums.add(owners, made.where(chosen))

    def _kinds(self, functions: Int64s, lengths: Int64s) -> Int64s:
        """The kinds of the calls of samples by their functions and lengths, without their arguments."""
        values, numbers = numbered(functions)
        names = (self.functions.get(number, "") for number in values.tolist())
        kinds = int64s([int(function_of(name).kind) for name in names])[numbers]
        kinds[(kinds == int(CallKind.COPIES)) & (lengths < LIMITS.blocked_ns)] = int(CallKind.SUBMITS)
        return kinds
