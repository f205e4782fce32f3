"""Sums of slow calls by the stack of the program's own code that made them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.watch.attribution.causes import WaitCause
from stallprobes.watch.attribution.findings import CallSite, ExplainedCall
from stallprobes.watch.attribution.slow_calls import is_blocking_copy
from stallprobes.watch.reading.call_stack import CallStack

# Places that are kept apart; further ones are left out.
MOST_SITES = 4096
# A function's calls of one size, in which those without a stack are spread over the places of the others.
_KindKey = tuple[str, int | None, bool]


@dataclass
class _SiteSum:
    """Slow calls of one kind with one stack."""

    family: CallFamily | None
    stack: CallStack
    first_ns: int
    last_ns: int
    calls: int = 0
    total_ns: int = 0
    causes: dict[WaitCause, int] = field(default_factory=dict)

    def add(self, call: ExplainedCall, stack: CallStack) -> None:
        self.calls += 1
        self.total_ns += call.duration_ns
        self.first_ns, self.last_ns = min(self.first_ns, call.begin_ns), max(self.last_ns, call.end_ns)
        self.stack = stack
        lost_ns = 0 if call.nested else call.excess_ns
        self.causes[call.cause] = self.causes.get(call.cause, 0) + lost_ns

    def copy(self) -> _SiteSum:
        return _SiteSum(**{**vars(self), "causes": dict(self.causes)})


@dataclass
class SiteSums:
    """Slow calls by kind and stack, and the number of those of each kind that have no stack."""

    sites: dict[_KindKey, dict[str, _SiteSum]] = field(default_factory=dict)
    without: dict[_KindKey, int] = field(default_factory=dict)
    count: int = 0

    @property
    def calls(self) -> int:
        """Number of calls with a stack."""
        return sum(one.calls for of in self.sites.values() for one in of.values())

    def copy(self) -> SiteSums:
        """A copy that may be changed."""
        sites = {kind: {key: one.copy() for key, one in of.items()} for kind, of in self.sites.items()}
        return SiteSums(sites, dict(self.without), self.count)

    def add(self, call: ExplainedCall) -> None:
        """Add a slow call."""
        kind = call.function, call.bytes, is_blocking_copy(call.function, call.source, call.target)
        if call.stack is None or not call.stack.own:
            self.without[kind] = self.without.get(kind, 0) + 1
            return
        found = self.sites.setdefault(kind, {})
        key = call.stack.key
        if key not in found:
            if self.count >= MOST_SITES:
                return
            self.count += 1
            found[key] = _SiteSum(call.family, call.stack, call.begin_ns, call.end_ns)
        found[key].add(call, call.stack)

    def sites_by_time(self, unkept: Mapping[str, int]) -> tuple[CallSite, ...]:
        """The places, the most time lost first. ``unkept`` slow calls of each function are known by their number only.

        What has no stack is spread over the places of its kind, and what was not kept over those of its function.
        """
        recorded = {kind: sum(one.calls for one in of.values()) for kind, of in self.sites.items()}
        kept: dict[str, int] = {}
        for counts in (recorded, self.without):
            for (function, _, _), calls in counts.items():
                kept[function] = kept.get(function, 0) + calls
        found = []
        for kind, of in self.sites.items():
            function = kind[0]
            times = 1 + self.without.get(kind, 0) / recorded[kind]
            times *= 1 + unkept.get(function, 0) / kept[function]
            found += [_site(kind, one, times) for one in of.values()]
        return tuple(sorted(found, key=lambda site: (-site.lost_ns, -site.calls, site.function)))


def _site(kind: _KindKey, one: _SiteSum, times: float) -> CallSite:
    """``times``: each call with a stack stands for so many."""
    function, size, blocking = kind
    causes: Mapping[WaitCause, int] = one.causes
    return CallSite(
        stack=one.stack,
        function=function,
        family=one.family,
        bytes=size,
        blocking=blocking and one.family is CallFamily.COPY,
        recorded=one.calls,
        calls=round(one.calls * times),
        total_ns=round(one.total_ns * times),
        lost_ns=round(sum(causes.values()) * times),
        first_ns=one.first_ns,
        last_ns=one.last_ns,
        cause=max(causes, key=lambda cause: causes[cause]),
    )
