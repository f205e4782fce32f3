"""Report 3 as a program: one thread copies to pageable memory, another launches small kernels on the same stream.

python pageable_copies.py ROUNDS

Both threads use the default stream, as PyTorch's threads do. Launches wait for the copies.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
import time

from driver import Driver

SIZE = ctypes.c_size_t(64 << 20)
DEFAULT_STREAM = ctypes.c_void_p()
KERNEL_NS = 2_000
BETWEEN_S = 0.0005


def main(rounds: int) -> None:
    """Copy ``rounds`` times, each time to fresh memory, while the other thread launches."""
    driver = Driver()
    context = driver.primary()
    launch, source = context.kernel(), context.device_memory(SIZE.value)
    launch(KERNEL_NS, DEFAULT_STREAM)
    ended = threading.Event()

    def launches() -> None:
        context.make_current()
        while not ended.is_set():
            launch(KERNEL_NS, DEFAULT_STREAM)
            time.sleep(BETWEEN_S)

    thread = threading.Thread(target=launches, name="launches")
    thread.start()
    for _ in range(rounds):
        with mmap.mmap(-1, SIZE.value) as memory:
            target = ctypes.c_char.from_buffer(memory)
            driver("cuMemcpyDtoHAsync_v2", ctypes.byref(target), source, SIZE, DEFAULT_STREAM)
            del target
    ended.set()
    thread.join()


if __name__ == "__main__":
    main(int(sys.argv[1]))
