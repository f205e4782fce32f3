"""The divider of a process's time: by readings as a file has them, held against the reference of single instants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from factories.call_tables import call_table, operation_table
from factories.divided_calls import FUNCTIONS, INSTANTIATE, POOL_ALLOC, UNIT, Call, readings
from factories.divided_instants import FLAGS, divided_one_by_one, totals
from factories.watch_calls import BASE_NS, D2H, LAUNCH, SYNC, rows_of
from factories.watch_calls import process as process_of
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import OverheadKind, RecordKind
from stallprobes.native.layouts.driver_calls import CallKind, function_of
from stallprobes.native.layouts.watch_file import COLLECTED, LossKind, WatchRecord, Window
from stallprobes.records.rows import DRIVER_CALL
from stallprobes.watch import analysis
from stallprobes.watch.division import divider as divider_module
from stallprobes.watch.division.binned_sums import since
from stallprobes.watch.division.call_columns import ALLOCATES_BY_KIND
from stallprobes.watch.division.divider import LAG_NS, MAX_OPEN_GAP_NS, MOST_SEQUENCES, ProcessDivider
from stallprobes.watch.division.instants import (
    COPY,
    KERNEL,
    LastEnd,
    Limits,
    SequenceTimes,
    Spans,
)
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division.pending import outermost_calls
from stallprobes.watch.division.recorded_times import EngineUse, Tenures
from stallprobes.watch.division.result import DividedProcess, WaitShare
from stallprobes.watch.intervals import int64s
from stallprobes.watch.reading.process import CallBatch, RecordBatch
from stallprobes.watch.reading.record_windows import RecordWindows
from stallprobes.watch.reading.words import ProcessState

# Those that are no event of the start-up.
STEADY = [name for name in FUNCTIONS if not (function_of(name).loads or function_of(name).creates)]
LENGTH = 60
COARSE = Limits(blocked_ns=6 * UNIT, wake_up_ns=4 * UNIT, launch_ns=2 * UNIT, staged_ns=6 * UNIT)


def at(units: float) -> int:
    return BASE_NS + round(units * UNIT)


def divided(calls: list[Call], times: list[float], **of: Any) -> DividedProcess | None:
    divider = ProcessDivider(COARSE)
    for number, reading in enumerate(readings(calls, times, **of), 1):
        divider.feed(*reading, ended=number == len(times))
    return divider.division()


def held(divider: ProcessDivider) -> int:
    """The calls that it keeps for a later slice."""
    return len(divider._calls) + sum(map(len, divider._new_calls))


@st.composite
def programs(draw: st.DrawFn, most_threads: int = 3) -> list[Call]:
    """Calls of threads, some of which submit work, also several operations each."""
    calls = []
    for thread in range(1, 1 + draw(st.integers(1, most_threads))):
        borders = sorted(draw(st.lists(st.integers(1, LENGTH), min_size=4, max_size=16, unique=True)))
        for begin, end in zip(borders[::2], borders[1::2], strict=False):
            function = draw(st.sampled_from(STEADY))
            work = []
            if function in (LAUNCH, D2H, "cuGraphLaunch"):
                for _ in range(draw(st.integers(0, 1 if function == D2H else 3))):
                    start = draw(st.integers(begin, min(end + 6, LENGTH)))
                    kind = COPY if function == D2H else KERNEL
                    work.append((start, draw(st.integers(start, min(start + 6, LENGTH))), kind))
            calls.append(Call(function, begin, end, thread, tuple(work), draw(st.sampled_from((1, 1, 2)))))
    return calls


def expected(
    calls: list[Call], threads: tuple[int, ...], begin: int, parts: Sequence[tuple[int, int]] = ((0, LENGTH),)
) -> Mapping[str, int]:
    """The reference's sums for the sequence of ``threads`` from ``begin`` on, in instants of ``parts``."""
    ends = {number: max(end for _, end, _ in call.work) for number, call in enumerate(calls) if call.work}

    def kind(number: int, call: Call) -> int:
        made = function_of(call.function).kind_of(call.function == D2H)
        return int(CallKind.SUBMITS) if returned_at_once(number, call) else int(made)

    def returned_at_once(number: int, call: Call) -> bool:
        waited = ends.get(number, LENGTH + 1) <= call.end or call.end - call.begin >= 6
        return call.function == D2H and not waited

    own: dict[int, list[tuple[int, int, int, int]]] = {thread: [] for thread in threads}
    rows, other, holding = [], [], [(0, 0, 0, 0)]
    for number, call in enumerate(calls):
        if call.thread in own:
            own[call.thread].append((call.begin, call.end, kind(number, call), call.context))
            rows += [(start, end, what, what == KERNEL, call.end, call.thread) for start, end, what in call.work]
        else:
            other += [(start, end) for start, end, _ in call.work]
            holds = function_of(call.function).holds(call.function == D2H)
            holding += [(call.begin, call.end, holds, call.context)] if not returned_at_once(number, call) else []
    columns = int64s(sorted(rows, key=lambda row: row[0])).reshape(-1, 6).T
    starts, finishes, kinds, engine, submitted, owners = columns
    work = operation_table(starts, finishes, kinds, engine=engine, returned=submitted, threads=owners)
    made = {
        thread: call_table(
            *int64s(sorted(of)).reshape(-1, 4).T[:3], thread=thread, contexts=int64s([one[3] for one in sorted(of)])
        )
        for thread, of in own.items()
    }
    begins, ends, holds_, contexts = int64s(holding).T
    times = SequenceTimes(
        threads=made,
        work=work,
        recorded=Spans(int64s([0]), int64s([2**62])),
        other_work=_spans(other),
        holding=call_table(begins, ends, contexts=contexts, holds=holds_),
        last_end=LastEnd(-100),
        ended=True,
        limits=Limits(blocked_ns=6, wake_up_ns=4, launch_ns=2),
    )
    first = min(call.begin for call in calls if call.thread in own)
    instants = divided_one_by_one(times, max(first, begin), LENGTH)
    inside = {each: one for each, one in instants.items() if any(low <= each < high for low, high in parts)}
    return totals(inside)


def _spans(pairs: list[tuple[int, int]]) -> Spans:
    return Spans(int64s([one[0] for one in pairs]), int64s([one[1] for one in pairs]))


@settings(max_examples=40, deadline=None)
@given(programs())
def test_a_program_is_divided_as_the_reference_divides_it(calls: list[Call]) -> None:
    found = divided(calls, [LENGTH])
    work = [call for call in calls if call.work]
    if found is None:
        assert not work
        return
    sequences = {thread: one for one in found.sequences for thread in one.threads}
    begin = round(found.division.start_up_ns / UNIT)
    for call in work:
        sequence = sequences.get(call.thread)
        sums = dict(expected(calls, sequence.threads if sequence is not None else (call.thread,), begin))
        waiting = sums.pop("waiting", 0)
        for name in FLAGS:
            sums.pop(name, 0)
        if sequence is None:
            assert not sums
            continue
        assert {part.value: ns / UNIT for part, ns in sequence.parts.items()} == sums
        assert sum(sequence.parts.values()) == sequence.covered_ns
        if sequence.steady_ns:
            assert sequence.host.share == pytest.approx(1 - waiting * UNIT / sequence.steady_ns, abs=1e-6)


def test_operations_are_counted_once_each_also_where_a_reading_ends_within_one() -> None:
    calls = [Call(LAUNCH, begin, begin + 1, 1, ((begin + 1, begin + 2, KERNEL),)) for begin in range(0, LENGTH - 2, 2)]
    readings_at: list[list[float]] = [[LENGTH], [3.5, 4, 9.5, LENGTH]]
    for times in readings_at:
        found = divided(calls, times)
        assert found is not None
        steady = found.division.start_up_ns / UNIT
        assert [each.operations for each in found.sequences] == [sum(call.begin + 2 > steady for call in calls)]


def test_a_wait_before_a_free_has_no_price_in_long_steps() -> None:
    # The kernel and the host take 0.4 s each by turns. Without the wait, the free waits for the kernel.
    calls, begin = [Call(LAUNCH, 0, 1, 1, ((0, 1, KERNEL),))], 2
    for _ in range(30):
        calls += [
            Call(LAUNCH, begin, begin + 1, 1, ((begin + 1, begin + 5, KERNEL),)),
            Call(SYNC, begin + 1, begin + 5, 1),
        ]
        calls.append(Call("cuMemFree_v2", begin + 5, begin + 6, 1))
        begin += 10
    found = divided(calls, list(range(10, begin, 5)))
    assert found is not None
    (sequence,) = found.sequences
    assert sequence.verdict is not Bound.WAIT
    # The free itself takes 0.1 s, which the replay lets run beside the kernel.
    assert sequence.price.share < 0.15
    without = divided([call for call in calls if call.function != "cuMemFree_v2"], list(range(10, begin, 5)))
    assert without is not None
    (sequence,) = without.sequences
    assert sequence.verdict is Bound.WAIT
    assert sequence.price.low > 0.35


def test_waits_that_only_a_long_queue_of_steps_would_hide_have_another_verdict_second() -> None:
    # The host computes for as long as 64 steps take. Eight steps ahead, the GPU would work for an eighth of that.
    calls, begin = list[Call](), 0
    for _ in range(12):
        for _ in range(64):
            calls.append(Call(LAUNCH, begin, begin + 1, 1, ((begin + 1, begin + 5, KERNEL),)))
            calls.append(Call(SYNC, begin + 1, begin + 5, 1))
            begin += 5
        begin += 320
    found = divided(calls, [*range(1000, begin, 1000), begin], unit=UNIT // 100)
    assert found is not None
    (sequence,) = found.sequences
    assert (sequence.verdict, sequence.second) == (Bound.WAIT, Bound.HOST)


# A stream that only copies in a slice of the time, and has run kernels before.
COPIES_LATER = [
    Call(LAUNCH, 1, 2, 1, ((1, 7, KERNEL),)),
    Call(D2H, 3, 5, 1, ((11, 12, COPY),)),
    Call(SYNC, 6, 11, 1),
]
# A slice that begins with the gap between two kernels.
GAP_AT_BORDER = [
    Call(LAUNCH, 1, 2, 1, ((1, 7, KERNEL),)),
    Call(LAUNCH, 3, 5, 1, ((11, 12, KERNEL),)),
    Call(SYNC, 6, 7, 1),
]


@settings(max_examples=30, deadline=None)
@given(programs(most_threads=1), st.lists(st.floats(1, LENGTH), max_size=12), st.booleans())
@example(COPIES_LATER, [19.0], False)
@example(GAP_AT_BORDER, [19.0], False)
def test_a_program_is_divided_alike_while_it_runs(calls: list[Call], times: list[float], turns: bool) -> None:
    # Another thread takes turns with it.
    calls = [replace(call, thread=1 + number % 2) if turns else call for number, call in enumerate(calls)]
    calls = [Call(LAUNCH, 0, 1, 1, ((0, 1, KERNEL),)), *calls]
    whole, by_parts = (divided(calls, [*each, LENGTH]) for each in ((), sorted(times)))
    assert whole is not None
    assert by_parts is not None
    assert by_parts.division == whole.division
    assert len(by_parts.sequences) == len(whole.sequences)
    for one, other in zip(by_parts.sequences, whole.sequences, strict=True):
        assert (one.parts, one.host, one.gpu, one.covered_ns) == (other.parts, other.host, other.gpu, other.covered_ns)
        # A reading may part a free from the wait that makes it a late one.
        if any(ALLOCATES_BY_KIND[function_of(call.function).kind_of(False)] for call in calls):
            continue
        assert one == other


@settings(max_examples=40, deadline=None)
@given(programs(most_threads=1), st.lists(st.integers(1, LENGTH), min_size=1, max_size=7, unique=True).map(sorted))
def test_parts_of_a_program_are_divided_as_the_reference_divides_them(calls: list[Call], borders: list[int]) -> None:
    # The time of a sequence begins with its first call that is known.
    calls = [Call(LAUNCH, 0, 1, 1, ((0, 1, KERNEL),)), *calls]
    parts = list(zip([0, *borders[1::2]], borders[::2], strict=False))
    chosen = Spans(int64s([at(first) for first, _ in parts]), int64s([at(last) for _, last in parts]))
    divider = ProcessDivider(COARSE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            divider._time, "within", lambda *of: list(zip(*(one.tolist() for one in chosen.within(*of)), strict=True))
        )
        divider.feed(*readings(calls, [LENGTH])[0], ended=True)
    found = divider.division()
    assert found is not None
    sums = expected(calls, (1,), round(found.division.start_up_ns / UNIT), parts)
    sums = {name: count for name, count in sums.items() if name not in FLAGS}
    assert {part.value: ns / UNIT for one in found.sequences for part, ns in one.parts.items()} == sums


@pytest.mark.parametrize("threads", [1, 2])
def test_of_many_calls_a_part_of_each_slice_is_divided(threads: int) -> None:
    calls = [
        replace(call, thread=1 + number // 2 % threads) for number, call in enumerate(loop(6_000, kernel=700, host=800))
    ]
    # Each step of 1512 us has three calls and operations.
    whole, part = ProcessDivider(most_events=10**9), ProcessDivider(most_events=550)
    read = readings(calls, [*(each * 1e6 for each in range(1, 9)), float(calls[-1].end)], 1000)
    for number, reading in enumerate(read, 1):
        for divider in (whole, part):
            divider.feed(*reading, ended=number == len(read))
        assert held(part) <= held(whole)
    expected_division, found = whole.division(), part.division()
    assert expected_division is not None
    assert found is not None
    for one, all_of_it in zip(found.sequences, expected_division.sequences, strict=True):
        assert all_of_it.recorded == 1.0
        assert 0.1 < one.recorded < 0.25
        assert one.threads == all_of_it.threads
        assert (one.verdict, one.second) == (all_of_it.verdict, all_of_it.second)
        assert one.gpu.low < one.gpu.share < one.gpu.high
        assert one.gpu.share == pytest.approx(all_of_it.gpu.share, abs=0.001)
        assert one.host.share == pytest.approx(all_of_it.host.share, abs=0.001)
        assert one.parts[Part.KERNELS] == pytest.approx(all_of_it.parts[Part.KERNELS] * one.recorded, rel=0.01)
        assert one.parts.get(Part.END) == all_of_it.parts.get(Part.END)
        assert Part.UNKNOWN not in one.parts


def test_findings_say_that_a_part_of_the_time_was_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "Only 12 % of its time was divided, as a sample: what is watched makes more than 100 000 calls and operations "
        "of the GPU a second."
    )
    for most, expected_gaps in ((10**9, 0), (550, 1)):
        monkeypatch.setattr(analysis, "ProcessDivider", partial(ProcessDivider, most_events=most))
        whole = analysis.ProcessAnalysis()
        for process, records, calls, now_ns in readings(loop(3_000, kernel=700, host=800), [2e6, 4e6], 1000):
            whole.feed(process, records, now_ns, calls=calls)
        assert whole.findings().gaps.count(said) == expected_gaps


def loop(steps: int, launch: int = 5, kernel: int = 20, host: int = 60) -> list[Call]:
    """Steps that launch a kernel, wait for it, and compute; times in µs."""
    calls, now = [], 100
    for _ in range(steps):
        start = now + launch + 2
        calls.append(Call(LAUNCH, now, now + launch, 1, ((start, start + kernel, KERNEL),)))
        calls.append(Call(SYNC, now + launch + 1, start + kernel + 5, 1))
        now = start + kernel + 5 + host
    return calls


def steps(count: int = 200, **of: Any) -> DividedProcess:
    divider, calls = ProcessDivider(), loop(count)
    last = calls[-1].end
    (reading,) = readings(calls, [last], 1000, **of)
    divider.feed(*reading, ended=True)
    found = divider.division()
    assert found is not None
    return found


def test_between_the_kernels_of_a_graph_the_gpu_is_occupied() -> None:
    # 900 kernels of 7 µs, 3.5 µs apart, in one launch, and a wait for them; then 300 µs on the host.
    calls, begin = [], 0
    for _ in range(40):
        work = tuple((begin + 10_000 + 10_500 * at, begin + 17_000 + 10_500 * at, KERNEL) for at in range(900))
        end = work[-1][1] + 5_000
        calls += [Call("cuGraphLaunch", begin, begin + 8_000, work=work), Call(SYNC, begin + 9_000, end)]
        begin = end + 300_000
    divider = ProcessDivider()
    (reading,) = readings(calls, [calls[-1].end], 1)
    divider.feed(*reading, ended=True)
    found = divider.division()
    assert found is not None
    (one,) = found.sequences
    assert one.parts[Part.BETWEEN] == 40 * 899 * 3_500
    assert (one.verdict, one.second) == (Bound.GAPS, Bound.GPU)
    assert one.price.share < 0.04


def test_a_kernel_that_runs_all_the_time_is_no_proof_that_the_gpu_works() -> None:
    # One kernel polls memory, while the host computes and submits a fill each 2 ms.
    end = 6_000_000
    calls = [Call(LAUNCH, 0, 5_000, 1, ((10_000, end * 1_000, KERNEL),))]
    calls += [
        Call(LAUNCH, at * 1_000, at * 1_000 + 5_000, 1, ((at * 1_000 + 9_000, at * 1_000 + 10_000, COPY),))
        for at in range(2_000, end - 2_000, 2_000)
    ]
    divider = ProcessDivider()
    (reading,) = readings(calls, [end * 1_000], 1)
    divider.feed(*reading, ended=True)
    found = divider.division()
    assert found is not None
    (one,) = found.sequences
    assert min(one.gpu.share, one.host.share) > 0.99
    assert (one.verdict, one.second) == (Bound.UNKNOWN, None)


def test_a_thread_that_polls_waits() -> None:
    # A kernel of 5 ms that is asked for each 20 µs, then 3 ms on the host.
    calls, begin = [], 0
    for _ in range(100):
        calls.append(Call(LAUNCH, begin, begin + 5_000, work=((begin + 7_000, begin + 5_007_000, KERNEL),)))
        calls += [Call("cuEventQuery", begin + 20_000 * at, begin + 20_000 * at + 2_000) for at in range(1, 252)]
        begin = calls[-1].end + 3_000_000
    divider = ProcessDivider()
    (reading,) = readings(calls, [calls[-1].end], 1)
    divider.feed(*reading, ended=True)
    found = divider.division()
    assert found is not None
    (one,) = found.sequences
    assert one.verdict is Bound.WAIT
    assert one.price.share == pytest.approx(3 / 8, abs=0.01)
    assert [wait.function for wait in one.waits] == ["cuEventQuery"]


def test_queries_of_different_events_are_no_wait() -> None:
    rows = np.zeros(9, DRIVER_CALL)
    rows["began_ns"] = 1_000 * np.arange(9)
    rows["returned_ns"] = rows["began_ns"] + 500
    rows["thread"] = 1
    for handles, kinds in ((np.arange(9), 9), ([1, 1, 2, 2, 2, 2, 3, 4, 5], 6)):
        rows["bytes"] = handles
        found, _ = outermost_calls(rows, {0: "cuEventQuery"})
        assert len(found) == kinds
        assert int((found.kinds == int(CallKind.WAITS)).sum()) == int(kinds < 9)
    assert found.begins[2] == 2_000
    assert found.ends[2] == 5_500


@pytest.mark.parametrize(("hole_ns", "other", "waits"), [(4_000_000, 0, 1), (4_000_000, 1, 2), (40_000_000, 0, 2)])
def test_a_thread_that_loses_its_cpu_while_it_polls_waits_on(hole_ns: int, other: int, waits: int) -> None:
    rows = np.zeros(10, DRIVER_CALL)
    rows["began_ns"] = 1_000 * np.arange(10) + hole_ns * (np.arange(10) >= 5)
    rows["returned_ns"] = rows["began_ns"] + 500
    # Or a call of another function, in the hole.
    rows["function"][5] = other
    found, _ = outermost_calls(rows, {0: "cuEventQuery", 1: LAUNCH})
    assert int((found.kinds == int(CallKind.WAITS)).sum()) == waits


def test_a_loop_that_waits_for_each_kernel() -> None:
    (one,) = steps().sequences
    # Each step of 92 µs: 5 in the launch, 2 until the kernel starts, 20 for it, 5 to wake up, 60 on the host.
    assert one.parts[Part.KERNELS] == 200 * 20_000
    assert one.parts[Part.WAKE_UP] == 199 * 5_000
    assert one.parts[Part.HOST] == 199 * 60_000
    assert one.parts[Part.QUEUED] == 200 * 2_000
    assert one.parts[Part.SUBMITTING] == 200 * 5_000
    assert one.parts[Part.END] == 5_000
    assert one.gpu.share == pytest.approx(20 / 92, abs=0.001)
    assert one.host.share == pytest.approx(66 / 92, abs=0.001)
    # Without the waits it takes max(h, g) of the time.
    assert one.price.share == pytest.approx(1 - 66 / 92, abs=0.001)
    assert (one.verdict, one.alone, one.threads) == (Bound.WAIT, True, (1,))
    # A wait of 27 µs lies before a gap of 72 µs.
    assert one.waits == (WaitShare(function=SYNC, calls=200, ns=200 * 26_000, share=1.0),)
    # The clocks of host and GPU differ, and records may be longer than the kernels by a tenth.
    low, high = 0.9 * one.gpu.share, one.gpu.share + 0.01
    assert (one.gpu.low, one.gpu.high) == pytest.approx((low, high), abs=0.001)


def test_the_price_is_spread_over_waits_by_the_gaps_behind_them() -> None:
    calls = [
        Call(LAUNCH, 1, 2, 1, ((3, 20, KERNEL),)),
        # It returns in a gap of 10 (20 to 30), and took 18.
        Call(SYNC, 3, 21),
        Call(LAUNCH, 28, 29, 1, ((30, 35, KERNEL),)),
        # In a gap of 25 (35 to 60), and took 6.
        Call(D2H, 30, 36, 1, ((31, 33, COPY),)),
        Call(LAUNCH, 50, 51, 1, ((60, 70, KERNEL),)),
        # While the GPU works, and after the last operation.
        Call(SYNC, 61, 65), Call(SYNC, 66, 72),
    ]  # fmt: skip
    for times in ([80.0], [40.0, 55.0, 80.0]):
        found = divided(calls, times, started=replace(process_of().started, monotonic_ns=at(-10)))
        assert found is not None
        (one,) = found.sequences
        # The copy has 6 of 16 parts by its gap, but no more of the price than it took.
        price = one.price.share * one.steady_ns
        copy = 6 * UNIT / price
        assert copy < 6 / 16
        named = [(each.function, each.calls, each.ns) for each in one.waits]
        assert named == [(SYNC, 3, 28 * UNIT), (D2H, 1, 6 * UNIT)]
        assert [each.share for each in one.waits] == pytest.approx([1 - copy, copy], abs=1e-5)


def test_windows_without_records_widen_the_intervals_and_are_not_covered() -> None:
    windows = np.zeros(4, dtype_of(Window))
    windows["began_ns"] = BASE_NS + np.arange(4) * 4_000_000
    windows["ended_ns"][:3] = windows["began_ns"][1:]
    windows["settled_ns"] = windows["began_ns"]
    windows["records"] = 1, 0, 1, 0
    (one,) = steps(windows=RecordWindows.of(windows)).sequences
    assert one.covered_ns == 8_000_000 - 100_000
    assert one.recorded == pytest.approx(0.43, abs=0.01)
    assert one.gpu.low < one.gpu.share < one.gpu.high


@pytest.mark.parametrize(("launches", "part"), [(True, Part.KERNELS), (False, Part.UNKNOWN)])
def test_work_that_runs_when_recording_ends_has_no_record_but_a_wait(launches: bool, part: Part) -> None:
    windows = np.zeros(2, dtype_of(Window))
    windows["began_ns"], windows["ended_ns"], windows["records"] = (BASE_NS, at(20)), (at(20), 0), (1, 0)
    windows["settled_ns"] = windows["began_ns"]
    calls = [Call(LAUNCH, 1, 2, 1, ((2, 6, KERNEL),)), Call(SYNC, 3, 7), Call(SYNC, 10, 30)]
    if launches:
        calls.insert(2, Call(LAUNCH, 8, 9))
    found = divided(calls, [40.0], windows=RecordWindows.of(windows))
    assert found is not None
    # Of the steady state, which begins with the second second.
    assert found.sequences[0].parts == {part: 10 * UNIT}


def test_time_without_records_is_no_open_gap() -> None:
    # Records are on in the first and in the third second; calls are made in all.
    windows = np.zeros(4, dtype_of(Window))
    windows["began_ns"], windows["ended_ns"] = (BASE_NS, at(10), at(20), at(30)), (at(10), at(20), at(30), 0)
    windows["records"] = 1, 0, 1, 0
    windows["settled_ns"] = windows["began_ns"]
    calls = [
        Call(LAUNCH, each, each + 1, 1, ((each + 1, each + 2, KERNEL),) if each // 10 in (0, 2) else ())
        for each in range(0, 80, 2)
    ]
    divider = ProcessDivider()
    for reading in readings(calls, [40.0, 60.0, 70.0], windows=RecordWindows.of(windows)):
        divider.feed(*reading)
        assert divider.done_ns == reading[3] - LAG_NS
    assert held(divider) <= 6
    found = divider.division()
    assert found is not None
    assert found.sequences[0].covered_ns == 10 * UNIT
    # The steady state began with the second second.
    assert found.sequences[0].recorded == pytest.approx(1 / 5)


@pytest.mark.parametrize(("covered", "verdict"), [(True, Bound.GPU), (False, Bound.UNKNOWN)])
def test_records_that_come_late_leave_no_verdict_unless_other_work_ran_meanwhile(covered: bool, verdict: Bound) -> None:
    early = Call(LAUNCH, 0, 1, 1, ((1, 9, KERNEL), (16, 18, KERNEL), (18, 49, KERNEL)))
    late = Call(LAUNCH, 2, 3, 1, ((2, 8, KERNEL),) if covered else ((10, 15, KERNEL),))
    last = Call(LAUNCH, 9, 10, 1, ((9, 16, KERNEL),) if covered else ())
    calls = [early, late, last, Call(LAUNCH, 28, 29, 1, ((49, 50, KERNEL),))]
    divider = ProcessDivider()
    made = readings(calls, [30.0, 50.0])
    # The records of a call come with the second reading.
    rows = [records.rows for _, records, _, _ in made]
    held = rows[0]["correlation"] == 2
    rows = [rows[0][~held], np.concatenate((rows[0][held], rows[1]))]
    for number, (read, records, batch, now) in enumerate(made):
        divider.feed(read, replace(records, rows=rows[number]), batch, now, ended=number == 1)
    found = divider.division()
    assert found is not None
    assert found.sequences[0].verdict is verdict
    assert (found.sequences[0].late_ns > 0) is not covered


@pytest.mark.parametrize("recorded", [True, False])
def test_until_there_is_any_record_time_is_divided_up_to_the_first_launch(recorded: bool) -> None:
    """As with a GPU that is never idle, of whose work CUPTI returned nothing for 3.2 s (H200, CUPTI 13.5)."""
    calls = [Call(LAUNCH, each, each + 1, 1, ((each + 1, each + 3, KERNEL),)) for each in range(12, 52, 2)]
    windows = np.zeros(1, dtype_of(Window))
    windows["began_ns"] = windows["settled_ns"] = BASE_NS
    windows["records"] = recorded
    divider, done = ProcessDivider(), []
    made = readings(calls, [25.0, 40.0, 52.0, 60.0], windows=RecordWindows.of(windows))
    for number, (read, records, batch, now) in enumerate(made):
        rows = np.concatenate([each.rows for _, each, _, _ in made]) if number == 2 and recorded else records.rows[:0]
        divider.feed(read, replace(records, rows=rows), batch, now)
        done.append(divider.done_ns)
    assert done[:2] == ([at(12)] * 2 if recorded else [at(25) - LAG_NS, at(40) - LAG_NS])
    found = divider.division()
    assert (found is not None) is recorded
    if found is not None:
        assert (found.sequences[0].late_ns, found.sequences[0].verdict) == (0, Bound.GPU)


def test_a_first_launch_without_a_record_is_not_waited_for_with_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divider_module, "_MOST_WAITING", 20)
    calls = [Call(LAUNCH, each, each + 1, 1, ()) for each in range(12, 62, 2)]
    divider, done = ProcessDivider(), []
    for reading in readings(calls, [30.0, 50.0, 60.0]):
        divider.feed(*reading)
        done.append(divider.done_ns)
    assert done == [at(12), at(12), at(60) - LAG_NS]


def test_a_first_launch_without_a_record_is_not_waited_for_for_ever() -> None:
    calls = [Call(LAUNCH, 12, 13, 1, ())]
    divider, done = ProcessDivider(), []
    for reading in readings(calls, [50.0, 100.0, 134.0]):
        divider.feed(*reading)
        done.append(divider.done_ns)
    assert done == [at(12), at(12), at(134) - LAG_NS]
    assert at(134) - LAG_NS > at(12) + MAX_OPEN_GAP_NS


def test_a_thread_with_two_gpus_has_a_division_of_each() -> None:
    calls = [Call(LAUNCH, 1, 2, 1, ((2, 22, KERNEL),)), Call(LAUNCH, 3, 4, 1, ((4, 14, KERNEL),))]
    ((read, records, batch, now),) = readings(calls, [22])
    records.rows["device"] = records.rows["correlation"] == 2
    divider = ProcessDivider(COARSE)
    divider.feed(read, records, batch, now, ended=True)
    found = divider.division()
    assert found is not None
    assert {one.device: one.parts[Part.KERNELS] // UNIT for one in found.sequences} == {0: 20, 1: 10}
    assert all(one.alone for one in found.sequences)
    (second,) = [one for one in found.sequences if one.device == 1]
    assert second.parts[Part.END] == 8 * UNIT


def test_nothing_is_divided_after_the_programs_own_profiler_began() -> None:
    calls = loop(20)
    last = calls[-1].end
    divider = ProcessDivider()
    for number, reading in enumerate(readings(calls, [last, last + 5_000_000, last + 9_000_000], 1000)):
        divider.feed(reading[0].changed(state=ProcessState.YIELDED if number else ProcessState.RECORDING), *reading[1:])
    found = divider.division()
    assert found is not None
    (one,) = found.sequences
    assert one.covered_ns == (last - calls[0].begin) * 1000


@pytest.mark.parametrize("of", [{"losses": {LossKind.DROPPED_BY_CUPTI: 5}}, {"not_held": 1}], ids=str)
def test_lost_records_are_no_gap_and_leave_no_verdict(of: Mapping[str, Any]) -> None:
    calls = loop(200)
    divider = ProcessDivider()
    (reading,) = readings(calls, [calls[-1].end], 1000, **of)
    divider.feed(*reading, ended=True)
    found = divider.division()
    assert found is not None
    (one,) = found.sequences
    assert one.parts.keys() == {Part.KERNELS, Part.UNKNOWN}
    assert one.verdict is Bound.UNKNOWN


def test_another_context_has_the_gpu() -> None:
    # The kernel of 20 units: the engine was away in 10 of them, and for 5 before it.
    calls = [Call(LAUNCH, 1, 2, 1, ((10, 30, KERNEL),)), Call(SYNC, 3, 31)]
    divider = ProcessDivider(COARSE)
    tenures = Tenures(
        int64s([1, 2, 1, 1]), int64s([at(0), at(5), at(10), at(25)]), int64s([at(5), at(10), at(15), at(40)]),
        np.array([False, True, True, True]),
    )  # fmt: skip
    (reading,) = readings(calls, [40])
    divider.feed(*reading, engine_use=lambda: ({0: tenures}, 100), ended=True)
    found = divider.division()
    assert found is not None
    (one,) = found.sequences
    assert {part: ns / UNIT for part, ns in one.parts.items()} == {
        Part.SUBMITTING: 1, Part.QUEUED: 3, Part.SHARED: 15, Part.KERNELS: 10, Part.END: 10,
    }  # fmt: skip
    assert (one.verdict, one.engine_known) == (Bound.SHARED, True)


def test_a_sequence_is_named_by_the_thread_that_submits_and_waits_most() -> None:
    """Not by one that only creates the context, nor by autograd's where both make as many calls."""
    work = [Call(LAUNCH, each, each + 2, 2, ((each + 2, each + 3, KERNEL),)) for each in range(10, 50, 4)]
    busy = [Call(LAUNCH, each + 2, each + 3) for each in range(10, 50, 4)]
    for main, expected in (([Call(LAUNCH, 1, 2)], (2, 1)), ([Call(LAUNCH, 1, 2), *busy], (1, 2))):
        found = divided(sorted([*main, *work], key=lambda one: one.begin), [60])
        assert found is not None
        assert [one.threads for one in found.sequences] == [expected]


def test_a_thread_that_has_left_a_sequence_is_none_of_its_threads() -> None:
    """Two threads whose calls overlap only later."""
    calls = [
        Call(LAUNCH, each, each + 1, 1 + each % 4 // 2, ((each + 1, each + 2, KERNEL),)) for each in range(0, 40, 2)
    ]
    calls += [
        Call(LAUNCH, each, each + 2, thread, ((each + 2, each + 3, KERNEL),))
        for each in range(40, 90, 3)
        for thread in (1, 2)
    ]
    divider = ProcessDivider(COARSE)
    seen = []
    for number, reading in enumerate(readings(calls, [30.0, 60.0, 95.0]), 1):
        divider.feed(*reading, ended=number == 3)
        found = divider.division()
        seen.append(sorted(one.threads for one in found.sequences) if found is not None else [])
    assert seen[0] == [(1, 2)]
    assert seen[-1] == [(1,), (2,)]


def test_a_launch_that_another_threads_copy_holds_up() -> None:
    calls = [
        Call(LAUNCH, 1, 2, 1, ((2, 3, KERNEL),)), Call(LAUNCH, 4, 20, 1, ((20, 21, KERNEL),)),
        Call(D2H, 4, 19, 2, ((5, 19, COPY),)),
    ]  # fmt: skip
    found = divided(calls, [25])
    assert found is not None
    launching, copying = sorted(found.sequences, key=lambda one: one.threads)
    assert (launching.parts[Part.LOCK], launching.parts[Part.BLOCKED]) == (15 * UNIT, UNIT)
    assert (launching.verdict, launching.alone) == (Bound.LOCK, False)
    assert copying.verdict is Bound.COPY


def test_code_that_is_loaded_in_a_launch() -> None:
    calls = [Call(LAUNCH, 1, 2, 1, ((2, 3, KERNEL),)), Call(LAUNCH, 4, 20, 1, ((20, 21, KERNEL),))]
    (reading,) = readings(calls, [25])
    lazy = {
        "kind": RecordKind.OVERHEAD, "start": at(5), "end": at(19), "correlation": 2,
        "subkind": OverheadKind.LAZY_FUNCTION_LOADING,
    }  # fmt: skip
    records = RecordBatch(np.concatenate((reading[1].rows, rows_of([lazy]))), {1: "add"}, 0, 0)
    divider = ProcessDivider(COARSE)
    divider.feed(reading[0], records, *reading[2:], ended=True)
    found = divider.division()
    assert found is not None
    assert found.sequences[0].parts[Part.LOADING] == 16 * UNIT
    assert found.sequences[0].verdict is Bound.LOADING


def test_the_steady_state_begins_with_three_quiet_seconds() -> None:
    loads = [Call("cuModuleLoadData", 5 * each, 5 * each + 1) for each in range(1, 5)]
    work = [Call(LAUNCH, 2 + each, 3 + each, 1, ((3 + each, 4 + each, KERNEL),)) for each in range(0, 96, 2)]
    calls = sorted((*loads, *work), key=lambda one: one.begin)
    calls = [one for number, one in enumerate(calls) if not number or one.begin >= calls[number - 1].end]
    found = divided(calls, [100])
    assert found is not None
    # The last load returns at 2.1 s.
    assert (found.division.steady, found.division.start_up_ns) == (True, 3 * 10**9)
    assert found.division.start_up[Part.LOADING] > 0
    assert found.sequences[0].covered_ns == 7 * 10**9
    # Half of a run has none.
    short = divided([one for one in calls if one.end < 50], [55])
    assert short is not None
    assert (short.division.steady, short.division.start_up_ns) == (False, 0)


def test_seconds_in_which_a_compiler_runs_on_the_host_are_not_steady() -> None:
    first = [Call(LAUNCH, 2 + each, 3 + each, 1, ((3 + each, 4 + each, KERNEL),)) for each in range(0, 6, 2)]
    compiled = [Call("cuModuleLoadData", 62, 63)]
    later = [Call(LAUNCH, 64 + each, 65 + each, 1, ((65 + each, 66 + each, KERNEL),)) for each in range(0, 96, 2)]
    found = divided([*first, *compiled, *later], [165])
    assert found is not None
    assert (found.division.steady, found.division.start_up_ns) == (True, 7 * 10**9)
    # Without another steady state, quiet seconds count.
    rare = divided([*first, Call(LAUNCH, 110, 111, 1, ((111, 112, KERNEL),))], [120])
    assert rare is not None
    assert (rare.division.steady, rare.division.start_up_ns) == (True, 10**9)


def test_a_run_of_hours_needs_a_limited_memory() -> None:
    divider, second = ProcessDivider(), 10**9
    calls = [Call(LAUNCH, each, each + 1, 1, ((each + 1, each + 2, KERNEL),)) for each in range(0, 18_000, 2)]
    times = [float(each) for each in range(10, 18_000, 1500)]
    for reading in readings(calls, times, second):
        divider.feed(*reading)
    (sequence,) = divider._sequences.values()
    assert len(sequence._sums.during(since(0))) <= 4096
    assert held(divider) < 1000
    found = divider.division()
    assert found is not None
    assert found.sequences[0].gpu.share == pytest.approx(0.5, abs=0.01)


def test_context_switches_are_not_kept() -> None:
    """Their times are on the GPU's clock, which is beyond all slices."""
    divider = ProcessDivider()
    switch = {"kind": RecordKind.CONTEXT_SWITCH, "start": 2**60, "end": 0, "context": 1}
    calls = [Call(LAUNCH, each, each + 1, 1, ((each + 1, each + 2, KERNEL),)) for each in range(0, 98, 2)]
    for process, records, batch, now_ns in readings(calls, [20.0, 40.0, 60.0, 80.0]):
        rows = np.concatenate((records.rows, rows_of([switch] * 100)))
        divider.feed(process, RecordBatch(rows, records.names, 0, 0), batch, now_ns)
        assert sum(map(len, divider._new_records)) <= 20
    assert divider.division() is not None


def test_a_sequence_with_a_long_gap_needs_its_own_calls_alone() -> None:
    seldom = [Call(LAUNCH, 1, 2, 1, ((2, 3, KERNEL),)), Call(SYNC, 4, 6), Call(LAUNCH, 90, 91, 1, ((92, 95, KERNEL),))]
    often = [Call(LAUNCH, each, each + 1, 2, ((each + 1, each + 2, KERNEL),)) for each in range(0, 98, 2)]
    whole = divided([*seldom, *often], [99.0])
    divider = ProcessDivider(COARSE)
    for number, reading in enumerate(readings([*seldom, *often], [20.0, 40.0, 60.0, 80.0, 99.0]), 1):
        divider.feed(*reading, ended=number == 5)
        # Two seconds of the busy thread have twenty calls, ten of which are of the last second.
        assert held(divider) <= 13
    assert divider.division() == whole
    assert whole is not None
    assert {one.threads for one in whole.sequences} == {(1,), (2,)}


def test_a_program_of_many_threads_needs_a_limited_memory() -> None:
    # Each pair of threads works at the same time as the next, so that no two are one sequence.
    calls = [
        Call(LAUNCH, each // 2, each // 2 + 2, 1 + each, ((each // 2 + 1, each // 2 + 2, KERNEL),))
        for each in range(400)
    ]
    divider = ProcessDivider()
    for number, reading in enumerate(readings(calls, [50.0, 100.0, 150.0, 210.0]), 1):
        divider.feed(*reading, ended=number == 4)
        assert len(divider._sequences) <= 2 * MOST_SEQUENCES
    assert divider.division() is not None


def test_a_gap_is_open_until_an_operation_ends_it_or_for_long() -> None:
    calls = [Call(LAUNCH, 1, 2, 1, ((2, 3, KERNEL),))]
    divider = ProcessDivider()
    done = []
    for reading in readings(calls, [5.0, 20.0, 100.0, 125.0]):
        divider.feed(*reading)
        done.append(divider.done_ns)
    assert done[1:3] == [at(3)] * 2
    assert done[3] == at(125) - LAG_NS > at(3) + MAX_OPEN_GAP_NS


def using(tenures: Tenures) -> Callable[[], EngineUse]:
    return lambda: ({0: tenures}, 2)


@pytest.mark.parametrize("seed", range(30))
def test_values_that_no_program_writes_do_no_harm(seed: int) -> None:
    """Calls and records as a damaged file may have them: within the limits of its reader, and without sense."""
    random, divider = np.random.default_rng(seed), ProcessDivider()
    read = process_of(now=0)
    read = read.changed(started=replace(read.started, monotonic_ns=int(random.choice([0, BASE_NS, 2**62 - 1]))))
    now = BASE_NS
    for number in range(3):
        rows, records = np.zeros(50, DRIVER_CALL), np.zeros(50, dtype_of(WatchRecord))
        times = np.sort(random.choice([0, 1, BASE_NS, BASE_NS + 10**9, 2**62 - 1], (100, 2)).astype(np.int64), axis=1)
        rows["began_ns"], rows["returned_ns"] = times[:50].T
        records["start"], records["end"] = times[50:].T
        for row, names in (
            (rows, ("thread", "correlation", "context")),
            (records, ("correlation", "device", "context")),
        ):
            for name in names:
                row[name] = random.choice([0, 1, 2, 2**31, 2**32 - 1], 50)
        rows["function"] = random.integers(0, len(FUNCTIONS), 50)
        records["kind"] = random.choice([int(kind) for kind in COLLECTED], 50)
        records["subkind"] = random.choice([0, 1, *(int(kind) for kind in OverheadKind)], 50)
        tenures = Tenures(int64s([1, 0]), times[:2, 0], times[:2, 1], np.array([False, True]))
        now += int(random.integers(1, 5)) * 10**9
        batch = CallBatch(rows, dict(enumerate(FUNCTIONS)), 0)
        made = RecordBatch(records, {}, 0, int(random.integers(2)))
        divider.feed(read, made, batch, now, using(tenures), ended=number == 2)
        found = divider.division()
        for one in () if found is None else found.sequences:
            assert sum(one.parts.values()) == one.covered_ns
            assert min(one.parts.values()) > 0
            assert 0 <= one.host.low <= one.host.high <= 1
            assert one.late_ns >= 0


def test_sequences_with_about_as_many_calls_keep_their_order() -> None:
    """Threads 1 and 2 of a server make calls at the same time, in turn a few more; thread 3 makes twice as many."""
    first = [Call(LAUNCH, each, each + 1, 1, ((each + 1, each + 2, KERNEL),)) for each in range(0, 40, 2)]
    more = [Call(LAUNCH, each, each + 1, 2, ((each + 1, each + 2, KERNEL),)) for each in range(0, 44, 2)]
    most = [Call(LAUNCH, each, each + 1, 3, ((each + 1, each + 2, KERNEL),)) for each in range(44)]
    found = divided([*first, *more, *most], [50])
    assert found is not None
    assert [one.threads[0] for one in found.sequences] == [3, 1, 2]


@pytest.mark.parametrize(
    ("function", "verdict"),
    [
        (INSTANTIATE, Bound.LOCK), ("cuStreamCreate", Bound.LOCK), ("cuModuleGetFunction", Bound.LOCK),
        # Checks of an H200 agree that no call of another stream takes longer beside these.
        (POOL_ALLOC, Bound.SUBMISSION),
    ],
)  # fmt: skip
@pytest.mark.parametrize("context", [1, 2])
def test_launches_wait_for_what_another_thread_does_in_their_context(
    function: str, verdict: Bound, context: int
) -> None:
    calls = [
        Call(LAUNCH, 1, 2, 1, ((2, 3, KERNEL),)), Call(function, 3, 20, 2, context=context),
        Call(LAUNCH, 4, 20, 1, ((20, 24, KERNEL),)),
    ]  # fmt: skip
    division = divided(calls, [25])
    assert division is not None
    (found,) = (each for each in division.sequences if 1 in each.threads)
    assert found.verdict is (verdict if context == 1 else Bound.SUBMISSION)


@pytest.mark.parametrize(
    ("late", "behind", "gpu"),
    [
        # What was submitted before the recording began runs until 20 ms: until then it is not known what the GPU does.
        (True, 18, 1.0),
        # The GPU did nothing else.
        (True, 0, 0.97),
        (False, 18, 0.345),
    ],
)
def test_what_was_submitted_before_a_late_recording_leaves_the_time_unknown(
    late: bool, behind: int, gpu: float
) -> None:
    calls = [Call(LAUNCH, 1, 2, 1, ((2 + behind, 30, KERNEL),)), Call(LAUNCH, 3, 4, 1, ())]
    ((read, records, batch, now),) = readings(calls, [30], late=late)
    divider = ProcessDivider(COARSE)
    divider.feed(read, records, batch, now, ended=True)
    found = divider.division()
    assert found is not None
    (sequence,) = found.sequences
    assert sequence.gpu.share == pytest.approx(gpu, abs=0.03)


def test_before_records_are_on_the_time_is_unknown() -> None:
    """A recording that begins late follows calls first, and records work a tenth of a second later."""
    calls = [Call(LAUNCH, 1, 2, 1, ()), Call(LAUNCH, 20, 21, 1, ((21, 30, KERNEL),))]
    ((read, records, batch, now),) = readings(calls, [30], late=True, recorded_ns=BASE_NS + 20 * UNIT)
    divider = ProcessDivider(COARSE)
    divider.feed(read, records, batch, now, ended=True)
    found = divider.division()
    assert found is not None
    assert found.sequences[0].gpu.share == pytest.approx(0.9)


def test_a_wait_for_the_device_names_the_threads_whose_work_it_waits_for() -> None:
    calls = []
    for step in range(20):
        begin = 30 * step
        calls += [
            Call(LAUNCH, begin, begin + 1, 2, ((begin + 1, begin + 20, KERNEL),)),
            Call(SYNC, begin + 2, begin + 21, 2),
            Call(LAUNCH, begin + 3, begin + 4, 1, ((begin + 4, begin + 6, KERNEL),)),
            Call(SYNC, begin + 5, begin + 21, 1),
        ]
    found = divided(calls, [600])
    assert found is not None
    by_thread = {sequence.threads[0]: sequence for sequence in found.sequences}
    (awaited,) = by_thread[1].awaited
    assert awaited.thread == 2
    assert awaited.share == pytest.approx(by_thread[1].share(Part.OTHER_WORK), abs=1e-6)
    assert awaited.share > 0.3
    assert by_thread[2].awaited == ()
