"""The command ``merge``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallscope.cli import check_results, options, output_files
from stallscope.cli.command import CliCommand
from stallscope.cli.process.diagnostics import ProgressBar

if TYPE_CHECKING:
    from stallprobes.matrix.matrix import Matrix

# So many checks take long enough for lines of progress where there is no terminal.
_MANY = 20


@click.command("merge", cls=CliCommand)
@click.argument("files", type=options.INPUT_FILE, nargs=-1, required=True, metavar="FILE...")
@options.full
@options.save
@options.json("stallscope.check/2")
@options.html
@options.prometheus
@options.prometheus_full
@options.force("; merge checks of different GPU models")
def command(
    files: tuple[Path, ...],
    full: bool,
    save: Path | None,
    as_json: bool,
    html: Path | None,
    prometheus: Path | None,
    prometheus_full: bool,
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
        {output_files.SAVE: save, output_files.HTML: html, output_files.PROMETHEUS: prometheus}, force, prometheus_full
    )
    with ProgressBar(line_interval_s=10.0 if len(files) > _MANY else None) as bar:

        def checks() -> Iterator[tuple[str, Matrix]]:
            for number, file in enumerate(files):
                bar.show(number / len(files), f"reading {number + 1} of {len(files)}: {file.name}")
                # A bare file name could be mistaken for a host name.
                yield os.path.join(".", file), check_results.load_check(file)

        merged = merge.merge(
            checks(), force=force, progress=lambda share: bar.show(share, "searching for outlier hosts")
        )
        from stallprobes.wording import check_wording

        hosts = [*check_wording.host_sentences(merged.outliers), *merged.notes]
        errors = outputs.write(merged.matrix, hosts=hosts, progress=lambda share: bar.show(share, "saving the cells"))
    check_results.print_check(merged.matrix, as_json=as_json, full=full, hosts=hosts)
    check_results.raise_errors(errors)
