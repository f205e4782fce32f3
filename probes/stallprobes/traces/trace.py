"""Trace: host calls, GPU work and context tenures in a span of time, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from msgspec import Struct
from msgspec import field as struct_field
from msgspec.structs import replace
from numpy.typing import NDArray

from stallprobes.files.codec import Figure, Int64, Nanoseconds, WallSeconds
from stallprobes.model import Phase, Probe, Role, op_name
from stallprobes.records.rows import CALL, OVERHEAD, TENURE, WORK, Rows
from stallprobes.records.timeline import TimelineLosses

Int64s = NDArray[np.int64]

# Time (ns) that is later than all other times. OPEN stands for the end of a call or tenure that has not ended. (A
# tenure is the time in which a context has the graphics engine.) OPEN also stands for an unknown time and for a missing
# limit of a latency.
OPEN = np.iinfo(np.int64).max
# Tables of a trace by name: the type of the rows, and the columns of start and end.
TABLES = {
    "calls": (CALL, "began_ns", "returned_ns"),
    "work": (WORK, "start_ns", "end_ns"),
    "tenures": (TENURE, "start_ns", "end_ns"),
    "overheads": (OVERHEAD, "start_ns", "end_ns"),
}
# If a recorded call of the same probe begins less than this time (ns) after the trigger (the slow call for which a
# trace was made), both are the same call. Reason: the begin of a trigger in flight comes from an earlier reading of the
# clock.
_READING_BEFORE_NS = 100_000


@dataclass(frozen=True)
class TracedProbe:
    """A probe as a trace names it, or a thread of a watched program.

    ``ops`` are the names of its program's operations, ``phases`` what each measures. ``process`` is the number of the
    thread's process, from 1 on; 0 for a probe. The context of a thread is not known.
    """

    name: str
    ops: tuple[str, ...]
    context: str = ""
    stream: str = ""
    role: Role = Role.VICTIM
    phases: tuple[Phase | None, ...] = ()
    process: int = 0

    @classmethod
    def of(cls, probe: Probe) -> TracedProbe:
        """The names of ``probe``."""
        ops = tuple(op_name(op) for op in probe.program.ops)
        phases = tuple(op.phase for op in probe.program.ops)
        return cls(probe.name, ops, probe.context, probe.stream, probe.role, phases)

    @property
    def shared(self) -> str:
        """Scope that the probe shares with probes whose calls may hold up its own."""
        return "process" if self.process else "context"

    def waits(self, op: int) -> bool:
        """True if a call of ``op`` waits for the GPU, as a synchronization does."""
        return 0 <= op < len(self.phases) and self.phases[op] is Phase.WAIT


@dataclass(frozen=True)
class OpenCall:
    """A driver call that has not returned: ``op`` is an index into the ops of probe number ``probe``."""

    probe: int
    op: int
    since_ns: int


@dataclass(frozen=True)
class OpenWork:
    """GPU work without a record: it waits or runs, since a record is made when work has ended.

    ``calls`` calls of operation ``op`` of probe number ``probe`` submitted it; the first one returned at ``since_ns``.
    """

    probe: int
    op: int
    device: int
    context: int
    stream: int
    since_ns: int
    calls: int = 1


@dataclass(frozen=True)
class TraceTrigger:
    """The call at which a trace was frozen: its probe, and when the call began and returned."""

    probe: int
    began_ns: int
    returned_ns: int


class CounterSample(NamedTuple):
    """The mean of a counter from one time to another (ns)."""

    begin_ns: Nanoseconds
    end_ns: Nanoseconds
    value: Figure


@dataclass(frozen=True)
class CounterTrack:
    """A counter of the GPU, in ``unit``. Between its samples, which are in the order of their times, it is unknown."""

    name: str
    unit: str
    samples: tuple[CounterSample, ...]

    def between(self, begin_ns: int, end_ns: int) -> CounterTrack:
        """The samples that overlap a span."""
        chosen = (sample for sample in self.samples if sample.end_ns > begin_ns and sample.begin_ns < end_ns)
        return CounterTrack(self.name, self.unit, tuple(chosen))


@dataclass(frozen=True)
class TraceNames:
    """Names of contexts by CUPTI's number, and of streams by context and stream number."""

    contexts: Mapping[int, str] = field(default_factory=dict)
    streams: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def context(self, number: int) -> str:
        """The name of a context, ``context N`` for an unknown one."""
        return self.contexts.get(number, f"context {number}")

    def stream(self, context: int, stream: int) -> str:
        """The name of a stream, ``stream N`` for an unknown one."""
        return self.streams.get((context, stream), f"stream {stream}")


class TraceHead(Struct, frozen=True, eq=False, kw_only=True, omit_defaults=True):
    """Members of a trace and of its stored form: all but rows and names.

    Times are in ns of the board's clock. Records of GPU work are complete up to ``collected_ns``; ``open_work`` has
    none yet. ``wall_offset_s`` is the time since 1970 at 0 ns. Without ``context_switches`` nobody recorded who had the
    graphics engine; with them it is known from ``engine_since_ns`` on. ``others`` are the processes that NVML reported
    on the GPU, ``NAME (pid N)`` each. ``simulated``: the GPU was simulated. ``unrecorded`` are times (begin, end) in
    which work of the GPU was not recorded. ``counters`` are NVML's counters of the whole GPU, or simulated ones.
    """

    begin_ns: Nanoseconds
    end_ns: Nanoseconds
    collected_ns: Nanoseconds
    wall_offset_s: WallSeconds = 0.0
    probes: tuple[TracedProbe, ...]
    context_switches: bool
    engine_since_ns: Int64 = 0
    losses: TimelineLosses = TimelineLosses()
    open_calls: tuple[OpenCall, ...] = ()
    open_work: tuple[OpenWork, ...] = ()
    others: tuple[str, ...] = ()
    trigger: TraceTrigger | None = None
    simulated: bool = False
    unrecorded: tuple[tuple[Nanoseconds, Nanoseconds], ...] = ()
    counters: tuple[CounterTrack, ...] = ()

    def changed(self, **values: Any) -> Self:
        """The object with other ``values``."""
        return replace(self, **values)


class Trace(TraceHead, frozen=True, eq=False, kw_only=True):
    """Records of the timeline from ``begin_ns`` to ``end_ns``.

    ``calls`` (CALL[n], whose ``probe`` is an index into ``probes``) and ``work`` (WORK[n]) are in the order of their
    starts and overlap the span at least in part, as do ``tenures`` (TENURE[n], whose end is OPEN while the context
    still has the engine) and ``overheads`` (OVERHEAD[n]). ``kernels`` are the known names of kernels by the work's
    ``sequence``.
    """

    names: TraceNames
    calls: Rows
    work: Rows
    tenures: Rows
    overheads: Rows
    kernels: Mapping[int, str] = struct_field(default_factory=dict)

    @property
    def engine_known_ns(self) -> int:
        """The time from which on it is known who had the graphics engine."""
        return max(self.begin_ns, self.engine_since_ns)

    @property
    def row_count(self) -> int:
        """The number of rows of all kinds."""
        return sum(len(getattr(self, name)) for name in TABLES)

    @property
    def span_ns(self) -> int:
        """The length of the span."""
        return self.end_ns - self.begin_ns

    def recorded_share(self, begin_ns: int, end_ns: int) -> float:
        """The share (0 to 1) of the time between two times in which work of the GPU was recorded."""
        known_ns = min(end_ns, self.collected_ns)
        off_ns = max(min(end_ns, self.end_ns) - max(begin_ns, self.collected_ns), 0)
        off_ns += sum(max(min(end, known_ns) - max(begin, begin_ns), 0) for begin, end in self.unrecorded)
        return max(1 - off_ns / max(end_ns - begin_ns, 1), 0.0)

    def wall_s(self, at_ns: int) -> float:
        """The time of ``at_ns`` in seconds since 1970."""
        return self.wall_offset_s + at_ns / 1e9

    def between(self, begin_ns: int, end_ns: int) -> Trace:
        """The part from ``begin_ns`` to ``end_ns``, as far as it was recorded: a span outside gives an empty part."""
        first_ns = min(max(begin_ns, self.begin_ns), self.end_ns)
        tables: dict[str, Any] = {
            name: overlapping(getattr(self, name), start, end, begin_ns, end_ns)
            for name, (_, start, end) in TABLES.items()
        }
        last_ns = max(min(end_ns, self.end_ns), first_ns)
        counters = tuple(track.between(first_ns, last_ns) for track in self.counters)
        return self.changed(begin_ns=first_ns, end_ns=last_ns, counters=counters, **tables)

    def work_of(self, call: int) -> Rows:
        """The work that the call in row ``call`` submitted, in the order of its starts."""
        row = self.calls[call]
        same = (self.work["probe"] == row["probe"]) & (self.work["began_ns"] == row["began_ns"])
        return np.asarray(self.work[same])

    def trigger_call(self) -> int | None:
        """The number of the trigger's call; None without a trigger, or if the call had not returned.

        A call that was in flight counts from the reading of the clock before the one at its begin.
        """
        trigger = self.trigger
        if trigger is None:
            return None
        first = int(np.searchsorted(self.calls["began_ns"], trigger.began_ns))
        own = np.flatnonzero(self.calls["probe"][first:] == trigger.probe)
        if not len(own):
            return None
        number = first + int(own[0])
        return number if self.calls["began_ns"][number] - trigger.began_ns < _READING_BEFORE_NS else None


def callers_of(trace: Trace) -> Int64s:
    """The row of ``trace.calls`` that submitted each row of ``trace.work``; -1 where it is not in the trace."""
    calls, work = trace.calls, trace.work
    callers = np.full(len(work), -1, dtype=np.int64)
    for number in range(len(trace.probes)):
        own = np.flatnonzero(calls["probe"] == number)
        rows = np.flatnonzero(work["probe"] == number)
        if len(own) and len(rows):
            places = np.minimum(np.searchsorted(calls["began_ns"][own], work["began_ns"][rows]), len(own) - 1)
            same = calls["began_ns"][own[places]] == work["began_ns"][rows]
            callers[rows[same]] = own[places[same]]
    return callers


def overlapping(rows: Rows, start: str, end: str, begin_ns: int, end_ns: int) -> Rows:
    """The ``rows`` whose time from column ``start`` to column ``end`` overlaps a span; a touch counts."""
    return rows[(rows[end] >= begin_ns) & (rows[start] <= end_ns)]


def op_label(probes: Sequence[TracedProbe], probe: int, op: int) -> str:
    """The name of an operation of a probe; "" for unknown ones."""
    if not 0 <= probe < len(probes) or not 0 <= op < len(probes[probe].ops):
        return ""
    return probes[probe].ops[op]


@dataclass(frozen=True)
class RecordedTrace:
    """A trace in a recording: its number, its time since 1970, and that since the first entry, in seconds."""

    number: int
    wall_s: float
    at_s: float
