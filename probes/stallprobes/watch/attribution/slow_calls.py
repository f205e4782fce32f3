"""Slow calls of a process as arrays, with what each function waits for and what it makes other threads wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import MemoryKind, RecordKind
from stallprobes.native.layouts.driver_calls import DriverFunction, function_of
from stallprobes.watch.intervals import Int64s, int64s, running_maximum
from stallprobes.watch.reading.process import FinishedCall, SlowDriverCall
from stallprobes.watch.reading.words import MEMORY, Memory

# Number of different correlation numbers: the numbers have 32 bits and wrap around.
_WRAP = 1 << 32
# Largest distance between a call's correlation number and the number of the table's first call at which the order of
# both calls is known. Reason: correlation numbers wrap around at _WRAP.
_HALF = 1 << 31
# Kinds of records of copies. Only these have a direction.
COPIES = (int(RecordKind.COPY), int(RecordKind.PEER_COPY))


@dataclass(frozen=True, eq=False)
class CallTable:
    """Slow calls in the order of ``calls``. Times in ns; ``excess`` is the duration less the row's median.

    ``numbers`` are the places of their functions in ``functions``. ``order_of`` makes correlation numbers comparable
    across their wrap.
    """

    calls: Sequence[FinishedCall]
    begins: Int64s
    ends: Int64s
    excess: Int64s
    threads: Int64s
    contexts: Int64s
    correlations: Int64s
    functions: Sequence[DriverFunction]
    numbers: Int64s
    waits: NDArray[np.int64]
    first_correlation: int

    @classmethod
    def of(cls, calls: Sequence[FinishedCall], excess: Sequence[int]) -> CallTable:
        """The table of ``calls``, with the excess of each."""
        begins, durations, threads, contexts, correlations = (
            column_of(calls, name) for name in ("begin_ns", "duration_ns", "thread", "context", "correlation")
        )
        named = [call.function for call in calls]
        places = {name: place for place, name in enumerate(dict.fromkeys(named))}
        functions = tuple(map(function_of, places))
        numbers = np.fromiter(map(places.__getitem__, named), np.int64, len(named))
        waits = int64s([function.waits for function in functions])[numbers]
        first = int(correlations[0]) if len(calls) else 0
        return cls(
            calls=calls,
            begins=begins,
            ends=begins + durations,
            excess=int64s(excess),
            threads=threads,
            contexts=contexts,
            correlations=correlations,
            functions=functions,
            numbers=numbers,
            waits=waits,
            first_correlation=first,
        )

    def __len__(self) -> int:
        return len(self.calls)

    def order_of(self, correlations: Int64s) -> Int64s:
        """Numbers that ascend with time, for correlation numbers of the time of these calls."""
        return (correlations - self.first_correlation + _HALF) & (_WRAP - 1)

    def by_function(self, value: Callable[[DriverFunction], int]) -> Int64s:
        """A number for each call that depends on its function alone."""
        return int64s([value(function) for function in self.functions])[self.numbers]

    def nested(self) -> NDArray[np.bool_]:
        """Flags of the calls that another slow call of their thread contains."""
        order = np.lexsort((-self.ends, self.begins, self.threads))
        _, groups = np.unique(self.threads[order], return_inverse=True)
        groups, ends = groups.reshape(-1), self.ends[order]
        nested = np.zeros(len(self), dtype=np.bool_)
        # The latest end among the calls of the thread that began before.
        nested[order[1:]] = (running_maximum(groups, ends)[:-1] >= ends[1:]) & (groups[1:] == groups[:-1])
        return nested

    def places_of(self, correlations: Int64s) -> Int64s:
        """The place of the call with each correlation number; -1 without one."""
        if not len(self):
            return np.full(len(correlations), -1, dtype=np.int64)
        least, most = int(self.correlations.min()), int(self.correlations.max())
        if least > 0 and most - least < len(correlations):
            # What is outside has the first place of the table or the last one.
            table = np.full(most - least + 3, -1, dtype=np.int64)
            # The last value that is written to a place stays.
            table[self.correlations[::-1] - (least - 1)] = np.arange(len(self))[::-1]
            return table.take(correlations - (least - 1), mode="clip")
        order = np.argsort(self.correlations, kind="stable")
        places = np.searchsorted(self.correlations[order], correlations)
        callers = order[np.minimum(places, len(order) - 1)]
        return np.where((self.correlations[callers] == correlations) & (correlations != 0), callers, -1)


def with_recorded_kinds(calls: Sequence[SlowDriverCall], records: NDArray[Any]) -> Sequence[SlowDriverCall]:
    """``calls`` with the kind of memory that the driver recorded, for ends that the library took for pageable.

    The library takes host memory for pageable if it saw neither its allocation nor its registration, such as memory of
    cuMemCreate and of memory pools. ``records`` are in the layout of the file.
    """
    asked = {call.correlation: at for at, call in enumerate(calls) if call.pageable}
    copies = records[np.isin(records["kind"], COPIES)] if asked else records[:0]
    # Nearly all copies from or to pageable memory are recorded as such.
    other = (copies["source"] != int(MemoryKind.PAGEABLE)) & (copies["target"] != int(MemoryKind.PAGEABLE))
    numbers = copies["correlation"]
    corrected = list(calls)
    for number in np.intersect1d(numbers[other], [number for number in asked if number]).tolist():
        own, call = copies[numbers == number], corrected[asked[number]]
        corrected[asked[number]] = call.changed(
            source=_recorded(call.source, own["source"]), target=_recorded(call.target, own["target"])
        )
    return corrected


def _recorded(memory: Memory | None, kinds: NDArray[Any]) -> Memory | None:
    """The kind of an end of a call: ``memory`` by the library, or that of all records of its copies (``kinds``)."""
    # One copy of several says nothing of the others.
    clear = memory is Memory.PAGEABLE and (kinds == kinds[0]).all()
    return MEMORY.get(int(kinds[0]), memory) if clear else memory


def column_of(calls: Sequence[FinishedCall], name: str) -> Int64s:
    """A number that each of ``calls`` has, by its name."""
    return np.fromiter(map(attrgetter(name), calls), np.int64, len(calls))
