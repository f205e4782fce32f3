"""The delay index: for each piece of work it finds what the delay by itself finds; and the calls that stand out."""

from __future__ import annotations

import numpy as np
import pytest

from factories.traces import simulated_trace
from stallprobes.catalog import Placement, entries
from stallprobes.model import MS, SECONDARY
from stallprobes.traces import delay_index
from stallprobes.traces.delay import DelayCause, cause_text, delay_of
from stallprobes.traces.delay_index import DelayIndex
from stallprobes.traces.ranking import most_unusual_call, slowest_row
from stallprobes.traces.trace import Trace


def trace_of(*names: str, ns: int = 100 * MS) -> Trace:
    probes = [entries()[name].probe(Placement(context=SECONDARY) if name == "d2d" else None) for name in names]
    return simulated_trace(*probes, ns=ns)


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    """A copy beside the kernel of another context, small copies behind large ones in the same direction, and copies to
    another GPU behind one that waits for a kernel."""
    return {
        "contexts": trace_of("spin", "d2d", "launch"),
        "copies": trace_of("d2h-pinned-large", "d2h-pinned", "scalar-readback-pinned"),
        "peer": trace_of("peer-copy", "peer-copy-behind-kernel", "d2h-pinned", ns=400 * MS),
    }


def main_cause(trace: Trace, row: int) -> str:
    delay = delay_of(trace, trace.work[row])
    part = None if delay is None else delay.main()
    return "" if part is None or part.cause is DelayCause.UNKNOWN else cause_text(trace, part)


@pytest.mark.parametrize("most_rows", [delay_index._MOST_ROWS, -1], ids=["exact", "sums"])
@pytest.mark.parametrize("name", ["contexts", "copies", "peer"])
def test_the_index_finds_the_same_causes(
    traces: dict[str, Trace], name: str, most_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delay_index, "_MOST_ROWS", most_rows)
    trace = traces[name]
    index = DelayIndex(trace)
    late = np.flatnonzero(trace.work["start_ns"] - trace.work["returned_ns"] > 10_000)
    late = late[trace.work["returned_ns"][late] > trace.begin_ns]
    assert len(late) > 5
    assert {row: index.cause_text(row) for row in late.tolist()} == {
        row: main_cause(trace, row) for row in late.tolist()
    }


def test_the_slowest_call_is_that_with_its_work_waited_longest(traces: dict[str, Trace]) -> None:
    trace = traces["contexts"]

    def latency(row: int | None) -> int:
        assert row is not None
        ended = max([trace.calls["returned_ns"][row], *trace.work_of(row)["start_ns"]])
        return int(ended - trace.calls["began_ns"][row])

    row = slowest_row(trace)
    assert row is not None
    # Calls that only wait do not take part.
    assert trace.calls[row][["probe", "op"]].tolist() == (1, 0)
    copies = np.flatnonzero((trace.calls["probe"] == 1) & (trace.calls["op"] == 0))
    assert latency(row) == max(map(latency, copies.tolist()))
    launch = slowest_row(trace, probes={2})
    assert launch is not None
    assert trace.calls["probe"][launch] == 2


def test_the_most_unusual_call_is_that_of_a_victim(traces: dict[str, Trace]) -> None:
    trace = traces["contexts"]
    row = most_unusual_call(trace)
    assert row is not None
    assert trace.probes[trace.calls["probe"][row]].name == "d2d@secondary"
    assert most_unusual_call(trace, probes=()) is None
    assert slowest_row(trace.between(0, 1)) is None


def test_work_that_is_not_known_does_not_count(traces: dict[str, Trace]) -> None:
    trace = traces["contexts"]
    work = trace.work.copy()
    work["probe"] = -1
    for known in (trace.work[:0], work):
        row = slowest_row(trace.changed(work=known))
        times = trace.calls["returned_ns"] - trace.calls["began_ns"]
        assert times[row] == times[(trace.calls["op"] == 0) & (trace.calls["probe"] > 0)].max()
