"""The time that the GPU takes from one operation of a stream to the next, where the host submits them late."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from factories.call_tables import operation_table
from stallprobes.watch.division.instants import NO_CALLS, SequenceTimes, Spans
from stallprobes.watch.division.least_gaps import LeastGaps
from stallprobes.watch.intervals import int64s

KERNEL_NS = 2_000


def kernels(gaps: list[int], late: bool = True, streams: int = 1) -> SequenceTimes:
    """Kernels behind gaps (ns), submitted at the end of the one before, or long before."""
    starts = np.cumsum(np.array(gaps) + KERNEL_NS).astype(np.int64)
    work = operation_table(
        starts,
        starts + KERNEL_NS,
        engine=True,
        returned=starts - (500 if late else 50_000),
        streams=np.arange(len(starts)) % streams,
    )
    return SequenceTimes(threads={1: NO_CALLS}, work=work, recorded=Spans(int64s([0]), int64s([2**62])))


def found(times: SequenceTimes) -> list[int]:
    return list(map(int, LeastGaps().of(times, 0, 2**62)[1]))


def test_each_gap_has_the_least_one_that_was_seen() -> None:
    assert found(kernels([1_100, 2_500] * 50)) == [1_100] * 99


def test_a_shorter_gap_counts_as_long_as_it_is() -> None:
    assert found(kernels([1_100] * 300 + [600]))[-1] == 600


def test_few_gaps_or_long_ones_show_nothing() -> None:
    assert found(kernels([1_100] * 10)) == []
    assert found(kernels([5_000] * 100)) == []


def test_what_was_submitted_before_is_apart_as_a_gap_between_kernels() -> None:
    assert found(kernels([1_100, 2_500] * 50, late=False)) == []


def test_a_gap_between_streams_has_no_least_time() -> None:
    assert found(kernels([1_100, 2_500] * 50, streams=2)) == []


def test_only_gaps_within_one_time_with_records_count() -> None:
    times = kernels([1_100] * 100)
    border = int(times.work.ends[49]) + 500
    parts = Spans(int64s([0, border]), int64s([border, 2**62]))
    assert len(found(replace(times, recorded=parts))) == 98
