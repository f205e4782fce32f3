"""Calls that calls of other threads hold up: what is evidence for it, and how the report names them."""

from __future__ import annotations

import io

import pytest

from factories.time_samples import Sampled, line_stack, sample_batch
from factories.watch_calls import D2H, FREE, LAUNCH, MAIN, OTHER, SYNC, THIRD, at_ns, call_batch, slow
from factories.watch_moments import findings
from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.order import cause_of
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.line_text import holding_calls, holding_text, remedy_text
from stallprobes.watch.lines.held_calls import FunctionCalls, HeldCalls, HeldSum, HeldUp
from stallprobes.watch.lines.lines import lines_of
from stallprobes.watch.lines.logged_calls import Reading
from stallprobes.watch.lines.result import HoldingCalls, LineTime, ProgramLine, ProgramSequence
from stallprobes.watch.lines.sample_sums import SampleSums
from stallprobes.watch.reading.process import NO_SAMPLES_OF_TIME, SlowDriverCall
from stallscope.report.text import TextWriter
from stallscope.report.watch_text import show_watch

CLEANER = line_stack(10, "cleaner", "/home/me/server.py")


class Apart(ProcessDivider):
    """Each thread is a sequence of its own."""

    def leader(self, thread: int) -> int:
        return thread

    def knows(self, thread: int, until_ns: int) -> bool:
        return True

    def last_end_ns(self, leader: int) -> int:
        return 0


def launches(thread: int, held: tuple[float, ...] = (), us: float = 200) -> list[SlowDriverCall]:
    """Launches of 5 µs each 100 µs, but for those that begin at ``held``, which take longer."""
    begins = [float(begin) for begin in range(0, 100_000, 100)]
    busy = [(begin, begin + us) for begin in held]
    usual = [one for one in begins if not any(begin - 5 < one < end for begin, end in busy)]
    return [slow(LAUNCH, one, one + 5, thread=thread) for one in usual] + [
        slow(LAUNCH, begin, end, thread=thread) for begin, end in busy
    ]


def found(calls: list[SlowDriverCall]) -> dict[HeldUp, HeldSum]:
    held, batch = HeldCalls(at_ns(0)), call_batch(calls)
    held.add(Reading(NO_SAMPLES_OF_TIME.rows, batch, {}).calls)
    return dict(held.since(at_ns(0)))


def frees(begins: tuple[float, ...], us: float = 190) -> list[SlowDriverCall]:
    return [slow(FREE, begin, begin + us, thread=THIRD) for begin in begins]


def test_launches_that_are_as_long_as_the_free_beside_them_are_held_up() -> None:
    at = (10_000.0, 30_000.0, 50_000.0, 70_000.0)
    held = found([*launches(MAIN, tuple(one + 5 for one in at)), *launches(OTHER), *frees((*at, 90_000))])
    assert held == {(FunctionCalls(THIRD, 5), FunctionCalls(MAIN, 1)): HeldSum(4, 4 * 185_000)}


@pytest.mark.parametrize(
    "calls",
    [
        # Two are no evidence.
        [*launches(MAIN, (10_005, 30_005)), *frees((10_000, 30_000))],
        # They are long at other times too.
        [*launches(MAIN, tuple(range(1005, 99_000, 500))), *frees(tuple(range(1000, 20_000, 2000)))],
        # Of the thread itself.
        [*launches(THIRD, (10_300, 30_300, 50_300)), *frees((10_005, 30_005, 50_005))],
        # It covers less than half of each.
        [*launches(MAIN, (10_100, 30_100, 50_100)), *frees((10_000, 30_000, 50_000), us=150)],
        # Hardly any launch is long beside a copy that lasts all of the time.
        [*launches(MAIN, (10_005, 30_005, 50_005)), slow(D2H, 0, 99_900, thread=THIRD, target=MemoryKind.PAGEABLE)],
        # Waits wait for the GPU.
        [slow(SYNC, one, one + (200 if one % 20_000 == 0 else 5)) for one in range(0, 100_000, 1000)]
        + frees(tuple(range(0, 100_000, 20_000))),
        [],
    ],
)
def test_without_evidence_nothing_is_held_up(calls: list[SlowDriverCall]) -> None:
    assert found(calls) == {}


def test_held_calls_of_the_start_up_are_left_out() -> None:
    at = (10_000.0, 30_000.0, 50_000.0, 70_000.0)
    held, batch = HeldCalls(at_ns(0)), call_batch([*launches(MAIN, tuple(one + 5 for one in at)), *frees(at)])
    held.add(Reading(NO_SAMPLES_OF_TIME.rows, batch, {}).calls)
    assert held.since(at_ns(0))
    assert not held.since(at_ns(1_000_000))


def sequences() -> tuple[ProgramSequence, ...]:
    at = (10_000.0, 30_000.0, 50_000.0, 70_000.0)
    calls = [*launches(MAIN, tuple(one + 5 for one in at)), *launches(OTHER, (50_005,)), *frees(at)]
    samples = [Sampled(at[0], at[0] + 190, 190, FREE, stack=1, thread=THIRD)]
    samples += [Sampled(0, 5, 5, stack=2, thread=thread) for thread in (MAIN, OTHER)]
    sums = SampleSums(at_ns(0))
    sums.add(sample_batch(samples), call_batch(calls), Apart())
    return lines_of(sums, at_ns(0), None, {1: CLEANER, 2: line_stack(20)}, Apart().leader)


def process_with(lines: tuple[ProgramSequence, ...]) -> ProcessFindings:
    process = findings(8, ended=True).processes[0]
    named = {MAIN: "serve-0", OTHER: "serve-1", THIRD: "cleaner"}
    threads = tuple(process.threads[0].changed(id=number, name=name) for number, name in named.items())
    return process.changed(threads=threads, sequences=lines, division=None)


def test_the_call_that_holds_up_others_is_named_with_its_line() -> None:
    lines = sequences()
    by_thread = {one.threads: one.holding for one in lines}
    assert by_thread[THIRD,] == ()
    (one,) = by_thread[MAIN,]
    assert (one.thread, one.function, one.held, one.calls) == (THIRD, FREE, LAUNCH, 4)
    assert one.place == CLEANER.place
    assert one.share == pytest.approx(4 * 185 / 99_905, rel=1e-3)
    process = process_with(lines)
    (holding,) = holding_calls(process)
    assert holding_text(holding, process) == (
        f"{FREE} in server.py:10 in cleaner holds up 50 calls a second of other threads, most of them {LAUNCH}: <1 % "
        "of their time."
    )
    nameless = tuple(each.changed(place=None) for each in holding)
    assert holding_text(nameless, process).startswith(f"{FREE} in cleaner holds up")


def test_a_launch_that_is_held_up_is_not_advised_to_be_a_graph() -> None:
    copy = HoldingCalls(
        thread=THIRD, function=D2H, place=CLEANER.place, held=LAUNCH, calls=15, per_second=5.0, share=0.9
    )
    sequence = ProgramSequence(threads=(MAIN,), holding=(copy,))
    line = ProgramLine(
        place=line_stack(20).place, stack=line_stack(20), thread=MAIN, samples=9, share=Figure(0.95, 0.9, 1.0),
        cost=Figure(0.95, 0.9, 1.0), calls=LineTime(share=0.95, function=LAUNCH),
    )  # fmt: skip
    process = process_with((sequence,))
    assert remedy_text(line, process, sequence) == (
        f"It waits for {D2H} in server.py:10 in cleaner. {cause_of(WaitCause.PAGEABLE_COPY).remedy}"
    )
    # It is held up for less than half of that time.
    less = sequence.changed(holding=(copy.changed(share=0.2),))
    assert remedy_text(line, process, less).startswith("Submit more work with each call")


def test_the_report_names_it_once_for_all_sequences() -> None:
    process = process_with(sequences())
    stream = io.StringIO()
    division = findings(8, ended=True).processes[0].division
    found = findings(8, ended=True).changed(processes=(process.changed(division=division),))
    show_watch(TextWriter(stream, width=200), found, "python server.py")
    assert stream.getvalue().count("holds up") == 1
