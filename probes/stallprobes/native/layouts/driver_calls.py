"""Which functions of the driver are watched, and where their arguments lie.

A function is watched if it can block: it submits or waits for work, or takes a lock of the driver. The injected library
finds the functions by name in what its libcupti knows, so that a newer driver needs no newer table. PyTorch makes
thousands of calls a second of functions that only ask, such as cuCtxGetDevice; watching them too costs 10 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from stallprobes.native.layouts.cupti import MemoryKind


class CallFamily(StrEnum):
    """What a function of the driver does, as far as its delays are concerned."""

    LAUNCH = "launch"
    COPY = "copy"
    FILL = "fill"
    WAIT = "wait"
    QUERY = "query"
    EVENT = "event"
    STREAM = "stream"
    CONTEXT = "context"
    ALLOCATION = "allocation"
    HOST_MEMORY = "host memory"
    MODULE = "module"
    GRAPH = "graph"
    OTHER = "other"


# The beginnings of the watched names; the first that fits gives the family. None: not watched.
_PREFIXES: tuple[tuple[str, CallFamily | None], ...] = (
    ("cuLaunch", CallFamily.LAUNCH),
    ("cuGraphLaunch", CallFamily.LAUNCH),
    ("cuMemcpy", CallFamily.COPY),
    ("cuMemPrefetch", CallFamily.COPY),
    ("cuMemDiscard", CallFamily.COPY),
    ("cuMemBatchDecompress", CallFamily.COPY),
    ("cuMemset", CallFamily.FILL),
    ("cuStreamSynchronize", CallFamily.WAIT),
    ("cuEventSynchronize", CallFamily.WAIT),
    ("cuCtxSynchronize", CallFamily.WAIT),
    ("cuStreamQuery", CallFamily.QUERY),
    ("cuEventQuery", CallFamily.QUERY),
    ("cuMemGetInfo", CallFamily.QUERY),
    ("cuEventRecord", CallFamily.EVENT),
    ("cuEventCreate", CallFamily.EVENT),
    ("cuEventDestroy", CallFamily.EVENT),
    ("cuStreamWait", CallFamily.EVENT),
    ("cuStreamWrite", CallFamily.EVENT),
    ("cuStreamBatchMemOp", CallFamily.EVENT),
    ("cuCtxRecordEvent", CallFamily.EVENT),
    ("cuCtxWaitEvent", CallFamily.EVENT),
    ("cuGreenCtxRecordEvent", CallFamily.EVENT),
    ("cuGreenCtxWaitEvent", CallFamily.EVENT),
    ("cuStreamCreate", CallFamily.STREAM),
    ("cuStreamDestroy", CallFamily.STREAM),
    ("cuStreamAddCallback", CallFamily.STREAM),
    ("cuStreamAttachMem", CallFamily.STREAM),
    ("cuGreenCtxStreamCreate", CallFamily.STREAM),
    ("cuStreamBeginCapture", CallFamily.GRAPH),
    ("cuStreamBeginRecapture", CallFamily.GRAPH),
    ("cuStreamEndCapture", CallFamily.GRAPH),
    ("cuCtxCreate", CallFamily.CONTEXT),
    ("cuCtxDestroy", CallFamily.CONTEXT),
    ("cuCtxAttach", CallFamily.CONTEXT),
    ("cuCtxDetach", CallFamily.CONTEXT),
    ("cuCtxSetLimit", CallFamily.CONTEXT),
    ("cuCtxEnablePeerAccess", CallFamily.CONTEXT),
    ("cuCtxDisablePeerAccess", CallFamily.CONTEXT),
    ("cuCtxResetPersistingL2Cache", CallFamily.CONTEXT),
    ("cuGreenCtxCreate", CallFamily.CONTEXT),
    ("cuGreenCtxDestroy", CallFamily.CONTEXT),
    ("cuDevicePrimaryCtxRetain", CallFamily.CONTEXT),
    ("cuDevicePrimaryCtxRelease", CallFamily.CONTEXT),
    ("cuDevicePrimaryCtxReset", CallFamily.CONTEXT),
    ("cuMemAllocHost", CallFamily.HOST_MEMORY),
    ("cuMemFreeHost", CallFamily.HOST_MEMORY),
    ("cuMemHostAlloc", CallFamily.HOST_MEMORY),
    ("cuMemHostRegister", CallFamily.HOST_MEMORY),
    ("cuMemHostUnregister", CallFamily.HOST_MEMORY),
    ("cuMemAlloc", CallFamily.ALLOCATION),
    ("cuMemFree", CallFamily.ALLOCATION),
    ("cuMemAddress", CallFamily.ALLOCATION),
    ("cuMemCreate", CallFamily.ALLOCATION),
    ("cuMemRelease", CallFamily.ALLOCATION),
    ("cuMemMap", CallFamily.ALLOCATION),
    ("cuMemUnmap", CallFamily.ALLOCATION),
    ("cuMemSetAccess", CallFamily.ALLOCATION),
    ("cuMemAdvise", CallFamily.ALLOCATION),
    ("cuMemExport", CallFamily.ALLOCATION),
    ("cuMemImport", CallFamily.ALLOCATION),
    ("cuMemPoolCreate", CallFamily.ALLOCATION),
    ("cuMemPoolDestroy", CallFamily.ALLOCATION),
    ("cuMemPoolTrimTo", CallFamily.ALLOCATION),
    ("cuMemPoolSetAccess", CallFamily.ALLOCATION),
    ("cuMemPoolExport", CallFamily.ALLOCATION),
    ("cuMemPoolImport", CallFamily.ALLOCATION),
    ("cuDeviceGraphMemTrim", CallFamily.ALLOCATION),
    ("cuArrayCreate", CallFamily.ALLOCATION),
    ("cuArray3DCreate", CallFamily.ALLOCATION),
    ("cuArrayDestroy", CallFamily.ALLOCATION),
    ("cuMipmappedArrayCreate", CallFamily.ALLOCATION),
    ("cuMipmappedArrayDestroy", CallFamily.ALLOCATION),
    ("cuMulticastGet", None),
    ("cuMulticast", CallFamily.ALLOCATION),
    ("cuIpc", CallFamily.ALLOCATION),
    ("cuModuleGetLoadingMode", None),
    ("cuModuleGetFunctionCount", None),
    ("cuModuleGetTexRef", None),
    ("cuModuleGetSurfRef", None),
    ("cuModule", CallFamily.MODULE),
    ("cuLibraryGetKernelCount", None),
    ("cuLibrary", CallFamily.MODULE),
    ("cuKernelGetFunction", CallFamily.MODULE),
    ("cuFuncLoad", CallFamily.MODULE),
    ("cuLink", CallFamily.MODULE),
    ("cuGraphInstantiate", CallFamily.GRAPH),
    ("cuGraphUpload", CallFamily.GRAPH),
    ("cuGraphExecUpdate", CallFamily.GRAPH),
    ("cuGraphExecDestroy", CallFamily.GRAPH),
    ("cuGraphDestroyNode", None),
    ("cuGraphDestroy", CallFamily.GRAPH),
    ("cuGraphClone", CallFamily.GRAPH),
    ("cuGraphicsMap", CallFamily.OTHER),
    ("cuGraphicsUnmap", CallFamily.OTHER),
    ("cuGraphicsGLRegister", CallFamily.OTHER),
    ("cuGraphicsEGLRegister", CallFamily.OTHER),
    ("cuGraphicsUnregister", CallFamily.OTHER),
    ("cuImportExternal", CallFamily.OTHER),
    ("cuExternalMemory", CallFamily.OTHER),
    ("cuDestroyExternal", CallFamily.OTHER),
    ("cuSignalExternal", CallFamily.OTHER),
    ("cuWaitExternal", CallFamily.OTHER),
    ("cuProfilerStart", CallFamily.OTHER),
    ("cuProfilerStop", CallFamily.OTHER),
    ("cuFlushGPUDirectRDMAWrites", CallFamily.OTHER),
    ("cuCheckpointProcessGet", None),
    ("cuCheckpoint", CallFamily.OTHER),
)
# Variants for the per-thread default stream have the parameters of the function without the ending.
_VARIANTS = ("_ptsz", "_ptds")


def prefixes() -> tuple[tuple[str, CallFamily | None], ...]:
    """The beginnings of names in the order in which they are tried, each with its family, None if not watched."""
    return _PREFIXES


def family_of(name: str) -> CallFamily | None:
    """The family of a function by its name; None if it is not watched."""
    for prefix, family in _PREFIXES:
        if name.startswith(prefix):
            return family
    return None


def plain_name(name: str) -> str:
    """``name`` without the ending of a variant for the per-thread default stream."""
    for ending in _VARIANTS:
        name = name.removesuffix(ending)
    return name


class CallUse(IntEnum):
    """What a function does that is noted with its call.

    ``ALLOCATES_PINNED`` to ``FREES`` change the list of host memory that the driver knows: the memory's address is the
    first argument, or lies at it; the size is the second. ``CREATES_STREAM``: a new stream's handle lies at the first
    argument, and its flags are the second.
    """

    NONE = 0
    ALLOCATES_PINNED = 1
    REGISTERS = 2
    ALLOCATES_MANAGED = 3
    FREES = 4
    CREATES_STREAM = 5


ABSENT = -1
# How the memory at one end of a copy is found: by the address, in the list of host memory. ``HOST``: what is not in the
# list is pageable; ``ANY``: it is unknown. Values below are kinds of memory.
HOST, ANY = 64, 65


@dataclass(frozen=True)
class CallShape:
    """Where the arguments of a function lie in its parameters (offsets in bytes; ABSENT without the argument).

    ``event`` is the handle of an event. ``units`` is the size of what ``bytes`` counts, ``rows`` a second factor;
    ``source`` and ``target`` are addresses, ``source_kind`` and ``target_kind`` a MemoryKind, HOST or ANY.
    ``description`` is a pointer to a structure that describes a copy of two or three dimensions (``dimensions``),
    ``config`` one to the CUlaunchConfig that has the stream.
    """

    name: str
    stream: int = ABSENT
    bytes: int = ABSENT
    rows: int = ABSENT
    units: int = 1
    source: int = ABSENT
    target: int = ABSENT
    source_kind: int = MemoryKind.UNKNOWN
    target_kind: int = MemoryKind.UNKNOWN
    description: int = ABSENT
    dimensions: int = 0
    event: int = ABSENT
    config: int = ABSENT
    use: CallUse = CallUse.NONE


# Parameters in their order. ``p``: 8 bytes, ``i``: 4 bytes, both of no interest. ``from:`` and ``to:`` are the
# ends of a copy: addresses in host, device or any memory, or an array.
_PARAMETERS: dict[str, str] = {
    "cuMemcpy": "to:any from:any bytes",
    "cuMemcpyAsync": "to:any from:any bytes stream",
    "cuMemcpyWithAttributesAsync": "to:any from:any bytes p stream",
    "cuMemcpyHtoD_v2": "to:device from:host bytes",
    "cuMemcpyHtoDAsync_v2": "to:device from:host bytes stream",
    "cuMemcpyDtoH_v2": "to:host from:device bytes",
    "cuMemcpyDtoHAsync_v2": "to:host from:device bytes stream",
    "cuMemcpyDtoD_v2": "to:device from:device bytes",
    "cuMemcpyDtoDAsync_v2": "to:device from:device bytes stream",
    "cuMemcpyDtoA_v2": "to:array p from:device bytes",
    "cuMemcpyAtoD_v2": "to:device from:array p bytes",
    "cuMemcpyHtoA_v2": "to:array p from:host bytes",
    "cuMemcpyHtoAAsync_v2": "to:array p from:host bytes stream",
    "cuMemcpyAtoH_v2": "to:host from:array p bytes",
    "cuMemcpyAtoHAsync_v2": "to:host from:array p bytes stream",
    "cuMemcpyAtoA_v2": "to:array p from:array p bytes",
    "cuMemcpyPeer": "to:device p from:device p bytes",
    "cuMemcpyPeerAsync": "to:device p from:device p bytes stream",
    "cuMemcpy2D_v2": "copy2d",
    "cuMemcpy2DUnaligned_v2": "copy2d",
    "cuMemcpy2DAsync_v2": "copy2d stream",
    "cuMemcpy3D_v2": "copy3d",
    "cuMemcpy3DAsync_v2": "copy3d stream",
    "cuMemcpy3DPeer": "p",
    "cuMemcpy3DPeerAsync": "p stream",
    "cuMemcpyBatchAsync": "p p p p p p p p stream",
    "cuMemcpyBatchAsync_v2": "p p p p p p p stream",
    "cuMemcpy3DBatchAsync": "p p p p stream",
    "cuMemcpy3DBatchAsync_v2": "p p p stream",
    "cuMemcpy3DWithAttributesAsync": "p p stream",
    "cuMemsetD8_v2": "to:device i bytes",
    "cuMemsetD16_v2": "to:device i halves",
    "cuMemsetD32_v2": "to:device i words",
    "cuMemsetD2D8_v2": "to:device p i bytes rows",
    "cuMemsetD2D16_v2": "to:device p i halves rows",
    "cuMemsetD2D32_v2": "to:device p i words rows",
    "cuMemsetD8Async": "to:device i bytes stream",
    "cuMemsetD16Async": "to:device i halves stream",
    "cuMemsetD32Async": "to:device i words stream",
    "cuMemsetD2D8Async": "to:device p i bytes rows stream",
    "cuMemsetD2D16Async": "to:device p i halves rows stream",
    "cuMemsetD2D32Async": "to:device p i words rows stream",
    "cuMemPrefetchAsync": "p bytes i stream",
    "cuMemPrefetchAsync_v2": "p bytes p i stream",
    "cuMemPrefetchBatchAsync": "p p p p p p p stream",
    "cuMemDiscardBatchAsync": "p p p p stream",
    "cuMemDiscardAndPrefetchBatchAsync": "p p p p p p p stream",
    "cuMemBatchDecompressAsync": "p p i p stream",
    "cuMemAlloc_v2": "p bytes",
    "cuMemAllocPitch_v2": "p p bytes rows i",
    "cuMemAllocAsync": "p bytes stream",
    "cuMemAllocFromPoolAsync": "p bytes p stream",
    "cuMemFreeAsync": "p stream",
    "cuMemAllocManaged": "p bytes i",
    "cuMemFree_v2": "p",
    "cuMemAllocHost_v2": "p bytes",
    "cuMemHostAlloc": "p bytes i",
    "cuMemFreeHost": "p",
    "cuMemHostRegister": "p bytes i",
    "cuMemHostRegister_v2": "p bytes i",
    "cuMemHostUnregister": "p",
    "cuMemCreate": "p bytes p p",
    "cuMemMap": "p bytes p p p",
    "cuMemUnmap": "p bytes",
    "cuMemAddressReserve": "p bytes p p p",
    "cuMemAddressFree": "p bytes",
    "cuMemSetAccess": "p bytes p p",
    "cuMemAdvise": "p bytes i i",
    "cuMemAdvise_v2": "p bytes i p",
    "cuMemMapArrayAsync": "p i stream",
    "cuLaunchKernel": "p i i i i i i i stream p p",
    "cuLaunchKernelEx": "config p p p",
    "cuLaunchCooperativeKernel": "p i i i i i i i stream p",
    "cuLaunchGridAsync": "p i i stream",
    "cuLaunchHostFunc": "stream p p",
    "cuLaunchHostFunc_v2": "stream p p i",
    "cuGraphLaunch": "p stream",
    "cuGraphUpload": "p stream",
    "cuEventRecord": "event stream",
    "cuEventRecordWithFlags": "event stream i",
    "cuEventSynchronize": "event",
    "cuStreamSynchronize": "stream",
    "cuStreamQuery": "stream",
    "cuStreamCreate": "p i",
    "cuStreamCreateWithPriority": "p i i",
    "cuStreamDestroy_v2": "stream",
    "cuStreamWaitEvent": "stream event i",
    "cuStreamWaitValue32": "stream p i i",
    "cuStreamWaitValue32_v2": "stream p i i",
    "cuStreamWaitValue64": "stream p p i",
    "cuStreamWaitValue64_v2": "stream p p i",
    "cuStreamWriteValue32": "stream p i i",
    "cuStreamWriteValue32_v2": "stream p i i",
    "cuStreamWriteValue64": "stream p p i",
    "cuStreamWriteValue64_v2": "stream p p i",
    "cuStreamBatchMemOp": "stream i p i",
    "cuStreamBatchMemOp_v2": "stream i p i",
    "cuStreamAddCallback": "stream p p i",
    "cuStreamAttachMemAsync": "stream p bytes i",
    "cuStreamBeginCapture": "stream",
    "cuStreamBeginCapture_v2": "stream i",
    "cuStreamEndCapture": "stream p",
    "cuGraphicsMapResources": "i p stream",
    "cuGraphicsUnmapResources": "i p stream",
}
_USES = {
    "cuMemAllocHost_v2": CallUse.ALLOCATES_PINNED,
    "cuMemHostAlloc": CallUse.ALLOCATES_PINNED,
    "cuMemHostRegister": CallUse.REGISTERS,
    "cuMemHostRegister_v2": CallUse.REGISTERS,
    "cuMemAllocManaged": CallUse.ALLOCATES_MANAGED,
    "cuStreamCreate": CallUse.CREATES_STREAM,
    "cuStreamCreateWithPriority": CallUse.CREATES_STREAM,
    "cuMemFreeHost": CallUse.FREES,
    "cuMemHostUnregister": CallUse.FREES,
    "cuMemFree_v2": CallUse.FREES,
}
_ENDS = {"host": HOST, "any": ANY, "device": int(MemoryKind.DEVICE), "array": int(MemoryKind.ARRAY)}
_UNITS = {"bytes": 1, "halves": 2, "words": 4}
_DIMENSIONS = {"copy2d": 2, "copy3d": 3}


def shapes() -> Iterator[CallShape]:
    """The shapes of the functions whose parameters are known."""
    for name, parameters in _PARAMETERS.items():
        yield _shape(name, parameters.split())


def _shape(name: str, parameters: list[str]) -> CallShape:
    found: dict[str, int] = {}
    at = 0
    for parameter in parameters:
        size = 4 if parameter == "i" else 8
        at = -(-at // size) * size
        word, _, end = parameter.partition(":")
        if word == "from":
            found |= {"source": at, "source_kind": _ENDS[end]}
        elif word == "to":
            found |= {"target": at, "target_kind": _ENDS[end]}
        elif word in _UNITS:
            found |= {"bytes": at, "units": _UNITS[word]}
        elif word in _DIMENSIONS:
            found |= {"description": at, "dimensions": _DIMENSIONS[word]}
        elif word not in ("p", "i"):
            found[word] = at
        at += size
    return CallShape(name, use=_USES.get(name, CallUse.NONE), **found)
