"""Traces of a recording as a file for Perfetto, decoded one after the other."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path

from stallprobes.machine.nvml import version_of
from stallprobes.recording.recording import Recording
from stallprobes.traces import chrome
from stallprobes.traces.chrome import TitledTrace
from stallprobes.traces.summary import summary
from stallprobes.traces.trace import Trace
from stallprobes.units import duration_ns


def save(
    recording: Recording, path: Path | str, *, force: bool = False, progress: Callable[[float], None] = lambda _: None
) -> int:
    """Write all traces of ``recording`` to ``path``; an existing file is replaced only with ``force``.

    ``progress`` is called with the share (0 to 1) of the traces that are written. Returns their number. Raises
    FileNotWritten, RecordingError for a damaged trace, and ValueError without a trace.
    """
    count = len(recording.traces())
    if not count:
        raise ValueError("the recording has no trace")
    chrome.save(_titled(recording, count, progress), path, _about(recording), force=force)
    return count


def _titled(recording: Recording, count: int, progress: Callable[[float], None]) -> Iterator[TitledTrace]:
    """The traces of a recording, decoded as they are taken: a file of an hour may have hundreds."""
    for number in range(count):
        progress(number / count)
        trace = recording.trace(number)
        yield TitledTrace(trace, _title(trace) if count > 1 else "")


def _title(trace: Trace) -> str:
    slow = summary(trace)
    at_s = trace.wall_s(trace.begin_ns) if slow is None else slow.wall_s
    at = datetime.datetime.fromtimestamp(at_s, datetime.UTC).strftime("%H:%M:%S")
    return at if slow is None else f"{at} {slow.probe} {duration_ns(slow.ns)}"


def _about(recording: Recording) -> dict[str, object]:
    """The file's description of the recording."""
    probe_set = next(recording.play()).probe_set
    begun = datetime.datetime.fromtimestamp(recording.begun_s, datetime.UTC)
    return {
        "program": f"stallscope {version_of('stallscope') or ''}".rstrip(),
        "backend": probe_set.backend,
        "gpu": [gpu.label for gpu in probe_set.gpus],
        "details": list(probe_set.details),
        "recorded_at": begun.isoformat(timespec="milliseconds"),
        "patterns": [probe_set.title],
    }
