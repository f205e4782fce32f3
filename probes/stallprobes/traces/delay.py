"""Delay: the causes for which GPU work waited, from the return of its call until the GPU started it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import CopyKind, RecordKind
from stallprobes.records.rows import Rows
from stallprobes.traces.trace import OPEN, Trace, op_label
from stallprobes.units import duration_ns

# Longest time (ns) that a change between contexts takes on the graphics engine. If no context of the program has the
# engine for a longer time, another process has the engine. CUPTI's records show 80 µs for a change with two busy
# contexts on an H200.
LONGEST_CHANGE_NS = 300_000
# Kinds of records as plain integers. Reason: every piece of work is compared with these kinds, and an enum's member
# would be slower.
_KERNEL, _MEMSET = int(RecordKind.KERNEL), int(RecordKind.MEMSET)
# Kinds of records and of copies as plain integers. Reason: every piece of work is compared with these kinds, and an
# enum's member would be slower.
_COPY, _WITHIN_DEVICE = int(RecordKind.COPY), int(CopyKind.DEVICE_TO_DEVICE)


class DelayCause(StrEnum):
    """Cause of a part of the delay of work.

    ``CONTEXT``: another context of this program had the graphics engine. ``PROCESS``: no context of this program had
    the engine, for longer than a change takes. ``CHANGE``: the engine changed from one context to another. ``STREAM``:
    earlier work of the same stream or call ran. ``COPY``: another copy in the same direction ran. ``ORDER``: earlier
    work of the same stream had not started. ``UNKNOWN``: none of the other causes.
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

    ``parts`` cover the delay in the order of time; there is none of a negative one.
    """

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


def on_graphics_engine(work: Rows) -> NDArray[np.bool_]:
    """Mask of the rows of ``work``, or a flag for one row, of the work on the graphics engine.

    Contexts share the graphics engine by time-slices. It runs kernels, memsets and copies within a device; copies to
    and from the host and to a peer have engines of their own.
    """
    kinds = work["kind"]
    copies = (kinds == _COPY) & (work["subkind"] == _WITHIN_DEVICE)
    return np.asarray(copies | (kinds == _KERNEL) | (kinds == _MEMSET))


def delay_of(trace: Trace, work: Rows) -> Delay | None:
    """The delay of the work in row ``work`` of ``trace.work``; None where its call is not known."""
    if work["probe"] < 0 or work["returned_ns"] <= 0:
        return None
    returned, start = int(work["returned_ns"]), int(work["start_ns"])
    parts = tuple(_merged(_parts(trace, work, returned, start))) if start > returned else ()
    return Delay(returned, start, parts)


def submitted_before(work: Rows, rows: Rows) -> NDArray[np.bool_]:
    """Which of ``rows`` were submitted to the stream of ``work`` by calls that returned before its own began."""
    same_stream = (rows["context"] == work["context"]) & (rows["stream"] == work["stream"])
    returned = rows["returned_ns"]
    return np.asarray(same_stream & (returned > 0) & (returned <= work["began_ns"]))


def of_call(work: Rows, rows: Rows) -> NDArray[np.bool_]:
    """Which of ``rows`` are of the call of ``work``, a known one."""
    return np.asarray((rows["probe"] == work["probe"]) & (rows["began_ns"] == work["began_ns"]))


def _parts(trace: Trace, work: Rows, begin: int, end: int) -> Iterator[DelayPart]:
    others = trace.work[(trace.work["end_ns"] > begin) & (trace.work["start_ns"] < end)]
    others = others[others["sequence"] != work["sequence"]]
    same_stream = (others["context"] == work["context"]) & (others["stream"] == work["stream"])
    own_call = of_call(work, others)
    first_part = others[own_call][:1]
    if (own_call & ~same_stream).any() and begin < first_part["start_ns"][0]:
        # The rest of a call's work, on a stream of the driver's own, waits for the first part, whatever that waits for.
        start = int(first_part["start_ns"][0])
        yield from _parts(trace, first_part[0], begin, start)
        begin = start
    ahead = others[same_stream | own_call]
    queued = others[submitted_before(work, others)]
    on_engine = bool(on_graphics_engine(work))
    tenures, copies = trace.tenures[:0], others[:0]
    if on_engine and trace.context_switches:
        tenures = trace.tenures[(trace.tenures["end_ns"] > begin) & (trace.tenures["start_ns"] < end)]
    elif not on_engine:
        same = (others["kind"] == work["kind"]) & (others["subkind"] == work["subkind"])
        copies = others[same & (others["device"] == work["device"])]
    times = [tenures["start_ns"], tenures["end_ns"]]
    times += [rows[column] for rows in (ahead, copies) for column in ("start_ns", "end_ns")]
    # Nobody recorded who had the engine before.
    times.append(np.array([trace.engine_known_ns], dtype=np.int64))
    inner = np.unique(np.concatenate(times))
    borders = [begin, *inner[(inner > begin) & (inner < end)].tolist(), end]
    for first, last in pairwise(borders):
        running = ahead[(ahead["start_ns"] <= first) & (ahead["end_ns"] >= last)]
        if len(running):
            yield DelayPart(DelayCause.STREAM, first, last, work=int(running["sequence"][-1]))
            continue
        copying = copies[(copies["start_ns"] <= first) & (copies["end_ns"] >= last)]
        if len(copying):
            yield DelayPart(DelayCause.COPY, first, last, work=int(copying["sequence"][-1]))
            continue
        if not (on_engine and trace.context_switches):
            yield _queue_part(queued, first, last)
            continue
        held = tenures[(tenures["start_ns"] <= first) & (tenures["end_ns"] >= last)]
        holders = held["context"].tolist()
        if not holders and last <= trace.engine_known_ns:
            yield DelayPart(DelayCause.UNKNOWN, first, last)
        elif not holders:
            long = last - first > LONGEST_CHANGE_NS
            yield DelayPart(DelayCause.PROCESS if long else DelayCause.CHANGE, first, last)
        elif int(work["context"]) in holders:
            yield _queue_part(queued, first, last)
        else:
            yield DelayPart(DelayCause.CONTEXT, first, last, context=holders[-1])


def _queue_part(queued: Rows, first: int, last: int) -> DelayPart:
    """The part of a delay from ``first`` to ``last`` without running work that the delayed work is known to wait for.

    ``queued`` is the earlier work of the stream, in the order of its starts.
    """
    waiting = queued[queued["start_ns"] >= last]
    if len(waiting):
        return DelayPart(DelayCause.ORDER, first, last, work=int(waiting["sequence"][0]))
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


def calls_beside(trace: Trace, call: int) -> list[tuple[str, int]]:
    """Calls of other probes of the same context, or of other threads of the same process, during the call in row
    ``call``: probe and operation, and the time (ns) that both took; the longest first."""
    row = trace.calls[call]
    probe = trace.probes[row["probe"]]
    began, returned = int(row["began_ns"]), int(row["returned_ns"])
    rows = trace.calls[(trace.calls["returned_ns"] > began) & (trace.calls["began_ns"] < returned)]
    overlaps: dict[tuple[int, int], int] = {}
    others = rows[["probe", "op", "began_ns", "returned_ns"]].tolist()
    others += [
        (flight.probe, flight.op, flight.since_ns, OPEN) for flight in trace.open_calls if flight.since_ns < returned
    ]
    for number, op, other_began, other_returned in others:
        other = trace.probes[number]
        if number != row["probe"] and (other.process, other.context) == (probe.process, probe.context):
            overlap = min(other_returned, returned) - max(other_began, began)
            overlaps[number, op] = overlaps.get((number, op), 0) + overlap
    longest_first = sorted(overlaps.items(), key=lambda item: -item[1])
    return [
        (f"{trace.probes[number].name} ({op_label(trace.probes, number, op)})", overlap)
        for (number, op), overlap in longest_first
    ]


def work_label(trace: Trace, number: int) -> str:
    """Label of the work with ``number``: its probe and operation, or its kind."""
    for row in trace.work:
        if row["sequence"] != number:
            continue
        if row["probe"] >= 0:
            probe = trace.probes[row["probe"]]
            return f"{probe.name} ({op_label(trace.probes, int(row['probe']), int(row['op']))})"
        return RecordKind(row["kind"]).name.lower().replace("_", " ")
    return ""


def cause_text(trace: Trace, part: DelayPart) -> str:
    """The cause of ``part`` as a clause."""
    match part.cause:
        case DelayCause.CONTEXT:
            assert part.context is not None
            return f"context {trace.names.context(part.context).removeprefix('context ')} had the engine"
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
    delays = (delay_of(trace, work) for work in trace.work_of(call))
    return tuple(delay for delay in delays if delay is not None)
