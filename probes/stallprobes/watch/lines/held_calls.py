"""Calls that a call of another thread holds up, by the log of calls: unusually long ones beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

import numpy as np

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.call_columns import may_hold_up
from stallprobes.watch.division.instants import LIMITS, Calls, Spans
from stallprobes.watch.division.start_up import SECOND_NS, period_of
from stallprobes.watch.intervals import Int64s, int64s

# Smallest duration of an unusually long call, as a multiple of the median of its function in the same reading. The call
# must also take at least LIMITS.blocked_ns (ns), and must not be of the kind WAITS (CallKind).
_UNUSUAL_FACTOR = 10
# Smallest number of calls of a function in a reading of the log at which the calls can count as long. Reason: the
# median of fewer calls is not reliable.
_LEAST_CALLS = 20
# Smallest share of a long call that a call of another thread must cover to hold up the long call.
_LEAST_COVERED = 0.5
# Smallest number of long calls of other threads that a function's calls must cover for the function to hold up calls.
_LEAST_HELD = 3
# Smallest ratio of two shares of long calls at which a function in one thread holds up calls. First share: among the
# calls that begin during the function's calls. Second share: among all other calls.
_LEAST_RATIO = 10
# Largest number of long calls in a reading that are compared with calls of other threads: the longest calls.
_MOST_LONG = 512
# Largest number of calls in a reading that are compared as possible causes of long calls: the longest calls.
_MOST_HOLDING = 2048
# Largest number of possible causes of long calls that are counted in each second. A possible cause is a function in one
# thread. The limit also holds for pairs of a cause and a function with long calls in another thread.
_MOST_PAIRS = 1024


class FunctionCalls(NamedTuple):
    """The calls of one function, by its number, in one thread."""

    thread: int
    function: int


# Calls beside which those of another thread are long, and these.
HeldUp = tuple[FunctionCalls, FunctionCalls]


class HeldSum(NamedTuple):
    """Calls that were held up: their number, and for how long (ns)."""

    calls: int = 0
    ns: int = 0


class _Second:
    """The sums of a second: long calls by pair, calls that began beside each holder, and all calls and long ones."""

    def __init__(self) -> None:
        self.pairs: dict[HeldUp, HeldSum] = {}
        self.beside: Counter[FunctionCalls] = Counter()
        self.calls = self.long = 0


class HeldCalls:
    """The held calls of a process that began at ``began_ns``, in the seconds in which its steady state may begin."""

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self._seconds: dict[int, _Second] = {}

    def add(self, calls: Calls) -> None:
        """Add the outermost calls of a reading."""
        if not len(calls):
            return
        begins, ends, lengths = calls.begins, calls.ends, calls.lengths
        threads, functions = calls.threads, calls.functions
        usual = (calls.kinds != int(CallKind.WAITS)) & (np.bincount(functions) >= _LEAST_CALLS)[functions]
        blocked = lengths >= LIMITS.blocked_ns
        long = _longest(_unusual(calls, np.flatnonzero(usual & blocked)), lengths, _MOST_LONG)
        holding = _longest(np.flatnonzero(blocked & (calls.holds > 0)), lengths, _MOST_HOLDING)
        last = int(period_of(ends.max() - self._began_ns))
        second = self._seconds.setdefault(last, _Second())
        second.calls += int(np.count_nonzero(usual))
        second.long += len(long)
        if not len(holding):
            return
        # Most are in order: only a stable sort uses that.
        times = np.sort(begins[usual], kind="stable")
        for holder, mine in _by_holder(threads, functions, holding):
            spans = Spans.united(begins[mine], ends[mine])
            inside = np.searchsorted(times, spans.ends) - np.searchsorted(times, spans.begins, "right")
            if holder in second.beside or len(second.beside) < _MOST_PAIRS:
                second.beside[holder] += int(inside.sum())
        of_holding = begins[holding], ends[holding], threads[holding]
        holds, contexts = calls.holds[holding], calls.contexts[holding]
        for call in long.tolist():
            covered = np.minimum(of_holding[1], ends[call]) - np.maximum(of_holding[0], begins[call])
            covered[(of_holding[2] == threads[call]) | ~may_hold_up(holds, contexts, calls.contexts[call])] = 0
            best = int(np.argmax(covered))
            if covered[best] >= _LEAST_COVERED * lengths[call]:
                by = holding[best]
                holder = FunctionCalls(int(threads[by]), int(functions[by]))
                key = holder, FunctionCalls(int(threads[call]), int(functions[call]))
                if holder in second.beside and (key in second.pairs or len(second.pairs) < _MOST_PAIRS):
                    before = second.pairs.get(key, HeldSum())
                    second.pairs[key] = HeldSum(before.calls + 1, before.ns + int(covered[best]))

    def since(self, begin_ns: int, within: Set[int] | None = None) -> Mapping[HeldUp, HeldSum]:
        """Held calls since a time, by function and thread, where the log is evidence for them; only of the periods
        ``within``, unless that is None.

        A call that takes most of the time is beside all long calls. Calls that begin beside it therefore have to be
        long ten times as often as others.
        """
        first = int(period_of(int64s(begin_ns + SECOND_NS - 1 - self._began_ns)))
        chosen = [
            entry for second, entry in self._seconds.items() if second >= first and (within is None or second in within)
        ]
        pairs: dict[HeldUp, HeldSum] = {}
        held: Counter[FunctionCalls] = Counter()
        for second in chosen:
            for key, pair in second.pairs.items():
                before = pairs.get(key, HeldSum())
                pairs[key] = HeldSum(before.calls + pair.calls, before.ns + pair.ns)
                held[key[0]] += pair.calls
        beside: Counter[FunctionCalls] = sum((each.beside for each in chosen), Counter())
        calls, long = (sum(numbers) for numbers in ((each.calls for each in chosen), (each.long for each in chosen)))
        others = long - held.total()

        def is_evident(holder: FunctionCalls) -> bool:
            # A held call may have begun just before the one that holds it up.
            began = max(beside[holder], held[holder])
            usual = (others + 1) / (max(calls - began, 0) + 1)
            return held[holder] >= _LEAST_HELD and held[holder] / began >= _LEAST_RATIO * usual

        return {key: total for key, total in pairs.items() if is_evident(key[0])}


def _unusual(calls: Calls, places: Int64s) -> Int64s:
    """Places, among ``places``, of calls that took many times as long as the median of their function."""
    functions = calls.functions[places]
    limits = np.zeros(len(places), dtype=np.int64)
    for function in np.unique(functions).tolist():
        limits[functions == function] = _UNUSUAL_FACTOR * int(np.median(calls.lengths[calls.functions == function]))
    return places[calls.lengths[places] >= limits]


def _longest(places: Int64s, lengths: Int64s, most: int) -> Int64s:
    """Places of the longest calls, at most ``most``."""
    return places[np.argsort(-lengths[places], kind="stable")[:most]]


def _by_holder(threads: Int64s, functions: Int64s, places: Int64s) -> Iterator[tuple[FunctionCalls, Int64s]]:
    """The places of the calls of each function in each thread."""
    grouped: dict[FunctionCalls, list[int]] = {}
    for place, thread, function in zip(
        places.tolist(), threads[places].tolist(), functions[places].tolist(), strict=True
    ):
        grouped.setdefault(FunctionCalls(thread, function), []).append(place)
    for holder, mine in grouped.items():
        yield holder, int64s(mine)
