"""How a sequence's work is spread over streams, and what that says of its waits."""

from __future__ import annotations

import numpy as np
import pytest

from factories.call_tables import operation_table
from stallprobes.watch.division.binned_sums import since
from stallprobes.watch.division.instants import COPY, KERNEL, Operations
from stallprobes.watch.division.stream_sums import StreamSums, WorkSpread

MS = 1_000_000


def operations(*rows: tuple[int, int, int, bool]) -> Operations:
    """Operations one after the other, all submitted before: stream, length (ms), kind, and whether a kernel has few
    blocks."""
    streams, ms, kinds, few = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    ends = 1 + np.cumsum(ms * MS)
    return operation_table(ends - ms * MS, ends, kinds, streams=streams, few=few)


def use(*rows: tuple[int, int, int, bool]) -> WorkSpread:
    sums = StreamSums(0)
    made = operations(*rows)
    sums.add(made, made.ends > 0)
    return sums.use(since(0))


def test_without_work_nothing_could_overlap() -> None:
    assert use() == WorkSpread(0.0, 1.0)
    assert not use().could_overlap


@pytest.mark.parametrize(
    ("rows", "expected", "overlaps"),
    [
        (((7, 3, KERNEL, True), (7, 1, KERNEL, True)), WorkSpread(1.0, 1.0, 4 * MS), False),
        (((7, 3, KERNEL, True), (8, 1, KERNEL, True)), WorkSpread(1.0, 0.75, 3 * MS), True),
        # One that fills the GPU leaves no room.
        (((7, 3, KERNEL, False), (8, 1, KERNEL, True)), WorkSpread(0.25, 0.75, 3 * MS), False),
        # Copies are no kernels.
        (((7, 3, COPY, False), (8, 1, KERNEL, True)), WorkSpread(1.0, 0.75, 3 * MS), True),
    ],
)
def test_small_kernels_of_several_streams_could_overlap(
    rows: tuple[tuple[int, int, int, bool], ...], expected: WorkSpread, overlaps: bool
) -> None:
    assert use(*rows) == expected
    assert use(*rows).could_overlap is overlaps


def test_streams_beyond_the_limit_count_as_one() -> None:
    found = use(*((stream, 1, KERNEL, True) for stream in range(200)))
    assert found.busiest == pytest.approx((200 - 64) / 200)
