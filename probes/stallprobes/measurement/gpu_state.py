"""Reader of the GPU's state while the baseline and the window of a variant are measured."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from stallprobes.engine.session import Session
from stallprobes.machine import fingerprint
from stallprobes.machine.gpu_state import STATE_READINGS, GpuSamples, GpuState
from stallprobes.machine.simulated_telemetry import SimulatedTelemetry
from stallprobes.machine.telemetry import Telemetry, TelemetrySnapshot, all_fields


class GpuStateRecorder:
    """Context manager that reads the GPU's values while a session runs, with ``gpm_counters`` the GPM counters too."""

    def __init__(self, session: Session, gpm_counters: bool) -> None:
        self._source: Telemetry | SimulatedTelemetry | None = None
        self._samples = GpuSamples()
        uuid = fingerprint.first_gpu(session.info)
        if session.backend == "sim":
            self._source = SimulatedTelemetry(session.sensors)
        elif uuid is not None:
            fields = (field for field in all_fields(gpm_counters) if field.names or field.name in STATE_READINGS)
            self._source = Telemetry(uuid, fields=tuple(fields))

    def __enter__(self) -> Self:
        if isinstance(self._source, Telemetry):
            self._source.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(self._source, Telemetry):
            self._source.stop()

    def sample(self) -> TelemetrySnapshot | None:
        """Keep the last values, and return them; None if nothing is read. Never blocks."""
        if self._source is None:
            return None
        telemetry = self._source.snapshot()
        self._samples.add(telemetry)
        return telemetry

    def take(self) -> GpuState | None:
        """The state over the samples since the last call; None if nothing is read."""
        taken, self._samples = self._samples, GpuSamples()
        return None if self._source is None else taken.state()
