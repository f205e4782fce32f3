"""Live reading of a watched program: its figures, the analysis about once a second, and traces of its last seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stallprobes.errors import FileNotWritten
from stallprobes.traces.trace import Trace
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.causes.known_stalls import KnownStalls
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.live.beside_trial import BesideTrial
from stallprobes.watch.live.live_view import NO_FINDINGS, LiveRows, WatchedProgram, WatchMoment, slow_calls
from stallprobes.watch.live.trace_history import KEEP_NS, TriggeringCall, WatchTraceHistory
from stallprobes.watch.prometheus import MetricsFile
from stallprobes.watch.reading.process import WatchedProcess
from stallprobes.watch.reading.source import WatchSource

# Longest wait (s) at the end of watching for call stacks that py-spy still reads.
LOOK_S = 5.0
# Shortest period (ns) of the analyses, which give new findings. Reason: a person does not read findings faster. Figures
# on the screen change more often.
ANALYZE_NS = 1_000_000_000
# Largest share of the time that the analysis takes. After a long analysis, the next analysis comes later.
_ANALYSIS_SHARE = 0.1
# Longest pause after a reading of the processes' files, as a multiple of the CPU time that the reading took. Reason:
# the readings and the library's threads together then take less than a tenth of a core. The pause is shorter if a ring
# of records or calls fills up sooner.
_PAUSE_FACTOR = 11
# Longest pause (s) after a reading while aggressors take turns beside the program.
_TURN_PAUSE_S = 0.1
# Shortest time (ns) that the trace of a slow call shows before the call. Between this limit and _LONGEST_BEFORE_NS, the
# time before the call is the call's duration.
_BEFORE_NS = 50_000_000
# Longest time (ns) that the trace of a slow call shows before the call.
_LONGEST_BEFORE_NS = 1_000_000_000
# Shortest time (ns) that the trace of a slow call shows after the call. Between this limit and _LONGEST_AFTER_NS, the
# time after the call is the call's duration.
_AFTER_NS = 20_000_000
# Longest time (ns) that the trace of a slow call shows after the call.
_LONGEST_AFTER_NS = 200_000_000
# Length (ns) of the trace that shows the present: the trace ends now.
PRESENT_NS = 2_000_000_000


class LiveProgram:
    """A program whose processes have their files in ``source``; None where it cannot be watched.

    New findings are written to the file ``metrics``, if there is one, once it is due.
    A path as ``source`` is that of a private folder. ``keep_ns`` is how much is kept for traces, None for everything.
    One thread reads; any other one may ask for the last ``moment`` and for traces.
    """

    def __init__(
        self,
        source: WatchSource | Path | None,
        program: WatchedProgram,
        known: KnownStalls | None = None,
        keep_ns: int | None = KEEP_NS,
    ) -> None:
        self.program = program
        self.history = WatchTraceHistory(keep_ns)
        self.moment: WatchMoment | None = None
        # Aggressors beside it, of which the findings have the effects.
        self.trial: BesideTrial | None = None
        self.metrics: MetricsFile | None = None
        self._analysis = FolderAnalysis(source, known, self.history.feed)
        self._rows = LiveRows()
        self._findings: WatchFindings = NO_FINDINGS
        self._next_ns = 0
        self._lock = threading.Lock()

    @property
    def processes(self) -> tuple[WatchedProcess, ...]:
        """The last reading of each process."""
        return self._analysis.processes

    @property
    def running(self) -> tuple[WatchedProcess, ...]:
        """The processes that had not ended at the last reading."""
        return self._analysis.running

    @property
    def metrics_due(self) -> bool:
        """True if new findings are wanted for the file with metrics."""
        return self.metrics is not None and self.metrics.due

    def rest_s(self, took_s: float) -> float:
        """Pause (s) after a reading that took ``took_s`` of CPU time.

        The program may need the CPU, but nothing may be overwritten before it is read, and turns beside it end with a
        reading.
        """
        most_s = _TURN_PAUSE_S if self.trial is not None and self.trial.hurries else _PAUSE_FACTOR * took_s
        return min(most_s, _PAUSE_FACTOR * took_s, self._analysis.room_s)

    def finish_looking(self) -> None:
        """Wait, at most LOOK_S, for readings of the processes from outside."""
        self._analysis.finish_looking(LOOK_S)

    def read(self, progress: Callable[[float], None] = lambda _: None) -> None:
        """Read what is new; ``progress`` is called with the share (0 to 1) of the files. Raises WatchError."""
        with self._lock:
            self._analysis.poll(progress)

    def findings(self) -> WatchFindings:
        """The findings by all readings so far."""
        findings = self._analysis.findings()
        return findings if self.trial is None else self.trial.with_effects(findings)

    def update(
        self,
        program: WatchedProgram | None = None,
        analyze: bool = False,
        progress: Callable[[float], None] = lambda _: None,
    ) -> bool:
        """Read what is new, as ``read`` does, and make the next ``moment``; True if it has new findings.

        Findings are new once a second, and always with ``analyze``. Raises WatchError.
        """
        self.program = program or self.program
        # A call that is in flight in the reading may have returned when the reading has been analyzed.
        at_ns = time.monotonic_ns()
        self.read(progress)
        now_ns = time.monotonic_ns()
        analyzed = analyze or now_ns >= self._next_ns
        if analyzed:
            self._findings = self.findings()
            took_ns = time.monotonic_ns() - now_ns
            self._next_ns = now_ns + max(ANALYZE_NS, round(took_ns / _ANALYSIS_SHARE))
            self._rows.use(self._findings)
            if self.metrics_due and self.metrics is not None:
                # A full disk ends no watch; the last write says so.
                with suppress(FileNotWritten):
                    self.metrics.write(self._findings)
        if self.trial is not None:
            self.trial.look(self._findings, self._analysis.analysis)
        rows = self._rows.rows(self.processes, at_ns)
        self.moment = WatchMoment(at_ns, time.time(), self.program, self._findings, rows, self._rows.hidden)
        return analyzed

    def trace_of(self, call: TriggeringCall) -> Trace:
        """Trace of a slow call, with the events before and after it."""
        before_ns = min(max(call.duration_ns, _BEFORE_NS), _LONGEST_BEFORE_NS)
        after_ns = min(max(call.duration_ns, _AFTER_NS), _LONGEST_AFTER_NS)
        with self._lock:
            return self._counted(self.history.trace(max(call.begin_ns - before_ns, 0), call.end_ns + after_ns, call))

    def present_trace(self) -> Trace:
        """The trace of the last PRESENT_NS; its trigger is the newest slow call in it."""
        with self._lock:
            end_ns = self.history.last_ns
            begin_ns = max(end_ns - PRESENT_NS, 0)
            newest = next((call for call, _ in slow_calls(self._findings) if call.end_ns >= begin_ns), None)
            return self._counted(
                self.history.trace(begin_ns, end_ns, None if newest is None else TriggeringCall.of(newest))
            )

    def whole_trace(self) -> Trace:
        """The trace of everything that is kept."""
        with self._lock:
            return self._counted(self.history.trace())

    def _counted(self, trace: Trace) -> Trace:
        """``trace`` with the counters of its GPUs."""
        return trace.changed(counters=self._analysis.counters(trace.begin_ns, trace.end_ns))
