"""Judgement of a probe set: the verdicts on its present windows, their log, and when they began."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from stallprobes.engine.snapshot import Snapshot
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import Window
from stallprobes.live.baselines import SETTLE_NS, may_run
from stallprobes.live.tracker import JITTER_NS, JUDGE_NS, Switch, VerdictTracker
from stallprobes.live.view_model import LogEntry
from stallprobes.live.windows import WINDOW_NS, LazyWindows, extended_ns
from stallprobes.model import MS, Channel, Phase, Probe, Role
from stallprobes.recording.observation import ProbeSet
from stallprobes.verdicts.blame import Blame, proven
from stallprobes.verdicts.candidates import AggressorGroup, EffectsSource, aggressor_groups
from stallprobes.verdicts.evidence import STALLED, Evidence
from stallprobes.verdicts.explanations import began_with
from stallprobes.verdicts.kinds import IN_FLIGHT_NS, VerdictKind
from stallprobes.verdicts.rules import judge
from stallprobes.verdicts.verdict import Proof, Verdict

# Longest time (ns) from switching on an aggressor to the first slow call of a stall. Up to this time, the verdict says
# that the stall began after the switch.
_WITH_SWITCH_NS = 5_000 * MS
# An aggressor is the probable cause of a stall if the stall's first slow call begins at most this time (ns) after the
# aggressor was switched on.
_PROBABLY_NS = 1_000 * MS
# If two aggressors are switched on within less than this time (ns), a later stall is assigned to neither aggressor.
# Otherwise, the stall is assigned to the second aggressor.
_AT_ONCE_NS = 100 * MS
# If a stall's latency exceeds its earlier maximum by more than this factor, the stall's begin is searched again.
# Exception: a stall in a call in flight. Reason: the age of such a call grows without a new cause.
_GROWTH = 3.0


class Judgement:
    """Judgement of ``probe_set``: ``verdicts``, the present ones, rest on ``calls`` calls of each probe.

    ``tracker`` makes the log of them.
    """

    def __init__(self, probe_set: ProbeSet, log: Sequence[LogEntry], effects: EffectsSource) -> None:
        self.verdicts: tuple[Verdict, ...] = ()
        self.calls: Mapping[str, int] = {}
        self.tracker = VerdictTracker(log)
        self._probes = probe_set.probes
        self._roles = {probe.name: probe.role for probe in probe_set.probes}
        # The board's time at which each aggressor was last found running, and of the last judgement.
        self._ran_ns: dict[str, int] = {}
        self._judged_ns = 0
        # The last blame experiment.
        self._blame: Blame | None = None
        self._effects = effects
        # The onset of each present stall, with its largest figure (ns).
        self._onsets: dict[tuple[str, Phase | None], tuple[Onset | None, float]] = {}

    def copy(self) -> Judgement:
        """A copy of the present state."""
        other = copy(self)
        other.tracker = self.tracker.copy()
        return other

    @property
    def worst(self) -> str | None:
        """The victim with the worst present verdict, None if all are quiet."""
        slow = [
            verdict
            for verdict in self.verdicts
            if verdict.kind.is_slowdown and self._roles.get(verdict.probe) is Role.VICTIM
        ]
        worst = max(slow, key=lambda verdict: verdict.weight, default=None)
        return None if worst is None else worst.probe

    @property
    def stalls(self) -> Mapping[str, tuple[int, float]]:
        """The weight of the worst present verdict of each victim with a current slowdown in the log.

        Verdicts of kind HOST do not count: the host's noise is no stall.
        """
        weights: dict[str, tuple[int, float]] = {}
        for verdict in self.verdicts:
            slow = verdict.kind.is_slowdown and verdict.kind is not VerdictKind.HOST
            if slow and self._roles.get(verdict.probe) is Role.VICTIM:
                weights[verdict.probe] = max(verdict.weight, weights.get(verdict.probe, verdict.weight))
        if not weights:
            return weights
        entries = (entry for entry in self.tracker.entries if entry.ended_s is None)
        logged = {entry.verdict.probe for entry in entries if entry.verdict.kind.is_slowdown}
        return {name: weight for name, weight in weights.items() if name in logged}

    def restart(self) -> None:
        """Judge the next windows at once: the board's time has begun again."""
        self._judged_ns = 0

    def note_switches(self, now: Snapshot, before: Snapshot | None) -> list[Switch]:
        """Note which aggressors run; the switches since ``before``."""
        switches = []
        for probe in self._of_role(Role.AGGRESSOR):
            part = now.probes[probe.name]
            if before is not None and before.probes[probe.name].on != part.on:
                switches.append(Switch(probe.name, part.on, now.at_ns))
                self.tracker.switched(switches[-1])
            if may_run(part):
                self._ran_ns[probe.name] = now.at_ns
        return switches

    def add_blame(self, blame: Blame, wall_s: float) -> None:
        """Add the result of a blame experiment to the log. Its causes hold while the same aggressors run."""
        self._blame = blame
        aggressors, victims = self._of_role(Role.AGGRESSOR), self._of_role(Role.VICTIM)
        self.tracker.add_blame(
            lambda verdict: proven([verdict], blame, victims, aggressors)[0],
            blame.verdicts(victims, aggressors),
            wall_s,
        )

    def feed(
        self,
        windows: LazyWindows | None,
        now: Snapshot,
        wall_s: float,
        others: tuple[str, ...] | None,
        errors: Mapping[str, str],
        baselines: Mapping[str, Baseline],
    ) -> set[str] | None:
        """Judge the present windows if that is due. ``others`` are other processes on the GPU, None if not known.

        Returns the names of probes whose window does not belong in a baseline; None if nothing was judged.
        """
        if now.at_ns - self._judged_ns < JUDGE_NS - JITTER_NS:
            return None
        self._judged_ns = now.at_ns
        if windows is None:
            return None
        longest_ns = max(WINDOW_NS, windows.longest_ns)
        since_ns = now.at_ns - longest_ns - SETTLE_NS
        ran_ns = max(self._ran_ns.values(), default=-1)
        # One judgement more names the aggressors than their effect can last: it shows what is as slow after them.
        judged = [
            probe
            for probe in self._probes
            if now.probes[probe.name].on or self._ran_ns.get(probe.name, -1) >= since_ns - 2 * JUDGE_NS
        ]
        self.calls = {probe.name: windows[probe.name].iterations for probe in judged}
        evidence = [_evidence(probe, windows[probe.name], now, errors, baselines.get(probe.name)) for probe in judged]
        present = [verdict for verdict in judge(evidence, others, self._effects) if now.probes[verdict.probe].on]
        self._note_onsets(present, now, baselines)
        self.verdicts = self._with_blame(tuple(map(self._with_onset, present)), now)
        alone = not any(probe.role is Role.AGGRESSOR for probe in judged)
        # Noise of the host matters where it could be mistaken for an effect.
        matter = [
            verdict
            for verdict in self.verdicts
            if not (alone and verdict.kind is VerdictKind.HOST and self._roles.get(verdict.probe) is Role.HOST)
        ]
        self.tracker.feed(
            matter,
            now.at_ns,
            wall_s,
            after=not alone and ran_ns < since_ns,
            onset=self._onset_text,
            alone=alone,
            extended_ns=lambda name: extended_ns(now.probes[name].period_ns),
        )
        # The change-over of contexts without slots is steady, and a part of the measurement.
        disturbed = (VerdictKind.OVERHEAD, VerdictKind.GPU_TIME)
        slow = (verdict for verdict in self.verdicts if verdict.kind.is_slowdown and verdict.kind not in disturbed)
        return {verdict.probe for verdict in slow}

    def _note_onsets(self, present: Sequence[Verdict], now: Snapshot, baselines: Mapping[str, Baseline]) -> None:
        """Find the onset of each new or grown stall of ``present``, and forget the onsets of ended stalls."""
        known, self._onsets = self._onsets, {}
        for verdict in present:
            key, now_ns = (verdict.probe, verdict.phase), verdict.now_ns or 0.0
            if not verdict.kind.is_stall or key in self._onsets:
                continue
            stall_onset, largest_ns = known.get(key, (None, 0.0))
            # The age of a call in flight grows without a new cause.
            if key not in known or (now_ns > _GROWTH * largest_ns and verdict.quantile is not Quantile.IN_FLIGHT):
                above_ns = math.sqrt(now_ns * largest_ns)
                stall_onset = onset(verdict, now, self._probes, baselines.get(verdict.probe), above_ns)
            self._onsets[key] = stall_onset, max(now_ns, largest_ns)

    def _with_onset(self, verdict: Verdict) -> Verdict:
        """``verdict``; without a known cause, the aggressor at its onset, if it is a candidate, is the probable
        cause."""
        stall_onset, _ = self._onsets.get((verdict.probe, verdict.phase), (None, 0.0))
        victim = next((probe for probe in self._probes if probe.name == verdict.probe), None)
        if verdict.proof is not Proof.OPEN or stall_onset is None or victim is None:
            return verdict
        if stall_onset.aggressor.name not in verdict.aggressors or stall_onset.after_ns > _PROBABLY_NS:
            return verdict
        return began_with(verdict, victim, stall_onset.aggressor, self._of_role(Role.VICTIM))

    def _onset_text(self, verdict: Verdict) -> tuple[str, str]:
        stall_onset, _ = self._onsets.get((verdict.probe, verdict.phase), (None, 0.0))
        return (
            ("", "") if stall_onset is None or not stall_onset.text else (stall_onset.text, stall_onset.aggressor.name)
        )

    def _of_role(self, role: Role) -> list[Probe]:
        return [probe for probe in self._probes if probe.role is role]

    def _with_blame(self, verdicts: tuple[Verdict, ...], now: Snapshot) -> tuple[Verdict, ...]:
        """``verdicts`` with the causes of the last blame experiment, if the same aggressors run."""
        aggressors = self._of_role(Role.AGGRESSOR)
        on = {probe.name for probe in aggressors if now.probes[probe.name].on}
        if self._blame is None or on != set(self._blame.aggressors):
            return verdicts
        return proven(verdicts, self._blame, self._of_role(Role.VICTIM), aggressors)


def _evidence(
    probe: Probe, window: Window, now: Snapshot, errors: Mapping[str, str], baseline: Baseline | None
) -> Evidence:
    on_since_ns = now.probes[probe.name].on_since_ns
    if not window.in_slots:
        # A probe that was switched on during the window ran only in the rest of it; slots count that themselves.
        run_ns = max(now.at_ns - on_since_ns, 0) if on_since_ns else 0
        window = replace(window, duration_ns=min(window.duration_ns, run_ns))
    channels = () if baseline is None else (baseline.channels,)
    return Evidence(probe, window, channels, errors.get(probe.name), baseline)


@dataclass(frozen=True)
class Onset:
    """Begin of a stall: the aggressor that was switched on last before it, and the time (ns) from then on."""

    aggressor: AggressorGroup
    after_ns: int

    @property
    def text(self) -> str:
        """A sentence on the begin, "" where it came too late to have to do with the switch."""
        if self.after_ns > _WITH_SWITCH_NS:
            return ""
        words = f"{self.after_ns / MS:.0f} ms after" if self.after_ns >= MS else "as soon as"
        return f"It began {words} {self.aggressor.name} was switched on."


def onset(
    verdict: Verdict, now: Snapshot, probes: Sequence[Probe], baseline: Baseline | None, above_ns: float = 0.0
) -> Onset | None:
    """The onset of ``verdict``: the time from the switching on of an aggressor to the first slow call.

    A call is slow above its baseline and above ``above_ns``. None if the ring of recent calls no longer has the first
    one, or if several aggressors were switched on at the same time before it.
    """
    parts, part = now.probes, now.probes[verdict.probe]
    on = aggressor_groups(probe for probe in probes if probe.role is Role.AGGRESSOR and parts[probe.name].on)
    if not on or baseline is None or verdict.phase is None or verdict.kind is VerdictKind.HOST:
        return None
    since_ns = {group: min(parts[probe.name].on_since_ns for probe in group.probes) for group in on}
    # Begin and end of the first slow call.
    first: tuple[int, int] | None = None
    channel, oldest_ns = Channel(verdict.phase), 0
    if channel in part.channels and channel in baseline.channels and len(part.samples):
        border = max(STALLED * (baseline.channels[channel].percentile(99) or 0.0), above_ns)
        of_channel = part.samples[part.samples["channel"] == list(part.channels).index(channel)]
        starts = of_channel["end_ns"] - of_channel["value_ns"]
        # A call that ended before any aggressor was switched on is a matter of the machine.
        slow = (of_channel["value_ns"] > border) & (of_channel["end_ns"] > min(since_ns.values()))
        if slow.any():
            first = int(starts[slow][0]), int(of_channel["end_ns"][slow][0])
        oldest_ns = int(starts[0]) if len(starts) else 0
    if first is None and part.in_flight is not None and part.in_flight.age_ns >= IN_FLIGHT_NS:
        first = part.in_flight.since_ns, now.at_ns
    if first is None:
        return None
    before = sorted((ns, group.name) for group, ns in since_ns.items() if ns <= first[1])
    if not before or before[-1][0] < oldest_ns:
        # The ring does not reach back to the switch, so an earlier slow call may be missing from it.
        return None
    if len(before) > 1 and before[-1][0] - before[-2][0] < _AT_ONCE_NS:
        return None
    last = next(group for group in on if group.name == before[-1][1])
    return Onset(last, max(0, first[0] - before[-1][0]))
