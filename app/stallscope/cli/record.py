"""The command ``record``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallprobes.errors import EngineFailed, NoGpu, RecordingError, UnknownName, Unsupported
from stallscope.cli import gpu_choice, options, output_files
from stallscope.cli.command import CliCommand
from stallscope.cli.completion import completers
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.signals import InterruptHandler
from stallscope.cli.process.suspension import RequestedSuspension

if TYPE_CHECKING:
    from stallprobes.engine.backend import Options
    from stallprobes.live.capture import CaptureResult
    from stallprobes.machine.gpus import Gpu
    from stallprobes.recording.observation import ProbeSet


@click.command("record", cls=CliCommand)
@click.argument("file", type=options.OUTPUT_FILE, shell_complete=completers.files)
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
        setup = _recording_setup(pattern, variant, gpu, sim)
        setup = replace(setup, options=replace(setup.options, together=together, timeline=timeline))
        if not allow_shared:
            gpu_choice.confirm_shared(setup.gpus)
        found = _record(setup, file, seconds, interrupt.stop_requested)
        interrupted = interrupt.stop_requested()
    if interrupted:
        kept = (
            f"what was measured until then is in {file}"
            if found.observations
            else f"nothing was recorded, so {file} was not created"
        )
        raise CommandError(ExitCode.INTERRUPTED, f"interrupted; {kept}")
    diagnostics.print_message(f"recorded to {file}{_traces_text(found) if timeline else ''}")


def _traces_text(found: CaptureResult) -> str:
    if not found.traces:
        return " without a trace: no call was slow"
    count = "1 trace" if found.traces == 1 else f"{found.traces} traces"
    left_out = (
        f"; {found.traces_left_out} more were left out, since they were too many" if found.traces_left_out else ""
    )
    return f" with {count}{left_out}"


@dataclass(frozen=True)
class RecordingSetup:
    """Probe set of a recording, its GPUs (none if simulated), and the options of the engine session."""

    probe_set: ProbeSet
    gpus: tuple[Gpu, ...]
    options: Options


def _recording_setup(pattern: str, variant: str, gpu: str | None, sim: str | None) -> RecordingSetup:
    """The setup for these arguments. Raises CommandError for an unknown name or a missing GPU."""
    from stallprobes.engine.backend import Options
    from stallprobes.machine import gpus
    from stallprobes.measurement.plan import selection
    from stallprobes.recording.observation import CUDA, SIM, GpuName, ProbeSet

    try:
        ((name, selected),) = selection([pattern], [variant])
    except (UnknownName, ValueError) as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    title = f"{name} · {variant}"
    probe_set = ProbeSet(title, selected.probes, CUDA, pattern=name, variant=variant, expect=selected.expect)
    if sim is not None:
        return RecordingSetup(replace(probe_set, backend=SIM), (), Options(profile=sim))
    survey = gpus.survey()
    try:
        found = gpus.choose(gpu, survey, selected.needs.gpus)
    except NoGpu as error:
        raise CommandError(ExitCode.NO_GPU, str(error)) from error
    details = (f"driver {survey.driver_version or 'n/a'}", f"CUDA {survey.driver.cuda_version_text}")
    placed = replace(probe_set, gpus=tuple(GpuName(one.name, one.index) for one in found), details=details)
    return RecordingSetup(placed, found, Options(gpu=gpu_choice.uuids(found)))


def _record(setup: RecordingSetup, file: Path, seconds: float, stop: Callable[[], bool]) -> CaptureResult:
    """Write the recording. Raises CommandError."""
    from stallprobes.live.capture import capture
    from stallprobes.machine import gpus

    uuid = setup.gpus[0].uuid if setup.gpus else None
    found = dict.fromkeys(f"{one.name} (pid {one.pid})" for gpu in setup.gpus for one in gpus.others(gpu))
    try:
        with RequestedSuspension() as suspension:
            return capture(
                setup.probe_set,
                file,
                options=setup.options,
                seconds=seconds,
                uuid=uuid,
                others=tuple(found),
                stop=stop,
                suspension=suspension,
            )
    except RecordingError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    except Unsupported as error:
        raise CommandError(ExitCode.FAILED, error.reason) from error
    except EngineFailed as error:
        raise CommandError(error.exit_code, error.sentence) from error
