"""Settings and states of GPUs that make kernels or copies slower: clocks, power limit, and the link of PCIe.

NVML has no function that returns locked clocks (nvmlDeviceSetGpuLockedClocks). They show in a clock that stays below
its maximum under load without a reason. CUPTI has one from CUDA 13.4 on (cuptiClockControlGetStatus), in a context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stallprobes.errors import NvmlUnavailable, kind_and_text
from stallprobes.machine import nvml
from stallprobes.machine.telemetry import clock_reasons

# Identifier of the highest performance state (P0).
HIGHEST_STATE = 0


@dataclass(frozen=True)
class PcieLink:
    """A link of PCIe: its generation, and its number of lanes."""

    generation: int
    width: int

    def __str__(self) -> str:
        return f"gen {self.generation} ×{self.width}"


@dataclass(frozen=True)
class GpuSettings:
    """What NVML says of a GPU; None for what it does not know.

    Clocks are in MHz, limits of power in W. ``clock_reasons`` are the reasons for a low clock, ``utilisation`` the
    share of the time with a kernel in percent. ``most_link`` is the fastest link of this GPU in this machine.
    """

    performance_state: int | None = None
    utilisation: int | None = None
    sm_clock: int | None = None
    most_sm_clock: int | None = None
    application_clock: int | None = None
    default_application_clock: int | None = None
    clock_reasons: tuple[str, ...] | None = None
    power_limit: float | None = None
    default_power_limit: float | None = None
    link: PcieLink | None = None
    most_link: PcieLink | None = None


def link(module: Any, handle: Any) -> PcieLink:
    """The present link of PCIe. Raises the errors of NVML."""
    return PcieLink(module.nvmlDeviceGetCurrPcieLinkGeneration(handle), module.nvmlDeviceGetCurrPcieLinkWidth(handle))


# How each setting is read.
_READ: dict[str, Callable[[Any, Any], Any]] = {
    "performance_state": lambda m, h: m.nvmlDeviceGetPerformanceState(h),
    "utilisation": lambda m, h: m.nvmlDeviceGetUtilizationRates(h).gpu,
    "sm_clock": lambda m, h: m.nvmlDeviceGetClockInfo(h, m.NVML_CLOCK_SM),
    "most_sm_clock": lambda m, h: m.nvmlDeviceGetMaxClockInfo(h, m.NVML_CLOCK_SM),
    "application_clock": lambda m, h: m.nvmlDeviceGetApplicationsClock(h, m.NVML_CLOCK_GRAPHICS),
    "default_application_clock": lambda m, h: m.nvmlDeviceGetDefaultApplicationsClock(h, m.NVML_CLOCK_GRAPHICS),
    "clock_reasons": clock_reasons,
    "power_limit": lambda m, h: m.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
    "default_power_limit": lambda m, h: m.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000,
    "link": link,
    "most_link": lambda m, h: PcieLink(m.nvmlDeviceGetMaxPcieLinkGeneration(h), m.nvmlDeviceGetMaxPcieLinkWidth(h)),
}


def ask(
    uuids: Sequence[str], load: Callable[[], Any] = nvml.load, timeout_s: float = 10.0
) -> Sequence[GpuSettings | NvmlUnavailable]:
    """The settings of each GPU of ``uuids``, or why there are none. It waits at most ``timeout_s`` seconds for NVML."""
    return nvml.answers(uuids, lambda module: [_read(module, uuid) for uuid in uuids], load, timeout_s)


def _read(module: Any, uuid: str) -> GpuSettings | NvmlUnavailable:
    try:
        handle = module.nvmlDeviceGetHandleByUUID(uuid)
    except Exception as error:
        return NvmlUnavailable(kind_and_text(error), "")
    values: dict[str, Any] = {}
    for name, read in _READ.items():
        try:
            values[name] = read(module, handle)
        except Exception:
            # Many GPUs lack one or the other, and older packages a function.
            values[name] = None
    return GpuSettings(**values)
