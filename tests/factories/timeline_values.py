"""Values of a timeline's rows, for tests that compare single calls and pieces of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stallprobes.engine.board import HostCalls
from stallprobes.engine.timeline.reader import TimelineRows
from stallprobes.native.layouts.board import CALL_MEASURED, CALL_OP_MASK
from stallprobes.native.layouts.cupti import RecordKind, SwitchOperation
from stallprobes.records.timeline import OFF, TimelineCost, TimelineLosses, TimelinePosition, TimelineStatus


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


def snapshot_of(rows: TimelineRows, names: tuple[str, ...]) -> TimelineSnapshot:
    """The values that ``rows`` hold; ``names`` are those of the board's probes, in its order."""
    intervals, switches, overheads = [], [], []
    fields = rows.records.dtype.names or ()
    for values in rows.records.tolist():
        record = dict(zip(fields, values, strict=True))
        number = record["sequence"] - 1
        match RecordKind(record["kind"]):
            case RecordKind.CONTEXT_SWITCH:
                starts = record["subkind"] == SwitchOperation.START
                switches.append(ContextSwitch(number, record["start_ns"], record["context"], starts))
            case RecordKind.OVERHEAD:
                overheads.append(Overhead(number, record["subkind"], record["start_ns"], record["end_ns"]))
            case kind:
                intervals.append(_interval(record, kind, names))
    calls = [call for name, table in rows.calls.items() for call in _calls(name, table)]
    calls.sort(key=lambda call: call.began_ns)
    return TimelineSnapshot(
        at_ns=rows.at_ns,
        collected_ns=rows.collected_ns,
        intervals=tuple(intervals),
        switches=tuple(switches),
        overheads=tuple(overheads),
        calls=tuple(calls),
        losses=rows.losses,
        cost=rows.cost,
        position=rows.position,
        status=rows.status,
    )


def _interval(record: Mapping[str, int], kind: RecordKind, names: tuple[str, ...]) -> GpuInterval:
    known = record["probe"] >= 0
    return GpuInterval(
        number=record["sequence"] - 1,
        kind=kind,
        start_ns=record["start_ns"],
        end_ns=record["end_ns"],
        device=record["device"],
        context=record["context"],
        stream=record["stream"],
        probe=names[record["probe"]] if known else None,
        op=record["op"] if known else None,
        iteration=record["iteration"] if known else None,
        began_ns=record["began_ns"] if known else None,
        returned_ns=record["returned_ns"] if known else None,
        nbytes=record["bytes"],
        copy=record["subkind"],
        memory=(record["memory"] & 255, record["memory"] >> 8),
        correlation=record["correlation"],
    )


def _calls(name: str, rows: HostCalls) -> list[HostCall]:
    return [
        HostCall(name, op & CALL_OP_MASK, iteration, began_ns, returned_ns, bool(op & CALL_MEASURED))
        for began_ns, returned_ns, op, iteration in rows[["began_ns", "returned_ns", "op", "iteration"]].tolist()
    ]
