"""Report 4 as a program: a kernel, then a read-back of four bytes whose call appears to be slow.

python read_back.py LIBCUDA ROUNDS KERNEL_NS pageable|pinned

With pageable memory the copy's call waits for the kernel, with pinned memory the synchronization after it. Uses the
driver through ctypes alone; exits 1 with a sentence if a call fails.
"""

from __future__ import annotations

import ctypes
import sys

BYTES = 4
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


class Driver:
    """libcuda; a call that fails ends the program."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def __call__(self, name: str, *arguments: object) -> None:
        """Call a function of the driver."""
        code = getattr(self._library, name)(*arguments)
        if code:
            sys.exit(f"{name} returned {code}")


def main(path: str, rounds: int, kernel_ns: int, memory: str) -> None:
    """Launch and read back ``rounds`` times."""
    driver = Driver(path)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, function, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    source, target = ctypes.c_uint64(), ctypes.c_void_p()
    driver("cuInit", 0)
    driver("cuDeviceGet", ctypes.byref(device), 0)
    driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver("cuCtxSetCurrent", context)
    driver("cuModuleLoadData", ctypes.byref(module), KERNEL)
    driver("cuModuleGetFunction", ctypes.byref(function), module, b"busy")
    driver("cuStreamCreate", ctypes.byref(stream), 1)
    driver("cuMemAlloc_v2", ctypes.byref(source), ctypes.c_size_t(BYTES))
    pageable = ctypes.create_string_buffer(BYTES)
    if memory == "pinned":
        driver("cuMemHostAlloc", ctypes.byref(target), ctypes.c_size_t(BYTES), 0)
    else:
        target = ctypes.cast(pageable, ctypes.c_void_p)
    length = ctypes.c_uint64(kernel_ns)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(length))
    for _ in range(rounds):
        driver("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)
        driver("cuMemcpyDtoHAsync_v2", target, source, ctypes.c_size_t(BYTES), stream)
        driver("cuStreamSynchronize", stream)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
