"""Kernels of other watched processes: who had the GPU while a call waited for another process's time-slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.records.rows import rows_at, rows_where
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.reading.kernel_names import demangled, short_name

# Largest number of another process's kernels that are examined as the cause of a call: the last kernels during the
# call.
_MOST_KERNELS = 4096


@dataclass(frozen=True, eq=False)
class OtherWork:
    """Kernels of a process in the order of their starts: int64[n] each, times in ns on CLOCK_MONOTONIC.

    ``process`` is how a sentence names it; ``kernels`` are the places of names in ``names``, ``until`` the latest end
    of each kernel and those before it.
    """

    process: str
    devices: Int64s
    starts: Int64s
    ends: Int64s
    until: Int64s
    kernels: Int64s
    names: Mapping[int, str]

    @classmethod
    def of(cls, process: str, records: NDArray[Any], names: Mapping[int, str]) -> OtherWork:
        """The kernels among ``records``, which are in the layout of the file."""
        rows = rows_where(records, records["kind"] == int(RecordKind.KERNEL))
        rows = rows_at(rows, np.argsort(rows["start"], kind="stable"))
        devices, starts, ends, kernels = (int64s(rows[name]) for name in ("device", "start", "end", "name"))
        until = np.maximum.accumulate(ends) if len(ends) else ends
        return cls(process, devices, starts, ends, until, kernels, names)

    def numbered_as(self, theirs: Sequence[str], ours: Sequence[str]) -> OtherWork:
        """The same with the numbers that another process has for the GPUs, by the UUIDs of both; -1 for other GPUs.

        Where the UUIDs of one of them are not known, the numbers stay.
        """
        if not theirs or not ours:
            return self
        numbers = int64s([*(ours.index(uuid) if uuid in ours else -1 for uuid in theirs), -1])
        return replace(self, devices=numbers[np.clip(self.devices, -1, len(theirs))])

    def during(self, device: int, begin_ns: int, end_ns: int) -> int:
        """Time (ns) for which its kernels ran on a GPU between two times."""
        return int(self._overlaps(device, begin_ns, end_ns)[1].sum())

    def longest(self, device: int, begin_ns: int, end_ns: int) -> str:
        """Name of its kernel that ran longest on a GPU between two times; some kernel did. "" without a name."""
        part, overlaps = self._overlaps(device, begin_ns, end_ns)
        kernels, places = np.unique(self.kernels[part], return_inverse=True)
        longest = int(kernels[np.argmax(np.bincount(places.reshape(-1), overlaps))])
        return short_name(demangled(self.names.get(longest, "")))

    def _overlaps(self, device: int, begin_ns: int, end_ns: int) -> tuple[slice, Int64s]:
        """Last kernels that may have run between two times, and the time (ns) of each between them."""
        first, last = int(self.until.searchsorted(begin_ns, "right")), int(self.starts.searchsorted(end_ns))
        part = slice(max(first, last - _MOST_KERNELS), last)
        overlaps = np.minimum(self.ends[part], end_ns) - np.maximum(self.starts[part], begin_ns)
        return part, np.where(self.devices[part] == device, np.maximum(overlaps, 0), 0)


OthersWork = Callable[[], Iterable[OtherWork]]


def nobody() -> Iterable[OtherWork]:
    """Where no other process is watched."""
    return ()


def user_of(others: Iterable[OtherWork], device: int, begin_ns: int, end_ns: int) -> str:
    """Kernel and process that used a GPU longest between two times, ``gemm of python3 (pid 806)``; "" without any."""
    times = [(work.during(device, begin_ns, end_ns), work) for work in others]
    ns, user = max(times, key=lambda each: (each[0], each[1].process), default=(0, None))
    if not ns or user is None:
        return ""
    kernel = user.longest(device, begin_ns, end_ns)
    return f"{kernel} of {user.process}" if kernel else user.process
