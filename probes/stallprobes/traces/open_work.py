"""Open work: GPU work without a record whose call has returned. CUPTI records work when it has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from stallprobes.engine.gpu_work import submissions
from stallprobes.engine.timeline.reader import TimelineRows
from stallprobes.model import MS, Probe
from stallprobes.native.layouts.board import CALL_OP_MASK
from stallprobes.records.rows import Rows
from stallprobes.traces.trace import Int64s, OpenWork

# Shortest time (ns) after a call's return at which GPU work without a record counts as not ended. Reason: records of
# ended work arrive sooner.
_LATE_NS = 20 * MS
# Largest number of calls without a record of their GPU work that are kept for each operation of a probe.
_MOST_CALLS = 4_096
# Columns of a table of calls: the times (ns) at which a call began and returned.
_BEGAN, _RETURNED = range(2)
# Empty table of calls.
_NONE: Int64s = np.zeros((0, 2), dtype=np.int64)


class UnrecordedCalls:
    """The calls of a live timeline whose work has no record.

    Work of one operation ends in the order of its calls, so a record ends the wait for those of all earlier calls. An
    operation is known once it has a record, since some kinds of work never have one.
    """

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._numbers = {probe.name: number for number, probe in enumerate(probes)}
        self._ops = [tuple(part.op for part in submissions(probe.program)) for probe in probes]
        # By probe and operation: the calls as int64[n][2], and the last row of work.
        self._calls: dict[tuple[int, int], Int64s] = {}
        self._last: dict[tuple[int, int], Rows] = {}
        self._lost = 0

    def feed(self, rows: TimelineRows, work: Rows) -> None:
        """Add the records of the timeline since the last feed; ``work`` are its rows in the columns of a trace."""
        for name, calls in rows.calls.items():
            number = self._numbers[name]
            called = calls["op"] & CALL_OP_MASK
            for op in self._ops[number]:
                own = (called == op).nonzero()[0]
                if len(own):
                    times = np.stack((calls["began_ns"][own], calls["returned_ns"][own]), axis=1)
                    self._calls[number, op] = np.concatenate((self._calls.get((number, op), _NONE), times))
        probe, operation, began_ns = work["probe"], work["op"], work["began_ns"]
        for number, ops in enumerate(self._ops):
            for op in ops:
                own = ((probe == number) & (operation == op)).nonzero()[0]
                if not len(own):
                    continue
                newest, last = own[began_ns[own].argmax()], self._last.get((number, op))
                # The first record of a call is on the call's stream; a later one can be on another.
                if last is None or began_ns[newest] > last["began_ns"]:
                    self._last[number, op] = work[newest]
        self._drop(rows, work)

    def _drop(self, rows: TimelineRows, work: Rows) -> None:
        """Drop the calls whose work has a record, or had one that was lost or belongs to no known call."""
        losses = rows.losses
        lost = losses.dropped + losses.exhausted + losses.unknown
        if not rows.status.on or lost != self._lost or losses.overwritten:
            self._calls.clear()
        self._lost = lost
        unknown = work[work["probe"] < 0]
        for key, last in self._last.items():
            calls = self._calls.get(key, _NONE)
            calls = calls[calls[:, _BEGAN] > last["began_ns"]][:_MOST_CALLS]
            place = ["context", "stream"]
            self._calls[key] = _NONE if (unknown[place] == last[place]).any() else calls
        for key in self._calls.keys() - self._last.keys():
            self._calls[key] = self._calls[key][-_MOST_CALLS:]

    def open_work(self, collected_ns: int, failed: Sequence[int] = ()) -> Iterator[OpenWork]:
        """The open work at ``collected_ns``, up to which records have arrived; ``failed`` probes have none."""
        for (number, op), last in self._last.items():
            calls = self._calls[number, op]
            returned = calls[calls[:, _RETURNED] <= collected_ns, _RETURNED]
            if number not in failed and len(returned) and returned[0] <= collected_ns - _LATE_NS:
                device, context, stream = last[["device", "context", "stream"]].tolist()
                yield OpenWork(number, op, device, context, stream, int(returned[0]), len(returned))
