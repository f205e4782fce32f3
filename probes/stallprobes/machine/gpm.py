"""NVML's GPM counters: what the SMs and the memory do, beside the utilisation that counts one thread as a whole GPU.

Each value is that of the time between two samples. They are of the whole GPU, whoever computes on it, and need no
rights and no context. GPUs before Hopper do not have them. Measured on H200s: samples 75 ms apart or more are right,
with 50 ms some are missing; a sample takes 0.25 ms, and its values 1 to 4 ms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stallprobes.errors import NvmlUnavailable

# Time between two samples (s).
PERIOD_S = 0.2
UNSUPPORTED = "this GPU or its driver has no GPM counters"
NOT_READ = "stallscope does not read the GPM counters here"
# The name of NVML's constant by the name of a value.
METRICS = {
    "sm_active_percent": "NVML_GPM_METRIC_SM_UTIL",
    "sm_occupancy_percent": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "tensor_percent": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "fp32_percent": "NVML_GPM_METRIC_FP32_UTIL",
    "dram_percent": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "nvlink_to_gpu_mb_s": "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC",
    "nvlink_from_gpu_mb_s": "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC",
}


class GpmCounters:
    """The counters of one GPU between the last two samples; a thread of its own reads them."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._before: Any = None
        self._now: Any = None

    def read(self, module: Any, handle: Any) -> Mapping[str, float | None]:
        """Take a sample, and return the values since the one before it, each None where NVML has none.

        Raises NvmlUnavailable where there are no counters, and the errors of NVML.
        """
        if handle is not self._handle:
            self._open(module, handle)
            return dict.fromkeys(METRICS)
        self._before, self._now = self._now, self._before
        module.nvmlGpmSampleGet(handle, self._now)
        request = module.c_nvmlGpmMetricsGet_t()
        request.version = module.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2, request.numMetrics = self._before, self._now, len(METRICS)
        for place, constant in enumerate(METRICS.values()):
            request.metrics[place].metricId = getattr(module, constant)
        module.nvmlGpmMetricsGet(request)
        return {name: _number(request.metrics[place]) for place, name in enumerate(METRICS)}

    def _open(self, module: Any, handle: Any) -> None:
        """Take the first sample of ``handle``."""
        supported = getattr(module, "nvmlGpmQueryDeviceSupport", None)
        if supported is None or not supported(handle).isSupportedDevice:
            raise NvmlUnavailable(UNSUPPORTED, "")
        self._before, self._now = module.nvmlGpmSampleAlloc(), module.nvmlGpmSampleAlloc()
        module.nvmlGpmSampleGet(handle, self._now)
        self._handle = handle


def _number(metric: Any) -> float | None:
    """The value of a metric; None for one that NVML could not compute."""
    return float(metric.value) if metric.nvmlReturn == 0 and math.isfinite(metric.value) else None
