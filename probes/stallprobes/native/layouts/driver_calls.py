"""The functions of the driver that are watched: what each does to its thread and to others, and where its arguments
lie.

A function is watched if it can block: it submits or waits for work, or takes a lock of the driver. The injected library
finds the functions by name in what its libcupti knows, so that a newer driver needs no newer table. PyTorch makes
thousands of calls a second of functions that only ask, such as cuCtxGetDevice; watching them too costs 10 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any

from stallprobes.native.layouts.cupti import MemoryKind


class CallFamily(StrEnum):
    """Kind of work of a driver function, as far as it explains delays."""

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


class CallKind(IntEnum):
    """What a thread does during a call.

    ``SUBMITS``: the call submits work or asks, and does not block. ``WORKS``: the driver works on the host, such as on
    the instantiation of a graph. ``QUEUES``: the call submits work to a full queue, and blocks. ``WAITS``: the call
    waits for work of the GPU. ``COPIES``: the call returns when its copy is done. ``ALLOCATES``, ``FREES``,
    ``HOST_MEMORY``, ``CONTEXT``, ``LOADS``: the call blocks while the driver allocates GPU memory, frees memory, pins
    host memory, changes a context, or loads code.
    """

    SUBMITS = 0
    WORKS = 1
    QUEUES = 2
    WAITS = 3
    COPIES = 4
    ALLOCATES = 5
    FREES = 6
    HOST_MEMORY = 7
    CONTEXT = 8
    LOADS = 9


class Waits(IntEnum):
    """Which work of the GPU a function waits for before it returns.

    ``STREAM``: work of a stream. ``CONTEXT``: work of the context. ``EVENT``: work before an event. ``COPY``: its own
    copy, if the copy blocks. ``MAYBE``: work of the context, in some cases.
    """

    NOTHING = 0
    STREAM = 1
    CONTEXT = 2
    EVENT = 3
    COPY = 4
    MAYBE = 5


class HostTask(IntEnum):
    """Task of the driver on the host in a call that may take long.

    The causes of slow calls that name these tasks have the same order.
    """

    NOTHING = 0
    PAGEABLE_COPY = 1
    ALLOCATION = 2
    FREE = 3
    ASYNC_ALLOCATION = 4
    HOST_ALLOCATION = 5
    HOST_REGISTRATION = 6
    GRAPH = 7
    MODULE = 8
    CONTEXT = 9
    STREAM = 10


class StreamRole(IntEnum):
    """Role of a function in the order of streams.

    ``LAUNCHES``: it launches a graph, which may hold its stream. ``RECORDS``: it records an event. ``WAITS``: a stream
    waits for an event. ``HOLDS``: a stream waits for something that is no work of the GPU. ``SYNCHRONIZES``: the thread
    waits for an event.
    """

    NOTHING = 0
    LAUNCHES = 1
    RECORDS = 2
    WAITS = 3
    HOLDS = 4
    SYNCHRONIZES = 5


@dataclass(frozen=True)
class DriverFunction:
    """Properties of the driver functions with names that fit ``pattern``.

    A name fits if it begins with the part before the ``*`` and contains the part after it. Without ``family``, they are
    not watched. ``kind`` and ``task`` describe a call without pageable memory. ``locks``: other threads' calls may wait
    until the task is done. ``loads``: they load or link device code. ``creates``: they may create a context.
    """

    pattern: str
    family: CallFamily | None
    kind: CallKind = CallKind.SUBMITS
    waits: Waits = Waits.NOTHING
    task: HostTask = HostTask.NOTHING
    locks: bool = True
    role: StreamRole = StreamRole.NOTHING
    loads: bool = False
    creates: bool = False

    @property
    def prefix(self) -> str:
        """Common beginning of the names."""
        return self.pattern.partition("*")[0]

    @property
    def submits(self) -> bool:
        """True if they submit work to the GPU."""
        return self.family in (CallFamily.LAUNCH, CallFamily.COPY, CallFamily.FILL)

    def fits(self, name: str) -> bool:
        """True if a function of this name is one of them."""
        prefix, _, word = self.pattern.partition("*")
        return name.startswith(prefix) and word in name[len(prefix) :]

    def kind_of(self, pageable: bool) -> CallKind:
        """The kind of a call; ``pageable``: an end of its copy is pageable memory.

        A copy that may block is of kind COPIES, whether it blocked or not.
        """
        return CallKind.COPIES if self.waits is Waits.COPY and pageable else self.kind

    def task_of(self, pageable: bool) -> HostTask:
        """The task of a call; ``pageable``: an end of its copy is pageable memory."""
        return HostTask.PAGEABLE_COPY if self.waits is Waits.COPY and pageable else self.task

    def holds(self, pageable: bool) -> HostTask:
        """The task of a call for whose end other threads' calls may wait; ``pageable`` as in ``task_of``."""
        return self.task_of(pageable) if self.locks else HostTask.NOTHING


def _rows() -> Iterator[DriverFunction]:
    family, kind, waits, task, role = CallFamily, CallKind, Waits, HostTask, StreamRole

    def row(patterns: str, family: CallFamily | None, **columns: Any) -> Iterator[DriverFunction]:
        return (DriverFunction(pattern, family, **columns) for pattern in patterns.split())

    yield from row("cuLaunchHostFunc", family.LAUNCH, role=role.HOLDS)
    yield from row("cuLaunch", family.LAUNCH)
    yield from row("cuGraphLaunch", family.LAUNCH, role=role.LAUNCHES)
    yield from row("cuMemcpy*Async", family.COPY, waits=waits.COPY)
    yield from row("cuMemcpy", family.COPY, kind=kind.COPIES, waits=waits.COPY)
    yield from row("cuMemPrefetch cuMemDiscard cuMemBatchDecompress", family.COPY)
    yield from row("cuMemset", family.FILL)
    yield from row("cuStreamSynchronize", family.WAIT, kind=kind.WAITS, waits=waits.STREAM)
    yield from row("cuEventSynchronize", family.WAIT, kind=kind.WAITS, waits=waits.EVENT, role=role.SYNCHRONIZES)
    yield from row("cuCtxSynchronize", family.WAIT, kind=kind.WAITS, waits=waits.CONTEXT)
    yield from row("cuStreamQuery cuEventQuery cuMemGetInfo", family.QUERY)
    yield from row("cuEventRecord", family.EVENT, role=role.RECORDS)
    yield from row("cuStreamWaitEvent", family.EVENT, role=role.WAITS)
    yield from row("cuStreamWaitValue cuStreamBatchMemOp", family.EVENT, role=role.HOLDS)
    yield from row("cuEventDestroy", family.EVENT, waits=waits.MAYBE)
    yield from row("cuEventCreate cuStreamWait cuStreamWrite cuCtxRecordEvent cuCtxWaitEvent", family.EVENT)
    yield from row("cuGreenCtxRecordEvent cuGreenCtxWaitEvent", family.EVENT)
    streams = {"kind": kind.WORKS, "task": task.STREAM}
    yield from row("cuStreamCreate cuGreenCtxStreamCreate", family.STREAM, **streams)
    yield from row("cuStreamDestroy", family.STREAM, waits=waits.MAYBE, **streams)
    yield from row("cuStreamAddCallback", family.STREAM, kind=kind.WORKS, role=role.HOLDS)
    yield from row("cuStreamAttachMem", family.STREAM, kind=kind.WORKS)
    yield from row("cuStreamBeginCapture cuStreamBeginRecapture cuStreamEndCapture", family.GRAPH, kind=kind.WORKS)
    contexts = {"kind": kind.CONTEXT, "task": task.CONTEXT}
    yield from row("cuCtxCreate cuGreenCtxCreate cuDevicePrimaryCtxRetain", family.CONTEXT, creates=True, **contexts)
    yield from row("cuCtxDestroy cuGreenCtxDestroy", family.CONTEXT, waits=waits.MAYBE, **contexts)
    yield from row("cuCtxAttach cuCtxDetach cuCtxSetLimit cuCtxEnablePeerAccess", family.CONTEXT, **contexts)
    yield from row("cuCtxDisablePeerAccess cuCtxResetPersistingL2Cache", family.CONTEXT, **contexts)
    yield from row("cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset", family.CONTEXT, **contexts)
    pinned = {"kind": kind.HOST_MEMORY, "task": task.HOST_ALLOCATION}
    yield from row("cuMemAllocHost cuMemHostAlloc", family.HOST_MEMORY, **pinned)
    # On H200s, frees waited for kernels of other streams: 10 of 10 calls (tests/benchmarks/bench_waiting_functions.py).
    freed = {"kind": kind.FREES, "waits": waits.CONTEXT}
    yield from row("cuMemFreeHost", family.HOST_MEMORY, **freed, task=task.HOST_ALLOCATION)
    registered = {"kind": kind.HOST_MEMORY, "task": task.HOST_REGISTRATION}
    yield from row("cuMemHostRegister", family.HOST_MEMORY, **registered)
    yield from row("cuMemHostUnregister", family.HOST_MEMORY, **freed, task=task.HOST_REGISTRATION)
    # Checks of an H200 agree that beside these no call of another stream takes longer.
    ordered = {"task": task.ASYNC_ALLOCATION, "locks": False}
    yield from row("cuMemAlloc*Async cuMemFree*Async", family.ALLOCATION, **ordered)
    yield from row("cuMemFree", family.ALLOCATION, **freed, task=task.FREE)
    yield from row("cuMemMap*Async", family.ALLOCATION, task=task.ALLOCATION)
    pool = {"kind": kind.ALLOCATES, "task": task.ASYNC_ALLOCATION}
    yield from row("cuMemPoolDestroy", family.ALLOCATION, waits=waits.MAYBE, **pool)
    yield from row("cuMemPoolCreate cuMemPoolTrimTo cuMemPoolSetAccess", family.ALLOCATION, **pool)
    yield from row("cuMemPoolExport cuMemPoolImport", family.ALLOCATION, **pool)
    memory = {"kind": kind.ALLOCATES, "task": task.ALLOCATION}
    yield from row("cuArrayDestroy", family.ALLOCATION, **freed, task=task.ALLOCATION)
    yield from row("cuMemAddressFree cuMipmappedArrayDestroy", family.ALLOCATION, waits=waits.MAYBE, **memory)
    yield from row("cuMulticastGet", None)
    yield from row("cuMemAlloc cuMemAddress cuMemCreate cuMemRelease cuMemMap cuMemUnmap", family.ALLOCATION, **memory)
    yield from row("cuMemSetAccess cuMemAdvise cuMemExport cuMemImport cuMulticast", family.ALLOCATION, **memory)
    yield from row("cuDeviceGraphMemTrim cuArrayCreate cuArray3DCreate cuIpc", family.ALLOCATION, **memory)
    yield from row("cuMipmappedArrayCreate", family.ALLOCATION, **memory)
    yield from row("cuModuleGetLoadingMode cuModuleGetFunctionCount cuModuleGetTexRef cuModuleGetSurfRef", None)
    yield from row("cuLibraryGetKernelCount", None)
    code = {"kind": kind.LOADS, "task": task.MODULE}
    yield from row("cuLinkDestroy", family.MODULE, waits=waits.MAYBE, loads=True, **code)
    yield from row("cuModuleLoad", family.MODULE, waits=waits.MAYBE, loads=True, **code)
    yield from row("cuLibrary*Load cuFuncLoad cuLink", family.MODULE, loads=True, **code)
    yield from row("cuModuleUnload", family.MODULE, **freed, task=task.MODULE)
    # A library whose code was never loaded waits for nothing.
    yield from row("cuLibraryUnload", family.MODULE, waits=waits.MAYBE, **code)
    # With lazy loading, the code is loaded when a function is asked for.
    yield from row("cuModule cuLibrary cuKernelGetFunction", family.MODULE, kind=kind.WORKS, task=task.MODULE)
    yield from row("cuGraphDestroyNode", None)
    graphs = {"kind": kind.WORKS, "task": task.GRAPH}
    yield from row("cuGraphExecDestroy cuGraphDestroy", family.GRAPH, waits=waits.MAYBE, **graphs)
    yield from row("cuGraphInstantiate cuGraphUpload cuGraphExecUpdate cuGraphClone", family.GRAPH, **graphs)
    released = "cuGraphicsUnregister cuDestroyExternal"
    yield from row(released, family.OTHER, kind=kind.WORKS, waits=waits.MAYBE)
    yield from row("cuWaitExternalSemaphores", family.OTHER, kind=kind.WORKS, role=role.HOLDS)
    yield from row("cuCheckpointProcessGet", None)
    others = (
        "cuGraphicsMap cuGraphicsUnmap cuGraphicsGLRegister cuGraphicsEGLRegister cuImportExternal cuExternalMemory "
        "cuSignalExternal cuWaitExternal cuProfilerStart cuProfilerStop cuFlushGPUDirectRDMAWrites cuCheckpoint"
    )
    yield from row(others, family.OTHER, kind=kind.WORKS)


# Properties of driver functions, by pattern of the function's name. The first row whose pattern fits a name applies.
FUNCTIONS = tuple(_rows())
# Properties of a driver function that no row of FUNCTIONS fits: stallscope does not watch its calls.
_UNWATCHED = DriverFunction("", None)
# Suffixes of driver functions' variants for the per-thread default stream. A variant has the parameters of the function
# without suffix.
_VARIANTS = ("_ptsz", "_ptds")


def prefixes() -> Mapping[str, CallFamily | None]:
    """The beginnings of names in the order in which they are tried, each with its family, None if not watched."""
    return {function.prefix: function.family for function in FUNCTIONS}


@cache
def function_of(name: str) -> DriverFunction:
    """Properties of a function by its name."""
    return next((function for function in FUNCTIONS if function.fits(name)), _UNWATCHED)


def family_of(name: str) -> CallFamily | None:
    """The family of a function by its name; None if it is not watched."""
    return function_of(name).family


def plain_name(name: str) -> str:
    """``name`` without the ending of a variant for the per-thread default stream."""
    for ending in _VARIANTS:
        name = name.removesuffix(ending)
    return name


class CallUse(IntEnum):
    """Use of a call that the log notes.

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


# Offset that stands for an argument which the driver function does not have.
ABSENT = -1
# Code in place of a MemoryKind for host memory whose kind the driver function does not determine. The injected library
# looks the address up in its list of host memory. Memory that is not in the list counts as pageable.
HOST = 64
# Code in place of a MemoryKind for memory that may be host or GPU memory. Memory that is not in the list of host memory
# counts as unknown. Reason for 64 and 65: every MemoryKind is smaller.
ANY = 65


@dataclass(frozen=True)
class CallShape:
    """Where the arguments of a function lie in its parameters (offsets in bytes; ABSENT without the argument).

    ``event`` is the handle of an event. ``units`` is the size of what ``bytes`` counts, ``rows`` a second factor;
    ``source`` and ``target`` are addresses, ``source_kind`` and ``target_kind`` a MemoryKind, HOST or ANY.
    ``description`` points to the structure of a copy of two or three dimensions (``dimensions``), ``config`` to the
    CUlaunchConfig with the stream.
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


# Words for the parameters of driver functions, in the order of the parameters.
# ``to:``, ``from:``: target and source of a copy. The kind of memory follows: host, device, any, or array. All but an
# array are addresses. ``bytes``, ``halves``, ``words``: size in a unit of _UNITS. ``rows``: second factor of the size.
# ``copy2d``, ``copy3d``: pointer to the structure of a copy (see _DIMENSIONS). ``config``: pointer to a CUlaunchConfig.
# ``stream``, ``event``: handle. ``p`` (8 bytes), ``i`` (4 bytes): parameter that is skipped.
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
    "cuEventQuery": "event",
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
# Change that a call makes to the injected library's list of host memory, or of streams, by driver function.
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
# Code (MemoryKind, HOST or ANY) of the memory at the source or target of a copy, by the word in _PARAMETERS.
_ENDS = {"host": HOST, "any": ANY, "device": int(MemoryKind.DEVICE), "array": int(MemoryKind.ARRAY)}
# Unit (bytes) in which a driver function counts the size of a copy, fill or allocation, by the word in _PARAMETERS.
_UNITS = {"bytes": 1, "halves": 2, "words": 4}
# Number of dimensions of a copy, by the word in _PARAMETERS. The parameter points to a structure that describes the
# copy (CUDA_MEMCPY2D or CUDA_MEMCPY3D).
_DIMENSIONS = {"copy2d": 2, "copy3d": 3}


def shapes() -> Iterator[CallShape]:
    """The shapes of the functions whose parameters are known."""
    for name, parameters in _PARAMETERS.items():
        yield _shape(name, parameters.split())


def _shape(name: str, parameters: list[str]) -> CallShape:
    places: dict[str, int] = {}
    at = 0
    for parameter in parameters:
        size = 4 if parameter == "i" else 8
        at = -(-at // size) * size
        word, _, end = parameter.partition(":")
        if word == "from":
            places |= {"source": at, "source_kind": _ENDS[end]}
        elif word == "to":
            places |= {"target": at, "target_kind": _ENDS[end]}
        elif word in _UNITS:
            places |= {"bytes": at, "units": _UNITS[word]}
        elif word in _DIMENSIONS:
            places |= {"description": at, "dimensions": _DIMENSIONS[word]}
        elif word not in ("p", "i"):
            places[word] = at
        at += size
    return CallShape(name, use=_USES.get(name, CallUse.NONE), **places)
