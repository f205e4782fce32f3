"""NVML's values of the GPU that a program uses, which its processes on the GPU show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from stallprobes.errors import NvmlUnavailable
from stallprobes.machine import nvml
from stallprobes.machine.gpus import processes_on
from stallprobes.machine.telemetry import Telemetry, TelemetrySnapshot

_RETRY_S = 2.0
NOT_YET = "the program uses no GPU yet"


class ProgramGpu:
    """Reads NVML's values of the first GPU on which one of ``follow``'s processes computes.

    On a machine with one GPU it is that one. ``name`` is its model, ``why`` the reason while there are no values.
    """

    def __init__(self, load: Callable[[], Any] = nvml.load) -> None:
        self.name = ""
        self.why = NOT_YET
        self._load = load
        self._pids: frozenset[int] = frozenset()
        self._telemetry: Telemetry | None = None
        self._thread: threading.Thread | None = None
        self._quit = threading.Event()

    def follow(self, pids: Iterable[int]) -> None:
        """Look for the GPU of these processes."""
        self._pids = frozenset(pids)
        if self._pids and self._thread is None:
            self._thread = threading.Thread(target=self._find, name="program GPU", daemon=True)
            self._thread.start()

    def snapshot(self) -> TelemetrySnapshot | None:
        """The last values; None without any."""
        return None if self._telemetry is None else self._telemetry.snapshot()

    def close(self) -> None:
        """End the reading. Returns at once."""
        self._quit.set()
        if self._telemetry is not None:
            self._telemetry.stop()

    def _find(self) -> None:
        """Look until the GPU is found. NVML may hang, so this has a thread of its own."""
        while not self._quit.is_set():
            try:
                uuid = self._uuid(self._load())
            except NvmlUnavailable as problem:
                self.why = problem.reason
                return
            except Exception as error:
                self.why, uuid = nvml.error_text(error), None
            if uuid is not None:
                telemetry = Telemetry(uuid)
                telemetry.start()
                self._telemetry = telemetry
                return
            self._quit.wait(_RETRY_S)

    def _uuid(self, module: Any) -> str | None:
        count = module.nvmlDeviceGetCount()
        for number in range(count):
            handle = module.nvmlDeviceGetHandleByIndex(number)
            # In a container processes have other numbers; with one GPU there is no doubt.
            if count == 1 or any(one.pid in self._pids for one in processes_on(module, handle)):
                self.name = nvml.text(module.nvmlDeviceGetName(handle))
                return nvml.text(module.nvmlDeviceGetUUID(handle))
        self.why = "NVML lists the program's processes on none of the GPUs"
        return None
