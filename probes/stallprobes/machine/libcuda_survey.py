"""Survey of libcuda in a child process: versions and devices, without a CUDA context.

A hang or crash of the driver is limited to the child. The child runs this file as a script, so it imports only the
standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from typing import Any

# File name of the driver's library.
LIBRARY = "libcuda.so.1"
# Error code of cuInit when there is no GPU (CUDA_ERROR_NO_DEVICE).
NO_DEVICE = 100
# Error code of cuInit when libcuda does not fit the kernel module (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH).
VERSION_MISMATCH = 803
# Error code of cuInit when the system is not ready yet (CUDA_ERROR_SYSTEM_NOT_READY).
NOT_READY_YET = 802

# Words for the modes of module loading (CUmoduleLoadingMode).
_LOADING_MODES = {1: "eager", 2: "lazy"}


@dataclass(frozen=True)
class DriverDevice:
    """One device as CUDA lists it. ``ordinal`` is CUDA's index, ``memory_bytes`` the total memory."""

    ordinal: int
    name: str
    uuid: str
    pci: str
    memory_bytes: int


@dataclass(frozen=True)
class DriverReport:
    """The answer of libcuda.

    ``cuda_version`` is the result of cuDriverGetVersion (13000 for 13.0). ``error`` is the name of the failed call's
    code (``CUDA_ERROR_NO_DEVICE``), or "library", "hang" or "crash"; ``problem`` is a sentence. Both are None on
    success.
    """

    cuda_version: int | None = None
    loading_mode: str | None = None
    devices: tuple[DriverDevice, ...] = ()
    code: int | None = None
    error: str | None = None
    problem: str | None = None

    @property
    def cuda_version_text(self) -> str | None:
        """``13.0`` for 13000."""
        if self.cuda_version is None:
            return None
        return f"{self.cuda_version // 1000}.{self.cuda_version % 1000 // 10}"


def ask(timeout_s: float = 20.0) -> DriverReport:
    """Query libcuda in a child process for at most ``timeout_s`` seconds. Errors are in the report, not raised."""
    child = subprocess.Popen(
        [sys.executable, "-I", __file__], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        out, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # No wait after the kill: a process that hangs in the kernel driver cannot end.
        child.kill()
        return DriverReport(error="hang", problem=f"the NVIDIA driver did not answer cuInit within {timeout_s:g} s")
    except BaseException:
        child.kill()
        raise
    if child.returncode != 0:
        how = f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
        return DriverReport(error="crash", problem=f"libcuda crashed the process that queried it ({how})")
    return _report(json.loads(out))


def _report(answer: dict[str, Any]) -> DriverReport:
    devices = tuple(DriverDevice(**device) for device in answer.pop("devices"))
    report = DriverReport(devices=devices, **answer)
    return DriverReport(**{**report.__dict__, "problem": _problem(report, os.environ.get("CUDA_VISIBLE_DEVICES"))})


def _problem(report: DriverReport, visible: str | None) -> str | None:
    if report.error is None and report.devices:
        return None
    if report.error == "library":
        return f"no NVIDIA driver: {LIBRARY} was not found"
    if report.code in (None, NO_DEVICE):
        if visible is not None and not visible.strip():
            return "CUDA_VISIBLE_DEVICES is empty, which hides all GPUs from CUDA"
        if visible is not None:
            return f"CUDA sees no GPU with CUDA_VISIBLE_DEVICES={visible}"
        return "CUDA sees no GPU"
    if report.code == VERSION_MISMATCH:
        return "libcuda and the loaded kernel module have different versions (reboot after a driver upgrade)"
    if report.code == NOT_READY_YET:
        return "the GPUs are not ready yet (on NVSwitch machines the fabric manager must run)"
    return f"cuInit failed with {report.error}"


def _text(library: ctypes.CDLL, function: str, code: int) -> str:
    text = ctypes.c_char_p()
    getattr(library, function)(code, ctypes.byref(text))
    return text.value.decode() if text.value else str(code)


def _query() -> dict[str, object]:
    answer: dict[str, object] = {"devices": []}
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return {**answer, "error": "library"}
    version = ctypes.c_int(0)
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        answer["cuda_version"] = version.value
    count = ctypes.c_int(0)
    status = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        return {**answer, "code": status, "error": _text(library, "cuGetErrorName", status)}
    mode = ctypes.c_int(0)
    # cuModuleGetLoadingMode exists since CUDA 11.7.
    if hasattr(library, "cuModuleGetLoadingMode") and library.cuModuleGetLoadingMode(ctypes.byref(mode)) == 0:
        answer["loading_mode"] = _LOADING_MODES.get(mode.value)
    answer["devices"] = [_device(library, ordinal) for ordinal in range(count.value)]
    return answer


def _device(library: ctypes.CDLL, ordinal: int) -> dict[str, object]:
    device = ctypes.c_int(0)
    library.cuDeviceGet(ctypes.byref(device), ordinal)
    name = ctypes.create_string_buffer(256)
    library.cuDeviceGetName(name, 256, device)
    raw = (ctypes.c_ubyte * 16)()
    # With MIG, the _v2 function returns the UUID of the MIG device.
    get_uuid = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
    get_uuid(raw, device)
    pci = ctypes.create_string_buffer(32)
    library.cuDeviceGetPCIBusId(pci, 32, device)
    memory = ctypes.c_size_t(0)
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return {
        "ordinal": ordinal,
        "name": name.value.decode(),
        "uuid": str(uuid.UUID(bytes=bytes(raw))),
        "pci": pci.value.decode().lower(),
        "memory_bytes": memory.value,
    }


if __name__ == "__main__":
    json.dump(_query(), sys.stdout)
