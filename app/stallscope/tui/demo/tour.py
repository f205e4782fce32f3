"""Course of the demo: which step is shown, when the next one begins, and what was found in each pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum

from stallprobes.catalog import entries
from stallprobes.catalog.host import HOST
from stallprobes.demo.outcome import (
    DemoResult,
    PatternOutcome,
    last_number,
    present_latency,
    remedied_latency,
    worst_latency,
)
from stallprobes.demo.plan import DemoPhase, DemoStep, PatternPlan
from stallprobes.live.analyzer import Analyzer
from stallprobes.recording.observation import CUDA, EngineCondition, Observation, ProbeSet
from stallscope.tui.probe_sets import for_variant

# A baseline takes some seconds. A victim whose calls are too rare for one, and an engine that does not answer, must not
# stop the demo.
BASELINE_AT_MOST_S = 30.0
SILENT_AT_MOST_S = 30.0
# The table stays on the screen for so many steps.
TABLE_STEPS = 3
# More time than this between two ticks is a suspension.
_LONGEST_TICK_S = 1.0


class DemoState(StrEnum):
    """The state of the present step."""

    STARTING = "starting"
    BASELINE = "baseline"
    RUNNING = "running"
    STOPPED = "stopped"
    REFUSED = "refused"
    ENDED = "ended"


class DemoTour:
    """The course through ``plans``: each step is shown for ``seconds``, and the last one is followed by a table.

    With ``loop`` the course begins again after the table. ``step`` is the present step, ``state`` its state, ``ended``
    says that the table is shown, ``finished`` that the program may end. ``outcomes`` has what was found by pattern.
    ``take_order`` returns what the engine is to do.
    """

    def __init__(self, plans: Sequence[PatternPlan], seconds: float, loop: bool = False) -> None:
        """``plans`` is not empty."""
        self.plans = tuple(plans)
        self.seconds = seconds
        self.loop = loop
        self.paused = False
        self.finished = False
        self.outcomes: dict[str, PatternOutcome] = {}
        self.state = DemoState.STARTING
        self._order: tuple[DemoStep | None, bool] | None = None
        self._number = 0
        # The alternatives that are shown, by their position in the plan.
        self._stall = self._remedy = 0
        self.step: DemoStep = self._first_step()
        self.elapsed_s = self._waited_s = 0.0
        self._last_s: float | None = None
        # Pattern and variant of the engine that was asked for last; the probe set of the one before it.
        self._loaded: tuple[str, str] | None = None
        self._stale: ProbeSet | None = None
        self._probe_set: ProbeSet | None = None
        # The analyzer of the step once its probes run, and the newest entry of its log at the step's beginning.
        self._analyzer: Analyzer | None = None
        self._after: int | None = None
        self._reasons: list[str] = []
        # For how long the engine has not answered, and why it was lost, "" while it is not.
        self._stopped_s = 0.0
        self._lost_why = ""
        # The probe set with the most GPUs that an engine ran.
        self._largest_set: ProbeSet | None = None

    def first_probe_set(self) -> ProbeSet:
        """The probes of the first step, for the engine that the source starts by itself.

        A source without the GPUs of its first probes takes the simulated GPU, so those of a pattern over two GPUs are
        asked for later; until then only the host control runs.
        """
        empty = ProbeSet("starting the demo", (entries()[HOST].probe(),), CUDA)
        step = self._first_step()
        return for_variant(empty, step.pattern, step.variant) if step.variant.needs.gpus == 1 else empty

    def take_order(self) -> tuple[DemoStep | None, bool] | None:
        """What the engine is to do, once: the step to load, or None for the present one, and whether aggressors run."""
        order, self._order = self._order, None
        return order

    @property
    def ended(self) -> bool:
        """Whether the table is shown."""
        return self.state is DemoState.ENDED

    @property
    def number(self) -> int:
        """The number of the present pattern, from 1 on."""
        return self._number + 1

    @property
    def left_s(self) -> float:
        """The time in seconds until the next step, once the probes run."""
        return max(0.0, (TABLE_STEPS * self.seconds if self.ended else self.seconds) - self.elapsed_s)

    @property
    def result(self) -> DemoResult:
        """What was found until now."""
        return DemoResult.of(self._largest_set, self.outcomes.values())

    @property
    def problem(self) -> str:
        """The first failure of an engine or a probe, a sentence; "" without one."""
        found = (f"{name}: {outcome.problem}" for name, outcome in self.outcomes.items() if outcome.problem)
        return next(found, "")

    def close(self) -> None:
        """Keep what was found in the present step, and that its engine was lost."""
        if self.ended:
            return
        self._collect()
        if self._lost_why:
            self._note(lambda outcome: replace(outcome, problem=self._lost_why))

    def tick(self, now_s: float, observation: Observation, analyzer: Analyzer | None, watched: bool) -> None:
        """Process the newest observation. The time counts only while the demo is ``watched`` and not paused."""
        passed_s = 0.0 if self._last_s is None else min(now_s - self._last_s, _LONGEST_TICK_S)
        self._last_s = now_s
        if not watched or self.paused:
            passed_s = 0.0
        if self.ended:
            self.elapsed_s += passed_s
            if self.elapsed_s >= TABLE_STEPS * self.seconds:
                self.next()
            return
        self._probe_set = observation.probe_set
        if self._loaded is None:
            self._adopt_first_engine(observation)
        self.state = self._state_of(observation, analyzer)
        stopped = self.state is DemoState.STOPPED
        lost = stopped and observation.engine.state is EngineCondition.LOST
        self._stopped_s = self._stopped_s + passed_s if stopped else 0.0
        self._lost_why = observation.engine.sentence if lost else ""
        if self.state is DemoState.REFUSED:
            self._try_alternative(observation.engine.sentence)
        elif stopped:
            if self._stopped_s >= (self.seconds if lost else SILENT_AT_MOST_S):
                self._fail(observation.engine.sentence)
        elif self.state is not DemoState.STARTING and analyzer is not None:
            self._advance(passed_s, observation, analyzer)

    def _advance(self, passed_s: float, observation: Observation, analyzer: Analyzer) -> None:
        """Let the time of a step with an engine pass."""
        if self._after is None:
            self._after = last_number(analyzer)
        largest = self._largest_set
        if largest is None or len(observation.probe_set.gpus) > len(largest.gpus):
            self._largest_set = observation.probe_set
        if observation.probe_failures:
            failure = observation.probe_failures[0]
            self._analyzer = analyzer
            self._fail(failure.sentence)
            return
        if self.state is DemoState.RUNNING or self.step.phase is DemoPhase.QUIET:
            self._analyzer = analyzer
            self.elapsed_s += passed_s
        if self.state is DemoState.RUNNING:
            if self.elapsed_s >= self.seconds:
                self.next()
            return
        self._waited_s += passed_s
        if self._waited_s >= self.seconds + BASELINE_AT_MOST_S:
            self._fail(f"the baseline was not complete after {self._waited_s:.0f} s")

    def _adopt_first_engine(self, observation: Observation) -> None:
        """Use the engine that the source started by itself if it is that of the first step."""
        if observation.engine.state is EngineCondition.STARTING:
            return
        present = (observation.probe_set.pattern, observation.probe_set.variant)
        if present == self._name(self.step) and observation.engine.state is not EngineCondition.LOST:
            self._loaded = present
        else:
            self._enter(self.step)

    def _state_of(self, observation: Observation, analyzer: Analyzer | None) -> DemoState:
        probe_set, engine = observation.probe_set, observation.engine.state
        present = (probe_set.pattern, probe_set.variant)
        if self._loaded is None or present != self._loaded or probe_set is self._stale:
            return DemoState.STARTING
        if engine is EngineCondition.REFUSED:
            return DemoState.REFUSED
        if engine in (EngineCondition.LOST, EngineCondition.SILENT):
            return DemoState.STOPPED
        if engine is EngineCondition.STARTING or analyzer is None or observation.snapshot is None:
            return DemoState.STARTING
        if analyzer.without_baseline and not self._without_baseline_possible:
            return DemoState.BASELINE
        if not self.step.aggressors_on:
            return DemoState.RUNNING
        parts = observation.snapshot.probes
        on = all(parts[probe.name].on for probe in self.step.aggressors if probe.name in parts)
        # Those that wait for nothing were switched off by the user: the time passes all the same.
        waiting = analyzer.holds_aggressors or bool(observation.waiting)
        return DemoState.BASELINE if waiting and not on else DemoState.RUNNING

    @property
    def _without_baseline_possible(self) -> bool:
        """Whether the step is shown without a baseline: no aggressor waits for it, and its calls are too rare."""
        return not self.step.aggressors and self._waited_s >= BASELINE_AT_MOST_S

    # From step to step.

    def next(self) -> None:
        """Go to the next step; after the last one to the table, and from there to the beginning or the end."""
        if self.ended:
            if self.loop:
                self._begin(0)
            else:
                self.finished = True
            return
        self._collect()
        plan = self.plans[self._number]
        if self.step.phase is DemoPhase.QUIET:
            self._enter(self._stall_step())
        elif self.step.phase is DemoPhase.STALL and plan.remedies:
            self._enter(DemoStep(plan.pattern, DemoPhase.REMEDY, plan.remedies[self._remedy]))
        else:
            self._next_pattern()

    def back(self) -> None:
        """Go to the previous step; from the quiet step to the previous pattern that this machine supports."""
        if self.ended:
            self._begin(self._supported_before(len(self.plans)))
            return
        self._collect()
        if self.step.phase is DemoPhase.REMEDY:
            self._enter(self._stall_step())
            return
        quiet = self.plans[self._number].quiet_step(self._stall)
        if self.step.phase is DemoPhase.STALL and quiet is not None:
            self._enter(quiet)
        else:
            self._begin(self._supported_before(self._number))

    def restart(self) -> None:
        """Begin the present pattern again with a new engine."""
        if not self.ended:
            self._loaded = None
            self._begin(self._number)

    def go_to_remedy(self) -> None:
        """Go to the remedy of the present pattern, if it has one that is not shown yet."""
        plan = self.plans[self._number]
        if not self.ended and self.step.phase is not DemoPhase.REMEDY and plan.remedies:
            self._collect()
            self._enter(DemoStep(plan.pattern, DemoPhase.REMEDY, plan.remedies[self._remedy]))

    def end(self) -> None:
        """Show the table, with the aggressors off."""
        self.close()
        self.state = DemoState.ENDED
        self.elapsed_s = 0.0
        self._switch(False)

    def _begin(self, number: int) -> None:
        self._number, self._stall, self._remedy, self._reasons = number, 0, 0, []
        self._enter(self._first_step())

    def _next_pattern(self) -> None:
        if self._number + 1 < len(self.plans):
            self._begin(self._number + 1)
        else:
            self.end()

    def _supported_before(self, number: int) -> int:
        """The last pattern before ``number`` that was not skipped, else the first of all."""
        known = (self.outcomes.get(plan.pattern.name) for plan in self.plans[:number])
        supported = [at for at, outcome in enumerate(known) if outcome is None or not outcome.skipped]
        return max(supported, default=0)

    def _first_step(self) -> DemoStep:
        return self.plans[self._number].quiet_step(self._stall) or self._stall_step()

    def _stall_step(self) -> DemoStep:
        plan = self.plans[self._number]
        return DemoStep(plan.pattern, DemoPhase.STALL, plan.stalls[self._stall])

    def _enter(self, step: DemoStep) -> None:
        stopped = self.state in (DemoState.STOPPED, DemoState.REFUSED)
        self.step, self.state, self._lost_why = step, DemoState.STARTING, ""
        self.elapsed_s = self._waited_s = 0.0
        self._analyzer = self._after = None
        if self._loaded == self._name(step) and not stopped:
            self._switch(step.aggressors_on)
            return
        self._loaded, self._stale = self._name(step), self._probe_set
        self._order = step, step.aggressors_on

    def _switch(self, on: bool) -> None:
        """Have the aggressors run or not, once what is to be loaded is."""
        self._order = (None if self._order is None else self._order[0]), on

    @staticmethod
    def _name(step: DemoStep) -> tuple[str, str]:
        return step.pattern.name, step.variant.name

    # What was found.

    def _try_alternative(self, reason: str) -> None:
        """Show the next variant of the same kind; without one, note that this machine supports none."""
        self._reasons.append(reason)
        plan = self.plans[self._number]
        if self.step.phase is DemoPhase.REMEDY:
            self._remedy += 1
            if self._remedy < len(plan.remedies):
                self._enter(DemoStep(plan.pattern, DemoPhase.REMEDY, plan.remedies[self._remedy]))
                return
            self._note(lambda outcome: replace(outcome, no_remedy=self._reasons[0]))
        else:
            self._stall += 1
            if self._stall < len(plan.stalls):
                self._enter(self._first_step())
                return
            self.outcomes[plan.pattern.name] = PatternOutcome(plan.pattern, skipped=self._reasons[0])
        self._next_pattern()

    def _fail(self, sentence: str) -> None:
        """Note a failure, and go to the next pattern."""
        self._collect()
        self._note(lambda outcome: replace(outcome, problem=sentence))
        self._next_pattern()

    def _note(self, change: Callable[[PatternOutcome], PatternOutcome]) -> None:
        pattern = self.step.pattern
        self.outcomes[pattern.name] = change(self.outcomes.get(pattern.name, PatternOutcome(pattern)))

    def _collect(self) -> None:
        """Keep what was found in the present step, if its probes ran."""
        analyzer, step, after = self._analyzer, self.step, self._after or 0
        if analyzer is None or analyzer.probe_set.variant != step.variant.name:
            return
        known = self.outcomes.get(step.pattern.name, PatternOutcome(step.pattern))
        if step.phase is DemoPhase.QUIET:
            # The measurement of a pattern begins here, also in the second round. What is known stays until then.
            quiet = present_latency(analyzer)
            self._note(lambda outcome: replace(outcome, quiet=quiet, skipped="", no_remedy="", problem=""))
        elif step.phase is DemoPhase.STALL:
            like = None if step.aggressors else known.quiet
            found = worst_latency(analyzer, after) or present_latency(analyzer, like)
            self._note(lambda outcome: replace(outcome, stall=step.variant.name, stalled=found))
        else:
            found = remedied_latency(analyzer, after, known.stalled)
            self._note(lambda outcome: replace(outcome, remedy=step.variant.name, remedied=found))
