"""What it takes to divide the time of a program, as a share of a core: 100 000 calls and records in each second.

Launches of one thread or of four, each with its kernel; every fiftieth call waits. Readings come five times a second,
as while a program runs. Exits 1 if a second of the program takes more than a tenth of a second of CPU time.

python tests/benchmarks/bench_division.py [--seconds S]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.watch_calls import BASE_NS, LAUNCH, SYNC, process
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.watch_file import WatchRecord
from stallprobes.records.rows import DRIVER_CALL
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.reading.process import CallBatch, RecordBatch

READINGS = 5
MOST = 0.1
SECOND = 1_000_000_000


def reading(number: int, calls: int, threads: int) -> tuple[RecordBatch, CallBatch]:
    """The calls and records of one reading, in which the GPU works for a third of the time."""
    span = SECOND // READINGS
    begin, step = BASE_NS + number * span, span // calls
    rows, records = np.zeros(calls, DRIVER_CALL), np.zeros(calls, dtype_of(WatchRecord))
    rows["began_ns"] = begin + np.arange(calls) * step
    rows["returned_ns"] = rows["began_ns"] + step // 4
    rows["thread"] = 1 + np.arange(calls) // max(calls // 40, 1) % threads
    rows["correlation"] = records["correlation"] = 1 + number * calls + np.arange(calls)
    rows["function"] = np.arange(calls) % 50 == 49
    records["kind"], records["name"], records["context"] = RecordKind.KERNEL, 1, 1
    records["start"] = rows["returned_ns"] + step // 4
    records["end"] = records["start"] + step // 3
    return RecordBatch(records, {1: "add"}, 0, 0), CallBatch(rows, {0: LAUNCH, 1: SYNC}, 0)


def measure(rate: int, threads: int, seconds: int) -> float:
    """The CPU time (s) for each second of a program with so many calls and records together."""
    divider, taken = ProcessDivider(), 0.0
    for number in range(READINGS * seconds):
        batches = reading(number, rate // READINGS // 2, threads)
        read = replace(process(now=0), started=replace(process().started, monotonic_ns=BASE_NS))
        before = time.thread_time()
        divider.feed(
            read, *batches, BASE_NS + (number + 1) * SECOND // READINGS, ended=number == READINGS * seconds - 1
        )
        taken += time.thread_time() - before
    before = time.thread_time()
    assert divider.division() is not None
    return (taken + time.thread_time() - before) / seconds


def main() -> int:
    """Measure, and say whether it takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10)
    seconds = parser.parse_args().seconds
    shares = []
    for rate in (10_000, 100_000):
        for threads in (1, 4):
            shares.append(measure(rate, threads, seconds))
            print(f"{rate} calls and records a second, {threads} threads: {100 * shares[-1]:.1f} % of a core")
    return 1 if max(shares) > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
