"""The command ``settings``."""

from __future__ import annotations

import click

from stallscope.cli.command import CliCommand
from stallscope.cli.process.stdout import Output


@click.command("settings", cls=CliCommand)
def command() -> None:
    """Print the screen's settings file with every default. Its first lines name the path where it is read.

    \b
    Example:
      stallscope settings > ~/.config/stallscope/settings.toml
    """
    from stallscope.tui.settings import document

    with Output() as out:
        out.lines(document())
