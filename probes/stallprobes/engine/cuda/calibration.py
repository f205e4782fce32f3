"""Calibration of a GPU: what its units reach by NVML's GPM counters while kernels and copies load one after the other.

It runs in a process of its own, since a call of the driver can hang or crash: ``python -m
stallprobes.engine.cuda.calibration UUID`` writes its ``CalibrationAnswer`` as JSON. With its context it takes
less than 1 GiB of the GPU's memory. It lasts 3 s, and every kernel about 10 ms.
"""

from __future__ import annotations

import ctypes
import datetime
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import field

from stallprobes.engine.cuda.api import STICKY_ERRORS, Api, CudaError
from stallprobes.engine.cuda.devices import Contexts, CudaDevice, choose
from stallprobes.engine.cuda.loads import UnitLoad, loads
from stallprobes.engine.process import environment
from stallprobes.errors import EXIT_ENGINE, EngineFailed, MalformedJson, StallprobesError, kind_and_text
from stallprobes.files import codec
from stallprobes.files.codec import Document
from stallprobes.machine import gpm, nvml
from stallprobes.machine.gpu_reach import PCIE, SCHEMA, UNITS, Calibration
from stallprobes.machine.gpus import Gpu
from stallprobes.model import Context

# Longest time (s) of a calibration. After this time, its process is killed: the driver hangs.
TIMEOUT_S = 60.0
# Size (bytes) of each of two buffers in the GPU's memory, several times the largest cache, and of one in pinned memory.
_BUFFER, _PINNED = 192 << 20, 64 << 20
# Duration (s) of a kernel, or of the copies that are submitted together, and how many are pending at once.
_KERNEL_S, _PENDING = 0.01, 3
# Number of rounds of the kernel by whose duration the number of rounds for _KERNEL_S is computed.
_TRIAL_ROUNDS = 16
# Largest number of rounds of a kernel, against a trial whose duration was measured far too short.
_MOST_ROUNDS = 1 << 20
# Time (s) of a load before the first sample of the counters, and between two samples. Samples that are 75 ms apart or
# more are right.
_SETTLE_S, _SAMPLE_S = 0.08, 0.1
# Number of samples of a load. The larger value of each counter is kept.
_SAMPLES = 2
# Largest share of the time in which kernels run before and after a calibration: more are those of others.
_IDLE = 0.02
# Number of samples without kernels in a row after which a GPU is idle, and largest number of samples that are tried.
_IDLE_SAMPLES, _MOST_IDLE_SAMPLES = 2, 10
# Flags of a stream that does not wait for the default stream (CU_STREAM_NON_BLOCKING), and of an event that records no
# time (CU_EVENT_DISABLE_TIMING).
_NON_BLOCKING, _WITHOUT_TIME = 0x01, 0x02
# Flag of pinned memory that all contexts may use (CU_MEMHOSTALLOC_PORTABLE).
_PORTABLE = 0x01


class CalibrationAnswer(Document):
    """What the process of a calibration writes: the values of the units, or why there are none as a sentence."""

    reached: dict[str, float] = field(default_factory=dict)
    problem: str = ""


def measure(gpu: Gpu, driver: str) -> Calibration:
    """Calibrate ``gpu``, with this version of the driver. Raises EngineFailed with the reason if that fails."""
    child = subprocess.Popen(
        # -P: files in the working directory must not shadow modules of the standard library.
        [sys.executable, "-P", "-m", __name__, gpu.cuda_uuid or gpu.uuid],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    try:
        out, errors = child.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # No wait after the kill: a process that hangs in the kernel driver cannot end.
        child.kill()
        raise EngineFailed(
            EXIT_ENGINE, f"the NVIDIA driver did not end the calibration within {TIMEOUT_S:g} s"
        ) from None
    except BaseException:
        child.kill()
        raise
    try:
        answer = codec.decoded(out, CalibrationAnswer)
    except MalformedJson:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise EngineFailed(EXIT_ENGINE, ": ".join(("the calibration ended without a result", *last))) from None
    if answer.problem:
        raise EngineFailed(EXIT_ENGINE, answer.problem)
    today = datetime.date.today().isoformat()
    return Calibration(SCHEMA, gpu.name, gpu.uuid, driver, today, answer.reached)


def reach(api: Api, gpu: CudaDevice, module: Any, handle: Any) -> dict[str, float]:
    """What the units of ``gpu`` reach; ``module`` and ``handle`` are NVML and its handle of the GPU.

    Raises EngineFailed if others use the GPU, NvmlUnavailable without counters, and the errors of CUDA and NVML.
    """
    Contexts(api, [gpu]).use(Context("primary"))
    counters = gpm.GpmCounters(gpm.LIMITS)
    counters.read(module, handle)
    device = _LoadedGpu(api, gpu, lambda: counters.read(module, handle))
    device.require_idle()
    used: dict[str, float | None] = {}
    for counter, load in device.loads():
        try:
            used[counter] = device.used(load(), counter)
        except CudaError as error:
            # A GPU or driver without the instructions of a load has the other units. A sticky error ends the context.
            if error.code in STICKY_ERRORS:
                if not used:
                    raise
                break
    device.require_idle()
    return {counter: round(value, 3) for counter, value in used.items() if value is not None}


class _LoadedGpu:
    """The current context of a GPU, with buffers, a stream, and ``read``, which returns the counters since the last
    call."""

    def __init__(self, api: Api, gpu: CudaDevice, read: Callable[[], Mapping[str, float | None]]) -> None:
        self._api, self._gpu, self._read = api, gpu, read
        self._stream = api.call("cuStreamCreate", _NON_BLOCKING)
        self._events = deque(api.call("cuEventCreate", _WITHOUT_TIME) for _ in range(_PENDING))
        self._buffers = [int(api.call("cuMemAlloc", _BUFFER)) for _ in range(2)]
        for buffer in self._buffers:
            api.call("cuMemsetD8", buffer, 0, _BUFFER)
        self._pinned = int(api.call("cuMemHostAlloc", _PINNED, _PORTABLE))
        api.call("cuCtxSynchronize")

    def require_idle(self) -> None:
        """Raise EngineFailed if kernels of others run on the GPU: they do in one of two samples for a second.

        Work of this process that has just ended is in the first sample or two.
        """
        idle = 0
        for _ in range(_MOST_IDLE_SAMPLES):
            self._read()
            time.sleep(_SAMPLE_S)
            idle = 0 if (self._read()["graphics"] or 0.0) / 100 > _IDLE else idle + 1
            if idle == _IDLE_SAMPLES:
                return
        raise EngineFailed(EXIT_ENGINE, "another process computes on the GPU: calibrate it while nobody uses it")

    def loads(self) -> Iterator[tuple[str, Callable[[], Callable[[], None]]]]:
        """For each counter what makes a function that submits some 10 ms of work for its unit. The load of the tensor
        cores, whose instructions depend on the GPU most, is last."""
        attribute = self._api.driver.CUdevice_attribute
        major, minor = (
            int(self._api.call("cuDeviceGetAttribute", getattr(attribute, name), self._gpu.handle))
            for name in (
                "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
                "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
            )
        )
        api, stream, buffer, pinned = self._api, self._stream, self._buffers[0], self._pinned
        to_gpu = partial(api.call, "cuMemcpyHtoDAsync", buffer, pinned, _PINNED, stream)
        from_gpu = partial(api.call, "cuMemcpyDtoHAsync", pinned, buffer, _PINNED, stream)
        yield PCIE[0], partial(self._copies, to_gpu)
        yield PCIE[1], partial(self._copies, from_gpu)
        for load in sorted(loads((major, minor)), key=lambda load: load.counter == "tensor"):
            yield load.counter, partial(self._kernels, load)

    def used(self, submit: Callable[[], None], counter: str) -> float | None:
        """The largest value of ``counter`` while the work of ``submit`` runs; of a unit its share while kernels run."""
        values: list[float] = []
        begin, samples = time.monotonic(), 0
        pending: deque[Any] = deque()
        while samples <= _SAMPLES:
            submit()
            event = self._events[0]
            self._events.rotate()
            self._api.call("cuEventRecord", event, self._stream)
            pending.append(event)
            if len(pending) == _PENDING:
                self._api.call("cuEventSynchronize", pending.popleft())
            if time.monotonic() - begin >= _SETTLE_S + samples * _SAMPLE_S:
                read, samples = self._read(), samples + 1
                # The first sample ends the time before the load.
                if samples > 1 and (value := _use(read, counter)) is not None:
                    values.append(value)
        self._api.call("cuStreamSynchronize", self._stream)
        return max(values, default=None)

    def _kernels(self, load: UnitLoad) -> Callable[[], None]:
        module = self._api.call("cuModuleLoadData", load.ptx.encode() + b"\0")
        function = self._api.call("cuModuleGetFunction", module, load.name.encode())
        kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)

        def launch(rounds: int) -> None:
            values = ((*self._buffers, _BUFFER, rounds), kinds)
            grid = (load.blocks * self._gpu.sms, 1, 1, load.threads, 1, 1)
            self._api.call("cuLaunchKernel", function, *grid, 0, self._stream, values, 0)

        rounds = max(1, min(_MOST_ROUNDS, round(_TRIAL_ROUNDS * _KERNEL_S / self._seconds(launch, _TRIAL_ROUNDS))))
        return lambda: launch(rounds)

    def _copies(self, copy: Callable[[], None]) -> Callable[[], None]:
        def run(times: int) -> None:
            for _ in range(times):
                copy()

        times = max(1, min(_TRIAL_ROUNDS, round(_KERNEL_S / self._seconds(run, 1))))
        return lambda: run(times)

    def _seconds(self, run: Callable[[int], None], rounds: int) -> float:
        """Duration (s) of ``rounds``, after one that loads the code."""
        run(1)
        self._api.call("cuStreamSynchronize", self._stream)
        begin = time.monotonic()
        run(rounds)
        self._api.call("cuStreamSynchronize", self._stream)
        return max(time.monotonic() - begin, 1e-6)


def _use(values: Mapping[str, float | None], counter: str) -> float | None:
    """The use that ``values`` have of a unit while kernels run, or the traffic; None without a value."""
    value, graphics = values[counter], values["graphics"]
    if counter not in UNITS or value is None:
        return value
    return min(value / graphics, 1.0) if graphics else None


def _answer(uuid: str) -> CalibrationAnswer:
    try:
        api = Api()
        gpu = choose(api, uuid)[0]
        module = nvml.load()
        return CalibrationAnswer(reach(api, gpu, module, module.nvmlDeviceGetHandleByUUID(f"GPU-{gpu.uuid}")))
    except StallprobesError as error:
        return CalibrationAnswer(problem=str(error))
    except CudaError as error:
        return CalibrationAnswer(problem=f"the calibration failed: {error}")
    except Exception as error:
        return CalibrationAnswer(problem=f"the calibration failed: {kind_and_text(error)}")


if __name__ == "__main__":
    sys.stdout.buffer.write(codec.encoded(_answer(sys.argv[1])))
