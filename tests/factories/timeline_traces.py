"""Traces for the tests of the timeline's screen: made by hand in µs, and the first report on the simulated GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from factories.recordings import STALL
from factories.traces import simulated_trace
from stallprobes.model import MS, Phase, Role
from stallprobes.native.layouts.cupti import CopyKind, RecordKind
from stallprobes.patterns import patterns
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording
from stallprobes.records.rows import CALL, OVERHEAD, TENURE, WORK
from stallprobes.traces.trace import OPEN, OpenCall, Trace, TracedProbe, TraceNames, TraceTrigger
from stallprobes.traces.trigger import CallTrigger, TriggerLimits, slowest_call

US = 1_000
PRIMARY, SECONDARY = 1, 2
OPS, PHASES = ("cuMemcpyDtoDAsync", "cuStreamSynchronize"), (Phase.CALL, Phase.WAIT)
PROBE = TracedProbe("d2d", OPS, "secondary", "own", Role.VICTIM, PHASES)
LAUNCH = TracedProbe("launch", ("cuLaunchKernel",), "primary", "own", Role.VICTIM, (Phase.CALL,))
NAMES = TraceNames({PRIMARY: "primary", SECONDARY: "secondary"}, {(SECONDARY, 7): "own", (PRIMARY, 8): "own"})
# Times in µs: (probe, op, begin, end) of calls; (probe, op, call began, returned, start, end) of copies; (context,
# start, end) of tenures, end None while it has the engine.
Call = tuple[int, int, float, float]
Work = tuple[int, int, float, float, float, float]
Tenure = tuple[int, float, float | None]


def ns(us: float) -> int:
    return round(us * US)


def trace_of(
    calls: Sequence[Call] = (),
    work: Sequence[Work] = (),
    tenures: Sequence[Tenure] = (),
    *,
    end_us: float = 1_000,
    others: tuple[str, ...] = (),
    flights: Sequence[tuple[int, int, float]] = (),
    engine_since_us: float = 0,
    context_switches: bool = True,
) -> Trace:
    """A trace from 0 on of the probes ``d2d`` in the secondary and ``launch`` in the primary context."""
    call_rows = [(probe, op, number, ns(a), ns(b), 1) for number, (probe, op, a, b) in enumerate(calls)]
    work_rows = []
    for number, (probe, op, began, returned, start, end) in enumerate(work):
        context, stream = ((SECONDARY, 7), (PRIMARY, 8))[max(probe, 0)]
        kind = RecordKind.KERNEL if probe == 1 else RecordKind.COPY
        copy = (CopyKind.UNKNOWN if kind is RecordKind.KERNEL else CopyKind.DEVICE_TO_DEVICE, 3 | 3 << 8, 1 << 20)
        times = (ns(start), ns(end), 0, context, stream, probe, op, 0, ns(began), ns(returned))
        work_rows.append((number, kind, *times, *copy, number))
    tenure_rows = [(context, ns(a), OPEN if b is None else ns(b)) for context, a, b in tenures]

    return Trace(
        begin_ns=0,
        end_ns=ns(end_us),
        collected_ns=ns(end_us),
        probes=(PROBE, LAUNCH),
        names=NAMES,
        calls=np.array(call_rows, CALL),
        work=np.array(work_rows, WORK),
        tenures=np.array(tenure_rows, TENURE),
        overheads=np.array([], OVERHEAD),
        context_switches=context_switches,
        wall_offset_s=1_770_000_000.0,
        open_calls=tuple(OpenCall(probe, op, ns(since)) for probe, op, since in flights),
        others=others,
        engine_since_ns=ns(engine_since_us),
    )


def limits_of(*above_us: float) -> TriggerLimits:
    """Limits of the ops of ``d2d``, in µs; none for ``launch``."""
    calls = np.full((2, 2), OPEN, dtype=np.int64)
    calls[0, : len(above_us)] = [ns(us) for us in above_us]
    return TriggerLimits(calls, np.full((2, 2), OPEN, dtype=np.int64), (PHASES, (Phase.CALL, Phase.GPU)), ())


@cache
def report_1() -> Trace:
    """A copy in the secondary context beside a kernel in the primary one, frozen at the worst wait."""
    probes = patterns()["secondary-context-d2d"].variant("kernel-other-context").probes
    trace = simulated_trace(*probes, ns=120 * MS)
    limits = CallTrigger(probes, above_ns=MS).limits({})
    worst = slowest_call(trace.between(trace.begin_ns + 40 * MS, trace.end_ns - 10 * MS), limits)
    assert worst is not None
    return trace.changed(trigger=TraceTrigger(worst.probe, worst.began_ns, worst.returned_ns))


def recorded(path: Path, *traces: Trace) -> Path:
    """The recording STALL at ``path``, with ``traces`` in it."""
    recorder, recording = Recorder(path), Recording(STALL)
    for number, observation in enumerate(recording.play()):
        recorder.put_blocking(observation, {})
        if number == 0:
            for trace in traces:
                recorder.put_trace_blocking(trace)
        if number == 10:
            break
    recording.close()
    recorder.close(10)
    assert recorder.traces == len(traces)
    return path
