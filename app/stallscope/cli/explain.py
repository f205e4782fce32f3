"""The command ``explain``."""

from __future__ import annotations

import click

from stallscope.cli import completers
from stallscope.cli.command import CliCommand
from stallscope.cli.diagnostics import CommandError, ExitCode
from stallscope.cli.stdout import Output


@click.command("explain", cls=CliCommand)
@click.argument("name", shell_complete=completers.patterns_and_probes)
def command(name: str) -> None:
    """Explain the pattern or probe NAME: symptom, cause, remedies and sources.

    \b
    Examples:
      stallscope explain secondary-context-d2d
      stallscope explain launch
    """
    from stallprobes.catalog import entries
    from stallprobes.patterns import patterns
    from stallscope.report import catalog_text

    out = Output()
    if name in patterns():
        catalog_text.write_pattern(out, patterns()[name])
    elif name in entries():
        used = [
            pattern.name
            for pattern in patterns().values()
            if any(probe.entry == name for variant in pattern.variants for probe in variant.probes)
        ]
        catalog_text.write_entry(out, entries()[name], entries(), used)
    else:
        from stallprobes.patterns.naming import unknown_name_message

        sentence = unknown_name_message("pattern or probe", name, [*patterns(), *entries()])
        raise CommandError(ExitCode.USAGE, sentence)
    out.flush()
