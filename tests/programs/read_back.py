"""Report 4 as a program: a kernel, then a read-back of four bytes whose call appears to be slow.

python read_back.py LIBCUDA ROUNDS KERNEL_NS pageable|pinned

With pageable memory the copy's call waits for the kernel, with pinned memory the synchronization after it.
"""

from __future__ import annotations

import ctypes
import sys

from driver import Driver, pageable_memory

BYTES = ctypes.c_size_t(4)


def main(path: str, rounds: int, kernel_ns: int, memory: str) -> None:
    """Launch and read back ``rounds`` times."""
    driver = Driver(path)
    context = driver.primary()
    launch, stream, source = context.kernel(), context.stream(), context.device_memory(BYTES.value)
    target = context.pinned_memory(BYTES.value) if memory == "pinned" else pageable_memory(BYTES.value)
    for _ in range(rounds):
        launch(kernel_ns, stream)
        driver("cuMemcpyDtoHAsync_v2", target, source, BYTES, stream)
        driver("cuStreamSynchronize", stream)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
