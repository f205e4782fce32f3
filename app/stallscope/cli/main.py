"""The command group ``stallscope``: its commands by section, error handling and exit codes.

A command's module is imported when the command is used, so that ``--help`` and ``--version`` load no command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from stallscope.cli import command, options
from stallscope.cli.command import COMPLETION_VARIABLE, CliCommand
from stallscope.cli.options import SimulationOptions
from stallscope.cli.process import diagnostics, signals, streams
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.stdout import ClosedPipeError, Output

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Commands with their lines in the help, in its order, by section.
SECTIONS = {
    "Screen": {
        "demo": "Show every pattern on the screen, step by step.",
        "replay": "Show a recording on the screen.",
        "settings": "Print the settings file with every default.",
    },
    "Measure": {
        "run": "Measure patterns or probes on a GPU.",
        "record": "Record a pattern's variant without the screen.",
        "watch": "Run a program and explain its slow CUDA calls.",
    },
    "Check": {
        "check": "Measure which call stalls with which aggressor.",
        "compare": "Compare two saved checks, or runs of a program.",
        "calibrate": "Measure what this GPU reaches, for the limits of watch.",
        "show": "Show a saved check as a table, HTML page or JSON.",
    },
    "Fleet": {
        "merge": "Merge saved checks of several machines and name outliers.",
        "fleet": "Print a job file for many machines, or its image.",
    },
    "Information": {
        "list": "List patterns, variants, probes and simulated GPUs.",
        "explain": "Explain a pattern or probe.",
        "doctor": "Diagnose driver, CUDA and host setup.",
        "completion": "Print a script for bash, zsh or fish.",
    },
}

# Module of a command that has not the name of its module: a module called ``list`` would hide Python's.
MODULES = {"list": "list_probes"}
# Lines in the help, by command.
_SUMMARIES = {name: summary for commands in SECTIONS.values() for name, summary in commands.items()}
# Paragraph of the help about exit codes.
_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {int(code):<4} {meaning}" for code, meaning in diagnostics.EXIT_CODE_MEANINGS.items()
)


class CommandGroup(CliCommand, click.Group):
    """Group that loads the commands of SECTIONS on demand, and passes its own options to them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order of the help."""
        return list(_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, loaded; None if there is none."""
        return _command(cmd_name) if cmd_name in _SUMMARIES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the options before the command as its first arguments.

        Raises CommandError for an unknown command, with a similar one, and for an option that the command does not
        have.
        """
        if not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in _SUMMARIES:
            raise CommandError(ExitCode.USAGE, _unknown_command(args, ctx.params.get("sim")))
        name, resolved, rest = super().resolve_command(ctx, args)
        if resolved is None:
            return name, resolved, rest
        return name, resolved, [*_passed_on(ctx, resolved), *rest]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, but a command after ``--sim`` is a command and no profile."""
        return super().parse_args(ctx, _with_default_profile(self, args))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands with their summaries, without loading them; options for a word that begins one."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(name, help=summary) for name, summary in _SUMMARIES.items() if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, in one column width."""
        width = max(map(len, _SUMMARIES))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in commands.items()])


def _command(name: str) -> click.Command:
    """The command ``name``, whose module is imported."""
    loaded: click.Command = import_module(f"stallscope.cli.{MODULES.get(name, name)}").command
    return loaded


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=_EXIT_CODES,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _option, asked: _print_version(context, asked),
    help="Show the version and exit.",
)
@options.gpu(f"GPU of the screen: {options.GPU_NAMES}.")
@options.simulation
@options.record
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
      stallscope watch python train.py
      stallscope run secondary-context-d2d
      stallscope check --save before.json
    """
    if context.invoked_subcommand is not None:
        # The command has its options.
        return
    session = simulation.session_options(gpu, together=together)
    from stallscope.cli import screen

    def attach(pid: int) -> int:
        return _watch_process(context, pid, ascii_only)

    diagnostics.exit_process(screen.run_live(session, allow_shared, record, ascii_only, attach=attach))


@streams.guarded_streams()
def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line with ``arguments``, by default those of the process. Ends the process with an ExitCode."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    signals.wait_for_children()
    try:
        with signals.CommandSignals() as received:
            code = _run(given, received)
            if received.interrupted:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        diagnostics.print_message("interrupted")
        code = ExitCode.INTERRUPTED
    if code == ExitCode.INTERRUPTED:
        signals.after_interrupt()
    diagnostics.exit_process(code)


def _run(arguments: list[str], received: signals.CommandSignals) -> int:
    """Run the command line and return the exit code. Raises KeyboardInterrupt."""
    instruction = os.environ.get(COMPLETION_VARIABLE)
    try:
        if instruction:
            return _complete(instruction)
        # click's own main has different exit codes (1 for a closed pipe).
        with cli.make_context("stallscope", arguments) as context:
            cli.invoke(context)
    except click.exceptions.Exit as finished:
        return finished.exit_code
    except SystemExit as finished:
        return int(finished.code or 0)
    except click.ClickException as error:
        diagnostics.print_message(command.usage_sentence(error))
        return ExitCode.USAGE
    except CommandError as error:
        diagnostics.print_message(error.sentence)
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except (ClosedPipeError, BrokenPipeError):
        _end_by_broken_pipe()
    except MemoryError as error:
        diagnostics.print_message(diagnostics.shortage_behind(error) or "too little memory")
        return ExitCode.FAILED
    except ModuleNotFoundError as error:
        if not received.interrupted:
            diagnostics.print_message(f"the Python package {error.name} is missing; reinstall stallscope")
        return ExitCode.FAILED
    except Exception as error:
        # Not loaded for a command that ends without an error, such as --help.
        from stallprobes.errors import StallprobesError

        # Without a sentence it is a defect of stallscope, unless an interrupt has become another exception. Python's
        # own exit code for this is 1, which here means a regression.
        if isinstance(error, StallprobesError) or not received.interrupted:
            diagnostics.print_failure(error)
        return error.exit_code if isinstance(error, StallprobesError) else ExitCode.FAILED
    return ExitCode.SUCCESS


def _complete(instruction: str) -> ExitCode:
    """Write the script or the words for which a shell asks. Raises CommandError for any other request."""
    from click import shell_completion

    name, _, what = instruction.partition("_")
    shell = shell_completion.get_completion_class(name)
    if shell is None or what not in ("source", "complete"):
        values = "bash_source, fish_source, zsh_source"
        sentence = f"{COMPLETION_VARIABLE}={instruction} asks for no completion script; use {values}"
        raise CommandError(ExitCode.USAGE, sentence)
    answers = shell(cli, {}, "stallscope", COMPLETION_VARIABLE)
    with Output() as out:
        if what == "source":
            out.write(answers.source())
            return ExitCode.SUCCESS
        words, last = answers.get_completion_args()
        # zsh would replace all of --option=value with the value. bash divides that, and victim@context, into words.
        if not (last.startswith("-") and "=" in last) and words[-1:] not in (["="], ["@"]):
            out.write(f"{answers.complete()}\n")
    return ExitCode.SUCCESS


def _watch_process(context: click.Context, pid: int, ascii_only: bool) -> int:
    """Run ``stallscope watch --pid`` and return its exit code."""
    watch = _command("watch")
    words = ["--pid", str(pid), *(["--ascii"] if ascii_only else [])]
    with watch.make_context("watch", words, parent=context) as own:
        try:
            watch.invoke(own)
        except SystemExit as finished:
            return int(finished.code or 0)
    return ExitCode.SUCCESS


def _print_version(context: click.Context, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from stallprobes import version

        commit = version.commit()
        command.print_and_exit(context, f"stallscope {version.number()}" + (f" ({commit})" if commit else ""))


def _unknown_command(words: Sequence[str], profile: Any) -> str:
    """Sentence for the command line ``words``, which begins with no command.

    ``profile`` is the word before it, which --sim took for its profile. A program is proposed as one to watch.
    """
    from stallprobes.patterns.naming import unknown_name_message

    if isinstance(profile, str) and not options.is_profile(profile):
        from stallprobes.engine.sim import profile as profiles

        return unknown_name_message("profile or command", profile, [*profiles.names(), *_SUMMARIES])
    program = _program(words)
    if program:
        return f'there is no command "{words[0]}"; did you mean `stallscope watch {shlex.join(program)}`?'
    return unknown_name_message("command", words[0], _SUMMARIES)


def _program(words: Sequence[str]) -> Sequence[str]:
    """``words`` as a command line that starts a program; empty if their first is neither a program nor in Python."""
    name = words[0]
    if shutil.which(name) is not None:
        return words
    if shutil.which(f"./{name}") is not None:
        return (f"./{name}", *words[1:])
    return ("python", *words) if name.endswith(".py") else ()


def _with_default_profile(group: click.Group, arguments: list[str]) -> list[str]:
    """``arguments`` with the default profile for a ``--sim`` that a command follows."""
    takes_value = {
        name
        for option in group.params
        if isinstance(option, click.Option) and not option.is_flag
        for name in option.opts
    }
    for at, (word, following) in enumerate(pairwise(arguments)):
        if word == options.SIM and following in _SUMMARIES:
            return [*arguments[:at], f"{options.SIM}={options.DEFAULT_PROFILE}", *arguments[at + 1 :]]
        value_of_option = at > 0 and arguments[at - 1] in takes_value
        if not word.startswith("-") and not value_of_option:
            break
    return arguments


def _passed_on(context: click.Context, target: click.Command) -> list[str]:
    """The options before the command ``target``, as arguments of it. Raises CommandError for an option that it does not
    have."""
    words = []
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if not isinstance(option, click.Option) or source is not click.core.ParameterSource.COMMANDLINE:
            continue
        value = context.params.get(option.name or "")
        name = option.opts[-1] if option.opts[-1].startswith("--") else option.opts[0]
        if not context.resilient_parsing and not any(name in parameter.opts for parameter in target.params):
            raise CommandError(
                ExitCode.USAGE, f"{target.name} has no option {name}; see: stallscope {target.name} --help"
            )
        values = value if isinstance(value, tuple) else (value,)
        words += [name] if option.is_flag else [f"{name}={part}" for part in values]
    return words


def _end_by_broken_pipe() -> NoReturn:
    # As other commands in a pipe: the shell sees SIGPIPE and prints nothing.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise AssertionError("unreachable: the default action of SIGPIPE ends the process")
