"""The command ``check``.

Invalid arguments are rejected before the measurement, and no result is lost: files are written first, and errors of
writing are reported after the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallprobes.errors import NotComparable, TimelinesDiffer
from stallprobes.verdicts.kinds import UNUSUAL
from stallscope.cli import check_results, completers, gpu_choice, options, output_files
from stallscope.cli.command import MeasuringCommand
from stallscope.cli.gpu_choice import ChosenEngine
from stallscope.cli.options import SimulationOptions
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.limits import collect_rarely
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.signals import InterruptHandler
from stallscope.cli.process.suspension import Suspension

if TYPE_CHECKING:
    from stallprobes.engine.sim.profile import Profile
    from stallprobes.matrix.check.plan import Plan
    from stallprobes.matrix.check.progress import CheckProgress
    from stallprobes.matrix.matrix import LostEngine, Matrix

# Default of check --seed: seed of the random order in which a check measures the cells of its matrix (one victim
# beside one aggressor each).
DEFAULT_SEED = 1
# Largest number of characters of a host name that an option accepts, as in DNS (RFC 1035, 2.3.4).
_LONGEST_HOSTNAME = 255
# Largest number of lost cells (one victim beside one aggressor set each) that the error message of a check names; the
# other lost cells are only counted. If the process that runs a cell's probes (an engine) fails, the cell is lost.
_NAMED_CELLS = 8


def _checked_hostname(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not (value.strip() and value.isprintable()):
        raise click.BadParameter("a host name needs at least one letter and only printable characters")
    if value is not None and len(value) > _LONGEST_HOSTNAME:
        raise click.BadParameter(f"a host name has at most {_LONGEST_HOSTNAME} characters")
    return value if value is None else value.strip()


@click.command("check", cls=MeasuringCommand)
@click.option(
    "--victims",
    multiple=True,
    shell_complete=completers.probes_of("victim"),
    metavar="NAMES",
    help="Only these victims, separated by commas; repeatable.",
)
@click.option(
    "--aggressors",
    multiple=True,
    shell_complete=completers.probes_of("aggressor"),
    metavar="NAMES",
    help="Only these aggressors, separated by commas; repeatable.",
)
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    shell_complete=completers.patterns,
    metavar="NAME",
    help="Victims and aggressors of a pattern; repeatable.",
)
@click.option("--quick", is_flag=True, help="Measure fewer pairs and calls: about 12 s instead of 70 s.")
@options.timeline
@options.seed("--seed", "Seed for the measurement order.", DEFAULT_SEED)
@options.gpu()
@options.simulation
@options.allow_shared
@options.full
@options.json("stallscope.check/3, or stallscope.compare/3 with --compare")
@options.output_files_of_check(options.save)
@click.option("--compare", "old", type=options.INPUT_FILE, metavar="OLD", help="Compare with the saved check OLD.")
@options.reference
@click.option(
    "--hostname", callback=_checked_hostname, metavar="NAME", help="Host name in the check, for use in containers."
)
@check_results.fail_on(UNUSUAL, help_="Changes since OLD, or what is unusual by a reference, for which to exit 1")
@options.force("; compare checks of different kinds of GPU")
def command(
    victims: tuple[str, ...],
    aggressors: tuple[str, ...],
    patterns: tuple[str, ...],
    quick: bool,
    timeline: bool,
    seed: int,
    gpu: str | None,
    simulation: SimulationOptions,
    allow_shared: bool,
    full: bool,
    as_json: bool,
    outputs: Mapping[str, Path | None],
    old: Path | None,
    reference: str | None,
    hostname: str | None,
    fail_on: tuple[str, ...],
    force: bool,
) -> None:
    """Measure every victim with every aggressor, each pair against the victim's baseline.

    NAMES are probes of "stallscope list" with a context and stream as in run (d2d@secondary, launch/null); "all"
    selects every probe of the default check. The report begins with the worst stalls, what changed, and how much of
    the check was measured; then the worst causes have their worst case and remedy; then the matrix has a symbol for
    each pair, the worst first. --full has the figures of all pairs, and every cause. Pairs run in random order,
    with their repeats spread over the whole check. A pair counts only if its aggressor ran. A check with --timeline
    also says when the GPU started the work; it is compared only with others made with it.

    If interrupted, the command keeps what it has measured. A stall is a result, not an error: exit code 1 needs
    --compare, or --fail-on unusual: a cell stalls here and in no check of the reference.

    \b
    Examples:
      stallscope check --save before.json
      stallscope check --compare before.json --html report.html
      stallscope check --fail-on unusual
      stallscope check --quick --victims launch,d2d --sim
      stallscope check --timeline --save with-timeline.json
    """
    source = click.get_current_context().get_parameter_source("fail_on")
    changes = [name for name in fail_on if name != UNUSUAL] or ([] if fail_on else [completers.NONE])
    if old is None and changes and source is click.core.ParameterSource.COMMANDLINE:
        raise CommandError(ExitCode.USAGE, f"--fail-on {changes[0]} applies to a comparison only; add --compare")
    if UNUSUAL in fail_on and reference == completers.NONE:
        raise CommandError(ExitCode.USAGE, f"--fail-on {UNUSUAL} needs a reference; leave out --reference {reference}")
    from stallprobes.matrix import check_file

    collect_rarely()
    with InterruptHandler() as interrupt, Suspension(), Progress() as progress:
        files = output_files.OutputFiles(outputs, force)
        before = check_results.load_check(old, progress) if old is not None else None
        chosen = check_results.load_reference(reference)
        _reject_other_timeline(before, chosen is not None or UNUSUAL in fail_on, timeline)
        planned = _plan(victims, aggressors, patterns, quick)
        session = simulation.session_options(gpu, timeline=timeline)
        engine = gpu_choice.choose_engine(session, planned.gpus, allow_shared, progress)
        if before is not None and not force:
            _reject_incomparable(before, engine)
        if chosen is not None and (problem := chosen.misfit_of(_gpu_model(engine))) is not None:
            raise NotComparable(problem)
        if chosen is None and UNUSUAL in fail_on:
            _require_reference(_gpu_model(engine))
        matrix = _measure(planned, engine, seed, interrupt, progress)
        if matrix.interrupted:
            # The request is answered, also if it ended the measurement as a KeyboardInterrupt.
            interrupt.stop_requested()
        if hostname is not None:
            matrix = matrix.changed(fingerprint={**matrix.fingerprint, "hostname": hostname})
        comparison, unusual, errors = None, None, []
        # A check that was interrupted at once would replace one with results.
        measured = not matrix.interrupted or any(cell.status.measured for cell in matrix.cells.values())
        progress.begin("comparing the check")
        with interrupt.deferred():
            try:
                if before is not None:
                    comparison = check_results.compare_checks(before, matrix, force)
            except NotComparable as error:
                errors.append(str(error).rstrip("."))
            try:
                if before is None or chosen is not None or UNUSUAL in fail_on:
                    unusual = check_results.against_reference(matrix, reference, chosen)
            except NotComparable as error:
                errors.append(str(error).rstrip("."))
            if measured:
                errors += files.write_check(matrix, comparison, reference=unusual, progress=progress)
                if (saved := outputs[output_files.SAVE]) is not None and not errors:
                    check_file.remember(saved)
        progress.end()
        check_results.print_check(matrix, comparison, fail_on, as_json=as_json, full=full, reference=unusual)
    if matrix.interrupted:
        sentence = "the results so far are shown" if measured else "nothing was measured, and no file was written"
        diagnostics.print_message(f"interrupted; {sentence}")
    check_results.raise_errors(errors)
    if matrix.interrupted:
        diagnostics.exit_process(ExitCode.INTERRUPTED)
    failure = _failure(matrix)
    if failure is not None:
        raise CommandError(ExitCode.FAILED, failure)
    check_results.exit_on_failure(comparison, fail_on, unusual)


def _plan(victims: Sequence[str], aggressors: Sequence[str], patterns: Sequence[str], quick: bool) -> Plan:
    from stallprobes.matrix.check import plan

    for option, names in (("--victims", victims), ("--aggressors", aggressors)):
        if any(not part.strip() for name in names for part in name.split(",")):
            raise CommandError(ExitCode.USAGE, f"{option} has an empty name; separate names with single commas")
    return plan.plan(victims, aggressors, patterns, quick=quick)


def _reject_other_timeline(old: Matrix | None, with_reference: bool, timeline: bool) -> None:
    """Raise TimelinesDiffer before the measurement if only one side of a comparison has the timeline."""
    from stallprobes.matrix import reference
    from stallprobes.matrix.comparing import comparability

    problem = None if old is None else comparability.timeline_mismatch(old.timeline, timeline)
    if problem is None and with_reference and timeline:
        problem = reference.WITH_TIMELINE
    if problem is not None:
        raise TimelinesDiffer(problem)


def _require_reference(gpu: str) -> None:
    """Raise NotComparable before the measurement if the package has no reference of the model ``gpu``."""
    from stallprobes.matrix import reference_choice

    if reference_choice.reference_of_gpu(gpu, None) is None:
        raise NotComparable(
            f"--fail-on {UNUSUAL}: there is no reference of {gpu} in the package; name one with --reference FILE.json, "
            "or use --compare"
        )


def _gpu_model(engine: ChosenEngine) -> str:
    """The model of the GPU, or of the GPU that is simulated."""
    return engine.gpus[0].name if engine.gpus else _profile(engine).machine.title


def _profile(engine: ChosenEngine) -> Profile:
    from stallprobes.engine.sim import profile

    return profile.load(engine.options.profile, engine.options.sim_set)


def _reject_incomparable(old: Matrix, engine: ChosenEngine) -> None:
    """Raise NotComparable before the measurement if its result could not be compared with ``old``."""
    gpu = engine.gpus[0].name if engine.gpus else old.fingerprint.get("gpu")
    expected = old.changed(
        backend="cuda" if engine.gpus else "simulated",
        profile=None if engine.gpus else _profile(engine).label,
        fingerprint={**old.fingerprint, "gpu": gpu},
        hosts={},
        cells={},
    )
    check_results.compare_checks(old, expected, force=False)


def _measure(plan: Plan, engine: ChosenEngine, seed: int, interrupt: InterruptHandler, progress: Progress) -> Matrix:
    from stallprobes.matrix.check import runner

    def show(step: CheckProgress) -> None:
        share = step.done / max(step.total, 1)
        progress.show(share, step.text, left_s=step.left_s, count=f"{step.done}/{step.total}")

    progress.begin("starting the engine")
    return runner.run(
        plan,
        backend=engine.backend,
        options=engine.options,
        seed=seed,
        progress=show,
        stop=interrupt.stop_requested,
        survey=engine.survey,
    )


def _failure(matrix: Matrix) -> str | None:
    """The engines that failed, or why no cell beside the baselines could be measured, as a sentence; None otherwise."""
    from stallprobes.matrix.matrix import QUIET, Status

    if matrix.lost_engines:
        return _lost_engines(matrix.lost_engines)
    cells = [cell for cell in matrix.cells.values() if cell.column != QUIET]
    if any(cell.status.measured for cell in cells):
        return None
    invalid = next((cell for cell in cells if cell.status is Status.INVALID), None)
    return None if invalid is None else f"nothing could be measured: {invalid.reason or 'the reason is unknown'}"


def _lost_engines(lost: Sequence[LostEngine]) -> str:
    """The engines that failed during the check, and the cells lost with them, as a sentence."""
    from stallprobes.units import plural

    names = [f"{row} beside {column}" for engine in lost for row, column in engine.cells]
    why = "; ".join(dict.fromkeys(engine.why for engine in lost))
    more = f" and {len(names) - _NAMED_CELLS} more" if len(names) > _NAMED_CELLS else ""
    cells = f"; {plural(len(names), 'cell')} lost: {', '.join(names[:_NAMED_CELLS])}{more}" if names else ""
    return f"{plural(len(lost), 'engine')} failed during the check: {why}{cells}"
