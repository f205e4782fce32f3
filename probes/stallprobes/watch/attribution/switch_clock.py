"""Context switches on the host's clock; CUPTI reports them on the GPU's own clock.

The GPU's clock is near CLOCK_REALTIME: 0.06 and 3 ms from it on H200s, 0.34 and 1.5 ms on H100s. No work starts or ends
while another context has the engine, and the engine is given to contexts with work: few offsets near that clock are
left (``near_offset``). Where none fits, the clock may have been set since. Work that waited for its context starts a
constant time after the switch to it, so switches and starts of work show an offset anywhere (``find_offset``). Switches
at regular times agree with several offsets. Nothing is placed without an offset, or if another one agrees with nearly
as many switches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallprobes.native.layouts.cupti import SwitchOperation
from stallprobes.watch.division.recorded_times import Tenures
from stallprobes.watch.intervals import NONE, Int64s, distinct

# Time (ns) from a context switch of the GPU to the start of the work that waited for the switch, measured on an
# H200.
SWITCH_TO_WORK_NS = 3_840
# Largest error (ns) of CUPTI's conversion of the times of GPU work to the host's clock. Times, and offsets of the
# clocks, count as equal if they differ by at most this error.
MOST_SPREAD_NS = 8_000
# Largest drift (parts per million) between the GPU's clock and the host's clock. Limits for the clock offset grow by
# this drift over time.
DRIFT_PER_MILLION = 50
# Largest distance (ns) between a start of work and the time that the last known clock offset predicts for this start.
# The possible drift since the offset was confirmed is added to this limit. A start at a larger distance is ignored.
ERROR_NS = 30_000
# Upper limit (ns) of the sum of ERROR_NS and the possible drift.
MOST_ERROR_NS = 1_000_000
# Smallest number of observations in several tests of a clock offset. With fewer observations, the offset is not
# accepted. Observations are context switches, starts of work, pairs of both, or differences of lags (times from a
# switch to its work).
LEAST_SAMPLES = 16
# Largest number of the latest switches to a context for an estimate of the GPU clock's offset without a known earlier
# offset.
COMPARED = 128
# Largest number of the latest starts of work for an estimate of the GPU clock's offset without a known earlier offset.
COMPARED_STARTS = 2_048
# Largest number of the latest pieces of work for an estimate of the GPU clock's offset near an expected offset.
COMPARED_NEAR = 8_192
# Smallest number of context switches that an examined candidate clock offset matches, as a share of the best
# candidate's number. Candidates with fewer matches are ignored.
LEAST_RIVAL = 0.25
# Largest number of candidate clock offsets that are examined.
MOST_RIVALS = 64
# Number of matching context switches above which a clock offset is a rival, as a share of the best candidate's number.
# Among the best candidate and its rivals, the offset with the least variation of lags (times from a switch to its work)
# is chosen.
MOST_RIVAL = 0.75
# Smallest share of the starts of work at which the work's own context must have the GPU. A clock offset with a smaller
# share is rejected. In the search near an expected offset, ends of work count too. The limit is below 1, since the
# records of context switches may have gaps.
LEAST_CONSISTENT = 0.95
# Number of consecutive context switches in a group. Each group confirms or corrects the known offset between the clocks
# of GPU and host.
SWITCHES_OF_GROUP = 32
# Smallest number of context switches in a group of SWITCHES_OF_GROUP that must match a start of work. A group with
# fewer matches leaves the clock offset unchanged.
LEAST_OF_GROUP = 8
# Longest time (ns) for which a clock offset is used after its last confirmation.
VALID_NS = 20_000_000_000
# Shortest pause (ns) in a context's work after which the next piece of work may have waited for a context switch. The
# limit holds if no other context has work in the pause. After a shorter pause, the context may still have the GPU.
IDLE_NS = 50_000
# Largest distance (ns) between the GPU's clock and CLOCK_REALTIME at which clock offsets are searched.
NEAR_NS = 10_000_000
# Longest time (ns) from a context switch until its record is read. Work within this time before the newest record
# is not compared with switches yet.
DELIVERED_NS = 500_000_000
# Smallest number of context switches, and of pieces of work, from which a clock offset near an expected value is
# estimated.
LEAST_FITTING = 8
# Largest distance (ns) between neighbours in a span of possible clock offsets, and largest width (ns) of the span.
# Neighbours at a larger distance belong to different spans. If any span is wider, the offset is too uncertain, and no
# offset is chosen.
WIDEST_NS = 200_000
# Smallest difference (number of begins and ends of work) from the best clock offset at which an offset is impossible.
# With the best offset, most begins and ends of work fit the context switches. The larger of LEAST_WORSE and the limit
# by LEAST_WORSE_SHARE holds.
LEAST_WORSE = 3
# Smallest difference (see LEAST_WORSE) from the best clock offset at which an offset is impossible, as a share of all
# begins and ends of work.
LEAST_WORSE_SHARE = 0.001
# Smallest factor by which the times from context switches to their work must vary more with the second best clock
# offset than with the best. With a smaller factor, this comparison chooses no offset. Measured variation (two processes
# on an H200, switches every 1.66 ms): 20 to 50 ns with the right offset, 850 to 1000 ns with an offset that is wrong by
# a period.
MORE_EVEN = 4
# Largest number of pieces of work with which a clock offset may be chosen by the number of idle turns, in which a
# context has the GPU but runs no work. If several offsets fit equally well, the offset with the fewest idle turns is
# chosen. Reason for the limit: with more work, some turns are idle by chance.
MOST_WITH_IDLE = 128
# Time (ns) beyond all other times. The value stands for the unknown end or begin of a context's time on the GPU.
_NEVER = 2**61
# Number of the operation of a switch with which a context gets the GPU.
_START = int(SwitchOperation.START)


@dataclass(frozen=True)
class ClockOffset:
    """The GPU's clock less the host's, as found at a time on the GPU's clock."""

    offset_ns: int
    gpu_ns: int


def waiting_starts(contexts: Int64s, starts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Contexts and starts of the work that may have waited for a switch: behind work of another context, or behind a
    pause of its own. All work on the graphics engine, in order of starts."""
    if not len(starts):
        return NONE, NONE
    chosen = np.concatenate(([True], contexts[1:] != contexts[:-1]))
    every = distinct(contexts).tolist()
    for context in every:
        mine = slice(None) if len(every) == 1 else np.flatnonzero(contexts == context)
        its_starts, before = starts[mine], np.maximum.accumulate(ends[mine])
        chosen[mine] |= np.append(False, its_starts[1:] - before[:-1] >= IDLE_NS)
    return contexts[chosen], starts[chosen]


def find_offset(
    contexts: Int64s, operations: Int64s, gpu_ns: Int64s, work: Int64s, starts: Int64s
) -> ClockOffset | None:
    """Offset that the last switches show without an earlier one; None if they show none, or several.

    ``contexts``, ``operations`` and ``gpu_ns`` are those of the switches in order of time; ``work`` the contexts of
    waiting work, with its ``starts``.
    """
    to = np.flatnonzero(operations == _START)[-COMPARED:]
    switched, switched_to = gpu_ns[to], contexts[to]
    work, starts = work[-COMPARED_STARTS:], starts[-COMPARED_STARTS:]
    if len(switched) < LEAST_SAMPLES:
        return None
    pairs = switched_to[:, None] == work[None, :]
    differences = np.sort((switched[:, None] + SWITCH_TO_WORK_NS - starts[None, :])[pairs])
    if len(differences) < LEAST_SAMPLES:
        return None
    width = MOST_SPREAD_NS + int(switched[-1] - switched[0]) * DRIFT_PER_MILLION // 4_000_000
    counts = np.searchsorted(differences, differences + width, "right") - np.arange(len(differences))
    least = max(LEAST_SAMPLES, LEAST_RIVAL * int(counts.max()))
    later = slice(int(to[0]), None)
    switches = contexts[later], operations[later], gpu_ns[later]
    offsets = []
    for _ in range(MOST_RIVALS):
        best = int(np.argmax(counts))
        if counts[best] < least:
            break
        offset = int(np.median(differences[best : best + int(counts[best])]))
        if _agrees(switches, work, starts + offset):
            offsets.append((int(counts[best]), offset))
        counts[np.abs(differences - differences[best]) <= 2 * width] = 0
    if not offsets:
        return None
    rivals = [offset for count, offset in offsets if count > MOST_RIVAL * offsets[0][0]]
    chosen = _most_even(rivals, (switched_to, switched), (work, starts))
    return None if chosen is None else ClockOffset(chosen, int(switched[len(switched) // 2]))


def near_offset(
    switches: tuple[Int64s, Int64s, Int64s], work: tuple[Int64s, Int64s, Int64s], expected_ns: int
) -> ClockOffset | None:
    """Offset near ``expected_ns`` with which all work begins and ends in tenures of its context.

    ``switches`` are their contexts, operations and times in order, ``work`` contexts, starts and ends. None if too
    little work shows it, or several offsets fit.
    """
    contexts, operations, gpu_ns = switches
    to = np.flatnonzero(operations == _START)
    if len(to) < LEAST_FITTING:
        return None
    # The last tenure lasts; who had the engine before the first one is not known.
    owners, begins = contexts[to], gpu_ns[to] - expected_ns
    stops = np.append(gpu_ns, _NEVER + expected_ns)[to + 1] - expected_ns
    latest_ns = max(int(work[2].max(initial=0)), int(gpu_ns[-1]) - expected_ns)
    inside = (work[1] > begins[0]) & (work[2] < latest_ns - DELIVERED_NS)
    mine, starts, ends = (column[inside][-COMPARED_NEAR:] for column in work)
    if len(mine) < LEAST_FITTING:
        return None
    lows, highs = [], []
    for owner in np.unique(mine).tolist():
        its = owners == owner
        first_ns = np.append(-_NEVER, begins[its] - MOST_SPREAD_NS)
        last_ns = np.append(begins[0], stops[its]) + MOST_SPREAD_NS
        # A time fits once.
        apart = np.flatnonzero(np.append(True, first_ns[1:] > last_ns[:-1]))
        first_ns, last_ns = first_ns[apart], last_ns[np.append(apart[1:], len(last_ns)) - 1]
        for times in (starts[mine == owner], ends[mine == owner]):
            first = np.searchsorted(last_ns, times - NEAR_NS)
            count = np.searchsorted(first_ns, times + NEAR_NS) - first
            at = np.repeat(np.arange(len(times)), count)
            place = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
            lows.append(first_ns[place] - times[at])
            highs.append(last_ns[place] - times[at])
    spans = _fitting(np.concatenate(lows), np.concatenate(highs), 2 * len(mine))
    offsets = [_within_span(*span) for span in spans if span[1] - span[0] <= WIDEST_NS]
    if len(offsets) < len(spans) or not offsets:
        return None
    chosen = _most_even(offsets, (owners, begins), waiting_starts(mine, starts, ends))
    if chosen is None and len(mine) <= MOST_WITH_IDLE:
        idle = [_idle_tenures((owners, begins - offset, stops - offset), (mine, starts, ends)) for offset in offsets]
        chosen = offsets[idle.index(min(idle))] if idle.count(min(idle)) == 1 else None
    return None if chosen is None else ClockOffset(expected_ns + chosen, int(gpu_ns[to[len(to) // 2]]))


def _most_even(offsets: Sequence[int], switched: tuple[Int64s, Int64s], work: tuple[Int64s, Int64s]) -> int | None:
    """Offset with which the lag of work behind its switch varies least; None if another one is nearly as even.

    ``switched`` are contexts that got the engine, and when; ``work`` contexts and starts of waiting work, in order.
    """
    if len(offsets) == 1:
        return offsets[0]
    spreads = []
    for offset in offsets:
        changes = []
        for context in np.unique(work[0]).tolist():
            switches, starts = switched[1][switched[0] == context], work[1][work[0] == context] + offset
            # CUPTI's conversion of a start may be off, to before the switch.
            at = np.searchsorted(switches, starts + MOST_SPREAD_NS, "right") - 1
            lags, at = (starts - switches[np.maximum(at, 0)])[at >= 0], at[at >= 0]
            changes.append(np.abs(np.diff(lags))[np.diff(at) == 1])
        differences = np.concatenate(changes) if changes else NONE
        spreads.append(float(np.median(differences)) if len(differences) >= LEAST_SAMPLES else np.inf)
    best, second = np.argsort(spreads)[:2].tolist()
    comparable = spreads[second] < np.inf
    return offsets[best] if comparable and spreads[best] * MORE_EVEN <= spreads[second] else None


def _within_span(low: int, high: int) -> int:
    """The offset in a span of offsets that fit: work that waited starts a constant time after its switch."""
    return min(low + MOST_SPREAD_NS + SWITCH_TO_WORK_NS, (low + high) // 2)


def _idle_tenures(tenures: tuple[Int64s, Int64s, Int64s], work: tuple[Int64s, Int64s, Int64s]) -> int:
    """Number of tenures (contexts, begins, ends) in which no work of their context runs, although some ran before."""
    count = 0
    for owner in np.unique(work[0]).tolist():
        begins, ends = (column[tenures[0] == owner] for column in tenures[1:])
        starts, until = (column[work[0] == owner] for column in work[1:])
        later = begins > int(starts.min()) + MOST_SPREAD_NS
        begins, ends = begins[later] - MOST_SPREAD_NS, ends[later] + MOST_SPREAD_NS
        # A piece of work runs in a tenure if it begins before its end and has not ended before its begin.
        begun = np.searchsorted(starts, ends)
        ended = np.searchsorted(np.sort(until), begins)
        count += int(np.count_nonzero(begun <= ended))
    return count


def _fitting(lows: Int64s, highs: Int64s, times: int) -> list[tuple[int, int]]:
    """Spans of offsets that lie in nearly as many of the spans from ``lows`` to ``highs`` as the best.

    ``times`` is the number of times of work; each has a span for every tenure. Empty if no offset lies in enough.
    """
    order = np.argsort(np.concatenate((lows, highs)), kind="stable")
    at = np.concatenate((lows, highs))[order]
    counts = np.cumsum(np.where(order < len(lows), 1, -1))
    best = int(counts.max(initial=0))
    if best < LEAST_CONSISTENT * times:
        return []
    good = np.flatnonzero(counts > best - max(LEAST_WORSE, LEAST_WORSE_SHARE * times))
    # Neighbours are one: the best of them counts.
    apart = np.flatnonzero(np.diff(at[good]) > WIDEST_NS) + 1
    spans = []
    for group in np.split(good, apart):
        chosen = group[counts[group] == counts[group].max()]
        spans.append((int(at[chosen[0]]), int(at[min(chosen[-1] + 1, len(at) - 1)])))
    return spans


def _agrees(switches: tuple[Int64s, Int64s, Int64s], contexts: Int64s, starts: Int64s) -> bool:
    """True if work of ``contexts`` may have started at ``starts``, as far as these are among the ``switches``
    (contexts, operations and times, in order): the contexts had the engine then."""
    owners, times = np.where(switches[1] == _START, switches[0], -1), switches[2]
    inside = (starts >= times[0]) & (starts <= times[-1])
    contexts, starts = contexts[inside], starts[inside]
    # CUPTI's conversion of a start may be off, to before the switch.
    right = np.zeros(len(starts), dtype=np.bool_)
    for at in (starts, starts + MOST_SPREAD_NS):
        right |= owners[np.searchsorted(times, at, "right") - 1] == contexts
    return bool(len(starts) >= LEAST_SAMPLES and np.count_nonzero(right) >= LEAST_CONSISTENT * len(starts))


def _sample(switched: Int64s, contexts: Int64s, starts_of: dict[int, Int64s], offset: int, allowed: int) -> int | None:
    """Offset that some switches show near ``offset``; None if too few do, or they disagree."""
    errors_of_contexts = []
    for context in np.unique(contexts).tolist():
        starts = starts_of.get(context)
        if starts is None:
            continue
        expected = switched[contexts == context] - offset + SWITCH_TO_WORK_NS
        places = np.searchsorted(starts, expected)
        left, right = starts[np.maximum(places - 1, 0)], starts[np.minimum(places, len(starts) - 1)]
        nearest = np.where(np.abs(expected - left) <= np.abs(right - expected), left, right)
        errors = expected - nearest
        errors_of_contexts.append(errors[np.abs(errors) <= allowed])
    errors = np.concatenate(errors_of_contexts) if errors_of_contexts else NONE
    if len(errors) < LEAST_OF_GROUP:
        return None
    low, middle, high = np.percentile(errors, (25, 50, 75))
    return None if high - low > MOST_SPREAD_NS else offset + int(middle)


def follow(
    known: ClockOffset, switched: Int64s, contexts: Int64s, work: Int64s, starts: Int64s
) -> tuple[ClockOffset, ...]:
    """Offsets that are valid for the switches at ``switched``, in order of time, beginning with ``known``.

    Each group of switches confirms the offset or moves it.
    """
    starts_of = {int(context): starts[work == context] for context in np.unique(work).tolist()}
    offsets = [known]
    for first in range(0, len(switched), SWITCHES_OF_GROUP):
        part = slice(first, first + SWITCHES_OF_GROUP)
        at = int(switched[part][0])
        allowed = min(ERROR_NS + abs(at - known.gpu_ns) * DRIFT_PER_MILLION // 1_000_000, MOST_ERROR_NS)
        offset = _sample(switched[part], contexts[part], starts_of, known.offset_ns, allowed)
        if offset is not None:
            known = ClockOffset(offset, at)
            offsets.append(known)
    return tuple(sorted(offsets, key=lambda entry: entry.gpu_ns))


def tenures_of(
    contexts: Int64s,
    operations: Int64s,
    gpu_ns: Int64s,
    work: tuple[Int64s, Int64s, Int64s],
    known: ClockOffset | None,
    expected_ns: int | None,
) -> tuple[Tenures, ClockOffset | None]:
    """The tenures by switches of one GPU, and the last offset of its clock, which the next call takes as ``known``.

    ``work`` are contexts, starts and ends of all work on the graphics engine in order of starts. ``expected_ns`` is
    CLOCK_REALTIME less CLOCK_MONOTONIC, None if that is not known.
    """
    waiting, starts = waiting_starts(*work)
    order = np.argsort(gpu_ns, kind="stable")
    contexts, operations, gpu_ns = contexts[order], operations[order], gpu_ns[order]
    to = operations == _START
    switched, switched_to = gpu_ns[to], contexts[to]
    if known is not None and len(switched) and abs(int(switched[-1]) - known.gpu_ns) > VALID_NS:
        known = None
    if known is None and expected_ns is not None:
        known = near_offset((contexts, operations, gpu_ns), work, expected_ns)
    if known is None:
        known = find_offset(contexts, operations, gpu_ns, waiting, starts)
    if known is None or not len(switched):
        return Tenures(NONE, NONE, NONE, np.zeros(0, dtype=np.bool_), len(gpu_ns)), known
    offsets = follow(known, switched, switched_to, waiting, starts)
    times = np.array([entry.gpu_ns for entry in offsets], dtype=np.int64)
    values = np.array([entry.offset_ns for entry in offsets], dtype=np.int64)
    places = np.maximum(np.searchsorted(times, gpu_ns, "right") - 1, 0)
    valid = np.abs(gpu_ns - times[places]) <= VALID_NS
    host_ns = gpu_ns - values[places]
    # A tenure lasts until the next event; the last one is not over.
    begins = np.flatnonzero(to[:-1] & valid[:-1] & valid[1:])
    joined = np.zeros(len(begins), dtype=np.bool_)
    joined[1:] = np.diff(begins) <= 2
    placed = Tenures(contexts[begins], host_ns[begins], host_ns[begins + 1], joined, int(np.count_nonzero(~valid)))
    return placed, offsets[-1]
