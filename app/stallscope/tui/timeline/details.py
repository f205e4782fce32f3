"""Details of the selected interval: its kind, time and duration, and the causes of its work's delay."""

from __future__ import annotations

import time
from collections.abc import Iterator

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.records.rows import Rows
from stallprobes.traces.delay import Delay, calls_beside, cause_text, delay_of, delay_text
from stallprobes.traces.labels import copy_label, memory_labels, overhead_label, work_kind_label
from stallprobes.traces.rows import NO_NUMBER, RowKey, RowKind
from stallprobes.traces.trace import OpenWork, Trace, TracedProbe, op_label
from stallprobes.units import duration_ns, plural, size_text
from stallscope.tui.timeline.view_model import RowIntervals, Selection, TraceView, selected_index, selected_work

# Largest number of parts of a delay, and of calls beside the selected call, that the details of the timeline name.
_MOST_PARTS = 3


def clock_text(wall_s: float) -> str:
    """A time of the day with microseconds."""
    whole, part = divmod(round(wall_s * 1e6), 1_000_000)
    return f"{time.strftime('%H:%M:%S', time.localtime(whole))}.{part:06}"


def offset_text(ns: int) -> str:
    """A time relative to another: ``+2264.310 µs``, ``-1.200 µs``."""
    return f"{ns / 1000:+.3f} µs"


def work_text(trace: Trace, work: Rows) -> str:
    """Description of a piece of GPU work: ``D2D copy, 1.00 MiB, device to device memory``."""
    kind, copy, nbytes = int(work["kind"]), int(work["subkind"]), int(work["bytes"])
    words = [work_kind_label(kind, copy)]
    if int(work["sequence"]) in trace.kernels:
        words = [f"kernel {trace.kernels[int(work['sequence'])]}"]
    if kind != RecordKind.KERNEL and nbytes > 0:
        words.append(size_text(nbytes))
    if copy_label(kind, copy):
        source, target = memory_labels(int(work["memory"]))
        if source and target:
            words.append(f"{source} to {target} memory")
    return ", ".join(words)


def detail_texts(view: TraceView) -> tuple[tuple[str, str], ...]:
    """The details as (title, text), the most important first."""
    trace, selection = view.trace, view.selection
    if trace is None or selection is None:
        return ()
    spans = RowIntervals(trace, view.limits)
    name = view.rows.get(selection.row)
    if name is None:
        return ()
    index = selected_index(spans, selection)
    if index is None:
        return ((name, _row_text(trace, selection.row, None if view.live else spans)),)
    part = spans[selection.row]
    start, end, number = int(part.starts[index]), int(part.ends[index]), int(part.numbers[index])
    when = f"{clock_text(trace.wall_s(start))}, {offset_text(start - view.zero_ns)}"
    out = [(name, f"{_what(trace, selection, number, start, end)} · began {when}")]
    work = selected_work(trace, spans, selection)
    if work is not None:
        out.extend(_work_texts(trace, work, selection, view.zero_ns))
    if selection.row.kind is RowKind.CALLS and number != NO_NUMBER:
        out.extend(_beside_texts(trace, number))
    return tuple(out)


def _row_text(trace: Trace, key: RowKey, spans: RowIntervals | None) -> str:
    """The content of the row; ``spans`` is None for a trace that moves."""
    count = 0 if spans is None else len(spans[key].starts)
    counted = plural(count, "call") if key.kind is RowKind.CALLS else str(count)
    words = f"{counted} in the trace; , and . select one" if count else "none in the trace"
    if spans is None:
        words = "t freezes on the next slow call; p, w or a click freezes now"
    if key.kind is RowKind.COUNTER:
        return "simulated" if trace.simulated else "NVML's counter of the whole GPU, with all its processes"
    if key.kind is RowKind.CALLS:
        return f"{', '.join(dict.fromkeys(trace.probes[key.number].ops))}; {words}"
    return "; ".join((f"{key.kind}: {words}", *_open_texts(trace, key)))


def _open_texts(trace: Trace, key: RowKey) -> Iterator[str]:
    """The open work of a stream; nothing for other rows."""
    for work in trace.open_work:
        if key == RowKey(RowKind.WORK, work.context, work.stream):
            yield _open_work_text(trace, work)


def _open_work_text(trace: Trace, work: OpenWork) -> str:
    """Description of open work, with the time for which it has had no record at the end of the trace."""
    call = f"{trace.probes[work.probe].name} {op_label(trace.probes, work.probe, work.op)}"
    calls = f" and of {plural(work.calls - 1, 'later call')}" if work.calls > 1 else ""
    age = duration_ns(min(trace.end_ns, trace.collected_ns) - work.since_ns)
    return f"The GPU work of {call}{calls} has no record after {age}, so it waits or runs"


def _what(trace: Trace, selection: Selection, number: int, start: int, end: int) -> str:
    took = duration_ns(end - start)
    match selection.row.kind:
        case RowKind.CALLS if number == NO_NUMBER:
            flight = next(call for call in trace.open_calls if call.since_ns == start)
            return f"{op_label(trace.probes, flight.probe, flight.op)} · in flight for {took}, has not returned"
        case RowKind.CALLS:
            op, iteration = trace.calls[number][["op", "iteration"]].tolist()
            probe = trace.probes[selection.row.number]
            what = "wait" if probe.waits(op) else "call"
            name = op_label(trace.probes, selection.row.number, op)
            return f"{name}{_iteration_text(probe, iteration)} · {what} {took}"
        case RowKind.WORK if number == NO_NUMBER:
            return "; ".join(_open_texts(trace, selection.row))
        case RowKind.WORK:
            return f"{work_text(trace, trace.work[number])} · on the GPU for {took}"
        case RowKind.TENURES:
            return f"had the graphics engine for {took}"
        case RowKind.FOREIGN:
            by = f"; NVML names {', '.join(trace.others)}" if trace.others else ""
            return f"work waited, and no context of this program had the engine, for {took}{by}"
        case RowKind.COUNTER:
            return ""
        case RowKind.OVERHEADS:
            return f"{overhead_label(int(trace.overheads['subkind'][number]))} · {took}"


def _work_texts(trace: Trace, work: Rows, selection: Selection, zero_ns: int) -> Iterator[tuple[str, str]]:
    delay = delay_of(trace, work)
    if delay is not None:
        yield "delay", _delay_text(trace, delay)
    start, end = int(work["start_ns"]), int(work["end_ns"])
    if selection.row.kind is RowKind.CALLS:
        where = f"{trace.names.context(int(work['context']))} · "
        where += trace.names.stream(int(work["context"]), int(work["stream"]))
        text = f"{work_text(trace, work)} on {where} · started {offset_text(start - zero_ns)}"
        yield "GPU", f"{text} · on the GPU for {duration_ns(end - start)}"
    elif work["probe"] >= 0:
        probe = trace.probes[int(work["probe"])]
        op = op_label(trace.probes, int(work["probe"]), int(work["op"]))
        yield "call", f"{probe.name}: {op}{_iteration_text(probe, int(work['iteration']))}"


def _iteration_text(probe: TracedProbe, iteration: int) -> str:
    """The iteration of a call; a watched thread has none."""
    return "" if probe.process else f" · iteration {iteration}"


def _delay_text(trace: Trace, delay: Delay) -> str:
    """The delay with its main cause, and its other parts where they are more than a change between contexts."""
    text = delay_text(trace, delay)
    total: dict[str, int] = {}
    for part in delay.parts:
        cause = cause_text(trace, part)
        total[cause] = total.get(cause, 0) + part.ns
    if len(total) < 2:
        return text
    parts = sorted(total.items(), key=lambda entry: -entry[1])[:_MOST_PARTS]
    return f"{text} ({'; '.join(f'{duration_ns(ns)} {cause}' for cause, ns in parts)})"


def _beside_texts(trace: Trace, number: int) -> Iterator[tuple[str, str]]:
    beside = calls_beside(trace, number)[:_MOST_PARTS]
    if beside:
        words = [f"{other} {duration_ns(overlap_ns)}" for other, overlap_ns in beside]
        shared = trace.probes[trace.calls["probe"][number]].shared
        yield "beside", f"{'; '.join(words)} in the same {shared} at the same time"
