"""Batches of iterations of a thread that calls back to back while nothing else happens.

A probe that polls makes a million calls per second. While no other event is due and every call is only a random
latency, its iterations are computed together, with the same random numbers and the same samples as one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, cycle
from operator import getitem, sub

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.layout import (
    DUE_ALLOWED_NS,
    DUE_CHANNEL,
    DUE_NS,
    HEARTBEAT_NS,
    INFLIGHT_SINCE_NS,
    ITERATIONS,
    OFFSET_NS,
    SLOT,
)
from stallprobes.engine.sim.histogram_writer import HistogramWriter
from stallprobes.engine.sim.host_thread import HostThread
from stallprobes.engine.sim.sampling import LatencyDistribution
from stallprobes.engine.sim.steps import Step

FEWEST = 8
MOST = 2048
# Fewer iterations than this are computed without numpy, a call to which costs more than several of them.
_FEW = 64

Int64s = NDArray[np.int64]


class IterationBatch:
    """Computes iterations of one thread in batches of up to MOST."""

    def __init__(self, host: HostThread, recorder: HistogramWriter, steps: Sequence[Step]) -> None:
        self._host = host
        self._recorder = recorder
        self._steps = steps
        fits = all(each.latency is not None and each.repeat == 1 and each.value is None for each in steps)
        self._possible = fits and any(each.channel >= 0 for each in steps)
        self._channels = np.array([each.channel for each in steps], dtype=np.int64)
        self._tables: dict[LatencyDistribution, Int64s] = {}
        self._pending: list[Int64s] = []
        self._pending_due: list[Int64s] = []
        # The latencies of few iterations, by call, and the times of whole iterations.
        self._pending_few: list[list[int]] = [[] for _ in steps]
        self._pending_few_due: list[int] = []
        self._last_measured = max((number for number, each in enumerate(steps) if each.channel >= 0), default=0)
        # Called with the starts and ends of the calls of each batch, int64[iterations][calls], before it is counted.
        self.on_batch: Callable[[Int64s, Int64s], None] | None = None
        # Whether ``on_batch`` is to be called now.
        self.is_traced: Callable[[], bool] = lambda: False

    def run(self, gap_ns: int) -> bool:
        """Compute the iterations that end before the next event, each call ``gap_ns`` after the one before.

        False if there is none, or too few to keep each call, or a call is not only a latency now.
        """
        if not self._possible:
            return False
        clock = self._host.clock
        now, horizon = clock.now, clock.peek()
        costs = [
            cost for cost in (each.latency() for each in self._steps if each.latency is not None) if cost is not None
        ]
        if len(costs) < len(self._steps):
            return False
        usual = sum(cost.p50_ns + gap_ns for cost in costs)
        wanted = min(MOST, int((min(horizon, now + MOST * usual) - now) // usual))
        if wanted < _FEW and not self._host.simulation.rings and not self.is_traced():
            return self._run_few(costs, gap_ns, horizon, wanted)
        if wanted < FEWEST:
            return False
        took = self._times(costs, wanted)
        ends = now + np.cumsum(took + gap_ns).reshape(took.shape)
        fit = int(np.searchsorted(ends[:, -1], horizon, side="left"))
        if fit == 0:
            return False
        self._host.random.discard(fit * len(costs))
        self._record(now, took[:fit], ends[:fit])
        clock.advance_to(int(ends[fit - 1, -1]))
        return True

    def _run_few(self, costs: Sequence[LatencyDistribution], gap_ns: int, horizon: int, usual: int) -> bool:
        """Compute up to ``_FEW`` iterations that end before ``horizon``; False if there is none.

        ``usual`` is their number if each takes its median.
        """
        clock, random, calls = self._host.clock, self._host.random, len(costs)
        tables = [cost.times_ns for cost in costs]
        # More than usual fit if they happen to be fast.
        for iterations in (min(usual + usual // 2 + 4, _FEW), _FEW):
            took = list(map(getitem, cycle(tables), random.peek(iterations * calls)))
            # The start, and the end of each call.
            ends = list(accumulate(map(gap_ns.__add__, took), initial=clock.now))
            fit = bisect_left(ends[calls::calls], horizon)
            if fit < iterations:
                break
        if fit == 0:
            return False
        last = fit * calls
        for number, values in enumerate(self._pending_few):
            values += took[number:last:calls]
        self._pending_few_due += map(sub, ends[self._last_measured + 1 : last + 1 : calls], ends[:last:calls])
        random.discard(last)
        self._publish_words(ends[last - calls], ends[last] - took[last - 1], fit)
        clock.advance_to(ends[last])
        return True

    def _publish_words(self, began: int, call_began: int, iterations: int) -> None:
        """Update the words for ``iterations``; the last one began at ``began`` and its last call at ``call_began``."""
        words = self._recorder.words
        words[HEARTBEAT_NS] = words[DUE_NS] = began
        words[DUE_ALLOWED_NS] = began - words[SLOT + OFFSET_NS]
        words[INFLIGHT_SINCE_NS] = call_began
        words[ITERATIONS] += iterations

    def _times(self, costs: Sequence[LatencyDistribution], iterations: int) -> Int64s:
        """The latencies in ns of ``iterations`` iterations, int64[iterations][calls]."""
        numbers = np.array(self._host.random.peek(iterations * len(costs)), dtype=np.int64).reshape(
            iterations, len(costs)
        )
        for column, cost in enumerate(costs):
            if cost not in self._tables:
                self._tables[cost] = np.array(cost.times_ns, dtype=np.int64)
            numbers[:, column] = self._tables[cost][numbers[:, column]]
        return numbers

    def _record(self, now: int, took: Int64s, ends: Int64s) -> None:
        recorder = self._recorder
        measured = np.flatnonzero(self._channels >= 0)
        if self.on_batch is not None:
            self.on_batch(ends - took, ends)
        if self._host.simulation.rings:
            channels = np.tile(self._channels[measured], len(took))
            recorder.push_all(ends[:, measured].ravel(), channels, took[:, measured].ravel())
        starts = np.concatenate(([now], ends[:-1, -1]))
        self._pending.append(took)
        self._pending_due.append(ends[:, measured[-1]] - starts)
        self._publish_words(int(starts[-1]), int(ends[-1, -1] - took[-1, -1]), len(took))

    def flush(self) -> None:
        """Add the pending samples to the histograms, together, because each call to numpy costs more than a sample."""
        if self._pending_few_due:
            for each, values in zip(self._steps, self._pending_few, strict=True):
                if each.rows:
                    self._recorder.count_list(each.rows, values)
                values.clear()
            self._recorder.count_list((self._recorder.words[DUE_CHANNEL],), self._pending_few_due)
            self._pending_few_due.clear()
        if not self._pending:
            return
        took, iterations = np.concatenate(self._pending), np.concatenate(self._pending_due)
        self._pending, self._pending_due = [], []
        for column, each in enumerate(self._steps):
            if each.rows:
                self._recorder.count_all(each.rows, took[:, column])
        self._recorder.count_all((self._recorder.words[DUE_CHANNEL],), iterations)
