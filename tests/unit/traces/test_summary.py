"""The summary of a trace: which latency its trigger had, and what that was due to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from factories.traces import handmade_trace
from stallprobes.catalog import Placement, entries
from stallprobes.model import MS, SECONDARY, US, Phase
from stallprobes.records.rows import CALL
from stallprobes.traces.summary import TraceSummary, summary
from stallprobes.traces.trace import OpenCall, Trace, TraceTrigger

VICTIM, AGGRESSOR = entries()["d2d"].probe(Placement(context=SECONDARY)), entries()["spin"].probe()
SYNCHRONIZE = 1


def found(trace: Trace) -> TraceSummary:
    result = summary(trace)
    assert result is not None
    return result


def with_call(op: int, began: int, returned: int, context: str | None = None) -> Trace:
    """The trace by hand, with a further call of the victim in the iteration of its copy as the trigger."""
    trace = handmade_trace(VICTIM, AGGRESSOR)
    calls = np.concatenate((trace.calls, np.array([(0, op, 9, began, returned, 1)], CALL)))
    calls = calls[np.argsort(calls["began_ns"], kind="stable")]
    probes = trace.probes if context is None else tuple(replace(probe, context=context) for probe in trace.probes)
    return trace.changed(calls=calls, trigger=TraceTrigger(0, began, returned), probes=probes)


def test_a_call_whose_work_starts_late() -> None:
    trace = handmade_trace(VICTIM, AGGRESSOR)
    one = found(trace)
    assert (one.probe, one.call, one.phase, one.ns) == (VICTIM.name, "cuMemcpyDtoDAsync", Phase.START, 1997 * US)
    assert one.cause == "context primary had the engine"
    assert trace.trigger is not None
    assert one.wall_s == trace.wall_s(trace.trigger.began_ns)


def test_a_wait_for_work_that_starts_late() -> None:
    trace = handmade_trace(VICTIM, AGGRESSOR)
    assert trace.trigger is not None
    began = trace.trigger.returned_ns
    one = found(with_call(SYNCHRONIZE, began, began + 2100 * US))
    assert (one.call, one.phase, one.ns) == ("cuStreamSynchronize", Phase.WAIT, 2100 * US)
    assert one.cause == "context primary had the engine"


def test_a_wait_for_work_that_runs_for_long() -> None:
    trace = handmade_trace(VICTIM, AGGRESSOR)
    assert trace.trigger is not None
    began = trace.trigger.returned_ns
    waited = with_call(SYNCHRONIZE, began, began + 5 * MS)
    work = waited.work.copy()
    own = work["iteration"] == 9
    work["start_ns"][own] = began + US
    work["end_ns"][own] = began + US + 4 * MS
    assert found(waited.changed(work=work)).cause == "its work took 4.00 ms on the GPU"
    assert found(waited.changed(work=work[~own])).cause == ""


@pytest.mark.parametrize(("context", "beside"), [(None, False), ("primary", True)])
def test_a_call_beside_one_of_the_same_context(context: str | None, beside: bool) -> None:
    trace = handmade_trace(VICTIM, AGGRESSOR)
    # Beside the aggressor's call, which returns 1 ms after the begin of the trace.
    one = found(with_call(0, trace.begin_ns + MS // 2, trace.begin_ns + 3 * MS, context))
    assert (one.phase, one.ns) == (Phase.CALL, 2500 * US)
    assert one.cause.endswith("was in a call of the same context for 500 µs of it") == beside
    assert bool(one.cause) == beside


def test_a_call_in_flight() -> None:
    trace = handmade_trace(VICTIM, AGGRESSOR)
    since = trace.begin_ns + MS
    trigger = TraceTrigger(0, since, since + 200 * MS)
    stuck = trace.changed(trigger=trigger, open_calls=(OpenCall(0, SYNCHRONIZE, since),))
    one = found(stuck)
    assert (one.in_flight, one.call, one.phase, one.ns) == (True, "cuStreamSynchronize", Phase.WAIT, 200 * MS)
    # A call that is not in the trace is not known.
    unknown = found(stuck.changed(open_calls=()))
    assert (unknown.in_flight, unknown.call, unknown.ns) == (False, "", 200 * MS)


def test_a_trace_without_a_trigger_has_none() -> None:
    assert summary(handmade_trace(VICTIM, AGGRESSOR).changed(trigger=None)) is None
