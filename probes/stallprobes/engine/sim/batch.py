"""Batches of iterations of a thread that calls back to back while nothing else happens.

A probe that polls makes a million calls per second. While no other event is due and every call is only a random
latency, its iterations are computed together, with the same random numbers and the same samples as one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.sim.histogram_writer import HistogramWriter
from stallprobes.engine.sim.host_thread import BoundOp, HostThread
from stallprobes.engine.sim.sampling import LatencyDistribution

# Smallest number of a probe's iterations that the simulation computes ahead. The simulation begins with this number.
_FIRST_AHEAD = 32
# Largest number of a probe's iterations that the simulation computes ahead. The number doubles, up to this limit, each
# time that all iterations computed ahead were used.
_MOST_AHEAD = 1024

Int64s = NDArray[np.int64]


class IterationsAhead:
    """Iterations from the random number at ``position`` on, as they are if every call is only a latency.

    The random numbers of a thread are the same whether a batch uses them or a single call, so that these iterations
    stay valid while their calls have the same distributions ``costs``.
    """

    __slots__ = ("borders", "calls", "costs", "due", "last", "number", "position", "took")

    def __init__(
        self, position: int, costs: Sequence[LatencyDistribution], took: Int64s, gap_ns: int, last_measured: int
    ) -> None:
        """``took`` has the latencies in ns, int64[iterations][calls]; each call begins ``gap_ns`` after the one
        before. Call ``last_measured`` is the one at whose end the iteration counts as done."""
        self.position = position
        self.costs = costs
        self.took = took
        self.number, self.calls = took.shape
        ends = np.cumsum(took + gap_ns).reshape(took.shape)
        starts = np.concatenate(([0], ends[:-1, -1]))
        self.due = ends[:, last_measured] - starts
        # Plain integers for single values: the time in ns from the first start to each start, and each last latency.
        self.borders: list[int] = [0, *ends[:, -1].tolist()]
        self.last: list[int] = took[:, -1].tolist()

    def place(self, position: int, costs: Sequence[LatencyDistribution]) -> int | None:
        """The number of the iteration that begins with the random number at ``position``; None if there is none."""
        place, rest = divmod(position - self.position, self.calls)
        return place if not rest and 0 <= place < self.number and self.costs == costs else None


class IterationBatch:
    """Computes iterations of one thread in batches."""

    def __init__(self, host: HostThread, recorder: HistogramWriter, steps: Sequence[BoundOp]) -> None:
        self._host = host
        self._recorder = recorder
        self._steps = steps
        fits = all(each.latency is not None and each.repeat == 1 and each.value is None for each in steps)
        self._possible = fits and any(each.channel >= 0 for each in steps)
        self._channels = np.array([each.channel for each in steps], dtype=np.int64)
        self._tables: dict[LatencyDistribution, Int64s] = {}
        self._pending: list[Int64s] = []
        self._pending_due: list[Int64s] = []
        self._latencies = [each.latency for each in steps if each.latency is not None]
        self._ahead: IterationsAhead | None = None
        self._ahead_number = _FIRST_AHEAD
        self._last_measured = max((number for number, each in enumerate(steps) if each.channel >= 0), default=0)
        # Called with the starts and ends of the calls of each batch, int64[iterations][calls], before it is counted.
        self.on_batch: Callable[[Int64s, Int64s], None] | None = None

    def run(self, gap_ns: int) -> bool:
        """Compute the iterations that end before the next event, each call ``gap_ns`` after the one before.

        False if there is none, or a call is not only a latency now.
        """
        if not self._possible:
            return False
        costs = []
        for latency in self._latencies:
            cost = latency()
            if cost is None:
                return False
            costs.append(cost)
        clock, random, ahead = self._host.clock, self._host.random, self._ahead
        position = random.position
        place = None if ahead is None else ahead.place(position, costs)
        if ahead is None or place is None:
            ahead, place = self._computed_ahead(position, costs, gap_ns), 0
        borders, now = ahead.borders, clock.now
        # The time of the first start if these iterations began then.
        origin = now - borders[place]
        end = bisect_left(borders, clock.peek() - origin, place + 1) - 1
        if end == place:
            return False
        random.discard((end - place) * ahead.calls)
        took, ended = ahead.took[place:end], origin + borders[end]
        if self._host.simulation.rings:
            self._record(now, took, gap_ns)
        self._pending.append(took)
        self._pending_due.append(ahead.due[place:end])
        words, began = self._recorder.words, origin + borders[end - 1]
        words.heartbeat_ns = words.due_ns = began
        words.due_allowed_ns = began - words.slot.offset_ns
        words.inflight_since_ns = ended - ahead.last[end - 1]
        words.iterations += end - place
        clock.now = ended
        return True

    def _record(self, now: int, took: Int64s, gap_ns: int) -> None:
        """Put the calls of iterations from ``now`` on into the ring of the probe, and into that of the timeline."""
        ends = now + np.cumsum(took + gap_ns).reshape(took.shape)
        if self.on_batch is not None:
            self.on_batch(ends - took, ends)
        measured = np.flatnonzero(self._channels >= 0)
        channels = np.tile(self._channels[measured], len(took))
        self._recorder.push_all(ends[:, measured].ravel(), channels, took[:, measured].ravel())

    def _computed_ahead(self, position: int, costs: Sequence[LatencyDistribution], gap_ns: int) -> IterationsAhead:
        """New iterations from the random number at ``position`` on, more of them if all earlier ones were used."""
        before = self._ahead
        if before is not None:
            used = position == before.position + before.number * before.calls and before.costs == costs
            number = 2 * self._ahead_number if used else self._ahead_number // 2
            self._ahead_number = min(max(number, _FIRST_AHEAD), _MOST_AHEAD)
        took = self._times(costs, self._ahead_number)
        self._ahead = IterationsAhead(position, costs, took, gap_ns, self._last_measured)
        return self._ahead

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

    def flush(self) -> None:
        """Add the pending samples to the histograms, together, because each call to numpy costs more than a sample."""
        if not self._pending:
            return
        took, iterations = np.concatenate(self._pending), np.concatenate(self._pending_due)
        self._pending, self._pending_due = [], []
        for column, each in enumerate(self._steps):
            if each.rows:
                self._recorder.count_all(each.rows, took[:, column])
        self._recorder.count_all((self._recorder.words.due_channel,), iterations)
