"""host-callback in CuPy: a host function that works for 10 ms, and a short one on another stream.

python -m remedies.host_callback_cupy    (in tests/programs)

Timed: the short host function, from the call until the driver has run it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter_ns

import cupy
from remedies.measured import median_us, report, require

WORK_S = 0.01
BEFORE_SHORT_S = 0.001
MOST_S = 5


def main() -> None:
    """Run a short host function beside work of each kind."""
    counter = cupy.zeros(1)
    stream, unrelated = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    cupy.add(counter, 1, out=counter)
    cupy.cuda.Device().synchronize()
    begun, done = threading.Event(), threading.Event()
    ran: list[int] = []

    def work(_item: object = None) -> None:
        begun.set()
        time.sleep(WORK_S)
        done.set()

    def short_function(_item: object) -> None:
        ran.append(perf_counter_ns())

    def short(hand_over: Callable[[], None]) -> int:
        begun.clear()
        done.clear()
        with stream:
            cupy.add(counter, 1, out=counter)
        hand_over()
        require(begun.wait(MOST_S), "the work has begun")
        time.sleep(BEFORE_SHORT_S)
        begin = perf_counter_ns()
        unrelated.launch_host_func(short_function, None)
        unrelated.synchronize()
        took = ran.pop() - begin
        require(done.wait(MOST_S), "the work was done")
        stream.synchronize()
        return took

    def with_host_function() -> None:
        stream.launch_host_func(work, None)

    # remedy short
    # Once: a thread for the work, and a queue that wakes it.
    queue: SimpleQueue[object] = SimpleQueue()

    def worker() -> None:
        while (item := queue.get()) is not None:
            work(item)

    threading.Thread(target=worker, daemon=True).start()
    # end
    batch = "batch"

    def with_short_function() -> None:
        # remedy short
        # The host function only wakes the thread.
        stream.launch_host_func(queue.put, batch)
        # end

    # remedy event
    # Once: an event for which a thread can wait asleep.
    ready = cupy.cuda.Event(block=True, disable_timing=True)
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
    after = {"short": median_us(lambda: short(with_short_function)), "event": median_us(lambda: short(with_event))}
    queue.put(None)
    report("the short host function", before, after)


if __name__ == "__main__":
    main()
