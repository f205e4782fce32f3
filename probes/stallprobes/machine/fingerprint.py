"""Fingerprint of a machine: GPU, driver, settings and host, on which results depend.

A value that cannot be determined is None; ``unknown`` has the reason under the same key.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from stallprobes.machine import gpus, nvml

# Packages whose versions are in the machine's fingerprint.
PACKAGES = ("stallscope", "cuda-bindings", "numpy", "nvidia-ml-py")
# Environment variables that are in the machine's fingerprint. Reason: the variables change results.
ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_CACHE_DISABLE",
)


def fingerprint(
    gpu_uuid: str | None, engine_info: Mapping[str, object], survey: gpus.Survey | None = None
) -> dict[str, object]:
    """The fingerprint of this machine with the GPU ``gpu_uuid``, None for a run without a GPU.

    ``engine_info`` is the engine's description of itself; its values override those found here. ``survey`` is by
    default taken now. It raises nothing.
    """
    unknown: dict[str, str] = {}
    facts: dict[str, object] = {**_host(unknown), **_gpu(gpu_uuid, survey, unknown)}
    facts.update({key: value for key, value in engine_info.items() if key in facts and value is not None})
    for key, value in facts.items():
        if value is None:
            unknown.setdefault(key, "not available")
    reasons = {key: why for key, why in unknown.items() if facts.get(key) is None}
    return {**facts, "date": datetime.date.today().isoformat(), "unknown": reasons}


def first_gpu(engine_info: Mapping[str, object]) -> str | None:
    """The UUID of the first GPU in an engine's description; None if there is none."""
    return _of_first_gpu(engine_info, "uuid")


def first_gpu_model(engine_info: Mapping[str, object]) -> str | None:
    """The model of the first GPU in an engine's description; None if there is none."""
    return _of_first_gpu(engine_info, "name")


def _of_first_gpu(engine_info: Mapping[str, object], key: str) -> str | None:
    devices = engine_info.get("devices")
    if not isinstance(devices, list) or not devices or not isinstance(devices[0], Mapping):
        return None
    value = devices[0].get(key)
    return str(value) if value else None


def _host(unknown: dict[str, str]) -> dict[str, object]:
    governors = scaling_governors()
    if governors is None:
        unknown["governor"] = "the kernel shows no cpufreq governor (usual in virtual machines and containers)"
    model = cpu_model()
    if model is None:
        unknown["cpu"] = "/proc/cpuinfo names no model"
    return {
        "hostname": platform.node() or None,
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "governor": governors,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: nvml.version_of(name) for name in PACKAGES},
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }


def _gpu(uuid: str | None, survey: gpus.Survey | None, unknown: dict[str, str]) -> dict[str, object]:
    keys = (
        "gpu", "uuid", "pci", "memory_bytes", "driver", "cuda", "module_loading", "mig", "mps", "compute_mode",
    )  # fmt: skip
    if uuid is None:
        unknown.update(dict.fromkeys(keys, "no GPU was used"))
        return dict.fromkeys(keys)
    survey = survey if survey is not None else gpus.survey()
    if survey.nvml_problem is not None:
        unknown.update(dict.fromkeys(("driver", "mig", "compute_mode"), survey.nvml_problem.reason))
    if survey.driver.problem is not None:
        unknown.update(dict.fromkeys(("cuda", "module_loading"), survey.driver.problem))
    gpu, uuid = next(
        ((g, listed) for g in survey.gpus for listed in (g.uuid, *g.mig_uuids) if gpus.same_uuid(uuid, listed)),
        (None, uuid),
    )
    if gpu is None:
        unknown.update(dict.fromkeys(("gpu", "pci", "memory_bytes", "mig", "compute_mode"), "the GPU is not listed"))
    return {
        "gpu": gpu.name if gpu else None,
        "uuid": uuid,
        "pci": gpu.pci if gpu else None,
        "memory_bytes": gpu.memory_bytes if gpu else None,
        "driver": survey.driver_version or kernel_module_version(),
        "cuda": survey.driver.cuda_version_text,
        "module_loading": survey.driver.loading_mode,
        "mig": gpu.mig if gpu else None,
        "mps": mps_running(),
        "compute_mode": gpu.compute_mode if gpu else None,
    }


def cpu_model() -> str | None:
    """The CPU's model name from /proc/cpuinfo, None if it has none."""
    return _value("/proc/cpuinfo", "model name", "Model")


def scaling_governors() -> str | None:
    """The cpufreq governors in use, separated with commas; None if the kernel shows none."""
    governors: set[str] = set()
    for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"):
        governors.update(line.strip() for line in _lines(str(path)))
    return ",".join(sorted(governors)) or None


def clock_source() -> str | None:
    """The kernel's clock source. On x86-64, with another one than ``tsc``, reading the clock is a system call."""
    return next(iter(_lines("/sys/devices/system/clocksource/clocksource0/current_clocksource")), None)


def kernel_module_version() -> str | None:
    """The version of the loaded NVIDIA kernel module, None if none is loaded."""
    for line in _lines("/proc/driver/nvidia/version"):
        if line.startswith("NVRM"):
            return next((word for word in line.split() if word[:1].isdigit() and "." in word), None)
    return None


def kernel_module_gpus(folder: Path = Path("/proc/driver/nvidia/gpus")) -> tuple[str, ...]:
    """The model of each GPU as the NVIDIA kernel module names it, without a call of the driver; empty without one."""
    models = (_value(str(path), "Model") for path in sorted(folder.glob("*/information")))
    return tuple(model for model in models if model is not None)


def mps_running() -> bool:
    """True if an MPS control daemon or server is visible to this process."""
    # The kernel truncates a process's name to 15 characters, so "nvidia-cuda-mps-control" and "-server" are alike.
    return any("nvidia-cuda-mps" in _lines(str(path)) for path in Path("/proc").glob("[0-9]*/comm"))


def _value(path: str, *keys: str) -> str | None:
    """The value after the first of ``keys`` that has one in a file of lines ``KEY: VALUE``."""
    for line in _lines(path):
        key, _, value = line.partition(":")
        if key.strip() in keys and value.strip():
            return value.strip()
    return None


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
