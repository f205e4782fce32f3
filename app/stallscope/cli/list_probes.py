"""The command ``list``."""

from __future__ import annotations

import click

from stallscope.cli import options
from stallscope.cli.command import CliCommand
from stallscope.cli.process.stdout import Output


@click.command("list", cls=CliCommand)
@options.profile("Show a simulated GPU and every parameter that --sim-set can override.")
def command(sim: str | None) -> None:
    """List patterns by symptom with their variants, probes, and profiles of simulated GPUs.

    \b
    Examples:
      stallscope list
      stallscope list --sim h200
    """
    from stallprobes.catalog import entries
    from stallprobes.engine.sim import profile
    from stallprobes.patterns import patterns
    from stallscope.report import catalog_text

    with Output() as out:
        if sim is not None:
            catalog_text.write_profile(out, profile.load(sim), profile.settable(sim))
        else:
            profiles = [(name, profile.load(name).title) for name in profile.names()]
            catalog_text.write_list(out, patterns(), entries(), profiles)
