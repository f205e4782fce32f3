"""Time of the attribution of many slow calls by many records, as CPU seconds; and how it grows.

Threads wait for kernels of their streams, launch beside pageable copies of other threads, and load modules, while two
contexts alternate on the GPU. Exits 1 above 20 s, or if twice as much takes more than three times as long.

python tests/benchmarks/bench_attribution.py [CALLS [RECORDS]]
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.watch_calls import D2H, LAUNCH, NAMES, SYNC, US, known_streams, rows_of, slow
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.cupti import MemoryKind, OverheadKind, RecordKind, SwitchOperation
from stallprobes.watch.attribution.record_store import RecordStore
from stallprobes.watch.causes.facts import Recorded
from stallprobes.watch.causes.order import attribute
from stallprobes.watch.reading.process import RecordBatch, SlowDriverCall

LIMIT_S = 20.0
MOST_GROWTH = 3.0
THREADS = 64
# The period of a thread's calls in µs, and the length of each.
PERIOD, LENGTH = 4_000, 2_500
BASE_NS = 1_000_000_000


def made(calls: int, records: int) -> tuple[list[SlowDriverCall], RecordBatch]:
    """Slow calls of ``THREADS`` threads and activity records of the same time."""
    found = []
    for number in range(calls):
        thread, step = number % THREADS, number // THREADS
        begin, name = step * PERIOD + thread, (SYNC, LAUNCH, D2H)[thread % 3]
        pageable = {"source": MemoryKind.DEVICE, "target": MemoryKind.PAGEABLE} if name == D2H else {}
        found.append(
            slow(name, begin, begin + LENGTH, thread=thread + 1, correlation=8 * number + 5, stream=thread, **pageable)
        )
    rows = np.zeros(records, dtype_of(layout.WatchRecord))
    random = np.random.default_rng(5)
    span = calls // THREADS * PERIOD * US
    rows["kind"], rows["context"] = int(RecordKind.KERNEL), 1
    rows["start"] = BASE_NS + np.sort(random.integers(0, span, records))
    rows["end"] = rows["start"] + random.integers(1, 2 * span // records * THREADS, records).astype(np.uint64)
    rows["stream"] = 100 + random.integers(0, THREADS, records)
    rows["correlation"] = 8 * np.arange(records) * calls // records + 1
    rows["name"] = random.integers(1, len(NAMES) + 1, records)
    loads = rows[:: max(records // 1000, 1)].copy()
    loads["kind"], loads["subkind"] = int(RecordKind.OVERHEAD), int(OverheadKind.MODULE_LOADING)
    loads["correlation"] = 8 * random.integers(0, calls, len(loads)) + 5
    switches = rows_of([{"kind": int(RecordKind.CONTEXT_SWITCH)}]).repeat(span // (1_000 * US))
    switches["start"] = 7 * BASE_NS + 1_000 * US * np.arange(len(switches)) + random.integers(0, 100_000, len(switches))
    switches["context"] = 1 + np.arange(len(switches)) // 2 % 2
    switches["subkind"] = np.where(np.arange(len(switches)) % 2, int(SwitchOperation.END), int(SwitchOperation.START))
    every = np.concatenate((rows, loads, switches))
    return found, RecordBatch(every, NAMES, len(every), 0)


def cpu_seconds() -> float:
    """CPU time of this process."""
    times = os.times()
    return times.user + times.system


def measure(calls: int, records: int) -> float:
    """CPU seconds of the attribution of ``calls`` by ``records``; prints them with the causes."""
    found, batch = made(calls, records)
    excess = [one.duration_ns - 5 * US for one in found]
    began = cpu_seconds()
    store = RecordStore()
    store.add(batch)
    streams = known_streams({thread: 100 + thread for thread in range(THREADS)})
    explained = attribute(found, excess, Recorded(store.rows, store.names, store.tenures(), streams=streams))
    taken = cpu_seconds() - began
    causes = Counter(str(one.cause) for one in explained)
    print(f"{calls:9} calls {len(batch):9} records {taken:7.2f} s  {dict(causes)}")
    return taken


def main(calls: int = 100_000, records: int = 1_000_000) -> int:
    """Print the times; the exit code."""
    half, whole = measure(calls // 2, records // 2), measure(calls, records)
    print(f"growth {whole / half:.2f} for twice as much, limit {MOST_GROWTH}; limit {LIMIT_S:.0f} s")
    return int(whole > LIMIT_S or whole > MOST_GROWTH * half)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
