"""Wording of what a trace has: open GPU work, and sizes."""

from __future__ import annotations

from stallprobes.model import KIB, MIB
from stallprobes.traces.trace import OpenWork, Trace, op_label
from stallprobes.units import duration_ns, plural, three


def open_work_ns(trace: Trace, work: OpenWork) -> int:
    """Time (ns) for which ``work`` has had no record at the end of the trace; negative if it was submitted later."""
    return min(trace.end_ns, trace.collected_ns) - work.since_ns


def open_work_text(trace: Trace, work: OpenWork) -> str:
    """Description of open work."""
    call = f"{trace.probes[work.probe].name} {op_label(trace.probes, work.probe, work.op)}"
    calls = f" and of {plural(work.calls - 1, 'later call')}" if work.calls > 1 else ""
    age = duration_ns(open_work_ns(trace, work))
    return f"The GPU work of {call}{calls} has no record after {age}, so it waits or runs"


def size_text(nbytes: int) -> str:
    """``1 MiB``, ``4 KiB``, ``12 bytes``."""
    for unit, length in (("MiB", MIB), ("KiB", KIB)):
        if nbytes >= length:
            return f"{nbytes // length if nbytes % length == 0 else three(nbytes / length)} {unit}"
    return plural(nbytes, "byte")
