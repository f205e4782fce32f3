"""Keeper of traces: cuts them from a live timeline, around the first slow call and around each new stall verdict."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from stallprobes.engine.snapshot import Snapshot
from stallprobes.engine.timeline.reader import TimelineRows
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import LogEntry
from stallprobes.model import MS, Phase, Probe, Role
from stallprobes.recording.observation import Observation
from stallprobes.records.timeline import TimelinePosition
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.ranking import slowest_row
from stallprobes.traces.trace import Trace, TraceTrigger
from stallprobes.traces.trigger import COOL_DOWN_S, CallTrigger, SlowCall, slowest_call
from stallprobes.verdicts.kinds import VerdictKind

# Largest number of traces in a minute that are cut from a live timeline.
MOST_A_MINUTE = 10
# Time (ns) before the log entry of a verdict in which the calls that caused the verdict are searched. The slowest of
# these calls gets a trace.
_VERDICT_NS = 1_500 * MS
# Longest time (ns) for which a trace of a slow call waits for the GPU's records. After this time, the trace is made
# without the records.
_PATIENCE_NS = 1_000 * MS


class TraceKeeper:
    """Passes traces to ``keep``: of the first call above its limit, and of the worst call of each new stall verdict.
    Without a victim, nothing stalls: then it is the longest call of the last seconds.

    The limits follow the baseline (``CallTrigger``). After a trace, slow calls of the next 10 s have none, nor have new
    verdicts on the same probe. At most 10 traces a minute are kept; ``passed_over`` counts those beyond that.
    ``others`` are the other processes on the GPU, until an observation names some.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        keep: Callable[[Trace], None],
        *,
        others: Sequence[str] = (),
        simulated: bool = False,
    ) -> None:
        self.history = TraceHistory(probes, simulated=simulated)
        self.passed_over = 0
        self._probes = tuple(probes)
        self._keep = keep
        self._others = tuple(others)
        self._snapshot: Snapshot | None = None
        self._trigger = CallTrigger(probes)
        # Any call of a victim: the worst one of a verdict may be below the limit of a single call.
        self._any = CallTrigger(probes, above_ns=0).limits({})
        self._pending: list[SlowCall] = []
        # The times of the traces of the last minute, and the last one of each probe.
        self._times: deque[int] = deque()
        self._last: dict[int, int] = {}
        self._logged = 0

    @property
    def position(self) -> TimelinePosition:
        """Where the next rows begin."""
        return self.history.position

    def feed(self, rows: TimelineRows, observation: Observation, analyzer: Analyzer) -> None:
        """Process the rows since ``position``, after ``analyzer`` has processed ``observation``."""
        self.history.feed(rows, observation.wall_s)
        if observation.snapshot is not None:
            self.history.feed_counters(observation.snapshot.at_ns, observation.telemetry)
        self._snapshot, self._others = observation.snapshot, observation.other_processes or self._others
        call = self._trigger.feed(self.history, analyzer.baselines, observation.snapshot)
        if call is not None:
            self._expect(call)
        for entry in analyzer.log:
            if entry.number > self._logged:
                self._logged = entry.number
                self._expect_verdict(entry)
        for due in [pending for pending in self._pending if self._is_complete(pending)]:
            self._pending.remove(due)
            self._cut(due)

    def finish(self) -> None:
        """Cut the incomplete traces, and the trace of the longest call if no probe is a victim."""
        if not any(probe.role is Role.VICTIM for probe in self._probes):
            self._pending += self._longest()
        for call in self._pending:
            self._cut(call)
        self._pending.clear()

    def _longest(self) -> Iterator[SlowCall]:
        """The longest call of an aggressor in the history, if there is any."""
        numbers = [number for number, probe in enumerate(self._probes) if probe.role is not Role.HOST]
        recent = self.history.trace(self.history.begin_ns, self.history.collected_ns)
        row = slowest_row(recent, numbers)
        if row is not None:
            probe, op, _, began_ns, returned_ns, _ = recent.calls[row].tolist()
            yield SlowCall(probe, op, Phase.CALL, began_ns, returned_ns, returned_ns, 0)

    def _is_complete(self, call: SlowCall) -> bool:
        _, end_ns = call.span
        return self.history.collected_ns >= end_ns or self.history.at_ns >= end_ns + _PATIENCE_NS

    def _expect_verdict(self, entry: LogEntry) -> None:
        verdict = entry.verdict
        if verdict.kind is not VerdictKind.STALLED:
            return
        number = next((n for n, probe in enumerate(self._probes) if probe.name == verdict.probe), None)
        last_ns = None if number is None else self._last.get(number)
        end_ns = self.history.collected_ns
        if number is None or (last_ns is not None and end_ns - last_ns < COOL_DOWN_S * 1e9):
            return
        recent = self.history.trace(end_ns - _VERDICT_NS, end_ns)
        worst = slowest_call(recent, self._any, number, verdict.phase) or slowest_call(recent, self._any, number)
        if worst is not None:
            self._expect(worst)

    def _expect(self, call: SlowCall) -> None:
        while self._times and call.end_ns - self._times[0] >= 60e9:
            self._times.popleft()
        if len(self._times) >= MOST_A_MINUTE:
            self.passed_over += 1
            return
        self._times.append(call.end_ns)
        self._last[call.probe] = call.end_ns
        self._pending.append(call)

    def _cut(self, call: SlowCall) -> None:
        begin_ns, end_ns = call.span
        trace = self.history.trace(
            begin_ns,
            max(min(end_ns, self.history.at_ns), call.end_ns),
            snapshot=self._snapshot,
            others=self._others,
            trigger=call.trigger,
        )
        number = trace.trigger_call()
        if call.in_flight and number is not None:
            # It has returned in the meantime.
            began_ns, returned_ns = trace.calls[number][["began_ns", "returned_ns"]].tolist()
            trace = trace.changed(trigger=TraceTrigger(call.probe, began_ns, returned_ns))
        self._keep(trace)
