"""CUPTI's activity records and callback data, for CUDA 12.0 to 13.5, in declarations of our own.

A record grows only at its end from version to version, so its fields have one offset each and only the sizes differ.
The tables agree with NVIDIA's headers of 15 versions, on x86-64 and AArch64 (little-endian).
"""

import ctypes
from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated

from stallprobes.native.layouts.structure import At, Int32, Pointer, UInt8, UInt32, UInt64, structure


class RecordKind(IntEnum):
    """Kind of a record; the values are CUpti_ActivityKind's.

    SYNCHRONIZATION, a wait for a stream, is in files of earlier versions only. STREAM is a stream that existed when a
    recording began.
    """

    COPY = 1
    MEMSET = 2
    DRIVER_CALL = 4
    KERNEL = 10
    OVERHEAD = 17
    PEER_COPY = 22
    STREAM = 37
    SYNCHRONIZATION = 38
    CONTEXT_SWITCH = 57

    @property
    def word(self) -> str:
        """The kind in words: ``peer copy``."""
        return self.name.lower().replace("_", " ")


# Kinds of records of work on the GPU.
GPU_WORK = frozenset({RecordKind.KERNEL, RecordKind.COPY, RecordKind.PEER_COPY, RecordKind.MEMSET})


class SwitchOperation(IntEnum):
    """Event of a context-switch record: a context has got the graphics engine, or has left it."""

    START = 1
    END = 2


class StreamFlag(IntEnum):
    """How a stream was created, as in CUpti_ActivityStreamFlag. NULL is the legacy default stream."""

    UNKNOWN = 0
    DEFAULT = 1
    NON_BLOCKING = 2
    NULL = 3


class CopyKind(IntEnum):
    """Direction of a copy, as in CUpti_ActivityMemcpyKind."""

    UNKNOWN = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 8
    HOST_TO_HOST = 9
    PEER = 10


class MemoryKind(IntEnum):
    """Kind of the memory at one end of a copy; the values are CUpti_ActivityMemoryKind's."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5
    DEVICE_STATIC = 6
    MANAGED_STATIC = 7


class OverheadKind(IntEnum):
    """Reason of an overhead record, as in CUpti_ActivityOverheadKind."""

    UNKNOWN = 0
    DRIVER_COMPILER = 1
    BUFFER_FLUSH = 1 << 16
    INSTRUMENTATION = 2 << 16
    RESOURCE = 3 << 16
    MODULE_LOADING = 4 << 16
    LAZY_FUNCTION_LOADING = 5 << 16
    COMMAND_BUFFER_FULL = 6 << 16
    ACTIVITY_BUFFER_REQUEST = 7 << 16


class CuptiCode(IntEnum):
    """A code that CUPTI's functions return (CUptiResult).

    NO_MORE_RECORDS: a buffer has no further record. INVALID_KIND: a record or a request has an unknown kind. TAKEN:
    CUPTI already has another subscriber.
    """

    SUCCESS = 0
    NO_MORE_RECORDS = 12
    INVALID_KIND = 21
    NOT_COMPATIBLE = 14
    NOT_INITIALIZED = 15
    TAKEN = 39


# Oldest supported version of CUPTI (``cuptiGetVersion``): the version in CUDA 12.0.
OLDEST_VERSION = 18
# First version of CUPTI with a correlation id in records of overheads (CUDA 12.3).
OVERHEAD_CORRELATION_SINCE = 21
# First version of CUPTI with records of context switches (CUDA 13.1).
SWITCHES_SINCE = 130_100
# Value of the object kind (CUpti_ActivityObjectKind) in an overhead record that names a thread.
OBJECT_THREAD = 2


@structure
class KernelRecord(ctypes.Structure):
    """CUpti_ActivityKernel; ``name`` is a string that lasts as long as its module.

    ``grid_x`` to ``block_z``: its blocks in the grid, and the threads of a block; ``registers`` are those of a thread,
    ``fixed_shared`` and ``shared`` bytes of shared memory of a block, that of the code and that of the launch;
    ``local`` bytes of local memory that are reserved for all threads that the GPU has room for. (Those of one thread,
    localMemoryPerThread, are 0 in the records of CUPTI 13.5 on an H200.)
    """

    kind: UInt32
    registers: Annotated[int, ctypes.c_uint16, At(6)]
    start: Annotated[int, ctypes.c_uint64, At(16)]
    end: UInt64
    device: Annotated[int, ctypes.c_uint32, At(40)]
    context: UInt32
    stream: UInt32
    grid_x: Int32
    grid_y: Int32
    grid_z: Int32
    block_x: Int32
    block_y: Int32
    block_z: Int32
    fixed_shared: Int32
    shared: Int32
    correlation: Annotated[int, ctypes.c_uint32, At(92)]
    name: Annotated[int, ctypes.c_uint64, At(104), Pointer("const char")]
    local: Annotated[int, ctypes.c_uint64, At(192)]


@structure
class CopyRecord(ctypes.Structure):
    """CUpti_ActivityMemcpy; ``subkind`` is the direction, ``source`` and ``target`` are kinds of memory."""

    kind: UInt32
    subkind: UInt8
    source: UInt8
    target: UInt8
    bytes: UInt64
    start: UInt64
    end: UInt64
    device: UInt32
    context: UInt32
    stream: UInt32
    correlation: UInt32


@structure
class PeerCopyRecord(ctypes.Structure):
    """CUpti_ActivityMemcpyPtoP; its device is the one that copies."""

    kind: UInt32
    subkind: UInt8
    source: UInt8
    target: UInt8
    bytes: UInt64
    start: UInt64
    end: UInt64
    device: UInt32
    context: UInt32
    stream: UInt32
    source_device: UInt32
    target_device: Annotated[int, ctypes.c_uint32, At(52)]
    correlation: Annotated[int, ctypes.c_uint32, At(60)]


@structure
class MemsetRecord(ctypes.Structure):
    """CUpti_ActivityMemset."""

    kind: UInt32
    bytes: UInt64
    start: UInt64
    end: UInt64
    device: UInt32
    context: UInt32
    stream: UInt32
    correlation: UInt32


@structure
class DriverCallRecord(ctypes.Structure):
    """CUpti_ActivityAPI; ``subkind`` is the function's number."""

    kind: UInt32
    subkind: UInt32
    start: UInt64
    end: UInt64
    thread: Annotated[int, ctypes.c_uint32, At(28)]
    correlation: UInt32


@structure
class OverheadRecord(ctypes.Structure):
    """CUpti_ActivityOverhead; ``subkind`` is the reason. With the object OBJECT_THREAD it names a thread."""

    kind: UInt32
    subkind: UInt32
    object: UInt32
    thread: Annotated[int, ctypes.c_uint32, At(16)]
    start: UInt64
    end: UInt64
    correlation: UInt32


@structure
class ContextSwitchRecord(ctypes.Structure):
    """CUpti_ActivityComputeEngineCtxSwitch; ``start`` is on the GPU's own clock, ``subkind`` a SwitchOperation."""

    kind: UInt32
    context: UInt32
    start: UInt64
    subkind: UInt32


@structure
class StreamRecord(ctypes.Structure):
    """CUpti_ActivityStream; ``subkind`` is a StreamFlag."""

    kind: UInt32
    context: UInt32
    stream: UInt32
    priority: UInt32
    subkind: UInt32
    correlation: UInt32


# Structure of each kind of record.
RECORDS: Mapping[RecordKind, type[ctypes.Structure]] = {
    RecordKind.COPY: CopyRecord,
    RecordKind.MEMSET: MemsetRecord,
    RecordKind.DRIVER_CALL: DriverCallRecord,
    RecordKind.KERNEL: KernelRecord,
    RecordKind.OVERHEAD: OverheadRecord,
    RecordKind.PEER_COPY: PeerCopyRecord,
    RecordKind.STREAM: StreamRecord,
    RecordKind.CONTEXT_SWITCH: ContextSwitchRecord,
}

# Sizes (bytes) of each kind of record, by version of CUPTI (``cuptiGetVersion``: 130100 for CUDA 13.1). A size applies
# from the listed version up to the next listed version. The sizes listed for version 18 (CUDA 12.0, the oldest
# supported version) may apply to earlier versions too.
SIZES: Mapping[RecordKind, Mapping[int, int]] = {
    RecordKind.KERNEL: {18: 208, 130_000: 216, 130_100: 224, 130_300: 232, 130_400: 248},
    RecordKind.COPY: {18: 88, 26: 96, 130_400: 112},
    RecordKind.PEER_COPY: {18: 96},
    RecordKind.MEMSET: {18: 88, 130_400: 104},
    RecordKind.DRIVER_CALL: {18: 40},
    RecordKind.OVERHEAD: {18: 40, 21: 48, 22: 56},
    RecordKind.STREAM: {18: 24},
    RecordKind.CONTEXT_SWITCH: {SWITCHES_SINCE: 24},
}


@structure
class CallbackData(ctypes.Structure):
    """CUpti_CallbackData, the same in all versions; ``site`` is 0 at the entry of a call and 1 at its exit."""

    site: Int32
    function: Annotated[int, ctypes.c_uint64, Pointer("const char")]
    parameters: Annotated[int, ctypes.c_uint64, Pointer("const void")]
    result: Annotated[int, ctypes.c_uint64, Pointer("const void")]
    symbol: Annotated[int, ctypes.c_uint64, Pointer("const char")]
    context: Annotated[int, ctypes.c_uint64, Pointer("void")]
    context_number: UInt32
    shared: Annotated[int, ctypes.c_uint64, Pointer("uint64_t")]
    correlation: UInt32


@structure
class Activity(ctypes.Structure):
    """A record of any kind from the decoder; 0 in members that the kind does not have.

    ``name``, ``blocks``, ``shape`` (as in a watch file) and ``local`` (as in KernelRecord) belong to a kernel,
    ``source_device`` and ``target_device`` to a peer copy, ``thread`` to a driver call or to an overhead with a thread.
    """

    kind: UInt32
    subkind: UInt32
    start: UInt64
    end: UInt64
    bytes: UInt64
    local: UInt64
    name: Annotated[int, ctypes.c_uint64, Pointer("const char")]
    correlation: UInt32
    device: UInt32
    context: UInt32
    stream: UInt32
    thread: UInt32
    source_device: UInt32
    target_device: UInt32
    blocks: UInt32
    shape: UInt32
    source: UInt8
    target: UInt8


class BufferState(IntEnum):
    """Owner of a buffer. FREE: nobody. WITH_CUPTI: CUPTI. COMPLETED: the decoder."""

    FREE = 0
    WITH_CUPTI = 1
    COMPLETED = 2


# Size (bytes) of a buffer in which CUPTI writes records.
BUFFER_BYTES = 64 * 1024
# Largest number of buffers for CUPTI's records: enough for some hundred threads, and for one second of the fastest
# programs.
MOST_BUFFERS = 512
# Size (bytes) of the first LARGE_BUFFERS buffers that the injected library gives to CUPTI. With buffers of 64 KiB
# instead, a launch took 0.3 us longer (H100, CUPTI 13.5).
LARGE_BUFFER_BYTES = 1024 * 1024
# Number of buffers with LARGE_BUFFER_BYTES in the injected library; all others have BUFFER_BYTES.
LARGE_BUFFERS = 32
# Size (bytes) of CUPTI's smallest record. A buffer holds at most its size divided by LEAST_RECORD records.
LEAST_RECORD = 24


@structure
class Buffer(ctypes.Structure):
    """State of a buffer, in a cache line of its own: ``valid`` bytes are filled; the least ``ticket`` came first."""

    state: UInt64
    valid: UInt64
    ticket: UInt64
    unused: Annotated[bytes, ctypes.c_uint8 * 40]


@structure
class BufferPool(ctypes.Structure):
    """The buffers that CUPTI fills, of which ``buffers`` are in use.

    ``exhausted`` counts the requests that found none free, ``taken`` and ``returned`` the buffers.
    """

    memory: Annotated[int, ctypes.c_uint64, Pointer("uint8_t")]
    buffers: UInt64
    tickets: UInt64
    exhausted: UInt64
    taken: UInt64
    returned: UInt64
    unused: Annotated[bytes, ctypes.c_uint8 * 16]
    states: Annotated["ctypes.Array[Buffer]", Buffer * MOST_BUFFERS]


def kinds_of(version: int) -> tuple[RecordKind, ...]:
    """The kinds with a layout that CUPTI of ``version`` has."""
    return tuple(kind for kind in RecordKind if kind in SIZES and version >= min(SIZES[kind]))


def size_of(kind: RecordKind, version: int) -> int:
    """The size in bytes of a record of ``kind``. Raises KeyError if CUPTI of ``version`` does not have the kind."""
    sizes = SIZES[kind]
    since = [each for each in sizes if each <= version]
    if not since:
        raise KeyError(kind)
    return sizes[max(since)]
