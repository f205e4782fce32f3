"""Questions of the collector to a GPU: its clock, read by a kernel of one thread, and whether all work has ended."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from stallprobes.engine.cuda.api import Api, CudaError
from stallprobes.engine.cuda.resolver import SessionResources, c_function
from stallprobes.engine.gpu_work import StreamUse
from stallprobes.errors import Unsupported
from stallprobes.model import Context
from stallprobes.native.library import core

# Number of times that the difference between the GPU's and the host's clock is measured. The largest measured
# difference is used. Reason: the host notices each reading late, which makes each measured difference too small.
_READS = 3
# Longest wait (ns) for the kernel that reads the GPU's clock. If the clock cannot be read, the timeline has no context
# switches. Reason for the long wait: another kernel may have to end first.
_LONGEST_NS = 2_000_000_000
# Flag of a new stream that does not wait for the default stream (CU_STREAM_NON_BLOCKING).
_NON_BLOCKING = 1
# Code of CUDA_ERROR_NOT_READY: the work has not ended.
_NOT_READY = 600
# Period (s) at which the driver is asked whether all work on a stream has ended.
_STEP_S = 0.0005


class GpuClock:
    """Reader of the GPUs' clocks, the %globaltimer of their kernels. Only one thread may use it."""

    def __init__(self, shared: SessionResources) -> None:
        self._shared = shared
        self._api: Api = shared.api
        self._kernels: dict[Context, tuple[int, int]] = {}
        self._word = 0

    def read(self, context: Context) -> int | None:
        """The GPU's clock minus CLOCK_MONOTONIC in ns; None if a call failed.

        The host sees the kernel's write later than the kernel reads the clock, some 1 us on an H200. By that the
        result is too low, and the largest difference of several is the best one.
        """
        try:
            # It may make another context current.
            self._word = self._word or self._shared.mapped_word()
            self._shared.contexts.use(context)
            function, stream = self._kernel(context)
            offsets = [offset for _ in range(_READS) if (offset := self._read_once(function, stream)) is not None]
            self._api.call("cuCtxSetCurrent", 0)
        except (CudaError, Unsupported):
            return None
        return max(offsets, default=None)

    def _kernel(self, context: Context) -> tuple[int, int]:
        """The kernel and a stream for it in the current context."""
        if context not in self._kernels:
            module: Any = self._api.call("cuModuleLoadData", self._shared.image())
            function = self._api.call("cuModuleGetFunction", module, b"stamp")
            self._kernels[context] = int(function), int(self._api.call("cuStreamCreate", _NON_BLOCKING))
        return self._kernels[context]

    def _read_once(self, function: int, stream: int) -> int | None:
        word = ctypes.c_uint64.from_address(self._word)
        word.value = 0
        values = np.array([self._word, 0], dtype=np.uint64)
        values[1] = values.ctypes.data
        launch = c_function(self._api.address("cuLaunchKernel"))
        status = launch(function, 1, 1, 1, 1, 1, 1, 0, stream, values.ctypes.data + 8, 0)
        if status != 0:
            raise CudaError("cuLaunchKernel", status, self._api.text(status))
        seen_ns = core().written_at(self._word, time.clock_gettime_ns(time.CLOCK_MONOTONIC) + _LONGEST_NS)
        return word.value - seen_ns if seen_ns else None


class StreamsIdle:
    """Asks the streams of ``uses``. Only one thread may use it, and only while no call of a probe is in flight."""

    def __init__(self, shared: SessionResources, uses: Sequence[StreamUse]) -> None:
        self._shared = shared
        self._streams = {(use.context, use.handle): use for use in uses}

    def wait(self, seconds: float) -> bool:
        """Wait for the end of all work; False if it lasts longer than ``seconds`` or a call failed."""
        query = c_function(self._shared.api.address("cuStreamQuery"))
        until = time.monotonic() + seconds
        try:
            for (_, handle), use in self._streams.items():
                self._shared.contexts.use(use.stream.context)
                while (status := query(handle)) == _NOT_READY and time.monotonic() < until:
                    time.sleep(_STEP_S)
                if status != 0:
                    return False
        except CudaError:
            return False
        finally:
            with contextlib.suppress(CudaError):
                self._shared.api.call("cuCtxSetCurrent", 0)
        return True
