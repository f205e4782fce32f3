"""Reader of the timeline's part of a board: its new rows, and the values of ``trace`` that they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from stallprobes.engine.board import Board, ProbeSection
from stallprobes.engine.layout import TRACE_HEAD, Int64s
from stallprobes.engine.timeline.records import RecordKind, SwitchOperation
from stallprobes.engine.timeline.ring import (
    BEGAN_NS,
    CALL_BEGAN_NS,
    CALL_END_NS,
    CALL_ITERATION,
    CALL_OP,
    CALLS,
    COLLECTED,
    COLLECTED_NS,
    CONTEXT,
    CORRELATION,
    DECODE_NS,
    DETAIL,
    DEVICE,
    DROPPED,
    END_NS,
    EXHAUSTED,
    FLUSH_NS,
    ITERATION,
    KIND,
    MEASURED,
    MEMORY,
    OP,
    OP_MASK,
    PROBE,
    RETURNED_NS,
    ROUNDS,
    SEQUENCE,
    START_NS,
    STREAM,
    SUBKIND,
    UNANSWERED,
    UNKNOWN,
    UNMATCHED,
)
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


@dataclass(frozen=True, eq=False)
class TimelineRows:
    """What the timeline recorded since a position, as the board holds it.

    ``records`` is int64[n][RECORD_WORDS] in the order of arrival, ``calls`` int64[n][CALL_WORDS] by the probe's name.
    """

    at_ns: int
    collected_ns: int
    records: Int64s
    calls: Mapping[str, Int64s]
    losses: TimelineLosses
    cost: TimelineCost
    position: TimelinePosition
    status: TimelineStatus


def read_rows(board: Board, since: TimelinePosition, status: TimelineStatus) -> TimelineRows:
    """The rows that the timeline of ``board`` recorded since ``since``; ``status`` is passed on."""
    section = board.timeline
    words = section.words.tolist()
    records, head, overwritten = section.read(since.record)
    calls, positions = {}, {}
    for name in board.layout.names:
        part = board[name]
        call_head = int(part.words[TRACE_HEAD])
        calls[name] = read_calls(part, since.calls.get(name, 0), call_head)
        positions[name] = call_head
    return TimelineRows(
        at_ns=board.now(),
        collected_ns=words[COLLECTED_NS],
        records=records,
        calls=calls,
        losses=replace(read_losses(board), overwritten=overwritten),
        cost=TimelineCost(words[COLLECTED], words[ROUNDS], words[FLUSH_NS], words[DECODE_NS]),
        position=TimelinePosition(head, positions),
        status=status,
    )


def read_losses(board: Board) -> TimelineLosses:
    """What the timeline of ``board`` lost so far, without records that no reader asked for."""
    words = board.timeline.words
    return TimelineLosses(
        dropped=int(words[DROPPED]),
        exhausted=int(words[EXHAUSTED]),
        unmatched=int(words[UNMATCHED]),
        unanswered=int(words[UNANSWERED]),
        unknown=int(words[UNKNOWN]),
    )


def read_calls(part: ProbeSection, first: int, head: int) -> Int64s:
    """The host calls of a probe from number ``first`` to ``head`` as int64[n][CALL_WORDS], oldest first.

    Calls that may have been overwritten before or while they were read are left out.
    """
    first = max(first, head - CALLS, 0)
    if head <= first:
        return part.trace[:0].copy()
    rows = part.trace[np.arange(first, head) % CALLS]
    whole = max(int(part.words[TRACE_HEAD]) - CALLS + 1, 0)
    return rows[max(whole - first, 0) :]


def snapshot_of(rows: TimelineRows, names: tuple[str, ...]) -> TimelineSnapshot:
    """The values that ``rows`` hold; ``names`` are those of the board's probes, in its order."""
    intervals, switches, overheads = [], [], []
    for row in rows.records.tolist():
        match RecordKind(row[KIND]):
            case RecordKind.CONTEXT_SWITCH:
                starts = row[SUBKIND] == SwitchOperation.START
                switches.append(ContextSwitch(row[SEQUENCE] - 1, row[START_NS], row[CONTEXT], starts))
            case RecordKind.OVERHEAD:
                overheads.append(Overhead(row[SEQUENCE] - 1, row[SUBKIND], row[START_NS], row[END_NS]))
            case kind:
                intervals.append(_interval(row, kind, names))
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


def _interval(row: list[int], kind: RecordKind, names: tuple[str, ...]) -> GpuInterval:
    known = row[PROBE] >= 0
    return GpuInterval(
        number=row[SEQUENCE] - 1,
        kind=kind,
        start_ns=row[START_NS],
        end_ns=row[END_NS],
        device=row[DEVICE],
        context=row[CONTEXT],
        stream=row[STREAM],
        probe=names[row[PROBE]] if known else None,
        op=row[OP] if known else None,
        iteration=row[ITERATION] if known else None,
        began_ns=row[BEGAN_NS] if known else None,
        returned_ns=row[RETURNED_NS] if known else None,
        nbytes=row[DETAIL],
        copy=row[SUBKIND],
        memory=(row[MEMORY] & 255, row[MEMORY] >> 8),
        correlation=row[CORRELATION],
    )


def _calls(name: str, rows: Int64s) -> list[HostCall]:
    return [
        HostCall(
            name,
            row[CALL_OP] & OP_MASK,
            row[CALL_ITERATION],
            row[CALL_BEGAN_NS],
            row[CALL_END_NS],
            bool(row[CALL_OP] & MEASURED),
        )
        for row in rows.tolist()
    ]
