"""Sensors of a simulated GPU: what NVML would report, derived from the simulation."""

from __future__ import annotations

import math

from stallprobes.engine.sim.device import SimGpu
from stallprobes.engine.sim.parameters import SensorParameters

_WINDOW_NS = 200_000_000
_MIB = 1 << 20


class GpuSensors:
    """Computes the values of one GPU from its engines' busy time, at most once each 0.2 s of virtual time.

    Power follows the utilization, and the temperature the power, each with a first-order lag. A real GPU's power also
    depends on what the kernels compute.
    """

    def __init__(self, gpu: SimGpu, parameters: SensorParameters, now: int) -> None:
        self._gpu = gpu
        self._parameters = parameters
        self._at = now
        self._counts = gpu.work_counts()
        self._total_bytes = gpu.free_bytes
        self._power_w = parameters.idle_w
        self._temperature_c = parameters.idle_c
        self.numbers = self._numbers(0.0, 0, 0)

    def update(self, now: int) -> bool:
        """Compute the values of the time since the last update; whether enough time had passed."""
        span = now - self._at
        if span < _WINDOW_NS:
            return False
        before, self._counts, self._at = self._counts, self._gpu.work_counts(), now
        busy_ns, to_gpu, to_host = (new - old for new, old in zip(self._counts, before, strict=True))
        share = min(max(busy_ns / span, 0.0), 1.0)
        part = self._parameters
        aim_w = part.idle_w + share * (part.busy_w - part.idle_w)
        self._power_w += (aim_w - self._power_w) * -math.expm1(-span / (1e9 * part.power_lag_s))
        aim_c = part.idle_c + (self._power_w - part.idle_w) * part.c_per_w
        self._temperature_c += (aim_c - self._temperature_c) * -math.expm1(-span / (1e9 * part.temperature_lag_s))
        self.numbers = self._numbers(share, round(to_gpu * 1e6 / span), round(to_host * 1e6 / span))
        return True

    def _numbers(self, share: float, to_gpu_kb_s: int, to_host_kb_s: int) -> tuple[int, ...]:
        """The numbers in the order of ``machine.simulated_telemetry.SENSORS``."""
        part = self._parameters
        used = self._total_bytes - self._gpu.free_bytes + self._gpu.contexts * round(part.context_mib) * _MIB
        return (
            round(100 * share),
            round(part.sm_mhz),
            round(part.memory_mhz),
            round(1000 * self._power_w),
            round(1000 * part.limit_w),
            round(self._temperature_c),
            used,
            self._total_bytes,
            to_gpu_kb_s,
            to_host_kb_s,
        )
