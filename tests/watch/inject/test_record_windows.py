"""Windows in which records are on or off: what the library does in a host program, and what a reader makes of it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories.stand_in import StandIn
from factories.waiting import undisturbed, wait_until
from factories.watch_calls import (
    LAUNCH,
    MAIN,
    OTHER,
    SYNC,
    US,
    at_ns,
    kernel,
    known_streams,
    pageable_copy,
    process,
    rows_of,
    slow,
    thread,
)  # fmt: skip
from factories.watch_files import SECOND, write_watch_file
from factories.watched_folders import read_folder
from factories.watched_programs import launches_by_record
from stallprobes.errors import WatchError
from stallprobes.latency.histogram import Histogram, index
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.histogram import BUCKETS
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.watch.attribution.alike_calls import AlikeCalls
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.facts import Recorded
from stallprobes.watch.causes.order import attribute
from stallprobes.watch.cost import attaching_cost, calls_cost, cost_of
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.map_reader import CallPosition, MapFile, watch_files
from stallprobes.watch.reading.process import CallFigures, ClockPair, GpuLimits, SlowDriverCall, WatchedProcess
from stallprobes.watch.reading.record_windows import NO_WINDOWS, RecordWindows
from stallprobes.watch.sentences import call_text, cost_text

MS = 1_000_000
# The default stream, in which all calls are.
STREAMS = known_streams({0: 7})
# The first is the time before, and the first cycles are the shortest.
ENOUGH = 6


def windows(*rows: tuple[float, float, bool, float | None, int], counted: int = 0) -> RecordWindows:
    """Windows of (begin, end, on, settled, calls), in ms; an end of 0 is not yet known."""
    found = np.zeros(len(rows), dtype_of(layout.Window))
    for row, (begin, end, on, settled, calls) in zip(found, rows, strict=True):
        row["began_ns"], row["ended_ns"], row["records"] = round(begin * MS), round(end * MS), on
        row["settled_ns"] = 0 if settled is None else round(settled * MS)
        row["calls"], row["took_ns"] = calls, round(max(end - begin, 0) * MS)
        row["counted"] = counted
    return RecordWindows.of(found)


def in_ms(*times: float) -> Any:
    return np.array([round(time * MS) for time in times], dtype=np.int64)


def test_records_are_on_and_off_in_turn_and_none_is_lost_while_they_are_on(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    program = stand_in.start(folder, "steps-until-stopped", "100", options=WatchOptions())
    _end_after(program, folder, ENOUGH)
    assert (program.communicate(), program.returncode) == (("", ""), 0)
    (path,) = watch_files(folder)
    with MapFile(path) as file:
        process = file.read()
        calls, records = file.calls(CallPosition(), process), file.records()
    found = process.windows
    assert found.on.tolist() == [at == 0 or at % 2 == 1 for at in range(len(found))]
    assert (found.begins[1:] == found.ends[:-1]).all()
    assert found.begins[0] >= process.started.monotonic_ns
    # Each has settled, since the program waits again and again; the last may be too short.
    whole = found.on[:-1]
    assert (found.settled[:-1][whole] < found.ends[:-1][whole]).all()
    assert (process.lost_records, process.not_held) == (0, 0)
    recorded, missing = launches_by_record(folder)
    assert (recorded > 0, missing) == (True, 0)
    begins, ends = calls.rows["began_ns"].astype(np.int64), calls.rows["returned_ns"].astype(np.int64)
    assert 0 < found.counted.sum() <= process.records
    off = _within(found, begins, ends, on=False)
    assert off.any()
    kernels = records.rows["correlation"][records.rows["kind"] == RecordKind.KERNEL]
    assert not np.isin(calls.rows["correlation"][off], kernels).any()


def test_records_are_switched_and_come_while_a_flush_takes_long(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    # As on an H200 beside streams that wait for each other's events, where the GPU is never idle.
    settings = {"STAND_IN_FLUSH_MS": "600000"}
    program = stand_in.start(folder, "steps-until-stopped", "100", options=WatchOptions(), settings=settings)
    try:
        wait_until(lambda: any(len(one.windows) >= ENOUGH for one in _processes(folder)), f"{ENOUGH} windows")
        # CUPTI hands over what is full.
        wait_until(lambda: any(one.records for one in _processes(folder)), "records")
    finally:
        program.terminate()
    assert (program.communicate(), program.returncode) == (("", ""), 0)


def test_frequent_calls_are_not_followed_where_their_callbacks_exceed_the_budget(
    stand_in: StandIn, tmp_path: Path
) -> None:
    def attempt(number: int) -> Path:
        folder = tmp_path / f"out{number}"
        folder.mkdir(mode=0o700)
        # So little that any number of calls exceeds it.
        options, settings = WatchOptions(cost=1e-5), {"STAND_IN_GPUS": "ab"}
        program = stand_in.start(folder, "steps-until-stopped", "100", options=options, settings=settings)
        _end_after(program, folder, ENOUGH)
        assert (program.communicate(), program.returncode) == (("", ""), 0)
        return folder

    # Nothing is switched any more after a call that could not be held, as on a busy machine.
    folder = undisturbed(attempt, lambda folder: not any(one.not_held for one in _processes(folder)), attempts=5)
    (path,) = watch_files(folder)
    with MapFile(path) as file:
        process = file.read()
        calls = file.calls(CallPosition(), process)
    found = process.windows
    assert found.quiet.tolist() == (~found.on).tolist()
    assert (found.kept <= found.calls).all()
    followed, (recorded, missing) = found.share_followed(int(found.ends[-2])), launches_by_record(folder)
    assert 0 < followed < 0.5
    assert (recorded > 0, missing) == (True, 0)
    assert (process.lost_records, process.lost_calls, process.not_held) == (0, 0, 0)
    # Those that wait are always followed; others until no call is in flight, and again a moment before the records.
    begins, ends = calls.rows["began_ns"].astype(np.int64), calls.rows["returned_ns"].astype(np.int64)
    quiet = _within(found, begins, ends, on=False)
    waits = np.isin(calls.rows["function"], [number for number, name in calls.functions.items() if name == SYNC])
    assert (quiet & waits).any()
    for begin, end in zip(found.begins[found.quiet][:-1], found.ends[found.quiet][:-1], strict=False):
        launches = np.sort(begins[quiet & ~waits & (begins >= begin) & (ends <= end)])
        assert np.diff(np.concatenate(([begin], launches, [end]))).max() > (end - begin) // 4
    # One of the library's threads asks for them.
    assert process.limits == 2 * (GpuLimits(132, 2048, 65536, 233472, 32, 1024),)
    assert process.gpus == tuple(f"{4 * code}-{2 * code}-{2 * code}-{2 * code}-{6 * code}" for code in ("61", "62"))
    # Each begin of which CUPTI told has its end: else it gives later calls one number.
    assert len(np.unique(calls.rows["correlation"])) == len(calls)
    # Each call has a begin and an end, and none is in another one.
    assert (begins <= ends).all()
    assert not (calls.rows["flags"] & int(CallFlag.NESTED)).any()


def test_calls_alone_that_exceed_the_budget_are_not_followed_any_more(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    options = WatchOptions(calls_only=True, cost=1e-5)
    program = stand_in.start(folder, "steps-until-stopped", "100", options=options)
    _end_after(program, folder, 2)
    assert (program.communicate(), program.returncode) == (("", ""), 0)
    (process,) = _processes(folder)
    found = process.windows
    assert (found.on.tolist(), found.quiet.tolist()) == ([False, False], [False, True])
    assert found.begins[0] >= process.started.monotonic_ns
    assert (process.records, process.kinds, process.lost_calls, process.not_held) == (0, frozenset(), 0, 0)
    assert (found.kept <= found.calls).all()


def test_records_are_off_while_graphs_are_instantiated_again_and_again(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    program = stand_in.start(folder, "steps-until-stopped", "100", "4000", options=WatchOptions())
    try:
        wait_until(lambda: any(not one.windows.on.all() for one in _processes(folder)), "a window without records")
        wait_until(lambda: any(one.leaves_graphs for one in _processes(folder)), "records that stay off")
        (before,) = _processes(folder)
        # Once they are few, records are on again.
        wait_until(lambda: len(_processes(folder)[0].windows) > len(before.windows), "a window with records")
    finally:
        program.terminate()
    assert (program.communicate(), program.returncode) == (("", ""), 0)
    assert before.windows.on[:3].tolist() == [True, True, False]
    assert not before.windows.on[3:].any()


def test_calls_are_followed_in_turn_while_graphs_are_instantiated_again_and_again(
    stand_in: StandIn, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    # So little that any number of calls exceeds it.
    program = stand_in.start(folder, "steps-until-stopped", "100", str(10**9), options=WatchOptions(cost=1e-5))
    try:
        wait_until(lambda: any(one.windows.quiet.sum() > 2 for one in _processes(folder)), "quiet windows")
    finally:
        program.terminate()
    assert (program.communicate(), program.returncode) == (("", ""), 0)
    (process,) = _processes(folder)
    found = process.windows
    assert (process.leaves_graphs, process.not_held, process.lost_calls) == (True, 0, 0)
    assert found.on.tolist() == [True, True, *(len(found) - 2) * [False]]
    assert found.quiet[2:-1].tolist() == [at % 2 == 0 for at in range(len(found) - 3)]


def test_nothing_is_switched_while_a_call_hangs_and_other_threads_go_on(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    program = stand_in.start(folder, "steps-beside-hung", "100", options=WatchOptions())
    try:
        wait_until(lambda: any(len(one.windows) == 2 for one in _processes(folder)), "the first windows")
        began = int(_processes(folder)[0].windows.begins[1])
        # Longer than such a window lasts.
        wait_until(lambda: _processes(folder)[0].clocks.monotonic_ns > began + 2 * SECOND, "two seconds are over")
        (before,) = _processes(folder)
        wait_until(lambda: _processes(folder)[0].calls > before.calls + 1000, "it makes calls")
    finally:
        program.terminate()
    assert (program.communicate(), program.returncode) == (("", ""), 0)
    (after,) = _processes(folder)
    assert (len(after.windows), after.windows.on.tolist()) == (2, [True, True])
    assert (after.not_held, after.lost_records) == (0, 0)


def test_records_are_switched_beside_calls_that_end_once_others_are_held(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    program = stand_in.start(folder, "steps-beside-starved", "100", options=WatchOptions())
    try:
        wait_until(lambda: any(len(one.windows) > 3 for one in _processes(folder)), "two switches")
    finally:
        program.terminate()
    assert (program.communicate(), program.returncode) == (("", ""), 0)
    (process,) = _processes(folder)
    assert process.windows.on[:4].tolist() == [True, True, False, True]
    assert process.lost_records == 0


def test_a_call_is_held_for_moments_only_and_records_stay_off_after_one_that_could_not_be(
    stand_in: StandIn, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    settings = {"STAND_IN_SWITCH_MS": "100"}
    program = stand_in.start(folder, "steps-until-stopped", "100", options=WatchOptions(), settings=settings)
    try:
        wait_until(lambda: any(one.not_held for one in _processes(folder)), "a call that passed the gate")
        wait_until(lambda: any(not one.windows.on[-1] for one in _processes(folder)), "records are off")
        (before,) = _processes(folder)
        # Longer than such a window lasts.
        limit = before.clocks.monotonic_ns + 6 * SECOND
        wait_until(lambda: _processes(folder)[0].clocks.monotonic_ns > limit, "six seconds are over")
    finally:
        program.terminate()
    assert (program.communicate(), program.returncode) == (("", ""), 0)
    (after,) = _processes(folder)
    assert not after.windows.on[len(before.windows) :].any()
    assert after.calls > before.calls


def test_without_a_limit_records_are_never_off(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    program = stand_in.start(folder, "steps-until-stopped", "100", options=WatchOptions(cost=1.0))
    # Longer than it takes to find that the program makes many records.
    wait_until(lambda: any(process.calls > 100_000 for process in _processes(folder)), "it makes calls")
    began = _processes(folder)[0].clocks.monotonic_ns
    wait_until(lambda: _processes(folder)[0].clocks.monotonic_ns > began + 2 * SECOND, "two seconds are over")
    program.terminate()
    assert (program.communicate(), program.returncode) == (("", ""), 0)
    (process,) = _processes(folder)
    assert (len(process.windows), process.budget) == (0, 1.0)


def test_a_program_of_few_records_has_no_windows(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = stand_in.run(tmp_path / "out", "steps", "600", options=WatchOptions())
    (process,) = outcome.processes
    assert (len(process.windows), process.windows.share_on(10**15)) == (0, 1.0)
    assert process.callback_ns > 0


def test_a_forked_process_has_no_windows_of_its_parent(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = stand_in.run(tmp_path / "out", "fork", options=WatchOptions())
    assert all(len(process.windows) == 0 for process in outcome.processes)


def test_a_time_is_known_where_records_were_on_and_older_work_has_ended() -> None:
    found = windows((0, 10, True, 0, 0), (10, 20, False, None, 0), (20, 30, True, 23, 0), (30, 0, True, None, 0))
    times = [(1, 9), (9, 11), (11, 19), (22, 25), (23, 25), (24, 31), (31, 32), (-5, -1)]
    begins, ends = (in_ms(*column) for column in zip(*times, strict=True))
    assert found.contain(begins, ends).tolist() == [True, False, False, False, True, False, False, False]
    assert (found.first_off_ns, found.share_on(40 * MS)) == (10 * MS, 0.75)


def test_without_windows_every_time_is_known() -> None:
    assert NO_WINDOWS.contain(in_ms(1), in_ms(2)).tolist() == [True]
    assert NO_WINDOWS.share_on(5) == 1.0


@pytest.mark.parametrize(("settled", "known"), [(None, False), (9, False), (31, False), (20, True), (30, True)])
def test_a_window_that_settled_outside_itself_has_not_settled(settled: float | None, known: bool) -> None:
    found = windows((20, 30, True, settled, 0))
    assert bool(found.contain(in_ms(30), in_ms(30))[0]) is known


def test_a_slow_call_while_records_were_off_is_blamed_on_nothing() -> None:
    calls = [slow(SYNC, 0, 5000, correlation=9), pageable_copy(0, 5000, correlation=10)]
    assert _causes(calls, NO_WINDOWS) != [WaitCause.RECORDS_OFF] * 2
    off = windows((0, 0, False, None, 0))
    assert _causes(calls, off) == [WaitCause.RECORDS_OFF] * 2
    found, _ = attribute(calls, [5000 * US] * 2, Recorded(rows_of([]), windows=off))
    assert call_text(found).endswith("took 5.00 ms while work of the GPU was not recorded.")
    assert list(found.losses) == [((WaitCause.RECORDS_OFF, None, ""), (1, 5000 * US, 0))]


def waits(begins_ms: Sequence[int], stack: int, **of: Any) -> list[SlowDriverCall]:
    """Waits of 5 ms that one line makes."""
    made = (slow(SYNC, 1000 * at, 1000 * at + 5000, correlation=10 * at + 9, stream=0, **of) for at in begins_ms)
    return [one.changed(stack=stack) for one in made]


def waited_for(begins_ms: Sequence[int], length_us: int) -> list[Any]:
    """The records of the kernels in front of such waits."""
    return [kernel(1000 * at, 1000 * at + length_us, correlation=10 * at + 1) for at in begins_ms]


def test_a_call_without_records_probably_has_the_cause_of_those_like_it() -> None:
    found = windows((1000, 1100, True, 1000, 100), (1100, 1200, False, None, 100))
    work = waited_for((0, 10, 20, 30), 4500)
    recorded = Recorded(rows_of(work), streams=STREAMS, windows=found, thread_names={MAIN: "MainThread"}, noted=[])
    alike, other_line, other_thread = waits([110], 3), waits([120], 4), waits([130], 4, thread=OTHER)
    calls = [*waits([0, 10, 20, 30], 3), *alike, *other_line, *other_thread]
    answers = attribute(calls, [one.duration_ns for one in calls], recorded)
    assert [one.cause for one in answers] == [WaitCause.GPU_WORK] * 6 + [WaitCause.RECORDS_OFF]
    # Another line of the thread makes too few to tell, so that all of the thread are like it.
    assert [one.certainty for one in answers[4:6]] == [Certainty.ALIKE] * 2
    assert answers[4].explained_ns == answers[4].evidence.overlap_ns == 4500 * US
    assert call_text(answers[4]) == (
        "cuStreamSynchronize in MainThread (thread 100) took 5.00 ms probably because of GPU work in front of it, as 4 "
        "calls like it while work was recorded, which covers 90 % of the delay."
    )
    # What is probable is not proven.
    assert next(iter(answers[4].losses))[1] == (1, 4500 * US, 0)


def test_calls_with_several_causes_say_nothing_of_those_without_records() -> None:
    found = windows((1000, 1100, True, 1000, 100), (1100, 1200, False, None, 100))
    work = waited_for((0, 10, 20), 4900)
    calls = [*waits([0, 10, 20, 30], 3), *waits([110], 3)]
    recorded = Recorded(rows_of(work), streams=STREAMS, windows=found)
    answers = attribute(calls, [one.duration_ns for one in calls], recorded)
    assert [one.cause for one in answers] == [WaitCause.GPU_WORK] * 3 + [WaitCause.UNATTRIBUTED, WaitCause.RECORDS_OFF]


def test_calls_of_earlier_readings_count_once() -> None:
    found = windows((1000, 1100, True, 1000, 100), (1100, 1200, False, None, 100))
    work = waited_for((0, 10), 4900)
    known, calls = AlikeCalls(), [*waits([0, 10], 3), *waits([110], 3)]
    for one in calls[:2]:
        known.note(one, WaitCause.GPU_WORK, Certainty.PROVEN, one.duration_ns, one.duration_ns)
    for noted, cause in (([True, True, False], WaitCause.RECORDS_OFF), ([False] * 3, WaitCause.GPU_WORK)):
        recorded = Recorded(rows_of(work), streams=STREAMS, windows=found, alike=known, noted=noted)
        assert attribute(calls, [one.duration_ns for one in calls], recorded)[2].cause is cause


@pytest.mark.parametrize("beside", [True, False])
def test_a_launch_without_records_is_held_up_as_those_like_it_only_beside_such_a_call(beside: bool) -> None:
    found = windows((1000, 1100, True, 1000, 100), (1100, 1200, False, None, 100))
    times = [0, 10, 20, 30, 110]
    launches = [slow(LAUNCH, 1000 * at, 1000 * at + 5000, correlation=10 * at + 9) for at in times]
    copies = [pageable_copy(1000 * at, 1000 * at + 5000) for at in (times if beside else times[:4])]
    calls = [*launches, *copies]
    answers = attribute(calls, [one.duration_ns for one in calls], Recorded(rows_of([]), windows=found))
    assert [one.cause for one in answers[:4]] == [WaitCause.PAGEABLE_COPY] * 4
    assert answers[4].cause is (WaitCause.PAGEABLE_COPY if beside else WaitCause.RECORDS_OFF)
    assert (answers[4].culprit is not None) is beside


def test_work_that_was_recorded_is_a_cause_wherever_the_call_lies() -> None:
    calls = [slow(SYNC, 0, 5000, correlation=9, stream=0)]
    work = [kernel(0, 4990, correlation=1)]
    known = _causes(calls, NO_WINDOWS, work)
    assert known == [WaitCause.GPU_WORK]
    assert _causes(calls, windows((0, 0, True, None, 0)), work) == known


def test_a_launch_is_no_first_one_once_records_were_off() -> None:
    call, record = slow(LAUNCH, 1000, 5000, correlation=9), kernel(9000, 9010, correlation=9)
    first = {(int(record["context"]), int(record["name"])): 9}
    for found, cause in (
        (NO_WINDOWS, WaitCause.LAZY_LOADING),
        (windows((0, at_ns(100) / MS, False, None, 0), (at_ns(100) / MS, 0, True, at_ns(200) / MS, 0)), None),
    ):
        (explained,) = attribute([call], [4000 * US], Recorded(rows_of([record]), first_launches=first, windows=found))
        assert (explained.cause is WaitCause.LAZY_LOADING) is (cause is not None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"ended_ns": 1}, "ends before it begins"), ({"calls": 2**63}, "time or count")],
)
def test_a_damaged_window_gives_a_sentence(tmp_path: Path, changes: dict[str, int], words: str) -> None:
    path = tmp_path / "4321-0.watch"
    _write(path, [{"sequence": 2, "began_ns": SECOND, **changes}])
    with MapFile(path) as file, pytest.raises(WatchError, match=words):
        file.read()


def test_a_window_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "4321-0.watch"
    _write(path, [{"sequence": 2, "began_ns": SECOND, "ended_ns": 2 * SECOND}, {"sequence": 3, "began_ns": 9}])
    with MapFile(path) as file:
        assert len(file.read().windows) == 1


def test_the_cost_is_that_of_the_windows_with_records_for_their_share_of_the_time() -> None:
    # A tenth slower with records, which are on for half of the time.
    spans = [(100.0 * at, 100.0 * (at + 1), at % 2 == 0, 100.0 * at, 900 if at % 2 == 0 else 1000) for at in range(41)]
    cost = cost_of(_process(windows(*spans), calls=0, records=10**6), 41 * 100 * MS)
    assert (cost.compared, cost.budget) == (19, 0.05)
    assert cost.recorded == pytest.approx(21 / 41)
    # Of the time since records were off first.
    assert cost.low == pytest.approx(cost.high, rel=1e-4) == pytest.approx(0.1 * 20 / 40, rel=1e-4)
    assert cost_text(cost) == "Watching cost the program 5.0 % of its time (measured 19 times)."


def test_calls_cost_what_the_library_and_cupti_take_for_them() -> None:
    process = _process(NO_WINDOWS, calls=1_000_000, callback_ns=100.0, stacks_ns=50 * MS)
    since_ns = process.started.monotonic_ns
    # A hundred thousand calls a second, 250 to 550 ns each, and stacks.
    assert calls_cost(process, since_ns, since_ns + 10 * SECOND, False) == pytest.approx((0.03, 0.06))
    cost = cost_of(process, since_ns + 10 * SECOND)
    # Work of the GPU may hide all of it.
    assert [cost.low, cost.high, cost.compared] == pytest.approx([0.0, 0.06, 0])
    assert cost_text(cost) == (
        "Watching cost the program up to 6.0 % of its time: computed from its calls and records, not measured."
    )


@pytest.mark.parametrize(("cpus", "calls"), [(None, 1_000_000), (4.0, 1_000_000), (1.0, 3_000_000), (2.0, 1_500_000)])
def test_calls_of_threads_that_call_by_turns_add_up(cpus: float | None, calls: int) -> None:
    """Three threads with a million calls each, on so many CPUs."""
    process = _process(NO_WINDOWS, calls=1_000_000, callback_ns=100.0)
    several = process.changed(threads=process.threads * 3, cpus=cpus)
    since_ns = process.started.monotonic_ns
    cost = calls_cost(several, since_ns, since_ns + 10 * SECOND, False)
    assert cost == pytest.approx((calls * 250e-9 / 10, calls * 550e-9 / 10))


def test_records_cannot_cost_more_than_the_time_in_which_they_are_on() -> None:
    # A window of 0.2 s at the begin of a recording that began late, with two million records.
    found = windows((0, 100, True, 0, 1), (100, 200, True, 100, 1), (200, 0, False, None, 1))
    process = _process(found, calls=0, records=2_000_000).changed(late=True)
    assert cost_of(process, 4 * SECOND).high == pytest.approx(0.05, rel=1e-3)


def test_where_frequent_calls_are_not_followed_the_cost_is_by_the_others() -> None:
    # A fifth slower by the calls that are always followed, with records, callbacks and 100 000 launches a second.
    spans = [(100.0 * at, 100.0 * (at + 1), at % 2 == 0, 100.0 * at, 10_000 if at % 2 == 0 else 0) for at in range(41)]
    every = windows(*spans)
    quiet = replace(every, quiet=~every.on, kept=np.where(every.on, 80, 100), busiest=every.calls)
    cost = cost_of(_process(quiet, calls=0, callback_ns=100.0), 41 * 100 * MS)
    assert cost.compared == 19
    assert cost.followed == pytest.approx(21 / 41)
    kept = 900 * 250e-9
    assert cost.low == pytest.approx(0.2 * 20 / 40 + kept, rel=0.02)
    # CUPTI may take something for the other half of the launches too, and callbacks in half of each quiet window.
    # 0.8 of the rate there is a third less than without them.
    assert cost.high == pytest.approx(1 / 3 * 0.75 + 900 * 550e-9 + 0.5 * 100_000 * 150e-9, rel=0.02)
    few = replace(quiet, kept=np.zeros(41, np.int64))
    assert cost_of(_process(few, calls=0), 41 * 100 * MS).compared == 0


def test_what_was_measured_is_stated_however_few_records_there_are() -> None:
    # 30 % slower with a thousand records a second, which cost 0.6 % on an H100.
    spans = [(100.0 * at, 100.0 * (at + 1), at % 2 == 0, 100.0 * at, 700 if at % 2 == 0 else 1000) for at in range(41)]
    cost = cost_of(_process(windows(*spans), calls=0, records=4100), 41 * 100 * MS)
    assert [cost.low, cost.high] == pytest.approx([0.3 * 20 / 40] * 2, rel=1e-3)


def test_what_records_can_cost_is_computed_by_calls_and_by_nodes_of_graphs() -> None:
    # In 4 s, a thousand calls with a record each, or ten of a graph with a hundred nodes.
    for calls, expected in ((1000, 1000 * 6e-6 / 4), (10, (10 * 6e-6 + 990 * 1.5e-6) / 4)):
        process = _process(NO_WINDOWS, calls=calls, records=1000)
        assert cost_of(process, 4 * SECOND).high == pytest.approx(expected + calls * 350e-9 / 4, rel=1e-3)


@pytest.mark.parametrize(
    ("launching_s", "nodes", "graphs"),
    [
        # 1000 calls in each of four seconds, with 100 nodes each where records are on.
        (2.0, 100_000, 99_000 * 360e-9),
        # No more than the launches take.
        (0.04, 100_000, 0.01),
        # Without records, all that they take.
        (0.4, None, 0.1),
        (0.0, 100_000, 0.0),
    ],
)
def test_cupti_costs_what_it_adds_to_launches_of_graphs(launching_s: float, nodes: int | None, graphs: float) -> None:
    spans = [(1000.0 * at, 1000.0 * (at + 1), at == 1, None, 1000) for at in range(4)]
    found = windows(*spans, counted=nodes) if nodes is not None else NO_WINDOWS
    process = _process(found if nodes is None else replace(found, counted=found.counted * found.on), 0)
    (one,) = process.threads
    launches = CallFigures(
        total=Histogram.of_counts(_counts(1), 4000), total_ns=round(launching_s * SECOND), slow=0, failed=0
    )
    with_launches = process.changed(threads=(replace(one, figures={"cuGraphLaunch": launches}),))
    cost, without = (cost_of(each, 4 * SECOND) for each in (with_launches, process))
    assert cost.graphs == pytest.approx(graphs, rel=1e-2)
    assert cost.high - without.high == pytest.approx(graphs, rel=1e-2, abs=1e-3)
    sentence = "CUPTI itself makes launches and instantiations of its graphs longer"
    assert (sentence in cost_text(cost)) is (graphs > 0.02)
    after = attaching_cost(1, 0, 0, with_launches.changed(ended_ns=4 * SECOND))
    assert after.after_high >= graphs


def test_records_of_the_start_up_are_not_in_the_cost_since() -> None:
    spans = [(1000.0 * at, 1000.0 * (at + 1), at % 2 == 0, 1000.0 * at, 1000) for at in range(4)]
    cost = cost_of(_process(windows(*spans, counted=1000), calls=0, records=10**6), 4 * SECOND)
    assert cost.compared == 0
    # In three windows of a second, of which one with records has a thousand calls.
    assert cost.high == pytest.approx((1000 * 6e-6 + 2000 * 1.5e-6) / 3, rel=1e-3)


@pytest.mark.parametrize("compared", [False, True], ids=["by calls and records", "compared"])
def test_a_switch_of_records_may_hold_a_call_up(compared: bool) -> None:
    count = 41 if compared else 5
    spans = [(100.0 * at, 100.0 * (at + 1), at % 2 == 0, 100.0 * at, 1000) for at in range(count)]
    found = windows(*spans)
    # The switches at both ends of a window without records take 1 ms together.
    took = np.where(found.on, found.took, found.took - 1 * MS)
    # At the same rate.
    switched = replace(found, took=took, calls=found.calls * took // found.took)
    low, high = (cost_of(_process(each, calls=0), count * 100 * MS) for each in (found, switched))
    assert (low.compared > 0) is compared
    assert high.low == low.low
    assert low.high == pytest.approx(0.0, abs=1e-3)
    without = count // 2
    assert high.high - low.high == pytest.approx(without * MS / ((count - 1) * 100 * MS), abs=1e-4)


def test_the_time_of_switches_is_that_of_windows_that_have_ended() -> None:
    found = windows(
        (0, 100, True, 0, 1), (100, 200, False, None, 1), (200, 300, True, 250, 1), (300, 0, False, None, 1)
    )
    assert found.switching_ns(0) == 0
    shorter = replace(found, took=np.maximum(found.took - 3 * MS, 0))
    assert shorter.switching_ns(0) == 3 * MS
    assert shorter.switching_ns(int(found.begins[2])) == 0
    # A damaged file may have any time.
    assert replace(found, took=found.took + 10**12).switching_ns(0) == 0


def test_few_comparisons_measure_nothing() -> None:
    for count, calls, compared in ((13, 1000, 0), (15, 1000, 6), (15, 40, 0)):
        spans = [(100.0 * at, 100.0 * (at + 1), at % 2 == 0, 100.0 * at, calls) for at in range(count)]
        assert cost_of(_process(windows(*spans), calls=0), count * 100 * MS).compared == compared


def _causes(calls: Sequence[Any], found: RecordWindows, records: Sequence[Any] = ()) -> list[WaitCause]:
    recorded = Recorded(rows_of(records), streams=STREAMS, windows=found, thread_names={MAIN: "MainThread"})
    return [one.cause for one in attribute(calls, [one.duration_ns for one in calls], recorded)]


def _process(found: RecordWindows, calls: int, **fields: Any) -> WatchedProcess:
    """A process that began when the windows of a test do, with a thread that made ``calls``."""
    made = {
        LAUNCH: CallFigures(total=Histogram.of_counts(_counts(calls), 4000), total_ns=4000 * calls, slow=0, failed=0)
    }
    one = replace(thread(), started_ns=0, ended_ns=None, figures=made)
    whole = process(one).changed(started=ClockPair(0, 0), **{"records": 0, "stacks_ns": 0, **fields})
    return whole.changed(windows=found, budget=0.05)


def _counts(calls: int) -> Any:
    counts = np.zeros(BUCKETS, np.uint64)
    counts[index(4000)] = calls
    return counts


def _write(path: Path, rows: Sequence[dict[str, int]]) -> None:
    write_watch_file(path, windows=len(rows))
    found = np.zeros(len(rows), dtype_of(layout.Window))
    for row, values in zip(found, rows, strict=True):
        for name, value in values.items():
            row[name] = value
    with path.open("r+b") as file:
        file.seek(layout.WINDOWS_AT)
        file.write(found.tobytes())


def _within(found: RecordWindows, begins: Any, ends: Any, on: bool) -> Any:
    at = np.maximum(np.searchsorted(found.begins, begins, "right") - 1, 0)
    return (found.on[at] == on) & (ends <= found.ends[at])


def _processes(folder: Path) -> tuple[WatchedProcess, ...]:
    return read_folder(folder).processes


def _end_after(program: subprocess.Popen[str], folder: Path, count: int) -> None:
    try:
        wait_until(
            lambda: any(len(one.windows) >= count or one.not_held for one in _processes(folder)), f"{count} windows"
        )
    finally:
        program.terminate()
