"""host-callback in PyTorch: a host function that works for 10 ms, and a short one on another stream.

python -m remedies.host_callback_pytorch    (in tests/programs)

PyTorch has no host functions: libraries beside it launch them. Timed: the short host function, from the call until the
driver has run it.
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

WORK_S = 0.01
BEFORE_SHORT_S = 0.001
MOST_S = 5


def main() -> None:
    """Run a short host function beside work of each kind."""
    driver = Driver()
    driver.primary()
    counter = torch.zeros(1, device="cuda")
    stream, unrelated = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    begun, done = threading.Event(), threading.Event()
    ran: list[int] = []

    def work() -> None:
        begun.set()
        time.sleep(WORK_S)
        done.set()

    long_function = HOST_FUNCTION(lambda _: work())
    short_function = HOST_FUNCTION(lambda _: ran.append(perf_counter_ns()))

    def short(hand_over: Callable[[], None]) -> int:
        begun.clear()
        done.clear()
        with torch.cuda.stream(stream):
            counter.add_(1)
        hand_over()
        require(begun.wait(MOST_S), "the work has begun")
        time.sleep(BEFORE_SHORT_S)
        begin = perf_counter_ns()
        driver("cuLaunchHostFunc", ctypes.c_void_p(unrelated.cuda_stream), short_function, None)
        unrelated.synchronize()
        took = ran.pop() - begin
        require(done.wait(MOST_S), "the work was done")
        stream.synchronize()
        return took

    def with_host_function() -> None:
        driver("cuLaunchHostFunc", ctypes.c_void_p(stream.cuda_stream), long_function, None)

    # remedy event
    # Once: an event for which a thread can wait asleep.
    ready = torch.cuda.Event(blocking=True)
    # end

    def with_event() -> None:
        # remedy event
        # No host function.
        ready.record(stream)
        # end
        threading.Thread(target=in_thread, daemon=True).start()

    def in_thread() -> None:
        # remedy event
        # In the thread that does the work:
        ready.synchronize()
        work()
        # end

    before = median_us(lambda: short(with_host_function))
    report("the short host function", before, {"event": median_us(lambda: short(with_event))})


if __name__ == "__main__":
    main()
