"""Judgement of a probe set: the verdicts on its present windows, their log, and when they began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace

from stallprobes.engine.snapshot import Snapshot
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.window import Window
from stallprobes.live.baselines import SETTLE_NS, may_run
from stallprobes.live.tracker import JUDGE_NS, Switch, VerdictTracker
from stallprobes.live.view_model import LogEntry
from stallprobes.live.windows import WINDOW_NS, LazyWindows, extended_ns
from stallprobes.model import MS, Channel, Probe, Role
from stallprobes.recording.observation import ProbeSet
from stallprobes.verdicts.blame import Blame, proven
from stallprobes.verdicts.evidence import STALLED, Evidence
from stallprobes.verdicts.kinds import IN_FLIGHT_NS, VerdictKind
from stallprobes.verdicts.rules import judge
from stallprobes.verdicts.verdict import Verdict


class Judgement:
    """Judgement of ``probe_set``: ``verdicts``, the present ones, rest on ``calls`` calls of each probe.

    ``tracker`` makes the log of them.
    """

    def __init__(self, probe_set: ProbeSet, log: Sequence[LogEntry], log_limit: int) -> None:
        self.verdicts: tuple[Verdict, ...] = ()
        self.calls: Mapping[str, int] = {}
        self.tracker = VerdictTracker(log, log_limit)
        self._probes = probe_set.probes
        self._roles = {probe.name: probe.role for probe in probe_set.probes}
        # The board's time at which each aggressor was last found running, and of the last judgement.
        self._ran_ns: dict[str, int] = {}
        self._judged_ns = 0
        # The last blame experiment.
        self._blame: Blame | None = None

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
        """The weight of the worst present verdict of each victim that is in the log as slow now.

        Without those of the host's noise: a victim that is slow because of it is not what stalls.
        """
        found: dict[str, tuple[int, float]] = {}
        for verdict in self.verdicts:
            slow = verdict.kind.is_slowdown and verdict.kind is not VerdictKind.HOST
            if slow and self._roles.get(verdict.probe) is Role.VICTIM:
                found[verdict.probe] = max(verdict.weight, found.get(verdict.probe, verdict.weight))
        if not found:
            return found
        entries = (entry for entry in self.tracker.entries if entry.ended_s is None)
        logged = {entry.verdict.probe for entry in entries if entry.verdict.kind.is_slowdown}
        return {name: weight for name, weight in found.items() if name in logged}

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
        if now.at_ns - self._judged_ns < JUDGE_NS:
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
        present = tuple(verdict for verdict in judge(evidence, others) if now.probes[verdict.probe].on)
        self.verdicts = self._with_blame(present, now)
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
            onset=lambda verdict: onset(verdict, now, self._probes, baselines.get(verdict.probe)),
            alone=alone,
            extended_ns=lambda name: extended_ns(now.probes[name].period_ns),
        )
        # The change-over of contexts without slots is steady, and part of what is measured there.
        disturbed = (VerdictKind.OVERHEAD, VerdictKind.GPU_TIME)
        slow = (verdict for verdict in self.verdicts if verdict.kind.is_slowdown and verdict.kind not in disturbed)
        return {verdict.probe for verdict in slow}

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


def onset(found: Verdict, now: Snapshot, probes: Sequence[Probe], baseline: Baseline | None) -> str:
    """A sentence on the time from the last switch to the first slow call after it.

    "" if that call is unknown, for example because the ring no longer contains it.
    """
    aggressors = [p for p in probes if p.role is Role.AGGRESSOR and now.probes[p.name].on]
    part = now.probes[found.probe]
    if not aggressors or baseline is None or found.phase is None or found.kind is VerdictKind.HOST:
        return ""
    newest = max(aggressors, key=lambda probe: now.probes[probe.name].on_since_ns)
    since = now.probes[newest.name].on_since_ns
    channel = Channel(found.phase)
    began: list[int] = []
    if part.in_flight is not None and part.in_flight.age_ns >= IN_FLIGHT_NS:
        began.append(part.in_flight.since_ns)
    if channel in part.channels and channel in baseline.channels and len(part.samples):
        border = STALLED * (baseline.channels[channel].percentile(99) or 0.0)
        of_channel = part.samples[part.samples["channel"] == list(part.channels).index(channel)]
        starts = of_channel["end_ns"] - of_channel["value_ns"]
        slow = (of_channel["value_ns"] > border) & (of_channel["end_ns"] > since)
        began.extend(starts[slow][:1].tolist())
        if len(starts) and starts[0] > since:
            # The ring does not reach back to the switch, so an earlier slow call may be missing from it.
            return ""
    if not began or min(began) - since > 5_000 * MS:
        return ""
    after = max(0, min(began) - since)
    words = f"{after / MS:.0f} ms after" if after >= MS else "as soon as"
    return f"It began {words} {newest.name} was switched on."
