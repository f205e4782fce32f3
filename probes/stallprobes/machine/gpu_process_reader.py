"""Reading of the processes that use the GPUs, about once a second, in a thread of its own.

NVML can hang with a faulty driver, and a name service with a broken network: nothing here waits for them, except
``wait``, which has a limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from stallprobes.errors import kind_and_text
from stallprobes.machine.gpu_processes import GpuProcessList

# Usual period (s) at which the list of the processes on the GPU is read from NVML.
PERIOD_S = 1.0
# Largest share of one CPU core for reading the list of GPU processes. After a read with much CPU time, the reader waits
# longer than PERIOD_S.
_SHARE = 0.1
# Time (s) without any answer of NVML after which the screen says that NVML does not answer.
SILENT_AFTER_S = 2.0


class GpuProcessReader:
    """Reads by ``read`` from ``start`` until ``stop``; ``latest`` is the last list, None before the first.

    ``failure`` is a clause once a reading has failed, "" while none has; the next one follows all the same.
    ``period_s`` is the least time between two readings in seconds.
    """

    def __init__(self, read: Callable[[], GpuProcessList], *, period_s: float = PERIOD_S) -> None:
        self._read, self._period_s = read, period_s
        self._quit, self._read_once = threading.Event(), threading.Event()
        self._began_s: float | None = None
        self.latest: GpuProcessList | None = None
        self.failure = ""
        self._thread = threading.Thread(target=self._run, name="gpu-processes", daemon=True)

    def start(self) -> None:
        """Start to read. Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more. Returns at once; a thread that hangs in the driver ends with the process."""
        self._quit.set()

    def wait(self, timeout_s: float) -> GpuProcessList | None:
        """The first list; None if there is none after ``timeout_s`` seconds, or if the reading failed."""
        self._read_once.wait(timeout_s)
        return self.latest

    @property
    def silent_s(self) -> float:
        """For how many seconds the present reading has lasted; 0 between two readings."""
        began_s = self._began_s
        return 0.0 if began_s is None else time.monotonic() - began_s

    def _run(self) -> None:
        while not self._quit.is_set():
            self._began_s, begun_cpu_s = time.monotonic(), time.thread_time()
            try:
                self.latest = self._read()
                self.failure = ""
            except Exception as error:
                # Driver and package of different versions can disagree about a structure.
                self.failure = kind_and_text(error)
            self._began_s = None
            self._read_once.set()
            self._quit.wait(max(self._period_s, (time.thread_time() - begun_cpu_s) / _SHARE))
