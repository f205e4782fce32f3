"""Cost of traces in recordings: their size, processor time to write and read one, and that of looking for slow calls.

    python tests/benchmarks/bench_recorded_traces.py [--seconds 10]

It needs no GPU: six probes at 1 kHz of the simulated GPU run in virtual time, with the spin kernel of another context
in the last third. Times are processor time of this process; the simulation itself is not counted.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from factories.simulated_machine import machine  # noqa: E402
from stallprobes.catalog import Placement, entries  # noqa: E402
from stallprobes.engine.timeline.reader import read_rows  # noqa: E402
from stallprobes.files.codec import decoded, encoded  # noqa: E402
from stallprobes.live.analyzer import Analyzer  # noqa: E402
from stallprobes.live.trace_keeper import TraceKeeper  # noqa: E402
from stallprobes.model import MS, SECONDARY, Probe  # noqa: E402
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, Observation, ProbeSet  # noqa: E402
from stallprobes.traces.codec import MOST_ROWS, StoredTrace, cut  # noqa: E402
from stallprobes.traces.summary import summary  # noqa: E402
from stallprobes.traces.trace import Trace  # noqa: E402

WALL_S = 1_770_000_000.0
STEP_NS = 100 * MS


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    known = entries()
    victims = [known[name].probe() for name in ("launch", "d2h-pinned", "h2d-pinned", "event", "graph-launch")]
    probes = (*victims, known["d2d"].probe(Placement(SECONDARY)), known["spin"].probe(), known["host"].probe())
    kept = looked_for(probes, seconds)
    for trace in kept:
        print(f"  kept: {summary(trace)}")
    trace = kept[0]
    for least in (1, MOST_ROWS):
        stored(longer(trace, least))


def looked_for(probes: Sequence[Probe], seconds: float) -> list[Trace]:
    """The traces of a session; prints the cost of looking for them."""
    made = machine(*probes, together=True)
    made.backend.switch_timeline(True)
    aggressor = next(probe.name for probe in made.probes if probe.entry == "spin")
    made.switch(True)
    made.switch(False, [aggressor])
    probe_set = ProbeSet(title="benchmark", probes=made.probes, backend=SIM)
    kept: list[Trace] = []
    keeper, analyzer = TraceKeeper(made.probes, kept.append, simulated=True), Analyzer(probe_set)
    steps = round(seconds * 1e9) // STEP_NS
    spent_s = calls = records = 0.0
    for step in range(steps):
        if step == steps * 2 // 3:
            made.switch(True, [aggressor])
        made.advance(STEP_NS)
        status = made.backend.timeline()
        assert status is not None
        snapshot = made.board.snapshot()
        wall_s = WALL_S + snapshot.at_ns / 1e9
        observation = Observation(
            wall_s=wall_s,
            probe_set=probe_set,
            engine=EngineStatus(EngineCondition.READY),
            snapshot=snapshot,
            timeline=True,
        )
        analyzer.feed(observation)
        begun_s = time.process_time()
        found = read_rows(made.board, keeper.position, status)
        keeper.feed(found, observation, analyzer)
        spent_s += time.process_time() - begun_s
        calls += sum(map(len, found.calls.values()))
        records += len(found.records)
    keeper.finish()
    print(f"{calls / seconds:.0f} calls and {records / seconds:.0f} GPU records a second:")
    print(f"  looking for slow calls takes {1000 * spent_s / seconds:.1f} ms of processor time a second")
    return kept


def longer(trace: Trace, least: int) -> Trace:
    """Calls and work of ``trace``, repeated until they are ``least`` rows; repeated ones are compressed better."""
    while trace.row_count < least:
        by = trace.span_ns + 10**9
        calls, work = trace.calls.copy(), trace.work.copy()
        for table, columns in ((calls, "began_ns returned_ns"), (work, "start_ns end_ns began_ns returned_ns")):
            for column in columns.split():
                table[column] += by
        work["sequence"] += int(np.ptp(work["sequence"])) + 1
        calls, work = np.concatenate((trace.calls, calls)), np.concatenate((trace.work, work))
        trace = trace.changed(end_ns=trace.end_ns + by, calls=calls, work=work)
    return trace


def stored(trace: Trace) -> None:
    """Print size and times of one trace."""
    begun_s = time.process_time()
    part = cut(trace)
    cut_s = time.process_time()
    text = encoded(StoredTrace.of(part))
    packed = zlib.compress(text, 6)
    written_s = time.process_time()
    decoded(text, StoredTrace).trace()
    read_s = time.process_time()
    print(f"{part.row_count} of {trace.row_count} rows: {len(text) / 1000:.0f} KB, {len(packed) / 1000:.0f} KB stored;")
    times = (cut_s - begun_s, written_s - cut_s, read_s - written_s)
    print("  cut {:.0f} ms, write {:.0f} ms, read {:.0f} ms".format(*(1000 * one for one in times)))


if __name__ == "__main__":
    main()
