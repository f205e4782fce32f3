"""Sums of explained slow calls: by thread and cause, by thread and function, and by place in the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from stallprobes.watch.attribution.findings import ExplainedCall, LossKey, TimeLost
from stallprobes.watch.call_sites import SiteSums

_Key = TypeVar("_Key")


class KeptCalls(NamedTuple):
    """The slow calls of a row that were kept: their number, their excess (ns), and that of those not nested."""

    calls: int = 0
    excess_ns: int = 0
    lost_ns: int = 0


@dataclass
class _ThreadSum:
    """The calls of one thread: calls, excess and lost time by function, calls, time and proven time by cause."""

    kept: dict[str, list[int]] = field(default_factory=dict)
    lost: dict[LossKey, list[int]] = field(default_factory=dict)

    def copy(self) -> _ThreadSum:
        return _ThreadSum(_copied(self.kept), _copied(self.lost))

    def add(self, call: ExplainedCall) -> None:
        excess_ns = call.excess_ns
        _add(self.kept, call.function, 1, excess_ns, 0 if call.nested else excess_ns)
        for key, sums in () if call.nested else call.losses:
            _add(self.lost, key, *sums)


class CallSums:
    """Sums of explained calls by the slot of their thread; ``sites`` are by place in the program."""

    def __init__(self) -> None:
        self.sites = SiteSums()
        self._threads: dict[int, _ThreadSum] = {}

    def copy(self) -> CallSums:
        """A copy that may be changed."""
        copy = CallSums()
        copy.sites, copy._threads = self.sites.copy(), {slot: thread.copy() for slot, thread in self._threads.items()}
        return copy

    def add(self, calls: Iterable[tuple[int, ExplainedCall]]) -> None:
        """Add calls, each with the slot of its thread."""
        for slot, call in calls:
            thread = self._threads.get(slot)
            if thread is None:
                thread = self._threads[slot] = _ThreadSum()
            thread.add(call)
            self.sites.add(call)

    def kept_of(self, slot: int, function: str) -> KeptCalls:
        """The calls of a function that were kept."""
        thread = self._threads.get(slot)
        return KeptCalls() if thread is None else KeptCalls(*thread.kept.get(function, ()))

    def lost_of(self, slot: int) -> Iterator[TimeLost]:
        """The time that a thread lost, by cause and culprit."""
        thread = self._threads.get(slot)
        for key, sums in () if thread is None else thread.lost.items():
            calls, ns, proven_ns = sums
            yield TimeLost(*key, calls, ns, proven_ns)


def _add(sums: dict[_Key, list[int]], key: _Key, first: int, second: int, third: int) -> None:
    sum_ = sums.get(key)
    if sum_ is None:
        sums[key] = [first, second, third]
    else:
        sum_[0] += first
        sum_[1] += second
        sum_[2] += third


def _copied(sums: dict[_Key, list[int]]) -> dict[_Key, list[int]]:
    return {key: figures.copy() for key, figures in sums.items()}
