"""NVML's GPM counters: activity of the SMs and the memory; utilisation would count one thread as a whole GPU.

Each value covers the time between two samples and the whole GPU with all its processes; it needs no rights and no
context. GPUs before Hopper have no such counters. Measured on H200s: samples 75 ms apart or more are right, with 50 ms
some are missing; a sample takes 0.25 ms, and its values 1 to 4 ms.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stallprobes.errors import NvmlUnavailable, kind_and_text
from stallprobes.machine import nvml

# Period (s) at which the GPM counters are sampled. Reason: a period of 0.2 s may change latencies by more than 2 %.
# Measured changes of the p50 with 0.2 s, and 95 % intervals: launch -1.7 % (-3.9 to 1.4 %), pinned copy 1.4 % (-0.6 to
# 3.3 %). (220 pairs of windows on an H200, driver 580.159.04, 2026-11-28, tests/benchmarks/bench_gpm.py.)
PERIOD_S = 0.5
# Time (s) between the two GPM samples that ``ask`` takes. A counter's value needs two samples.
_ASK_S = 0.1
# Reasons why the GPM counters have no values.
UNSUPPORTED = "this GPU has no GPM counters: GPUs have them from Hopper on"
NO_FUNCTION = "this version of nvidia-ml-py has no functions for the GPM counters"
NOT_READ = "stallscope does not read the GPM counters here"
# Values of a GPU by name, None for a value that NVML lacks; or the reason why NVML gives none.
GpmAnswer = Mapping[str, float | None] | NvmlUnavailable
# Remedy for missing GPM counters by NVML's error code.
_REMEDIES: Mapping[int | None, str] = {
    nvml.FUNCTION_NOT_FOUND: "install a newer driver",
    nvml.NO_PERMISSION: "run stallscope as root",
}
# NVML's names of the GPM counters, by the names of the telemetry readings that show them.
METRICS = {
    "sm_active_percent": "NVML_GPM_METRIC_SM_UTIL",
    "sm_occupancy_percent": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "tensor_percent": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "fp32_percent": "NVML_GPM_METRIC_FP32_UTIL",
    "dram_percent": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "nvlink_to_gpu_mb_s": "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC",
    "nvlink_from_gpu_mb_s": "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC",
}
# NVML's names of the GPM counters that say what limits kernels, by their names in watch/division/limits.py.
LIMITS = {
    "graphics": "NVML_GPM_METRIC_GRAPHICS_UTIL",
    "sm_active": "NVML_GPM_METRIC_SM_UTIL",
    "occupancy": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "dram": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "tensor": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "fp32": "NVML_GPM_METRIC_FP32_UTIL",
    "fp64": "NVML_GPM_METRIC_FP64_UTIL",
    "fp16": "NVML_GPM_METRIC_FP16_UTIL",
    "integer": "NVML_GPM_METRIC_INTEGER_UTIL",
    "pcie_to_gpu": "NVML_GPM_METRIC_PCIE_RX_PER_SEC",
    "pcie_from_gpu": "NVML_GPM_METRIC_PCIE_TX_PER_SEC",
}
# NVML's names of the GPM counters for PCIe traffic. They replace NVML's other PCIe readings, which block for 20 ms
# each.
PCIE = {
    "pcie_to_gpu_kb_s": "NVML_GPM_METRIC_PCIE_RX_PER_SEC",
    "pcie_from_gpu_kb_s": "NVML_GPM_METRIC_PCIE_TX_PER_SEC",
}
# Number of kB in a MiB: the GPM counters give PCIe traffic in MiB/s, the readings have kB/s.
_KB_OF_MIB = 1048.576
# Held in NVML's functions of GPM. Reason: where two threads are in them, also for two GPUs, the process can end by
# SIGSEGV. It did so in 27 of 28 watches of random programs on two H200s (driver 580.159.04, 2026-11-30).
_ONE_THREAD = threading.Lock()


class GpmCounters:
    """The counters ``metrics`` of one GPU between the last two samples; a thread of its own reads them.

    ``pcie_kb_s`` has the traffic of the last reading, nothing where there is none.
    """

    def __init__(self, metrics: Mapping[str, str] = METRICS) -> None:
        self.pcie_kb_s: dict[str, float] = {}
        self._metrics = metrics
        self._handle: Any = None
        self._before: Any = None
        self._now: Any = None

    def read(self, module: Any, handle: Any) -> Mapping[str, float | None]:
        """Take a sample, and return the values since the one before it, each None where NVML has none.

        Raises NvmlUnavailable where there are no counters, and the errors of NVML.
        """
        with _ONE_THREAD:
            return self._read(module, handle)

    def _read(self, module: Any, handle: Any) -> Mapping[str, float | None]:
        if handle is not self._handle:
            self._open(module, handle)
            return dict.fromkeys(self._metrics)
        self._before, self._now = self._now, self._before
        module.nvmlGpmSampleGet(handle, self._now)
        request = module.c_nvmlGpmMetricsGet_t()
        request.version = module.NVML_GPM_METRICS_GET_VERSION
        wanted = {**self._metrics, **PCIE}
        request.sample1, request.sample2, request.numMetrics = self._before, self._now, len(wanted)
        for place, constant in enumerate(wanted.values()):
            request.metrics[place].metricId = getattr(module, constant)
        module.nvmlGpmMetricsGet(request)
        values = {name: _number(request.metrics[place]) for place, name in enumerate(wanted)}
        traffic = {name: values.pop(name) for name in PCIE}
        self.pcie_kb_s = {name: mib * _KB_OF_MIB for name, mib in traffic.items() if mib is not None}
        return values

    def _open(self, module: Any, handle: Any) -> None:
        """Take the first sample of ``handle``."""
        if not hasattr(module, "nvmlGpmQueryDeviceSupport"):
            raise NvmlUnavailable(NO_FUNCTION, "pip install --upgrade nvidia-ml-py")
        if not module.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise NvmlUnavailable(UNSUPPORTED, "")
        self._before, self._now = module.nvmlGpmSampleAlloc(), module.nvmlGpmSampleAlloc()
        module.nvmlGpmSampleGet(handle, self._now)
        self._handle = handle


def ask(uuids: Sequence[str], load: Callable[[], Any] = nvml.load, timeout_s: float = 10.0) -> Sequence[GpmAnswer]:
    """The values of each GPU of ``uuids``, or why there are none. It waits at most ``timeout_s`` seconds for NVML."""
    return nvml.answers(uuids, lambda module: _ask(uuids, module), load, timeout_s)


def _ask(uuids: Sequence[str], module: Any) -> list[GpmAnswer]:
    counters = [GpmCounters() for _ in uuids]
    handles: list[Any] = [None for _ in uuids]

    def read(place: int) -> GpmAnswer:
        try:
            if handles[place] is None:
                handles[place] = module.nvmlDeviceGetHandleByUUID(uuids[place])
            return counters[place].read(module, handles[place])
        except NvmlUnavailable as problem:
            return problem
        except module.NVMLError as error:
            return NvmlUnavailable(nvml.error_text(error), _REMEDIES.get(getattr(error, "value", None), ""))
        except Exception as error:
            # Driver and package of different versions can disagree about a structure.
            return NvmlUnavailable(kind_and_text(error), "pip install --upgrade nvidia-ml-py")

    for place in range(len(uuids)):
        read(place)
    time.sleep(_ASK_S)
    return [read(place) for place in range(len(uuids))]


def _number(metric: Any) -> float | None:
    """The value of a metric; None for one that NVML could not compute."""
    return float(metric.value) if metric.nvmlReturn == 0 and math.isfinite(metric.value) else None
