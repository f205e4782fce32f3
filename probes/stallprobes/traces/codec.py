"""Codec of traces: JSON with columns of integers, and back with a check of every value.

Times are differences: the start of a row to that of the row before it, the first one to the beginning of the span; an
end to its start. A column whose values are all equal holds one. What ``read_trace`` returns is consistent: rows are in
the order of their starts, and numbers of probes and operations are within the trace's own tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields, replace
from typing import Any

import numpy as np

from stallprobes.files.json_reader import Node, clean
from stallprobes.model import Phase, Role
from stallprobes.native.layouts.cupti import GPU_WORK
from stallprobes.records.rows import CALL, OVERHEAD, TENURE, WORK, Rows
from stallprobes.records.timeline import TimelineLosses
from stallprobes.traces.trace import (
    OPEN,
    Int64s,
    OpenCall,
    OpenWork,
    Trace,
    TracedProbe,
    TraceNames,
    TraceTrigger,
)

# Rows of a trace that is stored: calls, work, tenures and overheads together.
MOST_ROWS = 20_000

_LONGEST_TEXT = 4000
_MOST_PROBES = 64
_MOST_OPS = 64
_MOST_NAMES = 1000
_LATEST_NS = 1 << 60
_LATEST_S = 1e10
# 28 hours: no sum over the rows exceeds an int64.
_LONGEST_NS = 10**14
_WORD = 1 << 53
_DURATION = (0, _LONGEST_NS)
_ANY = (-_WORD, _WORD)
_KINDS = np.array(sorted(GPU_WORK), dtype=np.int64)

# Columns that are stored as they are, with their limits, by the key of their table.
_PLAIN: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "calls": {
        "probe": (0, _MOST_PROBES),
        "op": (0, _MOST_OPS),
        "iteration": (-1, _WORD),
        "measured": (0, 1),
    },
    "work": {
        "kind": (0, 1000),
        "device": _ANY,
        "context": _ANY,
        "stream": _ANY,
        "probe": (-1, _MOST_PROBES),
        "op": (-1, _MOST_OPS),
        "iteration": (-1, _WORD),
        "subkind": (0, _WORD),
        "memory": (0, _WORD),
        "bytes": (0, _WORD),
    },
    "tenures": {"context": _ANY},
    "overheads": {"subkind": _ANY},
}
# Columns that count up, stored as differences.
_COUNTED: Mapping[str, tuple[str, ...]] = {
    "calls": (),
    "work": ("sequence", "correlation"),
    "tenures": (),
    "overheads": ("sequence",),
}
_COLUMNS = {
    "calls": (CALL, "began_ns", "returned_ns"),
    "work": (WORK, "start_ns", "end_ns"),
    "tenures": (TENURE, "start_ns", "end_ns"),
    "overheads": (OVERHEAD, "start_ns", "end_ns"),
}


def rows(trace: Trace) -> int:
    """The number of rows of all kinds."""
    return len(trace.calls) + len(trace.work) + len(trace.tenures) + len(trace.overheads)


def cut(trace: Trace, most: int = MOST_ROWS) -> Trace:
    """The largest part of ``trace`` around its trigger that has at most ``most`` rows; ``trace`` itself if it has.

    If the call of the trigger alone has more beside it, the part ends where its latency does.
    """
    if rows(trace) <= most:
        return trace
    began_ns, end_ns = _focus(trace)
    whole = rows(trace.between(began_ns, end_ns)) <= most
    # Of the time before and after the focus, or before its end, the largest share with few enough rows.
    low, high = 0.0, 1.0
    found = trace.between(end_ns, end_ns)
    for _ in range(24):
        share = (low + high) / 2
        if whole:
            first_ns = began_ns - round(share * (began_ns - trace.begin_ns))
            part = trace.between(first_ns, end_ns + round(share * (trace.end_ns - end_ns)))
        else:
            part = trace.between(end_ns - round(share * (end_ns - began_ns)), end_ns)
        if rows(part) <= most:
            low, found = share, part
        else:
            high = share
    return found if rows(found) <= most else _truncated(found, most)


def _focus(trace: Trace) -> tuple[int, int]:
    """When the call of the trigger began, and when it and its work had started; the middle without a trigger."""
    if trace.trigger is None:
        middle = (trace.begin_ns + trace.end_ns) // 2
        return middle, middle
    began_ns, end_ns = trace.trigger.began_ns, trace.trigger.returned_ns
    own = trace.work[(trace.work["probe"] == trace.trigger.probe) & (trace.work["began_ns"] == began_ns)]
    end_ns = max(end_ns, int(own["start_ns"].max(initial=end_ns)))
    end_ns = min(max(end_ns, trace.begin_ns), trace.end_ns)
    return min(max(began_ns, trace.begin_ns), end_ns), end_ns


def _truncated(trace: Trace, most: int) -> Trace:
    """``trace`` with the first rows of each kind only."""
    each = most // 4
    return replace(
        trace,
        calls=trace.calls[:each],
        work=trace.work[:each],
        tenures=trace.tenures[:each],
        overheads=trace.overheads[:each],
    )


# Writing.


def trace_out(trace: Trace) -> dict[str, Any]:
    """``trace`` as JSON types; rows that end before they begin are left out."""
    out: dict[str, Any] = {
        "begin": trace.begin_ns,
        "end": trace.end_ns,
        "collected": trace.collected_ns,
        "offset": round(trace.wall_offset_s, 6),
        "simulated": trace.simulated,
        "switches": trace.context_switches,
        "losses": list(astuple(trace.losses)),
        "probes": [_probe_out(probe) for probe in trace.probes],
        "contexts": [[number, _foreign(name)] for number, name in trace.names.contexts.items()],
        "streams": [[*key, _foreign(name)] for key, name in trace.names.streams.items()],
        "others": [_foreign(name) for name in trace.others],
        "open": [[call.probe, call.op, call.since_ns] for call in trace.open_calls],
        "trigger": None if trace.trigger is None else list(astuple(trace.trigger)),
        "engine_since": min(trace.engine_since_ns, _LATEST_NS),
    }
    if trace.kernels:
        out["kernels"] = _kernels_out(trace)
    if trace.open_work:
        out["open_work"] = [list(astuple(work)) for work in trace.open_work]
    tables = {"calls": trace.calls, "work": trace.work, "tenures": trace.tenures, "overheads": trace.overheads}
    return out | {key: _table_out(key, table, trace.begin_ns) for key, table in tables.items()}


def _kernels_out(trace: Trace) -> list[Any]:
    """The names of kernels, and for each a list of the numbers of its work."""
    names: dict[str, list[int]] = {}
    for number in trace.work["sequence"].tolist():
        if number in trace.kernels:
            names.setdefault(_foreign(trace.kernels[number]), []).append(number)
    return [[name, numbers] for name, numbers in list(names.items())[:_MOST_NAMES]]


def _probe_out(probe: TracedProbe) -> list[Any]:
    ops = [
        [_foreign(name), None if phase is None else str(phase)]
        for name, phase in zip(probe.ops, probe.phases or (None,) * len(probe.ops), strict=True)
    ]
    names = [_foreign(text) for text in (probe.name, probe.title, probe.context, probe.stream)]
    return [*names[:2], str(probe.role), *names[2:], ops]


def _table_out(key: str, table: Rows, begin_ns: int) -> list[Any]:
    """The number of rows, and the columns in the order in which ``_read_table`` reads them."""
    _, start, end = _COLUMNS[key]
    table = table[table[end] >= table[start]]
    ends = table[end] - table[start]
    if key == "tenures":
        ends = np.where(table[end] == OPEN, -1, ends)
    columns = [np.diff(table[start], prepend=begin_ns), ends]
    columns += [np.diff(table[number], prepend=0) for number in _COUNTED[key]]
    columns += [table[number] for number in _PLAIN[key]]
    if key == "work":
        known = table["probe"] >= 0
        began, returned = table["began_ns"], table["returned_ns"]
        columns.append(np.where(known, table["start_ns"] - began, 0))
        columns.append(np.where(known & (returned >= began), returned - began, -1))
    return [len(table), *map(_packed, columns)]


def _packed(column: Int64s) -> list[int]:
    alike = len(column) > 0 and bool((column == column[0]).all())
    values: list[int] = column[:1].tolist() if alike else column.tolist()
    return values


def _foreign(text: str) -> str:
    return clean(text)[:_LONGEST_TEXT]


# Reading.


def read_trace(node: Node) -> Trace:
    """The trace that ``trace_out`` made. Raises MalformedJson, which names the place."""
    known = node.some(
        *("begin", "end", "collected", "offset", "simulated", "switches", "losses", "probes", "contexts", "streams"),
        *("others", "open", "trigger", "engine_since", *_COLUMNS),
        optional=("open_work", "kernels"),
    )
    begin_ns = known["begin"].whole(0, _LATEST_NS)
    end_ns = known["end"].whole(begin_ns, min(begin_ns + _LONGEST_NS, _LATEST_NS))
    probes = tuple(_probe(one) for one in known["probes"].items(_MOST_PROBES))
    ops = np.array([len(probe.ops) for probe in probes], dtype=np.int64)
    left = MOST_ROWS
    tables = {}
    for key in _COLUMNS:
        tables[key] = _table(known[key], key, begin_ns, end_ns, left)
        left -= len(tables[key])
    calls, work = tables["calls"], tables["work"]
    _check_numbers(known["calls"], calls["probe"], calls["op"], ops)
    submitted = work[work["probe"] >= 0]
    _check_numbers(known["work"], submitted["probe"], submitted["op"], ops)
    if not np.isin(work["kind"], _KINDS).all():
        raise known["work"].wrong("has a kind that is no work of a GPU")
    if len(np.unique(work["sequence"])) < len(work):
        raise known["work"].wrong("has a number twice")
    return Trace(
        begin_ns=begin_ns,
        end_ns=end_ns,
        collected_ns=known["collected"].whole(0, _LATEST_NS),
        probes=probes,
        names=_names(known["contexts"], known["streams"]),
        calls=calls,
        work=work,
        tenures=tables["tenures"],
        overheads=tables["overheads"],
        context_switches=known["switches"].flag(),
        losses=TimelineLosses(*_wholes(known["losses"], [(0, _WORD)] * len(fields(TimelineLosses)))),
        wall_offset_s=known["offset"].number(_LATEST_S),
        open_calls=tuple(_open_call(one, probes) for one in known["open"].items(_MOST_PROBES)),
        others=tuple(one.text(_LONGEST_TEXT) for one in known["others"].items(_MOST_NAMES)),
        trigger=_trigger(known["trigger"], probes),
        simulated=known["simulated"].flag(),
        engine_since_ns=known["engine_since"].whole(0, _LATEST_NS),
        open_work=_open_work(known["open_work"], probes) if "open_work" in known else (),
        kernels=_kernels(known["kernels"]) if "kernels" in known else {},
    )


def _probe(node: Node) -> TracedProbe:
    name, title, role, context, stream, ops = node.record(6)
    pairs = [one.record(2) for one in ops.items(_MOST_OPS)]
    return TracedProbe(
        name.name(),
        title.text(_LONGEST_TEXT),
        tuple(op.text(_LONGEST_TEXT) for op, _ in pairs),
        context.text(_LONGEST_TEXT),
        stream.text(_LONGEST_TEXT),
        role.choice(Role),
        tuple(None if phase.value is None else phase.choice(Phase) for _, phase in pairs),
    )


def _names(contexts: Node, streams: Node) -> TraceNames:
    named: dict[int, str] = {}
    for one in contexts.items(_MOST_NAMES):
        number, name = one.record(2)
        named[number.whole(*_ANY)] = name.text(_LONGEST_TEXT)
    of_streams: dict[tuple[int, int], str] = {}
    for one in streams.items(_MOST_NAMES):
        context, stream, name = one.record(3)
        of_streams[context.whole(*_ANY), stream.whole(*_ANY)] = name.text(_LONGEST_TEXT)
    return TraceNames(named, of_streams)


def _kernels(node: Node) -> dict[int, str]:
    found: dict[int, str] = {}
    for one in node.items(_MOST_NAMES):
        name, numbers = one.record(2)
        text = name.text(_LONGEST_TEXT)
        for number in numbers.items(MOST_ROWS):
            found[number.whole(*_ANY)] = text
    return found


def _open_call(node: Node, probes: Sequence[TracedProbe]) -> OpenCall:
    probe, op, since_ns = _wholes(node, [(0, len(probes) - 1), (0, _MOST_OPS), (0, _LATEST_NS)])
    if op >= len(probes[probe].ops):
        raise node.wrong(f"is of operation {op}, which the probe does not have")
    return OpenCall(probe, op, since_ns)


def _open_work(node: Node, probes: Sequence[TracedProbe]) -> tuple[OpenWork, ...]:
    found = []
    for one in node.items(_MOST_NAMES):
        limits = [(0, len(probes) - 1), (0, _MOST_OPS), _ANY, _ANY, _ANY, (0, _LATEST_NS), (1, _WORD)]
        work = OpenWork(*_wholes(one, limits))
        if work.op >= len(probes[work.probe].ops):
            raise one.wrong(f"is of operation {work.op}, which the probe does not have")
        found.append(work)
    return tuple(found)


def _trigger(node: Node, probes: Sequence[TracedProbe]) -> TraceTrigger | None:
    if node.value is None:
        return None
    probe, began_ns, returned_ns = _wholes(node, [(0, len(probes) - 1), (0, _LATEST_NS), (0, _LATEST_NS)])
    if returned_ns < began_ns:
        raise node.wrong("returned before it began")
    return TraceTrigger(probe, began_ns, returned_ns)


def _table(node: Node, key: str, begin_ns: int, end_ns: int, most: int) -> Rows:
    """The rows of a table, in the order of their starts and within the span at least in part."""
    shape, start, end = _COLUMNS[key]
    counted, plain = _COUNTED[key], _PLAIN[key]
    more = 2 if key == "work" else 0
    count, starts, ends, *rest = node.record(3 + len(counted) + len(plain) + more)
    length = count.whole(0, most)
    found = np.zeros(length, shape)
    steps = _column(starts, length, (-_LONGEST_NS, _LONGEST_NS))
    if (steps[1:] < 0).any():
        raise node.wrong("is not in the order of the starts")
    found[start] = begin_ns + np.cumsum(steps)
    lengths = _column(ends, length, (-1, _LONGEST_NS) if key == "tenures" else _DURATION)
    found[end] = np.where(lengths < 0, OPEN, found[start] + lengths)
    if (found[start] < 0).any() or (found[start] > end_ns).any() or (found[end] < begin_ns).any():
        raise node.wrong("has a row outside of the trace's span")
    for number, part in zip(counted, rest, strict=False):
        found[number] = np.cumsum(_column(part, length, (-_LONGEST_NS, _LONGEST_NS)))
    for (number, limits), part in zip(plain.items(), rest[len(counted) :], strict=False):
        found[number] = _column(part, length, limits)
    if key == "work":
        before = _column(rest[-2], length, (-_LONGEST_NS, _LONGEST_NS))
        took = _column(rest[-1], length, (-1, _LONGEST_NS))
        known = found["probe"] >= 0
        began = found["start_ns"] - before
        if (known & (began < 0)).any():
            raise node.wrong("has a call that began before the clock did")
        found["began_ns"] = np.where(known, began, 0)
        found["returned_ns"] = np.where(known & (took >= 0), began + took, 0)
    return found


def _column(node: Node, length: int, limits: tuple[int, int]) -> Int64s:
    """``length`` integers within ``limits``: the items, or the only one for all rows."""
    values, (low, high) = node.value, limits
    if type(values) is not list or not set(map(type, values)) <= {int}:
        raise node.wrong("is not a list of integers")
    if len(values) != length and not (len(values) == 1 and length):
        raise node.wrong(f"has {len(values)} values for {length} rows")
    if values and (min(values) < low or max(values) > high):
        raise node.wrong(f"has a value that is not from {low} to {high}")
    column = np.array(values, dtype=np.int64)
    return column if len(column) == length else np.full(length, column[0], dtype=np.int64)


def _check_numbers(node: Node, probe: Int64s, op: Int64s, ops: Int64s) -> None:
    if len(probe) and (probe.max() >= len(ops) or (op < 0).any() or (op >= ops[probe]).any()):
        raise node.wrong("has a number of a probe or operation that the trace does not have")


def _wholes(node: Node, limits: list[tuple[int, int]]) -> list[int]:
    return [one.whole(*limit) for one, limit in zip(node.record(len(limits)), limits, strict=True)]
