"""Course of the demo: the present step, the begin of the next one, and the outcome of each pattern."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from stallprobes.catalog import entries
from stallprobes.catalog.host import HOST
from stallprobes.demo import NOT_SHOWN, DemoPhase, PatternOutcome, remedied_ns, steps, worst_verdict
from stallprobes.live.analyzer import Analyzer
from stallprobes.model import Pattern, Variant
from stallprobes.recording.observation import CUDA, SIM, EngineCondition, Observation, ProbeSet
from stallscope.tui.probe_sets import aggressors_on, for_variant, gpu_label

# Longest wait (s) beyond a step's length until the probes of the step run with complete baselines; then the step fails.
# If the process that runs the probes has ended, the longest wait is the step's length.
PATIENCE_S = 30.0
# Length of the finale, the demo's summary, as a multiple of a step's length; its pages share this time.
FINALE_STEPS = 3
# Largest time (s) that one tick adds to the demo's clock. Reason: a longer gap between ticks means that the demo was
# suspended.
_LONGEST_TICK_S = 1.0


class DemoTour:
    """The course through the steps of ``patterns``, ``seconds`` for each step, and the finale after the last one.

    With ``loop`` the course begins again after the finale. ``step`` is the present step, ``running`` says that its
    probes run with complete baselines, ``finished`` that the program may end. ``outcomes`` has the outcome by pattern,
    ``probe_set`` is the set with the most GPUs so far. The screen makes the engine run the present step.
    """

    def __init__(self, patterns: Iterable[Pattern], seconds: float = 8.0, loop: bool = False) -> None:
        """``patterns`` have at least one step."""
        self.patterns, self.seconds, self.loop = tuple(patterns), seconds, loop
        self._refused: list[Variant] = []
        self.steps = steps(self.patterns)
        self.step, self._at = self.steps[0], 0
        self.running = self.paused = self.finished = False
        self.elapsed_s = self._waited_s = self._last_s = self._since_s = 0.0
        self.outcomes: dict[str, PatternOutcome] = {}
        self.probe_set = ProbeSet(title="", probes=(), backend=CUDA)

    def first_probe_set(self) -> ProbeSet:
        """The probes of the first step, for the engine that the source starts by itself.

        A source without the GPUs of its first probes takes the simulated GPU, so those of a pattern over two GPUs are
        asked for later; until then only the host control runs.
        """
        empty = ProbeSet(title="starting the demo", probes=(entries()[HOST].probe(),), backend=CUDA)
        step = self.step
        return for_variant(empty, step.pattern, step.variant) if step.variant.needs.gpus == 1 else empty

    @property
    def ended(self) -> bool:
        """True if the finale is shown."""
        return self._at >= len(self.steps)

    @property
    def left_s(self) -> float:
        """The time in seconds until the next step, once the probes run."""
        return max(0.0, self.seconds * (FINALE_STEPS if self.ended else 1) - self.elapsed_s)

    @property
    def machine(self) -> str:
        """``NVIDIA H200 (GPU 0) · driver 580.159.04 · CUDA 13.0``; "" if no engine was ready."""
        simulated = "SIMULATED " if self.probe_set.backend == SIM else ""
        return simulated + " · ".join((gpu_label(self.probe_set), *self.probe_set.details))

    @property
    def problem(self) -> str:
        """The first failure of an engine or a probe, a sentence; "" without one."""
        return next((f"{name}: {outcome.problem}" for name, outcome in self.outcomes.items() if outcome.problem), "")

    def tick(self, now_s: float, observation: Observation, analyzer: Analyzer, watched: bool) -> None:
        """Process the newest observation. The time counts only while the demo is ``watched`` and not paused."""
        passed_s = min(now_s - self._last_s, _LONGEST_TICK_S) * (watched and not self.paused)
        self._last_s, engine, failures = now_s, observation.engine, observation.probe_failures
        shown = not self.ended and self.step.is_shown_by(observation.probe_set)
        self.running = shown and self._runs(observation, analyzer)
        waits = shown and not self.running and engine.state is not EngineCondition.STARTING
        lost = waits and engine.state is EngineCondition.LOST
        if self.running:
            self._measure(observation, analyzer)
        elif lost:
            self._note(problem=engine.sentence)
        self.elapsed_s += passed_s * (self.running or self.ended or (waits and self.step.phase is DemoPhase.QUIET))
        self._waited_s += passed_s * waits
        if waits and engine.state is EngineCondition.REFUSED:
            self._refuse(engine.sentence)
        elif failures and (self.running or waits):
            self._fail(failures[0].sentence)
        elif self._waited_s >= self.seconds + (0.0 if lost else PATIENCE_S):
            self._fail(engine.sentence or "the baseline was not complete in time")
        elif not self.left_s and not waits:
            self.move(1)

    def _runs(self, observation: Observation, analyzer: Analyzer) -> bool:
        snapshot, step = observation.snapshot, self.step
        if snapshot is None or observation.engine.state is not EngineCondition.READY or analyzer.without_baseline:
            return False
        return not step.aggressors_on or all(
            snapshot.probes[aggressor.name].on for aggressor in step.variant.aggressors
        )

    def _measure(self, observation: Observation, analyzer: Analyzer) -> None:
        """Note the present findings. Earlier findings stay until the step runs again."""
        name, outcome = self.step.variant.name, self.outcomes.get(self.step.pattern.name)
        self.probe_set = max(self.probe_set, observation.probe_set, key=lambda probes: len(probes.gpus))
        self._since_s = self._since_s if self.elapsed_s else observation.wall_s
        if self.step.phase is DemoPhase.STALL:
            self._note(stall=name, stalled=worst_verdict(analyzer, self._since_s))
        elif self.step.phase is DemoPhase.REMEDY:
            self._note(remedy=name, remedied_ns=remedied_ns(analyzer, outcome.stalled if outcome else NOT_SHOWN))
        else:
            self._note(problem="")

    def follow_recorded(self, observation: Observation) -> None:
        """Take the step of an observation of a recorded demo, if the observation has one."""
        shown, on = [step for step in self.steps if step.is_shown_by(observation.probe_set)], aggressors_on(observation)
        self.step = max(shown, key=lambda step: step.aggressors_on is bool(on), default=self.step)

    # From step to step.

    def move(self, by: int) -> None:
        """Go ``by`` steps forward or back; after the last one comes the finale, then the first one or the end."""
        self.finished = self.ended and by > 0 and not (self.loop and self.steps)
        if not self.finished:
            self._go(0 if self.ended and by > 0 else max(self._at + by, 0))

    @property
    def phases(self) -> dict[DemoPhase, int]:
        """The phases of the present pattern, with the positions of their steps."""
        return {step.phase: at for at, step in enumerate(self.steps) if step.pattern is self.step.pattern}

    def go_to(self, phase: DemoPhase = DemoPhase.QUIET) -> None:
        """Go to a step of the present pattern, if the pattern has the step."""
        if not self.ended and phase in self.phases:
            self._go(self.phases[phase])

    def end(self) -> None:
        """Show the finale."""
        self._go(len(self.steps))

    def close(self) -> None:
        """Nothing: what was found is shown after the end."""

    def _go(self, at: int) -> None:
        self._at, self.running = at, False
        self.step = self.step if self.ended else self.steps[at]
        self.elapsed_s = self._waited_s = 0.0

    def _refuse(self, reason: str) -> None:
        """Go to the next alternative of a variant that this machine does not support, else to the next step; without
        another stall the pattern is skipped."""
        before = self.steps[: self._at]
        self._refused.append(self.step.variant)
        self.steps = steps(self.patterns, self._refused)
        if DemoPhase.STALL not in self.phases:
            self._note(skipped=reason)
        elif DemoPhase.REMEDY not in self.phases:
            self._note(remedy=f"not possible here: {reason}")
        self._go(sum(step in self.steps for step in before))

    def _fail(self, sentence: str) -> None:
        """Note a failure, and go to the next pattern."""
        self._note(problem=sentence)
        self._go(max(self.phases.values()) + 1)

    def _note(self, **changes: Any) -> None:
        pattern = self.step.pattern
        known = self.outcomes.get(pattern.name, PatternOutcome(pattern))
        self.outcomes[pattern.name] = replace(known, **changes)
