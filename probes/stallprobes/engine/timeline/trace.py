"""The timeline as the rest of the program reads it: host calls, GPU work and context switches, in ns of the board."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from stallprobes.engine.timeline.status import OFF, TimelineStatus
from stallprobes.native.layouts.cupti import RecordKind


@dataclass(frozen=True)
class HostCall:
    """A driver call that has returned.

    ``op`` is the index of its operation in the probe's program, ``iteration`` counts from 0. ``measured``: it counts in
    the probe's histograms.
    """

    probe: str
    op: int
    iteration: int
    began_ns: int
    returned_ns: int
    measured: bool


@dataclass(frozen=True)
class GpuInterval:
    """A piece of work on the GPU.

    ``context`` and ``stream`` are CUPTI's numbers (names: ``TimelineStatus``). ``probe`` and ``op`` are those of the
    call that submitted it, None if that is unknown, and ``began_ns`` and ``returned_ns`` the call's times. ``copy`` is
    the direction and ``memory`` the kinds of source and target memory of a copy, as CUPTI numbers them.
    """

    number: int
    kind: RecordKind
    start_ns: int
    end_ns: int
    device: int
    context: int
    stream: int
    probe: str | None = None
    op: int | None = None
    iteration: int | None = None
    began_ns: int | None = None
    returned_ns: int | None = None
    nbytes: int = 0
    copy: int = 0
    memory: tuple[int, int] = (0, 0)
    correlation: int = 0

    @property
    def delay_ns(self) -> int | None:
        """The time from the call's return to the start, negative if the GPU started first; None without a call."""
        return None if self.returned_ns is None else self.start_ns - self.returned_ns


@dataclass(frozen=True)
class ContextSwitch:
    """A context has got the graphics engine (``starts``) or has left it at ``at_ns``."""

    number: int
    at_ns: int
    context: int
    starts: bool


@dataclass(frozen=True)
class Overhead:
    """Time that the driver spent on something else than the call, such as loading a module; ``reason`` is CUPTI's."""

    number: int
    reason: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class ContextTenure:
    """A time in which one context had the graphics engine; ``end_ns`` None: it still has it."""

    context: int
    start_ns: int
    end_ns: int | None


@dataclass(frozen=True)
class TimelineLosses:
    """What the timeline does not show.

    ``dropped`` counts records that CUPTI dropped, ``exhausted`` how often it found no buffer, ``unmatched`` pieces of
    work that belong to no known call, ``unanswered`` calls whose work has no record, ``overwritten`` records that left
    the ring before this snapshot read them, and ``unknown`` records of kinds that have no layout.
    """

    dropped: int = 0
    exhausted: int = 0
    unmatched: int = 0
    unanswered: int = 0
    overwritten: int = 0
    unknown: int = 0

    @property
    def lost(self) -> int:
        """The number of records that were collected by nobody."""
        return self.dropped + self.overwritten + self.unknown

    def plus(self, other: TimelineLosses) -> TimelineLosses:
        """The losses of both."""
        return TimelineLosses(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})


@dataclass(frozen=True)
class TimelineCost:
    """Work of the collector since the timeline was switched on first: records, rounds, and time in ns."""

    records: int = 0
    rounds: int = 0
    flush_ns: int = 0
    decode_ns: int = 0


@dataclass(frozen=True)
class TimelinePosition:
    """How far a reader has read: the number of the next GPU record, and of each probe's next host call."""

    record: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)


BEGINNING = TimelinePosition()


@dataclass(frozen=True)
class TimelineSnapshot:
    """What the timeline recorded since a position. ``collected_ns`` is the time up to which records have arrived."""

    at_ns: int
    collected_ns: int
    intervals: tuple[GpuInterval, ...]
    switches: tuple[ContextSwitch, ...]
    overheads: tuple[Overhead, ...]
    calls: tuple[HostCall, ...]
    losses: TimelineLosses
    cost: TimelineCost
    position: TimelinePosition
    status: TimelineStatus = OFF

    def tenures(self) -> Iterator[ContextTenure]:
        """The times in which each context had the graphics engine, in the order of their starts."""
        return tenures(self.switches)


def tenures(switches: tuple[ContextSwitch, ...]) -> Iterator[ContextTenure]:
    """The tenures that ``switches`` report; an end without a start is left out."""
    held: dict[int, int] = {}
    found = []
    for switch in sorted(switches, key=lambda each: each.at_ns):
        if switch.starts:
            held.setdefault(switch.context, switch.at_ns)
        elif switch.context in held:
            found.append(ContextTenure(switch.context, held.pop(switch.context), switch.at_ns))
    found += [ContextTenure(context, since, None) for context, since in held.items()]
    yield from sorted(found, key=lambda each: each.start_ns)
