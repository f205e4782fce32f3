"""State of the GPU beside the calls of an idle variant: SM clock, power and performance state, as NVML shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from stallprobes.engine.session import Session
from stallprobes.machine import fingerprint
from stallprobes.machine.simulated_telemetry import SimulatedTelemetry
from stallprobes.machine.telemetry import FIELDS, Telemetry, TelemetrySnapshot

_CLOCK, _POWER, _STATE = "sm_clock_mhz", "power_w", "performance_state"
_FIELDS = tuple(one for one in FIELDS if one.name in (_CLOCK, _POWER, _STATE))


@dataclass(frozen=True)
class GpuState:
    """The lowest and highest SM clock (MHz) and power (W) of a time, and its performance states from P0 on.

    None, or empty, where NVML has no values.
    """

    sm_clock_mhz: tuple[float, float] | None = None
    power_w: tuple[float, float] | None = None
    performance_states: tuple[str, ...] = ()

    @classmethod
    def of(cls, snapshots: Sequence[TelemetrySnapshot]) -> GpuState:
        """The state over ``snapshots``."""

        def values(name: str) -> list[Any]:
            return [one[name].value for one in snapshots if one[name].value is not None]

        states = sorted(set(values(_STATE)), key=lambda state: int(state[1:]))
        return cls(_range(values(_CLOCK)), _range(values(_POWER)), tuple(states))


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


@dataclass(frozen=True)
class GpuStates:
    """The state of the GPU in the baseline, and in the window."""

    baseline: GpuState
    window: GpuState


class GpuStateRecorder:
    """Context manager that reads the GPU's values while a session runs, if ``wanted``."""

    def __init__(self, session: Session, wanted: bool) -> None:
        self._source: Telemetry | SimulatedTelemetry | None = None
        self._snapshots: list[TelemetrySnapshot] = []
        uuid = fingerprint.first_gpu(session.info)
        if wanted and session.backend == "sim":
            self._source = SimulatedTelemetry(session.sensors)
        elif wanted and uuid is not None:
            self._source = Telemetry(uuid, fields=_FIELDS)

    def __enter__(self) -> Self:
        if isinstance(self._source, Telemetry):
            self._source.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(self._source, Telemetry):
            self._source.stop()

    def sample(self) -> None:
        """Keep the last values. Never blocks."""
        if self._source is not None:
            self._snapshots.append(self._source.snapshot())

    def take(self) -> GpuState | None:
        """The state over the samples since the last call; None if nothing is read."""
        taken, self._snapshots = self._snapshots, []
        return None if self._source is None else GpuState.of(taken)
