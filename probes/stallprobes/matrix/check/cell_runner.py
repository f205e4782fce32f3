"""Measurement of cells: an engine with all victims and aggressors of a check, and the windows measured in it."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from stallprobes.catalog import entries
from stallprobes.catalog.host import HOST
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.errors import Stopped
from stallprobes.machine import nvml
from stallprobes.machine.telemetry import FIELDS, Telemetry
from stallprobes.matrix.check.plan import AggressorSet, VictimProbe, contexts_of
from stallprobes.matrix.check.window_measurer import Lengths, MeasuredProbes, VictimWindow, WindowMeasurer
from stallprobes.model import GREEN
from stallprobes.records.timeline_summary import TimelineSummary

# Period (ns) of the calls of a victim in a check.
PACE_NS = 50_000

# Period (ns) of the calls of the host control, the probe that makes no CUDA calls. _HOST_PACE_NS: period on a real GPU.
# _HOST_VIRTUAL_PACE_NS: period on a simulated GPU.
_HOST_PACE_NS, _HOST_VIRTUAL_PACE_NS = 500_000, 1_000_000
# Period (ns) of the calls of the probes that wait until the work of switched-off aggressors has ended.
_DRAIN_PACE_NS = 1_000_000
# Period (ns) of the calls of a control aggressor (one that stalls no victim) on a simulated GPU. Reason for the long
# period: more calls would only take time to simulate.
_CONTROL_PERIOD_NS = 100_000
# Period (ns) at which the threads of an aggressor begin a burst of calls at the same moment. A burst lasts up to 1.3 ms
# (16 threads on an H200). Reason: with the aggressor's usual, longer period, few of the victim's calls in a window
# would meet a burst.
_ALIGNED_PERIOD_NS = 2_000_000
# Reasons for a lower GPU clock that make a window invalid.
_THROTTLED = {"power cap", "hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake"}
# Period (s) at which the reasons for a lower clock are read. The check also waits this long for NVML before the first
# window.
_CLOCK_INTERVAL_S = 0.05


class CellRunner:
    """Context manager of a session with all probes and of its window measurer."""

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
        virtual = backend == "sim"
        host = entries()[HOST].probe(period_ns=_HOST_VIRTUAL_PACE_NS if virtual else _HOST_PACE_NS)
        aggressors = [probe for aggressor_set in aggressor_sets for probe in aggressor_set.probes]
        probes = [*(victim.probe for victim in victims), *aggressors]
        # Draining the primary context includes its green contexts.
        drained = [each for each in contexts_of(probes) if each.context.name != GREEN.name]
        drains = [
            entries()["context-sync"].probe(each, name=f"drain {number}", period_ns=_DRAIN_PACE_NS)
            for number, each in enumerate(drained)
        ]
        paced = [probe.name for probe in aggressors if virtual and entries()[probe.entry].control]
        measured = MeasuredProbes(
            victims={victim.row.name: victim.probe.name for victim in victims},
            aggressors={aggressor_set.column.name: aggressor_set.probes for aggressor_set in aggressor_sets},
            host=host.name,
            drains=tuple(probe.name for probe in drains),
            periods_ns={
                **{victim.probe.name: PACE_NS for victim in victims},
                **dict.fromkeys(paced, _CONTROL_PERIOD_NS),
                **{probe.name: _ALIGNED_PERIOD_NS for probe in aggressors if probe.program.aligned},
            },
            virtual=virtual,
            timeline=options.timeline,
        )
        self.session = Session(
            [*probes, host, *drains],
            backend=backend,
            # Victims run one at a time, so no slots are needed; one that starts must not wait for the slot of another.
            options=replace(options, together=True),
        )
        self._measurer = WindowMeasurer(measured, self.session, self._raise_if_stopped, self._throttled)
        self._stop = stop
        self._clocks: Telemetry | None = None
        self._iteration_s: dict[str, float] = {}
        # How the timeline was recorded; known once the session has stopped.
        self.timeline: TimelineSummary | None = None

    def __enter__(self) -> Self:
        """Start the engine. Raises what Session.start raises, and NoTimeline if the timeline cannot be switched on."""
        try:
            self.session.start()
            if self.session.options.timeline:
                self.session.require_timeline()
            if self.session.backend != "sim":
                self._clocks = _clock_telemetry(self.session.info)
            self._measurer.begin()
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
                self.timeline = TimelineSummary.of_status(status, self.session.timeline_losses())
        self.session.stop()

    def iteration_s(self, aggressor_set: AggressorSet) -> float:
        """Duration of an iteration of the slowest of the aggressors in seconds, 0 before the first measurement."""
        return self._iteration_s.get(aggressor_set.column.name, 0.0)

    def measure_baselines(
        self, victims: Sequence[VictimProbe], lengths: Lengths, rng: random.Random
    ) -> dict[str, VictimWindow]:
        """A window of each victim with no aggressor running, by row name. ``rng`` determines their order."""
        return self._measurer.measure_baselines(_order(victims, rng), lengths)

    def measure(
        self, aggressor_set: AggressorSet, victims: Sequence[VictimProbe], lengths: Lengths, rng: random.Random
    ) -> dict[str, VictimWindow]:
        """A window of each victim with the aggressors running, by row name. ``rng`` determines their order.

        Afterwards the aggressors are off and the GPU is idle. A window in which an aggressor did not run is rejected.
        """
        column = aggressor_set.column.name
        windows, self._iteration_s[column] = self._measurer.measure(column, _order(victims, rng), lengths)
        return windows

    def _throttled(self, since_ns: int) -> str | None:
        """A clause if NVML reported lowered clocks since ``since_ns``, else None."""
        if self._clocks is None:
            return None
        reading = self._clocks.snapshot()["clock_reasons"]
        if reading.value is None or reading.at_ns < since_ns:
            return None
        reasons = sorted(_THROTTLED.intersection(reading.value))
        return f"the GPU's clocks were lowered: {', '.join(reasons)}" if reasons else None

    def _raise_if_stopped(self) -> None:
        if self._stop():
            raise Stopped


def _order(victims: Sequence[VictimProbe], rng: random.Random) -> list[str]:
    """The row names of ``victims`` in random order."""
    return [victim.row.name for victim in rng.sample(list(victims), len(victims))]


def _clock_telemetry(info: Mapping[str, object]) -> Telemetry | None:
    """Telemetry of the reasons for lowered clocks while the check runs; None if the GPU is unknown."""
    devices = info.get("devices")
    if not isinstance(devices, list) or not devices:
        return None
    reasons = [field for field in FIELDS if field.name == "clock_reasons"]
    fields = tuple(type(field)(field.name, _CLOCK_INTERVAL_S, field.read) for field in reasons)
    telemetry = Telemetry(str(devices[0].get("uuid")), load=nvml.load, fields=fields)
    telemetry.start()
    # Loading NVML in its thread must not overlap with the first window.
    time.sleep(_CLOCK_INTERVAL_S)
    return telemetry
