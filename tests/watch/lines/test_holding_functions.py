"""Every function of the driver has one row, by which slow calls, the division and the lines know the same holders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from factories.cupti_headers import driver_functions
from factories.watch_calls import (
    BASE_NS,
    LAUNCH,
    MAIN,
    OTHER,
    US,
    at_ns,
    batch,
    call_batch,
    kernel,
    process,
    rows_of,
    slow,
    thread,
)
from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import FUNCTIONS, CallFamily, HostTask, function_of, prefixes
from stallprobes.watch.attribution.wait_cause import WaitCause, cause_of_task
from stallprobes.watch.causes.facts import Recorded
from stallprobes.watch.causes.order import attribute
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.parts import Part
from stallprobes.watch.lines.held_calls import HeldCalls
from stallprobes.watch.lines.logged_calls import Reading
from stallprobes.watch.reading.process import NO_SAMPLES_OF_TIME, SlowDriverCall

# Launches begin each 10 ms, those that are held up each 0.1 s (µs).
LENGTH, EACH, HELD = 1_000_000, 10_000, 100_000


def test_every_function_has_one_row_and_the_library_watches_by_the_same() -> None:
    for name in driver_functions():
        row = function_of(name)
        fitting = [one for one in FUNCTIONS if one.fits(name)]
        assert row is fitting[0] if fitting else not row.pattern
        # The library finds the first beginning that fits, and knows no more of the pattern.
        family = next((family for prefix, family in prefixes().items() if name.startswith(prefix)), None)
        assert family is row.family, name


def test_a_row_that_an_earlier_one_hides_is_none() -> None:
    hidden = [
        (later.pattern, earlier.pattern)
        for place, later in enumerate(FUNCTIONS)
        for earlier in FUNCTIONS[:place]
        if earlier.fits(later.pattern.replace("*", ""))
    ]
    assert hidden == []


def calls_beside(function: str, pageable: bool, context: int) -> Iterator[SlowDriverCall]:
    """Launches of 5 µs, of which some take 10 ms beside calls of ``function`` in another thread."""
    end = MemoryKind.PAGEABLE if pageable else MemoryKind.UNKNOWN
    for begin in range(EACH, LENGTH, EACH):
        yield slow(LAUNCH, begin + 5, begin + (5 if begin % HELD else 9_985), correlation=begin, stream=5)
    for begin in range(HELD, LENGTH, HELD):
        ended = begin + 9_985
        yield slow(function, begin, ended, thread=OTHER, correlation=begin + 1, source=end, stream=6, context=context)


def holders(function: str, pageable: bool, context: int) -> tuple[WaitCause | None, bool, bool]:
    """What launches wait for as slow calls, if that is a call of another thread; whether the division and the lines say
    that they wait for one."""
    calls = list(calls_beside(function, pageable, context))
    long = [one for one in calls if one.thread == OTHER or one.duration_ns > 1_000 * US]
    found = attribute(long, [one.duration_ns for one in long], Recorded(rows_of([])))
    (cause,) = {one.cause for one in found if one.thread == MAIN}
    held, made = HeldCalls(at_ns(0)), call_batch(calls)
    held.add(Reading(NO_SAMPLES_OF_TIME.rows, made, {}).calls)
    launches = [one for one in calls if one.thread == MAIN]
    ends = [(one.end_ns - BASE_NS) / US for one in launches]
    work = [kernel(end, end + 2, correlation=one.correlation) for one, end in zip(launches, ends, strict=True)]
    divider = ProcessDivider()
    read = process(thread(MAIN), thread(OTHER), ended=LENGTH)
    divider.feed(read, batch(work), made, at_ns(LENGTH), ended=True)
    division = divider.division()
    assert division is not None
    (sequence,) = (one for one in division.sequences if MAIN in one.threads)
    return cause if cause.is_other_thread else None, Part.LOCK in sequence.parts, bool(held.since(at_ns(0)))


@pytest.mark.parametrize("pageable", [False, True])
@pytest.mark.parametrize("context", [1, 2])
def test_slow_calls_the_division_and_the_lines_know_the_same_holders(context: int, pageable: bool) -> None:
    # In contexts of their own, one function of each row: that each function has its row is shown in one context.
    names = (
        driver_functions()
        if context == 1
        else {function_of(name).pattern: name for name in driver_functions()}.values()
    )
    for name in names:
        row = function_of(name)
        if row.family is None or (pageable and row.family is not CallFamily.COPY):
            continue
        holds = row.holds(pageable)
        expected = cause_of_task(holds) if context == 1 or holds is HostTask.CONTEXT else None
        assert holders(name, pageable, context) == (expected, expected is not None, expected is not None), name
