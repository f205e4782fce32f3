"""Lines of recordings of probes and of watched programs: traces, and NVML's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from stallprobes.files.codec import Nanoseconds, WallSeconds, attributes
from stallprobes.latency.histogram import MOST
from stallprobes.machine.gpus import GpuProcess
from stallprobes.machine.telemetry import NAMES, TelemetryReading, TelemetrySnapshot, TelemetryState
from stallprobes.recording.recording_format import Line
from stallprobes.traces.codec import StoredTrace

# Type of a number in a recorded telemetry reading.
_NUMBER = Annotated[int, Meta(ge=0, le=MOST)] | Annotated[float, Meta(ge=0, le=MOST)]
# Types of the telemetry fields whose value is no number.
_VALUES: Mapping[str, Any] = {
    "performance_state": str,
    "clock_reasons": tuple[str, ...],
    "processes": tuple[GpuProcess, ...],
}
# A reading for each field.
_StoredReadings: Any = msgspec.defstruct(
    "_StoredReadings",
    [
        (name, tuple[_VALUES.get(name, _NUMBER) | None, Nanoseconds, str | None], TelemetryReading())  # type: ignore[misc]
        for name in NAMES
    ],
)


class StoredTelemetry(Struct, frozen=True):
    """NVML's values."""

    uuid: str
    at_ns: Nanoseconds
    state: TelemetryState
    why: str | None
    readings: _StoredReadings

    @classmethod
    def of(cls, telemetry: TelemetrySnapshot) -> StoredTelemetry:
        """The stored form of ``telemetry``."""
        return cls(**attributes(telemetry, cls) | {"readings": _StoredReadings(**telemetry.readings)})

    def telemetry(self) -> TelemetrySnapshot:
        """The values."""
        readings = {name: TelemetryReading(*reading) for name, reading in asdict(self.readings).items()}
        return TelemetrySnapshot(**asdict(self) | {"readings": readings})


class TraceLine(Line, frozen=True):
    """A trace; ``wall_s`` is when its trigger returned, or its end."""

    key: ClassVar[str] = "trace"

    wall_s: WallSeconds
    trace: StoredTrace
