"""Measurement of cells: an engine with all victims and aggressors of a check, and the windows measured in it."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from stallprobes.catalog import Placement, entries
from stallprobes.catalog.host import HOST
from stallprobes.engine.backend import Options
from stallprobes.engine.board import ProbeSnapshot, ProbeState
from stallprobes.engine.session import Session
from stallprobes.engine.timeline.summary import TimelineSummary
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import Window, has_run
from stallprobes.machine import nvml
from stallprobes.machine.telemetry import FIELDS, Telemetry
from stallprobes.matrix.accumulator import VictimWindow
from stallprobes.matrix.plan import AggressorSet, VictimProbe, contexts_of
from stallprobes.model import GREEN, Channel, Phase, Probe
from stallprobes.verdicts.kinds import STARVED_CALLS, STARVED_WINDOW_NS

PACE_NS = 50_000

_HOST_PACE_NS, _HOST_VIRTUAL_PACE_NS = 500_000, 1_000_000
_DRAIN_PACE_NS = 1_000_000
# The first calls after a pause find cold caches and an idle core, and are not measured.
_LEAD_IN_S = 0.002
_PARK_S = 0.001
_SETTLE_S = 0.005
# A simulated core has no such state, but a parked thread takes up to 1 ms to start, and its first call makes the GPU
# change over to its context. A simulated thread that is switched off stops within microseconds.
_LEAD_IN_VIRTUAL_S, _PARK_VIRTUAL_S, _SETTLE_VIRTUAL_S = 0.0012, 0.0002, 0.001
_STUCK_NS = 500_000
_PARK_AT_MOST_S = 0.05
_INTERVAL_GROWTH = 1.5
_PROOF_S = 5.0
_DRAIN_AT_MOST_S = 3.0
# An aggressor without progress for so long, and with no call in flight, does not run.
_NO_PROGRESS_NS = 250_000_000
# A host control with a call slower than this, and than so many times its median, lost its CPU core.
_SPIKE_NS = 100_000
_SPIKE_TIMES = 10
# A window that took so much longer than planned was suspended, and with it the engine, or the machine was.
_GAP_S = 1.0
# Records of the timeline take some 10 ms.
_RECORDS_AT_MOST_S = 0.2
# Control aggressors stall no simulated victim, but simulating each of their calls takes real time.
_CONTROL_PERIOD_NS = 100_000
_CALL = Channel(Phase.CALL)
_THROTTLED = {"power cap", "hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake"}
_CLOCK_INTERVAL_S = 0.05


class Stopped(Exception):
    """Raised within a check when ``stop`` returns True."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of the windows of a block, in seconds.

    ``window_s`` with the aggressors, ``baseline_s`` without. A window is extended up to ``longest_s`` for slow
    iterations of an aggressor, and up to ``extended_s`` until it has ``calls`` iterations of the victim. With
    ``starve``, a window without enough calls lasts half a second, so that it shows whether the victim is starved.
    """

    window_s: float
    baseline_s: float
    longest_s: float
    extended_s: float
    calls: int
    starve: bool


class CellRunner:
    """Context manager of a session with all probes. Victims run one at a time, since they would disturb each other."""

    def __init__(
        self,
        victims: Sequence[VictimProbe],
        aggressor_sets: Sequence[AggressorSet],
        backend: str,
        options: Options,
        stop: Callable[[], bool],
    ) -> None:
        self.victims = victims
        self.aggressor_sets = aggressor_sets
        self.rows = tuple(victim.row.name for victim in victims)
        self._host = entries()[HOST].probe(period_ns=_HOST_VIRTUAL_PACE_NS if backend == "sim" else _HOST_PACE_NS)
        probes = [*(one.probe for one in victims), *(probe for one in aggressor_sets for probe in one.probes)]
        # Draining the primary context includes its green contexts.
        contexts = [context for context in contexts_of(probes) if context != replace(GREEN, device=context.device)]
        self._drains = [
            entries()["context-sync"].probe(Placement(context), name=f"drain {number}", period_ns=_DRAIN_PACE_NS)
            for number, context in enumerate(contexts)
        ]
        # Victims run one at a time, so no slots are needed; one that starts must not wait for the slot of another.
        together = replace(options, together=True)
        self.session = Session([*probes, self._host, *self._drains], backend=backend, options=together)
        self._virtual = backend == "sim"
        aggressors = [probe for one in aggressor_sets for probe in one.probes]
        self._paced = [probe.name for probe in aggressors if self._virtual and entries()[probe.entry].control]
        rests = (
            (_LEAD_IN_VIRTUAL_S, _PARK_VIRTUAL_S, _SETTLE_VIRTUAL_S)
            if self._virtual
            else (_LEAD_IN_S, _PARK_S, _SETTLE_S)
        )
        self._lead_in_s, self._park_s, self._settle_s = rests
        self._stop = stop
        self._clocks: Telemetry | None = None
        self._calling: str | None = None
        self._iteration_s: dict[str, float] = {}
        # How the timeline was recorded; known once the session has stopped.
        self.timeline: TimelineSummary | None = None

    def __enter__(self) -> Self:
        """Start the engine. Raises what Session.start raises, and NoTimeline if the timeline cannot be switched on."""
        try:
            self.session.start()
            if self.session.options.timeline:
                self.session.require_timeline()
            for victim in self.victims:
                self.session.set_period(victim.probe.name, PACE_NS)
            for name in self._paced:
                self.session.set_period(name, _CONTROL_PERIOD_NS)
            self.session.set_running([self._host.name])
            if not self._virtual:
                self._clocks = _clock_telemetry(self.session.info)
            self._run_for(self._lead_in_s)
        except BaseException:
            self.session.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._clocks is not None:
            self._clocks.stop()
        status = self.session.timeline_status()
        if self.session.options.timeline and status is not None:
            with contextlib.suppress(RuntimeError):
                self.timeline = TimelineSummary.of(status, self.session.timeline_losses())
        self.session.stop()

    def now_s(self) -> float:
        """Time of the board in seconds; virtual on a simulated GPU."""
        return self.session.probe_snapshots([self._host.name], False)[self._host.name].at_ns / 1e9

    def iteration_s(self, aggressor_set: AggressorSet) -> float:
        """Duration of an iteration of the slowest of the aggressors in seconds, 0 before the first measurement."""
        return self._iteration_s.get(aggressor_set.column.name, 0.0)

    def measure_baselines(
        self, victims: Sequence[VictimProbe], lengths: Lengths, rng: random.Random
    ) -> dict[str, VictimWindow]:
        """A window of each victim with no aggressor running, by row name. ``rng`` determines their order."""
        found = {}
        begin = self._timeline_channels(victims)
        for victim in rng.sample(list(victims), len(victims)):
            found[victim.row.name] = self._window(victim, lengths.baseline_s, lengths.baseline_s, 0, False, None)
        self._stop_victim()
        return self._with_timeline(found, victims, begin)

    def measure(
        self, aggressor_set: AggressorSet, victims: Sequence[VictimProbe], lengths: Lengths, rng: random.Random
    ) -> dict[str, VictimWindow]:
        """A window of each victim with the aggressors running, by row name. ``rng`` determines their order.

        Afterwards the aggressors are off and the GPU is idle. A window in which an aggressor did not run is rejected.
        """
        names = [probe.name for probe in aggressor_set.probes]
        begin = self._timeline_channels(victims)
        self.session.set_running(dict.fromkeys(names, True))
        progress = _AggressorProgress(aggressor_set.probes)
        began = self._await_start(progress)
        found = {}
        try:
            self._run_for(self._settle_s)
            iteration_s = self.iteration_s(aggressor_set)
            # The stalls of a slow aggressor come with its iterations, so the window should contain at least one. In
            # virtual time there are fewer repeats, and it contains two short ones.
            wanted = iteration_s * (2 if self._virtual and iteration_s <= 0.04 else 1.2)
            seconds = min(max(lengths.window_s, wanted), max(lengths.longest_s, lengths.window_s))
            for victim in rng.sample(list(victims), len(victims)):
                longest_s = max(lengths.extended_s, seconds)
                found[victim.row.name] = self._window(
                    victim, seconds, longest_s, lengths.calls, lengths.starve, progress
                )
            self._stop_victim()
            self._store_iteration_time(aggressor_set, progress, began)
        finally:
            self.session.set_running(dict.fromkeys(names, False))
        self._drain(names)
        return self._with_timeline(found, victims, begin)

    def _timeline_channels(self, victims: Sequence[VictimProbe]) -> dict[str, dict[Channel, Histogram]]:
        """The histograms of the timeline of each victim, by its probe's name; none while it is off."""
        if not self.session.options.timeline:
            return {}
        return self.session.timeline_channels(victim.probe.name for victim in victims)

    def _with_timeline(
        self,
        windows: Mapping[str, VictimWindow],
        victims: Sequence[VictimProbe],
        begin: Mapping[str, Mapping[Channel, Histogram]],
    ) -> dict[str, VictimWindow]:
        """``windows`` with what the timeline recorded since ``begin``.

        A victim runs in its own window and between two windows only, so these records are of the state that was
        measured, although they arrive later.
        """
        if not begin:
            return dict(windows)
        self.session.await_records(_RECORDS_AT_MOST_S)
        end = self._timeline_channels(victims)
        found = {}
        for victim in victims:
            one, name = windows[victim.row.name], victim.probe.name
            found[victim.row.name] = replace(one, window=one.window.with_records(begin[name], end[name]))
        return found

    def _window(
        self,
        victim: VictimProbe,
        seconds: float,
        longest_s: float,
        calls: int,
        starve: bool,
        progress: _AggressorProgress | None,
    ) -> VictimWindow:
        name, host = victim.probe.name, self._host.name
        before, self._calling = self._calling, name
        # The previous victim stops while this one starts. Neither is measured meanwhile.
        self.session.set_running({name: True} if before is None else {before: False, name: True})
        self._run_for(self._lead_in_s)
        if before is not None and self._stuck(before):
            self._until(lambda: self._parked(before), _PARK_AT_MOST_S)
        aggressors = [] if progress is None else progress.names
        begin = self._snapshots(name, aggressors)
        if progress is not None:
            progress.update(begin)
        passed = 0.0
        step = seconds
        while True:
            self._run_for(step)
            passed += step
            end = self._snapshots(name, aggressors)
            window = end[name].minus(begin[name])
            limit = STARVED_WINDOW_NS / 1e9 if starve and window.iterations < STARVED_CALLS else longest_s
            if window.iterations >= calls or passed >= limit - 1e-9:
                break
            # The time that the missing calls take at this rate; at least a quarter of the window, to limit the steps.
            missing = (
                seconds
                if window.iterations < STARVED_CALLS
                else passed * (calls - window.iterations + 1) / window.iterations
            )
            step = min(max(missing, seconds / 4), limit - passed)
        host_window = end[host].minus(begin[host])
        rejection = None if progress is None else progress.update(end)
        gap_s = 0.0 if self._virtual else (end[name].at_ns - begin[name].at_ns) / 1e9 - passed
        if gap_s > _GAP_S:
            rejection = f"the check stood still for {gap_s:.0f} s"
        rejection = rejection or _host_delay(host_window) or self._throttled(begin[name].at_ns)
        return VictimWindow(window, host_window.channels, rejection)

    def _snapshots(self, victim: str, aggressors: Sequence[str]) -> dict[str, ProbeSnapshot]:
        """The statistics of a victim and the host control, and those of the aggressors without histograms."""
        measured = self.session.probe_snapshots([victim, self._host.name], with_timeline=False)
        return {**measured, **self.session.probe_snapshots(aggressors, False)}

    def _stop_victim(self) -> None:
        """Stop the victim that still runs."""
        name, self._calling = self._calling, None
        if name is not None:
            self.session.set_running({name: False})
            self._until(lambda: self._parked(name), _PARK_AT_MOST_S)

    def _stuck(self, name: str) -> bool:
        """Whether the probe has not stopped yet; in virtual time, whether it is in a long call."""
        part = self.session.probe_snapshots([name], False)[name]
        if self._virtual:
            return part.in_flight is not None and part.in_flight.age_ns > _STUCK_NS
        return part.state == ProbeState.RUNNING

    def _parked(self, name: str) -> bool:
        return self.session.probe_snapshots([name], False)[name].state != ProbeState.RUNNING

    def _until(self, done: Callable[[], bool], at_most_s: float) -> None:
        """Run until ``done`` returns True, for at most ``at_most_s``; the interval between calls of ``done`` grows."""
        waited, step = 0.0, self._park_s
        while waited < at_most_s:
            self._run_for(step)
            if done():
                return
            waited += step
            step *= _INTERVAL_GROWTH

    def _await_start(self, progress: _AggressorProgress) -> float:
        waited = 0.0
        begin = self.session.probe_snapshots(progress.names, False)
        progress.update(begin)
        while waited < _PROOF_S:
            self._run_for(self._settle_s)
            waited += self._settle_s
            now = self.session.probe_snapshots(progress.names, False)
            progress.update(now)
            if all(progress.ran(name) or now[name].error is not None for name in progress.names):
                break
        return self.now_s()

    def _store_iteration_time(self, aggressor_set: AggressorSet, progress: _AggressorProgress, began_s: float) -> None:
        """Store the longest mean iteration time of the aggressors, except those that only keep a queue full."""
        on_s = self.now_s() - began_s
        iterations = [
            on_s / max(progress.iterations(probe.name), 1)
            for probe in aggressor_set.probes
            if probe.program.guard is None
        ]
        self._iteration_s[aggressor_set.column.name] = max(iterations, default=0.0)

    def _drain(self, names: Sequence[str]) -> None:
        """Wait until the aggressors' calls have returned and every context is idle."""

        def returned() -> bool:
            now = self.session.probe_snapshots(names, False)
            return all(now[name].in_flight is None and now[name].state != ProbeState.RUNNING for name in names)

        self._until(returned, _DRAIN_AT_MOST_S)
        drains = [probe.name for probe in self._drains]
        before = self.session.probe_snapshots(drains, False)

        def drained() -> bool:
            now = self.session.probe_snapshots(drains, False)
            return all(now[name].iterations > before[name].iterations or now[name].error is not None for name in drains)

        self.session.set_running(dict.fromkeys(drains, True))
        self._until(drained, _DRAIN_AT_MOST_S)
        self.session.set_running(dict.fromkeys(drains, False))
        self._run_for(self._lead_in_s)

    def _throttled(self, since_ns: int) -> str | None:
        """A clause if NVML reported lowered clocks since ``since_ns``, else None."""
        if self._clocks is None:
            return None
        reading = self._clocks.snapshot()["clock_reasons"]
        if reading.value is None or reading.at_ns < since_ns:
            return None
        found = sorted(_THROTTLED.intersection(reading.value))
        return f"the GPU's clocks were lowered: {', '.join(found)}" if found else None

    def _run_for(self, seconds: float) -> None:
        if self._stop():
            raise Stopped
        if not seconds:
            return
        self.session.run_for(seconds)


class _AggressorProgress:
    """Progress of the aggressors between snapshots."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self.names = [probe.name for probe in probes]
        self._probes = {probe.name: probe for probe in probes}
        self._first: dict[str, ProbeSnapshot] = {}
        self._active: dict[str, ProbeSnapshot] = {}
        self._latest: dict[str, ProbeSnapshot] = {}

    def update(self, snapshots: Mapping[str, ProbeSnapshot]) -> str | None:
        """Add snapshots; a clause if an aggressor failed or made no progress for too long, else None."""
        found = None
        for name in self.names:
            part = snapshots[name]
            self._first.setdefault(name, part)
            self._latest[name] = part
            active = self._active.setdefault(name, part)
            if has_run(self._probes[name], part.minus(active)):
                self._active[name] = part
            elif part.at_ns - active.at_ns > _NO_PROGRESS_NS:
                found = f"the {name} did not run"
            if part.error is not None:
                found = f"the {name} failed with code {part.error.code}"
        return found

    def ran(self, name: str) -> bool:
        """Whether an aggressor ran since the first snapshot."""
        return has_run(self._probes[name], self._latest[name].minus(self._first[name]))

    def iterations(self, name: str) -> int:
        """Iterations of an aggressor since the first snapshot."""
        return self._latest[name].iterations - self._first[name].iterations


def _host_delay(host: Window) -> str | None:
    """A clause if a call of the host control took so long that it must have lost its CPU core, else None."""
    histogram = host.channels.get(_CALL, Histogram.empty())
    median = histogram.percentile(50)
    if median is None or histogram.max_ns < max(_SPIKE_NS, _SPIKE_TIMES * median):
        return None
    return f"the host control, which makes no CUDA call, was delayed by {histogram.max_ns / 1000:.0f} µs"


def _clock_telemetry(info: Mapping[str, object]) -> Telemetry | None:
    """Telemetry of the reasons for lowered clocks while the check runs; None if the GPU is unknown."""
    devices = info.get("devices")
    if not isinstance(devices, list) or not devices:
        return None
    reasons = [one for one in FIELDS if one.name == "clock_reasons"]
    fields = tuple(type(one)(one.name, _CLOCK_INTERVAL_S, one.read) for one in reasons)
    telemetry = Telemetry(str(devices[0].get("uuid")), load=nvml.load, fields=fields)
    telemetry.start()
    # Loading NVML in its thread must not overlap with the first window.
    time.sleep(_CLOCK_INTERVAL_S)
    return telemetry
