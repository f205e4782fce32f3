"""Words of JSON for enumerations of the C layouts: kinds of memory and of work, and what the library does."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TypeVar

from stallprobes.native.layouts.cupti import CopyKind, MemoryKind, RecordKind
from stallprobes.native.layouts.watch_file import WatchState


class Memory(StrEnum):
    """Kind of the memory at one end of a copy, as in MemoryKind."""

    PAGEABLE = "pageable"
    PINNED = "pinned"
    DEVICE = "device"
    ARRAY = "array"
    MANAGED = "managed"
    DEVICE_STATIC = "device-static"
    MANAGED_STATIC = "managed-static"


class GpuWork(StrEnum):
    """Kind of work of the GPU, as in RecordKind."""

    KERNEL = "kernel"
    COPY = "copy"
    PEER_COPY = "peer copy"
    MEMSET = "memset"


class Direction(StrEnum):
    """Direction of a copy, as in CopyKind."""

    UNKNOWN = "unknown"
    HOST_TO_DEVICE = "host-to-device"
    DEVICE_TO_HOST = "device-to-host"
    DEVICE_TO_DEVICE = "device-to-device"
    HOST_TO_HOST = "host-to-host"
    PEER = "peer"


class ProcessState(StrEnum):
    """What the injected library does in a process, as in WatchState."""

    STARTING = "starting"
    RECORDING = "recording"
    NO_CUPTI = "no-cupti"
    CUPTI_TOO_OLD = "cupti-too-old"
    CUPTI_TAKEN = "cupti-taken"
    CUPTI_FAILED = "cupti-failed"
    YIELDED = "yielded"


_Word = TypeVar("_Word", bound=StrEnum)


def _by_number(layout: type[IntEnum], words: type[_Word]) -> dict[int, _Word]:
    return {int(kind): words[kind.name] for kind in layout if kind.name in words.__members__}


# Words for the kinds of memory, by number (MemoryKind). Other numbers are unknown kinds.
MEMORY = _by_number(MemoryKind, Memory)
# Words for the kinds of GPU work, by number (RecordKind).
GPU_WORK = _by_number(RecordKind, GpuWork)
# Words for the directions of a copy, by number (CopyKind).
DIRECTIONS = _by_number(CopyKind, Direction)
# Word for what the injected library does in a process, by the number in the process's file.
STATES = _by_number(WatchState, ProcessState)
