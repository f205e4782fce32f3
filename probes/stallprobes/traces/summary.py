"""Summary of a trace: the call of its trigger, its latency, and the cause."""

from __future__ import annotations

from dataclasses import dataclass

from stallprobes.model import Phase
from stallprobes.traces.delay import Delay, calls_beside, cause_text, delay_of, delays_of_call
from stallprobes.traces.ranking import of_iteration
from stallprobes.traces.trace import Trace, op_label
from stallprobes.units import duration_ns


@dataclass(frozen=True)
class TraceSummary:
    """The latency at which a trace was frozen.

    ``wall_s`` is when the call began, in seconds since 1970. ``phase`` is ``START`` if the start of the work took
    longer than the call, else the call's phase. ``cause`` is a clause, "" where none is known. ``in_flight``: the call
    had not returned.
    """

    wall_s: float
    probe: str
    call: str
    phase: Phase
    ns: int
    cause: str
    in_flight: bool = False


def summary(trace: Trace) -> TraceSummary | None:
    """The summary of ``trace``; None without a trigger."""
    trigger = trace.trigger
    if trigger is None:
        return None
    probe = trace.probes[trigger.probe]
    took_ns, wall_s = trigger.returned_ns - trigger.began_ns, trace.wall_s(trigger.began_ns)
    number = trace.trigger_call()
    if number is None:
        open_call = next((call for call in trace.open_calls if call.probe == trigger.probe), None)
        op = -1 if open_call is None else open_call.op
        in_flight = open_call is not None and open_call.since_ns == trigger.began_ns
        label = op_label(trace.probes, trigger.probe, op) if in_flight else ""
        phase = _phase(trace, trigger.probe, op) if in_flight else Phase.CALL
        return TraceSummary(wall_s, probe.name, label, phase, took_ns, "", in_flight)
    op, began_ns, returned_ns = trace.calls[number][["op", "began_ns", "returned_ns"]].tolist()
    took_ns = returned_ns - began_ns
    label, phase = op_label(trace.probes, trigger.probe, op), _phase(trace, trigger.probe, op)
    late = max(delays_of_call(trace, number), key=lambda delay: delay.ns, default=None)
    if late is not None and late.ns > took_ns:
        phase, took_ns, cause = Phase.START, late.ns, _cause_of_delay(trace, late)
    elif phase is Phase.WAIT:
        cause = _cause_of_wait(trace, number, took_ns)
    else:
        cause = _beside(trace, number)
    return TraceSummary(wall_s, probe.name, label, phase, took_ns, cause)


def _phase(trace: Trace, probe: int, op: int) -> Phase:
    phases = trace.probes[probe].phases
    return (phases[op] if 0 <= op < len(phases) else None) or Phase.CALL


def _cause_of_delay(trace: Trace, delay: Delay) -> str:
    part = delay.main()
    return "" if part is None else cause_text(trace, part)


def _cause_of_wait(trace: Trace, number: int, took_ns: int) -> str:
    """Why the host waited: the work of the iteration started late, or ran for long, if that is half of the wait."""
    work = of_iteration(trace.work, trace.calls[number])
    delays = (delay_of(trace, row) for row in work)
    late = max((delay for delay in delays if delay is not None), key=lambda delay: delay.ns, default=None)
    ran_ns = int((work["end_ns"] - work["start_ns"]).max(initial=0))
    if late is not None and late.ns >= max(took_ns // 2, ran_ns):
        return _cause_of_delay(trace, late)
    return f"its work took {duration_ns(ran_ns)} on the GPU" if ran_ns >= took_ns // 2 else ""


def _beside(trace: Trace, number: int) -> str:
    for other, overlap_ns in calls_beside(trace, number)[:1]:
        return f"{other} was in a call of the same context for {duration_ns(overlap_ns)} of it"
    return ""
