"""default-stream-gate in PyTorch: a tensor is read on the default stream, which waits for an event.

python -m remedies.default_stream_gate_pytorch    (in tests/programs)

A thread launches on an unrelated stream and opens the gate then; where the launch waits for the copy, a timer opens it
after 100 ms. Timed: the launch.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from time import perf_counter_ns

import torch
from driver import HOST_FUNCTION, Driver
from remedies.measured import median_us, report, require

GATE_S = 0.1
BEFORE_LAUNCH_S = 0.02
CONTENT = 7


def main() -> None:
    """Launch beside a copy of each kind."""
    driver = Driver()
    driver.primary()
    source, counter = torch.full((1,), CONTENT, device="cuda"), torch.zeros(1, device="cuda")
    gated, unrelated, ready = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()
    counter.add_(1)
    torch.cuda.synchronize()
    opened = threading.Event()
    gate = HOST_FUNCTION(lambda _: opened.wait())

    def launch(copy: Callable[[], None]) -> int:
        opened.clear()
        driver("cuLaunchHostFunc", ctypes.c_void_p(gated.cuda_stream), gate, None)
        ready.record(gated)
        torch.cuda.current_stream().wait_event(ready)
        timer, thread = threading.Timer(GATE_S, opened.set), threading.Thread(target=copy)
        timer.start()
        thread.start()
        time.sleep(BEFORE_LAUNCH_S)
        begin = perf_counter_ns()
        with torch.cuda.stream(unrelated):
            counter.add_(1)
        took = perf_counter_ns() - begin
        opened.set()
        thread.join()
        timer.cancel()
        timer.join()
        torch.cuda.synchronize()
        return took

    def pageable() -> None:
        require(source.cpu() == CONTENT, "the value was read")

    # remedy pinned
    # Once, before the loop.
    target = torch.empty_like(source, device="cpu", pin_memory=True)
    copied = torch.cuda.Event()
    # end

    def pinned() -> None:
        target.zero_()
        # remedy pinned
        target.copy_(source, non_blocking=True)
        copied.record()
        # end
        # remedy pinned
        copied.synchronize()  # where the CPU needs it
        # end
        require(target == CONTENT, "the value was read")

    # remedy own-stream
    # Once, before the loop.
    copies = torch.cuda.Stream()
    # end

    def own_stream() -> None:
        # remedy own-stream
        with torch.cuda.stream(copies):
            copies.wait_event(ready)  # not the default stream
            value = source.cpu()
        # end
        require(value == CONTENT, "the value was read")

    before = median_us(lambda: launch(pageable))
    after = {"pinned": median_us(lambda: launch(pinned)), "own-stream": median_us(lambda: launch(own_stream))}
    report("the launch", before, after)


if __name__ == "__main__":
    main()
