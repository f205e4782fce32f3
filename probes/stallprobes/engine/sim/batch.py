"""Batches of iterations of a thread that calls back to back while nothing else happens.

A probe that polls makes a million calls per second. While no other event is due and every call is only a random
latency, its iterations are computed together, with the same random numbers and the same samples as one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.board import (
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
from stallprobes.engine.sim.sampling import UNIT_BITS, LatencyDistribution
from stallprobes.engine.sim.steps import Step

FEWEST = 8
MOST = 2048

Int64s = NDArray[np.int64]


class IterationBatch:
    """Computes iterations of one thread in batches of FEWEST to MOST."""

    def __init__(self, host: HostThread, recorder: HistogramWriter, steps: Sequence[Step]) -> None:
        self._host = host
        self._recorder = recorder
        self._steps = steps
        fits = all(each.latency is not None and each.repeat == 1 and each.value is None for each in steps)
        self._possible = fits and any(each.channel >= 0 for each in steps)
        self._channels = np.array([each.channel for each in steps], dtype=np.int64)
        self._factors: dict[LatencyDistribution, Int64s] = {}
        self._pending: list[Int64s] = []
        self._pending_due: list[Int64s] = []
        # Called with the starts and ends of the calls of each batch, int64[iterations][calls], before it is counted.
        self.on_batch: Callable[[Int64s, Int64s], None] | None = None

    def run(self, gap_ns: int) -> bool:
        """Compute the iterations that end before the next event, each call ``gap_ns`` after the one before.

        False if there are fewer than FEWEST, or a call is not only a latency now.
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

    def _times(self, costs: Sequence[LatencyDistribution], iterations: int) -> Int64s:
        """The latencies in ns of ``iterations`` iterations, int64[iterations][calls]."""
        numbers = np.array(self._host.random.peek(iterations * len(costs)), dtype=np.int64).reshape(
            iterations, len(costs)
        )
        for column, cost in enumerate(costs):
            if cost not in self._factors:
                self._factors[cost] = np.array(cost.factors, dtype=np.int64)
            numbers[:, column] = cost.p50_ns * self._factors[cost][numbers[:, column]] >> UNIT_BITS
        return numbers

    def _record(self, now: int, took: Int64s, ends: Int64s) -> None:
        recorder, words = self._recorder, self._recorder.words
        measured = np.flatnonzero(self._channels >= 0)
        if self.on_batch is not None:
            self.on_batch(ends - took, ends)
        if self._host.simulation.rings:
            channels = np.tile(self._channels[measured], len(took))
            recorder.push_all(ends[:, measured].ravel(), channels, took[:, measured].ravel())
        starts = np.concatenate(([now], ends[:-1, -1]))
        self._pending.append(took)
        self._pending_due.append(ends[:, measured[-1]] - starts)
        words[HEARTBEAT_NS] = words[DUE_NS] = int(starts[-1])
        words[DUE_ALLOWED_NS] = int(starts[-1]) - words[SLOT + OFFSET_NS]
        words[INFLIGHT_SINCE_NS] = int(ends[-1, -1] - took[-1, -1])
        words[ITERATIONS] += len(took)

    def flush(self) -> None:
        """Add the pending samples to the histograms, together, because each call to numpy costs more than a sample."""
        if not self._pending:
            return
        took, iterations = np.concatenate(self._pending), np.concatenate(self._pending_due)
        self._pending, self._pending_due = [], []
        for column, each in enumerate(self._steps):
            if each.rows:
                self._recorder.count_all(each.rows, took[:, column])
        self._recorder.count_all((self._recorder.words[DUE_CHANNEL],), iterations)
