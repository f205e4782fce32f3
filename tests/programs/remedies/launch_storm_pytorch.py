"""launch-storm in PyTorch: 16 threads that each launch 64 operations at the same time, on streams of their own.

python -m remedies.launch_storm_pytorch    (in tests/programs)

Timed: the calls that submit the 64 operations of a stream, the mean of the streams. Threads of a Python program wait
for Python's lock too, and the remedies end that wait as well.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from time import perf_counter_ns

import torch
from remedies.measured import median_us, report, require

THREADS = 16
OPERATIONS = 64


def main() -> None:
    """Operations submitted by one thread, by 16, as graphs by 16, and on 16 streams by one."""
    counters = [torch.zeros(1, device="cuda") for _ in range(THREADS)]
    streams = [torch.cuda.Stream() for _ in range(THREADS)]
    for counter in counters:
        counter.add_(1)
    torch.cuda.synchronize()

    def mean_ns(threads: int, submit: Callable[[int], None]) -> int:
        together, times = threading.Barrier(threads), []

        def work(number: int) -> None:
            with torch.cuda.stream(streams[number]):
                together.wait()
                begin = perf_counter_ns()
                submit(number)
                times.append(perf_counter_ns() - begin)

        workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        torch.cuda.synchronize()
        return round(statistics.mean(times))

    def operations(number: int) -> None:
        counter = counters[number]
        for _ in range(OPERATIONS):
            counter.add_(1)

    without = median_us(lambda: mean_ns(1, operations))
    before = median_us(lambda: mean_ns(THREADS, operations))

    graphs = []
    for counter in counters:
        # remedy graphs-x16
        # Once for each stream: the operations become a graph.
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(OPERATIONS):
                counter.add_(1)
        # end
        graphs.append(graph)

    def replay(number: int) -> None:
        graph = graphs[number]
        # remedy graphs-x16
        graph.replay()
        # end

    with_graphs = median_us(lambda: mean_ns(THREADS, replay))

    def one_thread(_: int) -> None:
        # remedy one-thread
        # One thread launches on the streams of all.
        for stream, counter in zip(streams, counters, strict=True):
            with torch.cuda.stream(stream):
                for _ in range(OPERATIONS):
                    counter.add_(1)
        # end

    with_one_thread = median_us(lambda: mean_ns(1, one_thread) // THREADS)
    require(len({int(counter) for counter in counters[1:]}) == 1, "every stream ran the same operations")
    report("submitting 64 operations", before, {"graphs-x16": with_graphs, "one-thread": with_one_thread}, without)


if __name__ == "__main__":
    main()
