"""second-process in PyTorch: copies within the GPU, while a second process computes on it.

python -m remedies.second_process_pytorch    (in tests/programs)

Timed: a copy of 1 MiB until it is complete, the longest of some copies.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from time import perf_counter_ns

import torch
from driver import Driver
from remedies.measured import median_us, report, require
from remedies.other_process import KERNEL_NS, other_process

SIZE = 1 << 20
BEFORE_COPIES_S = 0.002
COPIES = 4


def main() -> None:
    """Copy beside a kernel of another process and of this one."""
    launch = Driver().primary().kernel()
    stream = torch.cuda.Stream()
    source = torch.full((SIZE,), 7, dtype=torch.uint8, device="cuda")
    target = torch.zeros_like(source)
    torch.cuda.synchronize()

    def other_task() -> None:
        launch(KERNEL_NS, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    def longest_copy(copy: Callable[[], None]) -> int:
        longest = 0
        for _ in range(COPIES):
            begin = perf_counter_ns()
            copy()
            longest = max(longest, perf_counter_ns() - begin)
        return longest

    def checked_us(one_round: Callable[[], int]) -> float:
        target.zero_()
        torch.cuda.synchronize()
        found = median_us(one_round)
        require((target == 7).all(), "the data were copied")
        return found

    def within_gpu() -> None:
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        stream.synchronize()

    # remedy copy-engine
    # Once, before the loop.
    relay = torch.empty_like(source, device="cpu", pin_memory=True)
    # end

    def by_copy_engine() -> None:
        # remedy copy-engine
        # Through pinned memory, by the copy engines.
        with torch.cuda.stream(stream):
            relay.copy_(source, non_blocking=True)
            target.copy_(relay, non_blocking=True)
        stream.synchronize()
        # end

    # remedy one-process
    # Once: no second process, but a stream for each task.
    kernels, copies = torch.cuda.Stream(), torch.cuda.Stream()
    # end

    def beside_own_kernel() -> int:
        # remedy one-process
        # What the second process did.
        with torch.cuda.stream(kernels):
            other_task()
        # end
        time.sleep(BEFORE_COPIES_S)
        longest = longest_copy(on_own_stream)
        kernels.synchronize()
        return longest

    def on_own_stream() -> None:
        # remedy one-process
        # What this process does.
        copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copies):
            target.copy_(source, non_blocking=True)
        copies.synchronize()
        # end

    with other_process():
        before = checked_us(lambda: longest_copy(within_gpu))
        after = {"copy-engine": checked_us(lambda: longest_copy(by_copy_engine))}
    after["one-process"] = checked_us(beside_own_kernel)
    report("the longest copy", before, after)


if __name__ == "__main__":
    main()
