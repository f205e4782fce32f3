"""launch-storm in CuPy: 16 threads that each launch 64 operations at the same time, on streams of their own.

python -m remedies.launch_storm_cupy    (in tests/programs)

Timed: the calls that submit the 64 operations of a stream, the mean of the streams. Threads of a Python program wait
for Python's lock too, and the remedies end that wait as well.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from time import perf_counter_ns

import cupy
from remedies.measured import median_us, report, require

THREADS = 16
OPERATIONS = 64


def main() -> None:
    """Operations submitted by one thread, by 16, as graphs by 16, and on 16 streams by one."""
    counters = [cupy.zeros(()) for _ in range(THREADS)]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(THREADS)]
    for counter in counters:
        cupy.add(counter, 1, out=counter)
    cupy.cuda.Device().synchronize()

    def mean_ns(threads: int, submit: Callable[[int], None]) -> int:
        together, times = threading.Barrier(threads), []

        def work(number: int) -> None:
            with streams[number]:
                together.wait()
                begin = perf_counter_ns()
                submit(number)
                times.append(perf_counter_ns() - begin)

        workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        cupy.cuda.Device().synchronize()
        return round(statistics.mean(times))

    def operations(number: int) -> None:
        counter = counters[number]
        for _ in range(OPERATIONS):
            cupy.add(counter, 1, out=counter)

    without = median_us(lambda: mean_ns(1, operations))
    before = median_us(lambda: mean_ns(THREADS, operations))

    graphs = []
    for stream, counter in zip(streams, counters, strict=True):
        # remedy graphs-x16
        # Once for each stream: the operations become a graph.
        with stream:
            stream.begin_capture()
            for _ in range(OPERATIONS):
                cupy.add(counter, 1, out=counter)
            graph = stream.end_capture()
        # end
        graphs.append(graph)

    def replay(number: int) -> None:
        graph, stream = graphs[number], streams[number]
        # remedy graphs-x16
        graph.launch(stream)
        # end

    with_graphs = median_us(lambda: mean_ns(THREADS, replay))

    def one_thread(_: int) -> None:
        # remedy one-thread
        # One thread launches on the streams of all.
        for stream, counter in zip(streams, counters, strict=True):
            with stream:
                for _ in range(OPERATIONS):
                    cupy.add(counter, 1, out=counter)
        # end

    with_one_thread = median_us(lambda: mean_ns(1, one_thread) // THREADS)
    require(len({int(counter) for counter in counters[1:]}) == 1, "every stream ran the same operations")
    report("submitting 64 operations", before, {"graphs-x16": with_graphs, "one-thread": with_one_thread}, without)


if __name__ == "__main__":
    main()
