"""Analyzer of the live screen: computes view models from observations.

The analyzer keeps the window of the last second, the baseline of each victim, the coarse history and the log of
verdicts. It has no session and no thread; its output depends only on the observations, so that a replay gives the same
output.

Every second without an aggressor and without a stall extends the baselines, which thereby show how much the machine
itself varies. Calls are longer with the timeline on, so that each probe has one baseline with the timeline and one
without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial

from stallprobes.engine.snapshot import ProbeSnapshot, Snapshot
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.window import ChannelMap
from stallprobes.live.baselines import BaselineCollector
from stallprobes.live.before import stalled_before
from stallprobes.live.heat_map import EarlierSet, HeatMapHistory
from stallprobes.live.history import SLOT_NS
from stallprobes.live.judged_window import JudgedWindow
from stallprobes.live.judgement import Judgement
from stallprobes.live.view_model import ChannelView, LogEntry, MonitorView, StalledBefore
from stallprobes.live.windows import LONGEST_WINDOW_NS, WINDOW_NS, LazyWindows, long_enough, thinned
from stallprobes.model import JUDGED_PHASES, MS, Channel, Phase, Probe, Process, Role
from stallprobes.recording.observation import SIM, EngineCondition, Observation, ProbeSet
from stallprobes.verdicts.candidates import KnownEffects
from stallprobes.verdicts.verdict import Verdict

# Shortest time (ns) between two observations that the analyzer keeps for its window. If observations are closer, the
# analyzer keeps the latest. Only a recording can have closer observations: a screen observes at most 30 times per
# second.
_CLOSEST_NS = 16 * MS


class Analyzer:
    """Analyzer of one probe set: computes windows, verdicts and view models from observations."""

    def __init__(
        self,
        probe_set: ProbeSet,
        *,
        baseline_s: float = 2.0,
        keep_s: float = 120.0,
        baselines: Mapping[str, Baseline] | None = None,
        log: Sequence[LogEntry] = (),
        earlier: Sequence[EarlierSet] = (),
    ) -> None:
        """A baseline is complete after ``baseline_s`` seconds; ``keep_s`` seconds of history are
        kept. ``baselines`` are those known at the start, ``log`` the entries of the probe set before this one,
        oldest first, ``earlier`` the histories of the sets before it."""
        self.probe_set = probe_set
        self._collector = BaselineCollector(probe_set, round(baseline_s * 1e9), baselines or {})
        # The collector for the other state of the timeline; and whether the timeline is on, None before an observation.
        self._other_collector = BaselineCollector(probe_set, round(baseline_s * 1e9), {})
        self._timeline: bool | None = None
        # The timeline was switched while aggressors ran, which continue although no baseline of this state is known.
        self._unjudged = False
        self.judgement = Judgement(probe_set, log, partial(_effects, probe_set))
        # Probes with a baseline in the recording that is replayed.
        self._recorded = frozenset(baselines or ())
        self._recent: deque[Snapshot] = deque()
        self._windows: LazyWindows | None = None
        self._last: Snapshot | None = None
        self._last_wall_s = 0.0
        # The stall that a remedy is compared with.
        self.before = stalled_before(probe_set, earlier)
        relation = "" if self.before is None else self.before.relation
        self._heat_map = HeatMapHistory(probe_set, round(keep_s * 1e9) // SLOT_NS, earlier, relation)
        # The last snapshot with marks for its switches.
        self._marked: Snapshot | None = None
        self._waiting: frozenset[str] = frozenset()
        self._errors: dict[str, str] = {}
        # Whether a blame experiment runs.
        self._experiment = False

    def copy(self) -> Analyzer:
        """A copy of the present state, to be displayed while this analyzer continues."""
        other = copy(self)
        other._heat_map = self._heat_map.copy()
        other._collector, other._other_collector = self._collector.copy(), self._other_collector.copy()
        other.judgement = self.judgement.copy()
        return other

    def feed(self, observation: Observation) -> None:
        """Process the next observation. Observations of a silent engine are ignored: its calls did not wait for the
        GPU."""
        self._waiting = observation.waiting
        self._heat_map.observed(observation.wall_s)
        self._errors = {failure.probe: failure.sentence for failure in observation.probe_failures}
        now = observation.snapshot
        if now is None or observation.engine.state != EngineCondition.READY:
            self._interrupt()
            self._last = None
            return
        if self._last is not None and now.at_ns < self._last.at_ns:
            self._interrupt()
            self._last = None
            self.judgement.restart()
        elif self._last is not None and now.at_ns - self._last.at_ns > WINDOW_NS:
            # An aggressor may have run in the meantime.
            self._collector.interrupt()
            if now.at_ns - self._last.at_ns > LONGEST_WINDOW_NS:
                # After a suspension of the program, for example: no window spans this time, and no verdict holds in it.
                self._recent.clear()
                self.judgement.tracker.cut_off(self._last_wall_s, "the observations were interrupted")
        if observation.timeline not in (None, self._timeline):
            self._change_timeline(bool(observation.timeline), now.at_ns)
        self._heat_map.feed(now, self._last)
        self._heat_map.feed_gpu(now.at_ns, observation.telemetry)
        if observation.experiment and not self._experiment:
            self._heat_map.mark(now.at_ns, "blame")
        self._experiment = observation.experiment
        if observation.experiment or observation.timeline is None:
            # The states of an experiment last a fraction of a second: no window, baseline or switch of them means
            # anything here. While the timeline is switched, calls that take long wait for CUPTI, not for an aggressor.
            self._interrupt()
            self._last, self._last_wall_s = now, observation.wall_s
            return
        for switch in self.judgement.note_switches(now, self._marked):
            # Several threads of one aggressor have numbers.
            name = switch.name.partition(" ")[0]
            self._heat_map.mark(now.at_ns, f"{name} {'on' if switch.on else 'off'}")
        self._marked = now
        if self._last is not None and self._idle_changed(now, self._last):
            # No window contains calls of both periods.
            self._recent.clear()
            self.judgement.calls = {}
            self._collector.interrupt()
        self._update_window(now)
        others = _other_processes(observation)
        disturbed = self.judgement.feed(self._windows, now, observation.wall_s, others, self._errors, self.baselines)
        self._collector.feed(now, disturbed, bool(others))
        self._last, self._last_wall_s = now, observation.wall_s

    def _idle_changed(self, now: Snapshot, before: Snapshot) -> bool:
        """True if a probe has begun or ceased to make its calls after longer idle times than in its baseline."""
        return any(
            probe.is_idle_at(now.probes[probe.name].period_ns) != probe.is_idle_at(before.probes[probe.name].period_ns)
            for probe in self.probe_set.probes
            if probe.baseline_period_ns is not None
        )

    def _change_timeline(self, on: bool, at_ns: int) -> None:
        """Use the baselines of the other state of the timeline; no window contains calls of both."""
        if self._timeline is None:
            self._timeline = on
            return
        self._heat_map.mark(at_ns, f"timeline {'on' if on else 'off'}")
        self._timeline = self._unjudged = on
        self._collector, self._other_collector = self._other_collector, self._collector
        self._collector.restart()
        self._recent.clear()
        self._windows, self.judgement.verdicts, self.judgement.calls = None, (), {}
        self.judgement.tracker.cut_off(self._last_wall_s, f"the timeline was switched {'on' if on else 'off'}")

    def _interrupt(self) -> None:
        """Let no window and no baseline contain calls of before and after this moment."""
        self._recent.clear()
        self._collector.interrupt()

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """The complete baselines by probe."""
        return self._collector.baselines

    @property
    def known_baselines(self) -> Mapping[str, Baseline]:
        """The complete baselines by probe, of the other state of the timeline where there is none of the present."""
        return {**self._other_collector.baselines, **self._collector.baselines}

    @property
    def timeline(self) -> bool:
        """True if the timeline was on in the last observation."""
        return bool(self._timeline)

    def discard_baselines(self, names: Iterable[str] | None = None) -> None:
        """Discard the baselines of ``names``, or all; they are measured again as soon as no aggressor runs."""
        self._unjudged = False
        self._collector.discard([probe.name for probe in self.probe_set.probes] if names is None else names)

    def follow_recorded(self, baselines: Mapping[str, Baseline]) -> None:
        """Adopt a recording's baselines for probes without one, and discard the baselines that the recording discarded.

        The analyzer learns the others from the recording itself.
        """
        self.discard_baselines(name for name in self._recorded if name not in baselines)
        self._recorded = frozenset(baselines)
        self._collector.adopt(baselines)

    def clear(self) -> None:
        """Empty the window, the history and the log; the baselines stay."""
        self._recent.clear()
        self._heat_map.clear()
        self.judgement.tracker.clear()

    @property
    def without_baseline(self) -> tuple[str, ...]:
        """Names of the probes that run and have no baseline yet."""
        return self._collector.needed(self._last)

    @property
    def holds_aggressors(self) -> bool:
        """True if aggressors must stay off until the baselines are complete.

        Aggressors that ran when the timeline was switched on continue, so that the timeline records their effect.
        """
        if self._unjudged and self._last is not None and self._collector.busy(self._last):
            return False
        return bool(self.without_baseline)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts on the present window."""
        return self.judgement.verdicts

    @property
    def log(self) -> tuple[LogEntry, ...]:
        """The log, oldest first."""
        return self.judgement.tracker.entries

    @property
    def worst(self) -> str | None:
        """The victim with the worst present verdict, None if all are quiet."""
        return self.judgement.worst

    @property
    def stalls(self) -> Mapping[str, tuple[int, float]]:
        """The victims that stall now, confirmed by the log, with severity and ratio of the worst verdict of each."""
        return self.judgement.stalls

    def slowest_ns(self) -> int:
        """The longest call of a victim in the window, or its age in flight (ns).

        0 if the host control had a call at least half as long, since the machine is then the cause.
        """
        if self._windows is None:
            return 0
        longest = {Role.VICTIM: 0, Role.HOST: 0, Role.AGGRESSOR: 0}
        for probe in self.probe_set.probes:
            window = self._windows[probe.name]
            channels = [
                window.channels[channel] for channel in map(Channel, JUDGED_PHASES) if channel in window.channels
            ]
            age_ns = 0 if window.in_flight is None else window.in_flight.age_ns
            longest[probe.role] = max(longest[probe.role], age_ns, *(histogram.max_ns for histogram in channels))
        return longest[Role.VICTIM] if longest[Role.HOST] * 2 < longest[Role.VICTIM] else 0

    def channels(self, name: str) -> ChannelMap:
        """The histograms of the present window of the probe called ``name``; empty without a window."""
        return {} if self._windows is None or name not in self._windows else self._windows[name].channels

    def earlier_sets(self, followed: str | None) -> tuple[EarlierSet, ...]:
        """The histories of this probe set and of earlier ones for the next set; ``followed`` is the victim at that
        time."""
        probe = self.probe_set.probe(followed or "")
        if probe is not None:
            judged = self._judged_window()
            return self._heat_map.ended(judged.row(probe, ()), judged.channel_views(probe))
        return self._heat_map.earlier

    def channels_until(self, part: ProbeSnapshot) -> ChannelMap:
        """The histograms of one probe for the window that ends with ``part``, read after the last observation.

        Empty without a window."""
        return {} if self._windows is None or part.name not in self._windows else self._windows.channels_until(part)

    def monitor_view(
        self,
        focus: str | None,
        *,
        columns: int = 60,
        span_s: float = 60.0,
        strip: int = 20,
    ) -> MonitorView:
        """The view model: ``columns`` of heat map over about ``span_s`` seconds, strips of ``strip`` columns over a
        minute, the histograms of the probe called ``focus``."""
        at_ns, probes, judged = self._heat_map.at_ns, self.probe_set.probes, self._judged_window()
        rows = tuple(judged.row(probe, self._heat_map.strip(probe, strip) if strip else ()) for probe in probes)
        names = [probe.name for probe in probes]
        view = None
        if focus in names:
            number = names.index(focus)
            channels = self._channel_views(judged, probes[number])
            view = self._heat_map.view(number, rows[number], channels, columns, span_s)
            before = self.before
            was_ns = before.row.now_ns if before is not None and before.counterpart == focus else None
            view = replace(view, was_ns=was_ns, recorded=self.timeline)
        needed = self.without_baseline
        age = None
        if judged.baselines and not needed:
            age = max(0.0, max(at_ns - baseline.at_ns for baseline in judged.baselines.values()) / 1e9)
        groups = judged.groups_on(probes)
        left_s = self._collector.left_s(self._last, needed, groups)
        return MonitorView(rows, view, self.log[::-1], age, left_s, self._shown_before(strip))

    def _shown_before(self, strip: int) -> StalledBefore | None:
        """The stall that a remedy is compared with, with the strip of its victim."""
        before = self.before
        victim = None if before is None else before.probe_set.probe(before.row.name)
        if before is None or victim is None:
            return None
        levels = self._heat_map.strip(victim, strip, earlier_only=True) if strip else ()
        return replace(before, row=replace(before.row, strip=levels))

    def _channel_views(self, judged: JudgedWindow, probe: Probe) -> tuple[ChannelView, ...]:
        """The histograms of a probe; if it makes the stalled call, with the stall's histograms before a remedy."""
        channels, before = judged.channel_views(probe), self.before
        if before is None or before.counterpart != probe.name:
            return channels
        stalled = {(view.phase, view.label): view.live for view in before.channels if view.live.count}
        return tuple(replace(view, stalled=stalled.get((view.phase, view.label))) for view in channels)

    def _judged_window(self) -> JudgedWindow:
        before = self.before
        phases: dict[str, Phase] = {}
        if before is not None and before.counterpart is not None and before.row.phase is not None:
            # The figures of a remedy are of the phase that stalled.
            phases[before.counterpart] = before.row.phase
        return JudgedWindow(
            self._windows,
            self._last,
            self.baselines,
            self.verdicts,
            self._errors,
            self._waiting,
            self.timeline,
            self._collector.progress(self._last),
            self.judgement.calls,
            phases,
        )

    def _update_window(self, now: Snapshot) -> None:
        if len(self._recent) > 1 and now.at_ns - self._recent[-2].at_ns < _CLOSEST_NS:
            self._recent.pop()
        self._recent.append(now)
        while len(self._recent) > 2 and all(
            long_enough(now.probes[name], part) for name, part in self._recent[1].probes.items()
        ):
            self._recent.popleft()
        thinned(self._recent)
        self._windows = LazyWindows(tuple(self._recent)) if len(self._recent) > 1 else None


def _effects(probe_set: ProbeSet) -> KnownEffects | None:
    """Effects of the aggressors of ``probe_set`` on its GPU in recorded checks; None for an unknown GPU."""
    # Its modules take tens of milliseconds to import, and few verdicts need them.
    from stallprobes.matrix.known_effects import known_effects

    model = probe_set.gpus[0].model if probe_set.gpus else None
    return known_effects(model, simulated=probe_set.backend == SIM)


def _other_processes(observation: Observation) -> tuple[str, ...] | None:
    """The other processes on the GPU; None if NVML does not know them, or if the listed may include the session's."""
    telemetry = observation.telemetry
    if observation.other_processes or telemetry is None:
        return observation.other_processes or None
    known = telemetry.readings.get("processes")
    own = {probe.program.process for probe in observation.probe_set.probes} | {Process.ENGINE}
    if known is None or known.value is None or len(known.value) > len(own):
        return None
    return ()
