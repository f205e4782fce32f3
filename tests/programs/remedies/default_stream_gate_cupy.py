"""default-stream-gate in CuPy: an array is read on the default stream, which waits for an event.

python -m remedies.default_stream_gate_cupy    (in tests/programs)

A thread launches on an unrelated stream and opens the gate then; where the launch waits for the copy, a timer opens it
after 100 ms. Timed: the launch.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from time import perf_counter_ns

import cupy
import cupyx
from driver import HOST_FUNCTION, Driver
from remedies.measured import median_us, report, require

GATE_S = 0.1
BEFORE_LAUNCH_S = 0.02
CONTENT = 7


def main() -> None:
    """Launch beside a copy of each kind."""
    driver = Driver()
    driver.primary()
    source, counter = cupy.full(1, CONTENT), cupy.zeros(1)
    gated, unrelated = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    ready = cupy.cuda.Event(disable_timing=True)
    cupy.add(counter, 1, out=counter)
    cupy.cuda.Device().synchronize()
    opened = threading.Event()
    gate = HOST_FUNCTION(lambda _: opened.wait())

    def launch(copy: Callable[[], None]) -> int:
        opened.clear()
        driver("cuLaunchHostFunc", ctypes.c_void_p(gated.ptr), gate, None)
        ready.record(gated)
        cupy.cuda.get_current_stream().wait_event(ready)
        timer, thread = threading.Timer(GATE_S, opened.set), threading.Thread(target=copy)
        timer.start()
        thread.start()
        time.sleep(BEFORE_LAUNCH_S)
        begin = perf_counter_ns()
        with unrelated:
            cupy.add(counter, 1, out=counter)
        took = perf_counter_ns() - begin
        opened.set()
        thread.join()
        timer.cancel()
        timer.join()
        cupy.cuda.Device().synchronize()
        return took

    def pageable() -> None:
        require(source.get() == CONTENT, "the value was read")

    # remedy pinned
    # Once, before the loop.
    target = cupyx.empty_like_pinned(source)
    copied = cupy.cuda.Event(disable_timing=True)
    # end

    def pinned() -> None:
        target.fill(0)
        # remedy pinned
        source.get(out=target, blocking=False)
        copied.record()
        # end
        # remedy pinned
        copied.synchronize()  # where the CPU needs it
        # end
        require(target == CONTENT, "the value was read")

    # remedy own-stream
    # Once, before the loop.
    copies = cupy.cuda.Stream(non_blocking=True)
    # end

    def own_stream() -> None:
        # remedy own-stream
        copies.wait_event(ready)  # not the default stream
        value = source.get(stream=copies)
        # end
        require(value == CONTENT, "the value was read")

    before = median_us(lambda: launch(pageable))
    after = {"pinned": median_us(lambda: launch(pinned)), "own-stream": median_us(lambda: launch(own_stream))}
    report("the launch", before, after)


if __name__ == "__main__":
    main()
