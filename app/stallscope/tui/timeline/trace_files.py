"""Files of a trace that the screen writes: text, SVG, and a trace for Perfetto."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path

from stallprobes.files import atomic
from stallprobes.traces import chrome
from stallprobes.traces.trace import Trace
from stallscope.report.trace_svg import trace_svg
from stallscope.report.trace_text import trace_text

FILE_NAME = "stallscope-trace-%Y%m%d-%H%M%S."
_COLUMNS = 120


class TraceFormat(StrEnum):
    """Format of a file; the value is the end of its name."""

    TEXT = "txt"
    SVG = "svg"
    CHROME = "json"

    @property
    def description(self) -> str:
        """The format in words."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    TraceFormat.TEXT: "text: the rows, the selected call, and the slowest calls",
    TraceFormat.SVG: "SVG: an image that a browser shows",
    TraceFormat.CHROME: "JSON: a Chrome trace, which Perfetto opens",
}


def export(trace: Trace, kind: TraceFormat, about: str, call: int | None, *, ascii_only: bool) -> str:
    """Write ``trace`` to a new file in the working directory, and return its name. Raises FileNotWritten.

    ``about`` says what was traced; ``call`` is the row of the call that is explained, None for the trigger's.
    """
    name = time.strftime(f"{FILE_NAME}{kind}")
    match kind:
        case TraceFormat.TEXT:
            text = trace_text(trace, width=_COLUMNS, ascii=ascii_only, title=about, call=call)
            atomic.write(Path(name), [text.encode()], force=False)
        case TraceFormat.SVG:
            atomic.write(Path(name), [trace_svg(trace, title=about, call=call).encode()], force=False)
        case TraceFormat.CHROME:
            chrome.save([chrome.TitledTrace(trace)], name, {"program": "stallscope", "traced": about})
    return name
