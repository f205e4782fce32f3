"""How long functions of the driver take by themselves, while the GPU is idle: median and maximum, by size.

Prints a table and, with --save, writes it as the data by which ``watch`` says that a call took as long as it does by
itself. It needs a GPU, and room for 8 GiB on it and for 1 GiB of pinned memory.

python tests/benchmarks/bench_call_durations.py [--rounds N] [--save FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import mmap
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from cuda.bindings import driver

from stallprobes.machine import fingerprint

MIB = 1 << 20
GPU_SIZES = (1, 64, 1024, 8192)
HOST_SIZES = (1, 32, 256, 1024)
GRAPH_NODES = 1000
# Memory of the size of what was just freed is given back at once: sizes differ from round to round.
LEAST_OF_SIZE = 0.7


def checked(answer: tuple[Any, ...]) -> Any:
    """What a function gave, without its code; raises RuntimeError for an error."""
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(code)
    return values[0] if len(values) == 1 else tuple(values)


class Table:
    """The durations (ns) by function and size in bytes, 0 for functions without one."""

    def __init__(self) -> None:
        self.durations: dict[str, dict[int, list[int]]] = {}

    def timed(self, name: str, size: int, function: Callable[..., tuple[Any, ...]], *arguments: object) -> Any:
        """What ``function`` gives, timed."""
        before = time.perf_counter_ns()
        answer = function(*arguments)
        took = time.perf_counter_ns() - before
        self.durations.setdefault(name, {}).setdefault(size, []).append(took)
        return checked(answer)

    def rows(self) -> dict[str, list[tuple[int, int, int]]]:
        """By function: size (bytes), median and maximum (ns); sizes within a factor of two are one, the smallest."""
        found: dict[str, list[tuple[int, int, int]]] = {}
        for name, sizes in sorted(self.durations.items()):
            groups: list[tuple[int, list[int]]] = []
            for size, of in sorted(sizes.items()):
                if groups and size < 2 * groups[-1][0]:
                    groups[-1][1].extend(of)
                else:
                    groups.append((size, list(of)))
            found[name] = [(size, round(statistics.median(of)), max(of)) for size, of in groups]
        return found


def use(memory: Any, size: int) -> None:
    """Write to memory: what was written is cleared before another one gets it."""
    checked(driver.cuMemsetD8(memory, 1, size))
    checked(driver.cuCtxSynchronize())


def allocations(table: Table) -> None:
    """Memory of the GPU, from the driver and from a pool."""
    stream = checked(driver.cuStreamCreate(1))
    for size in (round(each * MIB * random.uniform(LEAST_OF_SIZE, 1)) for each in GPU_SIZES):
        memory = table.timed("cuMemAlloc", size, driver.cuMemAlloc, size)
        use(memory, size)
        table.timed("cuMemFree", size, driver.cuMemFree, memory)
        memory = table.timed("cuMemAllocAsync", size, driver.cuMemAllocAsync, size, stream)
        use(memory, size)
        checked(driver.cuStreamSynchronize(stream))
        table.timed("cuMemFreeAsync", size, driver.cuMemFreeAsync, memory, stream)
        # The pool gives the memory back.
        checked(driver.cuStreamSynchronize(stream))
        virtual_memory(table, size)
    table.timed("cuStreamDestroy", 0, driver.cuStreamDestroy, stream)


def virtual_memory(table: Table, size: int) -> None:
    """Memory that is created, mapped and made accessible."""
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    access = driver.CUmemAccessDesc()
    access.location = properties.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    size = -(-size // (2 * MIB)) * 2 * MIB
    handle = table.timed("cuMemCreate", size, driver.cuMemCreate, size, properties, 0)
    at = table.timed("cuMemAddressReserve", size, driver.cuMemAddressReserve, size, 0, 0, 0)
    table.timed("cuMemMap", size, driver.cuMemMap, at, size, 0, handle, 0)
    table.timed("cuMemSetAccess", size, driver.cuMemSetAccess, at, size, [access], 1)
    use(at, size)
    table.timed("cuMemUnmap", size, driver.cuMemUnmap, at, size)
    table.timed("cuMemRelease", size, driver.cuMemRelease, handle)
    table.timed("cuMemAddressFree", size, driver.cuMemAddressFree, at, size)


def host_memory(table: Table) -> None:
    """Pinned memory, and registration of memory that has pages."""
    for size in (each * MIB for each in HOST_SIZES):
        memory = table.timed("cuMemHostAlloc", size, driver.cuMemHostAlloc, size, 0)
        table.timed("cuMemFreeHost", size, driver.cuMemFreeHost, memory)
        pages = mmap.mmap(-1, size)
        for page in range(0, size, mmap.PAGESIZE):
            pages[page] = 1
        view = ctypes.c_char.from_buffer(pages)
        at = ctypes.addressof(view)
        table.timed("cuMemHostRegister", size, driver.cuMemHostRegister, at, size, 0)
        table.timed("cuMemHostUnregister", size, driver.cuMemHostUnregister, at)
        del view
        pages.close()


def streams_and_graphs(table: Table) -> None:
    """Streams, events, and a graph of empty nodes."""
    table.timed("cuStreamCreate", 0, driver.cuStreamCreate, 1)
    graph = checked(driver.cuGraphCreate(0))
    last: list[Any] = []
    for _ in range(GRAPH_NODES):
        last = [checked(driver.cuGraphAddEmptyNode(graph, last, len(last)))]
    made = table.timed("cuGraphInstantiate", 0, driver.cuGraphInstantiate, graph, 0)
    table.timed("cuGraphExecDestroy", 0, driver.cuGraphExecDestroy, made)
    checked(driver.cuGraphDestroy(graph))


def contexts(table: Table, device: Any) -> None:
    """A context that is created and destroyed."""
    context = table.timed("cuCtxCreate", 0, driver.cuCtxCreate, None, 0, device)
    table.timed("cuCtxDestroy", 0, driver.cuCtxDestroy, context)


def main() -> int:
    """Measure, print and save; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    checked(driver.cuInit(0))
    device = checked(driver.cuDeviceGet(0))
    primary = checked(driver.cuDevicePrimaryCtxRetain(device))
    table = Table()
    for _ in range(options.rounds):
        contexts(table, device)
        checked(driver.cuDevicePrimaryCtxRelease(device))
        primary = table.timed("cuDevicePrimaryCtxRetain", 0, driver.cuDevicePrimaryCtxRetain, device)
        checked(driver.cuCtxSetCurrent(primary))
        allocations(table)
        host_memory(table)
        streams_and_graphs(table)
    table.timed("cuDevicePrimaryCtxRelease", 0, driver.cuDevicePrimaryCtxRelease, device)
    rows = table.rows()
    for name, of in rows.items():
        for size, median, most in of:
            print(f"{name:22}{size / MIB:8.0f} MiB {median / 1e6:9.3f} ms, at most {most / 1e6:9.3f}")
    if options.save is not None:
        gpu = checked(driver.cuDeviceGetName(80, device)).split(b"\0")[0].decode()
        document = {
            "gpu": gpu,
            "driver": fingerprint.kernel_module_version(),
            "date": datetime.date.today().isoformat(),
            "functions": {name: [list(one) for one in of] for name, of in rows.items()},
        }
        options.save.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
