"""secondary-context-d2d in CuPy: copies in a context of their own, while a kernel runs in CuPy's.

python -m remedies.secondary_context_d2d_cupy    (in tests/programs)

Timed: a copy of 1 MiB until it is complete, the longest of some copies beside one kernel.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from time import perf_counter_ns

import cupy
from driver import Driver
from remedies.measured import median_us, report, require

SIZE = 1 << 20
KERNEL_NS = 20_000_000
BEFORE_COPIES_S = 0.002
COPIES = 4


def main() -> None:
    """Copy in each context beside a kernel in CuPy's."""
    driver = Driver()
    primary = driver.primary()
    launch = primary.kernel()
    kernels = cupy.cuda.Stream(non_blocking=True)
    source = cupy.full(SIZE, 7, dtype=cupy.uint8)
    target = cupy.zeros_like(source)
    cupy.cuda.Device().synchronize()
    secondary = driver.secondary()
    second_stream = secondary.stream()
    second_source, second_target = secondary.device_memory(SIZE), secondary.device_memory(SIZE)
    primary.make_current()

    def longest_copy(copy: Callable[[], None]) -> int:
        launch(KERNEL_NS, ctypes.c_void_p(kernels.ptr))
        time.sleep(BEFORE_COPIES_S)
        longest = 0
        for _ in range(COPIES):
            begin = perf_counter_ns()
            copy()
            longest = max(longest, perf_counter_ns() - begin)
        kernels.synchronize()
        return longest

    def in_secondary() -> None:
        secondary.make_current()
        driver("cuMemcpyDtoDAsync_v2", second_target, second_source, ctypes.c_size_t(SIZE), second_stream)
        driver("cuStreamSynchronize", second_stream)
        primary.make_current()

    # remedy kernel-same-context
    # Once: a stream of CuPy's context, no context of its own.
    copies = cupy.cuda.Stream(non_blocking=True)
    # end

    def in_primary() -> None:
        # remedy kernel-same-context
        copies.wait_event(cupy.cuda.get_current_stream().record())
        with copies:
            cupy.copyto(target, source)
        copies.synchronize()
        # end

    before = median_us(lambda: longest_copy(in_secondary))
    after = median_us(lambda: longest_copy(in_primary))
    require((target == 7).all(), "the data were copied")
    report("the longest copy", before, {"kernel-same-context": after})


if __name__ == "__main__":
    main()
