"""Waits of a sequence by the places at which they are made: their number, their time and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stallprobes.watch.lines.places import innermost, order, place_of
from stallprobes.watch.lines.result import WaitPlace
from stallprobes.watch.lines.second_sums import SampleKey
from stallprobes.watch.reading.call_stack import CallStack, StackFrame

# Places of waits that are kept, those that cost most.
MOST_WAITS = 20
_PlaceKey = tuple[StackFrame | None, StackFrame | None, str]


@dataclass(frozen=True)
class KeyedWaits:
    """Waits with one key: their number, their time (ns), and what they cost at most, a share of the sequence's time."""

    key: SampleKey
    calls: float
    ns: int
    price: float


@dataclass
class _WaitSum:
    """The waits at one place."""

    calls: float = 0.0
    ns: int = 0
    price: float = 0.0
    threads: Counter[int] = field(default_factory=Counter)

    def add(self, waits: KeyedWaits) -> None:
        self.calls += waits.calls
        self.ns += waits.ns
        self.price += waits.price
        self.threads[waits.key.thread] += round(1000 * waits.calls)


def wait_places(
    waits: Iterable[KeyedWaits],
    whole_ns: int,
    seconds: float,
    functions: Mapping[int, str],
    stacks: Mapping[int, CallStack],
) -> tuple[WaitPlace, ...]:
    """The places of ``waits``, those that cost most first.

    ``whole_ns`` is the time of the sequence, in which ``seconds`` passed.
    """
    sums: dict[_PlaceKey, _WaitSum] = {}
    for one in waits:
        stack = stacks.get(one.key.stack)
        place = place_of(stack)
        inner = None if stack is None or not stack.own else innermost(stack)
        name = functions.get(one.key.function, f"function {one.key.function}")
        sums.setdefault((place, None if inner == place else inner, name), _WaitSum()).add(one)
    found = [
        WaitPlace(
            place=place,
            inner=inner,
            function=function,
            thread=one.threads.most_common(1)[0][0],
            calls=one.calls,
            per_second=one.calls / seconds if seconds else 0.0,
            share=min(one.ns / whole_ns, 1.0) if whole_ns else 0.0,
            price=min(one.price, 1.0),
        )
        for (place, inner, function), one in sums.items()
    ]
    found.sort(key=lambda one: (-one.price, -one.share, -one.calls, one.function, order(one.place), order(one.inner)))
    return tuple(found[:MOST_WAITS])
