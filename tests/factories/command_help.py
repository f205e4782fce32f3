"""The commands of ``stallscope`` with the context in which they run, and their help.

click keeps a command's help option as the first context asks for it: with another context than the program's, ``-h``
would be missing for the rest of the process.
"""

from __future__ import annotations

import click

from stallscope.cli.main import cli

GROUP = click.Context(cli, info_name="stallscope", **cli.context_settings)
COMMANDS = tuple(cli.list_commands(GROUP))


def command(name: str) -> click.Command:
    """The command of that name, ``stallscope`` itself for an empty name."""
    if not name:
        return cli
    found = cli.get_command(GROUP, name)
    assert found is not None
    return found


def help_text(name: str) -> str:
    """Help of a command, or of ``stallscope`` for an empty name."""
    if not name:
        return cli.get_help(GROUP)
    return command(name).get_help(click.Context(command(name), info_name=name, parent=GROUP))
