"""Which functions of the driver wait for kernels that were launched before, beside what ``watch`` assumes of them.

Each function is called while the GPU is idle, and while a kernel of 4 ms runs in another stream. A function waits if
the kernel has ended when it returns, in all rounds. Exits 1 if the row of a function in driver_calls.py says otherwise.

python tests/benchmarks/bench_waiting_functions.py [--rounds N]
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "probes"))

import numpy as np  # noqa: E402
from cuda.bindings import driver  # noqa: E402

from stallprobes.native.layouts.driver_calls import Waits, function_of  # noqa: E402

KERNEL_NS = 4_000_000
MIB = 1 << 20
PTX = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry spin(.param .u64 ns)
{
.reg .u64 %begin, %now, %ns;
.reg .pred %goes;
ld.param.u64 %ns, [ns];
mov.u64 %begin, %globaltimer;
AGAIN: mov.u64 %now, %globaltimer;
sub.u64 %now, %now, %begin;
setp.lt.u64 %goes, %now, %ns;
@%goes bra AGAIN;
ret;
}
\0"""
# The function that is called, what is done before it, and after the kernel has ended; the arguments are what was made.
Case = tuple[str, Callable[..., Any], Callable[[Any], Any], Callable[[Any], Any]]


def checked(answer: tuple[Any, ...]) -> Any:
    """What a function gave, without its code; raises RuntimeError for an error."""
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(code)
    return values[0] if len(values) == 1 else tuple(values)


def nothing(*_: object) -> None:
    """Nothing before or after the function."""


def pages(size: int) -> tuple[mmap.mmap, int]:
    """Memory of the host that has pages, and its address."""
    memory = mmap.mmap(-1, size)
    memory.write(b"\1" * size)
    at: int = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return memory, at


def array(*_: object) -> Any:
    """A CUDA array of 4 MiB."""
    description = driver.CUDA_ARRAY_DESCRIPTOR()
    description.Width = description.Height = 1024
    description.Format, description.NumChannels = driver.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    return checked(driver.cuArrayCreate(description))


def makes(function: Any, *arguments: object) -> Callable[..., Any]:
    """A call of ``function`` with these arguments, whatever it is given."""
    return lambda *_: checked(function(*arguments))


def takes(function: Any, *arguments: object) -> Callable[[Any], Any]:
    """A call of ``function`` with what it is given, and these arguments."""
    return lambda made: checked(function(made, *arguments))


def cases(stream: Any, graph: Any) -> Iterator[Case]:
    """The functions; ``stream`` is idle, and ``graph`` has nodes."""
    for size in (4096, 5 * MIB):
        pinned, free_pinned = makes(driver.cuMemHostAlloc, size, 0), takes(driver.cuMemFreeHost)
        yield "cuMemHostAlloc", nothing, pinned, free_pinned
        yield "cuMemFreeHost", pinned, free_pinned, nothing
        memory, free = makes(driver.cuMemAlloc, size), takes(driver.cuMemFree)
        yield "cuMemAlloc_v2", nothing, memory, free
        yield "cuMemFree_v2", memory, free, nothing
    memory_pages, at = pages(4 * MIB)
    register, unregister = makes(driver.cuMemHostRegister, at, 4 * MIB, 0), makes(driver.cuMemHostUnregister, at)
    yield "cuMemHostRegister_v2", nothing, register, unregister
    yield "cuMemHostUnregister", register, unregister, nothing
    yield "cuArrayCreate_v2", nothing, array, takes(driver.cuArrayDestroy)
    yield "cuArrayDestroy", array, takes(driver.cuArrayDestroy), nothing
    taken, given_back = makes(driver.cuMemAllocAsync, MIB, stream), takes(driver.cuMemFreeAsync, stream)
    yield "cuMemAllocAsync", nothing, taken, given_back
    yield "cuMemFreeAsync", taken, given_back, nothing
    load, unload = makes(driver.cuModuleLoadData, PTX), takes(driver.cuModuleUnload)
    yield "cuModuleLoadData", nothing, load, unload
    yield "cuModuleUnload", load, unload, nothing
    load, unload = makes(driver.cuLibraryLoadData, PTX, [], [], 0, [], [], 0), takes(driver.cuLibraryUnload)
    yield "cuLibraryLoadData", nothing, load, unload
    yield "cuLibraryUnload", load, unload, nothing
    create, destroy = makes(driver.cuStreamCreate, 1), takes(driver.cuStreamDestroy)
    yield "cuStreamCreate", nothing, create, destroy
    yield "cuStreamDestroy_v2", create, destroy, nothing
    yield "cuEventDestroy_v2", makes(driver.cuEventCreate, 0), takes(driver.cuEventDestroy), nothing
    create, destroy = makes(driver.cuGraphInstantiate, graph, 0), takes(driver.cuGraphExecDestroy)
    yield "cuGraphInstantiateWithFlags", nothing, create, destroy
    yield "cuGraphExecDestroy", create, destroy, nothing
    del memory_pages


class Spin:
    """A kernel that runs for 4 ms in a stream of its own."""

    def __init__(self) -> None:
        self._function = checked(driver.cuModuleGetFunction(checked(driver.cuModuleLoadData(PTX)), b"spin"))
        self._stream = checked(driver.cuStreamCreate(1))
        self._ns = np.array([KERNEL_NS], dtype=np.uint64)
        self._arguments = np.array([self._ns.ctypes.data], dtype=np.uint64)

    def launch(self) -> None:
        """Launch it."""
        one = (1, 1, 1)
        checked(driver.cuLaunchKernel(self._function, *one, *one, 0, self._stream, self._arguments.ctypes.data, 0))

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return bool(driver.cuStreamQuery(self._stream)[0] == driver.CUresult.CUDA_SUCCESS)


def measured(case: Case, spin: Spin, rounds: int) -> tuple[float, float, int]:
    """The median duration (ms) while the GPU is idle and beside the kernel, and how often the kernel had ended."""
    _, before, call, after = case
    took: dict[bool, list[float]] = {False: [], True: []}
    ended = 0
    for number in range(2 * rounds):
        busy, given = number % 2 == 1, before()
        checked(driver.cuCtxSynchronize())
        if busy:
            spin.launch()
        began = time.perf_counter_ns()
        made = call(given)
        took[busy].append((time.perf_counter_ns() - began) / 1e6)
        ended += busy and spin.has_ended
        checked(driver.cuCtxSynchronize())
        after(made)
    return statistics.median(took[False]), statistics.median(took[True]), ended


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    checked(driver.cuInit(0))
    checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(0))))))
    spin, stream, graph = Spin(), checked(driver.cuStreamCreate(1)), checked(driver.cuGraphCreate(0))
    for _ in range(20):
        checked(driver.cuGraphAddEmptyNode(graph, [], 0))
    wrong = 0
    for case in cases(stream, graph):
        idle, busy, ended = measured(case, spin, rounds)
        waits = function_of(case[0]).waits
        # A call that is longer than the kernel returns after it.
        shown = idle < KERNEL_NS / 2e6
        differs = shown and (ended == rounds if waits is Waits.NOTHING else waits is Waits.CONTEXT and not ended)
        wrong += differs
        print(
            f"{case[0]:28} idle {idle:8.3f} ms, beside the kernel {busy:8.3f} ms, which had ended {ended} of {rounds}"
            f" times; assumed: {waits.name.lower()}{', WRONG' if differs else ''}"
        )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
