"""The command ``doctor``."""

from __future__ import annotations

import click

from stallscope.cli import options
from stallscope.cli.command import CliCommand
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import ExitCode
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.stdout import Output


@click.command("doctor", cls=CliCommand)
@options.json("stallscope.doctor/1")
def command(as_json: bool) -> None:
    """Diagnose driver, CUDA and host setup, with a remedy for every warning and problem.

    Exits 3 if a problem prevents every GPU measurement.

    \b
    Examples:
      stallscope doctor
      stallscope doctor --json
    """
    from stallprobes import doctor
    from stallprobes.files import codec
    from stallprobes.machine import gpus

    with Progress() as progress:
        progress.begin("asking the driver for its GPUs", at_most_s=gpus.SURVEY_S)
        survey = gpus.survey()
        progress.begin("examining libraries and settings")
        diagnosis = doctor.examine(survey)
    with Output() as out:
        if as_json:
            out.json(codec.plain(diagnosis))
        else:
            from stallscope.report import run_text

            run_text.show_findings(out, diagnosis.findings)
    if diagnosis.level is doctor.Level.PROBLEM:
        diagnostics.exit_process(ExitCode.NO_GPU)
