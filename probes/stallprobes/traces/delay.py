"""Delay: what a piece of GPU work waited for, from the return of its call until the GPU started it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import CopyKind, RecordKind
from stallprobes.traces.trace import (
    CALL_BEGAN,
    CALL_PROBE,
    CALL_RETURNED,
    TENURE_CONTEXT,
    TENURE_END,
    TENURE_START,
    WORK_BEGAN,
    WORK_CONTEXT,
    WORK_COPY,
    WORK_DEVICE,
    WORK_END,
    WORK_KIND,
    WORK_NUMBER,
    WORK_OP,
    WORK_PROBE,
    WORK_RETURNED,
    WORK_START,
    WORK_STREAM,
    Int64s,
    Trace,
    op_label,
)
from stallprobes.units import duration_ns

# The GPU changes from one context to another within about 80 µs on an H200; more is somebody else's time-slice.
LONGEST_CHANGE_NS = 300_000
# As plain numbers: members of an enum are found slowly, and this is asked of every piece of work.
_COMPUTING = frozenset({int(RecordKind.KERNEL), int(RecordKind.MEMSET)})
_COPY, _WITHIN_DEVICE = int(RecordKind.COPY), int(CopyKind.DEVICE_TO_DEVICE)


class DelayCause(StrEnum):
    """What work waited for during a part of its delay.

    ``CONTEXT``: another context of this program had the graphics engine. ``PROCESS``: none of its contexts had it, for
    longer than a change takes. ``CHANGE``: the engine changed from one context to another. ``STREAM``: earlier work of
    its stream or of its own call ran. ``COPY``: another copy in its direction ran. ``ORDER``: work that was submitted
    to its stream before it had not started. ``UNKNOWN``: none of these.
    """

    CONTEXT = "context"
    PROCESS = "process"
    CHANGE = "change"
    STREAM = "stream"
    COPY = "copy"
    ORDER = "order"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class DelayPart:
    """A part of a delay with one cause. ``context`` is the one that had the engine, ``work`` the number of the work."""

    cause: DelayCause
    begin_ns: int
    end_ns: int
    context: int | None = None
    work: int | None = None

    @property
    def ns(self) -> int:
        """Its length."""
        return self.end_ns - self.begin_ns


@dataclass(frozen=True)
class Delay:
    """The time from a call's return to the start of its work, negative where the GPU started first.

    ``work`` is the work's number. ``parts`` cover the delay in the order of time; there is none of a negative one.
    """

    work: int
    returned_ns: int
    start_ns: int
    parts: tuple[DelayPart, ...]

    @property
    def ns(self) -> int:
        """Its length, negative if the GPU started before the return."""
        return self.start_ns - self.returned_ns

    def main(self) -> DelayPart | None:
        """The longest cause, as its longest part; None without parts."""
        total: dict[tuple[DelayCause, int | None], int] = {}
        for part in self.parts:
            key = (part.cause, part.context)
            total[key] = total.get(key, 0) + part.ns
        if not total:
            return None
        longest = max(total, key=lambda key: total[key])
        return max((part for part in self.parts if (part.cause, part.context) == longest), key=lambda part: part.ns)


@dataclass(frozen=True)
class CallBeside:
    """A call of another probe during a call, in the same context: ``overlap_ns`` is the time that both took."""

    probe: int
    op: int
    overlap_ns: int


def needs_graphics_engine(work: Int64s) -> bool:
    """Whether the work in row ``work`` runs on the graphics engine, which contexts share by time-slices.

    Kernels, memsets and copies within a device do; copies to and from the host and to a peer have engines of their own.
    """
    kind = int(work[WORK_KIND])
    return kind in _COMPUTING or (kind == _COPY and work[WORK_COPY] == _WITHIN_DEVICE)


def on_graphics_engine(work: Int64s) -> NDArray[np.bool_]:
    """Which rows of ``work`` need the graphics engine."""
    kinds = work[:, WORK_KIND]
    found: NDArray[np.bool_] = (kinds == _COPY) & (work[:, WORK_COPY] == _WITHIN_DEVICE)
    for kind in _COMPUTING:
        found |= kinds == kind
    return found


def delay_of(trace: Trace, work: Int64s) -> Delay | None:
    """The delay of the work in row ``work`` of ``trace.work``; None where its call is not known."""
    if work[WORK_PROBE] < 0 or work[WORK_RETURNED] <= 0:
        return None
    returned, start = int(work[WORK_RETURNED]), int(work[WORK_START])
    parts = tuple(_merged(_parts(trace, work, returned, start))) if start > returned else ()
    return Delay(int(work[WORK_NUMBER]), returned, start, parts)


def submitted_before(work: Int64s, rows: Int64s) -> NDArray[np.bool_]:
    """Which of ``rows`` were submitted to the stream of ``work`` by calls that returned before its own began."""
    same_stream = (rows[:, WORK_CONTEXT] == work[WORK_CONTEXT]) & (rows[:, WORK_STREAM] == work[WORK_STREAM])
    returned = rows[:, WORK_RETURNED]
    before: NDArray[np.bool_] = same_stream & (returned > 0) & (returned <= work[WORK_BEGAN])
    return before


def of_call(work: Int64s, rows: Int64s) -> NDArray[np.bool_]:
    """Which of ``rows`` are of the call of ``work``, a known one."""
    same: NDArray[np.bool_] = (rows[:, WORK_PROBE] == work[WORK_PROBE]) & (rows[:, WORK_BEGAN] == work[WORK_BEGAN])
    return same


def _parts(trace: Trace, work: Int64s, begin: int, end: int) -> Iterator[DelayPart]:
    others = trace.work[(trace.work[:, WORK_END] > begin) & (trace.work[:, WORK_START] < end)]
    others = others[others[:, WORK_NUMBER] != work[WORK_NUMBER]]
    same_stream = (others[:, WORK_CONTEXT] == work[WORK_CONTEXT]) & (others[:, WORK_STREAM] == work[WORK_STREAM])
    own_call = of_call(work, others)
    first_part = others[own_call][:1]
    if (own_call & ~same_stream).any() and begin < first_part[0, WORK_START]:
        # The rest of a call's work, on a stream of the driver's own, waits for the first part, whatever that waits for.
        start = int(first_part[0, WORK_START])
        yield from _parts(trace, first_part[0], begin, start)
        begin = start
    ahead = others[same_stream | own_call]
    queued = others[submitted_before(work, others)]
    on_engine = needs_graphics_engine(work)
    tenures, copies = trace.tenures[:0], others[:0]
    if on_engine and trace.context_switches:
        tenures = trace.tenures[(trace.tenures[:, TENURE_END] > begin) & (trace.tenures[:, TENURE_START] < end)]
    elif not on_engine:
        same = (others[:, WORK_KIND] == work[WORK_KIND]) & (others[:, WORK_COPY] == work[WORK_COPY])
        copies = others[same & (others[:, WORK_DEVICE] == work[WORK_DEVICE])]
    times = [tenures[:, TENURE_START], tenures[:, TENURE_END]]
    times += [rows[:, column] for rows in (ahead, copies) for column in (WORK_START, WORK_END)]
    # Nobody recorded who had the engine before.
    times.append(np.array([trace.engine_known_ns], dtype=np.int64))
    inner = np.unique(np.concatenate(times))
    borders = [begin, *inner[(inner > begin) & (inner < end)].tolist(), end]
    for first, last in pairwise(borders):
        running = ahead[(ahead[:, WORK_START] <= first) & (ahead[:, WORK_END] >= last)]
        if len(running):
            yield DelayPart(DelayCause.STREAM, first, last, work=int(running[-1, WORK_NUMBER]))
            continue
        copying = copies[(copies[:, WORK_START] <= first) & (copies[:, WORK_END] >= last)]
        if len(copying):
            yield DelayPart(DelayCause.COPY, first, last, work=int(copying[-1, WORK_NUMBER]))
            continue
        if not (on_engine and trace.context_switches):
            yield _queue_part(queued, first, last)
            continue
        held = tenures[(tenures[:, TENURE_START] <= first) & (tenures[:, TENURE_END] >= last)]
        holders = held[:, TENURE_CONTEXT].tolist()
        if not holders and last <= trace.engine_known_ns:
            yield DelayPart(DelayCause.UNKNOWN, first, last)
        elif not holders:
            long = last - first > LONGEST_CHANGE_NS
            yield DelayPart(DelayCause.PROCESS if long else DelayCause.CHANGE, first, last)
        elif int(work[WORK_CONTEXT]) in holders:
            yield _queue_part(queued, first, last)
        else:
            yield DelayPart(DelayCause.CONTEXT, first, last, context=holders[-1])


def _queue_part(queued: Int64s, first: int, last: int) -> DelayPart:
    """The part from ``first`` to ``last``, in which nothing ran that it is known to wait for.

    ``queued`` is the work that the stream has to run before, in the order of its starts.
    """
    waiting = queued[queued[:, WORK_START] >= last]
    if len(waiting):
        return DelayPart(DelayCause.ORDER, first, last, work=int(waiting[0, WORK_NUMBER]))
    return DelayPart(DelayCause.UNKNOWN, first, last)


def _merged(parts: Iterator[DelayPart]) -> Iterator[DelayPart]:
    """Adjacent parts of one cause as one."""
    held: DelayPart | None = None
    for part in parts:
        if held is not None and (held.cause, held.context, held.work) == (part.cause, part.context, part.work):
            held = DelayPart(held.cause, held.begin_ns, part.end_ns, held.context, held.work)
            continue
        if held is not None:
            yield held
        held = part
    if held is not None:
        yield held


def calls_beside(trace: Trace, call: int) -> tuple[CallBeside, ...]:
    """Calls of other probes of the same context during the call in row ``call``, the longest overlap first."""
    row = trace.calls[call]
    probe = trace.probes[row[CALL_PROBE]]
    began, returned = int(row[CALL_BEGAN]), int(row[CALL_RETURNED])
    rows = trace.calls[(trace.calls[:, CALL_RETURNED] > began) & (trace.calls[:, CALL_BEGAN] < returned)]
    found: dict[tuple[int, int], int] = {}
    for number, op, _, other_began, other_returned, _ in rows.tolist():
        other = trace.probes[number]
        if number != row[CALL_PROBE] and other.context == probe.context:
            overlap = min(other_returned, returned) - max(other_began, began)
            found[number, op] = found.get((number, op), 0) + overlap
    for flight in trace.open_calls:
        other = trace.probes[flight.probe]
        if flight.probe != row[CALL_PROBE] and flight.since_ns < returned and other.context == probe.context:
            overlap = returned - max(flight.since_ns, began)
            found[flight.probe, flight.op] = found.get((flight.probe, flight.op), 0) + overlap
    beside = [CallBeside(number, op, overlap) for (number, op), overlap in found.items()]
    return tuple(sorted(beside, key=lambda each: -each.overlap_ns))


def work_label(trace: Trace, number: int) -> str:
    """What the work with ``number`` is: its probe and operation, or its kind."""
    for row in trace.work:
        if row[WORK_NUMBER] != number:
            continue
        if row[WORK_PROBE] >= 0:
            probe = trace.probes[row[WORK_PROBE]]
            return f"{probe.name} ({op_label(trace.probes, int(row[WORK_PROBE]), int(row[WORK_OP]))})"
        return RecordKind(row[WORK_KIND]).name.lower().replace("_", " ")
    return ""


def cause_text(trace: Trace, part: DelayPart) -> str:
    """The cause of ``part`` as a clause."""
    match part.cause:
        case DelayCause.CONTEXT:
            assert part.context is not None
            return f"context {trace.names.context(part.context)} had the engine"
        case DelayCause.PROCESS:
            by = f": {', '.join(trace.others)}" if trace.others else ""
            return f"another process had the engine{by}"
        case DelayCause.CHANGE:
            return "the engine changed between contexts"
        case DelayCause.STREAM:
            return f"its stream ran {work_label(trace, part.work or 0)}"
        case DelayCause.COPY:
            return f"the copy engine ran {work_label(trace, part.work or 0)}"
        case DelayCause.ORDER:
            return f"{work_label(trace, part.work or 0)} waited in front of it in its stream"
        case DelayCause.UNKNOWN:
            return "no recorded work was in front of it"


def delay_text(trace: Trace, delay: Delay) -> str:
    """``delay`` in a sentence: ``returned → GPU start 2.26 ms: context primary had the engine``."""
    if delay.ns < 0:
        return f"the GPU started {duration_ns(-delay.ns)} before the return"
    text = f"returned → GPU start {duration_ns(delay.ns)}"
    main = delay.main()
    if main is None or (main.cause is DelayCause.UNKNOWN and len(delay.parts) == 1):
        return text
    return f"{text}: {cause_text(trace, main)}"


def delays_of_call(trace: Trace, call: int) -> tuple[Delay, ...]:
    """The delays of the work of the call in row ``call``."""
    found = (delay_of(trace, work) for work in trace.work_of(call))
    return tuple(delay for delay in found if delay is not None)
