"""The CUDA driver for the example programs, through ctypes alone, with a kernel of a given length."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

NON_BLOCKING = 1
NO_TIMING = 2
# Spins for ``length`` ns of %globaltimer in each thread.
KERNEL = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry busy(.param .u64 length)
{
    .reg .pred %again;
    .reg .b64 %length, %start, %now;
    ld.param.u64 %length, [length];
    mov.u64 %start, %globaltimer;
more:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %again, %now, %length;
    @%again bra more;
    ret;
}
"""
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Driver:
    """libcuda; a call that fails ends the program with a sentence."""

    def __init__(self, path: str = "libcuda.so.1") -> None:
        self._library = ctypes.CDLL(path)
        self("cuInit", 0)

    def __call__(self, name: str, *arguments: object) -> None:
        """Call a function of the driver."""
        code = getattr(self._library, name)(*arguments)
        if code:
            sys.exit(f"{name} returned {code}")

    def primary(self, number: int = 0) -> Context:
        """The primary context of a GPU, current from then on."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), number)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        return Context(self, context)

    def secondary(self, number: int = 0) -> Context:
        """A new context of a GPU, current from then on."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), number)
        self("cuCtxCreate_v2", ctypes.byref(context), 0, device)
        return Context(self, context)


class Context:
    """A context; its methods expect that it is current."""

    def __init__(self, driver: Driver, handle: ctypes.c_void_p) -> None:
        self._driver = driver
        self.handle = handle
        self._function: ctypes.c_void_p | None = None

    def make_current(self) -> None:
        """Make it the context of the calling thread."""
        self._driver("cuCtxSetCurrent", self.handle)

    def stream(self) -> ctypes.c_void_p:
        """A stream that does not wait for the default stream."""
        stream = ctypes.c_void_p()
        self._driver("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        return stream

    def device_memory(self, size: int) -> ctypes.c_uint64:
        """Memory of the GPU, ``size`` bytes."""
        pointer = ctypes.c_uint64()
        self._driver("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def pinned_memory(self, size: int) -> ctypes.c_void_p:
        """Pinned host memory, ``size`` bytes."""
        pointer = ctypes.c_void_p()
        self._driver("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), 0)
        return pointer

    def kernel(self) -> Callable[[int, ctypes.c_void_p], None]:
        """A function that launches the kernel: for how long (ns), on which stream. The kernel is loaded before."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._driver("cuModuleLoadData", ctypes.byref(module), KERNEL)
        self._driver("cuModuleGetFunction", ctypes.byref(function), module, b"busy")

        def launch(length_ns: int, stream: ctypes.c_void_p) -> None:
            length = ctypes.c_uint64(length_ns)
            arguments = (ctypes.c_void_p * 1)(ctypes.addressof(length))
            self._driver("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)

        return launch


def pageable_memory(size: int) -> ctypes.c_void_p:
    """Pageable host memory, ``size`` bytes, kept for the life of the process."""
    buffer = ctypes.create_string_buffer(size)
    _KEPT.append(buffer)
    return ctypes.cast(buffer, ctypes.c_void_p)


_KEPT: list[ctypes.Array[ctypes.c_char]] = []
