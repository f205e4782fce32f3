"""The compiled loop in virtual time: clock, sleep and the calls are scripted, so every sample is known exactly."""

from __future__ import annotations

import ctypes
import shutil
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factories.core_program import counting_library
from factories.loop_stage import MS, START, Stage
from stallprobes.engine.loop import OpRows, ProbeLoop, op_rows
from stallprobes.engine.snapshot import ProbeErrorCode, ProbeSnapshot
from stallprobes.latency.histogram import Histogram, index
from stallprobes.latency.window import InFlight
from stallprobes.model import Channel, Op, Phase
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.board import CALL_FIRST, CALL_MEASURED, CALL_OP_MASK, SAMPLES, ChannelStats, ProbeState
from stallprobes.native.layouts.histogram import BUCKETS
from stallprobes.native.layouts.program import OpFlag, OpRow
from stallprobes.native.layouts.schedule import GUARD_STEP_NS, PARKED_STEP_NS, PAUSE_NS, WAIT_SLICE_NS
from stallprobes.native.library import core

CALL, WAIT, DUE = Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE)

# What a scripted call raises would only be printed.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")


def one_op(*durations: int, period_ns: int = MS) -> ProbeSnapshot:
    stage = Stage((Op("x"),), period_ns)
    stage.takes(0, *durations)
    return stage.run()


def test_the_first_turn_is_kept_apart_and_the_others_are_counted() -> None:
    seen = one_op(70_000, 300, 301, 50)
    assert seen.channels[CALL] == Histogram.of([300, 301, 50])
    assert seen.first_ns == {CALL: 70_000, DUE: 70_000}
    assert (seen.iterations, seen.state, seen.missed) == (4, ProbeState.ENDED, 0)


def test_the_schedule_is_absolute() -> None:
    seen = one_op(100, 400_000, 100, 100)
    ends = (seen.samples["end_ns"] - START).tolist()
    assert ends == [100, MS + 400_000, 2 * MS + 100, 3 * MS + 100]


@pytest.mark.parametrize("switched_on", [0, 1, MS // 3, MS - 1])
def test_those_that_begin_together_do_so_whenever_they_were_switched_on(switched_on: int) -> None:
    stage = Stage((Op("x"),))
    stage.words.aligned = 1
    stage.now += switched_on
    stage.takes(0, 100, 2 * MS + 400_000, 100, 100)
    seen = stage.run()
    first = START if switched_on == 0 else START + MS
    began = seen.samples["end_ns"] - seen.samples["value_ns"] - first
    assert began.tolist() == [0, MS, 4 * MS, 5 * MS]
    assert seen.missed == 2


def test_with_another_pace_those_that_begin_together_begin_at_its_multiples() -> None:
    stage = Stage((Op("x"),))
    stage.words.aligned = 1
    stage.takes(0, 100, 100, 100, 100)
    stage.on_nap = lambda: stage.board.set_period("p", 7 * MS)
    seen = stage.run()
    began = seen.samples["end_ns"] - seen.samples["value_ns"]
    assert began[0] == START
    assert (began[1:] % (7 * MS) == 0).all()
    assert (np.diff(began[1:]) == 7 * MS).all()


def test_a_stall_counts_for_every_start_it_held_up() -> None:
    seen = one_op(100, 5 * MS + 7, 100)
    assert seen.channels[CALL] == Histogram.of([5 * MS + 7, 100])
    held_up = [k * MS + 7 for k in range(6)]
    assert seen.channels[DUE] == Histogram.of([*held_up, 100])
    assert seen.missed == 5
    assert int(seen.samples["end_ns"][-1]) - START == 7 * MS + 100


def test_a_call_that_ends_just_when_the_next_is_due_holds_up_nothing() -> None:
    seen = one_op(100, 2 * MS, 100)
    assert seen.channels[DUE] == Histogram.of([2 * MS, MS, 100])
    assert seen.missed == 1


@settings(max_examples=60)
@given(st.lists(st.integers(0, 20 * MS), min_size=1, max_size=25), st.integers(100_000, 3 * MS))
def test_time_waited_equals_a_schedule_worked_out_by_hand(durations: list[int], period_ns: int) -> None:
    seen = one_op(*durations, period_ns=period_ns)
    due, missed, waited = 0, 0, []
    for number, duration in enumerate(durations):
        end = due + duration
        waited += [end - due] if number else []
        due += period_ns
        while due < end:
            waited += [end - due] if number else []
            missed += 1
            due += period_ns
    assert seen.channels[DUE] == Histogram.of(waited)
    assert seen.missed == missed
    assert seen.channels[CALL] == Histogram.of(durations[1:])


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The core's counting."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    return counting_library(tmp_path_factory.mktemp("counting"), compiler)


@settings(max_examples=100)
@given(late=st.integers(1, 10**8), period_ns=st.integers(1000, 10**6))
def test_starts_held_up_in_closed_form_equal_one_by_one(counting: ctypes.CDLL, late: int, period_ns: int) -> None:
    counts, stats = np.zeros(BUCKETS, dtype=np.uint64), np.zeros(1, dtype=dtype_of(ChannelStats))
    counting.count_passed(counts.ctypes.data, stats.ctypes.data, late, period_ns)
    one_by_one = range(late - period_ns, 0, -period_ns)
    assert np.array_equal(counts, Histogram.of(one_by_one).counts)
    assert stats["count"][0] == len(one_by_one)
    assert stats["sum_ns"][0] == sum(one_by_one)


@given(values=st.lists(st.one_of(st.integers(-100, 300), st.integers(0, 2**45)), max_size=50))
def test_compiled_counting_equals_the_histogram_module(counting: ctypes.CDLL, values: list[int]) -> None:
    counts, stats = np.zeros(BUCKETS, dtype=np.uint64), np.zeros(1, dtype=dtype_of(ChannelStats))
    assert [counting.bucket_of(value) for value in values] == [index(value) for value in values]
    padded = np.array([*values, *[0] * (64 - len(values))], dtype=np.int64)
    counting.add_all(counts.ctypes.data, stats.ctypes.data, padded.ctypes.data, len(padded), len(values))
    assert np.array_equal(counts, Histogram.of(values).counts)
    assert stats[0].item() == (len(values), sum(values), max([0, *values]), 0)


def test_each_phase_and_label_has_its_own_histogram() -> None:
    stage = Stage((Op("a", label="a"), Op("b", phase=None), Op("c", label="c"), Op("d", phase=Phase.WAIT)))
    for op, durations in enumerate([(1, 10, 11), (5000, 5000, 5000), (2, 20, 21), (3, 30, 31)]):
        stage.takes(op, *durations)
    seen = stage.run()
    assert seen.channels[CALL] == Histogram.of([10, 11, 20, 21])
    assert seen.channels[Channel(Phase.CALL, "a")] == Histogram.of([10, 11])
    assert seen.channels[Channel(Phase.CALL, "c")] == Histogram.of([20, 21])
    assert seen.channels[WAIT] == Histogram.of([30, 31])
    assert seen.channels[DUE] == Histogram.of([5060, 5063])
    assert seen.first_ns[CALL] == 1
    assert seen.first_ns[Channel(Phase.CALL, "c")] == 2


def test_a_repeated_op_is_measured_each_time() -> None:
    stage = Stage((Op("x", repeat=3), Op("y", phase=Phase.WAIT)))
    stage.takes(0, 1, 2, 3, 10, 11, 12)
    stage.takes(1, 5, 5)
    seen = stage.run()
    assert seen.channels[CALL] == Histogram.of([10, 11, 12])
    assert seen.first_ns[CALL] == 1
    assert seen.channels[DUE] == Histogram.of([38])
    assert seen.iterations == 2


def test_back_to_back_there_is_no_sleep_and_nothing_is_missed() -> None:
    stage = Stage((Op("x"),), period_ns=0)
    stage.takes(0, 100, 5 * MS, 100, 200)
    seen = stage.run()
    assert stage.naps == []
    assert seen.channels[DUE] == seen.channels[CALL] == Histogram.of([5 * MS, 100, 200])
    assert seen.missed == 0


def test_a_fast_pace_is_kept_by_looking_at_the_clock() -> None:
    stage = Stage((Op("x"),), period_ns=20_000, tick=50)
    stage.takes(0, 100, 100, 100)
    seen = stage.run()
    assert stage.naps == []
    starts = np.diff(seen.samples["end_ns"])
    assert (abs(starts - 20_000) <= 200).all()


def test_it_is_awake_before_a_turn_is_due() -> None:
    stage = Stage((Op("x"),), tick=50)
    stage.words.lead_ns = 20_000
    stage.takes(0, 100, 100, 100)
    seen = stage.run()
    assert [until - START - stage.tick for _, until in stage.naps] == [MS - 20_000, 2 * MS - 20_000]
    assert (abs(np.diff(seen.samples["end_ns"]) - MS) <= 200).all()


def test_polling_counts_its_time_and_the_moments_without_a_cpu() -> None:
    stage = Stage((Op("x"),), tick=50)
    stage.words.lead_ns = 20_000
    stage.takes(0, 100, 100, 100)
    steady = stage.run()
    assert (abs(steady.polled_ns - 2 * 20_000) <= 500, steady.paused_ns) == (True, 0)
    stage = Stage((Op("x"),), tick=PAUSE_NS)
    stage.words.lead_ns = 10 * PAUSE_NS
    stage.takes(0, 100, 100, 100)
    paused = stage.run()
    assert paused.paused_ns == paused.polled_ns > 0


def test_a_slow_probe_hears_that_it_shall_quit() -> None:
    stage = Stage((Op("x"),), period_ns=3600 * 10**9)
    stage.takes(0, 100, 100)
    stage.on_nap = lambda: stage.quit()
    seen = stage.run()
    assert (seen.iterations, seen.state) == (1, ProbeState.ENDED)
    assert stage.now - START <= 2 * WAIT_SLICE_NS


def test_a_new_pace_holds_at_once() -> None:
    stage = Stage((Op("x"),), period_ns=100 * MS)
    starts = []

    def call(*_: int) -> int:
        starts.append((stage.now - START) // MS)
        if len(starts) == 2:
            stage.words.period_ns = 2 * MS
        if len(starts) == 5:
            stage.words.period_ns = 300 * MS
        if len(starts) == 6:
            stage.quit()
        return 0

    stage.script(0, call)
    stage.run()
    assert starts == [0, 100, 102, 104, 106, 406]


def test_a_new_pace_does_not_make_up_for_starts_of_the_past() -> None:
    stage = Stage((Op("x"),), period_ns=1000 * MS)
    stage.takes(0, 100, 100, 100)

    def hurry() -> None:
        stage.words.period_ns = MS

    stage.on_nap = hurry
    seen = stage.run()
    assert seen.missed == 0
    assert seen.channels[DUE] == Histogram.of([100, 100])


def test_switched_off_it_parks_and_switched_on_it_starts_a_new_schedule() -> None:
    stage = Stage((Op("x"),))
    calls = []

    def call(*_: int) -> int:
        calls.append(stage.now - START)
        if len(calls) == 2:
            stage.words.run = 0
        if len(calls) == 4:
            stage.quit()
        return 0

    def parked() -> None:
        if stage.words.state == ProbeState.PARKED and stage.now > START + 50 * MS:
            assert stage.board.snapshot().probes["p"].on is False
            stage.words.run = 1
            stage.now += 300

    stage.script(0, call)
    stage.on_nap = parked
    seen = stage.run()
    assert calls == [0, MS, calls[2], calls[2] + MS]
    assert calls[2] == seen.on_since_ns - START
    assert calls[2] > 50 * MS
    assert seen.missed == 0


def test_not_switched_on_it_calls_nothing_and_still_shows_life() -> None:
    stage = Stage((Op("x"),))
    stage.takes(0, 100)
    stage.words.run = 0
    stage.on_nap = lambda: stage.quit() if len(stage.naps) == 5 else None
    seen = stage.run()
    assert (seen.iterations, seen.state) == (0, ProbeState.ENDED)
    assert [until - since for since, until in stage.naps] == [PARKED_STEP_NS] * 5
    assert seen.heartbeat_ns > START
    assert seen.on_since_ns == 0


@pytest.mark.parametrize(("result", "code"), [(719, 719), (-1, -1), ((7 << 32) | 5, 5)])
def test_a_wrong_code_stops_the_probe_and_is_kept(result: int, code: int) -> None:
    stage = Stage((Op("x"), Op("y"), Op("z")))
    calls: list[str] = []

    def passes(*_: int) -> int:
        calls.append("x")
        return 0

    def fails(*_: int) -> int:
        stage.now += 100
        calls.append("y")
        return result if len(calls) == 4 else 0

    stage.script(0, passes)
    stage.script(1, fails)
    stage.script(2, lambda *_: 0)
    seen = stage.run()
    assert calls == ["x", "y", "x", "y"]
    assert seen.state is ProbeState.ERROR
    assert seen.error == ProbeErrorCode(code=code, op=2, at_ns=stage.now)
    assert seen.in_flight is None


def test_the_upper_half_of_a_return_is_no_status() -> None:
    stage = Stage((Op("x"),))
    stage.script(0, lambda *_: stage.quit(0xDEAD << 32))
    assert stage.run().error is None


@pytest.mark.parametrize("code", [600, -11, 1])
def test_codes_that_are_fine_are_fine(code: int) -> None:
    stage = Stage((Op("x"),))
    stage.rows[0].accepted[:] = [600, -11, 1]
    codes = [code, 0, code, 2]
    stage.script(0, lambda *_: codes.pop(0))
    seen = stage.run()
    assert seen.error is not None
    assert (seen.error.code, seen.iterations, codes) == (2, 3, [])


def test_a_return_that_is_a_value_is_no_status() -> None:
    stage = Stage((Op("x"), Op("y")))
    kept = np.zeros(1, dtype=np.int64)
    stage.rows[0].flags = OpFlag.RETURN_IS_VALUE
    stage.rows[1].into = kept.ctypes.data
    stage.script(0, lambda *_: -1)
    stage.script(1, lambda *_: stage.quit(0x7F12_3456_789A_BCDE))
    assert stage.run().state is ProbeState.ENDED
    assert kept[0] == 0x7F12_3456_789A_BCDE


def test_arguments_arrive_in_order_and_some_are_read_at_call_time() -> None:
    stage = Stage((Op("x"), Op("y")))
    kept = np.full(2, 5, dtype=np.int64)
    given: list[tuple[int, ...]] = []
    stage.rows[1].arguments[:] = [-(2**62), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    stage.rows[1].arguments[1] = kept.ctypes.data
    stage.rows[1].arguments[10] = kept.ctypes.data + 8
    stage.rows[1].load_mask = (1 << 1) | (1 << 10)

    def change(*_: int) -> int:
        kept[:] += [1, 100]
        return 0

    def take(*arguments: int) -> int:
        given.append(arguments)
        if len(given) == 2:
            stage.quit()
        return 0

    stage.script(0, change)
    stage.script(1, take)
    stage.run()
    middle = (2, 3, 4, 5, 6, 7, 8, 9)
    assert given == [(-(2**62), 6, *middle, 105), (-(2**62), 7, *middle, 205)]


def test_a_float_of_milliseconds_is_the_sample_where_that_is_said() -> None:
    stage = Stage((Op("x", phase=Phase.GPU),))
    value = np.zeros(1, dtype=np.int64)
    stage.rows[0].flags = OpFlag.SAMPLE_IS_FLOAT_MS
    stage.rows[0].value = value.ctypes.data
    stage.rows[0].accepted[0] = 600
    script = [(0, 1.0), (0, 5.007104), (600, 9.0), (0, -0.002), (0, 0.0005)]

    def elapsed(*_: int) -> int:
        stage.now += 33
        code, milliseconds = script.pop(0)
        struct.pack_into("<f", value.data, 0, milliseconds)
        if not script:
            stage.quit()
        return code

    stage.script(0, elapsed)
    seen = stage.run()
    samples = [value for _, _, value in seen.samples.tolist()]
    assert samples == [1_000_000, pytest.approx(5_007_104, abs=1), -2000, 500]
    assert seen.channels[Channel(Phase.GPU)] == Histogram.of(samples[1:])
    assert seen.first_ns[Channel(Phase.GPU)] == 1_000_000
    assert seen.channels[DUE] == Histogram.of([33] * 4)


def test_turns_stay_ahead_of_the_guard_by_no_more_than_allowed() -> None:
    stage = Stage((Op("x"),), period_ns=0)
    started = np.zeros(1, dtype=np.int64)
    ahead = []
    stage.words.guard_address, stage.words.guard_ahead = started.ctypes.data, 2

    def call(*_: int) -> int:
        stage.now += 100
        ahead.append(int(stage.words.iterations + 1 - started[0]))
        if len(ahead) == 10:
            stage.quit()
        return 0

    def starts() -> None:
        if len(stage.naps) % 3 == 0:
            started[0] += 1

    stage.script(0, call)
    stage.on_nap = starts
    seen = stage.run()
    assert max(ahead) == 2
    assert seen.iterations == 10
    assert {until - since for since, until in stage.naps} == {GUARD_STEP_NS}


def test_waiting_for_its_own_guard_is_not_a_stall() -> None:
    stage = Stage((Op("x"),))
    started = np.zeros(1, dtype=np.int64)
    stage.words.guard_address, stage.words.guard_ahead = started.ctypes.data, 1
    stage.takes(0, 100, 200)

    def starts() -> None:
        if stage.now > START + 20 * MS:
            started[0] = 1

    stage.on_nap = starts
    seen = stage.run()
    assert seen.missed == 0
    waited = seen.channels[DUE]
    assert waited.count == 1
    assert waited.max_ns <= 200 + GUARD_STEP_NS


def test_the_call_in_flight_is_told_while_it_runs() -> None:
    stage = Stage((Op("x"), Op("y", phase=None)))
    told: list[InFlight | None] = []

    def look(*_: int) -> int:
        stage.now += 500
        told.append(stage.board.snapshot(stage.now).probes["p"].in_flight)
        if len(told) == 4:
            stage.quit()
        return 0

    stage.script(0, look)
    stage.script(1, look)
    assert stage.run().in_flight is None
    second = START + MS
    assert told == [
        InFlight(0, START, 500, START, 500),
        InFlight(1, START + 500, 500, START, 1000),
        InFlight(0, second, 500, second, 500),
        InFlight(1, second + 500, 500, second, 1000),
    ]


def test_the_ring_holds_the_newest_calls() -> None:
    stage = Stage((Op("x"),), period_ns=0)
    stage.takes(0, *range(SAMPLES + 500))
    seen = stage.run()
    assert seen.samples["value_ns"].tolist() == list(range(501, SAMPLES + 500))
    assert seen.sample_count == SAMPLES + 500


def test_setup_calls_in_order_and_stops_at_the_first_wrong_code() -> None:
    stage = Stage((Op("x", repeat=2), Op("y"), Op("z")))
    calls: list[str] = []
    codes = {"x": 0, "y": 0, "z": 0}
    for op, name in enumerate(codes):

        def call(*_: int, name: str = name) -> int:
            calls.append(name)
            return codes[name]

        stage.script(op, call)
    loop = ProbeLoop(stage.board, stage.part, stage.rows)
    assert loop.run_once(stage.rows) == 0
    assert calls == ["x", "x", "y", "z"]
    codes["y"] = 201
    assert loop.run_once(stage.rows) == 2
    seen = stage.board.snapshot().probes["p"]
    assert seen.state is ProbeState.ERROR
    assert seen.error is not None
    assert (seen.error.code, seen.error.op) == (201, -2)
    assert 0 < seen.error.at_ns <= seen.at_ns
    assert calls[4:] == ["x", "x", "y"]


@pytest.mark.parametrize(("failing", "called"), [("none", "sot"), ("setup", "s"), ("ops", "so"), ("teardown", "sot")])
def test_a_runner_sets_up_turns_and_tears_down(failing: str, called: str) -> None:
    stage = Stage((Op("x"),))
    calls: list[str] = []
    rows: dict[str, OpRows] = {}
    for name in ("setup", "ops", "teardown"):

        def call(*_: int, name: str = name) -> int:
            calls.append(name[0])
            if name == "ops":
                stage.quit()
            return 5 if name == failing else 0

        stage.script(0, call)
        rows[name] = op_rows(1)
        rows[name][0].function = stage.rows[0].function
    ProbeLoop(stage.board, stage.part, rows["ops"], rows["setup"], rows["teardown"])()
    assert "".join(calls) == called
    state = stage.board.snapshot().probes["p"].state
    assert state is (ProbeState.ENDED if failing == "none" else ProbeState.ERROR)


def test_with_the_timeline_on_every_call_is_recorded() -> None:
    stage = Stage((Op("a"), Op("b", phase=None), Op("c", phase=Phase.WAIT)))
    for op, durations in enumerate(((10, 20, 30), (1, 2, 3), (5, 6, 7))):
        stage.takes(op, *durations)
    stage.board.timeline.words.on = 1
    stage.run()
    head = int(stage.words.host_calls)
    calls = stage.part.host_calls[:head]
    assert (calls["op"] & CALL_OP_MASK).tolist() == [0, 1, 2] * 3
    assert calls["iteration"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    took = calls["returned_ns"] - calls["began_ns"]
    assert took.tolist() == [10, 1, 5, 20, 2, 6, 30, 3, 7]
    measured, first = calls["op"] & CALL_MEASURED != 0, calls["op"] & CALL_FIRST != 0
    assert measured.tolist() == [True, False, True] * 3
    assert first.tolist() == [True] * 3 + [False] * 6


def test_with_the_timeline_off_no_call_is_recorded() -> None:
    stage = Stage((Op("a"),))
    stage.takes(0, 10, 20)
    stage.run()
    assert stage.words.host_calls == 0
    assert not stage.part.host_calls["returned_ns"].any()


def test_a_hold_lets_no_call_begin_and_makes_none_late() -> None:
    stage = Stage((Op("a"),))
    held_at: list[int] = []
    durations = [10, 20, 30, 40, 50]

    def call(*_: int) -> int:
        assert not stage.board.header.hold
        stage.now += durations.pop(0)
        if len(durations) == 2:
            stage.board.header.hold = 7
            held_at.append(stage.now)
        return 0 if durations else stage.quit()

    def nap() -> None:
        if stage.board.header.hold and stage.now > held_at[0] + 40 * MS:
            assert stage.words.held == 7
            stage.board.header.hold = 0

    stage.script(0, call)
    stage.on_nap = nap
    seen = stage.run()
    # The first call is the first one ever, and the one after the hold pays for the rest.
    assert seen.channels[CALL] == Histogram.of([20, 30, 50])
    assert seen.channels[DUE] == Histogram.of([20, 30, 50])
    assert seen.missed == 0
    assert stage.now > held_at[0] + 40 * MS


def test_a_parked_loop_is_held_too_and_measures_its_first_call_afterwards() -> None:
    stage = Stage((Op("a"),))
    stage.takes(0, 10, 20)
    stage.words.run = 0
    stage.board.header.hold = 3

    def nap() -> None:
        if stage.words.held == 3:
            stage.board.header.hold = 0
            stage.words.run = 1

    stage.on_nap = nap
    seen = stage.run()
    assert seen.first_ns[CALL] == 10
    assert seen.channels[CALL] == Histogram.of([20])


def changed(**fields: int) -> Callable[[OpRow], None]:
    def change(row: OpRow) -> None:
        for name, value in fields.items():
            setattr(row, name, value)

    return change


@pytest.mark.parametrize("place", ["ops", "setup", "teardown"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed(function=0), "has no function"),
        (changed(channel=3), "counts in the channel 3, of which the probe has 3"),
        (changed(channel=-2), "counts in the channel -2"),
        (changed(label_channel=1 << 40), "counts in the channel of its label 1099511627776"),
        (changed(repeat=0), "is repeated 0 times"),
        (changed(repeat=-(1 << 62)), "is repeated -"),
        (changed(load_mask=1 << 11), r"loads arguments beyond its 11 \(mask 0x800\)"),
        (changed(load_mask=-1), "loads arguments beyond its 11"),
        (changed(load_mask=1 << 10), "loads an argument at the address 0"),
        (changed(flags=4), "has the flags 0x4"),
        (changed(flags=OpFlag.SAMPLE_IS_FLOAT_MS), "has a sample at the address 0"),
    ],
)
def test_an_op_that_c_must_not_get_is_refused(change: Callable[[OpRow], None], words: str, place: str) -> None:
    stage = Stage((Op("a"), Op("b", label="b")))
    rows = {name: op_rows(2) for name in ("ops", "setup", "teardown")}
    for each in rows.values():
        each[0].function = each[1].function = core().helper("nothing")
    ProbeLoop(stage.board, stage.part, rows["ops"], rows["setup"], rows["teardown"])
    change(rows[place][1])
    with pytest.raises(ValueError, match=f"^op 1 {words}"):
        ProbeLoop(stage.board, stage.part, rows["ops"], rows["setup"], rows["teardown"])


@pytest.mark.parametrize(
    ("word", "value", "words"),
    [
        ("due_channel", 2, "counts due times in the channel 2, of which it has 2"),
        ("due_channel", -1, "counts due times in the channel -1"),
        ("period_ns", -1, "a period of -1 ns"),
        ("lead_ns", -5, "a lead of -5 ns must not be negative"),
        ("guard_ahead", 0, "a guard lets the probe be 0 iterations ahead"),
    ],
)
def test_words_with_which_the_loop_would_do_harm_are_refused(word: str, value: int, words: str) -> None:
    stage = Stage((Op("a"),))
    stage.takes(0, 100)
    guard = np.zeros(1, dtype=np.int64)
    stage.words.guard_address, stage.words.guard_ahead = guard.ctypes.data, 1
    setattr(stage.words, word, value)
    with pytest.raises(ValueError, match=words):
        stage.run()
    assert stage.words.state == ProbeState.NEW
