"""The command ``replay``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from stallprobes.errors import FileNotWritten
from stallscope.cli import options, output_files
from stallscope.cli.command import MeasuringCommand
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.stdout import Output

if TYPE_CHECKING:
    from stallprobes.recording.recording import Recording
    from stallprobes.watch.live.recording import WatchRecording


@click.command("replay", cls=MeasuringCommand)
@click.argument("file", type=options.INPUT_FILE)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write the report of a watched program as JSON (schema stallscope.watch/3), without a screen.",
)
@options.output_file(
    "--trace",
    metavar="OUT",
    help="Write the traces that the recording keeps to OUT for Perfetto or chrome://tracing, without a screen; "
    "compressed with gzip if OUT ends in .gz.",
)
@options.force()
@options.ascii_only
def command(file: Path, as_json: bool, trace: Path | None, force: bool, ascii_only: bool) -> None:
    """Show the recording FILE on the screen, with pause and seek. Needs no GPU.

    A damaged or truncated recording is shown or written up to that place; the exit code is then 5. --json takes a
    recording that "stallscope watch --record" made, and refuses one of probes with exit code 2.

    \b
    Examples:
      stallscope replay stall.rec
      stallscope replay stall.rec --trace stall.json.gz
      stallscope replay train.rec --json
    """
    from stallprobes.watch.live.recording import is_watch_recording
    from stallscope.cli import screen

    # With --force the recording would be lost.
    output_files.require_different({"FILE": file, output_files.TRACE: trace})
    watched = is_watch_recording(file)
    if as_json and not watched:
        _refuse_json(file)
    if not as_json and trace is None:
        diagnostics.exit_process(screen.run_replay(file, ascii_only, watched=watched))
    whole = True
    if trace is not None:
        whole = _write_trace(file, trace, force, watched)
    if as_json:
        whole = _write_json(file) and whole
    if not whole:
        diagnostics.exit_process(ExitCode.DAMAGED)


def _refuse_json(file: Path) -> NoReturn:
    """Raise CommandError with what replaces the JSON of probes, or RecordingError for a file that is no recording."""
    from stallprobes.recording.line_reader import RecordingLines

    RecordingLines(file).close()
    raise CommandError(
        ExitCode.USAGE,
        f"--json: {file} is not a file that `stallscope watch --record` wrote; `stallscope replay` without --json "
        "shows its verdicts, and `stallscope run --json` measures a pattern",
    )


def _write_json(file: Path) -> bool:
    """Write the report of a watched program; False if the recording is damaged or truncated. Raises RecordingError."""
    from stallprobes.watch.live.recording import WatchRecording
    from stallscope.cli.watching import replay

    with Progress() as progress:
        progress.part(1, 2)
        with contextlib.closing(WatchRecording(file, progress.shower(f"reading {file.name}"))) as recording:
            progress.part(2, 2)
            document = replay.document(recording, progress.shower("analyzing the program"))
    with Output() as out:
        out.json(document)
    if recording.damage is not None:
        diagnostics.print_message(f"{recording.damage}; everything before that place was read")
    elif recording.cut_off:
        diagnostics.print_message(f"{file} is damaged or truncated; everything before that place was read")
    return recording.damage is None and not recording.cut_off


def _write_trace(file: Path, path: Path, force: bool, watched: bool) -> bool:
    """Write the traces of the recording ``file`` to ``path``; False if some are missing at its end.

    Raises CommandError and RecordingError.
    """
    output_files.require_writable(output_files.TRACE, path, force)
    with Progress() as progress:
        progress.part(1, 2)
        reading = progress.shower(f"reading {file.name}")
        if watched:
            from stallprobes.watch.live.recording import WatchRecording
            from stallscope.cli.watching import replay

            watch, save, without = WatchRecording(file, reading), replay.save_traces, ": no call was slow"
            return _save_traces(watch, save, path, force, without, progress)
        from stallprobes.live import replay_trace
        from stallprobes.recording.recording import Recording

        recording, without = Recording(file, reading), "; record with --timeline"
        return _save_traces(recording, replay_trace.save, path, force, without, progress)


def _save_traces(
    recording: Recording | WatchRecording,
    save: Callable[..., int],
    path: Path,
    force: bool,
    without: str,
    progress: Progress,
) -> bool:
    """Write the traces by ``save``; False if the end of the recording is missing or damaged.

    ``without`` is why a complete recording has none.
    """
    from stallprobes.units import plural

    progress.part(2, 2)
    with contextlib.closing(recording):
        try:
            count = save(recording, path, force=force, progress=progress.shower(f"writing {path.name}"))
        except FileNotWritten as error:
            raise CommandError(ExitCode.USAGE, f"{output_files.TRACE}: {error}") from error
        except ValueError:
            why = " before the place where it is damaged or truncated" if recording.cut_off else without
            raise CommandError(ExitCode.USAGE, f"{output_files.TRACE}: {recording.path} has no trace{why}") from None
        cut_off = recording.cut_off
    diagnostics.print_message(f"{plural(count, 'trace')} written to {path}; open it in Perfetto or chrome://tracing")
    if cut_off:
        diagnostics.print_message(f"{recording.path} is damaged or truncated; what followed is missing")
    return not cut_off
