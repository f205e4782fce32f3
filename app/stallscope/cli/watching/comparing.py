"""Comparing two files of watched runs: what ``compare`` does with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stallprobes.files import codec
from stallprobes.matrix.comparing.comparison import Change
from stallprobes.watch.comparing import run_file
from stallprobes.watch.comparing.compare import compare
from stallscope.cli import check_results, output_files
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import ExitCode
from stallscope.cli.process.limits import collect_rarely
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.stdout import Output
from stallscope.report import runs_page, runs_text


def compare_runs(
    old: Path, new: Path, html: Path | None, fail_on: Sequence[str], *, as_json: bool, force: bool
) -> None:
    """Compare the runs in two files and print the result; a change in ``fail_on`` ends the process with exit code 1.

    ``force`` compares runs on other models of GPU too, and replaces an existing page. Raises RunFileError,
    NotComparable and CommandError.
    """
    collect_rarely()
    files = output_files.OutputFiles({output_files.HTML: html}, force)
    with Progress() as progress:
        sides = []
        for path in (old, new):
            progress.begin(f"reading {path.name}")
            sides.append(run_file.load(path))
        progress.begin("comparing the runs")
        with check_results.force_named():
            result = compare(*sides, force=force)
        result = result.changed(fail_on=tuple(change for change in Change if change in fail_on))
        pages = {output_files.HTML: lambda path: files.write_text(path, runs_page.page(result))}
        errors = files.write(pages, progress)
    with Output() as out:
        if as_json:
            out.json(codec.plain(result))
        else:
            runs_text.show(out, result)
    check_results.raise_errors(errors)
    if result.change in result.fail_on:
        diagnostics.exit_process(ExitCode.REGRESSION)
