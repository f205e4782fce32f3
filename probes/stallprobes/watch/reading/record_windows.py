"""Windows of a watched process in which records of the GPU's work were on or off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.watch_file import SWITCHED, Window

Int64s = NDArray[np.int64]
# Time (ns) at the end of a quiet window in which all calls are followed again (RESUME_MS in windows.c).
RESUMED_NS = 50_000_000
# Time (ns) after all real times, in place of a time that is not known or does not exist. Examples: the end of a window
# that has not ended, and the begin of the first window without records if the process always had records.
NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, eq=False)
class RecordWindows:
    """The windows of a process in the order of time: int64[n] each, times in ns on CLOCK_MONOTONIC.

    ``ends`` of the last is the largest number until it ends. ``on``: with records. ``quiet``: without callbacks of
    frequent calls too. ``settled`` is when no work could
    run any more that was submitted without records, the largest number if that is not known. ``calls`` returned in the
    window within ``took`` ns, ``kept`` of them not frequent, and ``busiest`` in the thread that made most; ``counted``
    records were read in it.
    Without windows, records were never off.
    """

    begins: Int64s
    ends: Int64s
    on: NDArray[np.bool_]
    quiet: NDArray[np.bool_]
    settled: Int64s
    calls: Int64s
    took: Int64s
    busiest: Int64s
    counted: Int64s
    kept: Int64s

    @classmethod
    def of(cls, rows: NDArray[Any]) -> RecordWindows:
        """The windows of ``rows``, in the layout of the file and in the order of time."""
        begins, ended, settled = (rows[name].astype(np.int64) for name in ("began_ns", "ended_ns", "settled_ns"))
        amounts = (rows[name].astype(np.int64) for name in ("calls", "took_ns", "busiest", "counted", "kept"))
        ends = np.where(ended > 0, ended, NEVER)
        # The settling of a window that ended meanwhile, or of none.
        unknown = (settled < begins) | (settled > ends)
        return cls(begins, ends, rows["records"] != 0, rows["quiet"] != 0, np.where(unknown, NEVER, settled), *amounts)

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def first_off_ns(self) -> int:
        """When records were off for the first time; the largest number if never."""
        off = self.begins[~self.on]
        return int(off[0]) if len(off) else NEVER

    def off_between(self, begin_ns: int, end_ns: int) -> tuple[tuple[int, int], ...]:
        """The times (begin, end) between two times in which records were off."""
        chosen = ~self.on & (self.begins < end_ns) & (self.ends > begin_ns)
        begins, ends = np.maximum(self.begins[chosen], begin_ns), np.minimum(self.ends[chosen], end_ns)
        return tuple(zip(begins.tolist(), ends.tolist(), strict=True))

    def contain(self, begins: Int64s, ends: Int64s) -> NDArray[np.bool_]:
        """Which times, from ``begins`` to ``ends``, lie where all work of the GPU was recorded."""
        if not len(self):
            return np.ones(len(begins), dtype=np.bool_)
        at = np.searchsorted(self.begins, begins, "right") - 1
        inside = at >= 0
        at = np.maximum(at, 0)
        return np.asarray(inside & self.on[at] & (self.settled[at] <= begins) & (ends <= self.ends[at]), dtype=np.bool_)

    def cut(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Records (in the layout of the file), of which work that ran when records went off ends at that moment.

        CUPTI (13.5) ends the records of a graph's kernels 100 ms late then; when they ended is not known.
        """
        if not len(self) or not len(rows):
            return rows
        # When records go off after each window begins.
        off = np.append(np.where(self.on, NEVER, self.begins), np.where(self.on[-1], self.ends[-1], NEVER))
        off = np.minimum.accumulate(off[::-1])[::-1][:-1]
        starts = rows["start"].astype(np.int64)
        at = np.searchsorted(self.begins, starts, "right") - 1
        works = (at >= 0) & self.on[at] & np.isin(rows["kind"], [int(kind) for kind in SWITCHED])
        limits = np.where(works, off[at], NEVER)
        late = rows["end"].astype(np.int64) > limits
        if not late.any():
            return rows
        rows = rows.copy()
        rows["end"][late] = limits[late]
        return rows

    def share_on(self, until_ns: int, since_ns: int = 0) -> float:
        """The share (0 to 1) of the time from ``since_ns`` until ``until_ns`` in which records were on."""
        return self._share(self.on, until_ns, since_ns)

    def share_followed(self, until_ns: int, since_ns: int = 0) -> float:
        """The share (0 to 1) of the time from ``since_ns`` until ``until_ns`` in which all calls were followed."""
        return self._share(~self.quiet, until_ns, since_ns)

    def _share(self, chosen: NDArray[np.bool_], until_ns: int, since_ns: int) -> float:
        if not len(self):
            return 1.0
        times = np.maximum(np.minimum(self.ends, until_ns) - np.maximum(self.begins, since_ns), 0)
        return float(times[chosen].sum() / max(times.sum(), 1))

    def share_resumed(self, since_ns: int) -> tuple[float, float]:
        """Time in which calls were followed again at the end of quiet windows, as shares (0 to 1) of all windows from
        ``since_ns`` on that have ended, and of the quiet ones."""
        ended = (self.begins >= since_ns) & (self.ends < NEVER)
        took = np.where(ended, self.ends - self.begins, 0)
        quiet = took[self.quiet]
        resumed = float(np.minimum(quiet, RESUMED_NS).sum())
        return resumed / max(int(took.sum()), 1), resumed / max(int(quiet.sum()), 1)

    def switching_ns(self, since_ns: int) -> int:
        """The time (ns) of the switches of records from ``since_ns`` on, in which calls that submit work were held up.

        A window without records lasts from the begin of the switch before it to the end of the one behind it, and
        ``took`` is the time between the two.
        """
        ended = ~self.on & (self.begins >= since_ns) & (self.ends < NEVER)
        return int(np.maximum(self.ends[ended] - self.begins[ended] - self.took[ended], 0).sum())


# Empty list of windows (times with or without records), for a process whose records were never off.
NO_WINDOWS = RecordWindows.of(np.zeros(0, dtype_of(Window)))
