"""Reader of the timeline's part of a board: its new rows, and the values of ``trace`` that they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from stallprobes.engine.board import Board, ProbeSection
from stallprobes.engine.timeline.status import TimelineStatus
from stallprobes.engine.timeline.trace import (
    ContextSwitch,
    GpuInterval,
    HostCall,
    Overhead,
    TimelineCost,
    TimelineLosses,
    TimelinePosition,
    TimelineSnapshot,
)
from stallprobes.engine.timeline_section import GpuRecords, HostCalls
from stallprobes.native.layouts.board import CALL_MEASURED, CALL_OP_MASK, HOST_CALLS, TimelineWords
from stallprobes.native.layouts.cupti import RecordKind, SwitchOperation


@dataclass(frozen=True, eq=False)
class TimelineRows:
    """What the timeline recorded since a position, as the board holds it.

    ``records`` are GpuRecord[n] in the order of arrival, ``calls`` HostCall[n] by the probe's name.
    """

    at_ns: int
    collected_ns: int
    records: GpuRecords
    calls: Mapping[str, HostCalls]
    losses: TimelineLosses
    cost: TimelineCost
    position: TimelinePosition
    status: TimelineStatus


def read_rows(board: Board, since: TimelinePosition, status: TimelineStatus) -> TimelineRows:
    """The rows that the timeline of ``board`` recorded since ``since``; ``status`` is passed on."""
    section = board.timeline
    # A copy, because the collector changes the words meanwhile.
    words = TimelineWords.from_buffer_copy(section.words)
    records, head, overwritten = section.read(since.record)
    calls, positions = {}, {}
    for name in board.layout.names:
        part = board[name]
        call_head = part.words.host_calls
        calls[name] = read_calls(part, since.calls.get(name, 0), call_head)
        positions[name] = call_head
    return TimelineRows(
        at_ns=board.now(),
        collected_ns=words.collected_ns,
        records=records,
        calls=calls,
        losses=replace(read_losses(board), overwritten=overwritten),
        cost=TimelineCost(words.collected, words.rounds, words.flush_ns, words.decode_ns),
        position=TimelinePosition(head, positions),
        status=status,
    )


def read_losses(board: Board) -> TimelineLosses:
    """What the timeline of ``board`` lost so far, without records that no reader asked for."""
    words = board.timeline.words
    return TimelineLosses(
        dropped=words.dropped,
        exhausted=words.exhausted,
        unmatched=words.unmatched,
        unanswered=words.unanswered,
        unknown=words.unknown,
    )


def read_calls(part: ProbeSection, first: int, head: int) -> HostCalls:
    """The host calls of a probe from number ``first`` to ``head``, oldest first.

    Calls that may have been overwritten before or while they were read are left out.
    """
    first = max(first, head - HOST_CALLS, 0)
    if head <= first:
        return part.host_calls[:0].copy()
    rows = part.host_calls[np.arange(first, head) % HOST_CALLS]
    whole = max(part.words.host_calls - HOST_CALLS + 1, 0)
    return rows[max(whole - first, 0) :]


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
