"""The command ``watch``."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from stallprobes.errors import StallprobesError, reason_of
from stallscope.cli import command as cli_command
from stallscope.cli import completers, options, output_files
from stallscope.cli.command import MeasuringCommand
from stallscope.cli.output_files import PROMETHEUS
from stallscope.cli.process import diagnostics, foreground, limits
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.foreground import WatchExit
from stallscope.cli.process.stdout import ClosedPipeError

if TYPE_CHECKING:
    from stallprobes.watch.environment import WatchOptions
    from stallscope.cli.watching.files import WatchFiles

# Options of watch that name an output file.
JSON, RECORD, TRACE, OUTPUT, SAVE = "--json", "--record", "--trace", "--output", "--save"
# Option of watch that names aggressors.
BESIDE = "--beside"
# Largest number of runs of --repeat.
MAX_REPEAT = 1000
# Value of --json that stands for stdout.
_STDOUT = "-"
# Largest value (s) of --seconds: a day.
MAX_SECONDS = 86_400
# Default of --slow: shortest duration (µs) of a call for which watch says what the call waited for.
DEFAULT_SLOW_US = 1000.0
# Default of --cost: largest slowdown (%) of the watched program by the recording. If the recording of all GPU work
# would cost more, watch records GPU work only part of the time.
DEFAULT_COST_PERCENT = 5.0
# Default of --cost with --calls-only: largest slowdown (%) of the watched program by the recording of its calls. Once
# launches and other frequent calls cost more, watch no longer records these calls.
CALLS_ONLY_COST_PERCENT = 3.0
# Largest value (µs) of --slow: an hour.
MAX_SLOW_US = 3_600_000_000


@dataclass(frozen=True)
class WatchArguments:
    """Arguments of the command; a missing one is None, False, empty or its default.

    ``given`` are the options on the command line. ``no_screen``: why no screen can be opened, as a clause; "" if it
    can, or with ``headless``.
    """

    program: tuple[str, ...]
    json_file: Path | None
    force: bool
    slow_us: float
    matrix: Path | None
    cost_percent: float | None
    calls_only: bool
    no_stacks: bool
    yield_to_profiler: bool
    headless: bool
    output: Path | None
    record: Path | None
    trace: Path | None
    save: Path | None
    repeat: int | None
    prometheus: Path | None
    full: bool
    print_env: bool
    attach: Path | None
    asleep: bool
    pid: int | None
    seconds: float | None
    children: bool
    beside: tuple[str, ...]
    allow_shared: bool
    ascii_only: bool
    given: tuple[str, ...]
    no_screen: str

    @property
    def as_json(self) -> bool:
        """True if JSON goes to stdout."""
        return self.json_file == Path(_STDOUT)

    @property
    def listed(self) -> bool:
        """True if the processes that use GPUs are listed: no program is named."""
        return not self.program and not self.print_env and self.attach is None and self.pid is None

    @property
    def printed(self) -> bool:
        """True if the list of processes is written to stdout; else a process is chosen on a screen."""
        return self.listed and (self.headless or self.as_json or bool(self.no_screen))


# Options with which watch starts no program. Each of these options excludes the others.
_MODES = ("--print-env", "--attach", "--pid")
# Options of the report. A command without a report on a program refuses these options, for example --print-env.
_REPORT = (JSON, RECORD, TRACE, SAVE, PROMETHEUS, "--matrix")
# Options of the recording in the watched process. watch refuses these options with --attach, with --asleep, and for the
# printed list of processes. With --print-env, these options apply to the programs that get the printed environment.
_RECORDING = ("--slow", "--cost", "--calls-only", "--no-stacks", "--yield-to-profiler")
# Options for a program that watch starts. With --attach and --print-env, watch starts no program and refuses these
# options. With --pid, watch refuses only OUTPUT.
_STARTED = ("--headless", OUTPUT)
# Options for a process that runs already. These options are valid with --pid, and on the screen that lists processes
# (without PROGRAM).
_RUNNING = ("--seconds", "--children")
# Options of aggressors beside the program. They are refused where no program is watched, or where the program's work on
# the GPU, and with it its GPU, is not known.
_BESIDE = (BESIDE, "--allow-shared")
# Rules for the arguments: a condition, the options that the condition excludes, and the error message. ``{option}`` in
# the message is the first excluded option that was given. The first broken rule is reported.
_RULES: tuple[tuple[Callable[[WatchArguments], object], Collection[str], str], ...] = (
    (lambda given: given.print_env, _MODES[1:], "{option} and --print-env exclude each other"),
    (lambda given: given.attach, ("--pid",), "{option} and --attach exclude each other"),
    (lambda given: not given.print_env, ("--asleep",), "{option} is for --print-env"),
    (
        lambda given: given.asleep,
        (*_RECORDING, *_STARTED, *_RUNNING),
        "{option} is for the recording, which --pid begins; give it to --pid",
    ),
    (lambda given: given.pid is None and not given.listed, _RUNNING, "{option} is for --pid"),
    (lambda given: given.program, _MODES, "{option} starts nothing, so it takes no PROGRAM"),
    (lambda given: given.pid, (OUTPUT,), "{option} is for a program that watch starts; --pid starts nothing"),
    (
        lambda given: given.pid,
        ("--yield-to-profiler",),
        "{option} takes effect when a program starts; --pid starts nothing",
    ),
    (
        lambda given: given.attach,
        _RECORDING,
        "{option} is for the recording, which --attach only reads; give it to --print-env",
    ),
    (lambda given: given.attach, _STARTED, "{option} is for a program that watch starts; --attach starts nothing"),
    (
        lambda given: given.print_env,
        _STARTED,
        "{option} is for a program that watch starts; --print-env starts nothing",
    ),
    (lambda given: given.print_env, _REPORT, "{option} is for the report; give it to --attach"),
    (
        lambda given: given.listed,
        ("--yield-to-profiler", OUTPUT),
        "{option} is for a program that watch starts, and PROGRAM... is missing",
    ),
    # A script that passes an empty PROGRAM must get an error, not the list of processes in place of a report.
    (
        lambda given: given.printed,
        (JSON,),
        "PROGRAM... is missing: {option} is for the report of a program; without FILE it is for the list",
    ),
    (
        lambda given: given.printed,
        (*_REPORT, *_RECORDING, OUTPUT, *_RUNNING),
        "PROGRAM... is missing: {option} is for the report of a program",
    ),
    (lambda given: not given.program, ("--repeat",), "{option} is for a program that watch starts"),
    (lambda given: given.save is None, ("--repeat",), "{option} needs --save FILE for the runs"),
    (
        lambda given: given.repeat is not None,
        (JSON, RECORD, TRACE, OUTPUT, BESIDE),
        "{option} is for one run; with --repeat use --save",
    ),
    (
        lambda given: given.attach or given.print_env or given.printed,
        _BESIDE,
        "{option} is for a program that watch starts, or --pid",
    ),
    (
        lambda given: given.beside,
        (SAVE, "--repeat"),
        "{option} is for runs to compare; with --beside, aggressors make a run another one",
    ),
    (lambda given: given.calls_only, _BESIDE, "{option} needs records of the GPU's work: leave out --calls-only"),
    (
        lambda given: given.headless,
        (OUTPUT,),
        "{option} is for the screen; with --headless redirect the program's output",
    ),
)


def _aggressors(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """The aggressors that --beside names, each once. Raises click.BadParameter for one that may not run there."""
    from stallprobes.catalog import beside_programs

    able = beside_programs()
    names = value.split(",") if isinstance(value, str) else value
    if list(names) == ["all"]:
        return able
    for name in names:
        if name not in able:
            raise click.BadParameter(f'"{name}" is not all, nor one of: {", ".join(able)}')
    return tuple(dict.fromkeys(names))


class WatchCommand(MeasuringCommand):
    """A command that exits after usage errors with a code that the started program hardly has."""

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
    "FILE: write the list of processes to stdout as JSON (schema stallscope.processes/2).",
)
@options.force()
@click.option(
    "--slow",
    "slow_us",
    type=options.number(float, 1, MAX_SLOW_US, "a number of microseconds"),
    default=DEFAULT_SLOW_US,
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
    help="Record work of the GPU, and calls if these are many, for as much of the time as costs the program PERCENT of "
    f"its speed; 100: all of the time.  [default: {DEFAULT_COST_PERCENT:g}, with --calls-only "
    f"{CALLS_ONLY_COST_PERCENT:g}]",
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
@options.output_file(
    OUTPUT, help="With the screen: write the program's output to FILE instead of a pane of the screen."
)
@options.output_file(
    RECORD,
    "record",
    help='Record what the screen shows to a new FILE for "stallscope replay", with traces of slow calls.',
)
@options.output_file(
    TRACE,
    help="Write calls, GPU work and context switches to FILE for Perfetto or chrome://tracing; compressed with "
    "gzip if FILE ends in .gz.",
)
@options.output_file(
    SAVE, help="Append the report to FILE, compressed, for stallscope compare; a file holds several runs."
)
@click.option(
    "--repeat",
    type=options.number(int, 1, MAX_REPEAT, "a number of runs"),
    metavar="N",
    help="Run PROGRAM N times, one after the other and without a screen, each saved by --save; the first that fails "
    "is the last.",
)
@options.output_file(
    PROMETHEUS,
    help="Write metrics for node_exporter's textfile collector to FILE (NAME.prom), every 10 s and at the end: what "
    "bounds the program, the parts of its time, its steps, what watching costs.",
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
    help="Start nothing: attach to the process PID, which runs, and detach at the end (q, ctrl+c, SIGTERM). Its calls "
    "stay up to 1.3 µs longer after that, and launches of graphs up to 0.36 µs a node; with --calls-only mostly not.",
)
@click.option(
    "--seconds",
    type=options.number(float, 0.1, MAX_SECONDS, "a number of seconds"),
    metavar="S",
    help="With --pid: detach after S seconds.",
)
@click.option("--children", is_flag=True, help="With --pid: attach to the processes that it started too.")
@click.option(
    BESIDE,
    type=_aggressors,
    metavar="AGGRESSORS",
    default=(),
    shell_complete=completers.beside,
    help="Disturb the program: in turns of whole steps, run aggressors on its GPU in another process, and say what a "
    "step takes with and without each. AGGRESSORS are separated by commas, or all. Ranks of its job slow down too.",
)
@options.allow_shared
@options.ascii_only
@click.pass_context
def command(context: click.Context, /, **values: Any) -> None:
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
    everything is switched off; the library stays in it, asleep, and the program's own profiler works again: where
    another process shared its GPU, only if the program's libcupti is 13.1 or later.

    Exits as the program does, and with 128 + N if signal N ended it; with 125 if watch itself fails, 126 if the program
    cannot be executed, 127 if it is not found. With --pid, exits with 0, or with 125 if it cannot be attached; without
    PROGRAM, also with 125 where there is neither NVML nor /dev/nvidia* to list processes by.

    \b
    Examples:
      stallscope watch
      stallscope watch python train.py
      stallscope watch --headless --json calls.json -- ./solver --steps 100
      stallscope watch --output train.log --trace calls.json.gz -- torchrun train.py
      stallscope watch --repeat 3 --save before.runs -- python train.py
      stallscope watch --print-env > watch.env
      stallscope watch --attach /tmp/stallscope-watch-k3x9
      stallscope watch --pid 4711 --seconds 10 --headless --json calls.json
      stallscope watch --pid 4711 --headless --beside spin,d2h-pinned-large,dram
    """
    arguments = WatchArguments(
        **values,
        given=tuple(
            parameter.opts[-1]
            for parameter in context.command.params
            if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        ),
        no_screen=""
        if values["headless"] or values["repeat"]
        else diagnostics.program_screen_obstacle() or limits.screen_shortage() or "",
    )
    _check(arguments, f"; see: {context.command_path} --help")
    if arguments.printed:
        from stallscope.cli.watching import process_list

        process_list.print_list(arguments.as_json)
        return
    _check_files(arguments)
    with foreground.held_signals():
        # It loads numpy, whose threads would otherwise take the signals that the main thread waits for.
        from stallscope.cli.watching import session
        from stallscope.cli.watching.files import WatchFiles
    if arguments.save is not None:
        session.require_run_file(arguments.save)
    from stallprobes.watch.causes.known_stalls import stalls_of_this_machine
    from stallprobes.watch.environment import WatchOptions

    files = WatchFiles(
        arguments.json_file,
        arguments.trace,
        arguments.record,
        arguments.output,
        arguments.force,
        arguments.full,
        arguments.save,
        prometheus=arguments.prometheus,
    )
    known = None if arguments.print_env else stalls_of_this_machine(arguments.matrix)
    default_percent = CALLS_ONLY_COST_PERCENT if arguments.calls_only else DEFAULT_COST_PERCENT
    chosen = WatchOptions(
        slow_ns=round(arguments.slow_us * 1000),
        calls_only=arguments.calls_only,
        yield_to_profiler=arguments.yield_to_profiler,
        stacks=not arguments.no_stacks,
        cost=(default_percent if arguments.cost_percent is None else arguments.cost_percent) / 100,
        known=known,
    )
    if arguments.attach is not None:
        session.show_folder(arguments.attach, files, known)
    elif arguments.print_env and arguments.asleep:
        session.print_asleep_environment(chosen)
    elif arguments.print_env:
        session.print_environment(chosen)
    else:
        diagnostics.exit_process(_watch(arguments, chosen, files))


def _watch(arguments: WatchArguments, chosen: WatchOptions, files: WatchFiles) -> int:
    """Watch a started program, or a given or chosen process; the exit code."""
    from stallscope.cli.watching import session
    from stallscope.cli.watching.beside import trial_beside

    settings = None
    # Without a screen nobody could choose aggressors later; without records nothing is known of the GPU.
    headless = arguments.headless or bool(arguments.repeat) or bool(arguments.no_screen)
    trial = trial_beside(arguments.beside, arguments.allow_shared, headless, arguments.calls_only)
    if not headless:
        from stallscope.cli import screen

        settings = screen.load_settings(arguments.ascii_only)
    if arguments.pid is not None or arguments.listed:
        from stallscope.cli.watching import attached, process_list

        pid = arguments.pid
        if pid is None:
            assert settings is not None
            pid = process_list.choose(settings)
        return attached.run_attached(
            pid,
            chosen,
            files,
            arguments.seconds,
            settings,
            children=arguments.children,
            no_screen=arguments.no_screen,
            trial=trial,
        )
    if settings is None:
        return session.run(arguments.program, chosen, files, arguments.no_screen, arguments.repeat or 1, trial)
    from stallscope.cli.watching import program_screen

    return program_screen.run(arguments.program, chosen, files, settings, trial)


def _check(arguments: WatchArguments, see_help: str) -> None:
    """Raise CommandError for arguments that exclude each other, by the first broken rule."""
    # The list of processes is JSON too.
    listed_json = arguments.listed and arguments.as_json
    given = [option for option in arguments.given if option != JSON or not listed_json]
    for condition, refused, sentence in _RULES:
        if condition(arguments) and (broken := [option for option in given if option in refused]):
            raise _failed(sentence.format(option=broken[0]) + see_help)


def _check_files(arguments: WatchArguments) -> None:
    """Raise CommandError for files that cannot be written, or would get no content."""
    reports = arguments.attach is not None or arguments.pid is not None
    stdout_use = "the text goes to stdout" if reports else "stdout belongs to the program"
    files = {
        JSON: arguments.json_file,
        TRACE: arguments.trace,
        RECORD: arguments.record,
        OUTPUT: arguments.output,
        PROMETHEUS: arguments.prometheus,
    }
    for option, path in files.items():
        if path is not None and option != RECORD:
            output_files.require_writable(option, path, arguments.force, stdout_use)
    if arguments.record is not None:
        output_files.require_new_file(RECORD, arguments.record)
    if arguments.save is not None:
        # A run is added to the file; what the file holds is asked later.
        output_files.require_writable(SAVE, arguments.save, True, stdout_use)
    output_files.require_different({**files, SAVE: arguments.save})
    if arguments.output is not None and arguments.no_screen:
        raise _failed(f"{OUTPUT} is for the screen, and {arguments.no_screen}")


def _failed(sentence: str) -> CommandError:
    return CommandError(WatchExit.FAILED, sentence.rstrip("."))
