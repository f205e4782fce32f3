"""The traces of a recording or a watched program: which of them is shown, and why one cannot be."""

from __future__ import annotations

from stallscope.tui.sources.source import TraceSource
from stallscope.tui.timeline.cursor import TraceCursor
from stallscope.tui.timeline.trace_capture import TraceCapture


class RecordedTraces:
    """The traces that ``source`` has, recorded or kept; each method returns the cursor on the trace that is shown.

    ``number`` is that of the trace that is shown, None without one; ``problem`` says why it cannot be, "" if it can.
    """

    def __init__(self, source: TraceSource, capture: TraceCapture) -> None:
        self.number: int | None = None
        self.problem = ""
        self._source, self._capture = source, capture

    @property
    def slow_only(self) -> bool:
        """Whether calls that were not slow are missing, as in traces of a watched program."""
        return self._source.slow_calls_only

    @property
    def title(self) -> str:
        """Which of the traces is shown."""
        return "NO TRACE" if self.number is None else f"TRACE {self.number + 1}/{len(self._source.traces)}"

    def open(self, cursor: TraceCursor) -> TraceCursor:
        """Show the trace nearest to the position of the replay."""
        nearest = self._source.nearest_trace(self._source.at_s)
        return cursor if nearest is None else self._show(cursor, nearest.number)

    def step(self, cursor: TraceCursor, by: int) -> TraceCursor:
        """Show the trigger of the trace ``by`` places further, if there is one; 0 for the trace that is shown."""
        if self.number is None or not 0 <= self.number + by < len(self._source.traces):
            return cursor
        return self._show(cursor, self.number + by)

    def _show(self, cursor: TraceCursor, number: int) -> TraceCursor:
        self.number, self.problem = number, ""
        trace = self._source.trace(self._source.traces[number])
        if trace is None:
            self.problem = self._source.problem or ""
            return cursor.without_trace()
        return cursor.showing(trace, None).at_trigger(trace, self._capture.before)
