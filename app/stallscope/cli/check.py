"""The commands ``check``, ``compare``, ``merge`` and ``show``: which calls stall which, and what changed.

Whatever can be refused is refused before anything is measured, and what was measured is never lost: files are written
first, and what fails of them is said when the result is out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stallscope.cli import diagnostics, gpu_choice, output_files
from stallscope.cli import options as sim_options
from stallscope.cli.diagnostics import Exit, Problem
from stallscope.cli.signals import Interrupt
from stallscope.cli.stdout import Output

if TYPE_CHECKING:
    from stallprobes.engine.backend import Options
    from stallprobes.machine.gpus import Gpu, Survey
    from stallprobes.matrix.compare import Comparison
    from stallprobes.matrix.matrix import Matrix
    from stallprobes.matrix.plan import Plan
    from stallprobes.matrix.runner import CheckProgress

DEFAULT_SEED = 1
FAIL_ON = ("slower", "starved", "faster", "unsure")
DEFAULT_FAIL_ON = "slower,starved"
NONE = "none"
# Elsewhere than on a terminal, how often a line says how far the check is.
_LINE_EACH_S = 15.0

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path)


def _fail_on(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    names = [name.strip().lower() for name in value.split(",") if name.strip()]
    if names == [NONE]:
        return ()
    for name in names:
        if name == NONE:
            raise click.BadParameter(f"{NONE} stands alone.")
        if name not in FAIL_ON:
            raise click.BadParameter(f'"{name}" is none of {", ".join(FAIL_ON)} and {NONE}.')
    if not names:
        raise click.BadParameter(f"say some of {', '.join(FAIL_ON)}, or {NONE}.")
    return tuple(dict.fromkeys(names))


def _hostname(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not (value.strip() and value.isprintable()):
        raise click.BadParameter("a name has letters, and none that cannot be shown.")
    return value if value is None else value.strip()


_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON by a published schema in place of the table.")
_SAVE = click.option(
    "--save",
    type=_FILE,
    metavar="FILE",
    help="Save the check, for show, compare and merge; a FILE that ends in .gz is compressed with gzip.",
)
_HTML = click.option("--html", type=_FILE, metavar="FILE", help="Write one self-contained page for a browser.")
_PROMETHEUS = click.option(
    "--prometheus", type=_FILE, metavar="FILE", help="Write the figures for node_exporter's textfile collector."
)
_FORCE_MERGE = click.option(
    "--force", is_flag=True, help="Replace files that are there; merge also checks of different GPU models."
)
_FORCE_FILES = click.option("--force", is_flag=True, help="Replace files that are there.")
_FORCE = click.option(
    "--force", is_flag=True, help="Replace files that are there; compare also what is not of the same kind of GPU."
)
_FAIL = click.option(
    "--fail-on",
    default=DEFAULT_FAIL_ON,
    show_default=True,
    callback=_fail_on,
    metavar="CHANGES",
    help=f"What a comparison exits 1 for, by commas: {', '.join(FAIL_ON)}; or {NONE}.",
)


def _with(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command(short_help="Which calls of this machine stall which, and what changed.")
@click.option("--victims", multiple=True, metavar="NAMES", help="Only these victims, by commas or repeatedly.")
@click.option("--aggressors", multiple=True, metavar="NAMES", help="Only these aggressors, likewise.")
@click.option("--pattern", "patterns", multiple=True, metavar="NAME", help="A pattern's victims beside its aggressors.")
@click.option("--quick", is_flag=True, help="Fewer pairs and calls: at most 15 s in place of 90 s.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=DEFAULT_SEED,
    show_default=True,
    metavar="N",
    help="Another order of the pairs.",
)
@click.option("--gpu", metavar="GPU", help="Index as in nvidia-smi, UUID, or PCI address; two of them by a comma.")
@sim_options.simulated
@click.option("--allow-shared", is_flag=True, help="Also when other processes compute on the GPU; this disturbs them.")
@_with(sim_options.FULL, _JSON, _SAVE, _HTML, _PROMETHEUS)
@click.option("--compare", "old", type=_FILE, metavar="OLD", help="Say what changed since the saved check OLD.")
@click.option(
    "--hostname",
    callback=_hostname,
    metavar="NAME",
    help="What this host is called in the check, where its own name tells nothing (in a container).",
)
@_with(_FAIL, _FORCE)
def check(
    victims: tuple[str, ...],
    aggressors: tuple[str, ...],
    patterns: tuple[str, ...],
    quick: bool,
    seed: int,
    gpu: str | None,
    sim: str | None,
    sim_seed: int | None,
    sim_set: tuple[str, ...],
    allow_shared: bool,
    full: bool,
    as_json: bool,
    save: Path | None,
    html: Path | None,
    prometheus: Path | None,
    old: Path | None,
    hostname: str | None,
    fail_on: tuple[str, ...],
    force: bool,
) -> None:
    """Measure every victim beside every aggressor, each pair against its own quiet.

    A NAME is a probe of "stallscope list", placed as in run: d2d@secondary, launch/null; "all" is every usual one.
    The table has how many times quiet call and wait are, the worst first, and what was found in words. Pairs come in
    a random order with their repeats spread over the whole time; a pair counts only when its aggressor was seen to
    run.

    \b
    On a new machine:        stallscope check --save before.json
    After the next driver:   stallscope check --compare before.json --html report.html
    A saved check again:     stallscope show before.json

    With --compare, --json writes the comparison (stallscope.compare/1) with the check in it, else the check
    (stallscope.check/1). Interrupted, it keeps what it has. A stall is a result: exit 1 is for --compare alone.
    """
    given = click.get_current_context().get_parameter_source("fail_on")
    if old is None and given is click.core.ParameterSource.COMMANDLINE:
        raise Problem(Exit.USAGE, "--fail-on is for a comparison: say --compare too")
    with Interrupt() as interrupt:
        files = output_files.OutputFiles(
            {output_files.SAVE: save, output_files.HTML: html, output_files.PROMETHEUS: prometheus}, force
        )
        before = _load(old) if old is not None else None
        setup = _setup(_plan(victims, aggressors, patterns, quick), gpu, (sim, sim_seed, sim_set), allow_shared)
        if before is not None and not force:
            _refuse_early(before, setup)
        matrix = _called(hostname, _measure(setup, seed, interrupt))
        comparison, trouble = None, []
        with interrupt.keeping():
            if before is not None:
                try:
                    comparison = _compare(before, matrix, force)
                except Problem as problem:
                    trouble.append(problem.sentence)
            trouble += files.write(matrix, comparison)
        _show(matrix, comparison, fail_on, as_json, full=full)
    if matrix.interrupted:
        diagnostics.say("interrupted; what was measured until then is shown")
    _fail(trouble)
    if matrix.interrupted:
        diagnostics.leave(Exit.INTERRUPTED)
    nothing = _measured_nothing(matrix)
    if nothing is not None:
        raise Problem(Exit.FAILED, nothing)
    _judge(comparison, fail_on)


@click.command(short_help="What changed between two saved checks.")
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@_with(_JSON, _HTML, _FAIL, _FORCE)
def compare(old: Path, new: Path, as_json: bool, html: Path | None, fail_on: tuple[str, ...], force: bool) -> None:
    """Compare the saved checks OLD and NEW, cell by cell: SAME, SLOWER, FASTER or UNSURE, at p50 and p99.

    What differs in GPU, driver, settings and host comes first. Exits 1 when something is SLOWER or newly STARVED, or
    whatever --fail-on says. --json writes stallscope.compare/1; --html shows NEW with the comparison.
    """
    files = output_files.OutputFiles({output_files.HTML: html}, force)
    comparison = _compare(_load(old), _load(new), force)
    trouble = files.write(comparison.new, comparison)
    out = Output()
    if as_json:
        out.json(_changes(comparison, fail_on))
    else:
        from stallscope.report import comparison_text

        comparison_text.show(out, comparison, comparison.regressions(fail_on))
    out.flush()
    _fail(trouble)
    _judge(comparison, fail_on)


@click.command(short_help="Checks of many machines as one, and who stands out.")
@click.argument("files", type=_FILE, nargs=-1, required=True, metavar="FILE...")
@_with(sim_options.FULL, _SAVE, _JSON, _HTML, _PROMETHEUS, _FORCE_MERGE)
def merge(
    files: tuple[Path, ...],
    full: bool,
    save: Path | None,
    as_json: bool,
    html: Path | None,
    prometheus: Path | None,
    force: bool,
) -> None:
    """Merge the saved checks FILE... of many machines: their histograms add up, and hosts that stand out are named.

    What comes out is a check again: --save and --json write it (stallscope.check/1), "stallscope show" shows it.
    """
    from stallprobes.matrix import document as check_document
    from stallprobes.matrix import merge as merging

    written = output_files.OutputFiles(
        {output_files.SAVE: save, output_files.HTML: html, output_files.PROMETHEUS: prometheus}, force
    )
    try:
        # A name without a folder could be taken for a host's.
        merged = merging.merge([(os.path.join(".", file), _load(file)) for file in files], force=force)
    except check_document.BadCheck as error:
        raise Problem(Exit.USAGE, str(error)) from error
    hosts = [*_about_hosts(merged.matrix), *merged.notes]
    trouble = written.write(merged.matrix, hosts=hosts)
    _show(merged.matrix, None, (), as_json, hosts, full=full)
    _fail(trouble)


@click.command(short_help="A saved check again: as a table, a page, JSON.")
@click.argument("file", type=_FILE)
@_with(sim_options.FULL, _JSON, _HTML, _PROMETHEUS, _FORCE_FILES)
def show(file: Path, full: bool, as_json: bool, html: Path | None, prometheus: Path | None, force: bool) -> None:
    """Show the saved check FILE (of check --save or merge --save), or write it otherwise. No GPU is needed."""
    written = output_files.OutputFiles({output_files.HTML: html, output_files.PROMETHEUS: prometheus}, force)
    matrix = _load(file)
    hosts = _about_hosts(matrix)
    trouble = written.write(matrix, hosts=hosts)
    _show(matrix, None, (), as_json, hosts, full=full)
    _fail(trouble)


@dataclass(frozen=True)
class _Setup:
    """What to measure on what."""

    plan: Plan
    chosen: Sequence[Gpu]
    survey: Survey | None
    options: Options
    simulated: bool


def _plan(victims: Sequence[str], aggressors: Sequence[str], patterns: Sequence[str], quick: bool) -> Plan:
    from stallprobes.matrix import plan
    from stallprobes.patterns.naming import UnknownName

    for option, names in (("--victims", victims), ("--aggressors", aggressors)):
        if any(not part.strip() for name in names for part in name.split(",")):
            raise Problem(Exit.USAGE, f"{option} has an empty name; names are parted by single commas")
    try:
        return plan.plan(victims, aggressors, patterns, quick=quick)
    except UnknownName as error:
        raise Problem(Exit.USAGE, str(error)) from error


def _setup(
    plan: Plan, gpu: str | None, simulated: tuple[str | None, int | None, Sequence[str]], allow_shared: bool
) -> _Setup:
    sim = simulated[0]
    options = sim_options.options(*simulated)
    if sim is None:
        chosen, survey = gpu_choice.choose(gpu, _gpus_wanted(plan), allow_shared)
        return _Setup(plan, chosen, survey, options, False)
    if gpu is not None:
        raise Problem(Exit.USAGE, "--gpu chooses a real GPU and --sim a simulated one: say one of them")
    return _Setup(plan, (), None, options, True)


def _gpus_wanted(plan: Plan) -> int:
    probes = [one.probe for one in plan.victims] + [probe for one in plan.aggressor_sets for probe in one.probes]
    return 2 if any(getattr(r, "device", 0) == 1 for probe in probes for r in probe.program.resources()) else 1


def _measure(setup: _Setup, seed: int, interrupt: Interrupt) -> Matrix:
    from stallprobes.engine.session import EngineFailed
    from stallprobes.matrix import runner

    with diagnostics.Bar(every_s=_LINE_EACH_S) as bar:
        try:
            return runner.run(
                setup.plan,
                backend="sim" if setup.simulated else "cuda",
                gpu=gpu_choice.uuids(setup.chosen),
                options=setup.options,
                seed=seed,
                progress=lambda step: bar.draw(step.done / max(step.total, 1), _told(step)),
                stop=interrupt.stop,
                survey=setup.survey,
            )
        except EngineFailed as error:
            bar.clear()
            raise Problem(error.exit_code, error.sentence) from error


def _called(hostname: str | None, matrix: Matrix) -> Matrix:
    if hostname is None:
        return matrix
    from dataclasses import replace

    return replace(matrix, fingerprint={**matrix.fingerprint, "hostname": hostname})


def _told(step: CheckProgress) -> str:
    left = "" if step.left_s is None else f", {step.left_s:.0f} s left"
    return f"{step.done}/{step.total}{left}  {step.text}"


def _load(path: Path) -> Matrix:
    from stallprobes.matrix import document as check_document

    try:
        return check_document.load(path)
    except check_document.BadCheck as error:
        raise Problem(Exit.USAGE, str(error)) from error


def _about_hosts(matrix: Matrix) -> list[str]:
    if not matrix.hosts:
        return []
    from stallprobes.matrix import outliers
    from stallscope.report import wording

    return wording.host_sentences(outliers.find(matrix))


def _refuse_early(old: Matrix, setup: _Setup) -> None:
    """Refuse before measuring what would be refused after it. Raises Problem."""
    from dataclasses import replace

    gpu = setup.chosen[0].name if setup.chosen else old.fingerprint.get("gpu")
    label = None
    if setup.simulated:
        from stallprobes.engine.sim import profile

        label = profile.load(setup.options.profile, setup.options.sim_set).label
    expected = replace(
        old,
        backend="simulated" if setup.simulated else "cuda",
        profile=label,
        fingerprint={**old.fingerprint, "gpu": gpu},
        hosts={},
        cells={},
    )
    _compare(old, expected, force=False)


def _compare(old: Matrix, new: Matrix, force: bool) -> Comparison:
    from stallprobes.matrix import compare as comparing

    try:
        return comparing.compare(old, new, force=force)
    except comparing.Incomparable as error:
        raise Problem(Exit.USAGE, f"{str(error).rstrip('.')}: say --force to compare them all the same") from error


def _changes(comparison: Comparison, fail_on: Sequence[str], check: Mapping[str, Any] | None = None) -> dict[str, Any]:
    from stallprobes.matrix import compare_document

    return compare_document.document(comparison, fail_on, comparison.regressions(fail_on), check)


def _show(
    matrix: Matrix,
    comparison: Comparison | None,
    fail_on: Sequence[str],
    as_json: bool,
    hosts: Sequence[str] = (),
    *,
    full: bool,
) -> None:
    out = Output()
    if as_json:
        from stallprobes.matrix import document as check_document

        document = check_document.document(matrix)
        out.json(document if comparison is None else _changes(comparison, fail_on, document))
    else:
        from stallscope.report import matrix_text

        regressions = () if comparison is None else comparison.regressions(fail_on)
        matrix_text.show(out, matrix, hosts, comparison=comparison, regressions=regressions, full=full)
    out.flush()


def _fail(trouble: Sequence[str]) -> None:
    """Say what could not be written. Raises Problem (exit code 2)."""
    for sentence in trouble[:-1]:
        diagnostics.say(sentence)
    if trouble:
        raise Problem(Exit.USAGE, trouble[-1])


def _judge(comparison: Comparison | None, fail_on: Sequence[str]) -> None:
    """Exit 1 for what ``fail_on`` asks for."""
    if comparison is not None and comparison.regressions(fail_on):
        diagnostics.leave(Exit.REGRESSION)


def _measured_nothing(matrix: Matrix) -> str | None:
    """Why no cell at all could be measured, in a sentence; None when one was."""
    from stallprobes.matrix.matrix import QUIET, Status

    beside = [cell for cell in matrix.cells.values() if cell.column != QUIET]
    if any(cell.status in (Status.OK, Status.STARVED) for cell in beside):
        return None
    invalid = next((cell for cell in beside if cell.status is Status.INVALID), None)
    return None if invalid is None else f"nothing could be measured: {invalid.reason or 'no reason is known'}"
