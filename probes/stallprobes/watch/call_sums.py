"""Sums of explained slow calls: by thread and cause, by thread and function, and by place in the program."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from stallprobes.native.layouts.driver_calls import CallFamily, CallKind, family_of, function_of
from stallprobes.watch.attribution.findings import CallSite, ExplainedCall, LossKey, TimeLost
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.reading.call_stack import CallStack

_Key = TypeVar("_Key")
# Largest number of call sites with sums of their own; calls at further sites are left out.
MOST_SITES = 4096
# Function, size and blocking of calls; calls without a stack are spread over the places of calls with a stack that have
# the same key.
_KindKey = tuple[str, int | None, bool]


@dataclass
class _SiteSum:
    """Slow calls of one kind with one stack."""

    stack: CallStack
    first_ns: int
    last_ns: int
    calls: int = 0
    total_ns: int = 0
    causes: Counter[WaitCause] = field(default_factory=Counter)

    def add(self, call: ExplainedCall, stack: CallStack) -> None:
        self.calls += 1
        self.total_ns += call.duration_ns
        self.first_ns, self.last_ns = min(self.first_ns, call.begin_ns), max(self.last_ns, call.end_ns)
        self.stack = stack
        self.causes[call.cause] += 0 if call.nested else call.excess_ns

    def copy(self) -> _SiteSum:
        return _SiteSum(**{**vars(self), "causes": self.causes.copy()})


@dataclass
class SiteSums:
    """Slow calls by kind and stack, and the number of those of each kind that have no stack."""

    sites: dict[tuple[_KindKey, str], _SiteSum] = field(default_factory=dict)
    without: Counter[_KindKey] = field(default_factory=Counter)

    @property
    def calls(self) -> int:
        """Number of calls with a stack."""
        return sum(site.calls for site in self.sites.values())

    def copy(self) -> SiteSums:
        """A copy that may be changed."""
        return SiteSums({key: site.copy() for key, site in self.sites.items()}, self.without.copy())

    def add(self, call: ExplainedCall) -> None:
        """Add a slow call."""
        # Of copies alone the size is said.
        size = call.bytes if family_of(call.function) is CallFamily.COPY else None
        kind = call.function, size, function_of(call.function).kind_of(call.pageable) is CallKind.COPIES
        if call.stack is None or not call.stack.own:
            self.without[kind] += 1
            return
        key = kind, call.stack.key
        site = self.sites.get(key)
        if site is None:
            if len(self.sites) == MOST_SITES:
                return
            site = self.sites[key] = _SiteSum(call.stack, call.begin_ns, call.end_ns)
        site.add(call, call.stack)

    def sites_by_time(self, unkept: Mapping[str, int]) -> tuple[CallSite, ...]:
        """Places, the most time lost first. Of ``unkept`` slow calls of each function, only the number is known.

        Calls without a stack are spread over the places of their kind, unkept calls over those of their function.
        """
        recorded: Counter[_KindKey] = Counter()
        for (kind, _), site in self.sites.items():
            recorded[kind] += site.calls
        kept: Counter[str] = Counter()
        for kind, calls in (*recorded.items(), *self.without.items()):
            kept[kind[0]] += calls
        sites = []
        for (kind, _), site in self.sites.items():
            times = 1 + self.without[kind] / recorded[kind]
            times *= 1 + unkept.get(kind[0], 0) / kept[kind[0]]
            sites.append(_site(kind, site, times))
        return tuple(sorted(sites, key=lambda site: (-site.lost_ns, -site.calls, site.function)))


def _site(kind: _KindKey, site: _SiteSum, times: float) -> CallSite:
    """Place whose calls with a stack stand for ``times`` calls each."""
    function, size, blocking = kind
    return CallSite(
        stack=site.stack,
        place=site.stack.place,
        function=function,
        bytes=size,
        blocking=blocking and family_of(function) is CallFamily.COPY,
        recorded=site.calls,
        calls=round(site.calls * times),
        total_ns=round(site.total_ns * times),
        lost_ns=round(site.causes.total() * times),
        first_ns=site.first_ns,
        last_ns=site.last_ns,
        cause=site.causes.most_common(1)[0][0],
    )


class CallSums:
    """Sums of explained calls by the slot of their thread; ``sites`` are by place in the program."""

    def __init__(self) -> None:
        self.sites = SiteSums()
        # By slot: number, excess and lost time (ns) of the calls of each function.
        self._kept: dict[int, dict[str, list[int]]] = defaultdict(dict)
        # By slot: number of calls, time and proven time (ns) of each cause.
        self._lost: dict[int, dict[LossKey, list[int]]] = defaultdict(dict)

    def copy(self) -> CallSums:
        """A copy that may be changed."""
        copy = CallSums()
        copy.sites = self.sites.copy()
        copy._kept.update({slot: _copied(sums) for slot, sums in self._kept.items()})
        copy._lost.update({slot: _copied(sums) for slot, sums in self._lost.items()})
        return copy

    def add(self, calls: Iterable[tuple[int, ExplainedCall]]) -> None:
        """Add calls, each with the slot of its thread."""
        for slot, call in calls:
            excess_ns = call.excess_ns
            _add(self._kept[slot], call.function, 1, excess_ns, 0 if call.nested else excess_ns)
            for key, sums in () if call.nested else call.losses:
                _add(self._lost[slot], key, *sums)
            self.sites.add(call)

    def kept_of(self, slot: int, function: str) -> Sequence[int]:
        """The number of calls of a function that were kept, their excess (ns), and that of those not nested."""
        return self._kept.get(slot, {}).get(function, (0, 0, 0))

    def lost_of(self, slot: int) -> Iterator[TimeLost]:
        """The time that a thread lost, by cause and culprit."""
        for key, (calls, ns, proven_ns) in self._lost.get(slot, {}).items():
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
