"""Waits of a sequence by the places at which they are made: their number, their time and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from stallprobes.watch.lines.places import innermost, order, place_of
from stallprobes.watch.lines.result import WaitPlace
from stallprobes.watch.lines.second_sums import SampleKey
from stallprobes.watch.reading.call_stack import CallStack, StackFrame

# Largest number of places of waits that are kept: the places with the largest cost.
MOST_WAITS = 20
# Place of waits: the line, the inner place in the functions that it calls, and the waiting function.
_PlaceKey = tuple[StackFrame | None, StackFrame | None, str]


@dataclass
class WaitSum:
    """Waits: their number, their time (ns), what they cost at most, a share of the sequence's time, and the number by
    thread."""

    calls: float = 0.0
    ns: int = 0
    price: float = 0.0
    threads: Counter[int] = field(default_factory=Counter)

    def add(self, calls: float, ns: int, price: float) -> None:
        """Add waits."""
        self.calls += calls
        self.ns += ns
        self.price += price


def wait_places(
    waits: Mapping[SampleKey, WaitSum],
    whole_ns: int,
    seconds: float,
    functions: Mapping[int, str],
    stacks: Mapping[int, CallStack],
) -> tuple[WaitPlace, ...]:
    """The places of ``waits``, those that cost most first.

    ``whole_ns`` is the time of the sequence, in which ``seconds`` passed.
    """
    sums: dict[_PlaceKey, WaitSum] = {}
    for key, wait in waits.items():
        stack = stacks.get(key.stack)
        place = place_of(stack)
        inner = None if stack is None or not stack.own else innermost(stack)
        name = functions.get(key.function, f"function {key.function}")
        total = sums.setdefault((place, None if inner == place else inner, name), WaitSum())
        total.add(wait.calls, wait.ns, wait.price)
        total.threads[key.thread] += round(1000 * wait.calls)
    rows = [
        WaitPlace(
            place=place,
            inner=inner,
            function=function,
            thread=total.threads.most_common(1)[0][0],
            calls=total.calls,
            per_second=total.calls / seconds if seconds else 0.0,
            share=min(total.ns / whole_ns, 1.0) if whole_ns else 0.0,
            price=min(total.price, 1.0),
        )
        for (place, inner, function), total in sums.items()
    ]
    rows.sort(key=lambda row: (-row.price, -row.share, -row.calls, row.function, order(row.place), order(row.inner)))
    return tuple(rows[:MOST_WAITS])
