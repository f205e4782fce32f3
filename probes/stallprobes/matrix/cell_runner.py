"""An engine with all victims and aggressors of a check, and the windows measured with it."""

from __future__ import annotations

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
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import Window, has_run
from stallprobes.machine import nvml
from stallprobes.machine.telemetry import FIELDS, Telemetry
from stallprobes.matrix.accumulator import VictimWindow
from stallprobes.matrix.plan import AggressorSet, VictimProbe, contexts_of
from stallprobes.model import GREEN, Channel, Phase, Probe
from stallprobes.verdicts.rules import STARVED_CALLS, STARVED_WINDOW_NS

PACE_NS = 50_000

_HOST_PACE_NS, _HOST_VIRTUAL_PACE_NS = 500_000, 1_000_000
_DRAIN_PACE_NS = 1_000_000
# The first calls after a rest find cold caches and a sleeping core.
_LEAD_IN_S = 0.002
_PARK_S = 0.001
_SETTLE_S = 0.005
# A simulated core has no such state, and what a thread that is switched off still does is over in microseconds.
_LEAD_IN_VIRTUAL_S, _PARK_VIRTUAL_S, _SETTLE_VIRTUAL_S = 0.0, 0.0002, 0.001
_STUCK_NS = 500_000
_PARK_AT_MOST_S = 0.05
_MORE_RARELY = 1.5
_PROOF_S = 5.0
_DRAIN_AT_MOST_S = 3.0
# An aggressor that has done nothing for so long, and is in no call either, is not running.
_PATIENCE_NS = 250_000_000
_LONGER_S = 0.1
# A host control that is slower than this, and than so many times its median, had the machine taken from it.
_SPIKE_NS = 100_000
_SPIKE_TIMES = 10
# Controls stall no simulated victim, but each of their calls takes real time to simulate.
_CONTROL_PERIOD_NS = 100_000
_CALL = Channel(Phase.CALL)
_THROTTLED = {"power cap", "hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake"}
_WATCH_S = 0.05


class Stopped(Exception):
    """The check is to end now."""


@dataclass(frozen=True)
class Lengths:
    """How long a window beside the aggressor and one of quiet last (s), the longest that waiting for a slow
    aggressor's turn may make the former, how many calls it is made longer for, and whether a victim that gets no call
    through is given half a second."""

    window_s: float
    quiet_s: float
    longest_s: float
    calls: int
    starve: bool


class CellRunner:
    """A context manager around a session. Victims run one at a time, so that none disturbs another."""

    def __init__(
        self,
        victims: Sequence[VictimProbe],
        aggressor_sets: Sequence[AggressorSet],
        backend: str,
        options: Options,
        stop: Callable[[], bool],
    ) -> None:
        self.victims = victims
        self._host = entries()[HOST].probe(period_ns=_HOST_VIRTUAL_PACE_NS if backend == "sim" else _HOST_PACE_NS)
        probes = [*(one.probe for one in victims), *(probe for one in aggressor_sets for probe in one.probes)]
        # A green context is a part of the primary one, which is waited for.
        contexts = [context for context in contexts_of(probes) if context != replace(GREEN, device=context.device)]
        self._drains = [
            entries()["context-sync"].probe(Placement(context), name=f"drain {number}", period_ns=_DRAIN_PACE_NS)
            for number, context in enumerate(contexts)
        ]
        self.session = Session([*probes, self._host, *self._drains], backend=backend, options=options)
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

    def __enter__(self) -> Self:
        """Start the engine. Raises what Session.start raises."""
        try:
            self.session.start()
            for victim in self.victims:
                self.session.set_period(victim.probe.name, PACE_NS)
            for name in self._paced:
                self.session.set_period(name, _CONTROL_PERIOD_NS)
            self.session.set_running([self._host.name])
            if not self._virtual:
                self._clocks = _watching(self.session.info)
            self._pass(self._lead_in_s)
        except BaseException:
            self.session.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._clocks is not None:
            self._clocks.stop()
        self.session.stop()

    def now_s(self) -> float:
        """The bench's clock: virtual time on a simulated GPU."""
        return self.session.probe_snapshots([self._host.name], False)[self._host.name].at_ns / 1e9

    def quiet(self, victims: Sequence[VictimProbe], lengths: Lengths, dice: random.Random) -> dict[str, VictimWindow]:
        """A window of quiet for each victim, by row name."""
        found = {}
        for victim in dice.sample(list(victims), len(victims)):
            found[victim.row.name] = self._window(victim, lengths.quiet_s, lengths.quiet_s, 0, False, None)
        self._rest()
        return found

    def beside(
        self, aggressor_set: AggressorSet, victims: Sequence[VictimProbe], lengths: Lengths, dice: random.Random
    ) -> dict[str, VictimWindow]:
        """A window for each victim beside the disturbance, by row name; when it returns, the GPU has nothing to do.

        A window in which an aggressor did not run is spoilt and says so.
        """
        names = [probe.name for probe in aggressor_set.probes]
        self.session.set_running(dict.fromkeys(names, True))
        watch = _Watch(aggressor_set.probes)
        began = self._await_proof(watch)
        found = {}
        try:
            self._pass(self._settle_s)
            iteration_s = self._iteration_s.get(aggressor_set.column.name, 0.0)
            # A slow aggressor's stalls come and go with its turns.
            wanted = 2 * iteration_s if iteration_s <= 0.04 else 1.2 * iteration_s
            seconds = min(max(lengths.window_s, wanted), max(lengths.longest_s, lengths.window_s))
            for victim in dice.sample(list(victims), len(victims)):
                longest_s = max(_LONGER_S, seconds)
                found[victim.row.name] = self._window(victim, seconds, longest_s, lengths.calls, lengths.starve, watch)
            self._rest()
            self._learn(aggressor_set, watch, began)
        finally:
            self.session.set_running(dict.fromkeys(names, False))
        self._drain(names)
        return found

    def _window(
        self, victim: VictimProbe, seconds: float, longest_s: float, calls: int, starve: bool, watch: _Watch | None
    ) -> VictimWindow:
        name, host = victim.probe.name, self._host.name
        before, self._calling = self._calling, name
        # The one before it ends while this one begins; nobody is measured meanwhile.
        self.session.set_running({name: True} if before is None else {before: False, name: True})
        self._pass(self._lead_in_s)
        if before is not None and self._stuck(before):
            self._until(lambda: self._parked(before), _PARK_AT_MOST_S)
        aggressors = [] if watch is None else watch.names
        begin = {**self.session.probe_snapshots([name, host]), **self.session.probe_snapshots(aggressors, False)}
        if watch is not None:
            watch.see(begin)
        passed = 0.0
        step = seconds
        while True:
            self._pass(step)
            passed += step
            end = {**self.session.probe_snapshots([name, host]), **self.session.probe_snapshots(aggressors, False)}
            window = end[name].minus(begin[name])
            limit = STARVED_WINDOW_NS / 1e9 if starve and window.iterations < STARVED_CALLS else longest_s
            if window.iterations >= calls or passed >= limit - 1e-9:
                break
            # As long as the missing calls will take at this pace, a little more at first than too often a little.
            missing = (
                seconds
                if window.iterations < STARVED_CALLS
                else passed * (calls - window.iterations + 1) / window.iterations
            )
            step = min(max(missing, seconds / 4), limit - passed)
        spoilt = None if watch is None else watch.see(end)
        beside = end[host].minus(begin[host])
        spoilt = spoilt or _spiked(beside) or self._throttled(begin[name].at_ns)
        return VictimWindow(window, beside.channels, spoilt)

    def _rest(self) -> None:
        """End the victim that still calls."""
        name, self._calling = self._calling, None
        if name is not None:
            self.session.set_running({name: False})
            self._until(lambda: self._parked(name), _PARK_AT_MOST_S)

    def _stuck(self, name: str) -> bool:
        """Whether it is in a call that does not end soon or, after a rest, has not heard that it is to end."""
        part = self.session.probe_snapshots([name], False)[name]
        if self._virtual:
            return part.in_flight is not None and part.in_flight.age_ns > _STUCK_NS
        return part.state == ProbeState.RUNNING

    def _parked(self, name: str) -> bool:
        return self.session.probe_snapshots([name], False)[name].state != ProbeState.RUNNING

    def _until(self, done: Callable[[], bool], at_most_s: float) -> None:
        """Let time pass until ``done``, looking ever more rarely."""
        waited, step = 0.0, self._park_s
        while waited < at_most_s:
            self._pass(step)
            if done():
                return
            waited += step
            step *= _MORE_RARELY

    def _await_proof(self, watch: _Watch) -> float:
        waited = 0.0
        begin = self.session.probe_snapshots(watch.names, False)
        watch.see(begin)
        while waited < _PROOF_S:
            self._pass(self._settle_s)
            waited += self._settle_s
            now = self.session.probe_snapshots(watch.names, False)
            watch.see(now)
            if all(watch.ran(name) or now[name].error is not None for name in watch.names):
                break
        return self.now_s()

    def _learn(self, aggressor_set: AggressorSet, watch: _Watch, began_s: float) -> None:
        """Remember how long the slowest turn of the aggressors takes; one that only keeps a queue filled has none."""
        on_s = self.now_s() - began_s
        iterations = [
            on_s / max(watch.iterations(probe.name), 1) for probe in aggressor_set.probes if probe.program.guard is None
        ]
        self._iteration_s[aggressor_set.column.name] = max(iterations, default=0.0)

    def _drain(self, names: Sequence[str]) -> None:
        """Wait until the aggressors' calls have returned and every context has nothing left to do."""

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
        self._pass(self._lead_in_s)

    def _throttled(self, since_ns: int) -> str | None:
        if self._clocks is None:
            return None
        reading = self._clocks.snapshot()["clock_reasons"]
        if reading.value is None or reading.at_ns < since_ns:
            return None
        found = sorted(_THROTTLED.intersection(reading.value))
        return f"the GPU's clocks were held down: {', '.join(found)}" if found else None

    def _pass(self, seconds: float) -> None:
        if self._stop():
            raise Stopped
        if not seconds:
            return
        self.session.run_for(seconds)


class _Watch:
    """Observes whether aggressors run."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self.names = [probe.name for probe in probes]
        self._probes = {probe.name: probe for probe in probes}
        self._first: dict[str, ProbeSnapshot] = {}
        self._active: dict[str, ProbeSnapshot] = {}
        self._latest: dict[str, ProbeSnapshot] = {}

    def see(self, look: Mapping[str, ProbeSnapshot]) -> str | None:
        """Take in an observation; a sentence where an aggressor failed or did nothing for too long, else None."""
        found = None
        for name in self.names:
            part = look[name]
            self._first.setdefault(name, part)
            self._latest[name] = part
            active = self._active.setdefault(name, part)
            if has_run(self._probes[name], part.minus(active)):
                self._active[name] = part
            elif part.at_ns - active.at_ns > _PATIENCE_NS:
                found = f"the {name} did not run"
            if part.error is not None:
                found = f"the {name} failed with code {part.error.code}"
        return found

    def ran(self, name: str) -> bool:
        """Whether an aggressor ran since the first observation."""
        return has_run(self._probes[name], self._latest[name].minus(self._first[name]))

    def iterations(self, name: str) -> int:
        """An aggressor's iterations since the first observation."""
        return self._latest[name].iterations - self._first[name].iterations


def _spiked(host: Window) -> str | None:
    """A sentence where the host control lost its core for long in this window, else None."""
    histogram = host.channels.get(_CALL, Histogram.empty())
    median = histogram.percentile(50)
    if median is None or histogram.max_ns < max(_SPIKE_NS, _SPIKE_TIMES * median):
        return None
    return f"the host control, which makes no CUDA call, was held up for {histogram.max_ns / 1000:.0f} µs"


def _watching(info: Mapping[str, object]) -> Telemetry | None:
    """Looks at the reasons for lower clocks while the check runs; None where the GPU's UUID is not known."""
    devices = info.get("devices")
    if not isinstance(devices, list) or not devices:
        return None
    reasons = [one for one in FIELDS if one.name == "clock_reasons"]
    fields = tuple(type(one)(one.name, _WATCH_S, one.read) for one in reasons)
    watch = Telemetry(str(devices[0].get("uuid")), load=nvml.load, fields=fields)
    watch.start()
    # Its thread must not be in the middle of loading NVML when the first window begins.
    time.sleep(_WATCH_S)
    return watch
