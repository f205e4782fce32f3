"""SM clocks, power limits and PCIe links of the GPUs of watched processes, beside the phases of their time."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stallprobes.machine import gpu_settings, nvml
from stallprobes.machine.gpu_settings import PcieLink
from stallprobes.machine.telemetry import FIELDS, TelemetryField, TelemetryReading
from stallprobes.watch.attribution.findings import ProcessFindings, WatchedGpu
from stallprobes.watch.division.binned_sums import Times
from stallprobes.watch.division.result import PhaseDivision
from stallprobes.watch.gpu_notes import PERIOD_S, GpuNotes, Note
from stallprobes.watch.lines.result import ProgramSequence

# Name of the reading with the link of PCIe, and the time (s) between two of them.
_LINK, _LINK_S = "pcie_link", 10.0
# Reason for a low clock that is not reported: the GPU is idle, so nothing limits it.
_IDLE = "idle"
# Time (s) between two readings of what a GPU is, which stays the same.
_HEAD_S = 600.0


class _Clock(NamedTuple):
    """An SM clock (MHz), the reasons why it is not higher, the power limit (W), the link of PCIe, and what the GPU is
    (fields of WatchedGpu)."""

    mhz: float
    reasons: tuple[str, ...]
    power_limit_w: float | None
    link: PcieLink | None
    head: Mapping[str, Any]


class GpuClocks(GpuNotes[_Clock]):
    """Notes the SM clocks of GPUs while processes run. Each reading takes NVML 2 us."""

    def __init__(self) -> None:
        super().__init__(_fields, _clock)

    def gpus(self) -> tuple[WatchedGpu, ...]:
        """All GPUs that were looked at and have notes, with their clocks."""
        return tuple(
            WatchedGpu(uuid=uuid, **notes[-1].value.head, **_settings([note.value for note in notes]))
            for uuid, notes in self.every()
        )

    def noted(self, process: ProcessFindings) -> ProcessFindings:
        """``process`` with the clocks in the phases of its sequences."""
        if not any(sequence.phases for sequence in process.sequences):
            return process
        return process.changed(sequences=tuple(self._with_clocks(each, process) for each in process.sequences))

    def _with_clocks(self, sequence: ProgramSequence, process: ProcessFindings) -> ProgramSequence:
        device = sequence.device
        if device is None or device >= len(process.gpus):
            return sequence
        clocks = self.of(process.gpus[device])
        began_ns = process.began_ns
        return sequence.changed(
            phases=tuple(
                _with_clock(phase, clocks, [(began_ns + begin, began_ns + end) for begin, end in phase.times])
                for phase in sequence.phases
            )
        )


def _fields() -> tuple[TelemetryField, ...]:
    chosen = (each for each in FIELDS if each.name in ("sm_clock_mhz", "clock_reasons"))
    limit = (each for each in FIELDS if each.name == "power_limit_w")
    return (
        *(replace(each, period_s=PERIOD_S) for each in chosen),
        *limit,
        TelemetryField(_LINK, _LINK_S, gpu_settings.link, slow=True),
        TelemetryField("gpu", _HEAD_S, _head, slow=True, names=("model", "driver", "cuda")),
    )


def _head(module: Any, handle: Any) -> Mapping[str, str]:
    version = int(module.nvmlSystemGetCudaDriverVersion())
    return {
        "model": nvml.text(module.nvmlDeviceGetName(handle)),
        "driver": nvml.text(module.nvmlSystemGetDriverVersion()),
        "cuda": f"{version // 1000}.{version % 1000 // 10}",
    }


def _clock(readings: Mapping[str, TelemetryReading]) -> Note[_Clock] | None:
    clock, reasons = readings["sm_clock_mhz"], readings["clock_reasons"]
    if clock.value is None:
        return None
    limit, link = readings["power_limit_w"].value, readings[_LINK].value
    head = {name: readings[name].value or "" for name in ("model", "driver", "cuda")}
    return Note(clock.at_ns, _Clock(float(clock.value), tuple(reasons.value or ()), limit, link, head))


def _settings(clocks: Sequence[_Clock]) -> dict[str, Any]:
    """The median clock, the reasons that hold for half of the ``clocks`` or more, and the lowest power limit.

    Clocks of an idle GPU, as in a start-up, count only where there are no others.
    """
    clocks = [clock for clock in clocks if _IDLE not in clock.reasons] or clocks
    counts = Counter(reason for clock in clocks for reason in clock.reasons if reason != _IDLE)
    power_w = (clock.power_limit_w for clock in clocks if clock.power_limit_w is not None)
    return {
        "sm_clock_mhz": statistics.median(clock.mhz for clock in clocks),
        "clock_reasons": tuple(reason for reason, count in counts.items() if 2 * count >= len(clocks)),
        "power_limit_w": min(power_w, default=None),
    }


def _with_clock(phase: PhaseDivision, clocks: Iterable[Note[_Clock]], times: Times) -> PhaseDivision:
    """A phase with the median of the clocks in its ``times``, and the reasons that hold for half of them."""
    mine = [clock.value for clock in clocks if any(begin <= clock.at_ns < end for begin, end in times)]
    if not mine:
        return phase
    # The generation of a link changes with the load, to save power.
    lanes = min((clock.link.width for clock in mine if clock.link is not None), default=None)
    return phase.changed(**_settings(mine), pcie_lanes=lanes)
