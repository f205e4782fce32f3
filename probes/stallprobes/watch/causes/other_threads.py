"""Causes that are calls of other threads: what the driver does in them, and which calls overlap which."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from stallprobes.files.codec import attributes
from stallprobes.native.layouts.driver_calls import HostTask, function_of
from stallprobes.watch.attribution.evidence_text import MOST_NAMED, alongside_text
from stallprobes.watch.attribution.findings import CallAlongside, CallInFlight, ExplainedCall
from stallprobes.watch.attribution.gpu_waits import OVERLAP_SHARE
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause, cause_of_task
from stallprobes.watch.causes.cause import Answer, CallCause, Rule, of_entry, of_pattern
from stallprobes.watch.causes.facts import Facts, Flags
from stallprobes.watch.causes.known_stalls import NULL_STREAMS
from stallprobes.watch.division.call_columns import may_hold_up
from stallprobes.watch.reading.process import DriverCall, OutsideReading, WatchedProcess, WatchedThread
from stallprobes.watch.reading.words import Memory


def _named_calls(call: ExplainedCall) -> Iterator[str]:
    """The calls of the evidence, in words."""
    for culprit in call.evidence.calls[:MOST_NAMED]:
        yield alongside_text(culprit)


def _pageable_columns(call: DriverCall) -> Iterator[str]:
    """The columns of a check with copies such as ``call``."""
    if call.source is Memory.PAGEABLE:
        yield "h2d-pageable-large"
        return
    yield "d2h-pageable-fresh"
    yield "d2h-pageable-warm"
    if call.stream in NULL_STREAMS or call.stream is None:
        yield "d2h-pageable-warm/null"


def _cause(name: WaitCause, word: str, entry: str, *columns: str) -> CallCause:
    """A cause with the remedy of the catalogue's ``entry``; ``columns`` of a check have aggressors that do this."""
    return CallCause(name, word, of_entry(entry), evidence=_named_calls, columns=lambda call: columns)


# Causes that are calls of other threads, one for each member of HostTask except NOTHING, in the order of HostTask.
CAUSES = (
    CallCause(
        WaitCause.PAGEABLE_COPY,
        "pageable copy",
        of_pattern("pageable-d2h-vs-launch"),
        pattern="pageable-d2h-vs-launch",
        evidence=_named_calls,
        columns=_pageable_columns,
    ),
    _cause(WaitCause.ALLOCATION, "allocation", "alloc-free", "alloc-free"),
    _cause(WaitCause.FREE, "free", "free-beside-kernel", "free-beside-kernel", "alloc-free"),
    _cause(WaitCause.ASYNC_ALLOCATION, "pool allocation", "alloc-async"),
    _cause(WaitCause.HOST_ALLOCATION, "pinned allocation", "host-alloc-free", "host-alloc-free"),
    _cause(WaitCause.HOST_REGISTRATION, "host registration", "host-register", "host-register"),
    _cause(WaitCause.GRAPH, "graph instantiation", "graph-instantiate", "graph-instantiate"),
    _cause(WaitCause.MODULE, "module loading in another thread", "module-load", "module-load", "module-first-launch"),
    _cause(WaitCause.CONTEXT, "context creation", "context-churn", "context-churn"),
    _cause(WaitCause.STREAM, "stream creation", "stream-churn", "stream-churn"),
)


def other_thread(cause: CallCause) -> Rule:
    """A call of another thread that is ``cause`` overlaps the slow call and ends with it.

    That proves nothing, unless the pair is known to stall.
    """
    return Rule(partial(_is_held_up, cause), partial(_held_up, cause))


def _is_held_up(cause: CallCause, facts: Facts, asked: Flags) -> Flags:
    groups, _ = facts.culprits(asked)
    held = groups >= 0
    held[held] = facts.culprit_calls.holds[groups[held]] == int(HostTask[cause.name.name])
    return held


def _held_up(cause: CallCause, facts: Facts, at: int) -> Answer:
    evidence = facts.alongside[at]
    ns, culprit = evidence.overlap_ns, evidence.calls[0]
    known = facts.known
    if known is not None and known.contains(facts.slow[at], cause.columns(culprit), culprit):
        return Answer(cause.name, Certainty.KNOWN, ns, evidence.changed(known_by=known.source))
    return Answer(cause.name, Certainty.BESIDE, ns, evidence)


def calls_in_flight(
    process: WatchedProcess, thread: WatchedThread, now_ns: int, outside: OutsideReading
) -> Iterator[CallInFlight]:
    """The calls in flight of ``thread`` at ``now_ns`` (CLOCK_MONOTONIC), the outermost first.

    Each has the calls of other threads beside which it has not returned.
    """
    for depth, call in enumerate(thread.in_flight):
        age_ns = max(now_ns - call.begin_ns, 0)
        beside = sorted(_beside(process, thread, call, age_ns, now_ns), key=lambda culprit: -culprit[1].duration_ns)
        yield CallInFlight(
            **(attributes(call, DriverCall) | {"thread_name": thread.name}),
            age_ns=age_ns,
            depth=depth,
            cause=beside[0][0] if beside else WaitCause.UNATTRIBUTED,
            beside=tuple(culprit for _, culprit in beside),
            stack=outside.stacks.get(call.key),
            kernel_wait=outside.kernel_waits.get(call.key, ""),
        )


def _beside(
    process: WatchedProcess, thread: WatchedThread, call: DriverCall, age_ns: int, now_ns: int
) -> Iterator[tuple[WaitCause, CallAlongside]]:
    """Calls in flight of other threads for which ``call`` may wait, once it is slow."""
    if age_ns < process.slow_limit_ns:
        return
    for other in process.threads:
        for culprit in other.in_flight[:1]:
            holds = function_of(culprit.function).holds(culprit.pageable)
            cause = cause_of_task(holds)
            overlap_ns = min(now_ns - culprit.begin_ns, age_ns)
            if other is thread or cause is None or overlap_ns < OVERLAP_SHARE * age_ns:
                continue
            if not may_hold_up(holds, culprit.context, call.context):
                continue
            if function_of(call.function).holds(True) and culprit.begin_ns > call.begin_ns:
                continue
            yield (
                cause,
                CallAlongside(
                    **(attributes(culprit, DriverCall) | {"thread_name": other.name}),
                    calls=1,
                    duration_ns=max(now_ns - culprit.begin_ns, 0),
                    overlap_ns=overlap_ns,
                ),
            )
