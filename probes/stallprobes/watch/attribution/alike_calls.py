"""Slow calls by sort (function, size, place), and what they waited for while work of the GPU was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.reading.process import SlowDriverCall

# Smallest number of recorded slow calls of one sort that can show the cause of a slow call without GPU records. Calls
# of one sort have the same function, size, and call stack or thread.
LEAST_ALIKE = 4
# Smallest share of the total excess of a sort of calls (see LEAST_ALIKE) that one cause must explain. Slow calls of
# this sort that have no GPU records then get this cause. The excess of a call is the time above the median of
# similar calls.
LEAST_SHARE = 0.9
# Largest number of sorts of calls (function, size, and call stack or thread) with sums of the causes of slow calls.
# Calls of further sorts are not counted.
_MOST_KEYS = 8192


@dataclass
class AlikeSum:
    """Sum of the calls of one sort: number, excess, explained time by cause, excess by main cause."""

    calls: int = 0
    excess_ns: int = 0
    explained: Counter[WaitCause] = field(default_factory=Counter)
    mainly: Counter[WaitCause] = field(default_factory=Counter)

    def add(self, cause: WaitCause, excess_ns: int, explained_ns: int) -> None:
        self.calls += 1
        self.excess_ns += excess_ns
        self.mainly[cause] += excess_ns
        self.explained[cause] += explained_ns

    def plus(self, other: AlikeSum) -> AlikeSum:
        return AlikeSum(
            self.calls + other.calls,
            self.excess_ns + other.excess_ns,
            self.explained + other.explained,
            self.mainly + other.mainly,
        )

    @property
    def cause(self) -> WaitCause | None:
        """The cause of nearly all of them; None without one."""
        if self.calls < LEAST_ALIKE:
            return None
        cause = max(self.mainly, key=lambda key: self.mainly[key])
        return cause if self.mainly[cause] >= LEAST_SHARE * self.excess_ns else None


# Empty sum.
_NONE = AlikeSum()


class AlikeCalls:
    """What slow calls waited for while work was recorded, by function, size and place, and by thread in place of that.

    The place is the number of the call's stack. A call counts once: ``note`` is for calls whose cause is final.
    """

    def __init__(self) -> None:
        self._sums: dict[Hashable, AlikeSum] = {}

    def note(
        self, call: SlowDriverCall, cause: WaitCause, certainty: Certainty | None, excess_ns: int, explained_ns: int
    ) -> None:
        """Add a call and its cause, unless other calls showed that, or records of an unknown one are missing."""
        if not excess_ns or cause is WaitCause.RECORDS_OFF or certainty is Certainty.ALIKE:
            return
        for key in _keys(call):
            if key in self._sums or len(self._sums) < _MOST_KEYS:
                self._sums.setdefault(key, AlikeSum()).add(cause, excess_ns, min(explained_ns, excess_ns))

    def like(self, call: SlowDriverCall, beside: AlikeCalls) -> AlikeSum | None:
        """Sum of the calls like ``call``, with those of ``beside``, if nearly all have one known cause; else None."""
        for key in _keys(call):
            sums = self._sums.get(key, _NONE).plus(beside._sums.get(key, _NONE))
            if sums.calls >= LEAST_ALIKE:
                return None if sums.cause in (None, WaitCause.UNATTRIBUTED) else sums
        return None


# Sums of slow calls by their sort, before any call was added.
NO_CALLS = AlikeCalls()


def _keys(call: SlowDriverCall) -> Iterator[Hashable]:
    if call.stack:
        yield call.function, call.bytes, call.stack, None
    yield call.function, call.bytes, None, call.thread
