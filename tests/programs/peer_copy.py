"""Report 2 as a program: a peer copy behind a kernel, then a peer copy on another stream. Needs two GPUs.

python peer_copy.py ROUNDS

Without peer access the driver stages both copies; the second one waits for the first, which waits for the kernel.
"""

from __future__ import annotations

import ctypes
import sys

from driver import Driver

SIZE = ctypes.c_size_t(1 << 20)
KERNEL_NS = 20_000_000


def main(rounds: int) -> None:
    """Copy behind the kernel, and beside it, ``rounds`` times."""
    driver = Driver()
    other = driver.primary(1)
    targets = [other.device_memory(SIZE.value) for _ in range(2)]
    context = driver.primary(0)
    launch, behind, beside = context.kernel(), context.stream(), context.stream()
    sources = [context.device_memory(SIZE.value) for _ in range(2)]
    for _ in range(rounds):
        launch(KERNEL_NS, behind)
        driver("cuMemcpyPeerAsync", targets[0], other.handle, sources[0], context.handle, SIZE, behind)
        driver("cuMemcpyPeerAsync", targets[1], other.handle, sources[1], context.handle, SIZE, beside)
        driver("cuStreamSynchronize", beside)
        driver("cuStreamSynchronize", behind)


if __name__ == "__main__":
    main(int(sys.argv[1]))
