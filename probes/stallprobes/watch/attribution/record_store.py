"""Activity records of a process that may still explain a call, and the GPU's clock that their switches show."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.watch_file import WatchRecord
from stallprobes.records.rows import joined, rows_where
from stallprobes.watch.attribution.slow_calls import column_of
from stallprobes.watch.attribution.switch_clock import ClockOffset, tenures_of
from stallprobes.watch.columns import Columns
from stallprobes.watch.division.instants import Flags
from stallprobes.watch.division.pending import needs_engine
from stallprobes.watch.division.recorded_times import Tenures
from stallprobes.watch.intervals import NONE, Int64s, distinct, distinct_pairs, int64s
from stallprobes.watch.reading.process import RecordBatch, SlowDriverCall

# Largest number of records of GPU work that are kept for each process, and also the largest number of records of
# context switches. The oldest records are dropped.
MOST_RECORDS = 1 << 20
# Number of newest records of GPU work that are kept at any age. Reason: the records give the offset between the GPU's
# and the host's clock.
LEAST_WORK = 4096
# Number of newest records of context switches that are kept at any age. Reason: the records give the offset between the
# GPU's and the host's clock.
LEAST_SWITCHES = 512
# Time (ns) before and after a slow call whose records are used to explain the call.
BESIDE_NS = 20_000_000
# Number of newest records of the last reading that are always used to explain slow calls. All other records must belong
# to a slow call, or be near a slow call in time (BESIDE_NS). Reason: the newest records show at least whether the GPU
# had work.
LEAST_BESIDE = 256
# Array type of a record in a process's file.
_RECORD = dtype_of(WatchRecord)
# Largest time (ns) that is accepted in a record. Records with a larger time are dropped, since the limit is above every
# time of a real program. The value also stands for the start of work that does not exist.
_MOST_NS = 2**62
# Longest duration (ns, 13 days) that is accepted in a record. Longer records are dropped. Reason: sums over the work of
# a call must stay below _MOST_NS.
_LONGEST_NS = 2**50
# Kind of a record of a context switch.
_SWITCH = int(RecordKind.CONTEXT_SWITCH)
# Largest number of readings with new GPU work that are skipped between two attempts to convert context switches to the
# host's clock. The number grows (0, 1, 3, 7) while some switches cannot be converted. New switches are converted at
# once.
_MOST_PAUSE = 7


@dataclass(frozen=True, eq=False, kw_only=True)
class _EngineWork(Columns):
    """Work on the graphics engine, in the order of its starts: int64[n] each."""

    devices: Int64s
    contexts: Int64s
    starts: Int64s
    ends: Int64s

    @classmethod
    def of(cls, rows: NDArray[Any]) -> _EngineWork:
        """Work of the engine among records."""
        rows = rows_where(rows, needs_engine(rows))
        columns = (int64s(rows[name]) for name in ("device", "context", "start", "end"))
        return cls(**dict(zip(("devices", "contexts", "starts", "ends"), columns, strict=True)))._in_order()

    def with_later(self, parts: Sequence[_EngineWork]) -> _EngineWork:
        """Work with that of ``parts``, most of which starts later."""
        begins = (int(part.starts[0]) for part in parts if len(part.starts))
        first = int(self.starts.searchsorted(min(begins, default=_MOST_NS)))
        end = _EngineWork.joined((self.at(slice(first, None)), *parts))._in_order()
        return _EngineWork.joined((self.at(slice(first)), end))

    def since(self, time_ns: int) -> _EngineWork:
        """Work that starts at a time or later."""
        return self.at(slice(int(self.starts.searchsorted(time_ns)), None))

    def on(self, device: int) -> _EngineWork:
        """Work of one GPU."""
        return self.where(self.devices == device)

    def devices_by_context(self) -> dict[int, int]:
        """The GPU of each context."""
        changes = (self.contexts[1:] != self.contexts[:-1]) | (self.devices[1:] != self.devices[:-1])
        first = np.append(True, changes)[: len(self)]
        contexts, devices = distinct_pairs(self.contexts[first], self.devices[first])
        return dict(zip(contexts.tolist(), devices.tolist(), strict=True))

    def _in_order(self) -> _EngineWork:
        if (self.starts[1:] >= self.starts[:-1]).all():
            return self
        # Most work is in order: only a stable sort uses that.
        return self.at(np.argsort(self.starts, kind="stable"))


# Empty columns: no work on a GPU's engine.
_NO_WORK = _EngineWork(devices=NONE, contexts=NONE, starts=NONE, ends=NONE)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Records of one reading, with the limits of their times and of their correlation numbers.

    ``first_ns`` is the first of their ends, ``last_ns`` the last one, and ``latest_ns`` the last of their starts.
    """

    rows: NDArray[Any]
    first_ns: int
    latest_ns: int
    last_ns: int
    least: int
    most: int

    @classmethod
    def of(cls, rows: NDArray[Any]) -> _Batch:
        ends, correlations = rows["end"], rows["correlation"]
        return cls(
            rows=rows,
            first_ns=int(ends.min()),
            latest_ns=int(rows["start"].max()),
            last_ns=int(ends.max()),
            least=int(correlations.min()),
            most=int(correlations.max()),
        )

    @cached_property
    def engine(self) -> _EngineWork:
        """Its work on the graphics engine."""
        return _EngineWork.of(self.rows)

    def beside(self, begins: Int64s, ends: Int64s, own: Int64s) -> Flags:
        """Which records overlap one of the spans, or have a correlation number of ``own``.

        The spans are in order and do not overlap; the numbers ascend.
        """
        rows, first = self.rows, int(np.searchsorted(begins, self.first_ns, "right")) - 1
        if first >= 0 and ends[first] >= self.latest_ns:
            return np.ones(len(rows), dtype=np.bool_)
        kept = np.zeros(len(rows), dtype=np.bool_)
        if self.last_ns >= begins[0]:
            # If any span that begins before a record ends reaches into it, the last one does.
            at = np.searchsorted(begins, int64s(rows["end"]), "right") - 1
            kept |= (at >= 0) & (ends[at] >= int64s(rows["start"]))
        if own[-1] >= self.least and own[0] <= self.most:
            others = np.flatnonzero(~kept)
            correlations = int64s(rows["correlation"])[others]
            place = np.minimum(np.searchsorted(own, correlations), len(own) - 1)
            kept[others] = own[place] == correlations
        return kept


class RecordStore:
    """Records in the order of their arrival.

    ``missed`` counts those that were overwritten before they were read, or dropped because there were too many;
    ``unplaced`` the context switches that could not be converted to the host's clock. ``first_launches`` has the
    correlation number of the first launch of each kernel, by context and place of the name. ``realtime_ns`` is
    CLOCK_REALTIME less CLOCK_MONOTONIC, near which the GPU's clock is looked for.
    """

    def __init__(self) -> None:
        # As they came: a join takes as long as everything else, and is rarely needed.
        self._batches: deque[_Batch] = deque()
        # The work on the graphics engine of those that were there when it was asked for, and the number of new ones.
        self._engine, self._new = _NO_WORK, 0
        self._switches: NDArray[Any] = np.zeros(0, _RECORD)
        self.names: dict[int, str] = {}
        self.missed = self.unplaced = self.switches = 0
        self.first_launches: dict[tuple[int, int], int] = {}
        self.realtime_ns: int | None = None
        self._launched: Int64s = NONE
        self._devices: dict[int, int] = {}
        self._clocks: dict[int, ClockOffset] = {}
        self._tenures: dict[int, Tenures] = {}
        # The switches of which the last tenures are, and the readings that have to follow before they are tried again.
        self._tried = self._pause = 0

    def __len__(self) -> int:
        return sum(len(batch.rows) for batch in self._batches)

    @property
    def rows(self) -> NDArray[Any]:
        """All records but switches, in the layout of the file."""
        return joined(_RECORD, (batch.rows for batch in self._batches))

    def add(self, batch: RecordBatch) -> None:
        """Add the records of ``batch``."""
        self.missed += batch.missed
        self.names.update(batch.names)
        rows = batch.rows
        starts, ends = rows["start"], rows["end"]
        # The end of a context switch is 0.
        lasted = ends - np.minimum(starts, ends)
        most = max(int(starts.max(initial=0)), int(ends.max(initial=0)))
        if most > _MOST_NS or int(lasted.max(initial=0)) > _LONGEST_NS:
            rows = rows_where(rows, (ends <= _MOST_NS) & (starts <= _MOST_NS) & (lasted <= _LONGEST_NS))
        switch = rows["kind"] == _SWITCH
        if switch.any():
            self.switches += int(np.count_nonzero(switch))
            self._switches = joined(_RECORD, (self._switches, rows_where(rows, switch)))[-MOST_RECORDS:]
            rows = rows_where(rows, ~switch)
        if len(rows):
            self._batches.append(_Batch.of(rows))
            self._new += 1
            self._note_first_launches(rows)
        while len(self) > MOST_RECORDS:
            self.missed += len(self._batches.popleft().rows)

    def drop_before(self, time_ns: int, switches_ns: int) -> None:
        """Drop batches whose work ended before ``time_ns``, and switches before ``switches_ns`` (CLOCK_MONOTONIC)."""
        while self._batches and len(self) - len(self._batches[0].rows) >= LEAST_WORK:
            if self._batches[0].last_ns >= time_ns:
                break
            self._batches.popleft()
        kept = np.ones(len(self._switches), dtype=np.bool_)
        if self._clocks:
            offset = max(clock.offset_ns for clock in self._clocks.values())
            kept = int64s(self._switches["start"]) >= switches_ns + offset
            kept[-LEAST_SWITCHES:] = True
        self._switches = rows_where(self._switches, kept)

    def beside(self, calls: Sequence[SlowDriverCall]) -> NDArray[Any]:
        """Records that may explain ``calls``, in the layout of the file.

        They are their own records, those at their times, and a few more: any work at all is evidence too.
        """
        begins, durations, correlations = (
            column_of(calls, name) for name in ("begin_ns", "duration_ns", "correlation")
        )
        order = np.argsort(begins, kind="stable")
        ends = np.maximum.accumulate((begins + durations)[order]) + BESIDE_NS
        begins, own = begins[order] - BESIDE_NS, np.unique(correlations)
        new = np.flatnonzero(np.append(True, begins[1:] > ends[:-1]))
        begins, ends = begins[new], ends[np.append(new[1:], len(ends)) - 1]
        kept_rows = []
        for batch in self._batches:
            kept = batch.beside(begins, ends, own)
            if batch is self._batches[-1]:
                kept[-LEAST_BESIDE:] = True
            kept_rows.append(rows_where(batch.rows, kept))
        return joined(_RECORD, kept_rows)

    def tenures(self, last: bool = False) -> Mapping[int, Tenures]:
        """The tenures of each GPU, as far as the switches show its clock; ``last``: no reading follows."""
        # Later work may place the other switches; that is tried less and less often.
        pause = 0 if last else self._pause
        if self.switches == self._tried and (not self.unplaced or self._new <= pause):
            return self._tenures
        self._pause = min(2 * self._pause + 1, _MOST_PAUSE) if self.switches == self._tried else 0
        work = self._engine_work()
        devices = set(self._devices.values())
        only = next(iter(devices)) if len(devices) == 1 else -1
        of_switch = int64s([self._devices.get(context, only) for context in self._switches["context"].tolist()])
        self.unplaced = int(np.count_nonzero(of_switch < 0))
        tenures_by_device = {}
        for device in sorted(devices):
            switches, mine = self._switches[of_switch == device], work.on(device)
            tenures, clock = tenures_of(
                int64s(switches["context"]),
                int64s(switches["subkind"]),
                int64s(switches["start"]),
                (mine.contexts, mine.starts, mine.ends),
                self._clocks.get(device),
                self.realtime_ns,
            )
            self.unplaced += tenures.unplaced
            tenures_by_device[device] = tenures
            if clock is not None:
                self._clocks[device] = clock
        self._tenures, self._tried = tenures_by_device, self.switches
        return tenures_by_device

    def _engine_work(self) -> _EngineWork:
        """The work on the graphics engine of all records, and of some that were dropped."""
        count = len(self._batches)
        new = [batch.engine for batch in islice(self._batches, max(count - self._new, 0), count)]
        for work in new:
            self._devices.update(work.devices_by_context())
        starts = (batch.engine.starts for batch in self._batches)
        oldest = min((int(times[0]) for times in starts if len(times)), default=_MOST_NS)
        self._engine, self._new = self._engine.since(oldest).with_later(new), 0
        return self._engine

    def _note_first_launches(self, rows: NDArray[Any]) -> None:
        keys = (int64s(rows["context"]) << 32) | int64s(rows["name"])
        kernel = rows["kind"] == int(RecordKind.KERNEL)
        names = distinct(keys[kernel])
        new = names[~np.isin(names, self._launched)]
        if not len(new):
            return
        kernel &= np.isin(keys, new)
        kernels, keys = rows_where(rows, kernel), keys[kernel]
        order = np.argsort(kernels["start"], kind="stable")
        launched, places = np.unique(keys[order], return_index=True)
        for row in kernels[order[places]]:
            self.first_launches[int(row["context"]), int(row["name"])] = int(row["correlation"])
        self._launched = np.union1d(self._launched, launched)
