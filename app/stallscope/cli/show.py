"""The command ``show``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from stallscope.cli import check_results, options, output_files
from stallscope.cli.command import MeasuringCommand
from stallscope.cli.process.progress import Progress


@click.command("show", cls=MeasuringCommand)
@click.argument("file", type=options.INPUT_FILE)
@options.full
@options.json("stallscope.check/3")
@options.output_files_of_check()
@options.reference
@options.force()
def command(
    file: Path,
    full: bool,
    as_json: bool,
    outputs: Mapping[str, Path | None],
    reference: str | None,
    force: bool,
) -> None:
    """Show the check in FILE, saved by check --save or merge --save, or convert it to another format. Needs no GPU.

    \b
    Examples:
      stallscope show before.json
      stallscope show before.json --html before.html
    """
    # With --force the check would be lost.
    output_files.require_different({"FILE": file, **outputs})
    written = output_files.OutputFiles(outputs, force)
    with Progress() as progress:
        parts = 2 + written.any
        progress.part(1, parts)
        matrix = check_results.load_check(file, progress)
        progress.part(2, parts)
        progress.begin("comparing with the reference")
        unusual = check_results.against_reference(matrix, reference, check_results.load_reference(reference))
        hosts = []
        if matrix.hosts:
            from stallprobes.matrix import outliers
            from stallprobes.wording import check_wording

            outlying = outliers.find(matrix, progress.shower("searching for outlier hosts"))
            hosts = check_wording.host_sentences(outlying)
        progress.part(parts, parts)
        errors = written.write_check(matrix, hosts=hosts, reference=unusual, progress=progress)
    check_results.print_check(matrix, as_json=as_json, full=full, hosts=hosts, reference=unusual)
    check_results.raise_errors(errors)
