"""Calls that are not divided yet: what overheads of CUPTI and records of copies say of them."""

from __future__ import annotations

import numpy as np
import pytest

from factories.call_tables import call_table, operation_table
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import OverheadKind, RecordKind
from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.native.layouts.watch_file import WatchRecord
from stallprobes.watch.division.instants import COPY, Calls, Limits
from stallprobes.watch.division.pending import with_copies_that_block, with_overheads

SUBMITS, QUEUES, LOADS = int(CallKind.SUBMITS), int(CallKind.QUEUES), int(CallKind.LOADS)
FULL, LOADING = OverheadKind.COMMAND_BUFFER_FULL, OverheadKind.MODULE_LOADING


def rows(calls: Calls) -> list[tuple[int, int, int]]:
    """The begin, the end and the kind of each call."""
    return list(zip(calls.begins.tolist(), calls.ends.tolist(), calls.kinds.tolist(), strict=True))


@pytest.mark.parametrize(
    ("reason", "spans", "expected"),
    [
        (FULL, [(100, 195)], [(100, 200, QUEUES)]),
        (FULL, [(110, 140)], [(100, 170, SUBMITS), (170, 200, QUEUES)]),
        (FULL, [(110, 140), (150, 180)], [(100, 140, SUBMITS), (140, 200, QUEUES)]),
        (FULL, [(0, 10**18)], [(100, 200, QUEUES)]),
        (LOADING, [(110, 170)], [(100, 200, LOADS)]),
        (LOADING, [(110, 140)], [(100, 200, SUBMITS)]),
        (FULL, [], [(100, 200, SUBMITS)]),
    ],
)
def test_the_time_in_which_a_call_finds_the_queue_full_is_a_call_of_its_own(
    reason: OverheadKind, spans: list[tuple[int, int]], expected: list[tuple[int, int, int]]
) -> None:
    calls = call_table([100], [200], SUBMITS, correlations=7)
    records = np.zeros(len(spans), dtype_of(WatchRecord))
    records["kind"], records["subkind"], records["correlation"] = int(RecordKind.OVERHEAD), int(reason), 7
    for record, (start, end) in zip(records, spans, strict=True):
        record["start"], record["end"] = start, end
    found = with_overheads(calls, records, {})
    assert rows(found) == expected


def test_a_call_waits_for_room_for_all_that_it_takes_longer_than_calls_that_find_room() -> None:
    begins, records = 1000 * np.arange(40), np.zeros(1, dtype_of(WatchRecord))
    ends = begins + np.where(np.arange(40) == 20, 500, 100)
    calls = call_table(begins, ends, SUBMITS, correlations=1 + np.arange(40))
    records["kind"], records["subkind"], records["correlation"] = int(RecordKind.OVERHEAD), int(FULL), 21
    # The thread has woken up later than the record says.
    records["start"], records["end"] = begins[20], begins[20] + 350
    usual = dict[int, int]()
    found = with_overheads(Calls.joined([calls]), records, usual)
    assert rows(found.where(found.kinds == QUEUES)) == [(20_100, 20_500, QUEUES)]
    assert usual == {0: 100}
    # Where all find it full, it is known from before.
    found = with_overheads(calls.at(slice(20, 21)), records, usual)
    assert rows(found) == [(20_000, 20_100, SUBMITS), (20_100, 20_500, QUEUES)]


@pytest.mark.parametrize(
    ("took_us", "pageable", "ended", "kind"),
    [
        # Its memory was allocated before the recording began.
        (50, True, False, CallKind.COPIES),
        (5, True, False, CallKind.SUBMITS),
        (50, False, False, CallKind.SUBMITS),
        (50, False, True, CallKind.SUBMITS),
        (150, False, True, CallKind.COPIES),
    ],
)
def test_a_record_says_whether_a_copy_is_of_pageable_memory(
    took_us: int, pageable: bool, ended: bool, kind: CallKind
) -> None:
    calls = call_table([0], [took_us * 1000], correlations=7)
    ends = calls.ends - 1 if ended else calls.ends + 1
    operations = operation_table(0, ends, COPY, correlations=7, pageable=pageable)
    with_copies_that_block(calls, operations, Limits())
    assert calls.kinds[0] == kind
