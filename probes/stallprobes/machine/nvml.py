"""Access to NVML: imports the right Python package, initialises it, and describes errors.

NVML's Python module is called ``pynvml`` and belongs to the package ``nvidia-ml-py``. Another package, named
``pynvml``, was a fork of it and overwrites its module.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from stallprobes.errors import NvmlUnavailable

NEEDED = ("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMigMode")
# Before this release the package "pynvml" contained a module; since then it only depends on nvidia-ml-py.
FORK_ENDS = 12

LIBRARY_NOT_FOUND = 12
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
VERSION_MISMATCH = 18
UNKNOWN = 999


@dataclass(frozen=True)
class Package:
    """Installed versions of the packages that provide a module ``pynvml``; None if not installed."""

    nvidia_ml_py: str | None
    pynvml: str | None

    @property
    def shadowed(self) -> bool:
        """Whether the fork is installed, whose module may have overwritten nvidia-ml-py's."""
        major = (self.pynvml or str(FORK_ENDS)).split(".")[0]
        return major.isdigit() and int(major) < FORK_ENDS


def package() -> Package:
    """The installed packages that provide a module ``pynvml``."""
    return Package(version_of("nvidia-ml-py"), version_of("pynvml"))


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


def unavailable(error: Exception) -> NvmlUnavailable:
    """The NvmlUnavailable for an NVMLError of the initialisation."""
    code = getattr(error, "value", UNKNOWN)
    if code == LIBRARY_NOT_FOUND:
        return NvmlUnavailable("no NVIDIA driver: libnvidia-ml.so.1 was not found", "install the NVIDIA driver")
    if code == DRIVER_NOT_LOADED:
        return NvmlUnavailable("the NVIDIA kernel module is not loaded", "load it (modprobe nvidia) or reboot")
    if code == VERSION_MISMATCH:
        return NvmlUnavailable(
            "NVML and the loaded kernel module have different versions",
            "reboot, or reload the kernel module, after a driver upgrade",
        )
    if code == NO_PERMISSION:
        return NvmlUnavailable("no permission to use the NVIDIA driver", "check the permissions of /dev/nvidia*")
    return NvmlUnavailable(f"NVML cannot be initialised: {error}", "check nvidia-smi and dmesg")


def error_text(error: Exception) -> str:
    """An NVMLError as the reason for a missing value."""
    code = getattr(error, "value", None)
    if code == NOT_SUPPORTED:
        return "not supported by this GPU"
    if code == NO_PERMISSION:
        return "no permission"
    if code == GPU_IS_LOST:
        return "the GPU is lost"
    return str(error)


def text(value: str | bytes) -> str:
    """``value`` as a string; some releases of nvidia-ml-py return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
