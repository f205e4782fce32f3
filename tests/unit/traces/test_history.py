"""The history of a live timeline: what it knows of the engine and of calls in flight when it begins in the middle."""

from __future__ import annotations

from factories.traces import advance, history_of, traced_machine
from stallprobes.engine.timeline.reader import read_rows
from stallprobes.model import MS
from stallprobes.patterns import patterns
from stallprobes.traces.delay import DelayCause, delay_of
from stallprobes.traces.engine_gaps import foreign_gaps
from stallprobes.traces.trace import OPEN

PROBES = patterns()["secondary-context-d2d"].variant("kernel-other-context").probes


def test_a_history_that_begins_later_claims_nothing_of_the_engine_before_its_first_change() -> None:
    made = traced_machine(*PROBES)
    made.advance(300 * MS)
    status = made.backend.timeline()
    assert status is not None
    history = history_of(PROBES)
    rows = read_rows(made.board, history.position, status)
    history.position, history.started_ns = rows.position, rows.at_ns
    assert history.trace(0, rows.at_ns).engine_since_ns == rows.at_ns
    advance(made, history, 100 * MS)
    trace = history.trace(history.begin_ns, history.collected_ns)
    assert history.begin_ns == rows.at_ns
    assert trace.begin_ns < trace.engine_since_ns < trace.end_ns
    assert trace.engine_known_ns == trace.engine_since_ns
    assert int(trace.tenures["start_ns"].min()) >= trace.engine_since_ns
    # Work that waited across that time: the part before it has no cause, and no gap is another process's.
    early = [delay_of(trace, row) for row in trace.work]
    parts = [
        part for delay in early if delay is not None for part in delay.parts if part.end_ns <= trace.engine_since_ns
    ]
    assert {part.cause for part in parts} <= {DelayCause.UNKNOWN, DelayCause.STREAM}
    assert len(foreign_gaps(trace)) == 0
    assert len(foreign_gaps(trace.changed(engine_since_ns=0, tenures=trace.tenures[:0]))) > 0


def test_a_call_that_returned_after_the_snapshot_is_not_in_flight() -> None:
    made = traced_machine(*PROBES)
    history = history_of(PROBES)
    advance(made, history, 300 * MS)
    snapshot = made.board.snapshot()
    while not any(part.in_flight for part in snapshot.probes.values()):
        advance(made, history, MS)
        snapshot = made.board.snapshot()
    flying = history.trace(0, history.collected_ns, snapshot=snapshot).open_calls
    assert flying
    # Those that began after a trace are not in it.
    before = history.trace(0, min(call.since_ns for call in flying), snapshot=snapshot)
    assert before.open_calls == ()
    advance(made, history, 50 * MS)
    later = history.trace(0, history.collected_ns, snapshot=snapshot)
    returned = {int(probe) for probe in later.calls["probe"]}
    assert not [call for call in later.open_calls if call.probe in returned]
    assert int(later.calls["returned_ns"].max()) < OPEN
