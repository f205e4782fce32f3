"""Reader of the timeline's part of a board: its new rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from stallprobes.engine.board import Board, GpuRecords, HostCalls, ProbeSection
from stallprobes.native.layouts.board import HOST_CALLS, TimelineWords
from stallprobes.records.timeline import TimelineCost, TimelineLosses, TimelinePosition, TimelineStatus


@dataclass(frozen=True, eq=False)
class TimelineRows:
    """The records of the timeline since a position, as the board holds them.

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
    """Losses of the timeline of ``board`` so far, without records that no reader asked for."""
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
