"""Numbers that only a hostile process writes: they are dropped, or as large as a reader accepts."""

from __future__ import annotations

import numpy as np

from factories.watch_moments import findings
from stallprobes.files.codec import LARGEST_INTEGER
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.watch_file import WatchRecord
from stallprobes.watch.attribution.findings import TimeLost
from stallprobes.watch.attribution.record_store import RecordStore
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.reading.process import RecordBatch


def test_work_of_more_than_weeks_is_dropped() -> None:
    """Sums over the work of a call would be larger than any number that a reader accepts."""
    rows = np.zeros(5, dtype_of(WatchRecord))
    rows["kind"] = RecordKind.KERNEL
    rows["start"] = [10, 10, 2**61, 2**63, 30]
    rows["end"] = [20, 2**61, 2**61 + 5, 2**63 + 5, 20]
    store = RecordStore()
    store.add(RecordBatch(rows, {}, 5, 0))
    # One that ends before it begins is left for others to judge.
    assert store.rows["start"].tolist() == [10, 2**61, 30]


def test_sums_of_calls_of_years_are_numbers_that_a_reader_accepts() -> None:
    (process,) = findings(4).processes
    years = TimeLost(WaitCause.UNATTRIBUTED, None, "", 1, 2**62, 0)
    changed = process.changed(lost=(years, years))
    assert (changed.lost_ns, changed.unattributed_ns) == (LARGEST_INTEGER, LARGEST_INTEGER)
    thread = changed.threads[0].changed(lost=(years, years))
    assert thread.lost_ns == LARGEST_INTEGER
