"""Windows in which records are on or off, and work that runs when they go off."""

from __future__ import annotations

import numpy as np

from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.watch_file import WatchRecord
from stallprobes.watch.reading.record_windows import NEVER, NO_WINDOWS, RecordWindows


def windows(*made: tuple[int, int, bool]) -> RecordWindows:
    """Windows with their begins, ends and whether records are on."""
    begins, ends, on = (np.array(values) for values in zip(*made, strict=True))
    none = np.zeros(len(made), dtype=np.int64)
    return RecordWindows(begins, ends, on, on & False, begins, none, none, none, none, none)


def ends_of(made: RecordWindows, *work: tuple[int, int], kind: RecordKind = RecordKind.KERNEL) -> list[int]:
    rows = np.zeros(len(work), dtype_of(WatchRecord))
    rows["start"], rows["end"] = zip(*work, strict=True)
    rows["kind"] = int(kind)
    ends: list[int] = made.cut(rows)["end"].tolist()
    return ends


def test_work_ends_where_its_records_went_off() -> None:
    made = windows((100, 200, True), (200, 500, False), (500, 600, True), (600, NEVER, False))
    work = [(110, 150), (190, 10_190), (195, 200), (590, 601), (300, 900), (550, 590), (50, 900)]
    assert ends_of(made, *work) == [150, 200, 200, 600, 900, 590, 900]
    # Times of the host are right.
    assert ends_of(made, (190, 10_190), kind=RecordKind.OVERHEAD) == [10_190]


def test_windows_that_follow_each_other_are_one() -> None:
    made = windows((100, 200, True), (200, 400, True), (400, 500, False))
    assert ends_of(made, (150, 350), (150, 450), (399, 9000)) == [350, 400, 400]
    # The last one has ended with the recording.
    assert ends_of(windows((100, 200, False), (200, 300, True)), (250, 9000)) == [300]


def test_nothing_ends_while_records_are_on() -> None:
    for made in (windows((100, NEVER, True)), windows((100, NEVER, False)), NO_WINDOWS):
        assert ends_of(made, (150, 10**12)) == [10**12]
