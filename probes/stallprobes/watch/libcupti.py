"""Choice of the libcupti that a watched program loads if it has loaded none itself."""

from __future__ import annotations

import ctypes
from pathlib import Path

from stallprobes.machine.libcuda_survey import LIBRARY
from stallprobes.watch.environment import find_cupti


def cupti_of_this_machine(libcuda: str = LIBRARY) -> Path | None:
    """The first libcupti that fits the driver; None without one, or without a driver."""
    version = ctypes.c_int(0)
    try:
        # It is known without initialization, so that nothing is created on a GPU.
        code = ctypes.CDLL(libcuda).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return find_cupti(version.value) if code == 0 and version.value > 0 else None
