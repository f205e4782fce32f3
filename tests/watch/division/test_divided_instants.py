"""The division of single instants, held against a reference that divides one instant after the other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from factories.call_tables import call_table, operation_table
from factories.divided_instants import FLAGS, divided_one_by_one, totals
from stallprobes.native.layouts.driver_calls import CallKind, HostTask
from stallprobes.watch.division.instants import (
    COLUMNS,
    LEAST_GAPS,
    NO_SPANS,
    WAITING,
    Calls,
    LastEnd,
    Limits,
    Operations,
    SequenceTimes,
    Spans,
    instants_of,
    sums_of,
    united,
)
from stallprobes.watch.division.parts import NUMBERS, ORDER, Part
from stallprobes.watch.intervals import int64s

LENGTH = 60
SMALL = Limits(blocked_ns=6, wake_up_ns=4, launch_ns=2)
FOREVER = 2**62
moments = st.integers(0, LENGTH)


@st.composite
def disjoint(draw: st.DrawFn, most: int = 4) -> Spans:
    """Spans without overlap."""
    borders = sorted(draw(st.lists(moments, max_size=2 * most, unique=True)))
    borders = borders[: len(borders) // 2 * 2]
    return Spans(int64s(borders[::2]), int64s(borders[1::2]))


@st.composite
def thread_calls(draw: st.DrawFn, thread: int) -> Calls:
    spans = draw(disjoint(8))
    count = len(spans.begins)
    kinds = draw(st.lists(st.sampled_from(list(CallKind)), min_size=count, max_size=count))
    contexts = int64s(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    return call_table(*spans, int64s(kinds), thread=thread, contexts=contexts)


@st.composite
def holding(draw: st.DrawFn) -> Calls:
    spans = draw(disjoint())
    count = len(spans.begins)
    holds = draw(st.lists(st.sampled_from(list(HostTask)), min_size=count, max_size=count))
    contexts = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    return call_table(*spans, contexts=int64s(contexts), holds=int64s(holds))


@st.composite
def operations(draw: st.DrawFn, threads: dict[int, Calls]) -> Operations:
    """Work of calls, each of which may submit several operations, and work whose call is not known."""
    rows = []
    calls = [
        (thread, *span)
        for thread, of in threads.items()
        for span in zip(*map(np.ndarray.tolist, of.spans), strict=True)
    ]
    for _ in range(draw(st.integers(0, 8))):
        thread, begin, returned = draw(st.sampled_from([*calls, (-1, 0, -1)]))
        for _ in range(draw(st.integers(1, 3))):
            start = draw(st.integers(begin, LENGTH))
            end = draw(st.integers(start, min(start + 15, LENGTH)))
            rows.append(
                (start, end, draw(st.integers(0, 2)), draw(st.booleans()), returned, thread, draw(st.integers(0, 1)))
            )
    columns = int64s(sorted(rows, key=lambda row: row[0])).reshape(-1, 7).T
    starts, ends, kinds, engine, returned_, threads_, streams = (np.ascontiguousarray(column) for column in columns)
    return operation_table(starts, ends, kinds, engine=engine, returned=returned_, threads=threads_, streams=streams)


@st.composite
def sequences(draw: st.DrawFn) -> SequenceTimes:
    """Streams of several threads and streams, with graphs, other contexts, windows without records and lost records."""
    threads = {number: draw(thread_calls(number)) for number in range(draw(st.integers(1, 3)))}
    recorded = draw(st.one_of(st.just(Spans(int64s([0]), int64s([FOREVER]))), disjoint()))
    kernels = draw(st.one_of(st.just(NO_SPANS), disjoint()))
    return SequenceTimes(
        threads=threads,
        work=draw(operations(threads)),
        recorded=recorded,
        other_work=draw(disjoint()),
        holding=draw(holding()),
        elsewhere=(kernels, united((kernels, draw(disjoint())))),
        away=draw(disjoint()),
        lost=draw(st.one_of(st.just(NO_SPANS), disjoint(2))),
        last_end=LastEnd(draw(st.integers(-5, 5)), draw(st.integers(-1, 1))),
        kernel_streams=int64s(sorted(draw(st.sets(st.integers(0, 1))))),
        ended=draw(st.booleans()),
        limits=SMALL,
    )


def counted(times: SequenceTimes, begin: int, end: int, width: int = 1000) -> Counter[str]:
    borders = int64s(range(begin - begin % width, end, width))
    _, sums = sums_of(instants_of(times, begin, end, borders), 0, width)
    assert sums.shape[1] == COLUMNS
    total = sums.sum(axis=0).tolist()
    found = Counter({part.value: total[NUMBERS[part]] for part in ORDER})
    return +(found + Counter(dict(zip(FLAGS, total[WAITING:LEAST_GAPS], strict=True))))


@settings(max_examples=50, deadline=None)
@given(sequences())
def test_each_instant_has_the_part_of_the_reference(times: SequenceTimes) -> None:
    found: dict[int, tuple[Part | bool, ...]] = {}
    instants = instants_of(times, 0, LENGTH)
    columns: list[NDArray[Any]] = [instants.begins, instants.ends, instants.parts, *instants.flags]
    for begin, end, part, *flags in zip(*(of.tolist() for of in columns), strict=True):
        found |= dict.fromkeys(range(begin, end), (ORDER[part], *flags))
    assert found == {at: tuple(one) for at, one in divided_one_by_one(times, 0, LENGTH).items()}


@settings(max_examples=50, deadline=None)
@given(sequences(), moments, st.integers(1, 20))
def test_the_sums_of_slices_and_bins_are_those_of_the_whole(times: SequenceTimes, border: int, width: int) -> None:
    whole = counted(times, 0, LENGTH)
    assert counted(times, 0, border, width) + counted(times, border, LENGTH, width) == whole
    assert whole == totals(divided_one_by_one(times, 0, LENGTH))


@settings(max_examples=50, deadline=None)
@given(sequences())
def test_the_parts_are_the_recorded_time_without_remainder(times: SequenceTimes) -> None:
    parts = sum(count for name, count in counted(times, 0, LENGTH).items() if name in [part.value for part in Part])
    ends = np.minimum(times.recorded.ends, LENGTH)
    assert parts == int((ends - np.minimum(times.recorded.begins, LENGTH)).sum())
