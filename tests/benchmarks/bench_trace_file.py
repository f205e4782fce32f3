"""Cost of a trace's exports: processor time and memory of the file for Perfetto, of the text and of the SVG image.

    python tests/benchmarks/bench_trace_file.py [--events 200000]

It needs no GPU: the trace is made of probes at 1 kHz, of which one in ten waits 2 ms for another context, and of a
back-to-back launcher whose work queues.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "probes")]

from stallprobes.native.layouts.cupti import CopyKind, RecordKind  # noqa: E402
from stallprobes.records.rows import CALL, OVERHEAD, TENURE, WORK  # noqa: E402
from stallprobes.traces import chrome  # noqa: E402
from stallprobes.traces.chrome import TitledTrace  # noqa: E402
from stallprobes.traces.ranking import slowest_row  # noqa: E402
from stallprobes.traces.trace import Trace, TracedProbe, TraceNames  # noqa: E402

PERIOD_NS = 1_000_000
SLICE_NS, CHANGE_NS = 2_000_000, 80_000
QUEUED = 500


def trace_of(events: int) -> Trace:
    """A trace of about ``events`` events: half are those of the launcher, the others those of a copy."""
    launches, copies = events // 5, events // 10
    span = copies * PERIOD_NS
    step = span // launches
    began = np.arange(launches) * step
    # The GPU is behind by the length of the queue.
    started = began + QUEUED * step
    rows = [(0, 0, began, began + 2_000, started, step - 300, 1, 1, RecordKind.KERNEL, 0)]
    began = np.arange(copies) * PERIOD_NS
    delay = np.where(np.arange(copies) % 10 == 0, SLICE_NS, 3_000)
    rows.append(
        (1, 0, began, began + 4_000, began + 4_000 + delay, 1_700, 2, 2, RecordKind.COPY, CopyKind.DEVICE_TO_DEVICE)
    )
    calls, work = [], []
    for probe, op, begins, returns, starts, took, context, stream, kind, copy in rows:
        numbers = np.arange(len(begins))
        zero = np.zeros(len(begins), dtype=np.int64)
        called = (zero + probe, zero + op, numbers, begins, returns, zero + 1)
        calls.append(np.rec.fromarrays(called, dtype=CALL).view(np.ndarray))
        table = np.zeros(len(begins), WORK)
        columns = {
            "sequence": numbers + probe * launches, "kind": zero + int(kind), "start_ns": starts,
            "end_ns": starts + took, "context": zero + context, "stream": zero + stream,
            "probe": zero + probe, "iteration": numbers, "began_ns": begins, "returned_ns": returns,
            "subkind": zero + int(copy),
        }  # fmt: skip
        for column, values in columns.items():
            table[column] = values
        work.append(table)
    slices = np.arange(span // (SLICE_NS + CHANGE_NS)) * (SLICE_NS + CHANGE_NS)
    tenures = np.rec.fromarrays((slices % 2 + 1, slices, slices + SLICE_NS), dtype=TENURE).view(np.ndarray)
    calls_table, work_table = np.concatenate(calls), np.concatenate(work)
    return Trace(
        begin_ns=0,
        end_ns=span,
        collected_ns=span,
        probes=(
            TracedProbe("launch", ("cuLaunchKernel",), "primary", "own"),
            TracedProbe("d2d", ("cuMemcpyDtoDAsync", "cuStreamSynchronize"), "secondary", "own"),
        ),
        names=TraceNames({1: "primary", 2: "secondary"}, {(1, 1): "own", (2, 2): "own"}),
        calls=calls_table[np.argsort(calls_table["began_ns"], kind="stable")],
        work=work_table[np.argsort(work_table["start_ns"], kind="stable")],
        tenures=tenures,
        overheads=np.empty(0, OVERHEAD),
        context_switches=True,
    )


def peak_mib() -> float:
    """The largest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(name: str, work: Callable[[], str]) -> None:
    """Print what ``work`` costs, and what it says."""
    before_mib, before_s = peak_mib(), time.process_time()
    said = work()
    print(f"{name:22} {time.process_time() - before_s:7.2f} s CPU, +{peak_mib() - before_mib:5.1f} MiB  {said}")


def main() -> None:
    """Print the cost of each export."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=200_000)
    trace = trace_of(parser.parse_args().events)
    print(f"{len(trace.calls)} calls, {len(trace.work)} pieces of work, {len(trace.tenures)} tenures")

    def plain() -> str:
        size = pieces = events = 0
        for chunk in chrome.chunks([TitledTrace(trace)], {}):
            size, pieces, events = size + len(chunk), pieces + 1, events + chunk.count(b"\n")
        return f"{events} events, {size / 1e6:.1f} MB in {pieces} pieces"

    def packed() -> str:
        packer, size = zlib.compressobj(wbits=31), 0
        for chunk in chrome.chunks([TitledTrace(trace)], {}):
            size += len(packer.compress(chunk))
        return f"{(size + len(packer.flush())) / 1e6:.1f} MB"

    report("file for Perfetto", plain)
    report("the same, .gz", packed)
    report("slowest call", lambda: f"row {slowest_row(trace)}")


if __name__ == "__main__":
    main()
