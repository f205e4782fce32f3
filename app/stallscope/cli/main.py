"""The command group ``stallscope``: its commands by section, error handling and exit codes.

A command's module is imported when the command is used, so that ``--help`` and ``--version`` load no command.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from stallscope.cli import diagnostics, options, streams
from stallscope.cli.diagnostics import CommandError, ExitCode
from stallscope.cli.options import SimulationOptions
from stallscope.cli.stdout import ClosedPipeError


@dataclass(frozen=True)
class CommandEntry:
    """A command's name, its line in the help of ``stallscope``, and the module with its ``command``."""

    name: str
    summary: str
    module: str = ""

    def load(self) -> click.Command:
        """Import the module and return its command."""
        command: click.Command = import_module(f"stallscope.cli.{self.module or self.name}").command
        return command


SECTIONS = {
    "Screen": (
        CommandEntry("replay", "Show a recording on the screen."),
        CommandEntry("settings", "Print the settings file with every default.", "settings_file"),
    ),
    "Measure": (
        CommandEntry("run", "Measure patterns or probes on a GPU."),
        CommandEntry("record", "Record a pattern's variant without the screen."),
    ),
    "Check": (
        CommandEntry("check", "Measure which call stalls with which aggressor."),
        CommandEntry("compare", "Compare two saved checks."),
        CommandEntry("show", "Show a saved check as a table, HTML page or JSON."),
    ),
    "Fleet": (
        CommandEntry("merge", "Merge saved checks of several machines and name outliers."),
        CommandEntry("fleet", "Print a job file for Slurm, Kubernetes or Ansible."),
    ),
    "Information": (
        CommandEntry("list", "List patterns, variants, probes and simulated GPUs.", "list_probes"),
        CommandEntry("explain", "Explain a pattern or probe."),
        CommandEntry("doctor", "Diagnose driver, CUDA and host setup."),
    ),
}

_ENTRIES = {entry.name: entry for entries in SECTIONS.values() for entry in entries}
_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {int(code):<4} {meaning}" for code, meaning in diagnostics.EXIT_CODE_MEANINGS.items()
)


class CommandGroup(click.Group):
    """Group that loads the commands of SECTIONS on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order of the help."""
        return list(_ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, loaded; None if there is none."""
        entry = _ENTRIES.get(cmd_name)
        return None if entry is None else entry.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, but an unknown command raises CommandError with the nearest name."""
        if args and not args[0].startswith("-") and args[0] not in _ENTRIES:
            from stallprobes.patterns.naming import unknown_name_message

            raise CommandError(ExitCode.USAGE, unknown_name_message("command", args[0], _ENTRIES))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, in one column width."""
        width = max(map(len, _ENTRIES))
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(entry.name.ljust(width), entry.summary) for entry in entries])


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=_EXIT_CODES,
)
@click.version_option(package_name="stallscope", message="%(prog)s %(version)s")
@options.gpu(f"GPU of the screen: {options.GPU_NAMES}.")
@options.simulation
@click.option("--record", type=options.FILE, metavar="FILE", help="Record the measurements to FILE.")
@options.allow_shared
@options.together
@options.ascii_only
@click.pass_context
def cli(
    context: click.Context,
    gpu: str | None,
    simulation: SimulationOptions,
    record: Path | None,
    allow_shared: bool,
    together: bool,
    ascii_only: bool,
) -> None:
    """Oscilloscope for CUDA concurrency stalls.

    Without a command, stallscope opens the live screen: probes make CUDA calls, each call's latency enters a
    histogram, and a verdict names the call that stalls, its ratio to the baseline, and the cause. Without a usable
    GPU, the screen uses a simulated GPU and says so.

    \b
    Examples:
      stallscope
      stallscope --sim
      stallscope run secondary-context-d2d
      stallscope check --save before.json
    """
    if context.invoked_subcommand is not None:
        given = [name for name, value in context.params.items() if value]
        if given:
            name = "--" + given[0].removesuffix("_only").replace("_", "-")
            raise CommandError(
                ExitCode.USAGE, f"{name} before a command applies to the screen only; place it after the command"
            )
        return
    options.reject_two_gpus(gpu, simulation)
    session = replace(simulation.session_options(), together=together)
    from stallscope.cli import screen

    diagnostics.exit_process(screen.run_live(gpu, session, allow_shared, record, ascii_only))


@streams.guarded_streams()
def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line with ``arguments``, by default those of the process. Ends the process with an ExitCode."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # click's own main has different exit codes (1 for a closed pipe).
        with cli.make_context("stallscope", given) as context:
            cli.invoke(context)
        code = int(ExitCode.SUCCESS)
    except click.exceptions.Exit as finished:
        code = finished.exit_code
    except click.ClickException as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "stallscope")
        diagnostics.print_message(f"{error.format_message()} Try: {command} --help")
        code = ExitCode.USAGE
    except CommandError as error:
        diagnostics.print_message(error.sentence)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        diagnostics.print_message("interrupted")
        code = ExitCode.INTERRUPTED
    except (ClosedPipeError, BrokenPipeError):
        _end_by_broken_pipe()
    except ModuleNotFoundError as error:
        diagnostics.print_message(f"the Python package {error.name} is missing; reinstall stallscope")
        code = ExitCode.FAILED
    except Exception:  # a defect in stallscope
        # Python's own exit code for this is 1, which here means a regression.
        traceback.print_exc()
        code = ExitCode.FAILED
    diagnostics.exit_process(code)


def _end_by_broken_pipe() -> NoReturn:
    # As other commands in a pipe: the shell sees SIGPIPE and prints nothing.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise AssertionError("unreachable: the default action of SIGPIPE ends the process")
