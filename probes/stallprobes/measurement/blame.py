"""The blame experiment: switches the aggressors of a session on and off and measures the victims in every state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stallprobes.engine.session import Session
from stallprobes.engine.slots import longest_cycle
from stallprobes.engine.snapshot import ProbeSnapshot, has_run
from stallprobes.errors import EXIT_ENGINE, EngineFailed, Stopped
from stallprobes.latency.window import Window
from stallprobes.model import Probe
from stallprobes.native.layouts.board import ProbeState
from stallprobes.verdicts import experiment
from stallprobes.verdicts.blame import Blame
from stallprobes.verdicts.experiment import BUDGET_S, AggressorState, BlamePlan, BlameWindow

# Period (s) at which a blame experiment checks the condition for which the experiment waits. A blame experiment
# switches the aggressors on and off to find the cause.
_STEP_S = 0.005
# Longest wait (s) until switched-off aggressors have ended their calls. A second wait, until all kernels launched by
# the aggressors have started, has the same limit.
_RETURN_AT_MOST_S = 1.0
# Longest wait (s) until aggressors that were switched on have started.
_START_AT_MOST_S = 0.3
# Number of unmeasured calls of each victim between a change of the running aggressors and the measured window. Reason:
# the first of the unmeasured calls may have begun before the change.
_LEAD_IN_CALLS = 2
# Longest wait (s) until every victim has made its _LEAD_IN_CALLS unmeasured calls after a change of the running
# aggressors.
_LEAD_IN_AT_MOST_S = 0.05
# Assumed longest time (s) of the last kernel of a switched-off aggressor that launches ahead of the GPU. The wait for
# the end of this kernel is this time multiplied by 1 + the number of aggressors of this kind in the next window,
# because contexts on one GPU take turns.
_LAST_KERNEL_S = 0.06
# Number of calls that every victim should make in a window. A window with fewer calls of a victim is extended, unless a
# victim has made no call.
_ENOUGH_CALLS = 40
# Step (s) by which a window is extended until every running aggressor has ended an iteration in the window.
_EXTENSION_S = 0.02
# Longest window (s) after extensions. At this length, the window ends even with too few calls of a victim or no
# iteration of an aggressor.
_LONGEST_S = 0.35
# Time (ns) without progress after which an aggressor that has no call in flight counts as stuck. A window with a stuck
# aggressor does not count.
_NO_PROGRESS_NS = 500_000_000
# Largest number of rounds of a blame experiment.
_MOST_ROUNDS = 20


@dataclass(frozen=True)
class BlameProgress:
    """Measured and all windows, the seconds that have passed, and an estimate of the remaining seconds."""

    done: int
    total: int
    passed_s: float
    left_s: float


def plan_of(aggressors: Sequence[Probe], victims: Sequence[Probe], together: bool = False) -> BlamePlan:
    """The plan for ``aggressors``; ``together``: the victims do not run in slots. Raises ValueError without any."""
    return experiment.plan([probe.name for probe in aggressors], longest_cycle(victims, together))


def measure(
    session: Session,
    aggressors: Sequence[Probe],
    victims: Sequence[Probe],
    *,
    plan: BlamePlan | None = None,
    progress: Callable[[BlameProgress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Blame:
    """Measure the victims in every state of ``plan``, and conclude.

    ``session`` runs; its other probes stay as they are. The aggressors are as before when it returns or raises.
    Raises Stopped, and EngineFailed when the engine or an aggressor failed.
    """
    names = [probe.name for probe in aggressors]
    order = plan or plan_of(aggressors, victims, session.options.together)
    switching = _Experiment(session, aggressors, victims, order, progress, stop)
    before = {name: part.on for name, part in _snapshots(session, names, False).items()}
    try:
        return switching.run()
    finally:
        session.set_running(before)


class _Experiment:
    def __init__(
        self,
        session: Session,
        aggressors: Sequence[Probe],
        victims: Sequence[Probe],
        plan: BlamePlan,
        progress: Callable[[BlameProgress], None],
        stop: Callable[[], bool],
    ) -> None:
        self._session = session
        self._aggressors = {probe.name: probe for probe in aggressors}
        self._victims = tuple(victims)
        self._victim_names = [probe.name for probe in victims]
        self._plan = plan
        self._progress = progress
        self._stop = stop
        self._began_ns = 0
        self._windows_s = 0.0
        self._done = 0
        self._total = plan.windows
        self._state: AggressorState | None = None
        # The latest snapshot of each running aggressor in which it had made progress.
        self._active: dict[str, ProbeSnapshot] = {}
        self._has_run: set[str] = set()

    def run(self) -> Blame:
        """All rounds, and more of them while something is undecided and time is left.

        From the fourth on, a round has only the states that can decide something, or all states where nothing is
        undecided; states that no longer fit into the time are left out.
        """
        self._began_ns = next(iter(self._parts(self._victim_names).values())).at_ns
        measured: list[BlameWindow] = []
        for number in range(_MOST_ROUNDS):
            states = self._plan.round(number)
            planned = number < len(self._plan.rounds)
            if number >= min(experiment.FEWEST_ROUNDS, len(self._plan.rounds)):
                undecided = experiment.open_states(list(self._aggressors), self._victims, measured)
                states = tuple(state for state in states if state in undecided) if undecided else states
                planned = planned and not undecided
                # A round of the plan may end a little late, others may not.
                expected_s = self._passed_s() / self._done * len(states) / (2 if planned else 1)
                late = self._passed_s() + expected_s > max(BUDGET_S, self._plan.total_s)
                if late or not (planned or undecided):
                    break
            self._total = max(self._plan.windows, len(measured) + len(states))
            for state in states:
                self._change_to(state)
                measured.append(self._window(number, state, self._length_s()))
                self._done = len(measured)
                left_s = self._passed_s() / self._done * (self._total - self._done)
                self._progress(BlameProgress(self._done, self._total, self._passed_s(), left_s))
        return self._conclude(measured)

    def _conclude(self, measured: Sequence[BlameWindow]) -> Blame:
        return experiment.conclude(list(self._aggressors), self._victims, measured, self._passed_s())

    def _length_s(self) -> float:
        """The length of the next window, so that the experiment takes the time of its plan."""
        if not 0 < self._done < self._plan.windows:
            return self._plan.window_s
        passed_s = self._passed_s()
        change_s = (passed_s - self._windows_s) / self._done
        left_s = (self._plan.total_s - passed_s) / (self._plan.windows - self._done) - change_s
        return min(max(left_s, self._plan.shortest_s), self._plan.window_s)

    def _change_to(self, state: AggressorState) -> None:
        """Switch to ``state``; returns when the stopped aggressors are idle, the others run and the victims call."""
        before = self._state if self._state is not None else frozenset(self._aggressors)
        stopped = [name for name in self._aggressors if name in before and name not in state]
        self._session.set_running({name: name in before & state for name in self._aggressors})
        self._state = state
        for name in stopped:
            self._active.pop(name, None)
            self._has_run.discard(name)
        if stopped:
            self._until(lambda: self._idle(stopped), _RETURN_AT_MOST_S)
            queues = [name for name in stopped if self._aggressors[name].program.guard is not None]
            if queues:
                self._until(lambda: self._queues_empty(queues), _RETURN_AT_MOST_S)
                running = sum(self._aggressors[name].program.guard is not None for name in state)
                self._pass(_LAST_KERNEL_S * (1 + running))
        if state:
            self._session.set_running(dict.fromkeys(state, True))
            self._until(lambda: self._update_progress() >= state, _START_AT_MOST_S)
        begin = self._parts(self._victim_names)
        self._until(lambda: self._all_called(begin), _LEAD_IN_AT_MOST_S)

    def _window(self, number: int, state: AggressorState, seconds: float) -> BlameWindow:
        begin = self._parts(self._victim_names, True)
        ended = self._parts(list(self._aggressors))
        self._pass(seconds)
        longest_s, passed_s = self._longest_s(seconds), seconds
        fewest = min((window.iterations for window in self._since(begin).values()), default=_ENOUGH_CALLS)
        # Without any call a longer window would show nothing new: the call in flight counts by its age.
        if 0 < fewest < _ENOUGH_CALLS:
            more_s = max(min(seconds * (_ENOUGH_CALLS / fewest - 1), longest_s - seconds), 0.0)
            self._pass(more_s)
            passed_s += more_s
        # The stalls of a slow aggressor come with its iterations, so the window should contain one.
        while passed_s < longest_s and self._without_iteration(state, ended):
            self._pass(_EXTENSION_S)
            passed_s += _EXTENSION_S
        windows = self._since(begin)
        self._windows_s += max(part.at_ns for part in self._parts(self._victim_names).values()) / 1e9
        self._windows_s -= min(part.at_ns for part in begin.values()) / 1e9
        ran = self._update_progress()
        now = self._parts(list(self._aggressors))
        # A call in flight is no idleness: another aggressor can hold it up.
        held = {name for name in state if now[name].in_flight is not None}
        stuck = {name for name in state if now[name].at_ns - self._active[name].at_ns > _NO_PROGRESS_NS}
        return BlameWindow(number, state, windows, frozenset((state - ran) | stuck) - held)

    def _longest_s(self, seconds: float) -> float:
        """The most time of a window, so that the fewest rounds still fit into the time of the plan."""
        done, states = self._done, len(self._plan.states)
        change_s = (self._passed_s() - self._windows_s) / (done + 1)
        needed = max(experiment.FEWEST_ROUNDS * states - done - 1, 0) * (self._plan.shortest_s + change_s)
        return max(min(_LONGEST_S, self._plan.total_s - self._passed_s() - needed), seconds)

    def _without_iteration(self, state: AggressorState, begin: Mapping[str, ProbeSnapshot]) -> bool:
        """True if an aggressor of ``state`` has ended no iteration since ``begin``."""
        now = self._parts(list(state))
        return any(part.iterations == begin[name].iterations for name, part in now.items())

    def _since(self, begin: Mapping[str, ProbeSnapshot]) -> dict[str, Window]:
        end = self._parts(self._victim_names, True)
        return {name: part.minus(begin[name]) for name, part in end.items() if part.error is None}

    def _update_progress(self) -> set[str]:
        """The running aggressors that have run since they were switched on."""
        for name, part in self._parts(list(self._aggressors)).items():
            if part.error is not None:
                failures = [failure.sentence for failure in self._session.probe_failures() if failure.probe == name]
                why = failures[0] if failures else f"{name}: a call returned {part.error.code}"
                raise EngineFailed(EXIT_ENGINE, f"the aggressor failed: {why}")
            if self._state is None or name not in self._state:
                continue
            active = self._active.setdefault(name, part)
            if has_run(self._aggressors[name], part.minus(active)):
                self._active[name] = part
                self._has_run.add(name)
        return set(self._has_run)

    def _idle(self, names: Sequence[str]) -> bool:
        parts = self._parts(names)
        return all(part.in_flight is None and part.state is not ProbeState.RUNNING for part in parts.values())

    def _queues_empty(self, names: Sequence[str]) -> bool:
        """True if every kernel that these aggressors launched has started."""
        return all(part.proof >= part.iterations for part in self._parts(names).values())

    def _all_called(self, begin: Mapping[str, ProbeSnapshot]) -> bool:
        now = self._parts(self._victim_names)
        return all(
            part.iterations - begin[name].iterations >= _LEAD_IN_CALLS or part.error is not None or not part.on
            for name, part in now.items()
        )

    def _parts(self, names: Sequence[str], with_channels: bool = False) -> dict[str, ProbeSnapshot]:
        return _snapshots(self._session, names, with_channels)

    def _passed_s(self) -> float:
        return (next(iter(self._parts(self._victim_names).values())).at_ns - self._began_ns) / 1e9

    def _until(self, done: Callable[[], bool], at_most_s: float) -> None:
        waited = 0.0
        while not done() and waited < at_most_s:
            self._pass(_STEP_S)
            waited += _STEP_S

    def _pass(self, seconds: float) -> None:
        left = seconds
        while left > 1e-9:
            if self._stop():
                raise Stopped
            step = min(left, 0.1)
            self._session.run_for(step)
            left -= step


def _snapshots(session: Session, names: Sequence[str], with_channels: bool) -> dict[str, ProbeSnapshot]:
    try:
        return session.probe_snapshots(names, with_channels)
    except RuntimeError as error:
        raise session.failure() or EngineFailed(EXIT_ENGINE, "the engine was stopped during the experiment") from error
