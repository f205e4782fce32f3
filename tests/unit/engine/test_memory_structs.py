"""The structures that describe GPU memory against those of NVIDIA's bindings, byte by byte."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from stallprobes.engine.cuda.memory_structs import memory_struct
from stallprobes.model import MemoryStructKind

ORDINAL = 3
SIZES = {MemoryStructKind.ALLOCATION: 32, MemoryStructKind.ACCESS: 12, MemoryStructKind.POOL: 88}


def of_bindings(driver: Any, kind: MemoryStructKind) -> Any:
    """The same structure, filled by names through NVIDIA's bindings."""
    made = getattr(driver, str(kind))()
    made.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    made.location.id = ORDINAL
    match kind:
        case MemoryStructKind.ALLOCATION:
            made.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        case MemoryStructKind.ACCESS:
            made.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        case MemoryStructKind.POOL:
            made.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    return made


@pytest.mark.parametrize("kind", MemoryStructKind)
def test_a_structure_has_the_bytes_that_the_bindings_write(kind: MemoryStructKind) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    ours, theirs = memory_struct(kind, ORDINAL), of_bindings(driver, kind)
    assert ours == ctypes.string_at(theirs.getPtr(), len(ours))


@pytest.mark.parametrize("kind", MemoryStructKind)
def test_a_structure_has_the_size_that_c_gives_it(kind: MemoryStructKind) -> None:
    """From cuda.h of CUDA 12.0 to 13.0, on machines of 64 bits."""
    assert len(memory_struct(kind, ORDINAL)) == SIZES[kind]


def test_the_numbers_that_programs_pass_are_those_of_the_bindings() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    from stallprobes.catalog import entries

    setup = entries()["pool-alloc"].probe().program.setup
    (attribute,) = (op.args[1] for op in setup if op.fn == "cuMemPoolSetAttribute")
    assert attribute == int(driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    assert int(driver.CUresult.CUDA_ERROR_NOT_READY) == 600
    assert int(driver.CUevent_flags.CU_EVENT_BLOCKING_SYNC) == 1
