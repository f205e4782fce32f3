"""scalar-readback in PyTorch: a sum behind a kernel of 5 ms is read with item().

python -m remedies.scalar_readback_pytorch    (in tests/programs)

Timed: the calls until the CPU is free for other work.
"""

from __future__ import annotations

import ctypes
from time import perf_counter_ns

import torch
from driver import Driver
from remedies.measured import median_us, report, require

KERNEL_NS = 5_000_000
COUNT = 1024


def main() -> None:
    """Read the sum in each way."""
    launch = Driver().primary().kernel()
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    vector = torch.full((COUNT,), 2.0, device="cuda")
    total = torch.zeros((), device="cuda")

    def reduction() -> None:
        launch(KERNEL_NS, stream)
        torch.sum(vector, 0, out=total)

    def with_item() -> int:
        reduction()
        begin = perf_counter_ns()
        value = total.item()
        took = perf_counter_ns() - begin
        require(value == 2 * COUNT, "the value was read")
        return took

    # remedy pinned
    # Once, before the loop.
    value = torch.empty_like(total, device="cpu", pin_memory=True)
    copied = torch.cuda.Event()
    # end

    def with_pinned_memory() -> int:
        value.zero_()
        reduction()
        begin = perf_counter_ns()
        # remedy pinned
        value.copy_(total, non_blocking=True)
        copied.record()
        # end
        took = perf_counter_ns() - begin
        # remedy pinned
        copied.synchronize()  # where the CPU needs the value
        # end
        require(value == 2 * COUNT, "the value was read")
        return took

    def on_device() -> int:
        reduction()
        begin = perf_counter_ns()
        # remedy on-device
        # The next kernel reads the scalar where it is: no item().
        scaled = vector / total
        # end
        took = perf_counter_ns() - begin
        require(scaled[0] == 1 / COUNT, "the value was used")
        return took

    before = median_us(with_item)
    after = {"pinned": median_us(with_pinned_memory), "on-device": median_us(on_device)}
    report("the CPU's part of reading the scalar", before, after)


if __name__ == "__main__":
    main()
