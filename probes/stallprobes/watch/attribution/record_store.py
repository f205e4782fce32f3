"""Activity records of a process that may still explain a call, and the GPU's clock that their switches show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import CopyKind, RecordKind
from stallprobes.native.layouts.watch_file import WatchRecord
from stallprobes.watch.attribution.intervals import int64s
from stallprobes.watch.attribution.switch_clock import ClockOffset, Tenures, tenures_of, waiting_starts
from stallprobes.watch.reading.process import RecordBatch

# Records that are held at most, and work and switches that are held however old, to find the offset of the clocks.
MOST_RECORDS = 1 << 20
LEAST_WORK = 4096
LEAST_SWITCHES = 512
# No time of a real program is as large.
_MOST_NS = 2**62
_SWITCH = int(RecordKind.CONTEXT_SWITCH)


class RecordStore:
    """Records in the order of their arrival.

    ``missed`` counts those that were overwritten before they were read, or dropped because there were too many;
    ``unplaced`` the context switches that could not be converted to the host's clock. ``first_launches`` has the
    correlation number of the first launch of each kernel, by context and place of the name.
    """

    def __init__(self) -> None:
        self.rows: NDArray[Any] = np.zeros(0, dtype_of(WatchRecord))
        self._switches: NDArray[Any] = np.zeros(0, dtype_of(WatchRecord))
        self.names: dict[int, str] = {}
        self.missed = self.unplaced = self.switches = 0
        self.first_launches: dict[tuple[int, int], int] = {}
        self._devices: dict[int, int] = {}
        self._clocks: dict[int, ClockOffset] = {}

    def add(self, batch: RecordBatch) -> None:
        """Add the records of ``batch``."""
        self.missed += batch.missed
        self.names.update(batch.names)
        rows = batch.rows[(batch.rows["end"] <= _MOST_NS) & (batch.rows["start"] <= _MOST_NS)]
        switch = rows["kind"] == _SWITCH
        self.switches += int(np.count_nonzero(switch))
        self._switches = np.concatenate((self._switches, rows[switch]))[-MOST_RECORDS:]
        self.rows = np.concatenate((self.rows, rows[~switch]))
        self._note_first_launches(rows)
        self.missed += max(len(self.rows) - MOST_RECORDS, 0)
        self.rows = self.rows[-MOST_RECORDS:]

    def drop_before(self, time_ns: int) -> None:
        """Drop the records of work that ended before ``time_ns`` (CLOCK_MONOTONIC)."""
        kept = int64s(self.rows["end"]) >= time_ns
        kept[-LEAST_WORK:] = True
        self.rows = self.rows[kept]
        kept = np.ones(len(self._switches), dtype=np.bool_)
        if self._clocks:
            offset = max(clock.offset_ns for clock in self._clocks.values())
            kept = int64s(self._switches["start"]) >= time_ns + offset
            kept[-LEAST_SWITCHES:] = True
        self._switches = self._switches[kept]

    def tenures(self) -> Mapping[int, Tenures]:
        """The tenures of each GPU, as far as the switches show its clock."""
        work = self.rows[needs_engine(self.rows)]
        work = work[np.argsort(work["start"], kind="stable")]
        self._devices.update(zip(work["context"].tolist(), work["device"].tolist(), strict=True))
        devices = set(self._devices.values())
        only = next(iter(devices)) if len(devices) == 1 else -1
        of_switch = int64s([self._devices.get(context, only) for context in self._switches["context"].tolist()])
        self.unplaced = int(np.count_nonzero(of_switch < 0))
        found = {}
        for device in sorted(devices):
            switches, mine = self._switches[of_switch == device], work[int64s(work["device"]) == device]
            contexts, starts, ends = (int64s(mine[name]) for name in ("context", "start", "end"))
            tenures, clock = tenures_of(
                int64s(switches["context"]),
                int64s(switches["subkind"]),
                int64s(switches["start"]),
                *waiting_starts(contexts, starts, ends),
                self._clocks.get(device),
            )
            self.unplaced += tenures.unplaced
            found[device] = tenures
            if clock is not None:
                self._clocks[device] = clock
        return found

    def _note_first_launches(self, rows: NDArray[Any]) -> None:
        kernels = rows[rows["kind"] == int(RecordKind.KERNEL)]
        kernels = kernels[np.argsort(kernels["start"], kind="stable")]
        keys = (int64s(kernels["context"]) << 32) | int64s(kernels["name"])
        for at in np.unique(keys, return_index=True)[1].tolist():
            key = int(kernels["context"][at]), int(kernels["name"][at])
            self.first_launches.setdefault(key, int(kernels["correlation"][at]))


def needs_engine(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Which records are of work that needs the graphics engine; the others are of copy engines, or of no work."""
    device_copy = (rows["kind"] == int(RecordKind.COPY)) & (rows["subkind"] == int(CopyKind.DEVICE_TO_DEVICE))
    computing = np.isin(rows["kind"], (int(RecordKind.KERNEL), int(RecordKind.MEMSET)))
    return computing | np.asarray(device_copy, dtype=np.bool_)
