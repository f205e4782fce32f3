"""Reader of the timeline's part of a board: from its words to the values of ``trace``."""

from __future__ import annotations

from stallprobes.engine.board import TRACE_HEAD, Board, Int64s
from stallprobes.engine.timeline.records import RecordKind, SwitchOperation
from stallprobes.engine.timeline.ring import (
    BEGAN_NS,
    CALL_BEGAN_NS,
    CALL_END_NS,
    CALL_ITERATION,
    CALL_OP,
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
    read_calls,
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


def read_timeline(board: Board, since: TimelinePosition, status: TimelineStatus) -> TimelineSnapshot:
    """What the timeline of ``board`` recorded since ``since``; ``status`` is passed on."""
    section = board.timeline
    words = section.words.tolist()
    rows, head, overwritten = section.read(since.record)
    names = board.layout.names
    intervals, switches, overheads = [], [], []
    for row in rows.tolist():
        match RecordKind(row[KIND]):
            case RecordKind.CONTEXT_SWITCH:
                starts = row[SUBKIND] == SwitchOperation.START
                switches.append(ContextSwitch(row[SEQUENCE] - 1, row[START_NS], row[CONTEXT], starts))
            case RecordKind.OVERHEAD:
                overheads.append(Overhead(row[SEQUENCE] - 1, row[SUBKIND], row[START_NS], row[END_NS]))
            case kind:
                intervals.append(_interval(row, kind, names))
    calls: list[HostCall] = []
    positions = {}
    for name in names:
        part = board[name]
        call_head = int(part.words[TRACE_HEAD])
        first = since.calls.get(name, 0)
        positions[name] = call_head
        if call_head > first:
            copy = part.trace.copy()
            calls += _calls(name, read_calls(copy, call_head, first, int(part.words[TRACE_HEAD])))
    calls.sort(key=lambda call: call.began_ns)
    return TimelineSnapshot(
        at_ns=board.now(),
        collected_ns=words[COLLECTED_NS],
        intervals=tuple(intervals),
        switches=tuple(switches),
        overheads=tuple(overheads),
        calls=tuple(calls),
        losses=TimelineLosses(
            dropped=words[DROPPED],
            exhausted=words[EXHAUSTED],
            unmatched=words[UNMATCHED],
            unanswered=words[UNANSWERED],
            overwritten=overwritten,
            unknown=words[UNKNOWN],
        ),
        cost=TimelineCost(words[COLLECTED], words[ROUNDS], words[FLUSH_NS], words[DECODE_NS]),
        position=TimelinePosition(head, positions),
        status=status,
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
