"""event-poll-storm in PyTorch: 16 threads that wait for blocking events, and an operation on another stream.

python -m remedies.event_poll_storm_pytorch    (in tests/programs)

Timed: an operation and the wait for its stream, the longest of some.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from time import perf_counter_ns

import torch
from driver import Driver
from remedies.measured import median_us, report

THREADS = 16
OPERATIONS = 16
FEW_ROUNDS = 10
KERNEL_NS = 4_000_000
BETWEEN_S = 0.0015
UNTIL_ALL_WAIT_S = 0.02
# Fewer than the 8 hardware queues.
WAITING = 4


def main() -> None:
    """Operations beside threads that wait in each way."""
    context = Driver().primary()
    launch = context.kernel()
    counter = torch.zeros(1, device="cuda")
    operations = torch.cuda.Stream()
    streams = [torch.cuda.Stream() for _ in range(THREADS)]
    counter.add_(1)
    torch.cuda.synchronize()

    def longest(threads: int, task: Callable[[int], None]) -> int:
        ended = threading.Event()

        def work(number: int) -> None:
            context.make_current()
            while not ended.is_set():
                task(number)

        workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
        for worker in workers:
            worker.start()
        time.sleep(UNTIL_ALL_WAIT_S)
        found = 0
        with torch.cuda.stream(operations):
            for _ in range(OPERATIONS):
                begin = perf_counter_ns()
                counter.add_(1)
                operations.synchronize()
                found = max(found, perf_counter_ns() - begin)
                time.sleep(BETWEEN_S)
        ended.set()
        for worker in workers:
            worker.join()
        return found

    blocking = [torch.cuda.Event(blocking=True) for _ in range(THREADS)]
    polled = [torch.cuda.Event() for _ in range(THREADS)]

    def kernel(stream: torch.cuda.Stream) -> None:
        launch(KERNEL_NS, ctypes.c_void_p(stream.cuda_stream))

    def wait_blocking(number: int) -> None:
        kernel(streams[number])
        blocking[number].record(streams[number])
        blocking[number].synchronize()

    def wait_with_pauses(number: int) -> None:
        stream, done = streams[number], polled[number]
        kernel(stream)
        # remedy back-off-x16
        # An event without blocking=True, and a thread that sleeps
        # for 1 ms between its queries.
        done.record(stream)
        while not done.query():
            time.sleep(0.001)
        # end

    def wait_on_few(number: int) -> None:
        stream, done = streams[number], blocking[number]
        kernel(stream)
        # remedy blocking-x4
        # In each of 4 threads with a stream of its own, fewer than
        # the 8 hardware queues; done is an Event(blocking=True).
        done.record(stream)
        done.synchronize()
        # end

    before = median_us(lambda: longest(THREADS, wait_blocking), FEW_ROUNDS)
    back_off = median_us(lambda: longest(THREADS, wait_with_pauses), FEW_ROUNDS)
    few = median_us(lambda: longest(WAITING, wait_on_few), FEW_ROUNDS)
    report("an operation and the wait for it", before, {"back-off-x16": back_off, "blocking-x4": few})


if __name__ == "__main__":
    main()
