"""SM clocks of the GPUs of watched processes, which are put beside the phases of their time."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from stallprobes.machine.telemetry import FIELDS, Telemetry
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.division.binned_sums import Times
from stallprobes.watch.division.result import PhaseDivision
from stallprobes.watch.lines.result import ProgramSequence

# Time (s) between two readings of a GPU's clock. Each reading takes NVML 2 us.
_PERIOD_S = 1.0
# Largest number of readings of a GPU's clock that are kept. If there are more, every second reading is dropped. The
# distance between later readings that are kept doubles, too.
_MOST_READINGS = 4096
# Reason for a low clock that is not reported: the GPU is idle, so nothing limits it.
_IDLE = "idle"


class _Clock(NamedTuple):
    """An SM clock (MHz) at a time (ns, CLOCK_MONOTONIC), and the reasons why it is not higher."""

    at_ns: int
    mhz: float
    reasons: tuple[str, ...]


class GpuClocks:
    """Notes the SM clocks of GPUs while processes run. NVML is read in threads, since its calls can hang."""

    def __init__(self) -> None:
        self._telemetry: dict[str, Telemetry] = {}
        self._clocks: dict[str, list[_Clock]] = {}
        self._step_ns: dict[str, int] = {}

    def look(self, uuids: Iterable[str]) -> None:
        """Note the clocks of the GPUs with these UUIDs (without GPU-); others are not read any more."""
        wanted = set(uuids)
        for uuid in self._telemetry.keys() - wanted:
            self._telemetry.pop(uuid).stop()
        for uuid in wanted - self._telemetry.keys():
            chosen = (each for each in FIELDS if each.name in ("sm_clock_mhz", "clock_reasons"))
            fields = tuple(replace(each, period_s=_PERIOD_S) for each in chosen)
            self._telemetry[uuid] = Telemetry(f"GPU-{uuid}", fields=fields)
            self._telemetry[uuid].start()
        for uuid, telemetry in self._telemetry.items():
            readings = telemetry.snapshot().readings
            clock, reasons = readings["sm_clock_mhz"], readings["clock_reasons"]
            if clock.value is not None:
                self._note(uuid, _Clock(clock.at_ns, float(clock.value), tuple(reasons.value or ())))

    def noted(self, process: ProcessFindings) -> ProcessFindings:
        """``process`` with the clocks in the phases of its sequences."""
        if not any(sequence.phases for sequence in process.sequences):
            return process
        return process.changed(sequences=tuple(self._with_clocks(each, process) for each in process.sequences))

    def _note(self, uuid: str, clock: _Clock) -> None:
        clocks = self._clocks.setdefault(uuid, [])
        if clocks and clock.at_ns - clocks[-1].at_ns < self._step_ns.get(uuid, 1):
            return
        clocks.append(clock)
        if len(clocks) > _MOST_READINGS:
            self._clocks[uuid] = clocks[::2]
            self._step_ns[uuid] = 2 * max(self._step_ns.get(uuid, 0), round(_PERIOD_S * 1e9 * 0.9))

    def _with_clocks(self, sequence: ProgramSequence, process: ProcessFindings) -> ProgramSequence:
        device = sequence.device
        if device is None or device >= len(process.gpus):
            return sequence
        clocks = self._clocks.get(process.gpus[device], [])
        began_ns = process.began_ns
        return sequence.changed(
            phases=tuple(
                _with_clock(phase, clocks, [(began_ns + begin, began_ns + end) for begin, end in phase.times])
                for phase in sequence.phases
            )
        )


def _with_clock(phase: PhaseDivision, clocks: Iterable[_Clock], times: Times) -> PhaseDivision:
    """A phase with the median of the clocks in its ``times``, and the reasons that hold for half of them."""
    mine = [clock for clock in clocks if any(begin <= clock.at_ns < end for begin, end in times)]
    if not mine:
        return phase
    counts = Counter(reason for clock in mine for reason in clock.reasons if reason != _IDLE)
    return phase.changed(
        sm_clock_mhz=statistics.median(clock.mhz for clock in mine),
        clock_reasons=tuple(reason for reason, count in counts.items() if 2 * count >= len(mine)),
    )
