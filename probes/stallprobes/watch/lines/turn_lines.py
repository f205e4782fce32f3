"""Lines of a program by turns of an experiment beside it: the share of its threads' time at each line in them."""

from __future__ import annotations

from collections.abc import Container, Mapping

from stallprobes.native.layouts.watch_file import SampledTime
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.turns import CHANGING, TurnTimes
from stallprobes.watch.intervals import int64s
from stallprobes.watch.lines.lines import interval
from stallprobes.watch.lines.places import PACKAGES, place_of
from stallprobes.watch.lines.second_sums import NO_SUM, SampleSum
from stallprobes.watch.reading.call_stack import UNKNOWN_PYTHON, CallStack, StackFrame
from stallprobes.watch.reading.process import SampleBatch

# Largest number of sums: samples of one thread with one stack, in turns of one kind.
_MOST_SUMS = 1 << 14


class TurnLines:
    """Samples of a process in the turns of an experiment, reading after reading."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int, int], SampleSum] = {}

    def add(self, samples: SampleBatch, turns: TurnTimes) -> None:
        """Add the samples of a reading that lie in turns."""
        rows = samples.rows
        for kind, inside in turns.kinds_at(int64s(rows["at_ns"])):
            if kind == CHANGING:
                continue
            # One that stands for a number of waits stands for no time.
            own = rows[inside & (rows["sampled"] != int(SampledTime.WAITS))]
            columns = (own[name].tolist() for name in ("thread", "stack", "ns"))
            for thread, stack, ns in zip(*columns, strict=True):
                key = kind, thread, stack
                if key in self._sums or len(self._sums) < _MOST_SUMS:
                    self._sums[key] = self._sums.get(key, NO_SUM).plus(SampleSum(1, ns, float(ns) ** 2))

    def shares(
        self, threads: Container[int], stacks: Mapping[int, CallStack]
    ) -> Mapping[str, Mapping[StackFrame, Figure]]:
        """The share of the threads' time at each line of the program in all turns of each kind, with its interval; each
        kind has all lines."""
        whole: dict[str, SampleSum] = {}
        times: dict[str, dict[StackFrame, int]] = {}
        for (kind, thread, stack), sample in self._sums.items():
            if thread in threads:
                whole[kind] = whole.get(kind, NO_SUM).plus(sample)
                place = place_of(stacks.get(stack))
                if place is not None and place not in (PACKAGES, UNKNOWN_PYTHON):
                    lines = times.setdefault(kind, {})
                    lines[place] = lines.get(place, 0) + sample.ns
        places = dict.fromkeys(place for lines in times.values() for place in lines)
        return {
            kind: {place: interval(times.get(kind, {}).get(place, 0), total) for place in places}
            for kind, total in whole.items()
        }
