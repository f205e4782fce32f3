"""Collector of baselines: extends the baseline of each victim by every second without an aggressor."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace

from stallprobes.engine.snapshot import ProbeSnapshot, Snapshot
from stallprobes.latency.baseline import ENOUGH_CALLS, Baseline
from stallprobes.latency.window import Window
from stallprobes.live.view_model import CallProgress
from stallprobes.live.windows import WINDOW_NS, calls_left_ns
from stallprobes.model import MS, Role
from stallprobes.native.layouts.board import ProbeState
from stallprobes.recording.observation import ProbeSet

# Longest time (ns) for which a switch of aggressors affects later calls. A baseline window begins after a probe has run
# for this time without any aggressor. An aggressor that ran within this time before a judged window can still be the
# cause.
SETTLE_NS = 500 * MS
# Length (ns) that no baseline window reaches. At a snapshot without a judgement (evaluation) of the victims, a window
# that extends a complete baseline ends only if the window has this length. Reason: only a judgement can show that the
# window contains no stall.
_NEVER = 1 << 62


class BaselineCollector:
    """The baselines of the victims of ``probe_set``; each is complete after ``baseline_ns`` of windows.

    The length of a window is the time in which the victim was allowed to run, so that a victim in slots has as many
    calls. A window beside another process on the GPU counts only as long as the victim has no other window. Such a
    baseline is ``shared``; the first window without another process replaces it.
    """

    def __init__(self, probe_set: ProbeSet, baseline_ns: int, baselines: Mapping[str, Baseline]) -> None:
        self.baselines: dict[str, Baseline] = dict(baselines)
        self._victims = [probe.name for probe in probe_set.probes if probe.role is not Role.AGGRESSOR]
        self._probes = {probe.name: probe for probe in probe_set.probes}
        self._aggressors = [probe.name for probe in probe_set.probes if probe.role is Role.AGGRESSOR]
        self._baseline_ns = baseline_ns
        self._window_ns = min(WINDOW_NS, baseline_ns // 2)
        self._incomplete: dict[str, Baseline] = {}
        self._starts: dict[str, ProbeSnapshot] = {}
        self._shared: set[str] = set()
        self._idle_since_ns: int | None = None

    def copy(self) -> BaselineCollector:
        """A copy of the present state; the baselines themselves never change."""
        other = copy(self)
        other.baselines, other._incomplete = dict(self.baselines), dict(self._incomplete)
        other._starts, other._shared = dict(self._starts), set(self._shared)
        return other

    def feed(self, now: Snapshot, disturbed: Collection[str] | None, shared: bool) -> None:
        """Process a snapshot, after the verdicts on it where there are any.

        The windows of ``disturbed`` probes, which were stalled or slowed by the host, do not count; None if this
        snapshot was not judged. ``shared``: another process uses the GPU.
        """
        if self.busy(now):
            self._idle_since_ns = None
            self._starts.clear()
            return
        if self._idle_since_ns is None:
            self._idle_since_ns = now.at_ns
        for name in self._victims:
            part, begun = now.probes[name], self._starts.get(name)
            idle = self._probes[name].is_idle_at(part.period_ns)
            if not part.on or part.error is not None or idle or name in (disturbed or ()):
                self._starts.pop(name, None)
            elif begun is None:
                since = max(self._idle_since_ns, part.on_since_ns or now.at_ns)
                if part.iterations and now.at_ns - since >= SETTLE_NS:
                    self._begin(name, part)
            else:
                if shared:
                    self._shared.add(name)
                if part.allowed_ns - begun.allowed_ns >= self._wanted_ns(name, disturbed is not None):
                    self._close(name, part, begun)

    def _wanted_ns(self, name: str, judged: bool) -> int:
        """The length of the window that has begun; that of a complete baseline ends with a judgement on all of it."""
        if name in self.baselines:
            return self._window_ns if judged else _NEVER
        part = self._incomplete.get(name)
        return min(self._window_ns, self._baseline_ns - (0 if part is None else part.duration_ns))

    def _close(self, name: str, part: ProbeSnapshot, begun: ProbeSnapshot) -> None:
        window = part.minus(begun)
        if window.iterations >= ENOUGH_CALLS:
            self._add(name, window, window.duration_ns, part.at_ns)
            self._begin(name, part)

    def _begin(self, name: str, part: ProbeSnapshot) -> None:
        self._starts[name] = part
        self._shared.discard(name)

    def _add(self, name: str, window: Window, duration_ns: int, at_ns: int) -> None:
        shared, known = name in self._shared, self.baselines.get(name)
        if known is not None and (shared or not known.shared):
            if not shared:
                self.baselines[name] = known.extended(window.channels, duration_ns)
            return
        part = self._incomplete.pop(name, None)
        if part is None:
            part = Baseline.of([window.channels], duration_ns=duration_ns, shared=shared)
        else:
            part = replace(part.extended(window.channels, duration_ns), shared=part.shared or shared)
        if part.duration_ns < self._baseline_ns:
            self._incomplete[name] = part
        elif known is None or not part.shared:
            self.baselines[name] = replace(part, at_ns=at_ns)

    def interrupt(self) -> None:
        """Discard the windows that have begun."""
        self._starts.clear()

    def restart(self) -> None:
        """Discard the windows that have begun, after a time of which nothing is known."""
        self._starts.clear()
        self._idle_since_ns = None

    def discard(self, names: Iterable[str]) -> None:
        """Discard the baselines of ``names``; they are measured again as soon as no aggressor runs."""
        for name in names:
            self.baselines.pop(name, None)
            self._incomplete.pop(name, None)
            self._starts.pop(name, None)

    def adopt(self, baselines: Mapping[str, Baseline]) -> None:
        """Use ``baselines`` for the probes that have none."""
        for name, baseline in baselines.items():
            if name not in self.baselines:
                self.baselines[name] = baseline
                self._incomplete.pop(name, None)

    def busy(self, now: Snapshot) -> bool:
        """True if an aggressor may still run."""
        return any(may_run(now.probes[name]) for name in self._aggressors)

    def needed(self, now: Snapshot | None) -> tuple[str, ...]:
        """Names of the probes that run and have no baseline yet."""
        if now is None:
            return tuple(self._victims)
        return tuple(
            name
            for name in self._victims
            if now.probes[name].on and now.probes[name].error is None and name not in self.baselines
        )

    def progress(self, now: Snapshot | None) -> dict[str, CallProgress]:
        """The numbers of calls of the probes without a baseline where calls are so rare that their number decides."""
        progress: dict[str, CallProgress] = {}
        if now is None:
            return progress
        for name in self.needed(now):
            part, begun = now.probes[name], self._starts.get(name)
            if ENOUGH_CALLS * part.period_ns > self._baseline_ns:
                calls = 0 if begun is None else part.iterations - begun.iterations
                progress[name] = CallProgress(calls, ENOUGH_CALLS, self.left_s(now, [name]), baseline=True)
        return progress

    def left_s(self, now: Snapshot | None, names: Sequence[str], groups: int = 1) -> float | None:
        """Seconds until the baselines of ``names`` are complete; None while an aggressor may run.

        ``groups`` is the number of groups that share the time in slots.
        """
        if now is None or (self._idle_since_ns is None and names):
            return None
        left = 0
        for name in names:
            part, begun = self._incomplete.get(name), self._starts.get(name)
            missing = self._baseline_ns - (0 if part is None else part.duration_ns)
            settling = 0
            if begun is None:
                settled = max(self._idle_since_ns or 0, now.probes[name].on_since_ns or now.at_ns) + SETTLE_NS
                settling = max(settled - now.at_ns, 0)
            else:
                missing -= now.probes[name].allowed_ns - begun.allowed_ns
            missing = max(missing, _calls_ns(now.probes[name], begun))
            left = max(left, settling + missing * (groups if now.probes[name].in_slots else 1))
        return left / 1e9


def _calls_ns(part: ProbeSnapshot, begun: ProbeSnapshot | None) -> int:
    """The time until a window that began with ``begun`` has enough calls."""
    if begun is None:
        return ENOUGH_CALLS * part.period_ns
    return calls_left_ns(ENOUGH_CALLS, part.iterations - begun.iterations, part.period_ns, part.at_ns - begun.at_ns)


def may_run(part: ProbeSnapshot) -> bool:
    """True if the probe is switched on, or has not stopped yet."""
    return part.on or part.state is ProbeState.RUNNING or part.in_flight is not None
