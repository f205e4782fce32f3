"""Telemetry of a simulated GPU: values that its engine computes, in the form of NVML's.

The engine writes them to the board as whole numbers, in the order of SENSORS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import MappingProxyType

from stallprobes.machine.telemetry import NAMES, TelemetryReading, TelemetrySnapshot

# UUID of the simulated GPU.
SIMULATED_UUID = "SIMULATED"
# Telemetry readings of the simulated GPU (name, factor), in the order in which the engine writes them. The engine
# writes whole numbers: the reading times the factor.
SENSORS = (
    ("utilisation_percent", 1),
    ("sm_clock_mhz", 1),
    ("memory_clock_mhz", 1),
    ("power_w", 1000),
    ("power_limit_w", 1000),
    ("temperature_c", 1),
    ("memory_used_bytes", 1),
    ("memory_total_bytes", 1),
    ("pcie_to_gpu_kb_s", 1),
    ("pcie_from_gpu_kb_s", 1),
    ("sm_active_percent", 100),
    ("sm_occupancy_percent", 100),
)
# Reading of a field that is not simulated.
_NOT_SIMULATED = TelemetryReading(None, 0, "the simulated GPU does not know it")
# Performance state of the simulated GPU.
PERFORMANCE_STATE = "P0"


class SimulatedTelemetry:
    """Values of the first simulated GPU; ``read`` returns the numbers of SENSORS, or none before the engine starts."""

    def __init__(self, read: Callable[[], Sequence[int]], clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._read = read
        self._clock = clock

    def snapshot(self) -> TelemetrySnapshot:
        """The current values. Never blocks."""
        now, numbers = self._clock(), self._read()
        if not any(numbers):
            readings = dict.fromkeys(NAMES, TelemetryReading())
            return TelemetrySnapshot(SIMULATED_UUID, now, "starting", None, MappingProxyType(readings))
        values: dict[str, object] = {
            name: number if factor == 1 else number / factor
            for (name, factor), number in zip(SENSORS, numbers, strict=True)
        }
        values["performance_state"] = PERFORMANCE_STATE
        values["clock_reasons"] = () if values["utilisation_percent"] else ("idle",)
        values["processes"] = ()
        read = dict.fromkeys(NAMES, _NOT_SIMULATED)
        read |= {name: TelemetryReading(value, now, None) for name, value in values.items()}
        return TelemetrySnapshot(SIMULATED_UUID, now, "live", None, MappingProxyType(read))
