"""The command ``list``."""

from __future__ import annotations

import click

from stallscope.cli import options
from stallscope.cli.command import CliCommand
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.stdout import Output
from stallscope.report.text import TableColumn


@click.command("list", cls=CliCommand)
@options.profile("Show a simulated GPU and every parameter that --sim-set can override.")
def command(sim: str | None) -> None:
    """List patterns by symptom with their variants, probes, and profiles of simulated GPUs.

    \b
    Examples:
      stallscope list
      stallscope list --sim h200
    """
    out = Output()
    if sim is not None:
        _print_profile(out, sim)
        return
    from stallprobes.catalog import entries
    from stallprobes.patterns import patterns
    from stallscope.report import catalog_text

    catalog_text.write_list(out, patterns(), entries(), _profiles())
    out.flush()


def _profiles() -> list[tuple[str, str]]:
    """Name and GPU of every profile in the package."""
    from stallprobes.engine.sim import profile

    return [(name, profile.load(name).title) for name in profile.names()]


def _print_profile(out: Output, name: str) -> None:
    """Print a profile's GPU, the source of its values, and all parameters. Raises CommandError."""
    from stallprobes.engine.sim import profile

    try:
        loaded, settings = profile.load(name), profile.settable(name)
    except profile.ProfileError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    out.line(f"SIMULATED {loaded.title}, profile {loaded.name}", "strong")
    out.paragraph(f"Source: {loaded.source}")
    out.line()
    rows = [(setting.key, setting.value, setting.what) for setting in settings]
    out.table((TableColumn("parameter"), TableColumn("value", right=True), TableColumn("meaning")), rows)
    out.flush()
