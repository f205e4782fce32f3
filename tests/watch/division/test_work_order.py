"""Which operation waited for one of another stream, and what replays of that order say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from factories.call_tables import call_table, operation_table
from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.instants import (
    COPY,
    KERNEL,
    Operations,
    SequenceTimes,
    Spans,
    instants_of,
)
from stallprobes.watch.division.short_gains import SubmittedOrder, saved_without_frees
from stallprobes.watch.division.work_order import WorkOrder
from stallprobes.watch.intervals import Int64s, int64s

MS, LAUNCH_NS = 1_000_000, 5_000
# Stream, begin and end (ms), and kind.
Row = tuple[int, float, float, int]


def work(*rows: Row, submitted: float = 0.0, few: bool = True) -> Operations:
    streams, begins, ends, kinds = zip(*rows, strict=True)
    return operation_table(
        np.array(begins) * MS,
        np.array(ends) * MS,
        kinds,
        engine=True,
        few=few & (np.array(kinds) == KERNEL),
        returned=round(submitted * MS),
        streams=streams,
    )


def order(*rows: Row, few: bool = True) -> WorkOrder | None:
    return WorkOrder.of(work(*rows, few=few), LAUNCH_NS)


@pytest.mark.parametrize(
    ("middle", "behind", "avoidable"),
    [
        # The third kernel starts behind the one of another stream, though its own stream is free.
        ((8, 1, 4, KERNEL), 1, True),
        ((8, 1, 4, COPY), 1, False),
        # Not behind it, but a while later.
        ((8, 1, 3.9, KERNEL), -1, False),
        # In its own stream.
        ((7, 1, 4, KERNEL), -1, False),
    ],
)
def test_an_operation_that_starts_behind_one_of_another_stream_waited_for_it(
    middle: Row, behind: int, avoidable: bool
) -> None:
    found = order((7, 0, 1, KERNEL), middle, (7, 4, 6, KERNEL), (9, 9, 10, COPY))
    assert found is not None
    assert (found.behind[2], found.avoidable[2]) == (behind, avoidable)


def test_an_operation_that_was_submitted_late_waited_for_no_stream() -> None:
    made = work((7, 0, 1, KERNEL), (8, 1, 4, KERNEL), (7, 4, 6, KERNEL), submitted=4 - LAUNCH_NS / MS / 2)
    found = WorkOrder.of(made, LAUNCH_NS)
    assert found is not None
    assert found.behind.tolist() == [-1, -1, -1]


def test_streams_with_kernels_that_fill_the_gpu_are_one_line() -> None:
    assert order((7, 0, 1, KERNEL), (8, 1, 4, KERNEL), few=False) is None
    found = order((7, 0, 1, KERNEL), (8, 1, 4, KERNEL), (9, 4, 5, COPY), few=False)
    assert found is not None
    assert found.lines[0] == found.lines[1] != found.lines[2]


def replayed(found: WorkOrder, released: list[float], groups: list[int]) -> dict[int, float]:
    places, ends = found.replayed(int64s(np.array(released) * MS), int64s(groups))
    return dict(zip(places.tolist(), (ends / MS).tolist(), strict=True))


def test_a_replay_starts_each_operation_as_soon_as_what_it_waits_for_has_ended() -> None:
    # A fork from stream 7 into 8 and 9, and a join.
    found = order((7, 0, 1, KERNEL), (8, 1, 4, KERNEL), (9, 1, 5, KERNEL), (7, 5, 6, KERNEL))
    assert found is not None
    assert found.behind.tolist() == [-1, 0, 0, 2]
    assert replayed(found, [0, 0, 0, 0], [0, 0, 0, 0]) == {0: 1, 1: 4, 2: 5, 3: 6}
    alone = found._replace(behind=int64s([-1] * 4))
    assert replayed(alone, [0, 0, 0, 0], [0, 0, 0, 0]) == {0: 1, 1: 3, 2: 4, 3: 2}
    assert replayed(alone, [0, 2, 0, 0], [0, 0, 0, 0])[1] == 5
    # In a group of its own, nothing is before it.
    assert replayed(found, [0, 0, 0, 0], [0, 0, 0, 1])[3] == 1


def test_a_replay_is_as_long_as_one_operation_after_the_other() -> None:
    random, count = np.random.default_rng(1), 2000
    lengths, streams = random.integers(20, 60, count) / 1000, random.integers(7, 10, count)
    rows, now, tails = list[Row](), 0.0, dict[int, float]()
    for number, (length, stream) in enumerate(zip(lengths.tolist(), streams.tolist(), strict=True)):
        # Each tenth operation waits for all others.
        now = max(tails.values(), default=0.0) + 0.001 if number % 10 == 0 else tails.get(stream, now) + 0.001
        rows.append((stream, now, now + length, KERNEL))
        tails[stream] = now + length
    rows.sort(key=lambda row: row[1])
    found = order(*rows)
    assert found is not None
    released, groups = random.integers(0, 5 * MS, count), np.sort(random.integers(0, 4, count))
    ends, last, current = list[int](), dict[int, int](), -1
    columns = (groups, released, found.lines, found.took, found.behind)
    for group, begin, line, took, behind in zip(*(each.tolist() for each in columns), strict=True):
        if group != current:
            current, last = group, {}
        waits = behind >= 0 and groups[behind] == group
        begin = max(begin, last.get(line, 0), ends[behind] if waits else 0)
        last[line] = begin + took
        ends.append(begin + took)
    places, made = found.replayed(int64s(released), int64s(groups))
    assert made.tolist() == [ends[place] for place in places.tolist()]
    assert {int(groups[place]) for place in places.tolist()} == set(groups.tolist())


def times(made: Operations, *calls: tuple[float, float, CallKind]) -> SequenceTimes:
    """Times of one thread: its calls' begins and ends (ms), and their kinds."""
    begins, ends, kinds = zip(*calls, strict=True)
    thread = call_table(int64s(np.array(begins) * MS), int64s(np.array(ends) * MS), kinds)
    return SequenceTimes(threads={1: thread}, work=made, recorded=Spans(int64s([0]), int64s([2**62])))


def saved(made: SequenceTimes, by: str, until: float) -> float:
    """The time (ms) saved until a time (ms)."""
    instants = instants_of(made, 0, round(until * MS))
    found = SubmittedOrder.of(made, 0, round(until * MS))
    assert found is not None
    _, ns = {
        "order": lambda: found.saved_order(made, instants),
        "copies": lambda: found.saved_copies(made, instants),
        "frees": lambda: saved_without_frees(made, instants, found),
        "overlap": lambda: found.overlap,
    }[by]()
    return float(ns.sum()) / MS


def test_kernels_without_their_order_save_what_the_longest_of_them_leaves() -> None:
    made = work((7, 0, 1, KERNEL), (8, 1, 4, KERNEL), (9, 1, 5, KERNEL), (7, 5, 6, KERNEL))
    waits = (0.0, 6.0, CallKind.WAITS)
    assert saved(times(made, waits), "order", 6) == pytest.approx(2)
    # The last one still waits for two that wait for the first: no waits of the host could be overlapped.
    assert saved(times(made, waits), "overlap", 6) == pytest.approx(0)


def test_work_of_a_stream_that_waits_for_the_host_alone_could_overlap() -> None:
    made = work((7, 0, 1, KERNEL), (8, 1, 4, KERNEL))
    made = replace(made, returned=int64s([0, 1 * MS - 2_000]))
    assert saved(times(made, (0.0, 0.9, CallKind.WAITS)), "overlap", 4) == pytest.approx(1)


def test_the_time_of_the_gpu_between_kernels_is_no_overlap() -> None:
    # Two streams, of which the first has as many gaps of its own as the second one is long.
    rows = [(7, 0.03 * number, 0.03 * number + 0.02, KERNEL) for number in range(100)]
    made = work(*rows, (8, 3, 4, KERNEL), submitted=-1)
    made = replace(made, returned=np.where(made.streams == 8, 3 * MS - 2_000, made.returned))
    assert saved(times(made, (0.0, 2.9, CallKind.WAITS)), "overlap", 4) == pytest.approx(1, abs=0.03)


def steps(of: list[tuple[Row, float]], call: tuple[float, float, CallKind], length: float) -> SequenceTimes:
    """Six steps of some operations, each with when it was submitted, with a call and a wait at the end."""
    rows, returned, calls = list[Row](), list[float](), list[tuple[float, float, CallKind]]()
    for number in range(6):
        at = number * length
        rows += [(stream, at + begin, at + end, kind) for (stream, begin, end, kind), _ in of]
        returned += [at + submitted for _, submitted in of]
        calls += [(at + call[0], at + call[1], call[2]), (at + length - 0.2, at + length - 0.1, CallKind.WAITS)]
    return times(replace(work(*rows), returned=returned_ns(returned)), *calls)


def returned_ns(ms: list[float]) -> Int64s:
    return int64s(np.array(ms) * MS)


def test_copies_inside_a_free_are_what_it_waits_for() -> None:
    # A copy, and a kernel that waits for it; the free waits for both.
    made = steps([((8, 0, 5, COPY), 0.0), ((7, 5, 8, KERNEL), 0.0)], (0.1, 8.0, CallKind.FREES), 8.5)
    assert saved(made, "copies", 6 * 8.5) == pytest.approx(6 * 5, rel=0.1)
    # Without the free, the wait would wait for as much.
    assert saved(made, "frees", 6 * 8.5) == pytest.approx(0, abs=6 * 0.4)


def test_without_a_free_a_copy_could_run_beside_the_kernel() -> None:
    made = steps([((7, 0, 4, KERNEL), 0.0), ((8, 4.2, 8.2, COPY), 4.1)], (0.1, 4.1, CallKind.FREES), 8.5)
    assert saved(made, "frees", 6 * 8.5) == pytest.approx(6 * 4, rel=0.15)
