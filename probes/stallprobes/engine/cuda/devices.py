"""The GPUs of a session and their contexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from stallprobes.engine.cuda.api import Api, CudaError, setup_error
from stallprobes.errors import EXIT_NO_GPU, BackendError, Unsupported
from stallprobes.model import Context

# Flags of a new context: CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST.
_SCHED_SPIN_MAP_HOST = 0x01 | 0x08
# Smallest number of SMs of the green context.
_GREEN_SMS = 16


@dataclass(frozen=True)
class CudaDevice:
    """A GPU as CUDA describes it: ``handle`` is the CUdevice, ``uuid`` has no prefix, ``clock_khz`` is the SM clock."""

    handle: Any
    ordinal: int
    name: str
    uuid: str
    sms: int
    threads_per_sm: int
    clock_khz: int


def _uuid(api: Api, handle: Any) -> str:
    function = "cuDeviceGetUuid_v2" if hasattr(api.driver, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    return str(UUID(bytes=bytes(api.call(function, handle).bytes)))


def _describe(api: Api, ordinal: int) -> CudaDevice:
    attribute = api.driver.CUdevice_attribute
    handle = api.call("cuDeviceGet", ordinal)

    def get(name: str) -> int:
        return int(api.call("cuDeviceGetAttribute", getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), handle))

    name = api.call("cuDeviceGetName", 128, handle)
    return CudaDevice(
        handle=handle,
        ordinal=ordinal,
        name=bytes(name).split(b"\0")[0].decode(),
        uuid=_uuid(api, handle),
        sms=get("MULTIPROCESSOR_COUNT"),
        threads_per_sm=get("MAX_THREADS_PER_MULTIPROCESSOR"),
        clock_khz=get("CLOCK_RATE"),
    )


def choose(api: Api, spec: str | None) -> list[CudaDevice]:
    """The GPUs that ``spec`` names by UUID or CUDA index, in its order, then the others in CUDA's order.

    Raises BackendError (EXIT_NO_GPU) if there is no GPU, or not the named one.
    """
    count = int(api.call("cuDeviceGetCount"))
    if count == 0:
        raise BackendError(EXIT_NO_GPU, "CUDA sees no GPU")
    gpus = [_describe(api, ordinal) for ordinal in range(count)]
    first: list[CudaDevice] = []
    for part in (spec or "").split(","):
        wanted = part.strip().lower().removeprefix("gpu-").removeprefix("mig-")
        if not wanted:
            continue
        named = next((gpu for gpu in gpus if gpu.uuid == wanted or str(gpu.ordinal) == wanted), None)
        if named is None:
            raise BackendError(EXIT_NO_GPU, f"CUDA sees no GPU {part.strip()}")
        first.append(named)
    return [*first, *(gpu for gpu in gpus if gpu not in first)]


class Contexts:
    """The contexts of a session, each created once."""

    def __init__(self, api: Api, gpus: list[CudaDevice]) -> None:
        self._api = api
        self.gpus = gpus
        self._handles: dict[Context, Any] = {}

    def device(self, index: int) -> CudaDevice:
        """GPU number ``index`` of the session. Raises Unsupported if the session has fewer GPUs."""
        if index >= len(self.gpus):
            raise Unsupported(f"{'one GPU' if len(self.gpus) == 1 else f'{len(self.gpus)} GPUs'}: this needs two")
        return self.gpus[index]

    def handle(self, context: Context) -> Any:
        """The CUcontext. Raises Unsupported if GPU or driver lack the feature, BackendError if a call fails."""
        if context not in self._handles:
            gpu = self.device(context.device)
            try:
                self._handles[context] = self._make(context, gpu)
            except CudaError as error:
                raise setup_error(error, f"the {context.name} context on GPU {gpu.ordinal}") from error
        return self._handles[context]

    def use(self, context: Context) -> None:
        """Make ``context`` current in the calling thread."""
        self._api.call("cuCtxSetCurrent", self.handle(context))

    def made(self) -> list[Context]:
        """The contexts created so far."""
        return list(self._handles)

    def _make(self, context: Context, gpu: CudaDevice) -> Any:
        match context.name:
            case "primary":
                return self._api.call("cuDevicePrimaryCtxRetain", gpu.handle)
            case "green":
                return self._green(gpu)
            case _:
                return self._create(gpu)

    def _create(self, gpu: CudaDevice) -> Any:
        create = self._api.driver.cuCtxCreate
        # cuda-python 13 has a parameter before the flags.
        head = (None,) if "ctxCreateParams" in (create.__doc__ or "") else ()
        return self._api.call("cuCtxCreate", *head, _SCHED_SPIN_MAP_HOST, gpu.handle)

    def _green(self, gpu: CudaDevice) -> Any:
        api = self._api
        if not api.has("cuGreenCtxCreate"):
            raise Unsupported("this driver has no green contexts: install a driver for CUDA 12.4 or newer")
        # A green context is created from resources of the primary context, which must be active.
        self.handle(Context("primary", self.gpus.index(gpu)))
        kind = api.driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        try:
            whole = api.call("cuDeviceGetDevResource", gpu.handle, kind)
            groups, _count, _rest = api.call("cuDevSmResourceSplitByCount", 1, whole, 0, _GREEN_SMS)
            description = api.call("cuDevResourceGenerateDesc", [groups[0]], 1)
            green = api.call("cuGreenCtxCreate", description, gpu.handle, 1)
            return api.call("cuCtxFromGreenCtx", green)
        except CudaError as error:
            raise Unsupported(f"this GPU or driver cannot create a green context: {error}") from error


def peer_access_problem(api: Api, gpus: list[CudaDevice]) -> str | None:
    """Why the first two GPUs cannot reach each other's memory; None when they can, both ways."""
    first, second = gpus[0], gpus[1]
    for source, target in ((first, second), (second, first)):
        if not int(api.call("cuDeviceCanAccessPeer", source.handle, target.handle)):
            return f"cuDeviceCanAccessPeer says no from GPU {source.ordinal} to GPU {target.ordinal}"
    return None
