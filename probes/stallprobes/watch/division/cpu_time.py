"""Time of a sequence between calls: how much of it its threads had a CPU, were ready without one, or slept."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.binned_sums import BinnedSums, Figure, Times
from stallprobes.watch.division.call_columns import flags_by_kind
from stallprobes.watch.division.instants import Calls, Spans
from stallprobes.watch.intervals import Int64s

# By thread id int64[n][8], ascending: a time (ns), and until then: the run delay, the time on a CPU, and the time
# asleep for a time that it set, for the end of a child process, for data from outside, for another thread, and for the
# lock of Python's interpreter (ns). The last five may be missing.
CpuSamples = Mapping[int, Int64s]
# Number of columns of a thread's samples. The comment on CpuSamples lists the columns.
SAMPLE_COLUMNS = 8
# Key in CpuSamples, in place of a thread id, of the samples of child processes. The samples have the CPU time of the
# busiest child process.
CHILDREN = 0
# Key in CpuSamples, in place of a thread id, of the samples of threads that make no calls. The samples have the CPU
# time of the busiest thread without calls.
OTHERS = -1
# Key in CpuSamples, in place of a thread id, of the samples of Python's garbage collector. In place of CPU time, the
# samples have the time in which the collector runs.
COLLECTOR = -2
# Empty samples of threads. Without samples, the times at which a thread was on a CPU are not known.
NO_SAMPLES: CpuSamples = MappingProxyType({})
# Calls that wait for the GPU, polling or asleep. In such a call, it is not known whether the thread
# has a CPU. In all other calls, the thread is assumed to have a CPU.
_MAY_SLEEP = flags_by_kind(CallKind.WAITS, CallKind.COPIES, CallKind.FREES, CallKind.QUEUES)
# Columns of the sums (ns). _BETWEEN: time between calls. _LEAST and _MOST: lower and upper bound of the time on a CPU
# in _BETWEEN. _READY_LEAST and _READY_MOST: lower and upper bound of the time in _BETWEEN in which threads were ready
# to run but had no CPU. _WHOLE: all time. _SLEEPS: first of five columns with the time asleep, one for each reason, in
# the order of CpuSamples. _CHILDREN: CPU time of the busiest child process. _OTHERS: CPU time of the busiest thread
# outside the sequence. _COLLECTS: time in which Python collects garbage. _COLUMNS: number of columns.
_BETWEEN, _LEAST, _MOST, _READY_LEAST, _READY_MOST, _WHOLE, _SLEEPS, _CHILDREN, _OTHERS, _COLLECTS, _COLUMNS = (
    *range(7),
    11,
    12,
    13,
    14,
)
# Largest number of threads outside a sequence that are searched for the thread with the most CPU time: the first
# threads. Further threads are ignored. Reason: the time of the search is limited.
_MOST_OTHERS = 64
# Positions in the order of the five reasons for sleep. _OUTSIDE: sleep for data from outside the process. _THREAD:
# sleep for another thread.
_OUTSIDE, _THREAD = 2, 3
# Largest distance between the two bounds of the off-CPU time, as a share of the time between calls. At a larger
# distance, the off-CPU time counts as unknown.
_WIDEST = 0.3
# Largest factor, up or down, by which the sampled time asleep is scaled to the measured time without a CPU. A larger
# factor is replaced by this limit. Reason: the rest of the difference is other time without a CPU, such as in calls
# that allocate.
_MOST_SCALE = 1.25
# Smallest share of a slice of time that the samples of all threads must cover. A slice with a smaller share is not
# added to the sums.
_LEAST_COVERED = 0.5
# Smallest share of a slice of time that the samples of child processes, other threads or the garbage collector must
# cover. With a smaller share, their CPU time counts as 0. Reason for the low limit: child processes are sampled rarely,
# and their load hardly changes within a slice.
_LEAST_OF_CHILDREN = 0.2
# Calls that submit GPU work, ask for its state, or wait for it. Frees, which may wait for it too, are not among them.
_IS_WORK_CALL = flags_by_kind(CallKind.SUBMITS, CallKind.QUEUES, CallKind.WAITS, CallKind.COPIES)
# Largest number of kept slices of time that end after the last work call (_IS_WORK_CALL). At the end of the program,
# the time after the last work is subtracted from the sums for these slices. With more slices, the oldest slices are
# dropped, and the sums keep the time of the dropped slices.
_MOST_SLICES = 64


class Sleeps(NamedTuple):
    """Shares of the time in which all threads of a sequence slept: for a time that they set, for the end of a child
    process, for data from outside the process, for another thread, and for the lock of Python's interpreter; and the
    shares in which the busiest child worked, the busiest other thread of the process, and Python's garbage collector.
    """

    own: float = 0.0
    child: float = 0.0
    outside: float = 0.0
    thread: float = 0.0
    interpreter: float = 0.0
    children: float = 0.0
    others: float = 0.0
    collects: float = 0.0


class _Slice(NamedTuple):
    """A slice of time: its calls, its CPU samples, and the begin and sums that were added for it (None: nothing)."""

    threads: Mapping[int, Calls]
    samples: CpuSamples
    begin_ns: int
    end_ns: int
    added: tuple[int, Int64s] | None


class CpuSums:
    """Sums of slices of time since ``origin_ns``, of those for which the CPU time of each thread is known."""

    def __init__(self, origin_ns: int) -> None:
        self._sums = BinnedSums(origin_ns, columns=_COLUMNS)
        self._most_threads = 0
        # End (ns) of the last work call, and the slices that end after it.
        self._worked_ns = 0
        self._later: list[_Slice] = []

    def add(self, threads: Mapping[int, Calls], samples: CpuSamples, begin_ns: int, end_ns: int) -> None:
        """Add the time from ``begin_ns`` to ``end_ns``.

        Calls that do not wait are assumed to have a CPU. Calls that wait have one or not, depending on how the program
        has the driver wait; the CPU time between calls therefore has a lower and an upper bound.
        """
        if (last_ns := max(map(_worked_ns, threads.values()), default=0)) > self._worked_ns:
            self._worked_ns = last_ns
            self._later = [each for each in self._later if each.end_ns > last_ns]
        added = self._sums_of(threads, samples, begin_ns, end_ns)
        self._put(added)
        if end_ns > self._worked_ns:
            kept = _Slice(threads, _within(samples, begin_ns, end_ns), begin_ns, end_ns, added)
            self._later = [*self._later, kept][-_MOST_SLICES:]

    def end_at(self, worked_ns: int) -> None:
        """Subtract the time after the last work, since the exit of a program does not bound it.

        The last work ends at ``worked_ns``, or with the last work call if that returned later.
        """
        worked_ns = max(worked_ns, self._worked_ns)
        for each in self._later:
            if each.end_ns > worked_ns and each.added is not None:
                begin_ns, sums = each.added
                self._put((begin_ns, -sums))
                self._put(self._sums_of(each.threads, each.samples, each.begin_ns, worked_ns))
        self._later = []

    def _put(self, added: tuple[int, Int64s] | None) -> None:
        if added is not None:
            begin_ns, sums = added
            self._sums.borders(begin_ns, begin_ns + 1)
            self._sums.add(max((begin_ns - self._sums.origin_ns) // self._sums.width_ns, 0), sums)

    def _sums_of(
        self, threads: Mapping[int, Calls], samples: CpuSamples, begin_ns: int, end_ns: int
    ) -> tuple[int, Int64s] | None:
        """The begin (ns) of a slice of time and its sums (int64[1][_COLUMNS]); None if samples cover too little of
        it."""
        known = [samples[thread] for thread in threads if len(samples.get(thread, ())) > 1]
        width_ns = end_ns - begin_ns
        begin_ns = max([begin_ns, *(int(each[0, 0]) for each in known)])
        end_ns = min([end_ns, *(int(each[-1, 0]) for each in known)])
        if width_ns <= 0 or end_ns - begin_ns < _LEAST_COVERED * width_ns:
            return None
        used = [passed_ns(samples.get(thread), begin_ns, end_ns) for thread in threads]
        measured = [passed for passed in used if passed is not None]
        if not measured or len(measured) < len(used):
            return None
        self._most_threads = max(self._most_threads, len(threads))
        working, waiting, begins, ends = 0, 0, [], []
        for calls in threads.values():
            spans = Spans(np.maximum(calls.begins, begin_ns), np.minimum(calls.ends, end_ns))
            durations = np.maximum(spans.ends - spans.begins, 0)
            waits = _MAY_SLEEP[calls.kinds]
            waiting += int(durations[waits].sum())
            working += int(durations[~waits].sum())
            begins.append(spans.begins)
            ends.append(spans.ends)
        inside = Spans.united(np.concatenate(begins), np.concatenate(ends))
        between = end_ns - begin_ns - int((inside.ends - inside.begins).sum())
        ready, cpu = (sum(each) for each in zip(*measured, strict=True))
        slept = [_slept_ns(samples[thread], calls, begin_ns, end_ns) for thread, calls in threads.items()]
        sleeps = np.minimum(np.min(slept, axis=0), between)
        # Threads that call by turns sleep for each other, but not at the same time.
        asleep = sum(each[_THREAD] for each in slept) - (len(slept) - 1) * (end_ns - begin_ns)
        sleeps[_THREAD] = min(sleeps[_THREAD], max(asleep, 0))
        # A thread that sleeps for another one waits for what that one sleeps for.
        for_each, of_each = np.min([[each[_OUTSIDE] + each[_THREAD], each[_THREAD]] for each in slept], axis=0)
        sleeps[_OUTSIDE] = max(sleeps[_OUTSIDE], min(for_each - of_each, between))
        most = min(max(cpu - working, 0), between)
        least = min(max(cpu - working - waiting, 0), between)
        # A thread may be ready inside a call too, and several of them at once.
        ready_most = min(ready, between - least)
        ready_least = min(max(ready - working - waiting, 0) / len(measured), ready_most)
        others = [each for each in samples if each not in (CHILDREN, COLLECTOR) and each not in threads][:_MOST_OTHERS]
        row = [
            between,
            least,
            most,
            ready_least,
            ready_most,
            end_ns - begin_ns,
            *sleeps,
            _busy_ns(samples.get(CHILDREN), begin_ns, end_ns),
            max(_busy_ns(samples[each], begin_ns, end_ns) for each in others) if others else 0,
            _busy_ns(samples.get(COLLECTOR), begin_ns, end_ns),
        ]
        return begin_ns, np.array([row], dtype=np.int64)

    def off_cpu(self, times: Times) -> Figure | None:
        """The share (0 to 1) of the time between calls in ``times`` in which no thread had a CPU.

        None where that is not known, or hardly.
        """
        between, least, most, *_ = self._sums.during(times).sum(axis=0).tolist()
        if not between or most - least > _WIDEST * between:
            return None
        low, high = 1 - most / between, 1 - least / between
        return Figure((low + high) / 2, low, high)

    def most_busy(self, times: Times) -> float:
        """The largest share (0 to 1) of ``times`` in which a thread may have had a CPU between calls."""
        sums = self._sums.during(times).sum(axis=0)
        return float(sums[_MOST] / sums[_WHOLE]) if sums[_WHOLE] else 1.0

    def most_asleep(self, times: Times) -> float:
        """The largest share (0 to 1) of ``times`` in which no thread may have had a CPU between calls."""
        sums = self._sums.during(times).sum(axis=0)
        return float((sums[_BETWEEN] - sums[_LEAST]) / sums[_WHOLE]) if sums[_WHOLE] else 1.0

    def ready(self, times: Times) -> Figure | None:
        """The share (0 to 1) of the time between calls in ``times`` in which a thread was ready to run and had no
        CPU. None where ``off_cpu`` is not known."""
        if self.off_cpu(times) is None:
            return None
        between, _, _, least, most, *_ = self._sums.during(times).sum(axis=0).tolist()
        return Figure((least + most) / 2 / between, least / between, most / between)

    def sleeps(self, times: Times) -> Sleeps:
        """What the sequence slept for in ``times``: by samples, in all as long as it had no CPU. Of several
        threads that is not known: they may have one at the same time."""
        sums = self._sums.during(times).sum(axis=0)
        between, least, most, ready_least, ready_most, whole, *slept = sums[:_CHILDREN].tolist()
        factor, total = 1.0, max(sum(slept), 1)
        if between and most - least <= _WIDEST * between and self._most_threads == 1:
            low, high = max(between - most - ready_most, 0), max(between - least - ready_least, 0)
            factor = min(max(min(max(total, low), high) / total, 1 / _MOST_SCALE), _MOST_SCALE)
        slept = [*(factor * ns for ns in slept), *(float(ns) for ns in sums[[_CHILDREN, _OTHERS, _COLLECTS]])]
        return Sleeps(*(ns / max(whole, 1) for ns in slept))


def _within(samples: CpuSamples, begin_ns: int, end_ns: int) -> CpuSamples:
    """Copies of the samples that cover a slice of time."""
    kept = {}
    for key, rows in samples.items():
        first = max(int(rows[:, 0].searchsorted(begin_ns, "right")) - 1, 0)
        kept[key] = rows[first : int(rows[:, 0].searchsorted(end_ns, "left")) + 1].copy()
    return kept


def _worked_ns(calls: Calls) -> int:
    """The end (ns) of the last work call of a thread; 0 if it made none."""
    works = _IS_WORK_CALL[calls.kinds[::-1]]
    return int(calls.ends[len(works) - 1 - int(works.argmax())]) if works.any() else 0


def passed_ns(samples: Int64s | None, begin_ns: int, end_ns: int) -> tuple[float, float] | None:
    """The run delay and the CPU time (ns) of a thread between two times that lie between samples; else None."""
    if samples is None or len(samples) < 2 or samples[0, 0] > begin_ns or samples[-1, 0] < end_ns:
        return None
    delay, cpu = (np.diff(np.interp((begin_ns, end_ns), samples[:, 0], samples[:, column]))[0] for column in (1, 2))
    return float(delay), float(cpu)


def _busy_ns(samples: Int64s | None, begin_ns: int, end_ns: int) -> float:
    """How long (ns) the busiest child process had a CPU between two times, by the part of them that is known."""
    if samples is None or not len(samples):
        return 0.0
    begin, end = max(begin_ns, int(samples[0, 0])), min(end_ns, int(samples[-1, 0]))
    passed = passed_ns(samples, begin, end) if end - begin >= _LEAST_OF_CHILDREN * (end_ns - begin_ns) else None
    return passed[1] * (end_ns - begin_ns) / (end - begin) if passed else 0.0


def _slept_ns(samples: Int64s, calls: Calls, begin_ns: int, end_ns: int) -> Int64s:
    """How long (ns) a thread slept for each reason between two times: in a call it waits for the GPU or the driver."""
    times = samples[1:, 0]
    chosen = (times > begin_ns) & (times <= end_ns) & ~calls.spans.contain(times)
    slept = np.zeros(SAMPLE_COLUMNS - 3, dtype=np.int64)
    slept[: samples.shape[1] - 3] = np.diff(samples[:, 3:], axis=0)[chosen].sum(axis=0)
    return slept
