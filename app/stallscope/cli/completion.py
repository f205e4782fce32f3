"""The command ``completion``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stallscope.cli import completers
from stallscope.cli.command import COMPLETION_VARIABLE, CliCommand
from stallscope.cli.process.stdout import Output

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Shells for which click has a script.
_SHELLS = {"bash": "4.4 or newer", "zsh": "", "fish": ""}


def _shell(value: str) -> str:
    if value not in _SHELLS:
        raise click.BadParameter(f'"{value}" is not one of {", ".join(_SHELLS)}')
    return value


def _shells(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return completers.items(incomplete, _SHELLS)


@click.command("completion", cls=CliCommand)
@click.argument("shell", type=_shell, shell_complete=_shells)
@click.pass_context
def command(context: click.Context, /, shell: str) -> None:
    """Print a script by which SHELL completes commands, options, names and files.

    zsh needs FOLDER in fpath before compinit.

    \b
    Examples:
      stallscope completion bash > ~/.local/share/bash-completion/completions/stallscope
      stallscope completion fish > ~/.config/fish/completions/stallscope.fish
      stallscope completion zsh > FOLDER/_stallscope
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    with Output() as out:
        out.write(script(context.find_root().command, {}, "stallscope", COMPLETION_VARIABLE).source())
