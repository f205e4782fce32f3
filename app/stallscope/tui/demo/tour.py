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
from stallscope.tui.probe_sets import aggressors, aggressors_on, for_variant

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
    ``finished`` says that the program may end. ``outcomes`` has what was found by pattern. ``order`` is what the engine
    is to do, until the screen takes it: whether the step's probes are loaded, and whether aggressors run. ``pages`` is
    the number of pages of the finale.
    """

    def __init__(self, steps: Sequence[DemoStep], seconds: float, loop: bool = False) -> None:
        """``steps`` are not empty."""
        self.steps = tuple(steps)
        self.patterns = tuple(dict.fromkeys(step.pattern.name for step in steps))
        self.seconds, self.loop = seconds, loop
        self.paused = self.finished = False
        self.outcomes: dict[str, PatternOutcome] = {}
        self.state, self.step, self._at = DemoState.STARTING, self.steps[0], 0
        self.pages, self._page = 1, 0
        self.elapsed_s = self._waited_s = 0.0
        self._last_s: float | None = None
        # The probe set that ran when others were ordered, the present one, and the one with the most GPUs.
        self._stale: ProbeSet | None = None
        self._present: ProbeSet | None = None
        self._largest = NOTHING.probe_set
        # The analyzer of the step once its probes run, and the newest entry of its log at the step's beginning.
        self._analyzer: Analyzer | None = None
        self._after: int | None = None
        # The source starts the probes of the first step by itself where it can.
        self._first_loaded = self.step.variant.needs.gpus == 1
        self.order: tuple[bool, bool] | None = None if self._first_loaded else (True, self.step.aggressors_on)

    def first_probe_set(self) -> ProbeSet:
        """The probes of the first step, for the engine that the source starts by itself.

        A source without the GPUs of its first probes takes the simulated GPU, so those of a pattern over two GPUs are
        asked for later; until then only the host control runs.
        """
        empty = ProbeSet("starting the demo", (entries()[HOST].probe(),), CUDA)
        return for_variant(empty, self.step.pattern, self.step.variant) if self._first_loaded else empty

    @property
    def ended(self) -> bool:
        """Whether the finale is shown."""
        return self.state is DemoState.ENDED

    @property
    def phases(self) -> tuple[DemoPhase, ...]:
        """The phases of the present pattern."""
        return tuple(step.phase for step in self.steps if step.pattern is self.step.pattern)

    @property
    def left_s(self) -> float:
        """The time in seconds until the next step, once the probes run."""
        finale_s = max(FINALE_STEPS * self.seconds, PAGE_S * self.pages * self.loop)
        return max(0.0, (finale_s if self.ended else self.seconds) - self.elapsed_s)

    @property
    def page(self) -> int:
        """The page of the finale, from 0 on."""
        return (self._page + int(self.elapsed_s / PAGE_S)) % self.pages

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
        passed_s = 0.0 if self._last_s is None else min(now_s - self._last_s, _LONGEST_TICK_S)
        self._last_s = now_s
        if not watched or self.paused:
            passed_s = 0.0
        if self.ended:
            self.elapsed_s += passed_s
            if not self.left_s:
                self.next()
            return
        self._present = observation.probe_set
        self.state = self._state_of(observation, analyzer)
        lost = self.state is DemoState.STOPPED and observation.engine.state is EngineCondition.LOST
        if lost:
            self._note(problem=observation.engine.sentence)
        if self.state is DemoState.REFUSED:
            self._refuse(observation.engine.sentence)
            return
        if analyzer is not None and self.state in (DemoState.BASELINE, DemoState.RUNNING):
            self._after = last_number(analyzer) if self._after is None else self._after
            self._largest = max(self._largest, observation.probe_set, key=lambda one: (len(one.gpus), len(one.probes)))
            if self.state is DemoState.RUNNING or self.step.phase is DemoPhase.QUIET or observation.probe_failures:
                self._analyzer = analyzer
                self.elapsed_s += passed_s
            if observation.probe_failures:
                self._fail(observation.probe_failures[0].sentence)
                return
        if self.state is DemoState.RUNNING:
            if not self.left_s:
                self.next()
        elif self.state is not DemoState.STARTING:
            self._waited_s += passed_s
            if self._waited_s >= self.seconds + (0.0 if lost else PATIENCE_S):
                self._fail(observation.engine.sentence or "the baseline was not complete in time")

    def _state_of(self, observation: Observation, analyzer: Analyzer | None) -> DemoState:
        probe_set, engine = observation.probe_set, observation.engine.state
        if not self._shows(self.step, probe_set) or probe_set is self._stale:
            return DemoState.STARTING
        if engine is EngineCondition.REFUSED:
            return DemoState.REFUSED
        if engine in (EngineCondition.LOST, EngineCondition.SILENT):
            return DemoState.STOPPED
        if engine is EngineCondition.STARTING or analyzer is None or observation.snapshot is None:
            return DemoState.STARTING
        parts = observation.snapshot.probes
        off = any(name in parts and not parts[name].on for name in aggressors(probe_set))
        # Aggressors that wait for nothing were switched off by the user: the time passes all the same.
        waiting = self.step.aggressors_on and off and (analyzer.holds_aggressors or observation.waiting)
        return DemoState.BASELINE if analyzer.without_baseline or waiting else DemoState.RUNNING

    @staticmethod
    def _shows(step: DemoStep, probe_set: ProbeSet) -> bool:
        return (probe_set.pattern, probe_set.variant) == (step.pattern.name, step.variant.name)

    def follow_recorded(self, observation: Observation) -> None:
        """Take the step that an observation of a recorded demo shows, if it is one."""
        on = bool(aggressors_on(observation))
        shown = [step for step in self.steps if self._shows(step, observation.probe_set)]
        self.step = next((one for one in shown if one.aggressors_on is on), shown[0] if shown else self.step)

    # From step to step.

    def next(self) -> None:
        """Go to the next step; after the last one to the finale, and from there to the beginning or the end."""
        if not self.ended:
            self._go(self._at + 1)
        elif self.loop and self.steps:
            self._go(0)
        else:
            self.finished = True

    def back(self) -> None:
        """Go to the previous step, from the finale to the last one."""
        if self.steps:
            self._go(len(self.steps) - 1 if self.ended else max(self._at - 1, 0))

    def go_to(self, phase: DemoPhase) -> None:
        """Go to a step of the present pattern, if it has that one."""
        for at, step in enumerate(self.steps):
            if not self.ended and step.pattern is self.step.pattern and step.phase is phase:
                self._go(at)

    def restart(self) -> None:
        """Begin the present pattern again with a new engine."""
        if not self.ended:
            self._go(next(at for at, step in enumerate(self.steps) if step.pattern is self.step.pattern), load=True)

    def turn(self, pages: int) -> None:
        """Turn pages of the finale."""
        self._page += pages

    def end(self) -> None:
        """Show the finale, with the aggressors off."""
        self.close()
        self.state, self.elapsed_s, self._page = DemoState.ENDED, 0.0, 0
        self.order = self.order is not None and self.order[0], False

    def close(self) -> None:
        """Keep what was found in the present step, if its probes ran."""
        analyzer, self._analyzer = self._analyzer, None
        if analyzer is None:
            return
        phase, variant = self.step.phase, self.step.variant.name
        known = self.outcomes.get(self.step.pattern.name, PatternOutcome(self.step.pattern))
        found = found_in(self.step, analyzer, self._after or 0, known)
        if phase is DemoPhase.QUIET:
            # The measurement of a pattern begins here, also in the second round. What is known stays until then.
            self._note(quiet=found, problem=None)
        elif phase is DemoPhase.STALL:
            self._note(stall=variant, stalled=found)
        else:
            self._note(remedy=variant, remedied=found)

    def _go(self, at: int, load: bool = False) -> None:
        self.close()
        if at >= len(self.steps):
            self.end()
            return
        before, self.step, self._at = self.step, self.steps[at], at
        load = load or before.variant is not self.step.variant or (self.order is not None and self.order[0])
        load = load or self.state in (DemoState.STOPPED, DemoState.REFUSED)
        if load:
            self._stale = self._present
        self.order = load, self.step.aggressors_on
        self.state, self.elapsed_s, self._waited_s, self._after = DemoState.STARTING, 0.0, 0.0, None

    def _refuse(self, reason: str) -> None:
        """Go to the next alternative of a variant that this machine does not support, else to the next step; without
        another stall the pattern is skipped."""
        pattern, refused, phase = self.step.pattern, self.step.variant, self.step.phase
        before, after = (
            [
                replace(step, variants=left)
                for step in part
                if (left := tuple(one for one in step.variants if one is not refused))
            ]
            for part in (self.steps[: self._at], self.steps[self._at :])
        )
        phases = {step.phase for step in (*before, *after) if step.pattern is pattern}
        if DemoPhase.STALL not in phases:
            self._note(skipped=reason)
            before, after = ([step for step in part if step.pattern is not pattern] for part in (before, after))
        elif phase not in phases and phase is DemoPhase.REMEDY:
            self._note(no_remedy=reason)
        self.steps = (*before, *after)
        self._go(len(before))

    def _fail(self, sentence: str) -> None:
        """Note a failure, and go to the next pattern."""
        self.close()
        self._note(problem=sentence)
        rest = (at for at in range(self._at, len(self.steps)) if self.steps[at].pattern is not self.step.pattern)
        self._go(next(rest, len(self.steps)))

    def _note(self, **changes: Any) -> None:
        pattern = self.step.pattern
        self.outcomes[pattern.name] = replace(self.outcomes.get(pattern.name, PatternOutcome(pattern)), **changes)
