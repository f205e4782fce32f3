"""The command ``merge``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallscope.cli import check_results, options, output_files
from stallscope.cli.command import MeasuringCommand
from stallscope.cli.process.progress import Progress

if TYPE_CHECKING:
    from stallprobes.matrix.matrix import Matrix


@click.command("merge", cls=MeasuringCommand)
@click.argument("files", type=options.INPUT_FILE, nargs=-1, required=True, metavar="FILE...")
@options.full
@options.json("stallscope.check/3")
@options.output_files_of_check(options.save)
@options.force("; merge checks of different GPU models")
def command(
    files: tuple[Path, ...], full: bool, as_json: bool, outputs: Mapping[str, Path | None], force: bool
) -> None:
    """Merge the saved checks FILE... of several machines: add up their histograms and name outlier hosts.

    The result is a check: --save writes it to a file for "stallscope show".

    \b
    Example:
      stallscope merge check-*.json.gz --save fleet.json.gz --html fleet.html
    """
    from stallprobes.matrix import merge

    written = output_files.OutputFiles(outputs, force)
    parts = 2 + written.any
    with Progress() as progress:

        def checks() -> Iterator[tuple[str, Matrix]]:
            for number, file in enumerate(files):
                progress.show(number / len(files), f"reading {number + 1} of {len(files)}: {file.name}")
                # A bare file name could be mistaken for a host name.
                yield os.path.join(".", file), check_results.load_check(file)
            progress.part(2, parts)

        progress.part(1, parts)
        merged = merge.merge(checks(), force=force, progress=progress.shower("searching for outlier hosts"))
        from stallprobes.wording import check_wording

        hosts = [*check_wording.host_sentences(merged.outliers), *merged.notes]
        progress.part(parts, parts)
        errors = written.write_check(merged.matrix, hosts=hosts, progress=progress)
    check_results.print_check(merged.matrix, as_json=as_json, full=full, hosts=hosts)
    check_results.raise_errors(errors)
