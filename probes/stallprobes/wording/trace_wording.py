"""Wording that pictures of a trace share: title, time axis, and what is said of the selected call."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stallprobes.model import KIB, MIB
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.records.rows import Rows
from stallprobes.traces import labels, ranking
from stallprobes.traces.delay import Delay, calls_beside, cause_text, delay_of, delay_text
from stallprobes.traces.rows import TraceRow, rows_of
from stallprobes.traces.trace import Int64s, OpenWork, Trace, op_label
from stallprobes.units import duration_ns, plural, three
from stallprobes.verdicts.kinds import IN_FLIGHT_NS

# Smallest time at which the story of a selected call names an operation of another probe, as a share of the call's
# duration. The time is the sum of the operation's overlaps with the call.
_BESIDE_SHARE = 0.2


@dataclass(frozen=True)
class TimeScale:
    """The time axis of a picture from ``begin_ns`` to ``end_ns``; its labels count from ``zero_ns``."""

    begin_ns: int
    end_ns: int
    zero_ns: int

    @property
    def span_ns(self) -> int:
        """The length of the axis, at least 1 ns."""
        return max(self.end_ns - self.begin_ns, 1)

    def place(self, at_ns: float) -> float:
        """The place of a time as a share of the axis, from 0 to 1."""
        return min(max((at_ns - self.begin_ns) / self.span_ns, 0.0), 1.0)

    def ticks(self, most: int) -> list[tuple[int, str]]:
        """Ticks at round times with their labels: at most ``most``, but two where the axis is long enough for any."""
        times: list[int] = []
        for step in _round_steps(self.span_ns / max(most - 1, 1)):
            first = -(-(self.begin_ns - self.zero_ns) // step)
            times = [number * step for number in range(first, (self.end_ns - self.zero_ns) // step + 1)]
            if len(times) > 1:
                break
        return [(self.zero_ns + ns, tick_label(ns)) for ns in times]

    def exact(self, at_ns: int) -> str:
        """A time in µs with three decimals: ``+2354.712 µs``."""
        ns = at_ns - self.zero_ns
        digits = f"{abs(ns) // 1000}.{abs(ns) % 1000:03d}"
        return f"{'-' if ns < 0 else '+' if ns else ' '}{digits} µs"


def tick_label(ns: int) -> str:
    """A round time of an axis: ``-1 ms``, ``0``, ``250 µs``."""
    if ns == 0:
        return "0"
    unit, length = next(
        (each for each in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)) if abs(ns) >= each[1]), ("ns", 1)
    )
    return f"{ns / length:g} {unit}"


def _round_steps(least_ns: float) -> Iterator[int]:
    """1, 2 and 5 times powers of ten: the smallest that is at least ``least_ns``, and then the smaller ones."""
    steps = [factor * 10**power for power in range(12) for factor in (1, 2, 5)]
    fits = next((number for number, step in enumerate(steps) if step >= least_ns), len(steps) - 1)
    yield from reversed(steps[: fits + 1])


def span_text(trace: Trace) -> str:
    """``4.00 ms from 2026-11-22 04:14:49.123456 UTC``."""
    begin = datetime.datetime.fromtimestamp(trace.wall_s(trace.begin_ns), datetime.UTC)
    return f"{duration_ns(trace.span_ns)} from {begin:%Y-%m-%d %H:%M:%S.%f} UTC"


def notes(trace: Trace) -> Iterator[str]:
    """Missing parts of the trace, a sentence each."""
    if trace.simulated:
        yield "SIMULATED: no GPU was measured."
    if not trace.context_switches:
        yield "Context switches were not recorded, so who had the graphics engine is not known."
    if trace.losses.lost:
        yield f"{plural(trace.losses.lost, 'record')} of calls or GPU work were lost since recording began."
    for flight in trace.open_calls:
        age_ns = trace.end_ns - flight.since_ns
        if age_ns >= IN_FLIGHT_NS:
            call = f"{trace.probes[flight.probe].name} {op_label(trace.probes, flight.probe, flight.op)}"
            yield f"{call} has not returned after {duration_ns(age_ns)}."
    for work in trace.open_work:
        if open_work_ns(trace, work) >= IN_FLIGHT_NS:
            yield f"{open_work_text(trace, work)}."
    if trace.collected_ns < trace.end_ns:
        yield f"GPU work of the last {duration_ns(trace.end_ns - trace.collected_ns)} may be missing."


def open_work_ns(trace: Trace, work: OpenWork) -> int:
    """Time (ns) for which ``work`` has had no record at the end of the trace; negative if it was submitted later."""
    return min(trace.end_ns, trace.collected_ns) - work.since_ns


def open_work_text(trace: Trace, work: OpenWork) -> str:
    """Description of open work."""
    call = f"{trace.probes[work.probe].name} {op_label(trace.probes, work.probe, work.op)}"
    calls = f" and of {plural(work.calls - 1, 'later call')}" if work.calls > 1 else ""
    age = duration_ns(open_work_ns(trace, work))
    return f"The GPU work of {call}{calls} has no record after {age}, so it waits or runs"


@dataclass(frozen=True)
class CallMoment:
    """A moment of the selected call's iteration: when, what happened, and how long it took."""

    at_ns: int
    what: str
    detail: str = ""


@dataclass(frozen=True)
class CallStory:
    """The selected call: its title, the moments of its iteration in the order of time, and what its work waited for.

    ``delay`` is that of the piece of work which waited longest, None without known work; ``text`` says it in a
    sentence. ``causes`` are its parts with their lengths, ``beside`` calls of the same context, or process, during the
    call; ``shared`` says which.
    """

    title: str
    moments: tuple[CallMoment, ...]
    delay: Delay | None
    text: str
    causes: tuple[tuple[str, int], ...]
    beside: tuple[tuple[str, int], ...]
    shared: str = "context"

    def notes(self) -> Iterator[str]:
        """Notes on several causes, and on calls beside it, a sentence each."""
        if len(self.causes) > 1:
            yield f"All of the delay: {'; '.join(f'{duration_ns(ns)} {text}' for text, ns in self.causes)}."
        if self.beside:
            calls = "; ".join(f"{text} for {duration_ns(ns)}" for text, ns in self.beside)
            yield f"Calls of the same {self.shared} during the call: {calls}."


def story(trace: Trace, call: int) -> CallStory:
    """Story of the call in row ``call``."""
    row = trace.calls[call]
    probe = trace.probes[row["probe"]]
    name = op_label(trace.probes, int(row["probe"]), int(row["op"]))
    work = ranking.of_iteration(trace.work, trace.calls[call])
    moments = [*_call_moments(trace, call), *_work_moments(trace, work)]
    delays = [delay for delay in (delay_of(trace, each) for each in work) if delay is not None]
    delay = max(delays, key=lambda each: each.ns, default=None)
    took = int(row["returned_ns"] - row["began_ns"])
    causes: dict[str, int] = {}
    for part in delay.parts if delay is not None else ():
        text = cause_text(trace, part)
        causes[text] = causes.get(text, 0) + part.ns
    return CallStory(
        title=f"{probe.name} {name}" + ("" if probe.process else f", iteration {row['iteration']}"),
        moments=tuple(sorted(moments, key=lambda moment: moment.at_ns)),
        delay=delay,
        text="" if delay is None else delay_text(trace, delay),
        causes=tuple(sorted(causes.items(), key=lambda each: -each[1])),
        beside=tuple((text, ns) for text, ns in calls_beside(trace, call) if ns >= _BESIDE_SHARE * took),
        shared=probe.shared,
    )


class TracePicture:
    """Content of a picture of ``trace``: its rows, the time axis, and the story of the call in row ``call``.

    By default that is the trigger's call, else the most unusual one; the axis counts from its begin.
    """

    def __init__(self, trace: Trace, call: int | None = None) -> None:
        self.trace, self.rows = trace, rows_of(trace)
        self.word = "Selected call" if trace.trigger is None or call is not None else "Trigger"
        if call is None:
            call = ranking.most_unusual_call(trace) if trace.trigger is None else trace.trigger_call()
        self.call = call
        self.story = None if call is None else story(trace, call)
        zero_ns = trace.begin_ns if trace.trigger is None else trace.trigger.began_ns
        if call is not None:
            zero_ns = int(trace.calls["began_ns"][call])
        self.scale = TimeScale(trace.begin_ns, trace.end_ns, zero_ns)

    @property
    def heading(self) -> str:
        """``Trace of 4.00 ms from 2026-11-22 04:14:49.123456 UTC``."""
        return f"Trace of {span_text(self.trace)}"

    def delay_below(self, row: TraceRow) -> Delay | None:
        """The delay of the call, if ``row`` is that of its calls and it had to wait."""
        chosen = self.call is not None and row.probe == self.trace.calls["probe"][self.call]
        return self.delay if chosen else None

    @property
    def delay(self) -> Delay | None:
        """The delay of the call, None where it had none."""
        delay = None if self.story is None else self.story.delay
        return None if delay is None or delay.ns <= 0 else delay


def _call_moments(trace: Trace, call: int) -> Iterator[CallMoment]:
    rows = ranking.of_iteration(trace.calls, trace.calls[call])
    # Events that a program records for its own use are left out.
    chosen = (rows["measured"] != 0) | (rows["began_ns"] == trace.calls["began_ns"][call])
    rows = rows[chosen] if rows["measured"].any() else rows
    for probe, op, _, began, returned, _ in rows.tolist():
        name = op_label(trace.probes, probe, op)
        wait = trace.probes[probe].waits(op)
        yield CallMoment(began, f"{name} called")
        yield CallMoment(
            returned, f"{name} returned", f"{duration_ns(returned - began)} {'waiting' if wait else 'in the call'}"
        )


def _work_moments(trace: Trace, work: Rows) -> Iterator[CallMoment]:
    for row in work:
        delay = delay_of(trace, row)
        kind, copy = int(row["kind"]), int(row["subkind"])
        label = labels.work_kind_label(kind, copy)
        yield CallMoment(int(row["start_ns"]), f"GPU started the {label}", "" if delay is None else _delay(delay))
        took = f"{duration_ns(int(row['end_ns'] - row['start_ns']))} on the GPU"
        size = "" if kind == RecordKind.KERNEL else f", {size_text(int(row['bytes']))}"
        source, target = labels.memory_labels(int(row["memory"])) if labels.copy_label(kind, copy) else ("", "")
        memory = f", {source} to {target} memory" if source and target else ""
        yield CallMoment(int(row["end_ns"]), f"GPU ended the {label}", took + size + memory)


def _delay(delay: Delay) -> str:
    return f"{duration_ns(abs(delay.ns))} {'after' if delay.ns >= 0 else 'before'} the return"


def delay_length(delay: Delay) -> str:
    """``returned → GPU start 2.26 ms``, without the cause."""
    return f"returned → GPU start {duration_ns(delay.ns)}"


def size_text(nbytes: int) -> str:
    """``1 MiB``, ``4 KiB``, ``12 bytes``."""
    for unit, length in (("MiB", MIB), ("KiB", KIB)):
        if nbytes >= length:
            return f"{nbytes // length if nbytes % length == 0 else three(nbytes / length)} {unit}"
    return plural(nbytes, "byte")


def shares(spans: Int64s, scale: TimeScale, cells: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The share of each of ``cells`` equal parts of the axis that ``spans`` (int64[n][2]) cover."""
    per = scale.span_ns / cells
    inside = spans[(spans[:, 1] >= scale.begin_ns) & (spans[:, 0] <= scale.end_ns)]
    # The shortest span is visible.
    begins = np.clip((inside[:, 0] - scale.begin_ns) / per, 0, cells - 1e-6)
    ends = np.clip((inside[:, 1] - scale.begin_ns) / per, begins + 1e-6, cells)
    first, last = begins.astype(np.int64), np.minimum(ends.astype(np.int64), cells - 1)
    covered = np.zeros(cells + 1)
    np.add.at(covered, first, -(begins - first))
    np.add.at(covered, last, ends - last)
    whole = np.zeros(cells + 1)
    np.add.at(whole, first, 1)
    np.add.at(whole, last, -1)
    return np.clip((covered + np.cumsum(whole))[:cells], 0, 1)
