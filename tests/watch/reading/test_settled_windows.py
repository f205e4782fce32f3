"""Windows with records settle by the work that was submitted in them, in a program that never waits inside a call."""

from __future__ import annotations

import numpy as np

from factories.watch_calls import LAUNCH, SYNC, call_batch, process, rows_of, slow
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.watch_file import Window
from stallprobes.records.rows import DRIVER_CALL
from stallprobes.watch.reading.process import CallBatch, ClockPair, RecordBatch, WatchedProcess
from stallprobes.watch.reading.record_windows import NEVER, RecordWindows
from stallprobes.watch.reading.settled_windows import LOOKED_AT, WindowSettler

# Each window takes so long; those with odd numbers have records.
LENGTH = 100


def watched(count: int, settled: dict[int, int] | None = None) -> WatchedProcess:
    rows = np.zeros(count, dtype_of(Window))
    for number, row in enumerate(rows):
        row["began_ns"] = 1 + LENGTH * number
        row["ended_ns"] = 1 + LENGTH * (number + 1) if number < count - 1 else 0
        row["records"], row["settled_ns"] = number % 2, (settled or {}).get(number, 0)
    return process().changed(windows=RecordWindows.of(rows))


def calls(*begins: int) -> CallBatch:
    """Calls with the numbers of their begins."""
    rows = np.zeros(len(begins), DRIVER_CALL)
    rows["began_ns"] = rows["correlation"] = begins
    rows["returned_ns"] = np.array(begins) + 1
    return CallBatch(rows, {}, 0)


def work(*times: tuple[int, int], kind: RecordKind = RecordKind.KERNEL, stream: int = 7) -> RecordBatch:
    """Work by the number of its call and its start."""
    rows = rows_of(
        [
            {"kind": kind, "start": start, "end": start + 1, "correlation": number, "stream": stream}
            for number, start in times
        ]
    )
    return RecordBatch(rows, {}, len(rows), 0)


def settled(found: WatchedProcess) -> list[int | None]:
    return [None if one == NEVER else one for one in found.windows.settled.tolist()]


def test_a_window_settles_when_the_first_work_starts_that_was_submitted_in_it() -> None:
    found = WindowSettler().feed(watched(3), work((110, 130), (105, 120), (111, 125)), calls(105, 110, 111))
    assert settled(found) == [None, 120, None]


def test_work_that_was_submitted_before_the_window_shows_nothing() -> None:
    found = WindowSettler().feed(watched(3), work((50, 120)), calls(50, 105))
    assert settled(found) == [None, None, None]


def test_a_wait_of_the_library_is_kept() -> None:
    settler = WindowSettler()
    assert settled(settler.feed(watched(3, {1: 115}), work((105, 120)), calls(105))) == [None, 115, None]
    # A window without records never settles, nor does a wait of the host show work.
    waits = work((205, 220), kind=RecordKind.SYNCHRONIZATION)
    assert settled(settler.feed(watched(4, {1: 115}), waits, calls(205))) == [None, 115, None, None]


def test_what_was_found_stays_known_when_many_windows_have_followed() -> None:
    settler = WindowSettler()
    settler.feed(watched(2), work((105, 120)), calls(105))
    for count in range(3, 3 * LOOKED_AT):
        found = settler.feed(watched(count), work(), calls())
    assert settled(found)[1] == 120
    assert settled(found)[2:] == [None] * (len(found.windows) - 2)


def test_records_may_come_after_their_calls() -> None:
    settler = WindowSettler()
    settler.feed(watched(2), work(), calls(105))
    assert settled(settler.feed(watched(3), work((105, 120)), calls())) == [None, 120, None]


def test_each_stream_of_the_window_before_has_to_have_work_in_it() -> None:
    settler = WindowSettler()
    settler.feed(watched(2), work((105, 120)), calls(105))
    settler.feed(watched(2), work((106, 130), stream=8), calls(106))
    # In the stream 8, what was submitted before the window may still run.
    assert settled(settler.feed(watched(4), work((305, 320)), calls(305)))[3] is None
    assert settled(settler.feed(watched(4), work((310, 350), stream=8), calls(310)))[3] == 350


def test_a_window_that_begins_without_work_is_settled() -> None:
    settler = WindowSettler()
    before = call_batch(
        [
            slow(LAUNCH, 0, 0, stream=7).changed(begin_ns=40, duration_ns=1),
            slow(SYNC, 0, 0, stream=7).changed(begin_ns=60, duration_ns=5),
        ]
    )
    running = process().changed(windows=watched(2).windows, started=ClockPair(1, 0))
    assert settled(settler.feed(running, work(), before)) == [None, 101]
