"""The command ``replay``."""

from __future__ import annotations

from pathlib import Path

import click

from stallscope.cli import options, output_files
from stallscope.cli.command import CliCommand
from stallscope.cli.completion import completers
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.stdout import Output


@click.command("replay", cls=CliCommand)
@click.argument("file", type=options.INPUT_FILE)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write the verdict log and the list of traces as JSON (schema stallscope.replay/1), without a screen.",
)
@click.option(
    "--trace",
    type=options.OUTPUT_FILE,
    shell_complete=completers.files,
    metavar="OUT",
    help="Write the traces that the recording keeps to OUT for Perfetto or chrome://tracing, without a screen; "
    "compressed with gzip if OUT ends in .gz.",
)
@options.force()
@options.ascii_only
def command(file: Path, as_json: bool, trace: Path | None, force: bool, ascii_only: bool) -> None:
    """Show the recording FILE on the screen, with pause and seek. Needs no GPU.

    Of a recording that "stallscope watch --record" made, --json writes the report of the program (schema
    stallscope.watch/1).

    \b
    Examples:
      stallscope replay stall.rec
      stallscope replay stall.rec --json
      stallscope replay stall.rec --trace stall.json.gz
    """
    from stallscope.cli import screen
    from stallscope.cli.watching import replay

    # With --force the recording would be lost.
    output_files.require_different({"FILE": file, output_files.TRACE: trace})
    watched = replay.is_watch_recording(file)
    if trace is not None:
        (replay.write_trace if watched else _write_trace)(file, trace, force)
    if as_json:
        (replay.write_json if watched else _write_json)(file)
    if as_json or trace is not None:
        return
    diagnostics.exit_process(screen.run_replay(file, ascii_only, watched=watched))


def _write_json(file: Path) -> None:
    """Write the document of the recording. Raises CommandError."""
    from stallprobes.errors import RecordingError
    from stallprobes.live import replay_document

    try:
        found = replay_document.document(file)
    except RecordingError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    out = Output()
    out.json(found)
    out.flush()
    if found["cut_off"]:
        diagnostics.print_message(f"{file} is damaged or truncated; everything before that place was read")


def _write_trace(file: Path, path: Path, force: bool) -> None:
    """Write the traces of the recording ``file`` to ``path``. Raises CommandError."""
    output_files.require_writable(output_files.TRACE, path, force)
    from stallprobes.errors import FileNotWritten, RecordingError
    from stallprobes.live import replay_trace
    from stallprobes.recording.recording import Recording

    try:
        recording = Recording(file)
        try:
            count = replay_trace.save(recording, path, force=force)
            cut_off = recording.cut_off
        except ValueError:
            without = "has no trace before the place where it is damaged or truncated" if recording.cut_off else ""
            sentence = f"{output_files.TRACE}: {file} {without or 'has no trace; record with --timeline'}"
            raise CommandError(ExitCode.USAGE, sentence) from None
        finally:
            recording.close()
    except FileNotWritten as error:
        raise CommandError(ExitCode.USAGE, f"{output_files.TRACE}: {error}") from error
    except RecordingError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    traces = "1 trace" if count == 1 else f"{count} traces"
    diagnostics.print_message(f"{traces} written to {path}; open it in Perfetto or chrome://tracing")
    if cut_off:
        diagnostics.print_message(f"{file} is damaged or truncated; what followed is missing")
