"""The numbers of streams by their handles: as real programs were recorded, and by values made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from factories.recorded_divisions import FOLDER, READINGS, RecordedDivision
from factories.watch_calls import LAUNCH, MAIN, OTHER, SYNC, at_ns, call_batch, copy, kernel, rows_of, slow
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.watch.attribution.stream_numbers import StreamNumbers
from stallprobes.watch.reading.process import CallBatch, FinishedCall

PTSZ = "cuLaunchKernel_ptsz"
MINE, PER_THREAD = 0x11, 2


def streams_of_waits(recorded: RecordedDivision) -> list[tuple[int | None, int]]:
    """The number of the stream of each wait of a program, as it is found and by CUPTI's record of the wait."""
    numbers = StreamNumbers()
    # Records come a reading later than the calls.
    calls, records = (np.array_split(rows, READINGS) for rows in (recorded.calls, recorded.records))
    for made, arrived in zip((*calls, recorded.calls[:0]), (recorded.records[:0], *records), strict=True):
        numbers.add(CallBatch(made, recorded.functions, 0), arrived)
    waits = {int(row["correlation"]): row for row in recorded.calls if recorded.functions[row["function"]] == SYNC}
    rows = recorded.records[recorded.records["kind"] == RecordKind.SYNCHRONIZATION]
    pairs = [(wait, int(row["stream"])) for row in rows if (wait := waits.get(int(row["correlation"]))) is not None]
    return [
        (numbers.number_of(int(row["context"]), int(row["stream"]), int(row["began_ns"]), int(row["thread"]), SYNC), of)
        for row, of in pairs
    ]


def test_each_wait_of_real_programs_is_for_the_stream_of_cuptis_record_of_it() -> None:
    found = {path.stem: streams_of_waits(RecordedDivision.load(path)) for path in FOLDER.glob("*.npz")}
    assert {name for name, pairs in found.items() if any(one != other for one, other in pairs)} == set()
    assert (sum(map(len, found.values())), sum(map(bool, found.values()))) == (121_518, 21)


def launch(begin: float, correlation: int, *, stream: int = MINE, function: str = LAUNCH, **of: Any) -> FinishedCall:
    return slow(function, begin, begin + 5, correlation=correlation, stream=stream, **of)


def added(*readings: tuple[list[FinishedCall], list[Mapping[str, Any]]]) -> StreamNumbers:
    numbers = StreamNumbers()
    for calls, records in readings:
        numbers.add(call_batch(calls), rows_of(records))
    return numbers


def test_a_record_may_come_readings_after_its_call() -> None:
    numbers = added(([launch(0, 5)], []), ([launch(100, 6)], []), ([], [kernel(300, 310, correlation=5, stream=9)]))
    assert numbers.number_of(1, MINE, at_ns(50)) == 9
    # Of another context, and of another handle, nothing is known.
    assert numbers.number_of(2, MINE, at_ns(50)) is None
    assert numbers.number_of(1, MINE + 1, at_ns(50)) is None


def test_a_record_of_another_context_and_of_no_work_says_nothing() -> None:
    other = dict(kernel(0, 10, correlation=5)) | {"kind": RecordKind.OVERHEAD}
    numbers = added(([launch(0, 5)], [other, kernel(0, 10, correlation=5, context=2)]))
    assert numbers.number_of(1, MINE, at_ns(50)) is None


def test_a_handle_that_is_used_again_has_the_number_of_its_time() -> None:
    numbers = added(
        ([launch(0, 5)], [kernel(10, 20, correlation=5, stream=9)]),
        ([launch(1000, 8)], [kernel(1010, 1020, correlation=8, stream=12)]),
    )
    times = (-10, 500, 999, 1000, 5000)
    assert [numbers.number_of(1, MINE, at_ns(us)) for us in times] == [9, 9, 9, 12, 12]


def test_the_default_streams_of_threads_are_several() -> None:
    calls = [
        launch(0, 5, stream=0, function=PTSZ), launch(10, 6, stream=PER_THREAD, thread=OTHER),
        launch(20, 7, stream=0),
    ]  # fmt: skip
    records = [kernel(us, us + 1, correlation=at, stream=10 + at) for us, at in ((30, 5), (31, 6), (32, 7))]
    numbers = added((calls, records))
    assert numbers.number_of(1, PER_THREAD, at_ns(50), MAIN) == 15
    assert numbers.number_of(1, 0, at_ns(50), MAIN, "cuStreamSynchronize_ptsz") == 15
    assert numbers.number_of(1, PER_THREAD, at_ns(50), OTHER) == 16
    # CU_STREAM_LEGACY is the default stream that all threads share.
    assert numbers.number_of(1, 0, at_ns(50), OTHER) == numbers.number_of(1, 1, at_ns(50), MAIN) == 17


def test_a_graph_is_in_the_stream_of_its_first_work() -> None:
    branches = [kernel(at, at + 5, correlation=5, stream=number) for at, number in ((60, 31), (50, 9), (70, 32))]
    numbers = added(([launch(0, 5, function="cuGraphLaunch")], branches))
    assert numbers.number_of(1, MINE, at_ns(50)) == 9


def test_streams_among_many_calls_of_another_one_are_known() -> None:
    calls = [launch(at, at + 1, stream=0x99) for at in range(5000)]
    calls[2500] = launch(2500, 2501)
    records = [kernel(at + 9, at + 10, correlation=at + 1, stream=7 if at == 2500 else 8) for at in range(0, 5000, 2)]
    numbers = added((calls, records))
    assert (numbers.number_of(1, MINE, at_ns(6000)), numbers.number_of(1, 0x99, at_ns(6000))) == (7, 8)


def test_a_copy_says_the_number_of_its_stream_and_a_wait_does_not() -> None:
    calls = [launch(0, 5, function="cuMemcpyHtoDAsync_v2"), launch(10, 6, function=SYNC, stream=0x44)]
    numbers = added((calls, [copy(20, 30, correlation=5, stream=13), kernel(20, 30, correlation=6, stream=14)]))
    assert numbers.number_of(1, MINE, at_ns(50)) == 13
    assert numbers.number_of(1, 0x44, at_ns(50)) is None


def test_where_only_some_calls_have_records_a_stream_is_known_by_those() -> None:
    """Records were off when the first and the last call of a reading were made."""
    calls = [launch(10 * at, at + 1, stream=MINE if at % 2 else 0x99) for at in range(20)]
    records = [kernel(10 * at + 9, 10 * at + 10, correlation=at + 1, stream=7) for at in (7, 13)]
    assert added((calls, records)).number_of(1, MINE, at_ns(500)) == 7
