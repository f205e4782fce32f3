"""Codec of traces: what is written is read, a long one is cut around its trigger, and no other content is accepted."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from factories import mutations
from factories.traces import handmade_trace, simulated_trace
from stallprobes.catalog import Placement, entries
from stallprobes.errors import MalformedJson
from stallprobes.files.codec import decoded, encoded
from stallprobes.model import MS, SECONDARY
from stallprobes.traces.codec import MOST_ROWS, StoredTrace, cut
from stallprobes.traces.engine_gaps import foreign_gaps
from stallprobes.traces.summary import summary
from stallprobes.traces.trace import CounterSample, CounterTrack, Trace, TraceTrigger

VICTIM, AGGRESSOR = entries()["d2d"].probe(Placement(context=SECONDARY)), entries()["spin"].probe()
TABLES = ("calls", "work", "tenures", "overheads")


@pytest.fixture(scope="module")
def simulated() -> Trace:
    return simulated_trace(VICTIM, AGGRESSOR, entries()["d2h-pageable"].probe(), ns=60 * MS)


def stored(trace: Trace) -> Any:
    """``trace`` as JSON types."""
    return json.loads(encoded(StoredTrace.of(trace)))


def read(value: Any) -> Trace:
    """The trace that ``stored`` made. Raises MalformedJson, and ValueError for one that is not consistent."""
    return decoded(json.dumps(value).encode(), StoredTrace).trace()


def again(trace: Trace) -> Trace:
    """``trace`` written and read."""
    return read(stored(trace))


def assert_equal(one: Trace, other: Trace) -> None:
    for name in Trace.__struct_fields__:
        mine, theirs = getattr(one, name), getattr(other, name)
        if name in TABLES:
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            assert (mine == theirs).all(), name
        elif name == "wall_offset_s":
            assert theirs == pytest.approx(mine, abs=1e-6)
        else:
            assert mine == theirs, name


def test_a_trace_of_every_kind_of_row_comes_back() -> None:
    trace = handmade_trace(VICTIM, AGGRESSOR)
    assert all(len(getattr(trace, table)) for table in TABLES)
    assert_equal(trace, again(trace))


def test_counters_come_back_in_the_order_of_their_times() -> None:
    trace = handmade_trace(VICTIM, AGGRESSOR)
    samples = tuple(CounterSample(trace.begin_ns + at * MS, trace.begin_ns + (at + 1) * MS, 2.5) for at in range(4))
    counted = trace.changed(counters=(CounterTrack("SM active", "%", samples), CounterTrack("memory", "%", ())))
    assert_equal(counted, again(counted))
    part = counted.between(trace.begin_ns + 2 * MS, trace.end_ns)
    assert [len(track.samples) for track in part.counters] == [2, 0]
    for wrong in (samples[::-1], samples * 10_000):
        with pytest.raises(ValueError, match="counter"):
            again(trace.changed(counters=(CounterTrack("SM active", "%", wrong),)))


def test_a_simulated_trace_comes_back(simulated: Trace) -> None:
    assert_equal(simulated, again(simulated))
    # A piece of it has rows that begin before it.
    longest = max(simulated.calls, key=lambda row: row["returned_ns"] - row["began_ns"])
    middle = int(longest["began_ns"] + longest["returned_ns"]) // 2
    part = simulated.between(middle, middle + MS)
    assert len(part.calls)
    assert part.calls["began_ns"][0] < part.begin_ns
    assert_equal(part, again(part))
    nothing = simulated.between(0, 0).changed(names=simulated.names)
    assert nothing.row_count == 0
    assert_equal(nothing, again(nothing))


def test_a_row_that_ends_before_it_begins_is_left_out() -> None:
    trace = handmade_trace(VICTIM, AGGRESSOR)
    calls = trace.calls.copy()
    calls["returned_ns"][0] = calls["began_ns"][0] - 1
    assert len(again(trace.changed(calls=calls)).calls) == len(calls) - 1


def test_it_takes_a_few_bytes_a_row(simulated: Trace) -> None:
    assert len(encoded(StoredTrace.of(simulated))) < 50 * simulated.row_count


def test_a_long_trace_is_cut_around_its_trigger(simulated: Trace) -> None:
    assert cut(simulated) is simulated
    middle = simulated.calls[len(simulated.calls) // 2]
    trigger = TraceTrigger(int(middle["probe"]), int(middle["began_ns"]), int(middle["returned_ns"]))
    trace = simulated.changed(trigger=trigger)
    for most in (trace.row_count - 1, 100, 20):
        part = cut(trace, most)
        assert 0 < part.row_count <= most
        assert part.trigger_call() is not None
        assert trace.begin_ns <= part.begin_ns <= trigger.began_ns
        assert trigger.returned_ns <= part.end_ns <= trace.end_ns
    assert cut(trace, 100).row_count > 70
    assert 0 < cut(simulated, 100).row_count <= 100


def test_a_call_with_more_beside_it_is_cut_where_its_latency_ends(simulated: Trace) -> None:
    """The call takes most of the trace: what was there at its end is kept."""
    began, returned = simulated.begin_ns + MS, simulated.end_ns - 5 * MS
    trace = simulated.changed(trigger=TraceTrigger(0, began, returned))
    part = cut(trace, 60)
    assert 0 < part.row_count <= 60
    assert began < part.begin_ns < part.end_ns == returned
    assert len(cut(trace, 0).calls) == 0


def test_a_trace_cannot_be_cut_off_its_own_work() -> None:
    """The start on the GPU is a part of what the trace is about."""
    trace = handmade_trace(VICTIM, AGGRESSOR)
    assert trace.trigger is not None
    part = cut(trace, 7)
    own = trace.work_of(1)
    assert part.begin_ns <= trace.trigger.began_ns
    assert part.end_ns >= own["start_ns"][0]


def test_mutants_are_refused_with_a_sentence_or_are_consistent() -> None:
    base = stored(handmade_trace(VICTIM, AGGRESSOR))
    passed, sentences = 0, set()
    for number, mutant in enumerate(mutations.mutants(base, 12, 1000)):
        try:
            trace = read(mutant)
        except (MalformedJson, ValueError) as refused:
            sentences.add(str(refused))
            continue
        passed += 1
        try:
            summary(trace)
            foreign_gaps(trace)
            cut(trace, 3)
            again(trace)
        except Exception as error:
            raise AssertionError(f"mutant {number}: {error!r}") from error
    assert 30 < passed < 970
    assert not any("\n" in sentence or len(sentence) > 300 for sentence in sentences)


@pytest.mark.parametrize("bomb", ["count", "rows", "columns"])
def test_a_bomb_takes_little_memory(bomb: str) -> None:
    base, left = stored(handmade_trace(VICTIM, AGGRESSOR)), MOST_ROWS - handmade_trace(VICTIM, AGGRESSOR).row_count + 1
    start_ns = base["begin_ns"]
    # Constant columns claim more rows than the line has values.
    base["overheads"] = [10**15 if bomb == "count" else left, [[4], [1], [start_ns], [start_ns]]]
    if bomb == "columns":
        base["overheads"] = [1, [[0]] * 10**6]
    text = json.dumps(base).encode()
    tracemalloc.start()
    try:
        if bomb != "rows":
            with pytest.raises((MalformedJson, ValueError)):
                decoded(text, StoredTrace).trace()
        else:
            assert decoded(text, StoredTrace).trace().row_count == MOST_ROWS
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_more_rows_than_the_limit_are_refused() -> None:
    base = stored(handmade_trace(VICTIM, AGGRESSOR))
    base["overheads"] = [MOST_ROWS, [[4], [1], [base["begin_ns"]], [base["begin_ns"]]]]
    with pytest.raises(ValueError, match="has more than 20000 rows"):
        read(base)
