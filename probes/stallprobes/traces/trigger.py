"""Trigger: finds the first call of a victim above its limit, which follows the baseline by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallprobes.engine.snapshot import Snapshot
from stallprobes.latency.baseline import ENOUGH_CALLS, Baseline
from stallprobes.latency.ratio import Quantile
from stallprobes.model import MS, Channel, Phase, Probe, Role
from stallprobes.records.rows import Rows
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.trace import OPEN, Int64s, Trace, TraceTrigger, callers_of
from stallprobes.verdicts.evidence import ALONE_TAIL_NS, STALLED
from stallprobes.verdicts.kinds import IN_FLIGHT_NS
from stallprobes.verdicts.rules import HOST_SHARE

# Shortest time (s) between two traces of slow calls.
COOL_DOWN_S = 10.0
# Shortest time (ns) that a trace shows before a slow call. For a longer latency, the trace shows as much time as the
# latency, up to _LONGEST_BEFORE_NS.
_BEFORE_NS = 50 * MS
# Longest time (ns) that a trace shows before a slow call.
_LONGEST_BEFORE_NS = 1_000 * MS
# Shortest time (ns) that a trace shows after a slow call. For a longer latency, the trace shows as much time as the
# latency, up to _LONGEST_AFTER_NS.
_AFTER_NS = 20 * MS
# Longest time (ns) that a trace shows after a slow call.
_LONGEST_AFTER_NS = 200 * MS
# Percentile of the baseline that a call must exceed to trigger a trace, in addition to the limits by p99. Reason: the
# maximum of a long baseline is an outlier, and would hide every shorter stall.
_LONGEST_PERCENTILE = 99.999
# Phases of the operations that can trigger a trace, by a slow call or a late start of the call's GPU work.
_TIMED = (Phase.CALL, Phase.WAIT)
# Columns of the table of latencies above their limits. _PROBE, _OP: numbers of the probe and of its operation. _LATE: 1
# for a late start on the GPU, 0 for a call or wait. _BEGAN, _RETURNED: times (ns) at which the call began and returned.
# _END: time (ns) at which the latency ended. _NS, _LIMIT: the latency and its limit (ns).
_PROBE, _OP, _LATE, _BEGAN, _RETURNED, _END, _NS, _LIMIT = range(8)


@dataclass(frozen=True)
class SlowCall:
    """A call with a latency above its limit, from ``since_ns`` to ``end_ns``.

    ``phase`` is the latency's: the call's phase, or ``START`` for the time from its return to the start of its work.
    ``probe`` is the number of its probe. ``returned_ns`` is when it returned; for a call ``in_flight``, the time until
    which it had not.
    """

    probe: int
    op: int
    phase: Phase
    began_ns: int
    returned_ns: int
    end_ns: int
    limit_ns: int
    in_flight: bool = False

    @property
    def since_ns(self) -> int:
        """The beginning of the latency."""
        return self.returned_ns if self.phase is Phase.START else self.began_ns

    @property
    def ns(self) -> int:
        """The latency."""
        return self.end_ns - self.since_ns

    @property
    def span(self) -> tuple[int, int]:
        """The span (ns) of a trace that shows the call, and the time before and after it."""
        before_ns = min(max(self.ns, _BEFORE_NS), _LONGEST_BEFORE_NS)
        after_ns = min(max(self.ns, _AFTER_NS), _LONGEST_AFTER_NS)
        return max(self.began_ns - before_ns, 0), self.end_ns + after_ns

    @property
    def trigger(self) -> TraceTrigger:
        """The call as the trigger of a trace."""
        return TraceTrigger(self.probe, self.began_ns, self.returned_ns)


@dataclass(frozen=True, eq=False)
class TriggerLimits:
    """The limits of all ops of all probes, in ns, OPEN where there is none.

    ``calls`` (int64[probes][ops]) are the limits of the call itself, ``starts`` the limits of the time from its return
    to the start on the GPU. ``phases`` has the phase of each op, ``hosts`` the numbers of the host controls.
    """

    calls: Int64s
    starts: Int64s
    phases: tuple[tuple[Phase, ...], ...]
    hosts: tuple[int, ...]


def limit_ns(baseline: Baseline, channel: Channel) -> int | None:
    """The latency of ``channel`` above which a call is out of the ordinary; None without enough calls.

    Three times the p99, at least 100 µs more than it, and longer than all but one in 100 000 calls of the baseline.
    Work that the GPU always started before the return is late after 100 µs.
    """
    early = baseline.channels.get(Channel(Phase.EARLY, channel.label))
    p99, calls = baseline.percentile_ns(channel, Quantile.P99), baseline.channels.get(channel)
    longest = None if calls is None else calls.percentile(_LONGEST_PERCENTILE)
    if p99 is None or longest is None:
        early_only = channel.phase is Phase.START and early is not None and early.count >= ENOUGH_CALLS
        return ALONE_TAIL_NS if early_only else None
    return round(max(STALLED * p99, p99 + ALONE_TAIL_NS, longest))


class CallTrigger:
    """The trigger of a timeline of ``probes``: the first call of a victim slower than its limit.

    The limit is ``above_ns``, or follows the baseline where that is None. After a slow call, those of the next
    ``cool_down_s`` seconds are passed over. A call beside which the host control took at least half as long does not
    count: the machine is the cause.
    """

    def __init__(
        self, probes: Sequence[Probe], *, above_ns: int | None = None, cool_down_s: float = COOL_DOWN_S
    ) -> None:
        self.above_ns = above_ns
        self._probes = tuple(probes)
        self._cool_down_ns = round(cool_down_s * 1e9)
        self._ops = max((len(probe.program.ops) for probe in probes), default=0)
        # By probe: the baseline from which its limits were computed.
        self._known: dict[str, tuple[Baseline | None, int | None, Int64s]] = {}
        self._phases = tuple(tuple(op.phase or Phase.GPU for op in probe.program.ops) for probe in probes)
        self._hosts = tuple(number for number, probe in enumerate(probes) if probe.role is Role.HOST)
        self._scanned_ns = 0
        self._quiet_until_ns = 0

    def limits(self, baselines: Mapping[str, Baseline]) -> TriggerLimits:
        """The limits with ``baselines``, by the probe's name."""
        rows = [self._limits(probe, baselines.get(probe.name)) for probe in self._probes]
        both = np.array(rows, dtype=np.int64).reshape(len(rows), 2, self._ops)
        return TriggerLimits(both[:, 0], both[:, 1], self._phases, self._hosts)

    def skip(self, until_ns: int) -> None:
        """Pass over everything that ended before ``until_ns``."""
        self._scanned_ns = max(self._scanned_ns, until_ns)

    def feed(
        self, history: TraceHistory, baselines: Mapping[str, Baseline], snapshot: Snapshot | None = None
    ) -> SlowCall | None:
        """The first slow call since the last ``feed``, of those whose GPU work is complete; None without one.

        ``snapshot`` has the calls in flight, of which those count that take 100 ms or longer.
        """
        begin_ns, self._scanned_ns = self._scanned_ns, max(history.collected_ns, self._scanned_ns)
        begin_ns, quiet_ns = max(begin_ns, self._quiet_until_ns, history.begin_ns), self._quiet_until_ns
        limits = self.limits(baselines)
        call = None
        if begin_ns < self._scanned_ns:
            trace = history.trace(begin_ns, self._scanned_ns)
            slow = slow_calls(trace, limits, begin_ns, self._scanned_ns)
            call = next((call for call in slow if call.end_ns > quiet_ns), None)
        if call is None and snapshot is not None:
            call = self._in_flight(snapshot, limits)
        if call is not None:
            self._quiet_until_ns = call.end_ns + self._cool_down_ns
        return call

    def _limits(self, probe: Probe, baseline: Baseline | None) -> Int64s:
        known = self._known.get(probe.name)
        if known is None or known[0] is not baseline or known[1] != self.above_ns:
            known = (baseline, self.above_ns, self._computed(probe, baseline))
            self._known[probe.name] = known
        return known[2]

    def _computed(self, probe: Probe, baseline: Baseline | None) -> Int64s:
        limits = np.full((2, self._ops), OPEN, dtype=np.int64)
        if probe.role is not Role.VICTIM:
            return limits
        for number, op in enumerate(probe.program.ops):
            if op.phase not in _TIMED:
                continue
            for row, phase in enumerate((op.phase, Phase.START)):
                limit = self.above_ns
                if limit is None and baseline is not None:
                    limit = limit_ns(baseline, Channel(phase, op.label))
                if limit is not None:
                    limits[row, number] = limit
        return limits

    def _in_flight(self, snapshot: Snapshot, limits: TriggerLimits) -> SlowCall | None:
        if snapshot.at_ns < self._quiet_until_ns:
            return None
        for number, probe in enumerate(self._probes):
            flight = snapshot.probes[probe.name].in_flight
            if flight is None or not 0 <= flight.op < self._ops:
                continue
            limit = int(limits.calls[number, flight.op])
            if flight.age_ns >= max(limit, IN_FLIGHT_NS):
                phase, at_ns = self._phases[number][flight.op], snapshot.at_ns
                return SlowCall(number, flight.op, phase, flight.since_ns, at_ns, at_ns, limit, in_flight=True)
        return None


def slow_calls(trace: Trace, limits: TriggerLimits, begin_ns: int, end_ns: int) -> Iterator[SlowCall]:
    """The calls of ``trace`` above ``limits`` that became slow within a span, in the order of time.

    A call became slow when it returned, or when the GPU started its work.
    """
    latencies = _above(trace, limits, begin_ns, end_ns)
    order = np.lexsort((latencies[:, _NS], latencies[:, _END]))
    return _without_slow_host(trace, limits, latencies[order])


def slowest_call(
    trace: Trace, limits: TriggerLimits, probe: int | None = None, phase: Phase | None = None
) -> SlowCall | None:
    """The latency of ``trace`` that exceeds its limit by the largest factor; None if none does.

    ``probe`` and ``phase`` restrict the search to one probe and to one phase.
    """
    latencies = _above(trace, limits, trace.begin_ns, trace.end_ns)
    if probe is not None:
        latencies = latencies[latencies[:, _PROBE] == probe]
    if phase is Phase.START:
        latencies = latencies[latencies[:, _LATE] != 0]
    elif phase is not None:
        of_phase = [[measured is phase for measured in phases] for phases in limits.phases]
        wanted = [
            late == 0 and of_phase[number][op] for number, op, late in latencies[:, [_PROBE, _OP, _LATE]].tolist()
        ]
        latencies = latencies[np.array(wanted, dtype=bool)]
    order = np.argsort(-latencies[:, _NS] / np.maximum(latencies[:, _LIMIT], 1), kind="stable")
    return next(_without_slow_host(trace, limits, latencies[order]), None)


def _above(trace: Trace, limits: TriggerLimits, begin_ns: int, end_ns: int) -> Int64s:
    """The latencies above ``limits`` that ended within a span: int64[n][8], with the columns from _PROBE to _LIMIT."""
    calls, work = trace.calls, trace.work
    ended = (calls["returned_ns"] > begin_ns) & (calls["returned_ns"] <= end_ns)
    calls = calls[ended & (calls["measured"] != 0)]
    limit = limits.calls[calls["probe"], calls["op"]]
    took = calls["returned_ns"] - calls["began_ns"]
    slow = took > limit
    probe, op, began, returned = (calls[column][slow] for column in ("probe", "op", "began_ns", "returned_ns"))
    columns = [np.column_stack((probe, op, 0 * probe, began, returned, returned, took[slow], limit[slow]))]
    known = (work["probe"] >= 0) & (work["returned_ns"] > 0) & (work["iteration"] > 0)
    # It is unknown whether a call outside the trace was measured.
    callers = callers_of(trace)
    if len(trace.calls):
        known &= (callers < 0) | (trace.calls["measured"][callers] != 0)
    known &= (work["end_ns"] > begin_ns) & (work["end_ns"] <= end_ns)
    part_ends = _ends_of_parts_before(work, callers)[known]
    work = work[known]
    limit = limits.starts[work["probe"], work["op"]]
    # The limit holds for the first work of a call; the rest cannot start while the first work runs.
    delay = work["start_ns"] - np.maximum(work["returned_ns"], part_ends)
    late = delay > limit
    probe, op, began, returned, start = (
        work[column][late] for column in ("probe", "op", "began_ns", "returned_ns", "start_ns")
    )
    columns.append(np.column_stack((probe, op, 0 * probe + 1, began, returned, start, delay[late], limit[late])))
    return np.concatenate(columns)


def _ends_of_parts_before(work: Rows, callers: Int64s) -> Int64s:
    """For each row of ``work`` the end of the work before it that its call submitted, 0 without any."""
    ends = np.zeros(len(work), dtype=np.int64)
    order = np.argsort(callers, kind="stable")
    same = (callers[order[1:]] == callers[order[:-1]]) & (callers[order[1:]] >= 0)
    ends[order[1:][same]] = work["end_ns"][order[:-1][same]]
    return ends


def _without_slow_host(trace: Trace, limits: TriggerLimits, latencies: Int64s) -> Iterator[SlowCall]:
    """The slow calls in ``latencies`` during which no host control was slow."""
    hosts = trace.calls[np.isin(trace.calls["probe"], limits.hosts)]
    for row in latencies:
        probe, op, late, began_ns, returned_ns, end_ns, _, limit = row.tolist()
        phase = Phase.START if late else limits.phases[probe][op]
        call = SlowCall(probe, op, phase, began_ns, returned_ns, end_ns, limit)
        if not _host_was_slow(hosts, call):
            yield call


def _host_was_slow(hosts: Rows, call: SlowCall) -> bool:
    """True if a call of a host control beside ``call`` took at least half as long."""
    beside = hosts[(hosts["returned_ns"] >= call.since_ns) & (hosts["began_ns"] <= call.end_ns)]
    longest = (beside["returned_ns"] - beside["began_ns"]).max(initial=0)
    return bool(longest >= HOST_SHARE * call.ns)
