"""Structures of the driver's API that describe memory on a GPU, as C declares them."""

from __future__ import annotations

import ctypes

from stallprobes.model import MemoryStructKind

# Place of memory: a GPU (CU_MEM_LOCATION_TYPE_DEVICE).
_LOCATION_DEVICE = 1
# Type of memory that does not migrate while it is in use (CU_MEM_ALLOCATION_TYPE_PINNED).
_ALLOCATION_PINNED = 1
# Access to memory: CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
_READ_AND_WRITE = 3


class CLocation(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class CAllocationFlags(ctypes.Structure):
    """The member allocFlags of CUmemAllocationProp."""

    _fields_ = (
        ("compression_type", ctypes.c_ubyte),
        ("gpu_direct_rdma_capable", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class CAllocation(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("requested_handle_types", ctypes.c_int),
        ("location", CLocation),
        ("win32_handle_meta_data", ctypes.c_void_p),
        ("flags", CAllocationFlags),
    )


class CAccess(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", CLocation), ("flags", ctypes.c_int))


class CPool(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", CLocation),
        ("win32_security_attributes", ctypes.c_void_p),
        ("max_size", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


def memory_struct(kind: MemoryStructKind, ordinal: int) -> ctypes.Structure:
    """The structure of ``kind`` for memory of the GPU with the CUDA index ``ordinal``."""
    place = CLocation(_LOCATION_DEVICE, ordinal)
    match kind:
        case MemoryStructKind.ALLOCATION:
            return CAllocation(type=_ALLOCATION_PINNED, location=place)
        case MemoryStructKind.ACCESS:
            return CAccess(location=place, flags=_READ_AND_WRITE)
        case MemoryStructKind.POOL:
            return CPool(type=_ALLOCATION_PINNED, location=place)
