"""Threads that launch short kernels back to back, each on a stream of its own, and wait now and then.

python many_launches.py THREADS SECONDS
"""

from __future__ import annotations

import sys
import threading
import time

from driver import Context, Driver

KERNEL_NS = 1_000
LAUNCHES = 50


def launch_until(driver: Driver, context: Context, end_s: float) -> None:
    """Launch until ``end_s`` on the monotonic clock."""
    context.make_current()
    launch, stream = context.kernel(), context.stream()
    while time.monotonic() < end_s:
        for _ in range(LAUNCHES):
            launch(KERNEL_NS, stream)
        driver("cuStreamSynchronize", stream)


def main(threads: int, seconds: float) -> None:
    """Launch in so many threads, for so long."""
    driver = Driver()
    arguments = driver, driver.primary(), time.monotonic() + seconds
    started = [threading.Thread(target=launch_until, args=arguments) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
