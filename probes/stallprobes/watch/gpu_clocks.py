"""SM clocks, power limits and PCIe links of the GPUs of watched processes, beside the phases of their time."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stallprobes.machine import gpu_settings, nvml
from stallprobes.machine.telemetry import FIELDS, TelemetryField
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
# Names of the fields with what a GPU is, and of that with its SM clock (MHz).
_HEAD, _CLOCK = ("model", "driver", "cuda"), "sm_clock_mhz"


class GpuClocks(GpuNotes):
    """Notes the SM clocks of GPUs while processes run. Each reading takes NVML 2 us."""

    def __init__(self) -> None:
        super().__init__(_fields, (_CLOCK,))

    def gpus(self) -> tuple[WatchedGpu, ...]:
        """All GPUs that were looked at and have notes, with their clocks."""
        return tuple(
            WatchedGpu(uuid=uuid, **_head_of(notes[-1][1]), **_settings([values for _, values in notes]))
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
    chosen = (each for each in FIELDS if each.name in (_CLOCK, "clock_reasons"))
    limit = (each for each in FIELDS if each.name == "power_limit_w")
    return (
        *(replace(each, period_s=PERIOD_S) for each in chosen),
        *limit,
        TelemetryField(_LINK, _LINK_S, gpu_settings.link, slow=True),
        TelemetryField("gpu", _HEAD_S, _head, slow=True, names=_HEAD),
    )


def _head(module: Any, handle: Any) -> Mapping[str, str]:
    version = int(module.nvmlSystemGetCudaDriverVersion())
    return {
        "model": nvml.text(module.nvmlDeviceGetName(handle)),
        "driver": nvml.text(module.nvmlSystemGetDriverVersion()),
        "cuda": f"{version // 1000}.{version % 1000 // 10}",
    }


def _head_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a GPU is (fields of WatchedGpu)."""
    return {name: values[name] or "" for name in _HEAD}


def _settings(clocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The median clock, the reasons that hold for half of the ``clocks`` or more, and the lowest power limit.

    Clocks of an idle GPU, as in a start-up, count only where there are no others.
    """
    clocks = [clock for clock in clocks if _IDLE not in (clock["clock_reasons"] or ())] or clocks
    counts = Counter(reason for clock in clocks for reason in clock["clock_reasons"] or () if reason != _IDLE)
    power_w = (clock["power_limit_w"] for clock in clocks if clock["power_limit_w"] is not None)
    return {
        "sm_clock_mhz": statistics.median(float(clock[_CLOCK]) for clock in clocks),
        "clock_reasons": tuple(reason for reason, count in counts.items() if 2 * count >= len(clocks)),
        "power_limit_w": min(power_w, default=None),
    }


def _with_clock(phase: PhaseDivision, clocks: Iterable[Note], times: Times) -> PhaseDivision:
    """A phase with the median of the clocks in its ``times``, and the reasons that hold for half of them."""
    mine = [clock for at_ns, clock in clocks if any(begin <= at_ns < end for begin, end in times)]
    if not mine:
        return phase
    # The generation of a link changes with the load, to save power.
    lanes = min((clock[_LINK].width for clock in mine if clock[_LINK] is not None), default=None)
    return phase.changed(**_settings(mine), pcie_lanes=lanes)
