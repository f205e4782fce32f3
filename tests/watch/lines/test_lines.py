"""Lines of a program: sums of samples, shares with their intervals, the price of waits, words, and JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories.documents import validate
from factories.time_samples import Sampled, line_stack, sample_batch
from factories.watch_calls import FREE, FUNCTIONS, H2D, LAUNCH, MAIN, OTHER, QUERY, SYNC, at_ns, call_batch, slow
from factories.watch_moments import findings
from stallprobes.files.codec import attributes
from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.native.layouts.watch_file import STACKS as MOST_STACKS
from stallprobes.watch.attribution.findings import CallSite, ProcessFindings
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.order import cause_of
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.instants import Spans
from stallprobes.watch.division.outside_waits import OUTSIDE_NAME
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division.result import (
    AwaitedThread,
    BoundTime,
    PhaseDivision,
    ProcessDivision,
    SequenceDivision,
    StepGrowth,
    WaitShare,
)
from stallprobes.watch.division_text import awaited_text, verdict_text
from stallprobes.watch.line_text import (
    inner_text,
    line_text,
    place_text,
    remedy_text,
    shown_waits,
    tasks_text,
    wait_text,
    what_text,
)
from stallprobes.watch.lines.call_times import BETWEEN
from stallprobes.watch.lines.lines import MOST_LINES, count_alike, interval, lines_of
from stallprobes.watch.lines.result import InnerPlace, LineTime, ProgramLine, ProgramSequence, WaitPlace
from stallprobes.watch.lines.sample_sums import SampleSums
from stallprobes.watch.lines.second_sums import SampleKey, SampleSum
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.compilers import DeviceCompiler
from stallprobes.watch.reading.cpu_supply import CpuSupply
from stallprobes.watch.reading.library_tasks import LibraryTask
from stallprobes.watch.reading.process import CallBatch, SampleBatch
from stallprobes.watch.report import document
from stallscope.report.text import TextWriter
from stallscope.report.watch_text import show_watch

SECOND_US = 1_000_000
COPY = "cuMemcpyDtoHAsync_v2"
STACKS = {1: line_stack(10), 2: line_stack(20), 3: line_stack(30, "load")}
NO_CALLS = call_batch()


@dataclass
class Threads(ProcessDivider):
    """Threads that are all in one sequence, or each in one of its own; of ``unknown`` ones that is not known.

    ``worked`` is when the last work of a sequence on the GPU ended.
    """

    together: bool = True
    unknown: set[int] = field(default_factory=set)
    worked: dict[int, int] = field(default_factory=dict)

    def leader(self, thread: int) -> int:
        return MAIN if self.together else thread

    def knows(self, thread: int, until_ns: int) -> bool:
        return thread not in self.unknown

    def last_end_ns(self, leader: int) -> int:
        return self.worked.get(leader, 0)


TOGETHER, APART = Threads(), Threads(together=False)
one_sequence, apart = TOGETHER.leader, APART.leader


def sums_of(samples: Iterable[Sampled], calls: CallBatch = NO_CALLS, threads: Threads = TOGETHER) -> SampleSums:
    found = SampleSums(at_ns(0))
    found.add(sample_batch(samples), calls, threads)
    return found


def divided(verdict: Bound = Bound.WAIT, price: float = 0.4, **of: object) -> ProgramSequence:
    """A sequence whose waits cost ``price`` of its time."""
    fields = {
        "threads": (MAIN,), "device": 0, "covered_ns": 10, "parts": {Part.HOST: 10}, "host": Figure(0.4, 0.4, 0.4),
        "gpu": Figure(0.6, 0.6, 0.6), "price": Figure(price, price, price), "submitting": 0.1, "queue_full": 0.0,
        "alone": True, "recorded": 1.0, "engine_known": True, "late_ns": 0, "verdict": verdict,
        "waits": tuple(WaitShare(function=name, calls=1, ns=5, share=of) for name, of in ((SYNC, 0.75), (COPY, 0.25))),
    }  # fmt: skip
    return ProgramSequence(**(fields | of))  # type: ignore[arg-type]


def undivided(**of: object) -> ProgramSequence:
    """A sequence without records."""
    return ProgramSequence(**({"threads": (MAIN,)} | of))  # type: ignore[arg-type]


def lines(
    samples: Iterable[Sampled], division: SequenceDivision | None = None, calls: CallBatch = NO_CALLS
) -> ProgramSequence:
    divisions = None if division is None else (division,)
    (found,) = lines_of(sums_of(samples, calls), at_ns(0), divisions, STACKS, one_sequence)
    return found


def test_the_time_at_a_line_is_that_of_its_waits_its_other_calls_and_before_its_calls() -> None:
    found = lines(
        [
            Sampled(0, 100, 5000, SYNC, stack=1),
            Sampled(100, 150, 2000, LAUNCH, between=True, stack=2),
            Sampled(150, 160, 1000, LAUNCH, stack=2),
            Sampled(160, 170, 1000, "cuModuleLoadData", stack=2),
            Sampled(170, 180, 1000, LAUNCH, between=True, stack=3),
        ]
    )
    assert (found.samples, found.ns, found.device, found.threads) == (5, 10_000_000, None, (MAIN,))
    by_line = {one.place.line: one for one in found.lines if one.place is not None}
    assert {line: one.share.share for line, one in by_line.items()} == {10: 0.5, 20: 0.4, 30: 0.1}
    assert by_line[10].waits == LineTime(share=0.5, function=SYNC)
    two = by_line[20]
    assert (two.waits.share, two.calls.share, two.between) == (0.0, 0.2, LineTime(share=0.2, function=LAUNCH))
    assert (two.samples, two.stack) == (3, STACKS[2])
    assert [one.price for one in found.lines] == [0.0] * 3
    for one in found.lines:
        assert one.share.low < one.share.share < one.share.high


def test_times_in_which_frequent_calls_are_not_followed_count_for_nothing() -> None:
    """A wait in such a time is left out, and the call after it has no time before it but what was followed."""
    made = (LAUNCH, 0, 10), (SYNC, 100, 1000), (SYNC, 1500, 2400), (SYNC, 4200, 5000)
    calls = call_batch([slow(*each) for each in made])
    samples = [
        Sampled(100, 1000, 900, SYNC, stack=1),
        Sampled(1500, 2400, 900, SYNC, stack=2),
        Sampled(4000, 4200, 200, SYNC, between=True, stack=3),
    ]
    sums = SampleSums(at_ns(0))
    unfollowed = Spans(np.array([at_ns(1200)]), np.array([at_ns(4000)]))
    sums.add(sample_batch(samples), calls, TOGETHER, unfollowed=unfollowed)
    times = {(key.function, key.kind, key.stack): total.ns for key, total in sums.since(at_ns(0)).items()}
    waits = sum(ns for (_, kind, stack), ns in times.items() if kind == int(CallKind.WAITS) and stack == 1)
    between = sum(ns for (_, kind, _), ns in times.items() if kind == BETWEEN)
    assert not any(stack == 2 for _, _, stack in times)
    # 900 and 800 us of waits; 90 us before the first wait, and 200 since calls are followed again.
    assert between / (waits + between) == pytest.approx(290 / (290 + 1700), rel=0.1)
    assert sums.seconds_since(at_ns(0)) == pytest.approx(0.0022)


def test_time_without_a_stack_is_spread_over_the_stacks_of_the_same_thread_and_function() -> None:
    known = [Sampled(100 * each, 100 * each + 50, 100, between=True, stack=1 + (each % 4 == 0)) for each in range(12)]
    samples = [*known, Sampled(1300, 1400, 4800, between=True, stack=0)]
    assert {one.place: round(one.share.share, 2) for one in lines(samples).lines} == {
        STACKS[1].place: 0.75, STACKS[2].place: 0.25
    }  # fmt: skip
    # Waits in a function of which no stack is known may be made anywhere.
    other = lines([*samples, Sampled(1500, 1600, 6000, SYNC, stack=0)]).lines
    assert {one.place: round(one.share.share, 2) for one in other}[None] == 0.5
    # So may all time where few stacks are known.
    assert lines(samples[-3:]).lines[0].place is None


def test_a_copy_waits_if_it_blocks() -> None:
    pageable = {"target": MemoryKind.PAGEABLE, "thread": MAIN}
    calls = call_batch([slow(COPY, 0, 300, **pageable), slow(COPY, 400, 450, **pageable), slow(COPY, 500, 900)])
    ends = [(0.0, 300.0), (400.0, 450.0), (500.0, 900.0)]
    samples = [Sampled(since, at, 1000, COPY, stack=number) for number, (since, at) in enumerate(ends, 1)]
    (found,) = lines_of(sums_of(samples, calls), at_ns(0), None, STACKS, one_sequence)
    waits = {one.place.line: one.waits.share > 0 for one in found.lines if one.place is not None}
    # A copy to pageable memory returns when it is done; the last has none.
    assert waits == {10: True, 20: True, 30: False}
    staged = [slow(H2D, begin, end, source=MemoryKind.PAGEABLE) for begin, end in ((0, 300), (400, 450))]
    sums = sums_of([one._replace(function=H2D) for one in samples[:2]], call_batch(staged))
    # From pageable memory a short one was staged.
    assert {key.stack: key.kind for key in sums.since(0)} == {1: int(CallKind.COPIES), 2: int(CallKind.SUBMITS)}


def test_waits_are_counted_by_the_log_and_placed_by_samples_of_their_own() -> None:
    """Thousands of waits of 10 µs have hardly any samples of their time."""
    short = [slow(SYNC, begin, begin + 10) for begin in range(0, 1_000_000, 1000)]
    long = [slow(COPY, begin, begin + 500, target=MemoryKind.PAGEABLE) for begin in range(500, 1_000_000, 100_000)]
    samples = [
        Sampled(1000, 1010, 0, SYNC, stack=number, waits=waits) for number, waits in ((1, 300), (2, 100), (2, 50))
    ]
    # A sample of their time does not count where there are such samples.
    samples += [Sampled(2000, 2010, 5000, SYNC, stack=3), Sampled(500, 1000, 5000, COPY, stack=3)]
    division = divided().changed(price=Figure(0.01, 0.0, 0.02))
    (found,) = lines_of(sums_of(samples, call_batch([*short, *long])), at_ns(0), (division,), STACKS, one_sequence)
    calls = {(one.place.line, one.function): one.calls for one in found.wait_places if one.place is not None}
    assert calls == {
        (10, SYNC): 666.7, (20, SYNC): 333.3, (30, SYNC): 0.0, (30, COPY): 10.0,
    }  # fmt: skip
    first = found.wait_places[0]
    assert first.inner == STACKS[1].python[0]
    assert first.per_second == pytest.approx(first.calls / 0.999, rel=1e-2)
    assert sum(one.price for one in found.wait_places) == pytest.approx(0.01, abs=1e-5)
    assert [one.price for one in found.wait_places] == sorted((one.price for one in found.wait_places), reverse=True)


def test_waits_without_samples_of_their_own_are_placed_by_those_of_their_time() -> None:
    """The shorter the sampled wait, the more waits its sample stands for."""
    made = [slow(SYNC, begin, begin + 10) for begin in range(0, 90_000, 1000)]
    made += [slow(SYNC, begin, begin + 90) for begin in range(500, 90_000, 9000)]
    samples = [Sampled(0, 10, 900, SYNC, stack=1), Sampled(500, 590, 900, SYNC, stack=2)]
    sums = sums_of([*samples, Sampled(0, 10, 0, LAUNCH, stack=3, waits=7)], call_batch(made))
    calls = {key.stack: number for key, number in sums.waits_since(at_ns(0)).items()}
    assert calls == {1: pytest.approx(90), 2: pytest.approx(10)}


def test_a_run_of_queries_is_one_wait_and_the_time_between_them_too() -> None:
    """A thread that asks every 10 µs for 5 ms, and then works for 3 ms."""
    begins = range(0, 80_000, 8000)
    queries = [slow(QUERY, at, at + 2) for begin in begins for at in range(begin, begin + 5000, 10)]
    launches = [slow(LAUNCH, begin + 7990, begin + 8000) for begin in begins]
    waiting = [Sampled(begin + 2, begin + 2016, 2500, QUERY, between=True, stack=1) for begin in begins]
    waiting += [Sampled(begin + 3000, begin + 3002, 2500, QUERY, stack=1) for begin in begins]
    working = [Sampled(begin + 4992, begin + 7000, 3000, LAUNCH, between=True, stack=2) for begin in begins]
    calls = call_batch(sorted([*queries, *launches], key=lambda call: call.end_ns))
    waits = (WaitShare(function=QUERY, calls=10, ns=5, share=1.0),)
    found = lines([*waiting, *working], divided(waits=waits), calls)
    first, second = found.lines
    assert [(line.place, line.waits.function) for line in (first, second)] == [
        (STACKS[1].place, QUERY), (STACKS[2].place, ""),
    ]  # fmt: skip
    shares = [first.waits.share, first.between.share, second.between.share]
    assert shares == pytest.approx([5 / 8, 0, 3 / 8], abs=0.01)
    assert [(wait.place, round(wait.calls)) for wait in found.wait_places] == [(STACKS[1].place, 10)]


def test_waits_without_any_sample_have_no_place() -> None:
    made = call_batch([slow(SYNC, 0, 10)])
    (found,) = lines_of(sums_of([Sampled(10, 20, 900)], made), at_ns(0), (divided(),), STACKS, one_sequence)
    assert [(one.place, one.inner, one.calls) for one in found.wait_places] == [(None, None, 1.0)]
    assert shown_waits(found, 3) == ()


def test_the_price_of_waiting_is_spread_over_the_lines_of_the_waits_of_each_function() -> None:
    samples = [
        Sampled(0, 100, 3000, SYNC, stack=1),
        Sampled(100, 200, 1000, SYNC, stack=2),
        Sampled(200, 300, 5000, LAUNCH, between=True, stack=3),
        Sampled(300, 700, 1000, COPY, stack=2),
    ]
    calls = call_batch([slow(COPY, 300, 700, target=MemoryKind.PAGEABLE)])
    (found,) = lines_of(sums_of(samples, calls), at_ns(0), (divided(),), STACKS, one_sequence)
    by_line = {one.place.line: one for one in found.lines if one.place is not None}
    assert by_line[10].price == pytest.approx(0.4 * 0.75 * 0.75)
    assert by_line[20].price == pytest.approx(0.4 * (0.75 * 0.25 + 0.25))
    assert by_line[30].price == 0
    # The line that costs most is the first.
    assert [one.place.line for one in found.lines if one.place is not None] == [30, 10, 20]
    division = divided().changed(verdict=Bound.GPU, price=Figure(0.0, 0.0, 0.0))
    samples[0] = samples[0]._replace(us=9000)
    assert lines(samples, division).lines[0].place == STACKS[1].place


def test_lines_of_the_start_up_are_left_out_to_the_second() -> None:
    samples = [Sampled(second * SECOND_US, second * SECOND_US + 100, 1000 + second) for second in (0, 1, 2, 70, 100)]
    sums = sums_of(samples)
    for begin, expected in ((0, 5), (1, 4), (2, 3), (3, 2), (60, 2)):
        (found,) = lines_of(sums, at_ns(begin * SECOND_US), None, STACKS, one_sequence)
        assert found.samples == expected
    assert lines_of(SampleSums(0), 0, None, STACKS, one_sequence) == ()


def test_lines_of_a_sequence_with_phases_are_those_of_the_first_phase() -> None:
    """1.5 s at one line and then 2.5 s at the other, with a launch every 10 ms."""
    ends = range(10_000, 4_000_000, 10_000)
    samples = [Sampled(at - 9000, at, 10_000, between=True, stack=1 if at < 1_500_000 else 2) for at in ends]
    calls = call_batch([slow(LAUNCH, at, at + 10) for at in ends])
    phase = PhaseDivision(**attributes(divided(), BoundTime), times=((1_500_000_000, 4_000_000_000),))
    whole, late = (lines(samples, divided(phases=phases), calls) for phases in ((), (phase,)))
    assert [line.place for line in whole.lines] == [STACKS[2].place, STACKS[1].place]
    # To the second: that in which the phase begins is not in it for the most part.
    assert [line.place for line in late.lines] == [STACKS[2].place]
    assert late.lines[0].share.share == 1.0
    assert late.ns == pytest.approx(2 * 10**9, rel=0.01)
    assert late.samples == pytest.approx(200, abs=1)
    # 200 waits in the 2 s of the phase that are whole.
    waits = call_batch([slow(SYNC, at, at + 10) for at in ends])
    (wait,) = lines(samples, divided(phases=(phase,)), waits).wait_places
    assert round(wait.calls) == 200
    assert wait.per_second == pytest.approx(100, abs=1)


def test_lines_that_have_pythons_lock_have_the_time_of_the_samples_in_which_they_have_it() -> None:
    samples = [Sampled(at, at + 9, 100, between=True, holder=2 if at < 600 else 3) for at in range(0, 800, 10)]
    samples += [Sampled(at, at + 9, 100, between=True) for at in range(800, 900, 10)]
    found = lines(samples, divided(interpreter=0.8)).lock_holders
    assert [(each.place.line, each.share) for each in found] == [(20, 0.75), (30, 0.25)]
    # Without waits for the lock, another thread may have it meanwhile.
    assert lines(samples, divided(interpreter=0.02)).lock_holders == ()
    assert lines(samples, divided(Bound.THREAD)).lock_holders == found
    assert lines(samples[-10:], divided(interpreter=0.8)).lock_holders == ()


def test_lines_that_have_a_lock_have_its_waits_beside_those_for_pythons_lock() -> None:
    samples = [Sampled(at, at + 9, 100, between=True, holder=MOST_STACKS + 2) for at in range(0, 600, 10)]
    samples += [Sampled(at, at + 9, 100, between=True, holder=3) for at in range(600, 900, 10)]
    found = lines(samples, divided(Bound.THREAD))
    assert [(each.place.line, each.share) for each in found.own_lock_holders] == [(20, 1.0)]
    assert found.own_lock == pytest.approx(60 / 90, abs=0.01)
    (line,) = found.lines
    assert line.own_lock == found.own_lock
    assert what_text(line, by_time=False) == "host time before cuLaunchKernel (waits for a lock 67 %)"
    assert remedy_text(line, process_with(found), found).startswith("The host waits here for a lock")
    assert not remedy_text(line.changed(own_lock=0.3), process_with(found), found).startswith(
        "The host waits here for a l"
    )
    assert [(each.place.line, each.share) for each in found.lock_holders] == [(30, 1.0)]


def test_a_program_that_sleeps_for_a_lock_of_its_own_is_bound_by_the_thread_that_has_it() -> None:
    asleep = divided(Bound.ASLEEP).changed(gpu=Figure(0.3, 0.25, 0.35), second=Bound.WAIT)
    samples = [
        Sampled(at, at + 9, 100, between=True, holder=MOST_STACKS + 2 if at < 600 else 0) for at in range(0, 900, 10)
    ]
    found = lines(samples, asleep)
    assert (found.verdict, found.second) == (Bound.THREAD, Bound.WAIT)
    # Of the 70 % in which the GPU waits, a third for the lock.
    assert lines(samples[40:], asleep).verdict is Bound.THREAD
    assert lines(samples[48:], asleep).verdict is Bound.ASLEEP
    assert lines(samples, asleep.changed(verdict=Bound.WAIT)).verdict is Bound.WAIT


def test_an_instant_between_calls_belongs_to_the_thread_that_makes_the_next_call() -> None:
    """As where the main thread waits for autograd's: of its time between calls, what follows the other's last call."""
    calls = call_batch(
        [slow(LAUNCH, begin, begin + 50, thread=OTHER) for begin in range(1000, 9000, 100)]
        + [slow(SYNC, 0, 500), slow(LAUNCH, 9950, 9960)]
    )
    samples = [
        Sampled(500, 9950, 3000, LAUNCH, between=True, stack=1),
        Sampled(1050, 1100, 5000, LAUNCH, between=True, stack=2, thread=OTHER),
        Sampled(1100, 1150, 5000, LAUNCH, stack=2, thread=OTHER),
    ]
    sums = sums_of(samples, calls)
    found = {(key.thread, key.kind): one.ns for key, one in sums.since(0).items()}
    # The last call returned at 8.95 ms. The main thread's calls have no sample, so its one place has their time too.
    assert found == {
        (MAIN, BETWEEN): 1_000_000 + 500_000 + 10_000,
        (OTHER, BETWEEN): 500_000 + 79 * 50_000,
        (OTHER, int(CallKind.SUBMITS)): 80 * 50_000,
    }
    # Threads that are no sequence do not matter to each other.
    each = sums_of(samples, calls, APART).since(0)
    assert {(key.thread, key.kind): one.ns for key, one in each.items()}[MAIN, BETWEEN] == 9_450_000 + 510_000


def woken(cpu: dict[int, float], readings: int = 3) -> dict[int | None, float]:
    """The shares of a main thread and of one that it wakes for a call in each 400 µs, as JAX does; ``cpu`` is the part
    of the time that each is on a CPU."""
    sums, step, length = SampleSums(at_ns(0)), 400, 400_000
    for first in range(0, readings * length, length):
        begins = range(first, first + length, step)
        calls = [slow(LAUNCH, begin, begin + 20) for begin in begins]
        calls += [slow(H2D, begin + 220, begin + 240, thread=OTHER) for begin in begins]
        samples = [
            Sampled(at - back, at, 5000, function, between=True, stack=stack, thread=thread, cpu=cpu[thread] * at)
            for thread, function, stack, offset, back in ((MAIN, LAUNCH, 1, 400, 380), (OTHER, H2D, 2, 220, 380))
            for at in range(first + offset, first + length, 40 * step)
        ]
        sums.add(sample_batch(samples), call_batch(calls), TOGETHER)
    (found,) = lines_of(sums, at_ns(0), None, STACKS, one_sequence)
    return {one.place.line: one.share.share for one in found.lines if one.place is not None}


def test_time_in_which_a_thread_waits_to_be_woken_is_of_the_thread_that_works() -> None:
    # Both work: each has what precedes its call.
    assert woken({MAIN: 0.9, OTHER: 0.9}) == {10: pytest.approx(0.45, abs=0.01), 20: pytest.approx(0.55, abs=0.01)}
    # The thread that is woken works for a tenth of the time: 200 of 400 µs would be its own, of which 160 are not.
    assert woken({MAIN: 0.95, OTHER: 0.1}) == {10: pytest.approx(0.85, abs=0.02), 20: pytest.approx(0.15, abs=0.02)}
    # The main thread sleeps too, as while the GPU works: nobody's time is more than that.
    assert woken({MAIN: 0.3, OTHER: 0.1}) == {10: pytest.approx(0.45, abs=0.01), 20: pytest.approx(0.55, abs=0.01)}
    # Not known.
    assert woken({MAIN: 0.0, OTHER: 0.0}) == {10: pytest.approx(0.45, abs=0.01), 20: pytest.approx(0.55, abs=0.01)}


def test_time_of_a_thread_that_works_is_before_the_calls_between_which_it_did() -> None:
    """As where a batch is made for 4 ms while threads of a library wait to copy the one before."""
    sums, step, length = SampleSums(at_ns(0)), 5000, 400_000
    for first in range(0, 3 * length, length):
        begins = range(first, first + length, step)
        # The main thread makes a batch at line 20 before its wait, and launches at line 10 half a millisecond later.
        calls = [slow(SYNC, begin + 4300, begin + 4301) for begin in begins]
        calls += [slow(LAUNCH, begin + 4800, begin + 4820) for begin in begins]
        calls += [slow(H2D, begin + 4290, begin + 4295, thread=OTHER) for begin in begins]
        samples = [
            Sampled(at - 100, at, 5000, function, between=True, stack=stack, thread=thread, cpu=cpu * at)
            for thread, function, stack, offset, cpu in (
                (MAIN, SYNC, 2, 4300, 0.95), (MAIN, LAUNCH, 1, 4800, 0.95), (OTHER, H2D, 3, 4290, 0.01)
            )
            for at in range(first + offset, first + length, 4 * step)
        ]  # fmt: skip
        samples.sort(key=lambda one: one.at)
        sums.add(sample_batch(samples), call_batch(calls), TOGETHER)
    (found,) = lines_of(sums, at_ns(0), None, STACKS, one_sequence)
    shares = {one.place.line: one.share.share for one in found.lines if one.place is not None}
    assert shares[20] > 0.75
    assert shares[10] < 0.25
    assert shares[30] < 0.1


def test_a_thread_that_sleeps_while_another_is_in_a_call_has_none_of_the_time() -> None:
    """Also where that call has not returned yet, or returned after the last reading of calls."""
    sample = Sampled(0, 4000, 4000, between=True, thread=OTHER)
    for calls, in_flight in (
        (call_batch([slow(LAUNCH, 1000, 5000)]), {}),
        (NO_CALLS, {MAIN: at_ns(3000)}),
    ):
        sums = SampleSums(at_ns(0))
        sums.add(sample_batch([sample]), calls, TOGETHER, in_flight)
        assert not sums.since(0)


def test_a_wait_does_not_count_while_another_thread_of_the_sequence_works_in_a_call() -> None:
    calls = call_batch([slow(SYNC, 0, 1000), slow(LAUNCH, 100, 400, thread=OTHER), slow(SYNC, 500, 600, thread=OTHER)])
    sums = sums_of([Sampled(0, 1000, 5000, SYNC)], calls)
    assert [one.ns for one in sums.since(0).values()] == [700_000]
    # A wait that began before the calls of the reading: its part in the reading stands for all of it.
    sums = SampleSums(at_ns(0))
    sums.add(sample_batch(), call_batch([slow(LAUNCH, 0, 500, thread=OTHER)]), TOGETHER, {MAIN: at_ns(0)})
    later = call_batch([slow(SYNC, 0, 1500), slow(LAUNCH, 500, 1000, thread=OTHER)])
    sums.add(sample_batch([Sampled(0, 1500, 5000, SYNC)]), later, TOGETHER)
    assert sums.since(0)[SampleKey(MAIN, 1, 2, int(CallKind.WAITS))].ns == 1_000_000


def test_calls_of_an_earlier_reading_count_too() -> None:
    sums = SampleSums(at_ns(0))
    threads = Threads(unknown={OTHER})
    sums.add(sample_batch(), call_batch([slow(LAUNCH, 1000, 2000, thread=OTHER)]), threads)
    # Nothing is summed up before it is known whose time it is.
    sums.add(sample_batch([Sampled(0, 4000, 4000, between=True)]), NO_CALLS, threads)
    assert not sums.since(0)
    threads.unknown.clear()
    sums.add(sample_batch(), NO_CALLS, threads)
    (found,) = lines_of(sums, at_ns(0), None, STACKS, one_sequence)
    assert found.ns == 2_000_000


def test_the_log_says_how_much_time_passes_and_the_samples_where() -> None:
    """Points of a thread that get a sample less often than others, as its credit is spent, have no less of the time."""
    made = [slow(LAUNCH, begin, begin + 10) for begin in range(0, 100_000, 100)]
    made += [slow(LAUNCH, begin + 15, begin + 95, thread=OTHER) for begin in range(0, 100_000, 100)]
    samples = [Sampled(0, 10, 50_000, LAUNCH, stack=1), Sampled(15, 95, 10_000, LAUNCH, stack=2, thread=OTHER)]
    samples += [Sampled(215, 295, 5000, LAUNCH, stack=3, thread=OTHER)]
    (found,) = lines_of(sums_of(samples, call_batch(made)), at_ns(0), None, STACKS, one_sequence)
    shares = {one.place.line: one.share.share for one in found.lines if one.place is not None}
    # 85 of 100 µs are of the other thread, with those before its calls, two thirds of them at one of its places.
    assert shares == {
        10: pytest.approx(0.15, abs=1e-3),
        20: pytest.approx(0.85 * 2 / 3, abs=1e-3),
        30: pytest.approx(0.85 / 3, abs=1e-3),
    }


END = [
    Sampled(0, 10, 1000, LAUNCH),
    Sampled(10, 900, 2000, "cuMemcpyDtoHAsync_v2", between=True, stack=2),
    Sampled(1000, 50_000, 40_000, FREE, between=True, stack=3),
]
END_CALLS = [slow(LAUNCH, 0, 10), slow(COPY, 900, 1000), slow(FREE, 50_000, 50_010)]


def places_of(sums: SampleSums, ended: bool) -> set[int]:
    """The numbers of the stacks of all sums."""
    return {key.stack for key in sums.since(at_ns(0), ended)}


def test_what_follows_the_last_work_of_a_run_that_has_ended_is_no_line() -> None:
    sums = sums_of(END, call_batch(END_CALLS))
    # While the program runs, work may follow.
    assert places_of(sums, ended=False) == {1, 2, 3}
    assert places_of(sums, ended=True) == {1, 2}
    assert places_of(sums_of(END, call_batch(END_CALLS), Threads(worked={MAIN: at_ns(60_000)})), ended=True) == {
        1,
        2,
        3,
    }
    # Without any work, all of it is kept.
    frees = [one for one in END if one.function == FREE]
    assert places_of(sums_of(frees, call_batch(END_CALLS[2:])), ended=True) == {3}


def test_work_that_follows_makes_what_was_apart_a_line_again() -> None:
    sums = sums_of(END, call_batch(END_CALLS))
    more = call_batch([slow(LAUNCH, 70_000, 70_010), slow(FREE, 95_000, 95_010)])
    later = [Sampled(60_000, 70_000, 5000, between=True, stack=4), Sampled(71_000, 95_000, 9000, FREE, True, 5)]
    sums.add(sample_batch(later), more, TOGETHER)
    assert places_of(sums, ended=False) == {1, 2, 3, 4, 5}
    assert places_of(sums, ended=True) == {1, 2, 3, 4}


def test_any_number_of_threads_that_end_takes_a_limited_memory() -> None:
    sums = SampleSums(at_ns(0))
    for thread in range(1000, 1600):
        begin = 100 * thread
        made = [slow(LAUNCH, begin, begin + 10, thread=thread), slow(FREE, begin + 50, begin + 60, thread=thread)]
        sums.add(
            sample_batch([Sampled(begin + 10, begin + 50, 40, FREE, True, thread=thread)]), call_batch(made), APART
        )
    assert len(sums._sums._tails) <= 257
    assert sum(one.samples for one in sums.since(at_ns(0)).values()) == 600


def test_any_number_of_places_takes_a_limited_number_of_sums() -> None:
    sums = SampleSums(at_ns(0))
    for first in range(0, 20_000, 1000):
        batch = sample_batch(Sampled(70 * SECOND_US, 70 * SECOND_US + 10, 1, stack=1) for _ in range(1000))
        batch.rows["stack"] = np.arange(first, first + 1000)
        sums.add(batch, NO_CALLS, TOGETHER)
    assert len(sums.since(0)) <= 2 * 8192
    stacks = {number: line_stack(number) for number in range(20_000)}
    (found,) = lines_of(sums, at_ns(0), None, stacks, one_sequence)
    assert len(found.lines) == MOST_LINES
    assert found.samples == 20_000


@given(st.lists(st.tuples(st.floats(1, 1e5), st.integers(0, 4), st.booleans()), min_size=1, max_size=60))
def test_the_shares_of_all_lines_are_all_of_the_time(made: list[tuple[float, int, bool]]) -> None:
    samples = [
        Sampled(10 * number, 10 * number + 5, us, SYNC if stack % 2 else LAUNCH, between, stack)
        for number, (us, stack, between) in enumerate(made)
    ]
    found = lines(samples, divided())
    assert sum(one.share.share for one in found.lines) == pytest.approx(1, abs=1e-4)
    assert found.ns == sum(round(one.us * 1000) for one in samples)
    for one in found.lines:
        assert one.waits.share + one.calls.share + one.between.share == pytest.approx(one.share.share, abs=1e-5)
        assert 0 <= one.share.low <= one.share.share <= one.share.high <= 1
    assert sum(one.price for one in found.lines) <= 0.4 + 1e-4


def test_intervals_hold_the_share_as_often_as_they_say() -> None:
    dice = np.random.default_rng(11)
    held = 0
    for _ in range(2000):
        count = int(dice.binomial(200, 0.07))
        figure = interval(count * 5, SampleSum(200, 1000, 200 * 25.0))
        held += figure.low <= 0.07 <= figure.high
    assert 0.93 <= held / 2000 <= 0.98
    assert interval(0, SampleSum()) == Figure(0.0, 0.0, 1.0)


def test_compiled_code_is_one_line_for_each_function() -> None:
    frames = [StackFrame(FrameKind.NATIVE, name, "/opt/solver", None, at) for name, at in (("f", 1), ("f", 9), ("", 5))]
    stacks = {number: CallStack(native=(frame,)) for number, frame in enumerate(frames, 1)}
    samples = [Sampled(0, 10, 1000, stack=number) for number in (1, 2, 3, 9)]
    (found,) = lines_of(sums_of(samples), at_ns(0), None, stacks, one_sequence)
    places = {(one.place.function, one.place.offset) if one.place else None: one.samples for one in found.lines}
    assert places == {("f", None): 2, ("", 5): 1, None: 1}
    package = "/opt/site-packages/torch/lib/libtorch_cuda.so"
    frames = [StackFrame(FrameKind.NATIVE, name, package, None, at) for name, at in (("add", 1), ("mul", 9))]
    stacks = {number: CallStack(native=(frame,)) for number, frame in enumerate(frames, 1)}
    (found,) = lines_of(sums_of(samples[:2]), at_ns(0), None, stacks, one_sequence)
    assert [place_text(one, process_with()) for one in found.lines] == [
        "libtorch_cuda.so, without a line of the program"
    ]


def test_time_of_a_librarys_own_thread_is_that_of_the_lines_that_called_the_library() -> None:
    package = StackFrame(FrameKind.NATIVE, "Execute", "/opt/site-packages/jaxlib/xla.so", None, 1)
    stacks = {**STACKS, 9: CallStack(native=(package,))}
    samples = [
        Sampled(0, 10, 3000, between=True, stack=1),
        Sampled(10, 20, 1000, between=True, stack=2),
        Sampled(20, 30, 5000, between=True, stack=9, thread=OTHER),
        Sampled(30, 40, 1000, stack=9, thread=OTHER),
    ]
    (found,) = lines_of(sums_of(samples), at_ns(0), None, stacks, one_sequence)
    shares = {one.place.line: one.share.share for one in found.lines if one.place is not None}
    assert shares == {10: pytest.approx(0.75), 20: pytest.approx(0.25)}
    assert {one.thread for one in found.lines} == {MAIN}
    assert inner_text(found.lines[0]).startswith("Of it Execute in xla.so")
    # The backward pass is a line by itself.
    (apart,) = lines_of(sums_of(samples), at_ns(0), None, stacks, one_sequence, roles={OTHER})
    assert [round(one.share.share, 2) for one in apart.lines] == [0.6, 0.3, 0.1]
    # Without any line of the program there is nothing that it could belong to.
    (alone,) = lines_of(sums_of(samples[2:]), at_ns(0), None, stacks, one_sequence)
    assert [one.share.share for one in alone.lines] == [1.0]


def test_time_of_a_librarys_own_thread_is_that_of_the_last_line_that_called_the_library_before() -> None:
    """30 ms of preparation at one line, then 2 ms before the call for which the library's thread works for 20 ms."""
    package = StackFrame(FrameKind.NATIVE, "Execute", "/opt/site-packages/jaxlib/xla.so", None, 1)
    stacks = {**STACKS, 9: CallStack(native=(package,))}
    samples, calls = [], []
    for step in range(20):
        begin = 60_000 * step
        prepared, called, done = begin + 30_000, begin + 32_000, begin + 52_000
        samples += [
            Sampled(begin, prepared, 30_000, FREE, between=True, stack=1),
            Sampled(prepared + 10, called, 2_000, LAUNCH, between=True, stack=2),
            Sampled(called, done, 20_000, LAUNCH, between=True, stack=9, thread=OTHER, cpu=20_000 * (step + 1)),
        ]
        calls += [
            slow(FREE, prepared, prepared + 10),
            slow(LAUNCH, called, called + 10),
            slow(LAUNCH, done, done + 10, thread=OTHER),
        ]
    sums = sums_of(samples, call_batch(calls))
    (found,) = lines_of(sums, at_ns(0), None, stacks, one_sequence)
    shares = {one.place.line: one.share.share for one in found.lines if one.place is not None}
    before = {call[1]: ns for call, ns in sums.entered_before(OTHER, 9).items()}
    assert [sums.functions[function] for function in before] == [LAUNCH]
    assert set(shares) == {10, 20}
    # As long as the other thread works, this line has the time.
    assert shares[20] > 0.35


def compiled(line: int, file: str = "/home/me/solve.cu", function: str = "step") -> CallStack:
    """A stack in a compiled program with lines."""
    return CallStack(native=(StackFrame(FrameKind.NATIVE, function, "/home/me/solve", line, source=file),))


def test_host_time_of_compiled_code_has_the_line_of_the_call_before() -> None:
    """In each step a wait at one line, 20 ms of the host before a launch at another, and a copy at a third."""
    stacks = {1: compiled(31), 2: compiled(47), 3: compiled(9, "/home/me/copies.cu", "load")}
    samples, calls = [], []
    for begin in range(0, 2_000_000, 100_000):
        waited, launched, copied = begin + 50_000, begin + 70_000, begin + 80_000
        samples += [
            Sampled(begin, waited, 50_000, SYNC, stack=1),
            Sampled(waited, launched, 20_000, LAUNCH, between=True, stack=2),
            Sampled(launched + 10, copied, 9_990, H2D, between=True, stack=3),
            Sampled(copied + 10, begin + 100_000, 19_990, SYNC, between=True, stack=1),
        ]
        calls += [slow(SYNC, begin, waited), slow(LAUNCH, launched, launched + 10), slow(H2D, copied, copied + 10)]
    sums = sums_of(samples, call_batch(calls))
    (found,) = lines_of(sums, at_ns(0), None, stacks, one_sequence)
    texts = {one.place.line: what_text(one, by_time=True) for one in found.lines if one.place is not None}
    assert texts[47] == "host time since line 31 before cuLaunchKernel"
    assert texts[9] == "host time since solve.cu:47 in step before cuMemcpyHtoDAsync_v2"
    assert "host time since copies.cu:9 in load before cuStreamSynchronize" in texts[31]
    assert [one.since and one.since.line for one in sorted(found.lines, key=_line_of)] == [47, 9, 31]
    # Where the function before is called at several lines, it is not known since which.
    twice = {**stacks, 4: compiled(32)}
    other = [each._replace(stack=4) if number % 8 == 0 else each for number, each in enumerate(samples)]
    (unknown,) = lines_of(sums_of(other, call_batch(calls)), at_ns(0), None, twice, one_sequence)
    assert {_line_of(one): one.since and one.since.line for one in unknown.lines}[47] is None
    # Samples of Python have the line at which the time passes.
    assert all(one.since is None for one in lines(samples, calls=call_batch(calls)).lines)


def _line_of(one: ProgramLine) -> int:
    assert one.place is not None
    return one.place.line or 0


def line(**of: object) -> ProgramLine:
    fields = {
        "place": STACKS[1].place, "stack": STACKS[1], "thread": MAIN, "samples": 50, "share": Figure(0.4, 0.35, 0.46),
        "waits": LineTime(share=0.4, function=SYNC), "price": 0.2, "cost": Figure(0.2, 0.17, 0.23),
    }  # fmt: skip
    return ProgramLine(**(fields | of))  # type: ignore[arg-type]


LIBRARY = (InnerPlace(place=STACKS[1].python[0], cost=0.15),)


def process_with(*sequences: ProgramSequence) -> ProcessFindings:
    division = ProcessDivision(steady=True, start_up_ns=0, start_up={}, other_threads=0)
    divided = any(sequence.divided for sequence in sequences)
    return findings(8, ended=True).processes[0].changed(sequences=sequences, division=division if divided else None)


def test_a_line_says_where_it_is_what_it_costs_and_what_is_done_there() -> None:
    process, sequence = process_with(), divided()
    assert line_text(line(), process, sequence) == (
        f"train.py:10 in step costs up to 20 % (17 to 23): waits in {SYNC} (40 % of the time)."
    )
    mixed = line(
        waits=LineTime(share=0.02, function=SYNC),
        calls=LineTime(share=0.15, function=LAUNCH),
        between=LineTime(share=0.25, function=LAUNCH),
        price=0.02,
        cost=Figure(0.42, 0.42, 0.42),
    )
    assert what_text(mixed, by_time=False) == f"host time before {LAUNCH} 25 %, inside {LAUNCH} 15 %"
    # Where the GPU is the limit, all time counts alike.
    bound = divided(Bound.GPU)
    assert line_text(line(cost=Figure(0.4, 0.35, 0.46)), process, bound) == (
        f"train.py:10 in step has 40 % (35 to 46) of the time: waits in {SYNC}."
    )
    assert "(MainThread)" in line_text(line(), process, divided(threads=(OTHER, MAIN)))
    assert place_text(line(place=None), process) == "MainThread (thread 100), without a call stack"


def triton_stack(file: str, function: str) -> CallStack:
    """A stack whose innermost frame is of Triton, called at the first line."""
    frame = StackFrame(FrameKind.PYTHON, function, f"/lib/python3.12/site-packages/triton/{file}", 3)
    return CallStack((frame, *STACKS[1].own))


def test_a_line_that_compiles_says_how_much_how_often_and_what_helps() -> None:
    # What runs at each launch compiles nothing.
    compiles, runs = triton_stack("compiler/code_generator.py", "visit"), triton_stack("runtime/jit.py", "run")
    stacks = {1: line_stack(10), 4: compiles, 5: runs}
    load = "cuModuleLoadData"
    loads = [slow(load, 1000 * number, 1000 * number + 10) for number in range(1, 5)]
    samples = [
        Sampled(1010, 2000, 500, load, between=True, stack=4),
        Sampled(2010, 3000, 300, load, between=True, stack=5),
        Sampled(3010, 4000, 200, load, between=True, stack=1),
    ]
    sums = sums_of(samples, call_batch(loads))
    division = divided(Bound.HOST, gpu=Figure(0.4, 0.4, 0.4))
    (found,) = lines_of(sums, at_ns(0), (division,), stacks, one_sequence)
    (made,) = found.lines
    assert made.compiler is DeviceCompiler.TRITON
    assert made.compiles == pytest.approx(0.5, abs=0.01)
    assert found.loads_per_second == pytest.approx(4 / sums.seconds_since(at_ns(0)))
    assert what_text(made, by_time=False).endswith("(Triton compiles 50 %)")
    process, bound = process_with(found), found.changed(loads_per_second=2.1)
    assert remedy_text(made, process, bound).startswith(
        "Triton compiles here again and again, 2.1 modules a second, 238 ms each: pass what changes as a plain argument"
    )
    assert verdict_text(bound, process) == "MainThread is host-bound: Triton compiles while the GPU waits."
    less = made.changed(compiles=0.1)
    assert remedy_text(less, process, bound).startswith("Do this work of the host once")
    assert (
        verdict_text(bound.changed(lines=(less,)), process) == "MainThread is host-bound: the GPU waits for the host."
    )


@pytest.mark.parametrize(
    ("verdict", "price", "expected"),
    [
        # Sleep for a compiler's processes is no sleep for data, and what the compiler takes gains more than the waits.
        (Bound.INPUT, 0.1, (Bound.HOST, None)),
        (Bound.WAIT, 0.4, (Bound.HOST, Bound.WAIT)),
        (Bound.WAIT, 0.6, (Bound.WAIT, None)),
        (Bound.SHARED, 0.1, (Bound.SHARED, None)),
    ],
)
def test_a_sequence_that_compiles_most_of_the_time_is_host_bound(
    verdict: Bound, price: float, expected: tuple[Bound, Bound | None]
) -> None:
    samples = [
        Sampled(0, 1000, 500, LAUNCH, between=True, stack=4),
        Sampled(1010, 2000, 500, LAUNCH, between=True, stack=1),
    ]
    stacks = {1: line_stack(10), 4: triton_stack("compiler/code_generator.py", "visit")}
    phase = PhaseDivision(verdict=verdict, times=((0, SECOND_US * 1000),))
    division = divided(verdict, price, gpu=Figure(0.4, 0.4, 0.4), phases=(phase, phase))
    (found,) = lines_of(sums_of(samples), at_ns(0), (division,), stacks, one_sequence)
    assert (found.verdict, found.second) == expected
    assert [each.verdict for each in found.phases] == [expected[0], verdict]


def test_a_line_at_which_python_collects_garbage_should_collect_less() -> None:
    made = line(between=LineTime(share=0.5, function=LAUNCH), price=0.0)
    sequence = divided(Bound.HOST, parts={Part.HOST: 6, Part.KERNELS: 4}, collects=0.4).changed(lines=(made,))
    assert remedy_text(made, process_with(), sequence).startswith("Python collects garbage here: collect less often")
    # It may do so at other lines.
    less = sequence.changed(collects=0.3)
    assert remedy_text(made, process_with(), less).startswith("Do this work of the host once")


def test_the_first_line_of_a_process_whose_pages_move_should_prefetch_them() -> None:
    made = line(between=LineTime(share=0.5, function=LAUNCH), price=0.0)
    less = line(between=LineTime(share=0.2, function=LAUNCH), price=0.0)
    sequence = divided(Bound.WAIT, price=0.3).changed(lines=(made, less))
    process = process_with(sequence)
    (row, *_) = process.threads[0].rows
    managed = process.threads[0].changed(rows=(row.changed(function="cuMemAllocManaged"),))
    supply = CpuSupply(allowed=8, wanted=1.0, page_faults=5200.0)
    process = process.changed(threads=(managed,), cpus=supply)
    assert "cudaMemPrefetchAsync" in remedy_text(made, process, sequence)
    others = (
        remedy_text(less, process, sequence),
        remedy_text(made, process.changed(cpus=supply.changed(page_faults=100.0)), sequence),
        remedy_text(made, process_with(sequence).changed(cpus=supply), sequence),
    )
    assert all(text.startswith("Do this work of the host once") for text in others)


def test_a_line_that_costs_much_names_the_inner_places() -> None:
    (library, own, _) = STACKS[1].python
    inner = tuple(InnerPlace(place=place, cost=cost) for place, cost in ((library, 0.12), (own, 0.05)))
    assert inner_text(line(inner=inner)) == "Of it nn.py:7 in forward 12 %, the line itself 5 %."
    assert inner_text(line(inner=inner, cost=Figure(0.05, 0.0, 0.1))) == inner_text(line()) == ""
    kernel = StackFrame(FrameKind.NATIVE, "at::native::add", "/lib/site-packages/torch/lib/libtorch_cuda.so")
    assert inner_text(line(inner=(InnerPlace(place=kernel, cost=0.1),))) == (
        "Of it at::native::add in libtorch_cuda.so 10 %."
    )
    nameless = kernel.changed(function="")
    assert inner_text(line(inner=(InnerPlace(place=nameless, cost=0.1),))) == "Of it libtorch_cuda.so 10 %."


def wait(**of: object) -> WaitPlace:
    fields = {
        "place": STACKS[1].place, "inner": STACKS[1].python[0], "function": SYNC, "thread": MAIN, "calls": 1800.0,
        "per_second": 900.4, "share": 0.03, "price": 0.001,
    }  # fmt: skip
    return WaitPlace(**(fields | of))  # type: ignore[arg-type]


def test_waits_say_where_they_are_how_many_and_what_they_cost() -> None:
    process, sequence = process_with(), divided()
    where = "train.py:10 in step, in nn.py:7 in forward: about"
    assert wait_text(wait(), process, sequence) == (f"{where} 900 calls of {SYNC} a second, which cost less than 1 %.")
    vague = sequence.changed(price=Figure(0.001, 0.0, 0.9))
    assert wait_text(wait(), process, vague) == f"{where} 900 calls of {SYNC} a second."
    assert wait_text(wait(price=0.12, per_second=2.04, inner=None), process, sequence) == (
        f"train.py:10 in step: about 2.0 calls of {SYNC} a second, which cost up to 12 %."
    )
    assert wait_text(wait(), process, undivided()) == f"{where} 900 calls of {SYNC} a second, 3 % of the time."
    polls = wait(function=QUERY, per_second=1.0)
    assert wait_text(polls, process, undivided()) == f"{where} 1.0 waits by cuEventQuery a second, 3 % of the time."
    place = StackFrame(FrameKind.NATIVE, "", "")
    main = process.changed(threads=(process.threads[0].changed(id=MAIN, name="autograd 0"),))
    assert wait_text(wait(place=place), main, sequence).startswith("backward pass: about")


def test_the_report_has_three_places_of_waits() -> None:
    few = wait(price=0.0, per_second=0.2)
    waits = (wait(), few, *(wait(place=line_stack(number).place) for number in (21, 22, 23)))
    text = report(process_with(divided(lines=(line(),), wait_places=waits)))
    first = text.index("Waits:")
    assert text.index("Lines that cost most:") < first
    named = " ".join(text[first:])
    assert ["train.py:21" in named, "train.py:22" in named, "train.py:23" in named] == [True, True, False]
    assert "0.2 calls" not in named


def test_autograds_thread_runs_the_backward_pass() -> None:
    """Its code is compiled and of packages: no line of the program led there."""
    place = StackFrame(FrameKind.NATIVE, "", "/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so")
    process = process_with()
    (main, *_) = process.threads
    assert place_text(line(place=place), process) == "libtorch_cuda.so, without a line of the program"
    process = process.changed(threads=(main.changed(id=MAIN, name="autograd 0"),))
    assert place_text(line(place=place), process) == "backward pass"
    assert line_text(line(place=place), process, divided(threads=(OTHER, MAIN))).startswith(
        "backward pass (autograd 0) costs up to "
    )


def test_what_costs_most_at_a_line_is_its_innermost_frames() -> None:
    deep = [
        CallStack((StackFrame(FrameKind.PYTHON, "forward", "/lib/site-packages/nn.py", number), *STACKS[1].python[1:]))
        for number in range(1, 6)
    ]
    stacks = dict(enumerate((*deep, CallStack(STACKS[1].python[1:])), 1))
    times = (100, 300, 200, 5, 250, 400)
    samples = [Sampled(0, 5, us, LAUNCH, between=True, stack=number) for number, us in enumerate(times, 1)]
    (found,) = lines_of(sums_of(samples), at_ns(0), (divided(),), stacks, one_sequence)
    (one,) = found.lines
    # The line itself, and the two library lines with most of the time.
    assert [(inner.place.line, round(inner.cost * sum(times))) for inner in one.inner] == [
        (10, 400),
        (2, 300),
        (5, 250),
    ]
    alone = [Sampled(0, 5, 100, LAUNCH, between=True, stack=6)]
    (found,) = lines_of(sums_of(alone), at_ns(0), (divided(),), stacks, one_sequence)
    assert found.lines[0].inner == ()


def test_compiled_code_of_all_packages_is_one_place() -> None:
    libraries = ("libtorch_cuda.so", "libcudnn_ops.so.9")
    stacks = {
        number: CallStack(native=(StackFrame(FrameKind.NATIVE, "f<int>", f"/lib/site-packages/{name}", None, number),))
        for number, name in enumerate(libraries, 1)
    }
    samples = [Sampled(0, 5, us, LAUNCH, between=True, stack=number) for number, us in ((1, 300), (2, 100))]
    (found,) = lines_of(sums_of(samples), at_ns(0), (divided(),), stacks, one_sequence)
    (one,) = found.lines
    assert one.place is not None
    assert (one.place.file, one.place.function, one.share.share) == ("/lib/site-packages/libtorch_cuda.so", "", 1.0)
    assert [(inner.place.file.split("/")[-1], inner.cost) for inner in one.inner] == list(
        zip(libraries, (0.75, 0.25), strict=True)
    )


@pytest.mark.parametrize(
    ("made", "verdict", "words"),
    [
        (line(), Bound.WAIT, "Submit the next work before this wait"),
        (line(waits=LineTime(share=0.4, function=COPY)), Bound.WAIT, cause_of(WaitCause.OWN_WORK).remedy),
        (line(waits=LineTime(share=0.4, function="cuMemFree_v2")), Bound.WAIT, cause_of(WaitCause.FREE).remedy),
        (line(price=0.0), Bound.HOST, "The GPU has work meanwhile"),
        (line(), Bound.GPU, "The GPU has work meanwhile"),
        (line(waits=LineTime(share=0.4, function=H2D)), Bound.WAIT, "Copy from pinned memory"),
        (line(between=LineTime(share=0.3, function=LAUNCH)), Bound.HOST, "Do this work of the host once"),
        (line(between=LineTime(share=0.3, function=LAUNCH), inner=LIBRARY), Bound.HOST, "Submit more work with each"),
        (line(between=LineTime(share=0.3, function=H2D), inner=LIBRARY), Bound.HOST, "Do this work of the host once"),
        (line(calls=LineTime(share=0.3, function=LAUNCH)), Bound.SUBMISSION, "Submit more work with each call"),
        (
            line(calls=LineTime(share=0.3, function="cuModuleLoadData")),
            Bound.LOADING,
            cause_of(WaitCause.MODULE).remedy,
        ),
        (line(calls=LineTime(share=0.3, function=H2D)), Bound.SUBMISSION, "Use pinned memory for the copies"),
        (line(calls=LineTime(share=0.3, function="cuMemcpyDtoDAsync_v2")), Bound.SUBMISSION, "Submit more work with"),
        (line(waits=LineTime(share=0.4, function="cuMemcpyDtoD_v2")), Bound.WAIT, "Submit the next work before this"),
        (line(waits=LineTime(share=0.4, function="cuMemcpyPeer")), Bound.WAIT, "Submit the next work before this"),
        (line(place=None), Bound.WAIT, ""),
    ],
)
def test_the_remedy_fits_what_costs_most(made: ProgramLine, verdict: Bound, words: str) -> None:
    sequence = divided(verdict)
    text = remedy_text(made, process_with(), sequence)
    assert text.startswith(words)
    assert bool(text) == bool(words)


def test_lines_of_a_program_that_copies_all_the_time() -> None:
    sequence = divided(Bound.COPY, waits=()).changed(gpu=Figure(0.97, 0.96, 0.98))
    # Where the host waits for copies that do not block, the time at a line says most.
    assert count_alike(sequence)
    assert remedy_text(line(price=0.0), process_with(), sequence).startswith("The GPU copies meanwhile: copy less")
    assert not count_alike(sequence.changed(gpu=Figure(0.6, 0.5, 0.7)))
    # Copies that block cost their time.
    blocking = WaitShare(function=H2D, calls=1, ns=sequence.covered_ns // 2, share=1.0)
    assert not count_alike(sequence.changed(waits=(blocking,)))
    uploads = line(waits=LineTime(share=0.9, function=H2D), price=0.0)
    assert remedy_text(uploads, process_with(), sequence).startswith("Copy from pinned memory")


def test_the_document_has_the_lines() -> None:
    known = (line(inner=LIBRARY), line(place=None, stack=None))
    process = process_with(divided(samples=50, ns=250_000_000, lines=known, wait_places=(wait(),)))
    found = findings(8, ended=True).changed(processes=(process,))
    made = json.loads(json.dumps(document(found), allow_nan=False))
    validate(made, "stallscope.watch/3")
    (read,) = made["processes"]
    (sequence,) = read["sequences"]
    assert (sequence["threads"], sequence["device"], sequence["samples"]) == ([MAIN], 0, 50)
    assert sequence["ns"] == 250_000_000
    first, second = sequence["lines"]
    assert first["place"]["line"] == 10
    assert first["waits"] == {"share": 0.4, "function": SYNC}
    assert first["inner"] == [{"place": first["inner"][0]["place"], "cost": 0.15}]
    assert first["cost"]["share"] == 0.2
    (waits,) = sequence["wait_places"]
    assert (waits["per_second"], waits["price"], waits["inner"]["line"]) == (900.4, 0.001, 7)
    assert waits["sentence"].endswith("which cost less than 1 %.")
    assert (first["price"], first["share"]) == (0.2, {"share": 0.4, "low": 0.35, "high": 0.46})
    assert first["remedy"].startswith("Submit the next work")
    assert read["stacks"][first["stack"]]["python"][1]["line"] == 10
    assert (second["place"], second["stack"], second["remedy"]) == (None, None, "")


def report(process: ProcessFindings, width: int = 80) -> list[str]:
    stream = io.StringIO()
    found = findings(8, ended=True).changed(processes=(process,))
    show_watch(TextWriter(stream, width=width), found, "python train.py")
    return stream.getvalue().splitlines()


def test_the_report_has_five_lines_with_each_remedy_once_and_fits_a_screen() -> None:
    made = tuple(line(place=line_stack(number).place) for number in range(10, 17))
    small = line(place=line_stack(99).place, cost=Figure(0.004, 0.0, 0.01))
    text = report(process_with(divided(lines=(*made[:3], small, *made[3:]))))
    first = text.index("Lines that cost most:")
    assert sum(" in step costs up to 20 %" in one for one in text) == 5
    assert not any("train.py:99" in one for one in text)
    assert sum("Submit the next work before this wait" in one for one in text) == 1
    # Verdict, bar, lines and start-up.
    assert 4 < first < 10
    assert text.index("", first) <= 40


def test_a_report_about_a_sequence_fits_a_screen_whatever_there_is_to_say() -> None:
    inner = tuple(InnerPlace(place=line_stack(number, "f" * 40).place, cost=0.1) for number in range(3))  # type: ignore[arg-type]
    made = tuple(
        line(place=line_stack(number, "g" * 40).place, inner=inner, waits=LineTime(share=0.4, function=function))
        for number, function in enumerate((SYNC, COPY, H2D, "cuMemFree_v2", SYNC), 10)
    )
    text = report(process_with(divided(lines=made)))
    assert any("train.py:11" in one for one in text)
    assert not any("train.py:14" in one for one in text)
    assert text.index("", text.index("Lines that cost most:")) <= 40


def test_the_lines_of_a_program_whose_work_is_not_recorded_have_no_price() -> None:
    text = report(process_with(undivided(lines=(line(price=0.0),))))
    assert "Lines with most of the time:" in text
    assert "costs up to" not in " ".join(text)
    assert "train.py:10 in step has 20 % (17 to 23) of the time" in " ".join(text)


def test_samples_of_functions_without_a_name_are_other_calls() -> None:
    batch = sample_batch([Sampled(0, 10, 1000)])
    sums = SampleSums(at_ns(0))
    sums.add(SampleBatch(batch.rows, {}, 1, 0), NO_CALLS, TOGETHER)
    (found,) = lines_of(sums, at_ns(0), None, STACKS, one_sequence)
    assert found.lines[0].calls == LineTime(share=1.0, function="function 1")
    assert FUNCTIONS[1] == LAUNCH


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (WaitCause.HELD_STREAM, "It waits for an event or a host function that held its stream. Let what holds"),
        (WaitCause.OTHER_PROCESS, "It waits for the time-slices of another process. Run one process on each GPU"),
        (WaitCause.GPU_WORK, "Submit the next work before this wait"),
    ],
)
def test_what_helps_a_line_fits_what_its_slow_waits_were_for(cause: WaitCause, words: str) -> None:
    site = CallSite(
        stack=STACKS[1], function=SYNC, bytes=None, blocking=False, recorded=9, calls=9,
        total_ns=90, lost_ns=80, first_ns=1, last_ns=2, cause=cause,
    )  # fmt: skip
    process = process_with().changed(sites=(site,))
    sequence = divided()
    assert remedy_text(line(), process, sequence).startswith(words)
    # Another line's, or another function's.
    other = process.changed(sites=(site.changed(stack=STACKS[2]), site.changed(function=COPY)))
    assert remedy_text(line(), other, sequence).startswith("Submit the next work before this wait")


@pytest.mark.parametrize(("cause", "staged"), [(WaitCause.STAGED_COPY, True), (WaitCause.GPU_WORK, False)])
def test_a_line_that_waits_for_a_staged_copy_says_so_also_where_the_gpu_works_all_the_time(
    cause: WaitCause, staged: bool
) -> None:
    site = CallSite(
        stack=STACKS[1], function=SYNC, bytes=None, blocking=False, recorded=9, calls=9,
        total_ns=90, lost_ns=80, first_ns=1, last_ns=2, cause=cause,
    )  # fmt: skip
    text = remedy_text(line(), process_with().changed(sites=(site,)), divided(Bound.GPU))
    assert text.startswith("The GPU has work meanwhile")
    assert (f"It waits for {cause_of(WaitCause.STAGED_COPY).clause}." in text) is staged


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (WaitCause.PAGEABLE_COPY, "It waits for a pageable copy. Use pinned memory"),
        (WaitCause.OTHER_PROCESS, "It waits for the time-slices of another process. Run one process on each GPU"),
        (WaitCause.ITSELF, "Submit more work with each call"),
    ],
)
def test_what_helps_a_line_fits_what_held_up_its_calls(cause: WaitCause, words: str) -> None:
    site = CallSite(
        stack=STACKS[1], function=LAUNCH, bytes=None, blocking=False, recorded=9, calls=9,
        total_ns=90, lost_ns=80, first_ns=1, last_ns=2, cause=cause,
    )  # fmt: skip
    calls = LineTime(share=0.8, function=LAUNCH)
    made = line(waits=LineTime(), calls=calls, between=LineTime(), price=0.0)
    sequence = divided(Bound.LOCK)
    assert remedy_text(made, process_with().changed(sites=(site,)), sequence).startswith(words)


def test_a_wait_for_the_device_that_waits_for_other_threads_should_wait_for_its_own_work() -> None:
    sequence = divided().changed(awaited=(AwaitedThread(thread=OTHER, share=0.3), AwaitedThread(thread=77, share=0.1)))
    device = line(waits=LineTime(share=0.4, function="cuCtxSynchronize"))
    assert remedy_text(device, process_with(), sequence).startswith("It waits for the work of other threads too")
    assert remedy_text(line(), process_with(), sequence).startswith("Submit the next work before this wait")
    text = awaited_text(sequence, process_with())
    assert text == "It waits for work of loader 30 %, of thread 77 10 % of the time."
    assert awaited_text(divided(), process_with()) == ""


def test_a_gpu_that_is_mostly_unused_needs_larger_kernels() -> None:
    small = remedy_text(line(), process_with(), divided(Bound.GPU).changed(few_blocks=0.9))
    assert small.startswith("The GPU has work meanwhile, but most of it is unused: kernels of more blocks")
    assert remedy_text(line(), process_with(), divided(Bound.GPU)).endswith(
        "only less work for it makes the program faster."
    )
    busy = Figure(0.95, 0.95, 0.95)
    both = divided(Bound.GPU).changed(second=Bound.HOST, gpu=busy, host=busy, few_blocks=0.9)
    assert remedy_text(line(), process_with(), both).startswith("The GPU and the host both work nearly all the time")
    # A verdict that barely holds has a second one too.
    assert remedy_text(line(), process_with(), both.changed(host=Figure(0.8, 0.8, 0.8))) == small


@pytest.mark.parametrize(
    ("function", "between_ns", "verdict", "second"),
    [
        ("cuLaunchHostFunc", 2_000_000, Bound.HELD, None),
        ("cuStreamAddCallback", 2_000_000, Bound.HELD, None),
        # So short a time the GPU itself may need.
        ("cuLaunchHostFunc", 100_000, Bound.GAPS, Bound.GPU),
        (LAUNCH, 2_000_000, Bound.GAPS, Bound.GPU),
    ],
)
def test_work_that_waits_for_host_functions_in_its_stream_is_no_work_of_small_kernels(
    function: str, between_ns: int, verdict: Bound, second: Bound | None
) -> None:
    calls = call_batch([slow(function, 1000 * number, 1000 * number + 10) for number in range(1, 5)])
    parts = {Part.BETWEEN: between_ns, Part.KERNELS: 500_000}
    division = divided(Bound.GAPS, second=Bound.GPU, parts=parts, covered_ns=sum(parts.values()), operations=10)
    (found,) = lines_of(
        sums_of([Sampled(1010, 2000, 500, LAUNCH, between=True)], calls), at_ns(0), (division,), STACKS, one_sequence
    )
    assert (found.verdict, found.second) == (verdict, second)
    said = "The GPU waits meanwhile for functions on the host"
    assert remedy_text(line(), process_with(found), found).startswith(said) is (verdict is Bound.HELD)


@pytest.mark.parametrize(
    ("copies", "copying_ns", "verdict"),
    [(4, 30_000, Bound.HELD), (40, 30_000, Bound.COPY), (4, 500_000, Bound.COPY)],
)
def test_a_copy_that_blocks_behind_a_host_function_waits_for_that(copies: int, copying_ns: int, verdict: Bound) -> None:
    calls = call_batch([slow("cuLaunchHostFunc", 1000 * number, 1000 * number + 10) for number in range(1, 5)])
    parts = {Part.COPY: 2_000_000, Part.COPIES: copying_ns}
    waits = (WaitShare(function=COPY, calls=copies, ns=2_000_000, share=1.0),)
    division = divided(Bound.COPY, parts=parts, covered_ns=sum(parts.values()), operations=4, waits=waits)
    (found,) = lines_of(sums_of((), calls), at_ns(0), (division,), STACKS, one_sequence)
    assert found.verdict is verdict


def test_where_the_program_waits_outside_calls_the_remedy_is_that_of_a_wait() -> None:
    made = line(between=LineTime(share=0.5, function=LAUNCH))
    outside = WaitShare(function=OUTSIDE_NAME, calls=9, ns=9, share=1.0)
    assert "outside calls" in remedy_text(made, process_with(), divided(Bound.WAIT).changed(waits=(outside,)))
    assert remedy_text(made, process_with(), divided(Bound.WAIT)).startswith("Do this work of the host once")


class _TenSeconds(SampleSums):
    """Samples of ten seconds."""

    @property
    def until_ns(self) -> int:
        return at_ns(10 * SECOND_US)


@pytest.mark.parametrize(
    ("shares", "line"),
    [
        # Thousandths of the time in each third.
        ((20, 300, 700), 20),
        # It takes evenly more beside all others, whose share becomes small.
        ((20, 720, 840), 20),
        ((20, 850, 850), None),
        ((20, 20, 100), None),
        ((20, 700, 300), None),
        # At one time.
        ((20, 20, 700), None),
        ((700, 300, 20), 10),
    ],
)
def test_a_line_that_takes_ever_more_of_the_time_is_named(shares: tuple[int, int, int], line: int | None) -> None:
    sums = _TenSeconds(at_ns(0))
    for second in range(10):
        # A third begins with a second.
        begin, part = second * SECOND_US, shares[(second >= 4) + (second >= 7)]
        made = [Sampled(begin + at, begin + at + 1, 10 * part, stack=2) for at in range(100)]
        rest = [Sampled(begin + 200 + at, begin + 201 + at, 10 * (1000 - part), stack=1) for at in range(100)]
        sums.add(sample_batch([*made, *rest]), NO_CALLS, TOGETHER)
    for ended in (False, True):
        (found,) = lines_of(sums, at_ns(0), (divided(),), STACKS, one_sequence, ended)
        growing = found.growing if ended else None
        assert found.growing is growing
        assert (None if growing is None else growing.place.line) == (line if ended else None)
        if growing is not None:
            expected = [share / 1000 for share in shares]
            assert growing.shares == pytest.approx(
                expected if line == 20 else [1 - each for each in expected], abs=0.02
            )


@pytest.mark.parametrize(
    ("first", "later", "line"),
    [((100, 100), (100, 600), 30), ((300, 300), (300, 300), None), ((100, 200), (600, 200), 20)],
)
def test_a_step_that_grows_names_the_line_that_grew(
    first: tuple[int, int], later: tuple[int, int], line: int | None
) -> None:
    """Steps of 10 ms become 40 ms long; two lines have so many thousandths of the time at first and later."""
    sums = _TenSeconds(at_ns(0))
    for second in range(10):
        begin = second * SECOND_US
        parts = dict(zip((2, 3), first if second < 5 else later, strict=True))
        made = [Sampled(begin + stack, begin + stack + 1, 1000 * ms, stack=stack) for stack, ms in parts.items()]
        rest = Sampled(begin + 10, begin + 11, 1000 * (1000 - sum(parts.values())), stack=1)
        sums.add(sample_batch([*made, rest]), NO_CALLS, TOGETHER)
    division = divided(growth=StepGrowth(first_ns=10_000_000, last_ns=40_000_000))
    (found,) = lines_of(sums, at_ns(0), (division,), STACKS, one_sequence)
    assert found.growth is not None
    place = found.growth.place
    assert (None if place is None else place.line) == line


def test_a_task_of_a_library_says_what_it_costs_and_what_helps() -> None:
    search = StackFrame(FrameKind.NATIVE, "cudnnBackendFinalize", "/opt/nvidia/libcudnn_graph.so.9")
    stacks = {1: line_stack(10), 4: CallStack(line_stack(40).python, (search,)), 5: line_stack(40)}
    load = "cuModuleLoadData"
    # Two searches of two samples, between which the program is elsewhere; a launch at the same line is no part of one,
    # and the time before the first has frames of Python alone.
    samples = [
        Sampled(0, 10, 30_000, load, between=True, stack=5),
        Sampled(20, 30, 20_000, load, stack=4),
        Sampled(40, 50, 40_000, LAUNCH, between=True, stack=1),
        Sampled(60, 70, 10_000, LAUNCH, between=True, stack=4),
        Sampled(80, 90, 45_000, load, stack=4),
        Sampled(90, 95, 5_000, load, stack=0),
        Sampled(100, 110, 50_000, LAUNCH, between=True, stack=1),
    ]
    sums = SampleSums(at_ns(0))
    sums.add(sample_batch(samples), NO_CALLS, TOGETHER)
    division = divided(Bound.HOST, gpu=Figure(0.2, 0.2, 0.2))
    (found,) = lines_of(sums, at_ns(0), (division,), stacks, one_sequence)
    (task,) = found.tasks
    assert (task.task, task.place, task.place_share) == (LibraryTask.CUDNN_SEARCH, stacks[4].place, 1.0)
    assert task.cost == pytest.approx(95 / 200)
    process = process_with(found)
    text = (
        "cuDNN searches for an algorithm up to 48 % of the time, at train.py:40 in step: "
        "keep the shapes and types of its inputs the same"
    )
    assert tasks_text(found, process).startswith(text)
    assert tasks_text(found.changed(tasks=(task.changed(cost=0.04),)), process) == ""
    line = next(each for each in found.lines if each.place == task.place)
    assert remedy_text(line, process, found).startswith("cuDNN searches for an algorithm here: keep the shapes")
    # A part of the task that is the reason of the verdict is seen at the line.
    hardly = line.changed(tasks={LibraryTask.CUDNN_SEARCH: 0.3 * line.cost.share})
    assert remedy_text(hardly, process, found).startswith("cuDNN searches for an algorithm here: keep the shapes")
    less = found.changed(tasks=(task.changed(cost=0.3),))
    assert not remedy_text(hardly, process, less).startswith("cuDNN")
    assert verdict_text(found, process) == "MainThread is host-bound: cuDNN searches for an algorithm."
    assert "searches" not in verdict_text(found.changed(verdict=Bound.GPU), process)
    assert "searches" not in verdict_text(less, process)
