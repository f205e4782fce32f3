"""Trace of a run: the last seconds of each variant until its aggressors are switched off, and the file of all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stallprobes.engine.session import Session
from stallprobes.latency.baseline import Baseline
from stallprobes.machine import gpus
from stallprobes.machine.nvml import version_of
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.model import Role
from stallprobes.traces import chrome
from stallprobes.traces.chrome import TitledTrace
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.ranking import most_unusual_call, slowest_row
from stallprobes.traces.trace import Trace, TraceTrigger
from stallprobes.traces.trigger import CallTrigger, TriggerLimits, slowest_call
from stallprobes.verdicts.kinds import IN_FLIGHT_NS

if TYPE_CHECKING:
    from stallprobes.engine.snapshot import Snapshot
    from stallprobes.measurement.result import RunResult

# Time (s) by which the history of a run's records is longer than the run's trace. Reason: after the end of the trace,
# an aggressor's last work must end, and the records of this work must be collected.
_AFTER_S = 5.0
# Time (s) between two reads of the probes' calls for a run's timeline. Reason: the ring of a probe holds 8192 calls,
# and back-to-back launches fill the ring in 25 ms.
_READ_S = 0.02


class RunTracer:
    """Reader of the timeline of ``session``, which keeps ``seconds`` until the end of the measured window.

    ``others`` are the other processes on the GPU, as ``Trace.others``.
    """

    def __init__(self, session: Session, seconds: float, others: Sequence[str] = ()) -> None:
        self._session = session
        self._keep_ns = round(seconds * 1e9)
        self._others = tuple(others)
        self._history = TraceHistory(session.probes, seconds + _AFTER_S, simulated=session.backend == "sim")
        self._window_ns = self._end_ns = 0
        self._snapshot: Snapshot | None = None
        self._read()
        self._history.started_ns = self._history.at_ns

    def run_for(self, seconds: float) -> None:
        """Let time pass as ``Session.run_for`` does, and read meanwhile. Raises what that raises."""
        left = seconds
        while left > 1e-9:
            step = min(_READ_S, left)
            self._session.run_for(step)
            self._read()
            left -= step

    def _read(self) -> None:
        """Read what was recorded since the last time."""
        # A session that was stopped has nothing more.
        with contextlib.suppress(RuntimeError):
            self._history.feed(self._session.timeline_rows(self._history.position), time.time())

    def add_counters(self, telemetry: TelemetrySnapshot | None) -> None:
        """Add the counters of the GPU, which were read now."""
        self._history.feed_counters(self._history.at_ns, telemetry)

    def begin_window(self) -> None:
        """The window with the aggressors begins now."""
        self._read()
        self._window_ns = self._history.at_ns

    def end_window(self) -> None:
        """The window has ended, and with it the trace; what it has on the GPU may still run."""
        self._read()
        self._end_ns = self._history.at_ns
        self._snapshot = self._session.snapshot()

    def trace(self, baselines: Mapping[str, Baseline]) -> Trace:
        """The trace. Its trigger is the call of the window that exceeds ``baselines``, by the probe's name, most."""
        self._read()
        history = self._history
        begin_ns = max(self._end_ns - self._keep_ns, history.begin_ns)
        trace = history.trace(begin_ns, self._end_ns, snapshot=self._snapshot, others=self._others)
        window = trace.between(max(self._window_ns, begin_ns), self._end_ns)
        return trace.changed(trigger=_trigger(window, CallTrigger(self._session.probes).limits(baselines)))


def _trigger(window: Trace, limits: TriggerLimits) -> TraceTrigger | None:
    """A victim's latency with the largest factor over its limit, or a longer call in flight.

    Where none exceeds its limit, it is the most unusual call of a victim; without victims the slowest call.
    """
    worst = slowest_call(window, limits)
    flights = [(window.end_ns - opened.since_ns, opened) for opened in window.open_calls]
    long = [(ns, opened) for ns, opened in flights if ns >= max(limits.calls[opened.probe, opened.op], IN_FLIGHT_NS)]
    age_ns, flight = max(long, key=lambda pair: pair[0], default=(0, None))
    if flight is not None and (worst is None or age_ns > worst.ns):
        return TraceTrigger(flight.probe, flight.since_ns, window.end_ns)
    if worst is not None:
        return worst.trigger
    victims = any(probe.role is Role.VICTIM for probe in window.probes)
    row = most_unusual_call(window) if victims else slowest_row(window)
    if row is None:
        return None
    call = window.calls[row]
    return TraceTrigger(int(call["probe"]), int(call["began_ns"]), int(call["returned_ns"]))


def other_processes(gpu: str | None, survey: gpus.Survey | None) -> tuple[str, ...]:
    """The processes that use the GPUs ``gpu`` (UUIDs, separated by commas) before the run, ``NAME (pid N)`` each."""
    wanted = {gpus.bare_uuid(uuid) for uuid in (gpu or "").split(",") if uuid}
    cards = (survey if survey is not None else gpus.survey()).gpus
    known = ({gpus.bare_uuid(uuid) for uuid in (card.uuid, card.cuda_uuid or "", *card.mig_uuids)} for card in cards)
    return gpus.other_names(card for card, uuids in zip(cards, known, strict=True) if uuids & wanted)


def save(result: RunResult | None, traces: Sequence[TitledTrace], path: Path | str, *, force: bool = False) -> None:
    """Write the ``traces`` of ``result`` to ``path`` for Perfetto; an existing file is replaced only with ``force``.

    Raises FileNotWritten, and ValueError without a trace.
    """
    if not traces:
        raise ValueError("there is no trace: run with trace_seconds")
    only = [TitledTrace(traces[0].trace)] if len(traces) == 1 else traces
    chrome.save(only, path, {} if result is None else _about(result), force=force)


def _about(result: RunResult) -> dict[str, object]:
    """Description of the measurement in the file."""
    return {
        "program": f"stallscope {version_of('stallscope') or ''}".rstrip(),
        "backend": result.backend,
        "profile": result.profile,
        "gpu": result.fingerprint.get("gpu"),
        "driver": result.fingerprint.get("driver"),
        "cuda": result.fingerprint.get("cuda"),
        "timeline_library": result.timeline_status.library if result.timeline_status else None,
        "started_at": result.started_at,
        "patterns": list(dict.fromkeys(f"{variant.pattern} {variant.variant}" for variant in result.variants)),
    }
