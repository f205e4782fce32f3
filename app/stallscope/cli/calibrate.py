"""The command ``calibrate``."""

from __future__ import annotations

import click

from stallscope.cli import gpu_choice, options
from stallscope.cli.command import CliCommand
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.stdout import Output


@click.command("calibrate", cls=CliCommand)
@options.gpu(f"GPU to calibrate: {options.GPU_NAMES}.")
@options.json("stallscope.calibration/1")
def command(gpu: str | None, as_json: bool) -> None:
    """Measure what the units of a GPU reach, in less than 10 s.

    Kernels and copies load the memory, the tensor cores, the other units and PCIe one after the other, while NVML's
    GPM counters are read. `stallscope watch` then compares the kernels of programs with that, and not with what GPUs
    of this model reach. It takes less than 1 GiB of the GPU's memory, and a GPU that nobody else uses; GPUs before
    Hopper have no such counters. The result is kept in the user's state folder.

    \b
    Examples:
      stallscope calibrate
      stallscope calibrate --gpu 1 --json
    """
    from stallprobes.engine.cuda import calibration
    from stallprobes.files import codec
    from stallprobes.machine import gpu_reach, gpus

    with Progress() as progress:
        (chosen, *_), survey = gpu_choice.choose_gpus(gpu, 1, allow_shared=True, progress=progress)
        if others := gpus.other_names([chosen]):
            sentence = f"{chosen.label} is in use by {', '.join(others[:4])}: calibrate it while nobody uses it"
            raise CommandError(ExitCode.USAGE, sentence)
        if chosen.mig:
            sentence = f"{chosen.label} has MIG on: NVML has counters of MIG devices only, which watch does not read"
            raise CommandError(ExitCode.FAILED, sentence)
        progress.begin(f"calibrating {chosen.label}", at_most_s=calibration.TIMEOUT_S)
        measured = calibration.measure(chosen, survey.driver_version or "")
        kept = gpu_reach.store(measured)
    with Output() as out:
        if as_json:
            out.json(codec.plain(measured))
        else:
            from stallscope.report import calibration_text

            calibration_text.show(out, measured)
    if kept is None:
        diagnostics.print_message("the calibration could not be kept in the user's state folder")
