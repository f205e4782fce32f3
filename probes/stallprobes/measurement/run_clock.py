"""Clock of a run: lets time pass in steps, reports the progress, and ends a run that is to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stallprobes.engine.session import Session
from stallprobes.errors import Stopped
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.measurement.plan import RunPlan
from stallprobes.measurement.run_trace import RunTracer

# Estimated time (s) from the beginning of a variant of a pattern until its probes run.
_START_S = 1.5
# Time (s) of the warm-up of a variant, before its baselines.
WARM_S = 0.5
# Time (s) after a switch of aggressors that is not measured.
SETTLE_S = 0.3
# Length (s) of the steps in which the measured session runs. After each step, progress is reported and a request to
# stop is obeyed.
STEP_S = 0.1


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run in seconds of measurement, and its current step."""

    done_s: float
    total_s: float
    text: str


class RunStoodStill(Exception):
    """Raised when the process was suspended while a variant was measured."""


class RunClock:
    """Progress of a run: lets time pass in steps, between which the run can be stopped.

    ``trace_s`` is the length of the traces, None for none, ``others`` the other processes on the GPU; ``tracer`` reads
    the trace of the present variant. ``sample`` reads the GPU's values after each step, None for nothing.
    """

    def __init__(
        self,
        plan: RunPlan,
        progress: Callable[[RunProgress], None] | None,
        stop: Callable[[], bool],
        trace_s: float | None = None,
        others: Sequence[str] = (),
    ) -> None:
        self._trace_s, self._others = trace_s, others
        self.tracer: RunTracer | None = None
        self.sample: Callable[[], TelemetrySnapshot | None] | None = None
        self.stopped = False
        rests_s = _START_S + WARM_S + 2 * SETTLE_S
        self._left = [
            (
                rests_s + variant.slots * (variant.baseline_s + variant.window_s),
                0.0 if variant.blame is None else variant.blame.total_s,
            )
            for variant in plan.variants
        ]
        self._total = sum(map(sum, self._left))
        self._base = self._done = 0.0
        self._text = self._title = ""
        self._progress, self._stop = progress, stop

    def begin(self, text: str) -> None:
        """Begin a variant, called ``text``: its engine starts."""
        self._done, self._title = self._base, text
        self._report(f"{text}: starting the engine")

    def end(self) -> None:
        self._base += sum(self._left.pop(0))
        self._done = self._base
        self._report(self._text)

    def started(self, session: Session) -> None:
        """The engine of a variant has started."""
        self._done += _START_S
        self._report(self._title)
        self.tracer = None if self._trace_s is None else RunTracer(session, self._trace_s, self._others)

    def stop_requested(self) -> bool:
        """True if the run is to stop; it then counts as stopped."""
        self.stopped = self.stopped or self._stop()
        return self.stopped

    def blame_progress(self, passed_s: float) -> None:
        """Report the progress of a blame experiment that takes the rest of the variant's time."""
        measured_s, blame_s = self._left[0]
        self._done = max(self._done, self._base + measured_s + min(passed_s, blame_s))
        self._report(self._text)

    def pass_time(self, session: Session, seconds: float) -> None:
        """Run the session for ``seconds``. Raises Stopped and EngineFailed."""
        left = seconds
        while left > 1e-9:
            if self.stop_requested():
                raise Stopped
            step = min(STEP_S, left)
            (session if self.tracer is None else self.tracer).run_for(step)
            left -= step
            telemetry = None if self.sample is None else self.sample()
            if self.tracer is not None:
                self.tracer.add_counters(telemetry)
            # A wait for an aggressor or for a repetition is in no plan: the share done would go back after it.
            self._done = min(self._done + step, self._base + sum(self._left[0]))
            self._report(self._text)

    def _report(self, text: str) -> None:
        self._text = text
        if self._progress is not None:
            self._progress(RunProgress(min(self._done, self._total), self._total, text))
