"""State of a GPU over a time: SM clock, power, performance states, utilisation, traffic and GPM counters."""

from __future__ import annotations

import statistics
from typing import Annotated, Any

from msgspec import Meta

from stallprobes.files.codec import Document, Rounded, Text
from stallprobes.machine.telemetry import TelemetrySnapshot

# Largest number of telemetry snapshots that the summary of a GPU's state keeps. Above this number, every second kept
# snapshot is dropped. From then on, the summary keeps only half as many of the new snapshots.
_MOST_SNAPSHOTS = 4096
# Names of three telemetry readings in the summary of a GPU's state. The summary has the smallest and the largest value
# of _CLOCK and of _POWER, and all different values of _STATE (performance state). All other readings have a median.
_CLOCK, _POWER, _STATE = "sm_clock_mhz", "power_w", "performance_state"
_Median = Annotated[float, Meta(ge=0, le=1e18), Rounded(3)]
_Watts = Annotated[float, Rounded(1)]


class GpuState(Document):
    """State of the GPU: the lowest and highest clock and power, the performance states from P0 on, and medians of what
    it does. Values are null where NVML has none; GPUs before Hopper have no values from sm_active_percent on."""

    sm_clock_mhz: tuple[float, float] | None
    power_w: tuple[_Watts, _Watts] | None
    performance_states: tuple[Text, ...]
    utilisation_percent: _Median | None
    """Share of the time with a kernel on the GPU, of any size."""
    pcie_to_gpu_kb_s: _Median | None
    pcie_from_gpu_kb_s: _Median | None
    sm_active_percent: _Median | None
    """Share of the SMs with a warp on them, mean over the time."""
    sm_occupancy_percent: _Median | None
    """Warps on the SMs as a share of those that fit."""
    tensor_percent: _Median | None
    """Share of the time in which the tensor cores work."""
    fp32_percent: _Median | None
    """Share of the time in which the FP32 pipe works."""
    dram_percent: _Median | None
    """Share of the memory's bandwidth that is used."""
    nvlink_to_gpu_mb_s: _Median | None
    nvlink_from_gpu_mb_s: _Median | None


class GpuStates(Document):
    """State of the GPU in the baseline, and in the window with the aggressors running."""

    baseline: GpuState
    window: GpuState


# Telemetry readings whose smallest and largest values are in the GPU's state.
_RANGES = (_CLOCK, _POWER)
# Telemetry readings whose median is in the GPU's state.
_MEDIANS = tuple(name for name in GpuState.__struct_fields__ if name not in (*_RANGES, "performance_states"))
# All telemetry readings that the GPU's state summarises.
STATE_READINGS = (*_RANGES, _STATE, *_MEDIANS)


class GpuSamples:
    """Values of the snapshots of a time, in memory of limited size."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._seen, self._step = 0, 1

    def add(self, telemetry: TelemetrySnapshot) -> None:
        """Add the values of ``telemetry``."""
        if self._seen % self._step == 0:
            readings = telemetry.readings
            self._rows.append(tuple(readings[name].value if name in readings else None for name in STATE_READINGS))
            if len(self._rows) > _MOST_SNAPSHOTS:
                self._rows, self._step = self._rows[::2], 2 * self._step
        self._seen += 1

    def state(self) -> GpuState:
        """The state over all snapshots."""
        values = {
            name: [row[place] for row in self._rows if row[place] is not None]
            for place, name in enumerate(STATE_READINGS)
        }
        return GpuState(
            _range(values[_CLOCK]),
            _range(values[_POWER]),
            tuple(sorted(set(values[_STATE]), key=lambda state: (len(state), state))),
            *(statistics.median(values[name]) if values[name] else None for name in _MEDIANS),
        )


def _range(values: list[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None
