"""Kernels of one process that communicate, as they become known: those of one stream of one sequence are a series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stallprobes.records.rows import Rows, joined, rows_where
from stallprobes.watch.division.binned_sums import BinnedSums, add_at
from stallprobes.watch.division.collectives import COLLECTIVE, CollectiveBatch, is_nccl, operation_of
from stallprobes.watch.division.instants import NO_SPANS, CoveredTime, Flags, united
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.ranks.matching import CLOCK_ERROR_NS, Kernels
from stallprobes.watch.reading.kernel_names import demangle_all, short_name

# A process: its id, and how many programs it has executed before.
ProcessKey = tuple[int, int]
# Largest number of kernels that are kept of a series of collectives (a stream of a rank): the last kernels.
MOST_KERNELS = 8192
# Time (ns) for which a kernel of a series of collectives is kept after its round was counted.
KEPT_NS = 5_000_000_000
# Smallest distance (ns) of a kernel from a border of recorded time at which the kernel is compared. Reason: the
# kernel's partner on another rank is then recorded too.
_MARGIN_NS = 2 * CLOCK_ERROR_NS
# Columns of the sums of a rank's series of collectives. EXPOSED: time (ns) in which only kernels of this series run.
# COUNT: number of its kernels.
EXPOSED, COUNT = range(2)


@dataclass(frozen=True)
class KernelNumbers:
    """Numbers of the names of kernels that communicate, the same for all processes, and of what each one does."""

    names: dict[str, int] = field(default_factory=dict)
    operations: dict[int, int] = field(default_factory=dict)
    _kinds: dict[str, int] = field(default_factory=dict)

    def of(self, name: str) -> int:
        """The number of a name."""
        number = self.names.setdefault(name, len(self.names))
        self.operations.setdefault(number, self._kinds.setdefault(operation_of(name), len(self._kinds)))
        return number


class SequenceKey(NamedTuple):
    """A sequence of a process on one GPU, by the id of its first thread."""

    process: ProcessKey
    leader: int
    device: int


class SeriesKey(NamedTuple):
    """A stream of a sequence."""

    sequence: SequenceKey
    stream: int


class Series:
    """The last kernels of a stream that communicate, and the sums of all of them since ``origin_ns``."""

    def __init__(self, key: SeriesKey, origin_ns: int) -> None:
        self.key = key
        self.rows: Rows = np.zeros(0, COLLECTIVE)
        self.sums = BinnedSums(origin_ns, columns=2)

    def add(self, rows: Rows, exposed: CoveredTime) -> None:
        """Add kernels, in the order of their ends."""
        self.rows = joined(COLLECTIVE, (self.rows, rows))[-MOST_KERNELS:]
        times = exposed.during(int64s(rows["start"]), int64s(rows["end"]))
        add_at(self.sums, int64s(rows["end"]), 0, times, None)

    def drop_before(self, time_ns: int) -> None:
        """Drop kernels that ended before."""
        self.rows = rows_where(self.rows, self.rows["end"] >= time_ns)


class SequenceTrack:
    """The series of a sequence that communicates by NCCL, and what else the matching of its kernels needs.

    ``until_ns`` is the time until which they are known. ``kernels`` is the time (ns) of each other kernel by name, in
    ``recorded_ns`` of recorded time.
    """

    def __init__(self, key: SequenceKey, origin_ns: int) -> None:
        self.key = key
        self.series: dict[int, Series] = {}
        self.until_ns = 0
        self.kernels: Counter[str] = Counter()
        self.recorded_ns = 0
        self._origin_ns = origin_ns
        self._exposed = self._recorded = NO_SPANS

    def add(self, batch: CollectiveBatch, names: Mapping[int, str], numbers: KernelNumbers) -> None:
        """Add a batch; ``names`` are those of kernels by their places, to whose ``numbers`` new ones are added."""
        self._exposed = united((self._exposed, batch.exposed))
        self._recorded = united((self._recorded, batch.recorded))
        self.until_ns = batch.until_ns
        self.recorded_ns += int((batch.recorded.ends - batch.recorded.begins).sum())
        places = np.unique(batch.rows["name"]).tolist()
        functions = demangle_all(names.get(place, "") for place in (*batch.kernels, *places))
        for place, ns in batch.kernels.items():
            self.kernels[short_name(functions[names.get(place, "")])] += ns
        # From here on it is the number of the kernel's name.
        codes = {place: numbers.of(functions[name]) for place in places if is_nccl(name := names.get(place, ""))}
        rows = rows_where(batch.rows, np.isin(batch.rows["name"], list(codes)))
        rows["name"] = [codes[place] for place in rows["name"].tolist()]
        exposed = CoveredTime(self._exposed)
        for stream in np.unique(rows["stream"]).tolist():
            series = self.series.setdefault(stream, Series(SeriesKey(self.key, stream), self._origin_ns))
            series.add(rows_where(rows, rows["stream"] == stream), exposed)

    def drop_before(self, time_ns: int) -> None:
        """Drop what is known of the time before."""
        for series in self.series.values():
            series.drop_before(time_ns)
        starts = [int(entry.rows["start"].min()) for entry in self.series.values() if len(entry.rows)]
        first = min([time_ns, *starts]) - _MARGIN_NS
        self._exposed, self._recorded = self._exposed.ending_after(first), self._recorded.ending_after(first)

    @property
    def exposed(self) -> CoveredTime:
        """The times in which its kernels that communicate ran, and no other one."""
        return CoveredTime(self._exposed)

    @property
    def divided(self) -> CoveredTime:
        """The times in which all its work was recorded and divided."""
        return CoveredTime(self._recorded)

    def knows(self, times: Int64s) -> Flags:
        """Flags of the times that lie far enough inside recorded time for a partner's time to do so too."""
        places = self._recorded.place(times - _MARGIN_NS)
        return np.asarray((places >= 0) & (places == self._recorded.place(times + _MARGIN_NS)), dtype=np.bool_)


def kernels_of(rows: Rows, mine: SequenceTrack, other: SequenceTrack, numbers: KernelNumbers) -> Kernels:
    """Kernels of ``mine`` for matching with those of ``other``."""
    ends, names = int64s(rows["end"]), int64s(rows["name"])
    distinct, places = np.unique(names, return_inverse=True)
    operations = int64s([numbers.operations[name] for name in distinct.tolist()])[places.reshape(-1)]
    return Kernels(int64s(rows["start"]), ends, names, operations, mine.knows(ends) & other.knows(ends))
