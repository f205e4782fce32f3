"""State of a GPU over a time: SM clock, power, performance states, utilisation, traffic and GPM counters."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from stallprobes.files.codec import Document, Figure, Text, about
from stallprobes.machine.telemetry import TelemetrySnapshot

# Snapshots that are kept of a time; of a longer one every second, fourth, … is.
_MOST_SNAPSHOTS = 4096
_CLOCK, _POWER, _STATE = "sm_clock_mhz", "power_w", "performance_state"


class GpuStateDocument(Document):
    """State of the GPU: the lowest and highest clock and power, the performance states, and medians of what it does.
    Values are null where NVML has none; GPUs before Hopper have no values from sm_active_percent on."""

    sm_clock_mhz: tuple[float, float] | None
    power_w: tuple[float, float] | None
    performance_states: list[Text]
    utilisation_percent: Annotated[Figure | None, about("Share of the time with a kernel on the GPU, of any size.")]
    pcie_to_gpu_kb_s: Figure | None
    pcie_from_gpu_kb_s: Figure | None
    sm_active_percent: Annotated[Figure | None, about("Share of the SMs with a warp on them, mean over the time.")]
    sm_occupancy_percent: Annotated[Figure | None, about("Warps on the SMs as a share of those that fit.")]
    tensor_percent: Annotated[Figure | None, about("Share of the time in which the tensor cores work.")]
    fp32_percent: Annotated[Figure | None, about("Share of the time in which the FP32 pipe works.")]
    dram_percent: Annotated[Figure | None, about("Share of the memory's bandwidth that is used.")]
    nvlink_to_gpu_mb_s: Figure | None
    nvlink_from_gpu_mb_s: Figure | None


_RANGES = (_CLOCK, _POWER)
_MEDIANS = tuple(name for name in GpuStateDocument.__struct_fields__ if name not in (*_RANGES, "performance_states"))
# Readings that a state is made of.
STATE_READINGS = (*_RANGES, _STATE, *_MEDIANS)


@dataclass(frozen=True)
class GpuState:
    """The lowest and highest SM clock (MHz) and power (W) of a time, its performance states from P0 on, and medians.

    None, or empty, where NVML has no values.
    """

    sm_clock_mhz: tuple[float, float] | None = None
    power_w: tuple[float, float] | None = None
    performance_states: tuple[str, ...] = ()
    medians: Mapping[str, float] = field(default_factory=dict)

    def document(self) -> GpuStateDocument:
        """The state as a JSON document, watts to one decimal."""
        power_w = None if self.power_w is None else (round(self.power_w[0], 1), round(self.power_w[1], 1))
        medians = {name: self.medians.get(name) for name in _MEDIANS}
        return GpuStateDocument.of(self, power_w=power_w, performance_states=list(self.performance_states), **medians)


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
            {name: round(float(statistics.median(values[name])), 3) for name in _MEDIANS if values[name]},
        )


def _range(values: list[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None
