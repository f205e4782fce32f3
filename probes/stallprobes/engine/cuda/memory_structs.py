"""Structures of the driver's API that describe memory on a GPU: their bytes, as C lays them out."""

from __future__ import annotations

import struct

from stallprobes.model import MemoryStructKind

# Place of memory: a GPU (CU_MEM_LOCATION_TYPE_DEVICE).
_LOCATION_DEVICE = 1
# Type of memory that does not migrate while it is in use (CU_MEM_ALLOCATION_TYPE_PINNED).
_ALLOCATION_PINNED = 1
# Access to memory: CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
_READ_AND_WRITE = 3


def memory_struct(kind: MemoryStructKind, ordinal: int) -> bytes:
    """The structure of ``kind`` for memory of the GPU with the CUDA index ``ordinal``."""
    place = _LOCATION_DEVICE, ordinal
    match kind:
        case MemoryStructKind.ALLOCATION:
            # CUmemAllocationProp: type, types of handles, place, metadata for Windows, flags.
            return struct.pack("2i2iPQ", _ALLOCATION_PINNED, 0, *place, 0, 0)
        case MemoryStructKind.ACCESS:
            # CUmemAccessDesc: place, access.
            return struct.pack("2ii", *place, _READ_AND_WRITE)
        case MemoryStructKind.POOL:
            # CUmemPoolProps: type, types of handles, place, attributes for Windows, largest size, usage, reserved.
            return struct.pack("2i2iPNH54x", _ALLOCATION_PINNED, 0, *place, 0, 0, 0)
