"""Time of a sequence between calls: how much of it its threads had a CPU, were ready without one, or slept."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.binned_sums import BinnedSums, Figure
from stallprobes.watch.division.instants import Spans, ThreadCalls
from stallprobes.watch.intervals import Int64s

# By thread id int64[n][3], ascending: a time (ns), the run delay until then, and the time on a CPU until then (ns).
CpuSamples = Mapping[int, Int64s]
# Empty samples of threads: it is not known when a thread was on a CPU.
NO_SAMPLES: CpuSamples = MappingProxyType({})
# Kinds of calls that wait for the GPU by polling or asleep, so that the thread may be on a CPU or not. In other calls
# it is assumed to be on one.
_WAITS = (int(CallKind.WAITS), int(CallKind.COPIES), int(CallKind.FREES), int(CallKind.QUEUES))
# Columns of the sums (ns): the time between calls, the least and the most of it on a CPU, the least and the most of it
# ready to run without a CPU; then the number of columns.
_BETWEEN, _LEAST, _MOST, _READY_LEAST, _READY_MOST, _COLUMNS = range(6)
# Largest distance between the bounds of the off-CPU time, as a share of the time between calls, with which the off-CPU
# time counts as known.
_WIDEST = 0.3


class CpuSums:
    """Sums of slices of time since ``origin_ns``, of those for which the CPU time of each thread is known."""

    def __init__(self, origin_ns: int) -> None:
        self._sums = BinnedSums(origin_ns, columns=_COLUMNS)

    def add(self, threads: Mapping[int, ThreadCalls], samples: CpuSamples, begin_ns: int, end_ns: int) -> None:
        """Add the time from ``begin_ns`` to ``end_ns``.

        Calls that do not wait are assumed to have a CPU. Calls that wait have one or not, depending on how the program
        has the driver wait; the CPU time between calls therefore has a lower and an upper bound.
        """
        used = [_passed_ns(samples.get(thread), begin_ns, end_ns) for thread in threads]
        measured = [passed for passed in used if passed is not None]
        if not measured or len(measured) < len(used):
            return
        working, waiting, begins, ends = 0, 0, [], []
        for calls in threads.values():
            spans = Spans(np.maximum(calls.spans.begins, begin_ns), np.minimum(calls.spans.ends, end_ns))
            durations = np.maximum(spans.ends - spans.begins, 0)
            waits = np.isin(calls.kinds, _WAITS)
            waiting += int(durations[waits].sum())
            working += int(durations[~waits].sum())
            begins.append(spans.begins)
            ends.append(spans.ends)
        inside = Spans.united(np.concatenate(begins), np.concatenate(ends))
        between = end_ns - begin_ns - int((inside.ends - inside.begins).sum())
        ready, cpu = (sum(each) for each in zip(*measured, strict=True))
        most = min(max(cpu - working, 0), between)
        least = min(max(cpu - working - waiting, 0), between)
        # A thread may be ready inside a call too, and several of them at once.
        ready_most = min(ready, between - least)
        ready_least = min(max(ready - working - waiting, 0) / len(measured), ready_most)
        self._sums.borders(begin_ns, end_ns)
        first = (begin_ns - self._sums.origin_ns) // self._sums.width_ns
        self._sums.add(max(first, 0), np.array([[between, least, most, ready_least, ready_most]], dtype=np.int64))

    def off_cpu(self, begin_ns: int) -> Figure | None:
        """The share (0 to 1) of the time between calls since ``begin_ns`` in which no thread had a CPU.

        None where that is not known, or hardly.
        """
        between, least, most, *_ = self._sums.since(begin_ns).sum(axis=0).tolist()
        if not between or most - least > _WIDEST * between:
            return None
        low, high = 1 - most / between, 1 - least / between
        return Figure((low + high) / 2, low, high)

    def ready(self, begin_ns: int) -> Figure | None:
        """The share (0 to 1) of the time between calls since ``begin_ns`` in which a thread was ready to run and had no
        CPU. None where ``off_cpu`` is not known."""
        if self.off_cpu(begin_ns) is None:
            return None
        between, _, _, least, most = self._sums.since(begin_ns).sum(axis=0).tolist()
        return Figure((least + most) / 2 / between, least / between, most / between)


def _passed_ns(samples: Int64s | None, begin_ns: int, end_ns: int) -> tuple[float, float] | None:
    """The run delay and the CPU time (ns) of a thread between two times that lie between samples; else None."""
    if samples is None or len(samples) < 2 or samples[0, 0] > begin_ns or samples[-1, 0] < end_ns:
        return None
    delay, cpu = (np.diff(np.interp((begin_ns, end_ns), samples[:, 0], samples[:, column]))[0] for column in (1, 2))
    return float(delay), float(cpu)
