"""Work that starts before the modules of a command or of the screen are loaded: the engine, and the survey of the GPUs.

Both run in other processes and take about as long as loading the modules.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from stallprobes.engine.process import SpareEngine
from stallprobes.machine.answers import in_thread

if TYPE_CHECKING:
    from stallprobes.machine.gpus import Survey

# Files of an installed NVIDIA driver, on Linux and under WSL. If none of these files exists, no engine process (which
# runs the probes) is started for CUDA in advance.
_DRIVER_FILES = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")


def start_engine(simulated: bool) -> SpareEngine | None:
    """An engine process for CUDA, or for the simulated GPU without a driver; None where no process can be started."""
    return _start("sim" if simulated or not _has_driver() else "cuda")


def start_cuda_engine() -> SpareEngine | None:
    """An engine process for CUDA; None without a driver, and where no process can be started."""
    return _start("cuda") if _has_driver() else None


def start_survey() -> Callable[[], Survey]:
    """The survey of this machine's GPUs, in progress; a later call makes another one."""
    # Not in its thread: Python 3.12 has said there that a module could not be imported which this thread was loading.
    from stallprobes.machine import gpus

    begun = [in_thread(gpus.survey, "prewarm")]
    return lambda: begun.pop().result() if begun else gpus.survey()


def _has_driver() -> bool:
    return any(map(os.path.exists, _DRIVER_FILES))


def _start(backend: str) -> SpareEngine | None:
    try:
        return SpareEngine(backend)
    except OSError:
        return None
