"""Causes that lie on the GPU: work in front of a call, time-slices of others, a full launch queue, a held stream."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from stallprobes.native.layouts.driver_calls import CallFamily, Waits, plain_name
from stallprobes.units import duration_ns
from stallprobes.watch.attribution.evidence_text import MOST_NAMED, alongside_text
from stallprobes.watch.attribution.findings import CallAlongside, ExplainedCall, PartOfWait, WaitEvidence
from stallprobes.watch.attribution.gpu_waits import DIRECT_SHARE, OVERLAP_SHARE, SAME_END_NS, WAKE_UP_NS
from stallprobes.watch.attribution.wait_cause import CAUSE_RANKS, Certainty, WaitCause
from stallprobes.watch.causes.cause import Answer, CallCause, Rule, of_pattern
from stallprobes.watch.causes.facts import MOST_FOLLOWED, Facts, Flags, flags
from stallprobes.watch.causes.own_durations import is_usual
from stallprobes.watch.intervals import Int64s, int64s

# Smallest number of calls from the submission of GPU work to a launch at which the launch queue may have been full. A
# launch that returns when the work ends then counts as waiting for a place in the queue. Reason: the queue holds some
# 1020 launches (H200, driver 580).
MIN_PENDING = 900
# Number of pieces of GPU work that are searched for the piece whose end freed a place in the launch queue. The searched
# pieces are the last that ended before the waiting launch returned, or at most SAME_END_NS later.
_LAST_ROWS = 4


def _named_users(call: ExplainedCall) -> Iterator[str]:
    """The contexts that had the graphics engine, in words."""
    for use in call.evidence.engine[:MOST_NAMED]:
        who = use.process or ("another process" if use.context is None else f"context {use.context}")
        yield f"{who} had the graphics engine for {duration_ns(use.ns)}"


def _named_holder(call: ExplainedCall) -> Iterator[str]:
    """The call that holds the stream, and for how long nothing ran, in words."""
    for holder in call.evidence.calls[:1]:
        yield f"{alongside_text(holder)}, {duration_ns(max(call.begin_ns - holder.begin_ns, 0))} before"
    yield f"no work of its context ran for {duration_ns(call.evidence.overlap_ns)}"


# Last sentence of two remedies for calls that wait for GPU work in front of them.
_WAIT_LATER = "Nothing but less work makes the wait itself shorter."
# Causes of slow calls that lie on the GPU.
CAUSES = (
    CallCause(
        WaitCause.GPU_WORK,
        "GPU work",
        "Wait later: submit the next work first, free with cuMemFreeAsync, and keep a value that only the next "
        f"kernel needs on the GPU. {_WAIT_LATER}",
        pattern="scalar-readback",
        by_family={
            CallFamily.WAIT: "Submit the next work before this wait, or wait for several steps at once: the GPU then "
            f"works while the host does. {_WAIT_LATER}",
            CallFamily.ALLOCATION: "Free with cuMemFreeAsync, which waits for nothing, or keep and reuse the memory.",
            CallFamily.HOST_MEMORY: "Keep the host memory and use it again, or free it where the GPU has no work.",
            CallFamily.CONTEXT: "Destroy the context where the GPU has no work.",
            CallFamily.MODULE: "Unload the module where the GPU has no work.",
        },
    ),
    CallCause(
        WaitCause.STAGED_COPY,
        "staged peer copy",
        of_pattern("peer-copy-behind-kernel"),
        pattern="peer-copy-behind-kernel",
    ),
    CallCause(
        WaitCause.OWN_WORK,
        "its own GPU work",
        "Copy into pinned memory with an asynchronous call, and wait once, where the result is needed.",
        pattern="scalar-readback",
    ),
    CallCause(
        WaitCause.OTHER_CONTEXT,
        "another context's time-slice",
        of_pattern("secondary-context-d2d"),
        pattern="secondary-context-d2d",
        evidence=_named_users,
    ),
    CallCause(
        WaitCause.OTHER_PROCESS,
        "another process's time-slice",
        "Run one process on each GPU, or share it through MPS.",
        evidence=_named_users,
    ),
    CallCause(
        WaitCause.HELD_STREAM,
        "held stream",
        "Let what holds the stream end sooner, or wait for it later. A copy in pinned memory on a stream of its "
        "own does not block meanwhile.",
        pattern="default-stream-gate",
        evidence=_named_holder,
    ),
)


def gpu_wait(cause: WaitCause) -> Rule:
    """Waits for the GPU cover at least half of a call's excess, and those of ``cause`` most of it."""
    return Rule(lambda facts, asked: flags(facts.gpu_cause == CAUSE_RANKS[cause]), _gpu_wait)


def _gpu_wait(facts: Facts, at: int) -> Answer:
    first, *others = _parts(facts, at)
    return Answer(first.cause, Certainty.PROVEN, first.ns, facts.evidence.gpu(at), tuple(others))


def _parts(facts: Facts, at: int) -> list[PartOfWait]:
    """The parts of a wait, the longest first; together at most the excess."""
    waits = facts.waits
    front = WaitCause.STAGED_COPY if at in waits.by_staging else WaitCause.GPU_WORK
    times = [
        (front, int(waits.front[at])),
        (WaitCause.OWN_WORK, int(waits.own[at])),
        (WaitCause.OTHER_CONTEXT, int(waits.context[at])),
        (WaitCause.OTHER_PROCESS, int(waits.process[at])),
    ]
    left, parts = facts.excess[at], []
    # The first cause of equal times wins.
    for cause, ns in sorted(times, key=lambda time: -time[1]):
        ns = min(ns, left)
        left -= ns
        if ns:
            parts.append(PartOfWait(cause, ns))
    return parts


def _follows(facts: Facts, asked: Flags) -> Flags:
    """Work of other streams covers most of the call; by the calls that order streams it waits for that."""
    waits = facts.calls.waits
    follows = asked & np.isin(waits, (Waits.EVENT, Waits.STREAM, Waits.COPY)) & (facts.recorded.order is not None)
    places = np.flatnonzero(follows)
    follows[places[MOST_FOLLOWED:]] = False
    for at in places[:MOST_FOLLOWED].tolist():
        _, covered = facts.work_behind(at) if facts.behind(at).scopes else ((), 0)
        follows[at] = covered >= DIRECT_SHARE * facts.excess[at]
    return follows


def _followed(facts: Facts, at: int) -> Answer:
    rows, covered = facts.work_behind(at)
    return Answer(WaitCause.GPU_WORK, Certainty.PROVEN, covered, facts.evidence.behind(at, rows, covered))


# Rule: the call waits for work of other streams, as earlier calls (records of events, waits for events, …) show.
FOLLOWED = Rule(_follows, _followed)


def _waits_for_neighbour(facts: Facts, asked: Flags) -> Flags:
    """Work of one stream alone ends with a call that waits for an event, and covers most of it."""
    return flags((facts.calls.waits == Waits.EVENT) & (facts.near(asked).count == 1))


def _ends_with_neighbour(facts: Facts, asked: Flags) -> Flags:
    """Work of a stream ends with the call and covers most of it."""
    return facts.near(asked).count > 0


def _neighbour(certainty: Certainty, facts: Facts, at: int) -> Answer:
    near = facts.near(facts.nothing)
    return Answer(WaitCause.GPU_WORK, certainty, int(near.covered[at]), facts.evidence.neighbour(at, near))


# Rule: the call waits for an event, and work of exactly one stream ends at the same time as the call. The work must
# cover most of the call. The rule counts as a proof.
EVENT_OF_NEIGHBOUR = Rule(_waits_for_neighbour, partial(_neighbour, Certainty.PROVEN))
# Rule: work of a stream ends when the call ends, or when the call's own work starts, and covers most of the call until
# then. This does not prove that the call waited for the work.
NEIGHBOUR = Rule(_ends_with_neighbour, partial(_neighbour, Certainty.BESIDE))


def _destroys(facts: Facts, asked: Flags) -> Flags:
    """A context is destroyed while work of another one runs nearly all the time: it waits for that.

    Seen on H200s and H100s: ``cuCtxDestroy`` took 50 ms, and 2.5 s beside a kernel of so long in another context.
    """
    waits = flags(asked & (facts.calls.waits == Waits.MAYBE))
    for at in np.flatnonzero(waits).tolist():
        call = facts.slow[at]
        destroys = plain_name(call.function).startswith("cuCtxDestroy")
        usual = destroys and is_usual(call.function, call.bytes, call.duration_ns)
        waits[at] = destroys and not usual and _of_others(facts, at)[1] >= OVERLAP_SHARE * facts.excess[at]
    return waits


def _destroyed(facts: Facts, at: int) -> Answer:
    rows, ns = _of_others(facts, at)
    return Answer(WaitCause.GPU_WORK, Certainty.KNOWN, ns, facts.evidence.behind(at, rows, ns))


# Rule: the call destroys a context while work of another context runs.
DESTRUCTION = Rule(_destroys, _destroyed)


def _of_others(facts: Facts, at: int) -> tuple[Int64s, int]:
    """The rows of work of other contexts during a call, and the time (ns) of the call that it covers."""
    calls, work = facts.calls, facts.work
    begin, end = calls.begins[at : at + 1], calls.ends[at : at + 1]
    others = int64s(work.rows["context"]) != calls.contexts[at]
    rows = np.flatnonzero(others & (work.starts < end) & (work.ends > begin))
    return rows, int(work.covered(rows, begin, end)[0])


def _has_many_in_front(facts: Facts, asked: Flags) -> Flags:
    """A launch ends with work behind which as many calls follow as fill the launch queue.

    CUPTI 13.5 has overhead records of the first seven hundred such waits alone (H100, 2026-11-26).
    """
    calls, full = facts.calls, facts.nothing
    launches = calls.by_function(lambda function: int(function.family is CallFamily.LAUNCH)) != 0
    places = np.flatnonzero(asked & launches)
    places = places[(_ended_with(facts, places) >= 0)]
    full[places] = _covered(facts, places) >= OVERLAP_SHARE * calls.excess[places]
    return full


def _many_in_front(facts: Facts, at: int) -> Answer:
    place = int64s([at])
    ns = int(_covered(facts, place)[0])
    work = facts.evidence.behind(at, _ended_with(facts, place), ns).work
    return Answer(WaitCause.QUEUE_FULL, Certainty.KNOWN, ns, WaitEvidence(ns, work))


# Rule: a launch waits for a place in the full launch queue.
MANY_IN_FRONT = Rule(_has_many_in_front, _many_in_front)


def _ended_with(facts: Facts, places: Int64s) -> Int64s:
    """For each call the row of work of its context that ended with it and has many calls behind it; -1 without any."""
    calls, work, by_end = facts.calls, facts.work, facts.by_end
    rows = np.full(len(places), -1, dtype=np.int64)
    if not len(by_end):
        return rows
    ends, contexts = work.ends[by_end], int64s(work.rows["context"])[by_end]
    orders = work.orders[by_end]
    last = np.searchsorted(ends, calls.ends[places] + SAME_END_NS, "right")
    limits = calls.order_of(calls.correlations[places]) - MIN_PENDING
    for back in range(1, _LAST_ROWS + 1):
        at = np.maximum(last - back, 0)
        fits = (last >= back) & (ends[at] >= calls.ends[places] - WAKE_UP_NS) & (orders[at] <= limits)
        fits &= (contexts[at] == calls.contexts[places]) & (rows < 0)
        rows[fits] = by_end[at[fits]]
    return rows


def _covered(facts: Facts, places: Int64s) -> Int64s:
    """Time (ns) of each call in which its context worked."""
    calls, work = facts.calls, facts.work
    numbers = int64s([work.context_numbers.get(context, -1) for context in calls.contexts[places].tolist()])
    return work.by_context.covered(numbers, calls.begins[places], calls.ends[places])


def _is_held(facts: Facts, asked: Flags) -> Flags:
    """The stream of a call waits for an event or a host function, which are no work of the GPU."""
    return flags(facts.held(asked) != 0)


def _held(facts: Facts, at: int) -> Answer:
    ns, behind = int(facts.held(facts.nothing)[at]), facts.behind(at)
    if not behind.holders:
        return Answer(WaitCause.HELD_STREAM, Certainty.BESIDE, ns, WaitEvidence(ns))
    row, function = behind.holders[0], behind.functions[0]
    holder = CallAlongside(
        function=function,
        thread=int(row["thread"]),
        thread_name=facts.recorded.thread_names.get(int(row["thread"]), ""),
        begin_ns=int(row["began_ns"]),
        stream=int(row["stream"]),
        bytes=None,
        source=None,
        target=None,
        context=int(row["context"]),
        correlation=int(row["correlation"]),
        calls=1,
        duration_ns=int(row["returned_ns"] - row["began_ns"]),
        overlap_ns=0,
    )
    return Answer(WaitCause.HELD_STREAM, Certainty.KNOWN, ns, WaitEvidence(ns, calls=(holder,)))


# Rule: the call's stream waits for an event or a host function while no GPU work of the context runs.
HELD_STREAM = Rule(_is_held, _held)
