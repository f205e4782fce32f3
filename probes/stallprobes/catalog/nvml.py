"""NVML, polled as a monitor does but without a pause."""

from __future__ import annotations

from stallprobes.catalog.entry import Cause, Entry, Place
from stallprobes.model import Device, Op, Program, Role, Word


def _nvml_poll(place: Place, _size: int) -> Program:
    device = Device(place.context.device, nvml=True)
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
        what="Utilisation, power, temperature and P-state from NVML in a tight loop.",
        source="reported to stall graphics submission on GeForce; on H200 it stalled nothing",
        causes=(
            Cause(
                why="NVML asks the driver and the GPU's management unit, which other calls may need too.",
                helps="Poll once a second or less.",
            ),
        ),
    ),
)
