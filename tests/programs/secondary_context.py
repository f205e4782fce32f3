"""Report 1 as a program: copies in a second context, while a kernel runs in the first.

python secondary_context.py ROUNDS

The copies' calls return at once; the synchronization after them waits for the primary context's time-slice. The first
copies after the kernel's start may find that slice used up, the later ones wait for the whole of it.
"""

from __future__ import annotations

import ctypes
import sys
import time

from driver import Driver

SIZE = ctypes.c_size_t(1 << 20)
KERNEL_NS = 20_000_000
BEFORE_COPIES_S = 0.002
TIMES, COPIES = 4, 8


def main(rounds: int) -> None:
    """Run the kernel and copy beside it ``rounds`` times."""
    driver = Driver()
    primary = driver.primary()
    launch, stream = primary.kernel(), primary.stream()
    secondary = driver.secondary()
    copies = secondary.stream()
    source, target = secondary.device_memory(SIZE.value), secondary.device_memory(SIZE.value)
    for _ in range(rounds):
        primary.make_current()
        launch(KERNEL_NS, stream)
        time.sleep(BEFORE_COPIES_S)
        secondary.make_current()
        for _ in range(TIMES):
            for _ in range(COPIES):
                driver("cuMemcpyDtoDAsync_v2", target, source, SIZE, copies)
            driver("cuStreamSynchronize", copies)
        primary.make_current()
        driver("cuStreamSynchronize", stream)


if __name__ == "__main__":
    main(int(sys.argv[1]))
