"""The traces of a recording or a watched program: which of them is shown, and why one cannot be."""

from __future__ import annotations

from stallscope.tui.sources.source import TraceSource
from stallscope.tui.timeline.cursor import TraceCursor
from stallscope.tui.timeline.trace_capture import TraceCapture


class RecordedTraces:
    """The traces that ``source`` has, recorded or kept; ``cursor`` shows one of them.

    ``number`` is that of the trace that is shown, None without one; ``problem`` says why it cannot be, "" if it can.
    """

    def __init__(self, source: TraceSource, capture: TraceCapture, cursor: TraceCursor) -> None:
        self.number: int | None = None
        self.problem = ""
        self._source, self._capture, self._cursor = source, capture, cursor

    @property
    def slow_only(self) -> bool:
        """Whether calls that were not slow are missing, as in traces of a watched program."""
        return self._source.slow_calls_only

    @property
    def title(self) -> str:
        """Which of the traces is shown."""
        return "NO TRACE" if self.number is None else f"TRACE {self.number + 1}/{len(self._source.traces)}"

    def open(self) -> None:
        """Show the trace nearest to the position of the replay."""
        nearest = self._source.nearest_trace(self._source.at_s)
        if nearest is not None:
            self._show(nearest.number)

    def return_to_trigger(self) -> None:
        """Show the trigger of the trace that is shown."""
        if self.number is not None:
            self._show(self.number)

    def step(self, by: int) -> None:
        """Show the trace ``by`` places further, if there is one."""
        if self.number is not None and 0 <= self.number + by < len(self._source.traces):
            self._show(self.number + by)

    def _show(self, number: int) -> None:
        self.number, self.problem = number, ""
        trace = self._source.trace(self._source.traces[number])
        if trace is None:
            self.problem = self._source.problem or ""
            self._cursor.clear()
        else:
            self._cursor.show(trace, None)
            self._cursor.move_to_trigger(trace, self._capture.before)
