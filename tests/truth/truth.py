"""Truth of a program that ran a schedule: shares of its resources, and what the removal of each cause gains.

Both are of the run that is judged: the program wrote down its own clocks (trace). Shares are sums of recorded times;
gains are of the same operations replayed with a cause removed (``replay``). Where the replay with nothing removed takes
another time than the run, the truth is not known.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from truth.replay import GAP_NS, LATENCY_NS, PIPE, QUEUE, Replay, Row
from truth.schedules import MAIN, WAITS, Actor, Operation, Schedule

# Entry of a trace, as ``struct entry`` in program.c; times in ns.
ENTRY = np.dtype(
    [("operation", "<u4"), ("flags", "<u4"), ("begin", "<u8"), ("end", "<u8"), ("gpu_begin", "<u8"), ("gpu_end", "<u8")]
)
# ``flags`` of an entry from the calibration, in which each launch and copy runs alone.
CALIBRATION = 1
# Kinds of operations with recorded times on the GPU.
_TIMED = frozenset({"launch", "graph"})
# Operations that hand over an item or a lock, each with the operation that waits for it.
_GIVES = {"put": "get", "send": "receive", "unlock": "lock"}
# All operations of queues, pipes and locks.
_HANDS_OVER = frozenset({*_GIVES, *_GIVES.values()})
# Largest difference (share of the time) between a run and its replay with nothing removed; above it, the truth is not
# known.
MAX_REPLAY_ERROR = 0.05
# Smallest number of steps from which gains are computed.
MIN_STEPS = 8
# Longest time (ns) that a thread needs to wake up; the rest of a longer delay counts as a wait for a CPU.
MAX_WAKE_UP_NS = 60_000
# Limits of gains (0 to 1). SPECIFIC_GAIN: a broad cause is right only if every specific cause gains less. CLOSE_GAIN:
# largest distance from the largest gain at which a further cause is right too.
SPECIFIC_GAIN, CLOSE_GAIN = 0.15, 0.05
# Specific causes: each names one reason for lost time.
SPECIFIC = (
    "waits", "turns", "allocation", "locks", "input", "compiling", "loading", "own sleep", "CPUs", "copies", "gaps",
    "queued",
)  # fmt: skip
# Broad causes: the GPU's kernels, the host's work, and the part of this work that submits to the GPU.
SIDES = ("kernels", "host", "submission")
# Cause of the time in which a server has no request.
IDLE = "idle"
# Smallest share of idle time (0 to 1) at which only "idle" is right.
_IDLE_FIRST = 0.5
# Smallest share of the host's time in launches at which "submission" is right wherever "host" is: nearly half.
_SUBMITS = 0.45
# Time (ns) beyond twice its own duration from which a launch counts as one that waited for room in a queue.
_BLOCKED_NS = 200_000
# Kernel duration (ns) below which the time of several kernels of one launch is known only with the gaps between them.
SHORT_KERNEL_NS = 10_000
# Largest share of the time in copies of pageable memory at which the GPU's share is known: the GPU's part of such a
# copy is not recorded.
_MOST_PAGEABLE = 0.02


@dataclass(frozen=True)
class Trace:
    """What a program wrote down, by actor. ``begin_ns`` and ``end_ns`` are of its steady part; GPU times are on the
    host's clock."""

    begin_ns: int
    end_ns: int
    entries: tuple[np.ndarray[Any, Any], ...]
    threads: tuple[int, ...]
    run_delays_ns: tuple[int, ...]

    @classmethod
    def read(cls, path: Path, schedule: Schedule) -> Trace:
        """The trace in a file."""
        with path.open("rb") as file:
            header = json.loads(file.readline())
            entries = [np.fromfile(file, ENTRY, actor["entries"]) for actor in header["actors"]]
        for actor, rows in zip(schedule.actors, entries, strict=True):
            _map_clock(actor, rows, header["clocks"])
        threads, delays = zip(*((actor["thread"], actor["run_delay"]) for actor in header["actors"]), strict=True)
        return cls(header["begin"], header["end"], tuple(entries), threads, delays)


@dataclass(frozen=True)
class Truth:
    """Shares (0 to 1) of resources in a window, and the gain of each cause.

    ``shares``: "host" (in no wait for the GPU, idle time included; None where several threads submit), "gpu" (kernels
    with the gaps within launches and graphs, and copies; None where much of the time is copies of pageable memory, of
    which the program does not know how long the GPU works and how long the host copies into a buffer of the driver),
    "kernels" (without gaps; None where they are short), "copies" (beside no kernel), "submits" (of the host's time).
    ``idle`` is the share of idle
    time, the gains are of the other time. ``error``: of the replay; None where it cannot be told.
    """

    shares: Mapping[str, float | None]
    gains: Mapping[str, float]
    idle: float
    steps: int
    step_ns: float
    run_delay: float
    error: float | None

    @property
    def known(self) -> bool:
        """Whether the replay is the program's run."""
        return self.error is not None and abs(self.error) <= MAX_REPLAY_ERROR

    @property
    def bounds(self) -> tuple[str, ...]:
        """The causes that are right as a verdict."""
        return bounds_of(self.gains, self.idle, self.shares.get("submits") or 0.0)


def bounds_of(gains: Mapping[str, float], idle: float = 0.0, submits: float = 0.0) -> tuple[str, ...]:
    """The causes that are right as a verdict, by their gains: specific ones first, and where none of these gains
    SPECIFIC_GAIN, the sides, with specific ones that gain more than any side. The host may be called by what it does
    for ``submits`` of its time."""
    specific, side = (max(gains.get(cause, 0.0) for cause in group) for group in (SPECIFIC, SIDES))
    groups = [SPECIFIC] if specific >= SPECIFIC_GAIN else [SIDES, SPECIFIC] if specific > side else [SIDES]
    right = tuple(
        cause
        for group in groups
        for cause in group
        if gains.get(cause, 0.0) >= max(gains.get(other, 0.0) for other in group) - CLOSE_GAIN
    )
    if "host" in right and submits >= _SUBMITS and "submission" not in right:
        right = *right, "submission"
    return (IDLE,) if idle >= _IDLE_FIRST else right


def truth_of(schedule: Schedule, trace: Trace, window: tuple[int, int] | None = None) -> Truth:
    """The truth in a window of the steady part (ns of CLOCK_MONOTONIC)."""
    begin, end = window or (trace.begin_ns, trace.end_ns)
    recorded, finished = _recorded(schedule, trace)
    begin, end = max(begin, trace.begin_ns), min(end, max(trace.end_ns, *finished[-1:]))
    actors = [
        (_rows_of(*each, actor, not number), actor.role)
        for number, (actor, each) in enumerate(zip(schedule.actors, recorded, strict=True))
    ]
    times = np.array([entry.begin for entry in recorded[0][0] if entry.operation.kind == "step"])
    chosen = np.flatnonzero((times >= begin) & (times <= end))
    shares = _shares(schedule, recorded, begin, end, trace.end_ns)
    delay = trace.run_delays_ns[0] / max(trace.end_ns - trace.begin_ns, 1)
    if len(chosen) < MIN_STEPS:
        return Truth(shares, {}, 0.0, len(chosen), 0.0, delay, None)
    low, high = int(chosen[0]), int(chosen[-1])
    lasted = float(finished[high] - finished[low])

    def duration(*removed: str) -> float:
        steps = Replay(actors, removed).steps
        return steps[high] - steps[low] if len(steps) > high else float("nan")

    whole = duration()
    base = (IDLE,) if any(actor.role == "client" for actor in schedule.actors) else ()
    busy = duration(*base) if base else whole
    gains = {cause: max(1 - duration(cause, *base) / busy, 0.0) for cause in _possible(schedule)}
    step_ns = lasted / (high - low)
    if np.isnan([whole, busy, *gains.values()]).any():
        return Truth(shares, {}, 0.0, high - low, step_ns, delay, None)
    return Truth(shares, gains, 1 - busy / whole, high - low, step_ns, delay, whole / lasted - 1)


def _possible(schedule: Schedule) -> list[str]:
    """The causes that a schedule can have."""
    kinds = {operation.kind for actor in schedule.actors for operation in actor.operations}
    gpus = {operation[2] for actor in schedule.actors for operation in actor.operations if operation.kind == "await"}
    needs = {
        "waits": bool(kinds & {*WAITS, "copy", "callback"}), "turns": schedule.gpus > 1,
        "allocation": bool(kinds & {"pin", "allocate"}), "locks": "lock" in kinds,
        "input": any(actor.role == "feeds" for actor in schedule.actors), "compiling": "compile" in kinds,
        "loading": "load" in kinds, "own sleep": "sleep" in kinds, "copies": "copy" in kinds, "queued": bool(gpus),
    }  # fmt: skip
    return [cause for cause in (*SPECIFIC, *SIDES) if needs.get(cause, True)]


def _map_clock(actor: Actor, rows: np.ndarray[Any, Any], clocks: Sequence[Sequence[int]]) -> None:
    """Put the times of launches on the host's clock."""
    for number, operation in enumerate(actor.operations):
        if operation.kind not in _TIMED:
            continue
        host, gpu, host_end, gpu_end = clocks[operation[3]]
        rate = (host_end - host) / max(gpu_end - gpu, 1)
        chosen = (rows["operation"] == number) & (rows["gpu_end"] > 0)
        for name in ("gpu_begin", "gpu_end"):
            passed = rows[name][chosen].astype(np.int64) - gpu
            rows[name][chosen] = host + np.rint(passed * rate).astype(np.int64)


# Rows of the replay ---------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Entry:
    """A recorded operation: ``awaited_ns`` is when the work that it waits for ended, 0 where that is not known."""

    operation: Operation
    number: int
    begin: int
    end: int
    gpu_begin: int
    gpu_end: int
    awaited_ns: int = 0
    full: bool = False


@dataclass
class _Own:
    """Own times of an operation of an actor when it was alone."""

    submit_ns: int = 0
    gpu_ns: int = 0


def _recorded(schedule: Schedule, trace: Trace) -> tuple[list[tuple[list[_Entry], dict[int, _Own]]], list[int]]:
    """The entries of each actor's steady part, with what each waited for, and the own times of its operations; then
    when the work of each step was done."""
    calls: list[list[_Entry]] = []
    own = [_own_times(actor, rows) for actor, rows in zip(schedule.actors, trace.entries, strict=True)]
    for actor, rows in zip(schedule.actors, trace.entries, strict=True):
        steady = rows[(rows["flags"] != CALIBRATION) & (rows["begin"] > 0)]
        columns = [steady[name].tolist() for name in ("operation", "begin", "end", "gpu_begin", "gpu_end")]
        calls.append(
            [_Entry(actor.operations[number], number, *times) for number, *times in zip(*columns, strict=True)]
        )
    ends: dict[tuple[int, int], int] = {}
    events: dict[int, int] = {}
    launches: dict[tuple[int, int], _Launches] = {}
    finished, work_end = list[int](), 0
    callbacks: dict[int, int] = {}
    for begin, at, place in sorted(
        (entry.begin, at, place) for at, rows in enumerate(calls) for place, entry in enumerate(rows)
    ):
        entry = calls[at][place]
        operation, kind = entry.operation, entry.operation.kind
        if kind in _TIMED:
            stream = operation[3], operation[2]
            ends[stream] = max(entry.gpu_end, ends.get(stream, 0))
            queue = launches.setdefault(stream, _Launches())
            blocks = _blocks(entry, own[at], queue.ends[-1] if queue.ends else 0)
            queue.add(entry.gpu_begin, entry.gpu_end, operation[1] if kind == "launch" else 1)
            # No room for its kernels beside those that had not ended when it began.
            entry.full = queue.pending(begin) > QUEUE or blocks
        elif kind == "copy":
            stream = 0, operation[3]
            start = max(begin + LATENCY_NS, ends.get(stream, 0) + GAP_NS)
            # Of one that blocks, what is before it is awaited; of another one, it is when it begins.
            entry.awaited_ns = min(start, entry.end) if operation[2] else start
            ends[stream] = entry.end if operation[2] else start + own[at][entry.number].gpu_ns
        elif kind == "record":
            events[operation[0]] = ends.get((operation[2], operation[1]), 0)
        elif kind == "await":
            stream = operation[2], operation[1]
            ends[stream] = max(ends.get(stream, 0), events.get(operation[0], 0))
        elif kind in ("sync", "poll"):
            entry.awaited_ns = ends.get((operation[1], operation[0]), 0)
        elif kind == "sync_event":
            entry.awaited_ns = events.get(operation[0], 0)
        elif kind in ("sync_device", "free", "unpin", "load"):
            # On H200s, cuMemFreeHost, cuModuleLoadData and cuModuleUnload waited for kernels of all streams too.
            gpu = 0 if kind in ("unpin", "load") else operation[0]
            entry.awaited_ns = max((end for (at_gpu, _), end in ends.items() if at_gpu == gpu), default=0)
        elif kind == "spin":
            entry.awaited_ns = max(ends.values(), default=0)
        elif kind == "step" and not at:
            finished.append(max(begin, work_end))
        elif kind == "callback":
            callbacks[operation[0]] = ends.get((operation[2], operation[1]), begin)
        elif kind == "get" and operation[0] in callbacks:
            entry.awaited_ns = callbacks[operation[0]]
        if (kind in _TIMED or kind == "copy") and schedule.actors[at].role == MAIN:
            work_end = max(work_end, ends[stream])
    _find_items(calls)
    return list(zip(calls, own, strict=True)), finished


@dataclass
class _Launches:
    """The launches of a stream in order: when each begins and ends, and the number of all kernels until then."""

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0])

    def add(self, begin: int, end: int, count: int) -> None:
        """Add a launch."""
        self.begins.append(begin)
        self.ends.append(max(end, self.ends[-1] if self.ends else 0))
        self.counts.append(self.counts[-1] + count)

    def pending(self, now: int) -> float:
        """Kernels that had not ended at a time; those of one launch end one after the other."""
        at = bisect_right(self.ends, now)
        if at == len(self.ends):
            return 0.0
        begin, end, count = self.begins[at], self.ends[at], self.counts[at + 1] - self.counts[at]
        return self.counts[-1] - self.counts[at + 1] + count * min(1.0, (end - now) / max(end - begin, 1))


def _blocks(entry: _Entry, own: Mapping[int, _Own], before_ns: int) -> bool:
    """Whether a launch waited for room, which nodes of graphs and events take too: for as long, work was pending, until
    ``before_ns``."""
    alone = own[entry.number].submit_ns if entry.number in own else 0
    return entry.end - entry.begin > 2 * alone + _BLOCKED_NS and before_ns > entry.end


def _find_items(calls: Sequence[list[_Entry]]) -> None:
    """When what each operation of a queue, pipe or lock waited for was there: items go first in, first out."""
    named: dict[tuple[str, int], list[_Entry]] = {}
    for entry in (entry for rows in calls for entry in rows):
        named.setdefault((entry.operation.kind, entry.operation[0]), []).append(entry)
    for (kind, number), given in named.items():
        if kind not in _GIVES:
            continue
        given.sort(key=lambda entry: entry.end)
        taken = sorted(named.get((_GIVES[kind], number), ()), key=lambda entry: entry.end)
        limit = {"put": given[0].operation[1], "send": PIPE}.get(kind, 0)
        if kind == "unlock":
            begins = [entry.begin for entry in given]
            for entry in taken:
                entry.awaited_ns = begins[max(bisect_right(begins, entry.end) - 1, 0)]
            continue
        for at, entry in enumerate(given):
            room = at - limit
            entry.awaited_ns = taken[room].end if limit and 0 <= room < len(taken) else 0
            if at < len(taken):
                taken[at].awaited_ns = max(entry.begin, entry.awaited_ns)


def _own_times(actor: Actor, rows: np.ndarray[Any, Any]) -> dict[int, _Own]:
    found: dict[int, _Own] = {}
    alone = rows[rows["flags"] == CALIBRATION]
    for number in np.unique(alone["operation"]).tolist():
        each = alone[alone["operation"] == number]
        submit = int(np.median(each["end"] - each["begin"]))
        found[number] = _Own(submit, int(np.min(each["gpu_end"].astype(np.int64) - each["gpu_begin"].astype(np.int64))))
    return found


def _rows_of(entries: list[_Entry], own: Mapping[int, _Own], actor: Actor, first: bool) -> list[Row]:
    before = entries[0].begin if entries else 0
    if not first:  # Whole rounds: it may begin again.
        last = max(at for at, operation in enumerate(actor.operations) if operation.kind not in ("loop", "end"))
        rounds = [at for at, entry in enumerate(entries) if entry.number == last]
        entries = entries[: rounds[-1] + 1] if rounds else []
    rows = []
    for entry in entries:
        rows.append(_row(entry, own.get(entry.number, _Own()), max(entry.begin - before, 0)))
        before = entry.end
    return rows


def _row(entry: _Entry, own: _Own, gap_ns: int) -> Row:
    operation, took = entry.operation, entry.end - entry.begin
    # What passed after that for which it waited.
    after = max(entry.end - max(entry.begin, min(entry.awaited_ns, entry.end)), 0)
    kind = operation.kind
    if kind == "host":
        computed = min(entry.gpu_begin, took)
        return Row(operation, computed, gap_ns, took - computed)
    if kind in _TIMED:
        count, span = operation[1], entry.gpu_end - entry.gpu_begin
        whole = min(span, own.gpu_ns) if kind == "launch" and count > 1 and own.gpu_ns else span
        submit = min(took, own.submit_ns) if entry.full and own.submit_ns else took
        return Row(operation, submit, gap_ns, 0, whole, min(whole, operation[0] * count))
    if kind == "copy":
        copied = min(after, own.gpu_ns)
        # What it copies into a buffer of the driver, before it waits.
        submits = max(min(entry.gpu_begin - max(entry.begin, entry.awaited_ns), took), 0) if entry.gpu_begin else took
        own_ns = min(submits, own.submit_ns)
        return Row(operation, own_ns, gap_ns, after - copied, copied if operation[2] else own.gpu_ns)
    if kind in WAITS or kind in _HANDS_OVER:
        return Row(operation, min(after, MAX_WAKE_UP_NS), gap_ns, max(after - MAX_WAKE_UP_NS, 0))
    if kind in ("free", "unpin", "load"):
        return Row(operation, after, gap_ns)
    return Row(operation, took, gap_ns)


# Shares ---------------------------------------------------------------------------------------------------------------
def _shares(
    schedule: Schedule, recorded: Sequence[tuple[list[_Entry], dict[int, _Own]]], begin: int, end: int, last: int
) -> dict[str, float | None]:
    """The shares of the time from ``begin`` to ``end``, of which the program waits for its work from ``last`` on."""
    spans: dict[str, list[tuple[int, int]]] = {"kernels": [], "copies": [], "pageable": []}
    short, waited, submitting = False, max(end - max(last, begin), 0), 0
    of_program = [each for actor, each in zip(schedule.actors, recorded, strict=True) if actor.role == MAIN]
    for calls, own in of_program:
        for entry in calls:
            kind, operation = entry.operation.kind, entry.operation
            if kind in _TIMED and operation[3] == 0:
                span = entry.gpu_begin, entry.gpu_end
                if kind == "launch" and operation[1] > 1 and entry.number in own:
                    # What its kernels take at most; they begin as they are submitted.
                    span = max(span[0], span[1] - own[entry.number].gpu_ns), span[1]
                spans["kernels"].append(span)
                short |= operation[1] > 1 and operation[0] < SHORT_KERNEL_NS
            elif kind == "copy":
                ends = entry.end if operation[2] else entry.awaited_ns + own[entry.number].gpu_ns
                spans["copies"].append((ends - own[entry.number].gpu_ns, ends))
                if operation[2]:
                    spans["pageable"].append(spans["copies"][-1])
    for entry in recorded[0][0]:
        if entry.operation.kind in WAITS:
            waited += max(min(entry.end, end) - max(entry.begin, begin), 0)
        elif entry.operation.kind == "copy" and entry.operation[2]:
            waited += max(min(entry.awaited_ns, end) - max(entry.begin, begin), 0)
            submitted = max(entry.gpu_begin, entry.awaited_ns) if entry.gpu_begin else entry.end
            waited += max(min(entry.end, end) - max(submitted, begin), 0)
        elif entry.operation.kind in _TIMED:
            took, alone = max(min(entry.end, end) - max(entry.begin, begin), 0), recorded[0][1].get(entry.number)
            waits = max(took - alone.submit_ns, 0) if entry.full and alone else 0
            waited += waits
            submitting += took - waits
    whole = max(end - begin, 1)
    kernels, both = _covered(spans["kernels"], begin, end), _covered([*spans["kernels"], *spans["copies"]], begin, end)
    several = sum(actor.submits for actor in schedule.actors if actor.role == MAIN) > 1
    from_gpu = any(operation.kind == "callback" for operation in schedule.actors[0].operations)
    return {
        "host": None if several or from_gpu else 1 - waited / whole,
        "gpu": both / whole if _covered(spans["pageable"], begin, end) <= _MOST_PAGEABLE * whole else None,
        "kernels": None if short else kernels / whole,
        "copies": (both - kernels) / whole,
        "submits": submitting / max(whole - waited, 1),
    }


def _covered(spans: list[tuple[int, int]], begin: int, end: int) -> int:
    """Time between two instants that intervals cover."""
    covered, until = 0, begin
    for low, high in sorted(spans):
        low, high = max(low, until), min(high, end)
        if high > low:
            covered += high - low
            until = high
    return covered
