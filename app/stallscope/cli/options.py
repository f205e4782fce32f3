"""Options shared by several commands, and the checks of their values."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stallscope.cli import completers
from stallscope.cli.process.diagnostics import CommandError, ExitCode

if TYPE_CHECKING:
    from stallprobes.engine.backend import Options

# Option that simulates a GPU.
SIM = "--sim"
# Simulated GPU for --sim without a value.
DEFAULT_PROFILE = "h200"
# Seed of the simulation, without --sim-seed.
DEFAULT_SEED = 1
# Largest seed. Reason: a seed must fit into 64 bits with a sign.
MAX_SEED = 2**63 - 1

# Smallest value (s) of --seconds. A shorter measurement cannot have the verdict "starved", which means fewer than 3
# calls in at least half a second.
MIN_SECONDS = 0.5
# Largest value (s) of --seconds: an hour.
MAX_SECONDS = 3600

# Default of --trace-seconds: length (s) of the trace that --trace writes of each variant of a pattern. The trace
# ends when the variant's aggressors are switched off.
DEFAULT_TRACE_SECONDS = 10.0
# Smallest value (s) of --trace-seconds.
MIN_TRACE_SECONDS = 0.01
# Largest value (s) of --trace-seconds.
MAX_TRACE_SECONDS = 60
# Words for the expected value in the error message of an option that takes seconds.
_SECONDS = "a number of seconds"

# Words for the values that --gpu accepts, in its help texts.
GPU_NAMES = "index as in nvidia-smi, UUID or PCI address"

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Function = Callable[..., Any]
_Decorator = Callable[[_Function], _Function]
_Number = TypeVar("_Number", int, float)

# Conversions of values. Of a ValueError, click before 8.4 shows the value in place of the message.


def number(kind: Callable[[Any], _Number], least: int | float, most: int, what: str) -> Callable[[Any], _Number]:
    """A conversion to a number from ``least`` to ``most``; ``what`` names such numbers.

    click.FloatRange accepts NaN, and names no range for a word that is no number.
    """

    def convert(value: Any) -> _Number:
        with suppress(ValueError):
            if least <= (converted := kind(value)) <= most:
                return converted
        raise click.BadParameter(f'"{value}" is not {what} from {least} to {most}')

    return convert


def gpm_counters() -> bool:
    """True if the settings let NVML's GPM counters be read. Raises SettingsError for an invalid file."""
    from stallscope.tui import settings

    return settings.load().gpm_counters


class _OutputFile(click.Path):
    """A file that is written: one without a name, and a folder, are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path of the file. Raises click.BadParameter."""
        from stallprobes.errors import FileNotWritten
        from stallprobes.files import atomic

        try:
            return atomic.named_file(os.fspath(value))
        except FileNotWritten as error:
            self.fail(str(error), param, ctx)


class _InputFile(click.Path):
    """A file that is read: one without a name is refused, and whoever reads it says why it cannot be read."""

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of the file. Raises click.BadParameter."""
        if not os.fspath(value):
            self.fail("the name is empty", param, ctx)
        if os.fspath(value) == "-" and not os.path.lexists("-"):
            self.fail("there is no file -; for standard input name /dev/stdin", param, ctx)
        return super().convert(value, param, ctx)


# Type of an option or argument that names a file to read.
INPUT_FILE = _InputFile()
# Type of an option or argument that names a file to write.
OUTPUT_FILE = _OutputFile()


@dataclass(frozen=True)
class SimulationOptions:
    """Values of --sim, --sim-seed and --sim-set as given. ``profile`` is None without --sim."""

    profile: str | None
    seed: int | None = None
    settings: tuple[str, ...] = ()

    def session_options(self, gpu: str | None, *, timeline: bool = False, together: bool = False) -> Options:
        """Options of an engine session, for the --gpu that is given.

        Raises ProfileError for a wrong profile or setting, CommandError for one without --sim, and for both GPUs.
        """
        from stallprobes.engine.backend import Options
        from stallprobes.engine.sim import profile

        if self.profile is None:
            for name, given in (("--sim-seed", self.seed is not None), ("--sim-set", bool(self.settings))):
                if given:
                    raise CommandError(ExitCode.USAGE, f"{name} applies to the simulated GPU only; add --sim")
            return Options(gpu=gpu, timeline=timeline, together=together)
        if gpu is not None:
            both = "--gpu selects a real GPU and --sim a simulated one; use only one of them"
            raise CommandError(ExitCode.USAGE, both)
        settings = dict(profile.parse_setting(setting) for setting in self.settings)
        profile.load(self.profile, settings)
        seed = DEFAULT_SEED if self.seed is None else self.seed
        return Options(profile=self.profile, seed=seed, sim_set=settings, timeline=timeline, together=together)


def profile(help_: str) -> Callable[[_Command], _Command]:
    """The option --sim alone, as ``sim``: None without it, DEFAULT_PROFILE for --sim without a value."""
    return click.option(
        SIM,
        is_flag=False,
        flag_value=DEFAULT_PROFILE,
        shell_complete=completers.profiles,
        metavar="[PROFILE]",
        help=help_,
    )


def seed(name: str, help_: str, default: int | None = None) -> Callable[[_Command], _Command]:
    """An option for a seed from 0 to MAX_SEED."""
    return click.option(
        name,
        type=number(int, 0, MAX_SEED, "a whole number"),
        default=default,
        show_default=True,
        metavar="N",
        help=help_,
    )


def simulation(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --sim, --sim-seed and --sim-set; ``command`` gets them as ``simulation``, a SimulationOptions."""

    @profile(f"Use a simulated GPU, by default {DEFAULT_PROFILE}. PROFILE is a name of `stallscope list`.")
    @seed("--sim-seed", f"Seed of the simulation.  [default: {DEFAULT_SEED}]")
    @click.option(
        "--sim-set",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one profile parameter; repeatable. Example: timeslice_us=4000. "
        "`stallscope list --sim` lists the parameters.",
    )
    @functools.wraps(command)
    def wrapper(*args: Any, sim: str | None, sim_seed: int | None, sim_set: Sequence[str], **others: Any) -> Any:
        return command(*args, simulation=SimulationOptions(sim, sim_seed, tuple(sim_set)), **others)

    return wrapper


def gpu(help_: str = f"GPU to use: {GPU_NAMES}; separate two with a comma.") -> Callable[[_Command], _Command]:
    """The option --gpu."""
    return click.option("--gpu", metavar="GPU", help=help_)


allow_shared = click.option(
    "--allow-shared", is_flag=True, help="Run even if other processes use the GPU (disturbs them)."
)
together = click.option(
    "--together",
    is_flag=True,
    help="Run victims of different contexts at the same time instead of in slots; they then wait for each other's "
    "change-over.",
)
timeline = click.option(
    "--timeline",
    is_flag=True,
    help="Measure the start on the GPU and the time there too (phases start and gpu, by CUPTI); each call then takes 1 "
    "to 10 µs longer.",
)


def output_file(*names: str, metavar: str = "FILE", help: str) -> Callable[[_Command], _Command]:
    """An option that names a file to write."""
    return click.option(*names, type=OUTPUT_FILE, metavar=metavar, help=help)


trace = output_file(
    "--trace",
    help="Write every call and all GPU work to FILE for Perfetto or chrome://tracing; compressed with gzip if FILE "
    "ends in .gz. Includes --timeline.",
)
trace_seconds = click.option(
    "--trace-seconds",
    type=number(float, MIN_TRACE_SECONDS, MAX_TRACE_SECONDS, _SECONDS),
    metavar="S",
    help="With --trace: how much of each variant to write, counted back from when its aggressors are switched off.  "
    f"[default: {DEFAULT_TRACE_SECONDS:g}]",
)
record = output_file("--record", help="Record the measurements to FILE.")
ascii_only = click.option("--ascii", "ascii_only", is_flag=True, help="Draw the screen with ASCII characters only.")


def seconds(default: float, help_: str) -> Callable[[_Command], _Command]:
    """The option --seconds, from MIN_SECONDS to MAX_SECONDS."""
    return click.option(
        "--seconds",
        type=number(float, MIN_SECONDS, MAX_SECONDS, _SECONDS),
        default=default,
        show_default=True,
        metavar="S",
        help=help_,
    )


def json(schema: str) -> Callable[[_Command], _Command]:
    """The option --json as ``as_json``, for a command that writes ``schema``."""
    return click.option("--json", "as_json", is_flag=True, help=f"Write JSON (schema {schema}) instead of text.")


full = click.option(
    "--full",
    is_flag=True,
    help="Show the figures of every cell, every cause with its victims, the reasons of unmeasured cells, and the "
    "machine's fingerprint.",
)
save = output_file(
    "--save", help="Save the check for show, compare and merge; compressed with gzip if FILE ends in .gz."
)
html = output_file("--html", help="Write a self-contained HTML page.")
csv = output_file(
    "--csv", help="Write the figures to FILE as CSV, a line for each probe or cell, phase and operation; times in ns."
)
prometheus = output_file("--prometheus", help="Write metrics for node_exporter's textfile collector.")
reference = click.option(
    "--reference",
    shell_complete=completers.references,
    metavar="NAME",
    help="Name what is unusual by the reference NAME, by one in a .json file, or by none. By default "
    "the package's reference of the same GPU model is used, if there is one; in a comparison only for --fail-on "
    "unusual.",
)


def output_files_of_check(*more: _Decorator) -> _Decorator:
    """The options ``more``, --html, --csv and --prometheus; the command gets the files as ``outputs``, by option
    (``output_files.SAVE`` …)."""

    def decorated(command: _Function) -> _Function:
        @functools.wraps(command)
        def wrapper(*args: Any, **values: Any) -> Any:
            outputs = {f"--{name}": values.pop(name, None) for name in ("save", "html", "csv", "prometheus")}
            return command(*args, outputs=outputs, **values)

        made: _Function = wrapper
        added: Sequence[_Decorator] = (prometheus, csv, html, *more)
        for add in added:
            made = add(made)
        return made

    return decorated


def force(more: str = "") -> Callable[[_Command], _Command]:
    """The option --force, which replaces existing files; ``more`` is what else it does."""
    return click.option("--force", is_flag=True, help=f"Replace existing files{more}.")


def is_profile(name: str) -> bool:
    """True if ``name`` is a profile of a simulated GPU."""
    from stallprobes.engine.sim import profile

    return name in profile.names()
