"""The command ``merge``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from stallprobes.errors import CheckFileError
from stallscope.cli import check_results, options, output_files
from stallscope.cli.command import CliCommand
from stallscope.cli.diagnostics import CommandError, ExitCode


@click.command("merge", cls=CliCommand)
@click.argument("files", type=options.INPUT_FILE, nargs=-1, required=True, metavar="FILE...")
@options.full
@options.save
@options.json("stallscope.check/2")
@options.html
@options.prometheus
@options.force("; merge checks of different GPU models")
def command(
    files: tuple[Path, ...],
    full: bool,
    save: Path | None,
    as_json: bool,
    html: Path | None,
    prometheus: Path | None,
    force: bool,
) -> None:
    """Merge the saved checks FILE... of several machines: add up their histograms and name outlier hosts.

    The result is a check: --save writes it to a file for "stallscope show".

    \b
    Example:
      stallscope merge check-*.json.gz --save fleet.json.gz --html fleet.html
    """
    from stallprobes.matrix import merge

    outputs = output_files.OutputFiles(
        {output_files.SAVE: save, output_files.HTML: html, output_files.PROMETHEUS: prometheus}, force
    )
    try:
        # A bare file name could be mistaken for a host name.
        merged = merge.merge([(os.path.join(".", file), check_results.load_check(file)) for file in files], force=force)
    except CheckFileError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from error
    hosts = [*check_results.host_sentences(merged.matrix), *merged.notes]
    errors = outputs.write(merged.matrix, hosts=hosts)
    check_results.print_check(merged.matrix, as_json=as_json, full=full, hosts=hosts)
    check_results.raise_errors(errors)
