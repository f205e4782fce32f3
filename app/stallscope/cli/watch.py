"""The command ``watch``."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from stallprobes.errors import StallprobesError, reason_of
from stallscope.cli import command as cli_command
from stallscope.cli import options, output_files
from stallscope.cli.command import MeasuringCommand
from stallscope.cli.completion import completers
from stallscope.cli.process import diagnostics, foreground, limits
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.foreground import WatchExit
from stallscope.cli.process.stdout import ClosedPipeError

JSON, RECORD, TRACE, MATRIX = "--json", "--record", "--trace", "--matrix"
# Options of a program that watch starts itself.
_FOR_PROGRAMS = ("--headless", "--output")
# Of --json without a file.
_STDOUT = "-"
# Options of a process that runs already.
_FOR_PID = ("--seconds", "--children")
MAX_SECONDS = 86_400
DEFAULT_SLOW_US = 1000.0
DEFAULT_COST_PERCENT = 5.0
MAX_SLOW_US = 3_600_000_000


class WatchCommand(MeasuringCommand):
    """A command whose usage errors exit with a code that the program, which it may start, hardly has."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's. Raises CommandError (WatchExit.FAILED) for wrong arguments."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if ctx.resilient_parsing:
                raise
            raise _failed(cli_command.usage_sentence(error)) from error

    def invoke(self, ctx: click.Context) -> object:
        """As click's. Raises CommandError (WatchExit.FAILED) for any failure of the command itself."""
        try:
            return super().invoke(ctx)
        except CommandError as error:
            raise _failed(error.sentence) if isinstance(error.exit_code, ExitCode) else error from error
        except StallprobesError as error:
            raise _failed(reason_of(error)) from error
        except (click.ClickException, click.exceptions.Exit, ClosedPipeError, BrokenPipeError, ModuleNotFoundError):
            raise
        except Exception as error:
            if (why := diagnostics.shortage_behind(error)) is not None:
                raise _failed(why) from error
            # A defect in stallscope.
            traceback.print_exc()
            raise _failed("watch failed, as shown above") from error


@click.command("watch", cls=WatchCommand, context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, metavar="[PROGRAM...]", shell_complete=completers.files)
@click.option(
    JSON,
    "json_file",
    is_flag=False,
    flag_value=_STDOUT,
    type=options.OUTPUT_FILE,
    metavar="[FILE]",
    help="Also write the report, with all histograms, to FILE as JSON (schema stallscope.watch/3). Without PROGRAM and "
    "FILE: write the list of processes to stdout as JSON (schema stallscope.processes/1).",
)
@options.force()
@click.option(
    "--slow",
    "slow_us",
    type=options.number(float, 1, MAX_SLOW_US, "a number of microseconds"),
    metavar="US",
    help=f"Explain each call of at least US microseconds.  [default: {DEFAULT_SLOW_US:g}]",
)
@click.option(
    "--matrix",
    type=options.INPUT_FILE,
    metavar="FILE",
    help='A check of this machine ("stallscope check --save"): a call that stalls another one there is its cause, '
    "not only beside it.  [default: the reference of this GPU in the package, if any]",
)
@click.option(
    "--cost",
    "cost_percent",
    type=options.number(float, 0.1, 100, "a number of percent"),
    metavar="PERCENT",
    help="Record work of the GPU for as much of the time as costs the program PERCENT of its speed; 100: all of the "
    f"time.  [default: {DEFAULT_COST_PERCENT:g}]",
)
@click.option("--calls-only", is_flag=True, help="Record no work of the GPU: it costs less and explains less.")
@click.option(
    "--no-stacks",
    is_flag=True,
    help="Record no call stacks, and so no lines; they take up to 1 % of the program's time.",
)
@click.option(
    "--yield-to-profiler",
    is_flag=True,
    help="Release CUPTI when the program's own profiler begins; nothing is recorded from then on.",
)
@click.option("--headless", is_flag=True, help="Open no screen: the program has the terminal, as without watch.")
@click.option(
    "--output",
    type=options.OUTPUT_FILE,
    metavar="FILE",
    help="With the screen: write the program's output to FILE instead of a pane of the screen.",
)
@click.option(
    RECORD,
    "record",
    type=options.OUTPUT_FILE,
    metavar="FILE",
    help='Record what the screen shows to a new FILE for "stallscope replay", with traces of slow calls.',
)
@click.option(
    "--trace",
    type=options.OUTPUT_FILE,
    metavar="FILE",
    help="Write calls, GPU work and context switches to FILE for Perfetto or chrome://tracing; compressed with "
    "gzip if FILE ends in .gz.",
)
@click.option("--full", is_flag=True, help="Print slow calls one by one and the functions of each thread too.")
@click.option(
    "--print-env",
    is_flag=True,
    help="Start nothing: print, as exports for a shell, the environment of programs that are started elsewhere.",
)
@click.option(
    "--attach",
    type=options.INPUT_FILE,
    metavar="FOLDER",
    help="Start nothing: report what programs with the environment of --print-env wrote to FOLDER until now; with "
    "--record, record until they have ended, or until ctrl+c, and then report.",
)
@click.option(
    "--asleep",
    is_flag=True,
    help="With --print-env: nothing is recorded until --pid wakes the program, which needs no ptrace then.",
)
@click.option(
    "--pid",
    type=options.number(int, 1, 4_194_304, "the number of a process"),
    metavar="PID",
    help="Start nothing: attach to the process PID, which runs, and detach at the end (q, ctrl+c, SIGTERM).",
)
@click.option(
    "--seconds",
    type=options.number(float, 0.1, MAX_SECONDS, "a number of seconds"),
    metavar="S",
    help="With --pid: detach after S seconds.",
)
@click.option("--children", is_flag=True, help="With --pid: attach to the processes that it started too.")
@options.ascii_only
@click.pass_context
def command(
    context: click.Context,
    program: tuple[str, ...],
    json_file: Path | None,
    force: bool,
    slow_us: float | None,
    matrix: Path | None,
    cost_percent: float | None,
    calls_only: bool,
    no_stacks: bool,
    yield_to_profiler: bool,
    headless: bool,
    output: Path | None,
    record: Path | None,
    trace: Path | None,
    full: bool,
    print_env: bool,
    attach: Path | None,
    asleep: bool,
    pid: int | None,
    seconds: float | None,
    children: bool,
    ascii_only: bool,
) -> None:
    """Run PROGRAM with its arguments, and show its CUDA calls live and what each slow one waited for.

    Without PROGRAM, list the processes that use the GPUs, by NVML or by their open /dev/nvidia*, to attach one: enter
    does, with the other options. With --headless or --json, or without a terminal, the list is written to stdout.

    On a terminal it opens a screen with a pane for the program's output; its input is then empty. With --headless, or
    where stdin, stdout or stderr is no terminal, the program has its terminal, streams and signals as without watch,
    and the report goes to stderr whenever stallscope gets SIGUSR1. The report is also printed at the end. While it is
    watched, the program's own profiler finds CUPTI taken.

    If stallscope is killed (SIGKILL), the program continues. With the screen, the program can then write no more to
    the pane, and the command "reset" restores the terminal.

    With --pid the program runs already: a thread of it that sleeps loads the library, within milliseconds. At the end
    everything is switched off; the library stays in it, asleep, and the program's own profiler works again.

    Exits as the program does, and with 128 + N if signal N ended it; with 125 if watch itself fails, 126 if the program
    cannot be executed, 127 if it is not found. With --pid, exits with 0, or with 125 if it cannot be attached; without
    PROGRAM, also with 125 where there is neither NVML nor /dev/nvidia* to list processes by.

    \b
    Examples:
      stallscope watch
      stallscope watch python train.py
      stallscope watch --headless --json calls.json -- ./solver --steps 100
      stallscope watch --output train.log --trace calls.json.gz -- torchrun train.py
      stallscope watch --print-env > watch.env
      stallscope watch --attach /tmp/stallscope-watch-k3x9
      stallscope watch --pid 4711 --seconds 10 --headless --json calls.json
    """
    asked = {
        "--slow": slow_us is not None,
        "--cost": cost_percent is not None,
        "--calls-only": calls_only,
        "--no-stacks": no_stacks,
        "--yield-to-profiler": yield_to_profiler,
        "--headless": headless,
        "--output": output is not None,
        "--seconds": seconds is not None,
        "--children": children,
    }
    given = [name for name, is_given in asked.items() if is_given]
    no_screen = "" if headless else diagnostics.program_screen_obstacle() or limits.screen_shortage() or ""
    as_json = json_file == Path(_STDOUT)
    listed = not program and not print_env and attach is None and pid is None
    printed = listed and (headless or as_json or bool(no_screen))
    files_given = {JSON: None if listed and as_json else json_file, RECORD: record, TRACE: trace, MATRIX: matrix}
    _check_arguments(context, program, files_given, print_env, attach, given, pid, asleep, listed, printed)
    if printed:
        from stallscope.cli.watching import process_list

        process_list.print_list(as_json)
        return
    if calls_only and cost_percent is not None:
        raise _failed("--cost is for records of the GPU's work; --calls-only takes none")
    if headless and output is not None:
        raise _failed("--output is for the screen; with --headless redirect the program's output")
    text_to_stdout = attach is not None or pid is not None
    stdout_use = "the text goes to stdout" if text_to_stdout else "stdout belongs to the program"
    for option, path in ((JSON, json_file), (TRACE, trace), ("--output", output)):
        if path is not None:
            output_files.require_writable(option, path, force, stdout_use)
    if record is not None:
        output_files.require_new_file(RECORD, record)
    output_files.require_different({JSON: json_file, TRACE: trace, RECORD: record, "--output": output})
    if output is not None and no_screen:
        raise _failed(f"--output is for the screen, and {no_screen}")
    with foreground.held_signals():
        # It loads numpy, whose threads would otherwise take the signals that the main thread waits for.
        from stallscope.cli.watching import attached, session
        from stallscope.cli.watching.files import WatchFiles
    from stallprobes.watch.causes.known_stalls import stalls_of_this_machine
    from stallprobes.watch.environment import WatchOptions

    slow_ns = round((DEFAULT_SLOW_US if slow_us is None else slow_us) * 1000)
    files = WatchFiles(json_file, trace, record, output, force, full)
    known = None if print_env else stalls_of_this_machine(matrix)
    cost = (DEFAULT_COST_PERCENT if cost_percent is None else cost_percent) / 100
    chosen = WatchOptions(slow_ns, calls_only, yield_to_profiler, not no_stacks, cost, known)
    if attach is not None:
        session.show_folder(attach, files, known)
    elif print_env and asleep:
        session.print_asleep_environment(chosen)
    elif print_env:
        session.print_environment(chosen)
    elif pid is not None or listed:
        known_settings = None
        if not (headless or no_screen):
            from stallscope.cli import screen

            known_settings = screen.load_settings(ascii_only)
        if pid is None and known_settings is not None:
            from stallscope.cli.watching import process_list

            pid = process_list.choose(known_settings)
        assert pid is not None
        diagnostics.exit_process(
            attached.run_attached(pid, chosen, files, seconds, known_settings, children=children, no_screen=no_screen)
        )
    elif headless or no_screen:
        diagnostics.exit_process(session.run(program, chosen, files, no_screen))
    else:
        from stallscope.cli import screen
        from stallscope.cli.watching import program_screen

        diagnostics.exit_process(program_screen.run(program, chosen, files, screen.load_settings(ascii_only)))


def _check_arguments(
    context: click.Context,
    program: Sequence[str],
    files: Mapping[str, Path | None],
    print_env: bool,
    attach: Path | None,
    given: Sequence[str],
    pid: int | None,
    asleep: bool,
    listed: bool,
    printed: bool,
) -> None:
    """Raise CommandError for arguments that exclude each other.

    ``given`` are options of a program that is started or attached. ``listed``: there is none, so the processes that use
    GPUs are listed, to be ``printed`` or to choose one.
    """
    written = [option for option, path in files.items() if path is not None]
    for_programs = [option for option in given if option in _FOR_PROGRAMS]
    modes = [
        name
        for name, is_given in (("--print-env", print_env), ("--attach", attach is not None), ("--pid", pid is not None))
        if is_given
    ]
    mode = modes[0] if modes else ""
    for_pid = [option for option in given if option in _FOR_PID]
    if len(modes) > 1:
        problem = f"{modes[1]} and {modes[0]} exclude each other"
    elif asleep and not print_env:
        problem = "--asleep is for --print-env"
    elif asleep and given:
        problem = f"{given[0]} is for the recording, which --pid begins; give it to --pid"
    elif for_pid and pid is None and not listed:
        problem = f"{for_pid[0]} is for --pid"
    elif program and mode:
        problem = f"{mode} starts nothing, so it takes no PROGRAM"
    elif pid is not None and "--output" in given:
        problem = "--output is for a program that watch starts; --pid starts nothing"
    elif pid is not None and "--yield-to-profiler" in given:
        problem = "--yield-to-profiler takes effect when a program starts; --pid starts nothing"
    elif attach is not None and given and given[0] not in for_programs:
        problem = f"{given[0]} is for the recording, which --attach only reads; give it to --print-env"
    elif mode and for_programs and pid is None:
        problem = f"{for_programs[0]} is for a program that watch starts; {mode} starts nothing"
    elif print_env and written:
        problem = f"{written[0]} is for the report; give it to --attach"
    elif listed and (started := [option for option in given if option in ("--output", "--yield-to-profiler")]):
        problem = f"{started[0]} is for a program that watch starts, and PROGRAM... is missing"
    elif printed and (unused := [option for option in (*written, *given) if option != "--headless"]):
        # A script whose variable is empty must not take a list for its report.
        remedy = "; without FILE it is for the list" if unused[0] == JSON else ""
        problem = f"PROGRAM... is missing: {unused[0]} is for the report of a program{remedy}"
    else:
        return
    raise _failed(f"{problem}; see: {context.command_path} --help")


def _failed(sentence: str) -> CommandError:
    return CommandError(WatchExit.FAILED, sentence.rstrip("."))
