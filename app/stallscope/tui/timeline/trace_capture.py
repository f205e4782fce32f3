"""Capture of a trace: live, armed, triggered by a slow call, or frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from stallprobes.engine.snapshot import Snapshot
from stallprobes.latency.baseline import Baseline
from stallprobes.model import MS, Probe
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.trace import OPEN, Trace
from stallprobes.traces.trigger import CallTrigger, SlowCall, TriggerLimits, slowest_call
from stallprobes.units import duration_ns
from stallscope.tui.timeline.time_axis import stepped

# Durations (ns), 10 µs to 1 s, that the keys can choose as the trigger: a longer call freezes the trace.
LIMITS_NS = (*(digit * 10**power for power in range(4, 9) for digit in (1, 2, 5)), 10**9)
# Time (ns) that is recorded after the first slow call if the trace waits for a stall that the live monitor shows.
# The slowest call then becomes the trigger.
WORST_WITHIN_NS = 300 * MS
# Shortest recorded time (ns) after the slow call that freezes the trace. The recorded time is longer if the screen
# shows more time after the call. If the trace waits for a stall of the live monitor, WORST_WITHIN_NS applies instead.
_LEAST_AFTER_NS = 20 * MS
# Shortest recorded time (ns) before the slow call that freezes the trace, if the trace waits for a stall of the live
# monitor. A slow call with less recorded time before the call does not freeze the trace.
_LEAST_BEFORE_NS = 50 * MS


class CaptureState(StrEnum):
    """State of a capture.

    ``LIVE``: the trace shows the present. ``ARMED``: the capture waits for a slow call. ``TRIGGERED``: a slow call was
    found, and the time after the call is being recorded. ``FROZEN``: the trace does not change.
    """

    LIVE = "live"
    ARMED = "armed"
    TRIGGERED = "triggered"
    FROZEN = "frozen"


class TraceCapture:
    """The capture of a live timeline; it keeps its settings and a frozen trace when the screen is closed.

    ``above_ns`` is the trigger's limit, None where the limits follow the baselines. ``before`` is the share of the span
    before the trigger. ``stalled`` is the probe for whose stall the capture waits, None for any victim. ``trace`` is
    the frozen trace, ``found`` the slow call that froze it, ``why`` the reason in words.
    """

    def __init__(self) -> None:
        self.state = CaptureState.LIVE
        self.above_ns: int | None = None
        self.before = 0.7
        self.stalled: str | None = None
        self.trace: Trace | None = None
        self.limits: TriggerLimits | None = None
        self.found: SlowCall | None = None
        self.why = ""
        self._trigger: CallTrigger | None = None
        self._due_ns = 0

    def close(self) -> None:
        """Nothing runs."""

    def go_live(self) -> None:
        """Return to live; the frozen trace is dropped."""
        self.state, self.trace, self.found, self._trigger, self.stalled = CaptureState.LIVE, None, None, None, None

    def arm(self, stalled: str | None = None) -> None:
        """Freeze at the next slow call of a victim, or at the worst one of the probe called ``stalled``."""
        self.go_live()
        self.state, self.stalled = CaptureState.ARMED, stalled

    def freeze(self, trace: Trace, limits: TriggerLimits | None, why: str) -> None:
        """Freeze ``trace`` as it is."""
        self.state, self.trace, self.limits, self.why = CaptureState.FROZEN, trace, limits, why
        self._trigger = None

    def feed(
        self,
        history: TraceHistory,
        probes: Sequence[Probe],
        baselines: Mapping[str, Baseline],
        snapshot: Snapshot | None,
        others: Sequence[str],
        span_ns: int,
    ) -> bool:
        """Look for the trigger in the new records; True when the trace was frozen by it."""
        if self.state not in (CaptureState.ARMED, CaptureState.TRIGGERED):
            return False
        if self._trigger is None:
            self._trigger = CallTrigger(probes, above_ns=None if self.stalled else self.above_ns, cool_down_s=0)
            # What is already recorded counts only for a stall that the monitor has shown, if something came before it.
            self._trigger.skip(history.begin_ns + _LEAST_BEFORE_NS if self.stalled else history.collected_ns)
        if self.stalled is not None:
            baselines = {name: baseline for name, baseline in baselines.items() if name == self.stalled}
        self.limits = self._trigger.limits(baselines)
        if self.state is CaptureState.ARMED:
            self.found = self._trigger.feed(history, baselines, snapshot)
            if self.found is None:
                return False
            self.state = CaptureState.TRIGGERED
            after_ns = max(round((1 - self.before) * span_ns), _LEAST_AFTER_NS)
            self._due_ns = self.found.end_ns + (WORST_WITHIN_NS if self.stalled else after_ns)
        if history.collected_ns < self._due_ns or self.found is None:
            return False
        trace = history.trace(history.begin_ns, history.collected_ns, snapshot=snapshot, others=others)
        if self.stalled is not None and not self.found.in_flight:
            worst = slowest_call(trace, self.limits, self.found.probe)
            self.found = worst or self.found
        call = self.found
        why = f"{trace.probes[call.probe].name} {duration_ns(call.ns)}"
        self.freeze(trace.changed(trigger=call.trigger), self.limits, why)
        return True

    def step_limit(self, steps: int, usual_ns: int) -> None:
        """Lower or raise the limit; from one that follows the baselines, begin at ``usual_ns``."""
        now, by = (usual_ns, 0) if self.above_ns is None else (self.above_ns, steps)
        self.set_limit(stepped(now, by, LIMITS_NS))

    def set_limit(self, above_ns: int | None) -> None:
        """Set the limit; None has the limits follow the baselines."""
        self.above_ns, self._trigger = above_ns, None


def limit_text(capture: TraceCapture, limits: TriggerLimits | None) -> str:
    """The trigger's limit in words: ``1.00 ms``, ``baseline (104 µs to 1.20 ms)``, ``baseline, not known yet``."""
    if capture.above_ns is not None:
        return duration_ns(capture.above_ns)
    known = [] if limits is None else [ns for ns in limits.calls.ravel().tolist() if ns != OPEN]
    if not known:
        return "baseline, not known yet"
    low, high = duration_ns(min(known)), duration_ns(max(known))
    return f"baseline ({low})" if low == high else f"baseline ({low} to {high})"
