"""The command ``record``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallscope.cli import completers, gpu_choice, options, output_files
from stallscope.cli.command import MeasuringCommand
from stallscope.cli.gpu_choice import ChosenEngine
from stallscope.cli.options import SimulationOptions
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.signals import InterruptHandler
from stallscope.cli.process.suspension import RequestedSuspension

if TYPE_CHECKING:
    from stallprobes.live.capture import CaptureResult
    from stallprobes.model import Variant


@click.command("record", cls=MeasuringCommand)
@click.argument("file", type=options.OUTPUT_FILE)
@click.argument("pattern", shell_complete=completers.patterns)
@click.option(
    "--variant", required=True, shell_complete=completers.variants, metavar="V", help="Variant of the pattern."
)
@options.seconds(10.0, "Time with the aggressors running.")
@options.gpu()
@options.profile("Record a simulated GPU, by default h200.")
@options.allow_shared
@options.together
@options.timeline
def command(
    file: Path,
    pattern: str,
    variant: str,
    seconds: float,
    gpu: str | None,
    sim: str | None,
    allow_shared: bool,
    together: bool,
    timeline: bool,
) -> None:
    """Record a variant of PATTERN to FILE for "stallscope replay": baseline, S seconds of aggressors, baseline again.
    While the command is suspended (Ctrl+Z), the aggressors are off.

    With --timeline it also keeps traces, at most ten a minute: of the first slow call, and of each new stall; of the
    longest call if the variant has no victim.

    \b
    Examples:
      stallscope record stall.rec secondary-context-d2d --variant kernel-other-context
      stallscope record stall.rec secondary-context-d2d --variant kernel-other-context --timeline
    """
    with InterruptHandler() as interrupt:
        output_files.require_new_file("FILE", file)
        name, selected = _selected(pattern, variant)
        chosen = SimulationOptions(sim).session_options(gpu, timeline=timeline, together=together)
        with Progress() as progress:
            engine = gpu_choice.choose_engine(chosen, selected.needs.gpus, allow_shared, progress)
            captured = _record(name, selected, engine, file, seconds, interrupt.stop_requested, progress)
        interrupted = interrupt.stop_requested()
    if interrupted:
        kept = f"what was measured until then is in {file}"
        if not captured.observations:
            kept = f"nothing was recorded, so {file} was not created"
        raise CommandError(ExitCode.INTERRUPTED, f"interrupted; {kept}")
    diagnostics.print_message(f"recorded to {file}{_traces_text(captured) if timeline else ''}")


def _traces_text(captured: CaptureResult) -> str:
    if not captured.traces:
        return " without a trace: no call was slow"
    from stallprobes.units import plural

    left_out = captured.traces_left_out
    more = f"; {left_out} more were left out, since they were too many" if left_out else ""
    return f" with {plural(captured.traces, 'trace')}{more}"


def _selected(pattern: str, variant: str) -> tuple[str, Variant]:
    """The variant and the name of its pattern. Raises CommandError and UnknownName for unknown names."""
    from stallprobes.errors import UnknownName
    from stallprobes.measurement.plan import selection
    from stallprobes.patterns import patterns
    from stallprobes.patterns.naming import unknown_name_message

    if pattern not in patterns():
        raise UnknownName(unknown_name_message("pattern", pattern, patterns()))
    try:
        ((name, selected),) = selection([pattern], [variant])
    except ValueError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    return name, selected


def _record(
    pattern: str,
    variant: Variant,
    engine: ChosenEngine,
    file: Path,
    seconds: float,
    stop: Callable[[], bool],
    progress: Progress,
) -> CaptureResult:
    """Write the recording. Raises what ``capture`` does."""
    from stallprobes.live.capture import CaptureProgress, capture
    from stallprobes.machine import gpus
    from stallprobes.recording.observation import GpuName, ProbeSet

    probe_set = ProbeSet(
        title=f"{pattern} · {variant.name}",
        probes=variant.probes,
        backend=engine.backend,
        pattern=pattern,
        variant=variant.name,
        expect=variant.expect,
        gpus=tuple(GpuName(gpu.name, gpu.index) for gpu in engine.gpus),
        details=() if engine.survey is None else engine.survey.versions,
    )

    def show(step: CaptureProgress) -> None:
        if step.share is None:
            progress.begin(step.text, step.at_most_s)
        else:
            # How long virtual time takes is known only by its rate.
            progress.show(step.share, step.text, left_s=step.left_s if engine.gpus else None)

    with RequestedSuspension() as suspension:
        return capture(
            probe_set,
            file,
            options=engine.options,
            seconds=seconds,
            uuid=engine.gpus[0].uuid if engine.gpus else None,
            gpm_counters=options.gpm_counters(),
            others=gpus.other_names(engine.gpus),
            stop=stop,
            suspension=suspension,
            progress=show,
        )
