"""The command ``run``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stallprobes.errors import FileNotWritten, UnknownName
from stallscope.cli import check_results, completers, gpu_choice, options, output_files
from stallscope.cli.command import MeasuringCommand
from stallscope.cli.options import SimulationOptions
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.signals import InterruptHandler
from stallscope.cli.process.stdout import Output
from stallscope.cli.process.suspension import Suspension

if TYPE_CHECKING:
    from stallprobes.measurement.result import RunResult
    from stallprobes.measurement.run_clock import RunProgress
    from stallprobes.traces.chrome import TitledTrace


@click.command("run", cls=MeasuringCommand)
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=completers.run_names)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    shell_complete=completers.variants,
    metavar="V",
    help="Measure only this variant; repeatable.",
)
@options.seconds(2.0, "Measurement time per variant.")
@click.option(
    "--blame",
    is_flag=True,
    help="Find which aggressor is the cause: switch each on and off, up to 10 s more per variant (longer with more "
    "than 4 aggressors).",
)
@options.timeline
@options.csv
@options.trace
@options.trace_seconds
@options.gpu()
@options.json("stallscope.run/3")
@options.force()
@options.allow_shared
@options.together
@options.simulation
def command(
    as_json: bool, csv: Path | None, trace: Path | None, trace_seconds: float | None, force: bool, **arguments: Any
) -> None:
    """Measure the patterns or probes NAME...: first the baseline, then with the aggressors running.

    "all" selects every pattern. Probes given together run together, victims of different contexts in slots: each is
    measured for S seconds. NAME@CONTEXT selects a probe's context: primary, secondary, third or green.

    The result has a row for each probe and variant, and a sentence for each stall with its cause. "call" is the time
    inside a driver call; "wait" is the time from its return until the host sees the work complete. With --timeline
    "start" is the time from the return until the GPU starts the work, and "gpu" the time on the GPU.

    \b
    Examples:
      stallscope run secondary-context-d2d
      stallscope run scalar-readback --seconds 5 --json
      stallscope run launch spin@secondary --sim
      stallscope run launch spin host-register --blame
      stallscope run secondary-context-d2d --timeline
      stallscope run secondary-context-d2d --trace stall.json.gz
    """
    if trace is None and trace_seconds is not None:
        raise CommandError(ExitCode.USAGE, f"--trace-seconds needs {output_files.TRACE} FILE")
    trace_s = None if trace is None else options.DEFAULT_TRACE_SECONDS if trace_seconds is None else trace_seconds
    files = output_files.OutputFiles({output_files.TRACE: trace, output_files.CSV: csv}, force)
    chosen = _Chosen(**arguments)
    traces: list[TitledTrace] = []
    with InterruptHandler() as interrupt, Suspension(), Progress() as progress:
        result = _measure(chosen, trace_s, traces.append, interrupt, progress)
        if result.interrupted:
            # The request is answered, also if it ended the measurement as a KeyboardInterrupt.
            interrupt.stop_requested()
        with interrupt.deferred():
            writers = {
                output_files.TRACE: partial(_write_trace, result, traces, force),
                output_files.CSV: partial(_write_csv, result, force),
            }
            errors = files.write(writers, progress)
        progress.end()
        with Output() as out:
            if as_json:
                from stallprobes.files import codec

                out.json(codec.plain(result))
            else:
                from stallscope.report import run_text

                run_text.show_run(out, result)
    if result.interrupted:
        diagnostics.print_message("interrupted; the results so far are shown")
    check_results.raise_errors(errors)
    if result.interrupted:
        diagnostics.exit_process(ExitCode.INTERRUPTED)
    _raise_failures(result)


def _write_csv(result: RunResult, force: bool, path: Path) -> None:
    from stallprobes.files import tables

    tables.save_csv(result.to_records(), path, force=force)


def _write_trace(result: RunResult, traces: Sequence[TitledTrace], force: bool, path: Path) -> None:
    """Write the ``traces`` of ``result``. Raises FileNotWritten, also without a trace unless it was interrupted."""
    from stallprobes.measurement import run_trace

    try:
        run_trace.save(result, traces, path, force=force)
    except ValueError:
        sentence = f"{path} was not written: no variant was measured to its end"
        if not result.interrupted:
            raise FileNotWritten(sentence) from None
        diagnostics.print_message(f"{output_files.TRACE}: {sentence}")
    else:
        diagnostics.print_message(f"trace written to {path}; open it in Perfetto or chrome://tracing")


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Arguments of the command that select what is measured."""

    names: tuple[str, ...]
    variants: tuple[str, ...]
    seconds: float
    blame: bool
    timeline: bool
    gpu: str | None
    allow_shared: bool
    together: bool
    simulation: SimulationOptions


def _measure(
    chosen: _Chosen,
    trace_s: float | None,
    traced: Callable[[TitledTrace], None],
    interrupt: InterruptHandler,
    progress: Progress,
) -> RunResult:
    from stallscope.cli.process import prewarm

    simulated = chosen.simulation.profile is not None
    with contextlib.ExitStack() as closing:
        # Before the imports, which take as long as the engine's own start.
        spare = None if simulated else prewarm.start_cuda_engine()
        survey = None if simulated else prewarm.start_survey()
        if spare is not None:
            closing.callback(spare.close)
        from stallprobes.measurement import measure
        from stallprobes.measurement.plan import plan, selection

        simulation, names = _split_profile(chosen.simulation, chosen.names)
        together = chosen.together
        session = simulation.session_options(chosen.gpu, timeline=chosen.timeline, together=together)
        if not names:
            raise click.UsageError("NAME... is missing", click.get_current_context())
        try:
            planned = plan(
                selection(names, chosen.variants), seconds=chosen.seconds, together=together, blame=chosen.blame
            )
        except ValueError as error:
            raise CommandError(ExitCode.USAGE, f"--{error}") from error
        engine = gpu_choice.choose_engine(session, planned.gpus, chosen.allow_shared, progress, survey)

        def show(step: RunProgress) -> None:
            # How long virtual time takes is known only by its rate.
            left_s = None if simulated else step.total_s - step.done_s
            progress.show(step.done_s / max(step.total_s, 1e-9), step.text, left_s=left_s)

        return measure.run(
            planned,
            backend=engine.backend,
            options=engine.options,
            progress=show,
            stop=interrupt.stop_requested,
            survey=engine.survey,
            trace_s=trace_s,
            traced=traced,
            spare=spare,
            gpm_counters=options.gpm_counters(),
        )


def _split_profile(simulation: SimulationOptions, names: Sequence[str]) -> tuple[SimulationOptions, tuple[str, ...]]:
    """``--sim NAME`` where NAME is a pattern or probe and no profile: the default profile, and NAME as an argument."""
    from stallprobes.measurement.plan import selection

    value = simulation.profile
    if value is None or options.is_profile(value):
        return simulation, tuple(names)
    try:
        selection((value,))
    except UnknownName:
        return simulation, tuple(names)
    return replace(simulation, profile=options.DEFAULT_PROFILE), (value, *names)


def _raise_failures(result: RunResult) -> None:
    """Raise CommandError (exit code 4) if a probe failed or a variant is invalid; a stall is a result."""
    failed = [f"{v.pattern} {v.variant}: {p.error}" for v in result.variants for p in v.probes if p.error]
    failed += [f"{v.pattern} {v.variant}: invalid: {v.reason}" for v in result.variants if v.status == "invalid"]
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise CommandError(ExitCode.FAILED, failed[0] + more)
