"""Course of the demo: which step is shown, when the next one begins, and what was found in each pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from stallprobes.catalog import entries
from stallprobes.catalog.host import HOST
from stallprobes.demo.outcome import NOTHING, DemoResult, PatternOutcome, found_in, last_number
from stallprobes.demo.plan import DemoPhase, DemoStep
from stallprobes.live.analyzer import Analyzer
from stallprobes.recording.observation import CUDA, EngineCondition, Observation, ProbeSet
from stallscope.tui.probe_sets import aggressors_on, for_variant

# Longest time for the baseline of rare calls, and for an engine that does not answer, beside that of a step (s).
PATIENCE_S = 30.0
# Time for which the finale shows a page (s), and its least length in steps.
PAGE_S, FINALE_STEPS = 8.0, 3
# More time than this between two ticks is a suspension (s).
_LONGEST_TICK_S = 1.0


class DemoState(StrEnum):
    """The state of the present step, as the caption says it."""

    STARTING = "starting"
    BASELINE = "baseline"
    RUNNING = "running"
    STOPPED = "no answer"
    REFUSED = "not here"
    ENDED = "ended"


class DemoTour:
    """The course through ``steps``: each is shown for ``seconds``, and the last one is followed by the finale.

    With ``loop`` the course begins again after the finale. ``step`` is the present step, ``state`` its state,
    ``finished`` says that the program may end. ``outcomes`` has what was found by pattern. ``pages`` is the number of
    pages of the finale. The screen has the engine run the present step.
    """

    def __init__(self, steps: Sequence[DemoStep], seconds: float = 8.0, loop: bool = False) -> None:
        """``steps`` are not empty."""
        self.steps = tuple(steps)
        self.patterns = tuple(dict.fromkeys(step.pattern.name for step in steps))
        self.seconds, self.loop, self.pages = seconds, loop, 1
        self.paused = self.finished = False
        self.outcomes: dict[str, PatternOutcome] = {}
        self.state, self.step, self._at = DemoState.STARTING, self.steps[0], 0
        self.elapsed_s = self._waited_s = 0.0
        self._last_s: float | None = None
        # The probe set with the most GPUs that ran.
        self._largest = NOTHING.probe_set
        # The analyzer of the step once its probes run, and the newest entry of its log at the step's beginning.
        self._analyzer: Analyzer | None = None
        self._after: int | None = None

    def first_probe_set(self) -> ProbeSet:
        """The probes of the first step, for the engine that the source starts by itself.

        A source without the GPUs of its first probes takes the simulated GPU, so those of a pattern over two GPUs are
        asked for later; until then only the host control runs.
        """
        empty = ProbeSet("starting the demo", (entries()[HOST].probe(),), CUDA)
        one_gpu = self.step.variant.needs.gpus == 1
        return for_variant(empty, self.step.pattern, self.step.variant) if one_gpu else empty

    @property
    def ended(self) -> bool:
        """Whether the finale is shown."""
        return self.state is DemoState.ENDED

    @property
    def aggressors_on(self) -> bool:
        """Whether the aggressors are to run now."""
        return self.step.aggressors_on and not self.ended

    @property
    def left_s(self) -> float:
        """The time in seconds until the next step, once the probes run."""
        finale_s = max(FINALE_STEPS * self.seconds, PAGE_S * self.pages * self.loop)
        return max(0.0, (finale_s if self.ended else self.seconds) - self.elapsed_s)

    @property
    def result(self) -> DemoResult:
        """What was found until now."""
        return DemoResult(tuple(self.outcomes.values()), self._largest)

    @property
    def problem(self) -> str:
        """The first failure of an engine or a probe, a sentence; "" without one."""
        return next((f"{name}: {one.problem}" for name, one in self.outcomes.items() if one.problem), "")

    def tick(self, now_s: float, observation: Observation, analyzer: Analyzer | None, watched: bool) -> None:
        """Process the newest observation. The time counts only while the demo is ``watched`` and not paused."""
        passed_s = min(now_s - (now_s if self._last_s is None else self._last_s), _LONGEST_TICK_S)
        passed_s *= watched and not self.paused
        self._last_s = now_s
        if not self.ended:
            self.state = self._state_of(observation, analyzer)
        why, lost = observation.engine.sentence, observation.engine.state is EngineCondition.LOST
        if self.state in (DemoState.BASELINE, DemoState.RUNNING) and analyzer is not None:
            self._after = last_number(analyzer) if self._after is None else self._after
            self._largest = max(self._largest, observation.probe_set, key=lambda one: (len(one.gpus), len(one.probes)))
            if self.state is DemoState.RUNNING or self.step.phase is DemoPhase.QUIET or observation.probe_failures:
                self._analyzer = analyzer
        if self.state is DemoState.REFUSED:
            self._refuse(why)
        elif observation.probe_failures and not self.ended and self._analyzer is not None:
            self._fail(observation.probe_failures[0].sentence)
        elif self.state in (DemoState.RUNNING, DemoState.ENDED):
            self.elapsed_s += passed_s
            if not self.left_s:
                self.next()
        elif self.state is not DemoState.STARTING:
            if self.state is DemoState.STOPPED and lost:
                self._note(problem=why)
            self.elapsed_s += passed_s * (self.step.phase is DemoPhase.QUIET)
            self._waited_s += passed_s
            if self._waited_s >= self.seconds + (0.0 if lost else PATIENCE_S):
                self._fail(why or "the baseline was not complete in time")

    def _state_of(self, observation: Observation, analyzer: Analyzer | None) -> DemoState:
        engine, snapshot = observation.engine.state, observation.snapshot
        if engine is EngineCondition.STARTING or not self.step.is_shown_by(observation.probe_set):
            return DemoState.STARTING
        if engine is EngineCondition.REFUSED:
            return DemoState.REFUSED
        if engine in (EngineCondition.LOST, EngineCondition.SILENT):
            return DemoState.STOPPED
        if analyzer is None or snapshot is None:
            return DemoState.STARTING
        off = self.step.aggressors_on and not all(snapshot.probes[one.name].on for one in self.step.variant.aggressors)
        return DemoState.BASELINE if analyzer.without_baseline or off else DemoState.RUNNING

    def follow_recorded(self, observation: Observation) -> None:
        """Take the step that an observation of a recorded demo shows, if it is one."""
        shown = [step for step in self.steps if step.is_shown_by(observation.probe_set)]
        on = bool(aggressors_on(observation))
        self.step = next((one for one in shown if one.aggressors_on is on), shown[0] if shown else self.step)

    # From step to step.

    def next(self) -> None:
        """Go to the next step; after the last one to the finale, and from there to the beginning or the end."""
        self.finished = self.ended and not (self.loop and self.steps)
        if not self.finished:
            self._go(0 if self.ended else self._at + 1)

    def back(self) -> None:
        """Go to the previous step, from the finale to the last one."""
        if self.steps:
            self._go(len(self.steps) - 1 if self.ended else max(self._at - 1, 0))

    @property
    def phases(self) -> dict[DemoPhase, int]:
        """The phases of the present pattern, with the positions of their steps."""
        return {step.phase: at for at, step in enumerate(self.steps) if step.pattern is self.step.pattern}

    def go_to(self, phase: DemoPhase | None = None) -> None:
        """Go to a step of the present pattern, if it has that one, by default to its first one."""
        at = min(self.phases.values(), default=None) if phase is None else self.phases.get(phase)
        if not self.ended and at is not None:
            self._go(at)

    def end(self) -> None:
        """Show the finale."""
        self._go(len(self.steps))

    def close(self) -> None:
        """Keep what was found in the present step, if its probes ran."""
        analyzer, self._analyzer = self._analyzer, None
        if analyzer is None:
            return
        name = self.step.variant.name
        known = self.outcomes.get(self.step.pattern.name, PatternOutcome(self.step.pattern))
        found = found_in(self.step, analyzer, self._after or 0, known)
        if self.step.phase is DemoPhase.QUIET:
            # The measurement of a pattern begins here, also in the second round. What is known stays until then.
            self._note(quiet=found, problem=None)
        elif self.step.phase is DemoPhase.STALL:
            self._note(stall=name, stalled=found)
        else:
            self._note(remedy=name, remedied=found)

    def _go(self, at: int) -> None:
        self.close()
        self.state = DemoState.STARTING if at < len(self.steps) else DemoState.ENDED
        self.step, self._at = (self.step, self._at) if self.ended else (self.steps[at], at)
        self.elapsed_s, self._waited_s, self._after = 0.0, 0.0, None

    def _refuse(self, reason: str) -> None:
        """Go to the next alternative of a variant that this machine does not support, else to the next step; without
        another stall the pattern is skipped."""
        pattern, phase, refused = self.step.pattern, self.step.phase, self.step.variant
        steps = [step.without(refused) for step in self.steps]
        phases = {step.phase for step in steps if step is not None and step.pattern is pattern}
        if DemoPhase.STALL not in phases:
            self._note(skipped=reason)
            steps = [None if step is None or step.pattern is pattern else step for step in steps]
        elif phase is DemoPhase.REMEDY and phase not in phases:
            self._note(no_remedy=reason)
        self.steps = tuple(filter(None, steps))
        self._go(sum(step is not None for step in steps[: self._at]))

    def _fail(self, sentence: str) -> None:
        """Note a failure, and go to the next pattern."""
        self.close()
        self._note(problem=sentence)
        self._go(max(self.phases.values()) + 1)

    def _note(self, **changes: Any) -> None:
        pattern = self.step.pattern
        self.outcomes[pattern.name] = replace(self.outcomes.get(pattern.name, PatternOutcome(pattern)), **changes)
