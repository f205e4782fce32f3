"""Chrome trace: traces as a file of the Trace Event Format, which Perfetto and chrome://tracing open.

The format is JSON: {"traceEvents": [...], "displayTimeUnit": "ns", "otherData": {...}}. It has rules that a trace must
be made to fit:

- Complete events ("X") of one thread must nest. A call, a piece of work or a tenure is an event; work of one stream
  that overlaps is put on further threads. What had not ended, a call in flight or work without a record, ends where the
  trace does, and says so in its arguments.
- Perfetto finds a thread by its number alone, so the numbers of processes and threads are all different.
- A flow's start ("s") and end ("f" with "bp": "e") belong to the events that enclose them, and follow them in the
  file. Perfetto drops an end that is earlier than its start.
- Early versions of Perfetto read the members of an event in order up to "ts", and no escaped character before it.
- Times are microseconds. They are written as decimals of exactly three digits and count from the earliest event, so
  that no reader loses nanoseconds to floating point; "displayTimeUnit" comes last, since old versions of Perfetto took
  the times for nanoseconds where it came first.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import NewType

import numpy as np

from stallprobes.files import atomic, compression
from stallprobes.foreign_text import escaped_json
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.records.rows import Rows, WorkRow
from stallprobes.traces import labels
from stallprobes.traces.delay_index import DelayIndex
from stallprobes.traces.engine_gaps import foreign_gaps
from stallprobes.traces.rows import RowKey, RowKind, spans_of
from stallprobes.traces.summary import summary
from stallprobes.traces.trace import OPEN, TABLES, Int64s, OpenWork, Trace, TraceTrigger, callers_of, op_label
from stallprobes.units import duration_ns

# A thread of the file: the members that all its events begin with.
EventTrack = NewType("EventTrack", str)
# Smallest size (characters) of the pieces in which the trace file is written. Only the last piece may be smaller.
CHUNK = 1 << 17
# Text that marks the line of a duration event. The trace writer counts these lines to report its progress.
_DURATION = '"ph":"X"'
# Number of characters at the start of a line in which the trace writer searches for _DURATION.
_TYPE_END = 16
# Number of duration events between two reports of the trace writer's progress.
_COUNTED = 500
# Number of table rows that are converted to Python tuples at a time.
_ROWS = 2048
# Shortest delay (ns) from a call's return to the start of its GPU work for which a cause is given. Reason: the GPU
# always takes a few microseconds to start work.
_SHORT_NS = 10_000
# Time (ns) between the end of a trace and the begin of the next trace in the same file.
_PAUSE_NS = 100_000_000


def us_text(ns: int) -> str:
    """``ns``, not negative, as microseconds with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def json_text(value: object) -> str:
    """``value`` as JSON without characters that a terminal could take for a command."""
    return escaped_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


@dataclass(frozen=True, eq=False)
class TitledTrace:
    """A trace of a file. ``title`` tells it from the others of the file; "" if it is the only one."""

    trace: Trace
    title: str = ""


def save(
    traces: Iterable[TitledTrace],
    path: Path | str,
    about: Mapping[str, object],
    *,
    force: bool = False,
    progress: Callable[[float], None] = lambda _: None,
) -> None:
    """Write ``traces``, one after the other on the time axis, to the file ``path``, atomically.

    It is compressed with gzip if its name ends in ``.gz``. ``about`` says what was measured, and with what.
    ``progress`` is called with the share (0 to 1) of the events that are written, unless ``traces`` is an iterator of
    unknown length. Raises FileNotWritten.
    """
    # Not all of them are events with a duration: rows are missing for a few.
    total = sum(titled.trace.row_count for titled in traces) if isinstance(traces, Sequence) else 0
    lines = _lines(traces, about)
    counted = _counted(lines, total, progress) if total else lines
    atomic.write(Path(path), compression.for_name(path, _chunks(counted)), force=force)


def chunks(traces: Iterable[TitledTrace], about: Mapping[str, object]) -> Iterator[bytes]:
    """The file's text in pieces of about CHUNK bytes; arguments as for ``save``."""
    return _chunks(_lines(traces, about))


def _counted(lines: Iterable[str], total: int, progress: Callable[[float], None]) -> Iterator[str]:
    """``lines``, of which ``total`` are events with a duration."""
    written = 0
    for line in lines:
        written += _DURATION in line[:_TYPE_END]
        if written % _COUNTED == 0:
            progress(min(written / total, 1.0))
        yield line


def _chunks(lines: Iterable[str]) -> Iterator[bytes]:
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= CHUNK:
            yield "".join(held).encode()
            held, size = [], 0
    yield "".join(held).encode()


def _lines(traces: Iterable[TitledTrace], about: Mapping[str, object]) -> Iterator[str]:
    # The numbers of processes and threads, and of flows.
    numbers, flows = count(1), count(1)
    described = []
    offset_ns = 0
    yield '{"traceEvents":['
    first = True
    for titled in traces:
        part = _TraceEvents(titled, numbers, flows, offset_ns)
        for event in part.events():
            yield f"\n{event}" if first else f",\n{event}"
            first = False
        described.append(part.description())
        offset_ns += part.length_ns + _PAUSE_NS
    other = {**about, "traces": described}
    yield f'\n],"otherData":{json_text(other)},"displayTimeUnit":"ns"}}\n'


class _TraceEvents:
    """The events of one trace, from ``offset_ns`` of the file's time on."""

    def __init__(self, titled: TitledTrace, numbers: Iterator[int], flows: Iterator[int], offset_ns: int) -> None:
        self._trace = trace = titled.trace
        self._title = f"{titled.title}: " if titled.title else ""
        self._suffix = " (SIMULATED)" if trace.simulated else ""
        self._numbers, self._flow_numbers = numbers, flows
        starts = [rows[start].min() for rows, start, _ in self._rows() if len(rows)]
        ends = [rows[end].max() for rows, _, end in self._rows() if len(rows)]
        self._begin_ns = int(min([trace.begin_ns, *starts]))
        self._end_ns = int(max([trace.end_ns, *ends]))
        self._zero_ns = self._begin_ns - offset_ns
        self._metadata: list[str] = []
        self._processes = 0
        self._delays = DelayIndex(trace)
        self._copies, self._causes = cache(_copy_args), cache(json_text)
        self._flow_of_work, self._leaving, self._callers = self._flows()

    @property
    def length_ns(self) -> int:
        """The time from the first event's start to the last one's end."""
        return self._end_ns - self._begin_ns

    def _rows(self) -> Iterator[tuple[Rows, str, str]]:
        """What is not cut at the borders of the trace, with the columns of starts and ends."""
        for name, (_, start, end) in TABLES.items():
            if name != "tenures":
                yield getattr(self._trace, name), start, end

    def description(self) -> dict[str, object]:
        """The file's description of the whole trace."""
        trace = self._trace
        begin = datetime.datetime.fromtimestamp(trace.wall_s(self._begin_ns), datetime.UTC)
        return {
            **({"title": self._title.removesuffix(": ")} if self._title else {}),
            "simulated": trace.simulated,
            "begin": begin.isoformat(timespec="microseconds"),
            "begin_us": float(us_text(self._begin_ns - self._zero_ns)),
            "begin_monotonic_ns": self._begin_ns,
            "calls": len(trace.calls),
            "gpu_work": len(trace.work),
            "gpu_work_complete_until_us": float(us_text(max(trace.collected_ns - self._zero_ns, 0))),
            "context_switches_recorded": trace.context_switches,
            "other_processes": list(trace.others),
            "losses": asdict(trace.losses),
        }

    def events(self) -> Iterator[str]:
        """All events; the names of processes and threads come before those that happen there."""
        host = self._process("host")
        trigger = None if self._trace.trigger is None else self._thread(host, "trigger")
        threads = [self._thread(host, probe.name) for probe in self._trace.probes]
        streams, engines, unfinished = self._stream_tracks()
        gaps = foreign_gaps(self._trace)
        other = self._thread(self._process("another process"), "graphics engine") if len(gaps) else None
        unrecorded = self._thread(host, "GPU work not recorded") if self._trace.unrecorded else None
        parts = [rows for rows in _separated(self._trace.overheads) if len(rows)]
        overheads = [(self._thread(host, "driver overhead"), rows) for rows in parts]
        counters = self._process("counters of the GPU") if self._trace.counters else 0
        yield from self._metadata
        if trigger is not None and self._trace.trigger is not None:
            yield self._trigger(trigger, self._trace.trigger)
        for number, track in enumerate(threads):
            yield from self._calls(number, track)
        for track, rows in streams:
            yield from self._work(rows, track)
        for key, track in unfinished.items():
            yield self._open_work(key, track)
        for context, track in engines.items():
            yield from self._tenures(context, track)
        if other is not None:
            for begin, end in gaps.tolist():
                args = {"candidates": ", ".join(self._trace.others)} if self._trace.others else {}
                yield self._complete(other, begin, end, '"another process"', "engine", json_text(args))
        if unrecorded is not None:
            for begin, end in self._trace.unrecorded:
                yield self._complete(unrecorded, begin, end, '"not recorded"', "unrecorded", "{}")
        yield from self._counters(counters)
        for track, rows in overheads:
            for _, reason, start, end in self._trace.overheads[rows].tolist():
                yield self._complete(track, start, end, json_text(labels.overhead_label(reason)), "overhead", "{}")

    def _counters(self, process: int) -> Iterator[str]:
        """The counters of the GPU: a value holds until the next one."""
        for counter in self._trace.counters:
            name = json_text(f"{counter.name} ({counter.unit})")
            for begin, _, value in counter.samples:
                ts = us_text(max(begin, self._begin_ns) - self._zero_ns)
                args = json_text({counter.unit: round(value, 2)})
                yield f'{{"ph":"C","pid":{process},"ts":{ts},"name":{name},"cat":"counter","args":{args}}}'

    # The names of processes and threads.

    def _process(self, name: str) -> int:
        number = next(self._numbers)
        named = json_text({"name": f"{self._title}{name}{self._suffix}"})
        self._metadata.append(f'{{"ph":"M","pid":{number},"name":"process_name","args":{named}}}')
        order = f'{{"sort_index":{number}}}'
        self._metadata.append(f'{{"ph":"M","pid":{number},"name":"process_sort_index","args":{order}}}')
        return number

    def _thread(self, process: int, name: str) -> EventTrack:
        number = next(self._numbers)
        track = EventTrack(f'"pid":{process},"tid":{number}')
        self._metadata.append(f'{{"ph":"M",{track},"name":"thread_name","args":{json_text({"name": name})}}}')
        order = f'{{"sort_index":{number}}}'
        self._metadata.append(f'{{"ph":"M",{track},"name":"thread_sort_index","args":{order}}}')
        return track

    def _stream_tracks(
        self,
    ) -> tuple[list[tuple[EventTrack, Int64s]], dict[int, EventTrack], dict[RowKey, EventTrack]]:
        """A process for each context, with a thread for the graphics engine and one or more for each stream.

        The tracks of streams with their rows of work, of the contexts' tenures, and of streams with open work.
        """
        trace = self._trace
        work, waiting = trace.work, self._shown_open_work()
        streams: list[tuple[EventTrack, Int64s]] = []
        engines: dict[int, EventTrack] = {}
        unfinished: dict[RowKey, EventTrack] = {}
        places = set(np.unique(work[["device", "context"]]).tolist())
        places |= {(each.device, each.context) for each in waiting}
        worked = {context for _, context in places}
        held = np.unique(trace.tenures["context"]).tolist()
        unused = [(0, context) for context in held if context not in worked]
        for device, context in (*sorted(places), *unused):
            process = self._process(f"GPU {device}, context {trace.names.context(context).removeprefix('context ')}")
            if context in held:
                engines[context] = self._thread(process, "has the graphics engine")
            own = np.flatnonzero((work["context"] == context) & (work["device"] == device))
            open_here = [each for each in waiting if (each.device, each.context) == (device, context)]
            for stream in sorted({*work["stream"][own].tolist(), *(each.stream for each in open_here)}):
                rows = own[work["stream"][own] == stream]
                open_work = [each for each in open_here if each.stream == stream]
                name = self._stream_name(context, stream, rows, open_work)
                parts = _separated(work[rows])
                tracks = [
                    self._thread(process, f"{name}, overlap {number}" if number else name)
                    for number in range(len(parts))
                ]
                streams.extend((track, rows[part]) for track, part in zip(tracks, parts, strict=True))
                if open_work:
                    unfinished[RowKey(RowKind.WORK, context, stream)] = tracks[0]
        return streams, engines, unfinished

    def _stream_name(self, context: int, stream: int, rows: Int64s, open_work: Sequence[OpenWork]) -> str:
        """The name of a stream with its users."""
        trace = self._trace
        users = labels.stream_users(trace, rows, open_work)
        name = f"stream {trace.names.stream(context, stream).removeprefix('stream ')}"
        return f"{name} ({users})" if users else name

    def _shown_open_work(self) -> list[OpenWork]:
        """The open work of the streams on which a picture of the trace shows it."""
        shown = {}
        for each in self._trace.open_work:
            key = RowKey(RowKind.WORK, each.context, each.stream)
            if key not in shown:
                shown[key] = self._open_span(key) is not None
        return [each for each in self._trace.open_work if shown[RowKey(RowKind.WORK, each.context, each.stream)]]

    def _open_span(self, key: RowKey) -> tuple[int, int] | None:
        """The time in which the stream's open work waits or runs, as pictures show it; None if none of it is here."""
        spans = spans_of(self._trace, key)
        if not spans.hollow.any():
            return None
        begin, end = max(int(spans.starts[-1]), self._begin_ns), min(int(spans.ends[-1]), self._end_ns)
        return (begin, end) if begin < end else None

    # The events.

    def _complete(self, track: EventTrack, start: int, end: int, name: str, category: str, args: str) -> str:
        return (
            f'{{"ph":"X",{track},"ts":{us_text(start - self._zero_ns)},"dur":{us_text(end - start)},'
            f'"name":{name},"cat":"{category}","args":{args}}}'
        )

    def _trigger(self, track: EventTrack, trigger: TraceTrigger) -> str:
        # The event has a track of its own: Perfetto gives the track of global instants no name.
        slow = summary(self._trace)
        args = {}
        if slow is not None:
            args = {"probe": slow.probe, "call": slow.call, "phase": str(slow.phase)}
            args |= {"duration": duration_ns(slow.ns), "delay_cause": slow.cause}
            args = {name: value for name, value in args.items() if value}
        at = us_text(max(trigger.began_ns - self._zero_ns, 0))
        return f'{{"ph":"i",{track},"ts":{at},"s":"t","name":"trigger","cat":"trigger","args":{json_text(args)}}}'

    def _flows(self) -> tuple[Int64s, Int64s, Int64s]:
        """The flow that leads to each row of work, 0 for none; the flows in the order of their calls; and these."""
        callers, work = callers_of(self._trace), self._trace.work
        # The GPU's clock is converted to the host's with an error.
        called = np.flatnonzero((callers >= 0) & (work["end_ns"] >= work["began_ns"]))
        flows = np.zeros(len(callers), dtype=np.int64)
        flows[called] = list(islice(self._flow_numbers, len(called)))
        order = called[np.argsort(callers[called], kind="stable")]
        return flows, flows[order], callers[order]

    def _calls(self, number: int, track: EventTrack) -> Iterator[str]:
        trace = self._trace
        names = [json_text(name) for name in trace.probes[number].ops]
        rows = np.flatnonzero(trace.calls["probe"] == number)
        callers, at = self._callers, 0
        for row, (_, op, iteration, began, returned, measured) in _numbered(trace.calls, rows):
            args = f'{{"iteration":{iteration},"measured":{"true" if measured else "false"}}}'
            name = names[op] if op < len(names) else '"call"'
            yield self._complete(track, began, returned, name, "call", args)
            while at < len(callers) and callers[at] <= row:
                if callers[at] == row:
                    yield self._flow(track, began, int(self._leaving[at]), "s")
                at += 1
        last_ns = max(int(trace.calls["returned_ns"][rows].max(initial=0)), self._begin_ns)
        for flight in trace.open_calls:
            since = max(flight.since_ns, last_ns)
            if flight.probe == number and since < trace.end_ns:
                name = names[flight.op] if flight.op < len(names) else '"call"'
                yield self._complete(track, since, trace.end_ns, name, "call", '{"in_flight":true}')

    def _flow(self, track: EventTrack, at: int, flow: int, phase: str) -> str:
        bound = ',"bp":"e"' if phase == "f" else ""
        head = f'"ph":"{phase}",{track},"ts":{us_text(at - self._zero_ns)}'
        return f'{{{head},"id":{flow},"name":"submits","cat":"flow"{bound}}}'

    def _work(self, rows: Int64s, track: EventTrack) -> Iterator[str]:
        table, names = self._trace.work, cache(self._work_name)
        for row, columns in _numbered(table, rows):
            values = WorkRow(*columns)
            start = values.start_ns
            kernel = self._trace.kernels.get(values.sequence, "")
            name = names(values.probe, values.kind, values.subkind, kernel)
            args = f"{{{','.join(self._work_args(row, values))}}}"
            yield self._complete(track, start, values.end_ns, name, "gpu", args)
            flow = int(self._flow_of_work[row])
            if flow:
                yield self._flow(track, max(start, values.began_ns), flow, "f")

    def _work_name(self, probe: int, kind: int, copy: int, kernel: str) -> str:
        label = kernel or labels.work_kind_label(kind, copy)
        return json_text(f"{self._trace.probes[probe].name}: {label}" if probe >= 0 else label)

    def _work_args(self, row: int, values: WorkRow) -> Iterator[str]:
        """The members of the arguments of a piece of work."""
        if values.kind != RecordKind.KERNEL:
            yield f'"bytes":{values.bytes}'
        if place := self._copies(values.kind, values.subkind, values.memory):
            yield place
        if values.probe < 0:
            return
        delay = values.start_ns - values.returned_ns
        yield f'"iteration":{values.iteration},"delay_us":{"-" if delay < 0 else ""}{us_text(abs(delay))}'
        if delay >= _SHORT_NS and (cause := self._delays.cause_text(row)):
            yield f'"delay_cause":{self._causes(cause)}'

    def _open_work(self, key: RowKey, track: EventTrack) -> str:
        """The open work of a stream as one event, as pictures show it."""
        trace, span = self._trace, self._open_span(key)
        assert span is not None
        waiting = [each for each in trace.open_work if (each.context, each.stream) == (key.number, key.stream)]
        names = [f"{trace.probes[each.probe].name}: {op_label(trace.probes, each.probe, each.op)}" for each in waiting]
        args: dict[str, object] = {"unfinished": True, "calls": sum(each.calls for each in waiting)}
        if min(each.since_ns for each in waiting) < self._begin_ns:
            args["since_before_the_trace"] = True
        return self._complete(
            track, *span, json_text(f"{', '.join(names)} (unfinished)"), "unfinished", json_text(args)
        )

    def _tenures(self, context: int, track: EventTrack) -> Iterator[str]:
        name = json_text(f"context {self._trace.names.context(context).removeprefix('context ')}")
        for holder, start, end in self._trace.tenures.tolist():
            begin, stop = max(start, self._begin_ns), min(end, self._end_ns)
            if holder == context and stop > begin:
                args = {"since_before_the_trace": True} if start < begin else {}
                args |= {"until_after_the_trace": True} if end == OPEN else {}
                yield self._complete(track, begin, stop, name, "engine", json_text(args))


def _numbered(table: Rows, rows: Int64s) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The ``rows`` of a table with their numbers, as tuples."""
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS]
        yield from zip(part.tolist(), table[part].tolist(), strict=True)


def _separated(rows: Rows) -> list[Int64s]:
    """The numbers of ``rows`` in the fewest lists that separate overlapping rows; they are in the order of their
    starts."""
    ends = np.maximum.accumulate(rows["end_ns"])
    if (rows["start_ns"][1:] >= ends[:-1]).all():
        return [np.arange(len(rows))]
    parts: list[list[int]] = []
    free_ns: list[int] = []
    for number, (begin, stop) in enumerate(rows[["start_ns", "end_ns"]].tolist()):
        chosen = next((part for part, free in enumerate(free_ns) if free <= begin), len(parts))
        if chosen == len(parts):
            parts.append([])
            free_ns.append(0)
        parts[chosen].append(number)
        free_ns[chosen] = stop
    return [np.array(part, dtype=np.int64) for part in parts]


def _copy_args(kind: int, copy: int, memory: int) -> str:
    """The members that say which way a copy went, by these columns of its row; "" for other work."""
    direction = labels.copy_label(kind, copy)
    if not direction:
        return ""
    source, target = labels.memory_labels(memory)
    args = {"direction": direction, "from": source or "unknown", "to": target or "unknown"}
    return json_text(args)[1:-1]
