"""vmm-churn in CuPy: one thread allocates and frees 1 GiB in each step without a pool, another one copies.

python -m remedies.vmm_churn_cupy    (in tests/programs)

Timed: the call of a copy of 1 MiB within the GPU, the longest of some.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from time import perf_counter_ns

import cupy
from remedies.measured import median_us, report, require

SIZE = 1 << 30
COPIED_SIZE = 1 << 20
COPIES = 16
BETWEEN_S = 0.0001
MOST_S = 10


def main() -> None:
    """Copy beside steps without a pool and with one."""
    source = cupy.ones(COPIED_SIZE, dtype=cupy.uint8)
    target = cupy.zeros_like(source)
    copies, steps = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    size = SIZE
    cupy.cuda.Device().synchronize()

    def longest_call(step: Callable[[], None]) -> int:
        begun, ended = threading.Event(), threading.Event()

        def make_steps() -> None:
            with steps:
                while not ended.is_set():
                    step()
                    steps.synchronize()
                    begun.set()
                    # The copies' thread needs Python's lock too.
                    time.sleep(BETWEEN_S)

        thread, longest = threading.Thread(target=make_steps, daemon=True), 0
        thread.start()
        require(begun.wait(MOST_S), "a step was made")
        with copies:
            for _ in range(COPIES):
                begin = perf_counter_ns()
                cupy.copyto(target, source)
                longest = max(longest, perf_counter_ns() - begin)
                copies.synchronize()
                time.sleep(BETWEEN_S)
        ended.set()
        thread.join()
        return longest

    def without_pool() -> None:
        work = cupy.empty(SIZE, dtype=cupy.uint8)
        work.fill(0)
        steps.synchronize()
        del work

    cupy.cuda.set_allocator(None)
    before = median_us(lambda: longest_call(without_pool))

    # remedy pool
    # Once: a pool that keeps freed memory, CuPy's default. Call no
    # set_allocator(None), and no free_all_blocks() in the loop.
    pool = cupy.cuda.MemoryPool()
    cupy.cuda.set_allocator(pool.malloc)
    # end

    def with_pool() -> None:
        # remedy pool
        work = cupy.empty(size, dtype=cupy.uint8)
        work.fill(0)
        del work
        # end

    after = median_us(lambda: longest_call(with_pool))
    require((target == 1).all(), "the data were copied")
    report("the longest call of a copy", before, {"pool": after})


if __name__ == "__main__":
    main()
