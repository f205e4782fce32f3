"""Observations of a made-up machine whose calls vary from second to second, with a planted slowdown."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stallprobes.catalog import entries
from stallprobes.engine.snapshot import ProbeSnapshot, Snapshot
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import NO_SAMPLES
from stallprobes.live.analyzer import Analyzer
from stallprobes.model import MS, Channel, Phase, Role
from stallprobes.native.layouts.board import EngineState, ProbeState
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, Observation, ProbeSet

CALL = Channel(Phase.CALL)
PROBE_SET = ProbeSet(
    title="noise", probes=tuple(entries()[name].probe() for name in ("launch", "host", "spin")), backend=SIM
)
STEP_NS = 100 * MS
CALLS = 100
# As measured on a shared H200 host: p50 of a launch and of the host control, and the deviation of their logarithms.
LAUNCH_NS, HOST_NS = 6_100, 6_800
DEVIATION, HOST_DEVIATION = 0.25, 0.05


@dataclass(frozen=True)
class Scenario:
    """Seconds without the aggressor, with it, and without it again; ``times`` is what it multiplies a launch by.

    With ``lasts`` the launch stays slow after the aggressor stopped. ``deviation`` is that of the logarithm of its p50.
    """

    times: float = 1.0
    quiet_s: float = 20.0
    on_s: float = 6.0
    after_s: float = 5.0
    lasts: bool = False
    deviation: float = DEVIATION


class NoisyMachine:
    """Makes the observations of one scenario. Slow phases last one second and are independent between probes."""

    def __init__(self, seed: int, scenario: Scenario) -> None:
        self._rng = np.random.default_rng(seed)
        self._phases = random.Random(seed)
        self._scenario = scenario
        self._totals = {name: Histogram.empty() for name in ("launch", "host", "spin")}
        self._calls = dict.fromkeys(self._totals, 0)

    def observations(self) -> Iterator[Observation]:
        """An observation every 0.1 s."""
        plan = self._scenario
        steps = round((plan.quiet_s + plan.on_s + plan.after_s) * 1e9 / STEP_NS)
        factors = {"launch": 1.0, "host": 1.0}
        for step in range(1, steps + 1):
            at_ns = step * STEP_NS
            on = plan.quiet_s * 1e9 < at_ns <= (plan.quiet_s + plan.on_s) * 1e9
            if step % 10 == 1:
                factors = {
                    "launch": self._phases.lognormvariate(0, plan.deviation),
                    "host": self._phases.lognormvariate(0, HOST_DEVIATION),
                }
            slow = on or (plan.lasts and at_ns > plan.quiet_s * 1e9)
            self._add("launch", LAUNCH_NS * factors["launch"] * (plan.times if slow else 1.0))
            self._add("host", HOST_NS * factors["host"])
            if on:
                self._add("spin", 3_000.0)
            probes = {name: self._probe(name, at_ns, name != "spin" or on) for name in self._totals}
            snapshot = Snapshot(at_ns, EngineState.READY, at_ns, probes)
            yield Observation(
                wall_s=at_ns / 1e9, probe_set=PROBE_SET, engine=EngineStatus(EngineCondition.READY), snapshot=snapshot
            )

    def _add(self, name: str, p50_ns: float) -> None:
        values = p50_ns * self._rng.lognormal(0, 0.1, CALLS)
        values[:3] *= 3
        self._totals[name] = self._totals[name].merge(Histogram.of(values.astype(np.int64)))
        self._calls[name] += CALLS

    def _probe(self, name: str, at_ns: int, on: bool) -> ProbeSnapshot:
        return ProbeSnapshot(
            name=name,
            at_ns=at_ns,
            allowed_ns=at_ns,
            state=ProbeState.RUNNING if on else ProbeState.PARKED,
            on=on,
            iterations=self._calls[name],
            on_since_ns=1 if name != "spin" else round(self._scenario.quiet_s * 1e9),
            heartbeat_ns=at_ns,
            in_flight=None,
            error=None,
            missed=0,
            proof=self._calls[name],
            period_ns=MS if name != "spin" else 0,
            channels={CALL: self._totals[name]},
            first_ns={CALL: None},
            samples=NO_SAMPLES,
            sample_count=0,
            in_slots=False,
            not_alone_ns=0,
            polled_ns=0,
            paused_ns=0,
        )


def analyzed(seed: int, scenario: Scenario) -> Analyzer:
    """The analyzer after all observations of ``scenario``."""
    assert {probe.role for probe in PROBE_SET.probes} == set(Role)
    analyzer = Analyzer(PROBE_SET)
    for observation in NoisyMachine(seed, scenario).observations():
        analyzer.feed(observation)
    return analyzer


def detectable(seed: int, scenario: Scenario) -> float:
    """The smallest ratio of a launch that the analyzer states after the quiet seconds of ``scenario``."""
    analyzer = analyzed(seed, Scenario(quiet_s=scenario.quiet_s, on_s=1.0, after_s=0.0))
    (found,) = (one.detectable for one in analyzer.verdicts if one.probe == "launch")
    assert found is not None
    return found
