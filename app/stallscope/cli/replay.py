"""The command ``replay``."""

from __future__ import annotations

from pathlib import Path

import click

from stallscope.cli import diagnostics, options


@click.command("replay")
@click.argument("file", type=options.FILE)
@options.ascii_only
def command(file: Path, ascii_only: bool) -> None:
    """Show the recording FILE on the screen, with pause and seek. Needs no GPU.

    \b
    Example:
      stallscope replay stall.rec
    """
    from stallscope.cli import screen

    diagnostics.exit_process(screen.run_replay(file, ascii_only))
