"""Slow calls by the place in the program that made them: what is counted together, and what has no stack."""

from __future__ import annotations

import random
from dataclasses import replace

from factories.watch_calls import (
    ALLOC,
    MAIN,
    OTHER,
    SYNC,
    US,
    at_ns,
    batch,
    kernel,
    pageable_copy,
    process,
    slow,
    thread,
)
from stallprobes.native.layouts.watch_file import LossKind
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.call_sums import MOST_SITES, SiteSums
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.process import SlowDriverCall
from stallprobes.watch.sentences import site_text


def stack(line: int) -> CallStack:
    return CallStack((StackFrame(FrameKind.PYTHON, "step", "/home/me/train.py", line),))


STACKS = {1: stack(42), 2: stack(43)}


def sync(begin: float, number: int, thread: int = MAIN) -> SlowDriverCall:
    """A wait of 2 ms with the stack of a number."""
    return slow(SYNC, begin, begin + 2000, thread=thread).changed(stack=number)


def found(*calls: SlowDriverCall, unread: int = 0, native: bool = True, **changes: object) -> ProcessFindings:
    analysis = ProcessAnalysis()
    read = process(thread(calls=calls, unread={SYNC: [2000.0] * unread}))
    read = read.changed(native_stacks=native, **changes)
    analysis.feed(read, batch([]), at_ns(10**6), {}, STACKS)
    return analysis.findings()


def counted(findings: ProcessFindings) -> list[tuple[int | None, int, int]]:
    """Line, calls and recorded calls of each place."""
    places = [(site.stack.place, site) for site in findings.sites]
    return sorted((place.line, site.calls, site.recorded) for place, site in places if place is not None)


def test_calls_from_one_place_are_counted_together() -> None:
    findings = found(sync(0, 1), sync(5000, 2), sync(10_000, 1))
    assert counted(findings) == [(42, 2, 2), (43, 1, 1)]
    most = findings.sites[0]
    assert (most.total_ns, most.lost_ns, most.cause) == (4000 * US, 4000 * US, WaitCause.UNATTRIBUTED)
    assert (most.per_second, most.last_ns - most.first_ns) == (None, 12_000 * US)
    assert findings.slow_calls[0].stack == STACKS[1]


def test_calls_that_are_named_alike_are_counted_together() -> None:
    caller, other = (StackFrame(FrameKind.PYTHON, "main", "/home/me/train.py", line) for line in (90, 91))
    helper = StackFrame(FrameKind.PYTHON, "save", "/home/me/files.py", 7)
    python = [CallStack((helper, *outer)) for outer in ((caller,), (caller, other), (caller, caller), (other,))]
    solve, run = (StackFrame(FrameKind.NATIVE, name, "/home/me/solve", None, 1) for name in ("solve", "run"))
    compiled = [CallStack(native=frames) for frames in ((solve,), (solve.changed(offset=2), run), (run,))]
    (alloc,) = found(slow(ALLOC, 0, 2000, size=1 << 20).changed(stack=1)).slow_calls
    (copy,) = found(pageable_copy(0, 5000).changed(stack=1)).slow_calls
    sums = SiteSums()
    for number, each in enumerate((*python, *compiled)):
        # Sizes are said of copies alone.
        sums.add(alloc.changed(stack=each, bytes=number))
        sums.add(copy.changed(stack=python[0], bytes=number % 2))
    sites = sums.sites_by_time({})
    assert sorted(site.calls for site in sites if site.function == ALLOC) == [1, 1, 2, 3]
    assert {(site.bytes, site.calls) for site in sites if site.is_copy} == {(0, 4), (1, 3)}
    texts = [site_text(site) for site in sites]
    assert "3 calls of cuMemAlloc_v2 from files.py:7 in save, called by train.py:90 in main" in texts
    assert len(set(texts)) == len(texts)


def test_a_rate_needs_a_second() -> None:
    (most,) = found(*(sync(10_000.0 * number, 1) for number in range(200))).sites
    assert most.per_second == round(200 / 1.992, 3)


def test_the_cause_of_a_place_is_that_of_most_of_its_time() -> None:
    analysis = ProcessAnalysis()
    copies = [pageable_copy(begin, begin + 5000, correlation=begin).changed(stack=1) for begin in (10, 20_000)]
    records = [kernel(0, 5005, correlation=1)]
    analysis.feed(process(thread(OTHER, copies)), batch(records), at_ns(10**6), {}, STACKS)
    (site,) = analysis.findings().sites
    assert (site.calls, site.blocking, site.bytes) == (2, True, 256 << 20)


def test_calls_without_a_stack_are_shared_out_and_said_to_be() -> None:
    findings = found(sync(0, 1), sync(5000, 1), sync(10_000, 2), *(sync(20_000 + 5000 * n, 0) for n in range(6)))
    assert counted(findings) == [(42, 6, 2), (43, 3, 1)]
    assert findings.sites[0].calls > findings.sites[0].recorded
    assert "6 of 9 slow calls have no call stack: stacks are taken for at most 1 % of the time." in findings.gaps


def test_calls_that_were_overwritten_before_they_were_read_are_shared_out() -> None:
    findings = found(sync(0, 1), sync(5000, 2), unread=2)
    assert counted(findings) == [(42, 2, 1), (43, 2, 1)]


def test_sums_are_those_of_all_calls_however_they_are_read() -> None:
    dice = random.Random(3)
    calls = [sync(5000.0 * number, dice.choice((0, 1, 2))) for number in range(60)]
    at_once, analysis = found(*calls), ProcessAnalysis()
    for end in range(1, 61):
        last = calls[max(end - 8, 0) : end]
        read = process(thread(calls=calls[:end])).changed(
            threads=(replace(thread(calls=calls[:end]), slow_calls=tuple(last)),)
        )
        # Far enough apart that causes become final between the readings.
        analysis.feed(read, batch([]), at_ns(5000.0 * end) + end * 10**9, {}, STACKS)
    assert counted(analysis.findings()) == counted(at_once)


def test_the_number_of_places_is_limited() -> None:
    (call,) = found(sync(0, 1)).slow_calls
    sums = SiteSums()
    for line in range(MOST_SITES + 10):
        sums.add(call.changed(stack=stack(line)))
    assert len(sums.sites_by_time({})) == len(sums.sites) == MOST_SITES


def test_what_is_missing_of_stacks_is_said() -> None:
    assert found(sync(0, 0)).gaps == found(sync(0, 1)).gaps
    assert any("libgcc_s.so.1 was not found" in gap for gap in found(sync(0, 1), native=False).gaps)
    assert any("this build of Python 3.16.1 keeps" in gap for gap in found(sync(0, 1), python="3.16.1").gaps)
    gaps = found(sync(0, 1), python="3.14.1", free_threaded=True).gaps
    assert any("how free-threaded Python keeps its frames" in gap for gap in gaps)
    assert not [gap for gap in found(sync(0, 1), python="3.12.1", python_stacks=True).gaps if "Python" in gap]
    full = dict.fromkeys(LossKind, 0) | {LossKind.NO_STACK: 3}
    assert any(gap.startswith("3 call stacks were not recorded") for gap in found(sync(0, 1), losses=full).gaps)
    assert not [gap for gap in found(sync(0, 0), no_stacks=True, native=False).gaps if "libgcc" in gap]
