"""Access to NVML: imports the right Python package, initialises it, and describes errors.

NVML's Python module is called ``pynvml`` and belongs to the package ``nvidia-ml-py``. Another package, named
``pynvml``, was a fork of it and overwrites its module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, TypeVar

from stallprobes.errors import NvmlUnavailable
from stallprobes.machine.answers import in_thread

Answer = TypeVar("Answer")

# Names of NVML functions by which stallscope recognises nvidia-ml-py's module pynvml. A module that lacks any of the
# functions belongs to another package, or is too old.
NEEDED = ("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMigMode")
# First major version of the package "pynvml" that is no fork of nvidia-ml-py. From this version on, the package has no
# module pynvml of its own and depends on nvidia-ml-py.
FORK_ENDS = 12

# Error codes of NVML (nvmlReturn_t).
LIBRARY_NOT_FOUND = 12  # NVML_ERROR_LIBRARY_NOT_FOUND
NOT_SUPPORTED = 3  # NVML_ERROR_NOT_SUPPORTED
NO_PERMISSION = 4  # NVML_ERROR_NO_PERMISSION
NOT_FOUND = 6  # NVML_ERROR_NOT_FOUND
FUNCTION_NOT_FOUND = 13  # NVML_ERROR_FUNCTION_NOT_FOUND
DRIVER_NOT_LOADED = 9  # NVML_ERROR_DRIVER_NOT_LOADED
GPU_IS_LOST = 15  # NVML_ERROR_GPU_IS_LOST
VERSION_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH

# Meaning and remedy for each error code with which NVML's initialisation fails.
_UNAVAILABLE: dict[int | None, tuple[str, str]] = {
    LIBRARY_NOT_FOUND: ("no NVIDIA driver: libnvidia-ml.so.1 was not found", "install the NVIDIA driver"),
    DRIVER_NOT_LOADED: ("the NVIDIA kernel module is not loaded", "load it (modprobe nvidia) or reboot"),
    VERSION_MISMATCH: (
        "NVML and the loaded kernel module have different versions",
        "reboot, or reload the kernel module, after a driver upgrade",
    ),
    NO_PERMISSION: ("no permission to use the NVIDIA driver", "check the permissions of /dev/nvidia*"),
}
# Reason why a telemetry value is missing, by NVML's error code.
_MISSING: dict[int | None, str] = {
    NOT_SUPPORTED: "not supported by this GPU",
    NO_PERMISSION: "no permission",
    FUNCTION_NOT_FOUND: "the driver does not have this function",
    GPU_IS_LOST: "the GPU is lost",
}


def fork() -> str | None:
    """The version of the fork, whose module may have overwritten nvidia-ml-py's; None if it is not installed."""
    version = version_of("pynvml")
    major = (version or "").split(".")[0]
    return version if major.isdigit() and int(major) < FORK_ENDS else None


def version_of(distribution: str) -> str | None:
    """The installed version of ``distribution``, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def load() -> Any:
    """The initialised ``pynvml`` module. It blocks while the driver does.

    Raises NvmlUnavailable if the package is missing or the wrong one, or if NVML cannot be initialised.
    """
    try:
        module = importlib.import_module("pynvml")
    except ImportError:
        raise NvmlUnavailable("the Python package nvidia-ml-py is not installed", "pip install nvidia-ml-py") from None
    missing = [name for name in NEEDED if not hasattr(module, name)]
    if missing:
        raise NvmlUnavailable(
            f"the module pynvml is not nvidia-ml-py's: it has no {missing[0]}",
            "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py",
        )
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        raise unavailable(error) from None
    return module


def answers(
    uuids: Sequence[str], ask: Callable[[Any], Sequence[Answer]], load: Callable[[], Any], timeout_s: float
) -> Sequence[Answer | NvmlUnavailable]:
    """What ``ask`` returns for the module of ``load``, one answer for each of ``uuids``; else why NVML gives none.

    It waits at most ``timeout_s`` seconds for NVML.
    """
    try:
        return answer_within(timeout_s, lambda: ask(load()))
    except NvmlUnavailable as problem:
        return [problem for _ in uuids]


def answer_within(timeout_s: float, ask: Callable[[], Answer]) -> Answer:
    """The answer of ``ask``, which calls NVML. Raises NvmlUnavailable if NVML hangs, and what ``ask`` raises."""
    try:
        return in_thread(ask, "nvml-question").result(timeout_s)
    except TimeoutError:
        raise NvmlUnavailable(f"NVML did not answer within {timeout_s:g} s", "check dmesg for Xid errors") from None


def unavailable(error: Exception) -> NvmlUnavailable:
    """The NvmlUnavailable for an NVMLError of the initialisation."""
    other = f"NVML cannot be initialised: {error}", "check nvidia-smi and dmesg"
    return NvmlUnavailable(*_UNAVAILABLE.get(getattr(error, "value", None), other))


def error_text(error: Exception) -> str:
    """An NVMLError as the reason for a missing value."""
    return _MISSING.get(getattr(error, "value", None), str(error))


def text(value: str | bytes) -> str:
    """``value`` as a string; some releases of nvidia-ml-py return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
