"""What it takes to divide the time of a program, as a share of a core: up to 400 000 calls and records in each second.

Launches of one thread or of four side by side, each with its kernel; every fiftieth call waits. Readings come five
times a second, as while a program runs. Exits 1 if a second of the program takes more than a tenth of a second of CPU
time, or a fifth at the highest rate, of which a part of the time is divided.

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
# Calls and records in a second, and the most that they may take.
CASES = ((10_000, 0.1), (100_000, 0.1), (400_000, 0.2))
SECOND = 1_000_000_000


def reading(number: int, calls: int, threads: int) -> tuple[RecordBatch, CallBatch]:
    """The calls and records of one reading; calls of different threads overlap."""
    span = SECOND // READINGS
    step = span // calls * threads
    rows, records = np.zeros(calls, DRIVER_CALL), np.zeros(calls, dtype_of(WatchRecord))
    chance, thread = np.random.default_rng(number), np.arange(calls) % threads
    begins = BASE_NS + number * span + np.arange(calls) // threads * step + chance.integers(0, step // 2, calls)
    rows["began_ns"], rows["returned_ns"] = begins, begins + step // 4
    rows["thread"], rows["stream"] = 1 + thread, 0x100 * (1 + thread)
    rows["correlation"] = records["correlation"] = 1 + number * calls + np.arange(calls)
    rows["function"] = np.arange(calls) // threads % 50 == 49
    records["kind"], records["name"], records["context"], records["stream"] = RecordKind.KERNEL, 1, 1, 7 + thread
    records["start"] = rows["returned_ns"] + step // 8
    records["end"] = records["start"] + span // calls // 3
    launches = rows["function"] == 0
    return RecordBatch(records[launches], {1: "add"}, 0, 0), CallBatch(rows, {0: LAUNCH, 1: SYNC}, 0)


def measure(rate: int, threads: int, seconds: int) -> float:
    """The CPU time (s) for each second of a program with so many calls and records together."""
    divider, taken = ProcessDivider(), 0.0
    for number in range(READINGS * seconds):
        batches = reading(number, rate // READINGS // 2, threads)
        read = process(now=0).changed(started=replace(process().started, monotonic_ns=BASE_NS))
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
    seconds, within = parser.parse_args().seconds, True
    for rate, most in CASES:
        for threads in (1, 4):
            share = measure(rate, threads, seconds)
            print(f"{rate} calls and records a second, {threads} threads: {100 * share:.1f} % of a core", flush=True)
            within &= share <= most
    return int(not within)


if __name__ == "__main__":
    sys.exit(main())
