"""second-process in CuPy: copies within the GPU, while a second process computes on it.

python -m remedies.second_process_cupy    (in tests/programs)

Timed: a copy of 1 MiB until it is complete, the longest of some copies.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from time import perf_counter_ns

import cupy
import cupyx
from driver import Driver
from remedies.measured import median_us, report, require
from remedies.other_process import KERNEL_NS, other_process

SIZE = 1 << 20
BEFORE_COPIES_S = 0.002
COPIES = 4


def main() -> None:
    """Copy beside a kernel of another process and of this one."""
    launch = Driver().primary().kernel()
    stream = cupy.cuda.Stream(non_blocking=True)
    source = cupy.full(SIZE, 7, dtype=cupy.uint8)
    target = cupy.zeros_like(source)
    cupy.cuda.Device().synchronize()

    def other_task() -> None:
        launch(KERNEL_NS, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr))

    def longest_copy(copy: Callable[[], None]) -> int:
        longest = 0
        for _ in range(COPIES):
            begin = perf_counter_ns()
            copy()
            longest = max(longest, perf_counter_ns() - begin)
        return longest

    def checked_us(one_round: Callable[[], int]) -> float:
        target.fill(0)
        cupy.cuda.Device().synchronize()
        found = median_us(one_round)
        require((target == 7).all(), "the data were copied")
        return found

    def within_gpu() -> None:
        with stream:
            cupy.copyto(target, source)
        stream.synchronize()

    # remedy copy-engine
    # Once, before the loop.
    relay = cupyx.empty_like_pinned(source)
    # end

    def by_copy_engine() -> None:
        # remedy copy-engine
        # Through pinned memory, by the copy engines.
        source.get(stream=stream, out=relay, blocking=False)
        target.set(relay, stream=stream)
        stream.synchronize()
        # end

    # remedy one-process
    # Once: no second process, but a stream for each task.
    kernels = cupy.cuda.Stream(non_blocking=True)
    copies = cupy.cuda.Stream(non_blocking=True)
    # end

    def beside_own_kernel() -> int:
        # remedy one-process
        # What the second process did.
        with kernels:
            other_task()
        # end
        time.sleep(BEFORE_COPIES_S)
        longest = longest_copy(on_own_stream)
        kernels.synchronize()
        return longest

    def on_own_stream() -> None:
        # remedy one-process
        # What this process does.
        copies.wait_event(cupy.cuda.get_current_stream().record())
        with copies:
            cupy.copyto(target, source)
        copies.synchronize()
        # end

    with other_process():
        before = checked_us(lambda: longest_copy(within_gpu))
        after = {"copy-engine": checked_us(lambda: longest_copy(by_copy_engine))}
    after["one-process"] = checked_us(beside_own_kernel)
    report("the longest copy", before, after)


if __name__ == "__main__":
    main()
