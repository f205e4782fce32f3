"""vmm-churn in PyTorch: one thread allocates 1 GiB in each step and empties the cache after it, another one copies.

python -m remedies.vmm_churn_pytorch    (in tests/programs)

Timed: the call of a copy of 1 MiB within the GPU, the longest of some.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from time import perf_counter_ns

import torch
from remedies.measured import median_us, report, require

SIZE = 1 << 30
COPIED_SIZE = 1 << 20
COPIES = 16
BETWEEN_S = 0.0001
MOST_S = 10


def main() -> None:
    """Copy beside steps with and without an empty cache."""
    source = torch.ones(COPIED_SIZE, dtype=torch.uint8, device="cuda")
    target = torch.zeros_like(source)
    copies, steps = torch.cuda.Stream(), torch.cuda.Stream()
    size = SIZE
    torch.cuda.synchronize()

    def longest_call(step: Callable[[], None]) -> int:
        begun, ended = threading.Event(), threading.Event()

        def make_steps() -> None:
            with torch.cuda.stream(steps):
                while not ended.is_set():
                    step()
                    steps.synchronize()
                    begun.set()
                    # The copies' thread needs Python's lock too.
                    time.sleep(BETWEEN_S)

        thread, longest = threading.Thread(target=make_steps, daemon=True), 0
        thread.start()
        require(begun.wait(MOST_S), "a step was made")
        with torch.cuda.stream(copies):
            for _ in range(COPIES):
                begin = perf_counter_ns()
                target.copy_(source, non_blocking=True)
                longest = max(longest, perf_counter_ns() - begin)
                copies.synchronize()
                time.sleep(BETWEEN_S)
        ended.set()
        thread.join()
        return longest

    def with_empty_cache() -> None:
        work = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
        work.zero_()
        del work
        torch.cuda.empty_cache()

    def with_kept_memory() -> None:
        # remedy pool
        # PyTorch keeps freed memory for the next step: call no
        # torch.cuda.empty_cache() in the loop.
        work = torch.empty(size, dtype=torch.uint8, device="cuda")
        work.zero_()
        del work
        # end

    before = median_us(lambda: longest_call(with_empty_cache))
    after = median_us(lambda: longest_call(with_kept_memory))
    require((target == 1).all(), "the data were copied")
    report("the longest call of a copy", before, {"pool": after})


if __name__ == "__main__":
    main()
