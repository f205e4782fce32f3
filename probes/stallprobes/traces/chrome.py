"""Chrome trace: traces as a file of the Trace Event Format, which Perfetto and chrome://tracing open.

The format is JSON: {"traceEvents": [...], "displayTimeUnit": "ns", "otherData": {...}}. It has rules that a trace must
be made to fit:

- Complete events ("X") of one thread must nest. A call, a piece of work or a tenure is an event; work of one stream
  that overlaps is put on further threads.
- Perfetto finds a thread by its number alone, so the numbers of processes and threads are all different.
- A flow's start ("s") and end ("f" with "bp": "e") belong to the events that enclose them, and follow them in the
  file.
- Times are microseconds. They are written as decimals of exactly three digits and count from the earliest event, so
  that no reader loses nanoseconds to floating point; "displayTimeUnit" comes last, since old versions of Perfetto took
  the times for nanoseconds where it came first.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np

from stallprobes.engine.timeline.records import RecordKind
from stallprobes.files import atomic, compression
from stallprobes.foreign_text import escaped_json
from stallprobes.traces import labels
from stallprobes.traces.delay import foreign_gaps
from stallprobes.traces.delay_index import DelayIndex
from stallprobes.traces.trace import (
    CALL_BEGAN,
    CALL_OP,
    CALL_PROBE,
    CALL_RETURNED,
    OPEN,
    OVERHEAD_END,
    OVERHEAD_START,
    TENURE_CONTEXT,
    WORK_BYTES,
    WORK_CONTEXT,
    WORK_COPY,
    WORK_DEVICE,
    WORK_END,
    WORK_ITERATION,
    WORK_KIND,
    WORK_MEMORY,
    WORK_NUMBER,
    WORK_PROBE,
    WORK_RETURNED,
    WORK_START,
    WORK_STREAM,
    Int64s,
    Trace,
    callers_of,
    op_label,
)
from stallprobes.units import duration_ns

# A chunk has about this many bytes.
CHUNK = 1 << 17
_ROWS = 2048
# The GPU needs a few microseconds to start work: shorter delays get no cause.
_SHORT_NS = 10_000
# Between the traces of a file that has several.
_PAUSE_NS = 100_000_000


_Key = TypeVar("_Key")


@dataclass(frozen=True, eq=False)
class TitledTrace:
    """A trace of a file. ``title`` tells it from the others of the file; "" if it is the only one."""

    trace: Trace
    title: str = ""


def save(traces: Sequence[TitledTrace], path: Path | str, about: Mapping[str, object], *, force: bool = False) -> None:
    """Write ``traces``, one after the other on the time axis, to the file ``path``, atomically.

    It is compressed with gzip if its name ends in ``.gz``. ``about`` says what was measured, and with what. Raises
    FileNotWritten.
    """
    atomic.write(Path(path), compression.for_name(path, chunks(traces, about)), force=force)


def chunks(traces: Sequence[TitledTrace], about: Mapping[str, object]) -> Iterator[bytes]:
    """The file's text in pieces of about CHUNK bytes; arguments as those of ``save``."""
    held: list[str] = []
    size = 0
    for line in _lines(traces, about):
        held.append(line)
        size += len(line)
        if size >= CHUNK:
            yield "".join(held).encode()
            held, size = [], 0
    yield "".join(held).encode()


def _lines(traces: Sequence[TitledTrace], about: Mapping[str, object]) -> Iterator[str]:
    numbers = _Numbers()
    described = []
    offset_ns = 0
    yield '{"traceEvents":['
    first = True
    for titled in traces:
        part = _Part(titled, numbers, offset_ns)
        for event in part.events():
            yield f"\n{event}" if first else f",\n{event}"
            first = False
        described.append(part.description())
        offset_ns += part.length_ns + _PAUSE_NS
    other = {**about, "traces": described}
    yield f'\n],"otherData":{_json(other)},"displayTimeUnit":"ns"}}\n'


class _Numbers:
    """Numbers of the processes, threads and flows of a file."""

    def __init__(self) -> None:
        self._next, self._flow = count(1), 0

    def next(self) -> int:
        return next(self._next)

    def flows(self, number: int) -> int:
        """The first of ``number`` new flows."""
        first, self._flow = self._flow + 1, self._flow + number
        return first


@dataclass(frozen=True)
class _Track:
    """A thread of the file: its head is what all its events begin with."""

    process: int
    thread: int

    @property
    def head(self) -> str:
        return f'"pid":{self.process},"tid":{self.thread}'


class _Cache(dict[_Key, str]):
    """Texts by what they are made of; ``made`` makes one that is missing."""

    def __init__(self, made: Callable[[_Key], str]) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, key: _Key) -> str:
        text = self[key] = self._made(key)
        return text


class _Part:
    """The events of one trace, from ``offset_ns`` of the file's time on."""

    def __init__(self, titled: TitledTrace, numbers: _Numbers, offset_ns: int) -> None:
        self._trace = trace = titled.trace
        self._title = f"{titled.title}: " if titled.title else ""
        self._suffix = " (SIMULATED)" if trace.simulated else ""
        self._numbers = numbers
        starts = [rows[:, start].min() for rows, start, _ in self._rows() if len(rows)]
        ends = [rows[:, end].max() for rows, _, end in self._rows() if len(rows)]
        self._begin_ns = int(min([trace.begin_ns, *starts]))
        self._end_ns = int(max([trace.end_ns, *ends]))
        self._zero_ns = self._begin_ns - offset_ns
        self._metadata: list[str] = []
        self._processes = 0
        self._delays = DelayIndex(trace)
        self._copies, self._causes = _Cache(_copy_args), _Cache(_json)
        self._flow_of_work, self._leaving, self._callers = self._flows()

    @property
    def length_ns(self) -> int:
        """The time from the first event's start to the last one's end."""
        return self._end_ns - self._begin_ns

    def _rows(self) -> tuple[tuple[Int64s, int, int], ...]:
        """What is not cut at the borders of the trace, with the columns of starts and ends."""
        trace = self._trace
        return (
            (trace.calls, CALL_BEGAN, CALL_RETURNED),
            (trace.work, WORK_START, WORK_END),
            (trace.overheads, OVERHEAD_START, OVERHEAD_END),
        )

    def description(self) -> dict[str, object]:
        """What the file says about the trace as a whole."""
        trace = self._trace
        begin = datetime.datetime.fromtimestamp(trace.wall_s(self._begin_ns), datetime.UTC)
        return {
            **({"title": self._title.removesuffix(": ")} if self._title else {}),
            "simulated": trace.simulated,
            "begin": begin.isoformat(timespec="microseconds"),
            "begin_us": float(_us(self._begin_ns - self._zero_ns)),
            "begin_monotonic_ns": self._begin_ns,
            "calls": len(trace.calls),
            "gpu_work": len(trace.work),
            "gpu_work_complete_until_us": float(_us(max(trace.collected_ns - self._zero_ns, 0))),
            "context_switches_recorded": trace.context_switches,
            "other_processes": list(trace.others),
            "losses": asdict(trace.losses),
        }

    def events(self) -> Iterator[str]:
        """All events; the names of processes and threads come before those that happen there."""
        host = self._process("host")
        threads = [self._thread(host, probe.title or probe.name) for probe in self._trace.probes]
        streams = self._stream_tracks()
        engines, other = streams.engines, None
        gaps = foreign_gaps(self._trace)
        if gaps:
            other = self._thread(self._process("another process"), "graphics engine")
        overheads = []
        if len(self._trace.overheads):
            parts = _separated(self._trace.overheads, OVERHEAD_START, OVERHEAD_END)
            overheads = [(self._thread(host, "driver overhead"), rows) for rows in parts]
        yield from self._metadata
        yield from self._trigger(threads)
        for number, track in enumerate(threads):
            yield from self._calls(number, track)
        for track, rows in streams.tracks:
            yield from self._work(rows, track)
        for context, track in engines.items():
            yield from self._tenures(context, track)
        if other is not None:
            for gap in gaps:
                args = {"candidates": ", ".join(self._trace.others)} if self._trace.others else {}
                yield self._complete(other, gap.begin_ns, gap.end_ns, '"another process"', "engine", _json(args))
        for track, rows in overheads:
            for _, reason, start, end in self._trace.overheads[rows].tolist():
                yield self._complete(track, start, end, _json(labels.overhead_label(reason)), "overhead", "{}")

    # The names of processes and threads.

    def _process(self, name: str) -> int:
        number = self._numbers.next()
        named = _json({"name": f"{self._title}{name}{self._suffix}"})
        self._metadata.append(f'{{"ph":"M","pid":{number},"name":"process_name","args":{named}}}')
        order = f'{{"sort_index":{number}}}'
        self._metadata.append(f'{{"ph":"M","pid":{number},"name":"process_sort_index","args":{order}}}')
        return number

    def _thread(self, process: int, name: str) -> _Track:
        track = _Track(process, self._numbers.next())
        self._metadata.append(f'{{"ph":"M",{track.head},"name":"thread_name","args":{_json({"name": name})}}}')
        order = f'{{"sort_index":{track.thread}}}'
        self._metadata.append(f'{{"ph":"M",{track.head},"name":"thread_sort_index","args":{order}}}')
        return track

    def _stream_tracks(self) -> _StreamTracks:
        """A process for each context, with a thread for the graphics engine and one or more for each stream."""
        trace = self._trace
        work = trace.work
        found = _StreamTracks([], {})
        places = np.unique(work[:, [WORK_DEVICE, WORK_CONTEXT]], axis=0).tolist()
        worked = {context for _, context in places}
        held = np.unique(trace.tenures[:, TENURE_CONTEXT]).tolist()
        places += [[0, context] for context in held if context not in worked]
        for device, context in places:
            process = self._process(f"GPU {device}, context {trace.names.context(context)}")
            if context in held:
                found.engines[context] = self._thread(process, "has the graphics engine")
            own = np.flatnonzero((work[:, WORK_CONTEXT] == context) & (work[:, WORK_DEVICE] == device))
            for stream in np.unique(work[own, WORK_STREAM]).tolist():
                rows = own[work[own, WORK_STREAM] == stream]
                users = labels.stream_users(trace, rows)
                name = f"stream {trace.names.stream(context, stream).removeprefix('stream ')}"
                name += f" ({users})" if users else ""
                for number, part in enumerate(_separated(work[rows], WORK_START, WORK_END)):
                    track = self._thread(process, name if not number else f"{name}, overlap {number}")
                    found.tracks.append((track, rows[part]))
        return found

    # The events.

    def _complete(self, track: _Track, start: int, end: int, name: str, category: str, args: str) -> str:
        return (
            f'{{"ph":"X",{track.head},"ts":{_us(start - self._zero_ns)},"dur":{_us(end - start)},'
            f'"name":{name},"cat":"{category}","args":{args}}}'
        )

    def _trigger(self, threads: Sequence[_Track]) -> Iterator[str]:
        trace, trigger = self._trace, self._trace.trigger
        if trigger is None:
            return
        number = trace.trigger_call()
        args = {"probe": trace.probes[trigger.probe].name}
        if number is not None:
            args["call"] = op_label(trace.probes, *trace.calls[number, [CALL_PROBE, CALL_OP]].tolist())
        args["duration"] = duration_ns(trigger.returned_ns - trigger.began_ns)
        at = _us(max(trigger.began_ns - self._zero_ns, 0))
        head = threads[trigger.probe].head
        yield f'{{"ph":"i",{head},"ts":{at},"s":"g","name":"trigger","cat":"trigger","args":{_json(args)}}}'

    def _flows(self) -> tuple[Int64s, Int64s, Int64s]:
        """The flow that leads to each row of work, 0 for none; the flows in the order of their calls; and these."""
        callers = callers_of(self._trace)
        called = np.flatnonzero(callers >= 0)
        flows = np.zeros(len(callers), dtype=np.int64)
        flows[called] = self._numbers.flows(len(called)) + np.arange(len(called))
        order = called[np.argsort(callers[called], kind="stable")]
        return flows, flows[order], callers[order]

    def _calls(self, number: int, track: _Track) -> Iterator[str]:
        trace = self._trace
        names = [_json(name) for name in trace.probes[number].ops]
        rows = np.flatnonzero(trace.calls[:, CALL_PROBE] == number)
        callers, at = self._callers, 0
        for row, (_, op, iteration, began, returned, measured) in _numbered(trace.calls, rows):
            args = f'{{"iteration":{iteration},"measured":{"true" if measured else "false"}}}'
            name = names[op] if op < len(names) else '"call"'
            yield self._complete(track, began, returned, name, "call", args)
            while at < len(callers) and callers[at] <= row:
                if callers[at] == row:
                    yield self._flow(track, began, int(self._leaving[at]), "s")
                at += 1
        for flight in trace.open_calls:
            if flight.probe == number and flight.since_ns < trace.end_ns:
                since = max(flight.since_ns, self._begin_ns)
                name = names[flight.op] if flight.op < len(names) else '"call"'
                yield self._complete(track, since, trace.end_ns, name, "call", '{"in_flight":true}')

    def _flow(self, track: _Track, at: int, flow: int, phase: str) -> str:
        bound = ',"bp":"e"' if phase == "f" else ""
        head = f'"ph":"{phase}",{track.head},"ts":{_us(at - self._zero_ns)}'
        return f'{{{head},"id":{flow},"name":"submits","cat":"flow"{bound}}}'

    def _work(self, rows: Int64s, track: _Track) -> Iterator[str]:
        table, names = self._trace.work, _Cache(self._work_name)
        for row, values in _numbered(table, rows):
            start = values[WORK_START]
            kernel = self._trace.kernels.get(values[WORK_NUMBER], "")
            name = names[values[WORK_PROBE], values[WORK_KIND], values[WORK_COPY], kernel]
            args = f"{{{','.join(self._work_args(row, values))}}}"
            yield self._complete(track, start, values[WORK_END], name, "gpu", args)
            flow = int(self._flow_of_work[row])
            if flow:
                yield self._flow(track, start, flow, "f")

    def _work_name(self, key: tuple[int, int, int, str]) -> str:
        probe, kind, copy, kernel = key
        label = kernel or labels.work_kind_label(kind, copy)
        return _json(f"{self._trace.probes[probe].name}: {label}" if probe >= 0 else label)

    def _work_args(self, row: int, values: Sequence[int]) -> Iterator[str]:
        """The members of the arguments of a piece of work."""
        if values[WORK_KIND] != RecordKind.KERNEL:
            yield f'"bytes":{values[WORK_BYTES]}'
        if place := self._copies[values[WORK_KIND], values[WORK_COPY], values[WORK_MEMORY]]:
            yield place
        if values[WORK_PROBE] < 0:
            return
        delay = values[WORK_START] - values[WORK_RETURNED]
        yield f'"iteration":{values[WORK_ITERATION]},"delay_us":{"-" if delay < 0 else ""}{_us(abs(delay))}'
        if delay >= _SHORT_NS and (cause := self._delays.cause_text(row)):
            yield f'"delay_cause":{self._causes[cause]}'

    def _tenures(self, context: int, track: _Track) -> Iterator[str]:
        name = _json(f"context {self._trace.names.context(context).removeprefix('context ')}")
        for holder, start, end in self._trace.tenures.tolist():
            begin, stop = max(start, self._begin_ns), min(end, self._end_ns)
            if holder == context and stop > begin:
                args = {"since_before_the_trace": True} if start < begin else {}
                args |= {"until_after_the_trace": True} if end == OPEN else {}
                yield self._complete(track, begin, stop, name, "engine", _json(args))


@dataclass(frozen=True)
class _StreamTracks:
    """The tracks of all streams, each with its rows of work, and those of the contexts' tenures."""

    tracks: list[tuple[_Track, Int64s]]
    engines: dict[int, _Track]


def _numbered(table: Int64s, rows: Int64s) -> Iterator[tuple[int, list[int]]]:
    """The ``rows`` of a table with their numbers, in pieces as lists."""
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS]
        yield from zip(part.tolist(), table[part].tolist(), strict=True)


def _separated(rows: Int64s, start: int, end: int) -> list[Int64s]:
    """The numbers of ``rows`` in as few lists as keep apart what overlaps; they are in the order of their starts."""
    ends = np.maximum.accumulate(rows[:, end])
    if (rows[1:, start] >= ends[:-1]).all():
        return [np.arange(len(rows))]
    parts: list[list[int]] = []
    free_ns: list[int] = []
    for number, (begin, stop) in enumerate(rows[:, [start, end]].tolist()):
        chosen = next((part for part, free in enumerate(free_ns) if free <= begin), len(parts))
        if chosen == len(parts):
            parts.append([])
            free_ns.append(0)
        parts[chosen].append(number)
        free_ns[chosen] = stop
    return [np.array(part, dtype=np.int64) for part in parts]


def _copy_args(key: tuple[int, int, int]) -> str:
    """The members that say which way a copy went; "" for other work. ``key``: kind, direction and memory of a row."""
    kind, copy, memory = key
    direction = labels.copy_label(kind, copy)
    if not direction:
        return ""
    source, target = labels.memory_labels(memory)
    args = {"direction": direction, "from": source or "unknown", "to": target or "unknown"}
    return _json(args)[1:-1]


def _us(ns: int) -> str:
    """``ns``, not negative, as microseconds with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _json(value: object) -> str:
    return escaped_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
