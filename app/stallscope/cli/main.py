"""The command ``stallscope``. Every command imports what it uses when it runs, so that --help answers at once."""

from __future__ import annotations

import difflib
import math
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from stallscope.cli import check, diagnostics, fleet, gpu_choice
from stallscope.cli import options as sim_options
from stallscope.cli.diagnostics import Exit, Problem
from stallscope.cli.signals import Interrupt
from stallscope.cli.stdout import Output, ReaderGone

if TYPE_CHECKING:
    from stallprobes.machine.gpus import Gpu, Survey
    from stallprobes.measurement.measure import RunResult

# "Starved" is fewer than 3 calls in half a second or more, so a shorter window cannot tell.
SHORTEST_S = 0.5
LONGEST_S = 3600.0

_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(f"  {int(code):<4} {what}" for code, what in diagnostics.MEANINGS.items())


class _Group(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise Problem(Exit.USAGE, unknown("command", args[0], self.list_commands(ctx), "stallscope --help"))
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=_EXIT_CODES,
)
@click.version_option(package_name="stallscope", message="%(prog)s %(version)s")
@click.option("--gpu", metavar="GPU", help="The screen's GPU: index as in nvidia-smi, UUID, or PCI address.")
@sim_options.simulated
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Record what the screen shows.")
@click.option("--allow-shared", is_flag=True, help="Disturb other processes on the GPU without asking.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw the screen with ASCII letters only.")
@click.pass_context
def cli(
    context: click.Context,
    gpu: str | None,
    sim: str | None,
    sim_seed: int | None,
    sim_set: tuple[str, ...],
    record: Path | None,
    allow_shared: bool,
    ascii_only: bool,
) -> None:
    """An oscilloscope for CUDA concurrency stalls.

    Without a command it opens the screen: probes run live against the GPU, each call's latency goes into a
    histogram, and the verdict says which call stalls, by how much against quiet, and because of what. Without a
    usable GPU the screen runs on a simulated one and says so.
    """
    if context.invoked_subcommand is not None:
        given = [name for name, value in context.params.items() if value]
        if given:
            name = "--" + given[0].removesuffix("_only").replace("_", "-")
            raise Problem(
                Exit.USAGE, f"{name} before a command is for the screen; give it after the command if it has it"
            )
        return
    if gpu is not None and sim is not None:
        raise Problem(Exit.USAGE, "--gpu and --sim exclude each other")
    options = sim_options.options(sim, sim_seed, sim_set)
    from stallscope.tui import launch

    diagnostics.leave(launch.run_live(gpu, options, allow_shared, record, ascii_only))


@cli.command(short_help="Show a recording on the screen.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII letters only.")
def replay(file: Path, ascii_only: bool) -> None:
    """Show a recording FILE (of stallscope --record) on the screen, with pause and seek. No GPU is needed."""
    from stallscope.tui import launch

    diagnostics.leave(launch.run_replay(file, ascii_only))


@cli.command(short_help="The screen's settings file, with every default.")
def settings() -> None:
    """Write the documented settings file with every default; the file says where it belongs."""
    from stallscope.tui.settings import document

    out = Output()
    for line in document().splitlines():
        out.line(line)
    out.flush()


@cli.command("list", short_help="What can be run: patterns and probes.")
@sim_options.profile_option("What a simulated GPU is like, with every figure that run --sim-set can change.")
def list_(sim: str | None) -> None:
    """What can be run: patterns with their variants, and single probes."""
    if sim is not None:
        sim_options.show_profile(Output(), sim)
        return
    from stallprobes.catalog import entries
    from stallprobes.patterns import patterns
    from stallscope.report import run_text

    out = Output()
    run_text.show_list(out, patterns(), entries(), sim_options.profiles())
    out.flush()


@cli.command(short_help="What a pattern or probe shows, and why.")
@click.argument("name")
def explain(name: str) -> None:
    """What a pattern or probe NAME shows, why, what helps, and where it was reported."""
    from stallprobes.catalog import entries
    from stallprobes.patterns import patterns
    from stallscope.report import run_text

    out = Output()
    if name in patterns():
        run_text.explain_pattern(out, patterns()[name])
    elif name in entries():
        used = [
            pattern.name
            for pattern in patterns().values()
            if any(probe.entry == name for variant in pattern.variants for probe in variant.probes)
        ]
        run_text.explain_entry(out, entries()[name], used)
    else:
        raise Problem(Exit.USAGE, unknown("pattern or probe", name, [*patterns(), *entries()]))
    out.flush()


@cli.command(short_help="What stands between this machine and a good measurement.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON by the schema stallscope.doctor/1.")
def doctor(as_json: bool) -> None:
    """What stands between this machine and a good measurement, and what to do about it.

    Exits 3 when a problem keeps every GPU measurement from working.
    """
    from stallprobes import doctor as checks

    findings = checks.examine()
    out = Output()
    if as_json:
        out.json(checks.document(findings))
    else:
        from stallscope.report import run_text

        run_text.show_findings(out, findings)
    out.flush()
    if checks.worst(findings) is checks.Level.PROBLEM:
        diagnostics.leave(Exit.NO_GPU)


def _seconds(_context: click.Context, _option: click.Parameter, value: float) -> float:
    if not math.isfinite(value) or not SHORTEST_S <= value <= LONGEST_S:
        raise click.BadParameter(f"{value:g} is not between {SHORTEST_S:g} and {LONGEST_S:g} seconds.")
    return value


@cli.command(short_help="Measure patterns or probes on the GPU.")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--variant", "variants", multiple=True, metavar="V", help="Only this variant; can be given repeatedly.")
@click.option(
    "--seconds", default=2.0, show_default=True, callback=_seconds, metavar="S", help="Time to measure each variant."
)
@click.option("--gpu", metavar="GPU", help="Index as in nvidia-smi, UUID, or PCI address; two of them by a comma.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON by the schema stallscope.run/1.")
@click.option("--allow-shared", is_flag=True, help="Also when other processes compute on the GPU; this disturbs them.")
@sim_options.simulated
def run(
    names: tuple[str, ...],
    variants: tuple[str, ...],
    seconds: float,
    gpu: str | None,
    as_json: bool,
    allow_shared: bool,
    sim: str | None,
    sim_seed: int | None,
    sim_set: tuple[str, ...],
) -> None:
    """Measure patterns or probes NAME...: quiet first, then with the aggressors on.

    "all" is every pattern. Probes named together run together; NAME@CONTEXT puts one into another context (primary,
    secondary, third or green).

    Shows a row for each probe and variant, and says in a sentence who waits for what. Latencies are of the driver's
    calls: "call" is the time inside the call, "wait" the time until the host saw the work done.
    """
    with Interrupt() as interrupt:
        result = _measure(names, variants, seconds, gpu, allow_shared, (sim, sim_seed, sim_set), interrupt)
        out = Output()
        if as_json:
            from stallprobes.measurement import document as run_document

            out.json(run_document.document(result))
        else:
            from stallscope.report import run_text

            run_text.show_run(out, result)
        out.flush()
    if result.interrupted:
        diagnostics.say("interrupted; what was measured until then is shown")
        diagnostics.leave(Exit.INTERRUPTED)
    _judge(result)


@cli.command(short_help="Record a pattern's variant without a screen.")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("pattern")
@click.option("--variant", required=True, metavar="V", help="Which variant of the pattern.")
@click.option(
    "--seconds", default=10.0, show_default=True, callback=_seconds, metavar="S", help="Time with the aggressors on."
)
@click.option("--gpu", metavar="GPU", help="Index as in nvidia-smi, UUID, or PCI address; two of them by a comma.")
@sim_options.profile_option("Record a simulated GPU, by default h200.")
@click.option("--allow-shared", is_flag=True, help="Also when other processes compute on the GPU; this disturbs them.")
def record(
    file: Path, pattern: str, variant: str, seconds: float, gpu: str | None, sim: str | None, allow_shared: bool
) -> None:
    """Record a PATTERN's variant to FILE, for "stallscope replay": quiet, the aggressors for S seconds, quiet again."""
    from stallscope.cli import record

    with Interrupt() as interrupt:
        chosen = record.chosen(pattern, variant, gpu, sim)
        if not allow_shared:
            gpu_choice.ask_if_shared(chosen.gpus)
        record.record(chosen, file, seconds, interrupt.stop)
    diagnostics.say(f"recorded to {file}")


for _command in (check.check, check.compare, check.merge, check.show, fleet.fleet):
    cli.add_command(_command)


def _measure(
    names: Sequence[str],
    variants: Sequence[str],
    seconds: float,
    gpu: str | None,
    allow_shared: bool,
    simulated: tuple[str | None, int | None, Sequence[str]],
    interrupt: Interrupt,
) -> RunResult:
    from stallprobes.engine.session import EngineFailed
    from stallprobes.measurement import measure

    sim, names = sim_options.untangle(simulated[0], names)
    options = sim_options.options(sim, *simulated[1:])
    if not names:
        raise click.UsageError("Missing argument 'NAME...'.")
    try:
        selection = measure.selection(names, variants)
    except measure.UnknownName as error:
        raise Problem(Exit.USAGE, str(error)) from error
    survey: Survey | None = None
    chosen: Sequence[Gpu] = ()
    if sim is None:
        wanted = max((variant.needs.gpus for _, variant in selection), default=1)
        chosen, survey = gpu_choice.choose(gpu, wanted, allow_shared)
    elif gpu is not None:
        raise Problem(Exit.USAGE, "--gpu chooses a real GPU and --sim a simulated one: say one of them")
    with diagnostics.Bar() as bar:
        try:
            return measure.run(
                selection,
                backend="cuda" if sim is None else "sim",
                gpu=gpu_choice.uuids(chosen),
                seconds=seconds,
                options=options,
                progress=lambda step: bar.show(step.done_s, step.total_s, step.text),
                stop=interrupt.stop,
                survey=survey,
            )
        except EngineFailed as error:
            bar.clear()
            raise Problem(error.exit_code, error.sentence) from error


def _judge(result: RunResult) -> None:
    """Exit 4 when a probe or a variant failed on the way; a stall is a result, not a failure."""
    failed = [f"{v.pattern} {v.variant}: {p.error}" for v in result.variants for p in v.probes if p.error]
    failed += [f"{v.pattern} {v.variant}: invalid: {v.reason}" for v in result.variants if v.status == "invalid"]
    if failed:
        raise Problem(Exit.FAILED, failed[0] + (f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""))


def unknown(what: str, name: str, there: Iterable[str], see: str = "stallscope list") -> str:
    """The sentence for a name that is not there, with the nearest one that is, or the command that shows them."""
    near = difflib.get_close_matches(name, list(there), n=1, cutoff=0.5)
    return f'there is no {what} "{name}"' + (f'; did you mean "{near[0]}"?' if near else f"; see: {see}")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process with one of diagnostics.Exit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # Not through click's own main, which has exit codes of its own (1 for a reader that is gone).
        with cli.make_context("stallscope", given) as context:
            cli.invoke(context)
        code = int(Exit.FINE)
    except click.exceptions.Exit as done:
        code = done.exit_code
    except click.ClickException as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "stallscope")
        diagnostics.say(f"{error.format_message()} Try: {command} --help")
        code = Exit.USAGE
    except Problem as problem:
        diagnostics.say(problem.sentence)
        code = problem.exit_code
    except (KeyboardInterrupt, click.Abort):
        diagnostics.say("interrupted")
        code = Exit.INTERRUPTED
    except (ReaderGone, BrokenPipeError):
        _end_as_a_broken_pipe()
    except ModuleNotFoundError as error:
        diagnostics.say(f"the Python package {error.name} is missing: install stallscope again")
        code = Exit.FAILED
    except Exception:  # a mistake in the program
        # Python's own answer would be exit code 1, which here means a regression.
        traceback.print_exc()
        code = Exit.FAILED
    diagnostics.leave(code)


def _end_as_a_broken_pipe() -> NoReturn:
    # As every other command in a pipe: the shell sees SIGPIPE and says nothing.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise AssertionError("unreachable: the default action of SIGPIPE ends the process")
