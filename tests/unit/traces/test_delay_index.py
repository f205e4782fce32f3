"""The delay index: for each piece of work it finds what the delay by itself finds, and the ranking that uses it."""

from __future__ import annotations

import numpy as np
import pytest

from factories.traces import simulated_trace
from stallprobes.catalog import Placement, entries
from stallprobes.model import MS, SECONDARY
from stallprobes.traces import delay_index
from stallprobes.traces.delay import DelayCause, cause_text, delay_of
from stallprobes.traces.delay_index import DelayIndex
from stallprobes.traces.ranking import most_unusual_call, ranked_calls
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


def test_the_index_gives_the_delay_itself(traces: dict[str, Trace]) -> None:
    trace = traces["contexts"]
    index = DelayIndex(trace)
    assert [index.delay_of(row) for row in range(len(trace.work))] == [delay_of(trace, work) for work in trace.work]


def test_calls_rank_by_what_they_and_their_work_waited(traces: dict[str, Trace]) -> None:
    trace = traces["contexts"]
    ranked = ranked_calls(trace, 4)
    assert [trace.probes[each.probe].name for each in ranked] == ["d2d@secondary"] * 4
    waits = [each.call_ns + each.delay.ns for each in ranked if each.delay is not None]
    assert waits == sorted(waits, reverse=True)
    assert {each.cause for each in ranked} == {"context primary had the engine"}
    # Calls that only wait do not take part, and neither does a queue behind itself.
    assert {each.op for each in ranked} == {0}
    (launch,) = ranked_calls(trace, 1, probes={2})
    assert trace.probes[launch.probe].name == "launch"


def test_the_most_unusual_call_is_that_of_a_victim(traces: dict[str, Trace]) -> None:
    trace = traces["contexts"]
    row = most_unusual_call(trace)
    assert row is not None
    assert trace.probes[trace.calls["probe"][row]].name == "d2d@secondary"
    assert most_unusual_call(trace, probes=()) is None
    assert ranked_calls(trace.between(0, 1), 3) == ()


def test_a_call_without_known_work_has_no_delay(traces: dict[str, Trace]) -> None:
    trace = traces["contexts"]
    (ranked, *_) = ranked_calls(trace.changed(work=trace.work[:0]), 1)
    assert (ranked.delay, ranked.cause) == (None, "")
    assert ranked.call_ns == int(
        (trace.calls["returned_ns"] - trace.calls["began_ns"])[
            (trace.calls["op"] == 0) | (trace.calls["probe"] != 1)
        ].max()
    )


def test_an_unknown_call_does_not_wait(traces: dict[str, Trace]) -> None:
    trace = traces["contexts"]
    work = trace.work.copy()
    work["probe"] = -1
    assert all(each.delay is None for each in ranked_calls(trace.changed(work=work), 3))
