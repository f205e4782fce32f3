"""pageable-d2h-vs-launch in PyTorch: one thread copies to new CPU memory, another one launches.

python -m remedies.pageable_d2h_vs_launch_pytorch    (in tests/programs)

Both threads use the default stream. Timed: the longest launch beside some copies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from time import perf_counter_ns

import torch
from remedies.measured import median_us, report, require

ELEMENTS = 16 << 20
COPIES = 4
BETWEEN_S = 0.0001


def main() -> None:
    """Launch beside copies of each kind."""
    source = torch.ones(ELEMENTS, device="cuda")
    small, result = torch.zeros(1024, device="cuda"), torch.zeros(1024, device="cuda")

    def longest_launch(copy: Callable[[], None]) -> int:
        def copies() -> None:
            for _ in range(COPIES):
                copy()

        thread, longest = threading.Thread(target=copies), 0
        thread.start()
        while thread.is_alive():
            begin = perf_counter_ns()
            torch.sin(small, out=result)
            longest = max(longest, perf_counter_ns() - begin)
            time.sleep(BETWEEN_S)
        thread.join()
        return longest

    def pageable() -> None:
        require(source.cpu()[-1] == 1, "the data were copied")

    def on_null_stream() -> Callable[[], None]:
        # remedy pinned-null-stream
        # Once, before the loop.
        target = torch.empty(source.shape, pin_memory=True)
        copied = torch.cuda.Event()
        # end

        def copy() -> None:
            target[-1] = 0
            # remedy pinned-null-stream
            target.copy_(source, non_blocking=True)
            copied.record()
            # end
            # remedy pinned-null-stream
            copied.synchronize()  # where the CPU reads the data
            # end
            require(target[-1] == 1, "the data were copied")

        return copy

    def on_other_stream() -> Callable[[], None]:
        # remedy pinned-other-stream
        # Once, before the loop.
        target = torch.empty(source.shape, pin_memory=True)
        copies = torch.cuda.Stream()
        # end

        def copy() -> None:
            target[-1] = 0
            # remedy pinned-other-stream
            copies.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(copies):
                target.copy_(source, non_blocking=True)
            # end
            # remedy pinned-other-stream
            copies.synchronize()  # where the CPU reads the data
            # end
            require(target[-1] == 1, "the data were copied")

        return copy

    before = median_us(lambda: longest_launch(pageable))
    after = {}
    for variant, make in (("pinned-null-stream", on_null_stream), ("pinned-other-stream", on_other_stream)):
        copy = make()
        after[variant] = median_us(lambda copy=copy: longest_launch(copy))  # type: ignore[misc]
    report("the longest launch", before, after)


if __name__ == "__main__":
    main()
