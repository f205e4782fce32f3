"""The command ``replay``."""

from __future__ import annotations

from pathlib import Path

import click

from stallscope.cli import diagnostics, options
from stallscope.cli.command import CliCommand
from stallscope.cli.diagnostics import CommandError, ExitCode
from stallscope.cli.stdout import Output


@click.command("replay", cls=CliCommand)
@click.argument("file", type=options.INPUT_FILE)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write the verdict log as JSON (schema stallscope.replay/1), without a screen.",
)
@options.ascii_only
def command(file: Path, as_json: bool, ascii_only: bool) -> None:
    """Show the recording FILE on the screen, with pause and seek. Needs no GPU.

    \b
    Examples:
      stallscope replay stall.rec
      stallscope replay stall.rec --json
    """
    if as_json:
        _write_json(file)
        return
    from stallscope.cli import screen

    diagnostics.exit_process(screen.run_replay(file, ascii_only))


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
        diagnostics.print_message(f"{file} is truncated; everything before the end was read")
