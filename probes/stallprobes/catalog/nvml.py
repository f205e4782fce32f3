"""NVML queries of a monitor, without a pause between them."""

from __future__ import annotations

from stallprobes.catalog.entry import (
    BOTH,
    Cause,
    CheckPlacement,
    Entry,
    Placement,
)
from stallprobes.model import Device, Op, Program, Role, Word


def _nvml_poll(placement: Placement, _size: int) -> Program:
    device = Device(placement.context.device, nvml=True)
    first, power, temperature, state = Word("rates"), Word("power"), Word("temperature"), Word("state")
    gpu_sensor = 0
    return Program(
        ops=(
            Op("nvml:nvmlDeviceGetUtilizationRates", (device, first), label="utilisation"),
            Op("nvml:nvmlDeviceGetPowerUsage", (device, power), label="power"),
            Op("nvml:nvmlDeviceGetTemperature", (device, gpu_sensor, temperature), label="temperature"),
            Op("nvml:nvmlDeviceGetPerformanceState", (device, state), label="P-state"),
        ),
        context=None,
    )


ENTRIES = (
    Entry(
        name="nvml-poll",
        title="NVML polling",
        role=Role.AGGRESSOR,
        program=_nvml_poll,
        check=(CheckPlacement(position=250),),
        control=True,
        beside=7,
        what="NVML queries of utilisation, power, temperature and P-state in a tight loop.",
        source="reported to stall graphics submission on GeForce; on an H200 it stalled no call",
        causes=(
            Cause(
                phases=BOTH,
                short="NVML queries the driver, which other calls may need too",
                short_remedy="query NVML once a second or less often",
                why="NVML queries the driver and the GPU's management unit, which other calls may need too.",
                remedy="Query NVML once a second or less often.",
            ),
        ),
    ),
)
