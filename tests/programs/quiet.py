"""A program without stalls: a small kernel and a pinned copy each millisecond, and a check whether they have ended.

python quiet.py ROUNDS
"""

from __future__ import annotations

import ctypes
import sys
import time

from driver import Driver

BYTES = ctypes.c_size_t(4096)
KERNEL_NS = 2_000
BETWEEN_S = 0.001


def main(rounds: int) -> None:
    """Launch and copy ``rounds`` times."""
    driver = Driver()
    context = driver.primary()
    launch, stream = context.kernel(), context.stream()
    source, target = context.device_memory(BYTES.value), context.pinned_memory(BYTES.value)
    for _ in range(rounds):
        launch(KERNEL_NS, stream)
        driver("cuMemcpyDtoHAsync_v2", target, source, BYTES, stream)
        time.sleep(BETWEEN_S)
        driver("cuStreamQuery", stream)


if __name__ == "__main__":
    main(int(sys.argv[1]))
