"""Traces of a watched program for the timeline: those that were kept, and the present one."""

from __future__ import annotations

import contextlib
import time

from stallprobes.recording.observation import RecordedTrace
from stallprobes.traces.trace import Trace
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.trace_history import TriggeringCall

_MOST_TRACES = 64


class KeptTraces:
    """The traces of ``live``."""

    slow_calls_only = True
    problem: str | None = None

    def __init__(self, live: LiveProgram) -> None:
        self._live = live
        self._kept: list[Trace] = []
        # The number of the kept trace that a frozen view shows.
        self._shown: int | None = None

    def keep(self, call: TriggeringCall | None) -> None:
        """Keep the trace of a slow call, or the present one, also after the view is no longer frozen."""
        with contextlib.suppress(ValueError):
            self._kept.append(self._live.present_trace() if call is None else self._live.trace_of(call))
            del self._kept[:-_MOST_TRACES]
            self._shown = len(self._kept) - 1

    def show_present(self) -> None:
        """Let the timeline show the present trace."""
        self._shown = None

    @property
    def at_s(self) -> float:
        """The position: the present."""
        return 0.0 if self._live.moment is None else self._live.moment.seconds

    @property
    def traces(self) -> tuple[RecordedTrace, ...]:
        """The kept traces and the present one."""
        present_s = time.time() if self._live.moment is None else self._live.moment.wall_s
        ends_s = [*(trace.wall_s(trace.end_ns) for trace in self._kept), present_s]
        return tuple(RecordedTrace(number, wall_s, self.at_s) for number, wall_s in enumerate(ends_s))

    def nearest_trace(self, at_s: float) -> RecordedTrace | None:
        """The trace of the frozen view, else the present one."""
        traces = self.traces
        return traces[-1 if self._shown is None or self._shown >= len(traces) else self._shown]

    def trace(self, recorded: RecordedTrace) -> Trace | None:
        """A trace; the present one is cut anew."""
        if recorded.number < len(self._kept):
            return self._kept[recorded.number]
        return self._live.present_trace()
