"""Results of the recording of a watched program, without a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stallscope.cli import output_files
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.foreground import shell_exit_code
from stallscope.cli.process.stdout import Output

if TYPE_CHECKING:
    from stallprobes.watch.live.recording import WatchRecording


def is_watch_recording(file: Path) -> bool:
    """Whether ``file`` is the recording of a watched program."""
    from stallprobes.watch.live import recording

    return recording.is_watch_recording(file)


def write_json(file: Path) -> None:
    """Write the document of the program. Raises CommandError."""
    from stallprobes.watch.document import document
    from stallprobes.wording.watch_wording import still_running

    with _opened(file) as recording:
        moment = recording.last().moment
        program, code = moment.program, moment.program.exit_code
        words: Sequence[str] | None = program.words or None
        problems = [f"Nothing was recorded: {program.problem}."] if program.problem else []
        if code is not None:
            problems += [still_running(one.name, one.pid) for one in moment.findings.processes if not one.ended]
        found = document(moment.findings, words, None if code is None else shell_exit_code(code), problems)
        cut_off = recording.cut_off
    out = Output()
    out.json(found)
    out.flush()
    if cut_off:
        diagnostics.print_message(f"{file} is damaged or truncated; everything before that place was read")


def write_trace(file: Path, path: Path, force: bool) -> None:
    """Write the traces of the recording ``file`` to ``path``. Raises CommandError."""
    output_files.require_writable(output_files.TRACE, path, force)
    from stallprobes.errors import FileNotWritten
    from stallprobes.traces import chrome
    from stallprobes.traces.chrome import TitledTrace
    from stallprobes.traces.summary import summary
    from stallprobes.units import duration_ns

    with _opened(file) as recording:
        traces = [recording.trace(one.number) for one in recording.traces()]
        program = recording.at(0).moment.program
        cut_off = recording.cut_off
        if not traces:
            why = " before the place where it is damaged or truncated" if cut_off else ": no call was slow"
            raise CommandError(ExitCode.USAGE, f"{output_files.TRACE}: {file} has no trace{why}")
        titled = []
        for trace in traces:
            found = summary(trace)
            title = "" if found is None or len(traces) == 1 else f"{found.probe} {found.call} {duration_ns(found.ns)}"
            titled.append(TitledTrace(trace, title))
        try:
            chrome.save(titled, path, {"watched": program.title}, force=force)
        except FileNotWritten as error:
            raise CommandError(ExitCode.USAGE, f"{output_files.TRACE}: {error}") from error
    count = "1 trace" if len(traces) == 1 else f"{len(traces)} traces"
    diagnostics.print_message(f"{count} written to {path}; open it in Perfetto or chrome://tracing")
    if cut_off:
        diagnostics.print_message(f"{file} is damaged or truncated; what followed is missing")


@contextmanager
def _opened(file: Path) -> Iterator[WatchRecording]:
    """The recording, open. Raises CommandError where it cannot be read."""
    from stallprobes.errors import RecordingError
    from stallprobes.watch.live.recording import WatchRecording

    try:
        recording = WatchRecording(file)
        try:
            yield recording
        finally:
            recording.close()
    except RecordingError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
