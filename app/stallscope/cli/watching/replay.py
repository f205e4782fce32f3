"""Results of the recording of a watched program, without a screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stallprobes.traces import chrome
from stallprobes.traces.chrome import TitledTrace
from stallprobes.traces.summary import summary
from stallprobes.traces.trace import Trace
from stallprobes.units import duration_ns
from stallprobes.watch import report
from stallprobes.watch.live.recording import WatchRecording
from stallprobes.wording.watch_wording import still_running
from stallscope.cli.process.foreground import shell_exit_code


def document(recording: WatchRecording, progress: Callable[[float], None] = lambda _: None) -> dict[str, Any]:
    """The document of the program at the end of ``recording``. Raises RecordingError.

    ``progress`` is called with the share (0 to 1) of the moments that are read.
    """
    moment = recording.last(progress).moment
    program, code = moment.program, moment.program.exit_code
    problems = [f"Nothing was recorded: {program.problem}."] if program.problem else []
    if code is not None:
        problems += [still_running(process) for process in moment.findings.processes if not process.ended]
    exit_code = None if code is None else shell_exit_code(code)
    findings = moment.findings.with_problems(problems)
    return report.document(findings.changed(program=program.words or None, exit_code=exit_code))


def save_traces(
    recording: WatchRecording, path: Path, *, force: bool, progress: Callable[[float], None] = lambda _: None
) -> int:
    """Write all traces of ``recording`` to ``path`` for Perfetto; an existing file is replaced only with ``force``.

    ``progress`` is called with the share (0 to 1) of the traces that are read. Returns their number. Raises
    FileNotWritten, RecordingError, and ValueError without a trace.
    """
    recorded = recording.traces()
    if not recorded:
        raise ValueError("the recording has no trace")
    traces = []
    for moment in recorded:
        progress(moment.number / len(recorded))
        traces.append(recording.trace(moment.number))
    titled = [TitledTrace(trace, _title(trace) if len(traces) > 1 else "") for trace in traces]
    chrome.save(titled, path, {"watched": recording.at(0).moment.program.title}, force=force)
    return len(traces)


def _title(trace: Trace) -> str:
    trigger = summary(trace)
    return "" if trigger is None else f"{trigger.probe} {trigger.call} {duration_ns(trigger.ns)}"
