"""The command ``compare``."""

from __future__ import annotations

from pathlib import Path

import click

from stallscope.cli import check_results, options, output_files
from stallscope.cli.command import MeasuringCommand
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.stdout import Output


@click.command("compare", cls=MeasuringCommand)
@click.argument("old", type=options.INPUT_FILE)
@click.argument("new", type=options.INPUT_FILE)
@options.json("stallscope.compare/3, of runs stallscope.watch-compare/1")
@options.html
@check_results.fail_on(help_="Changes for which to exit 1")
@options.force("; compare checks or runs of different kinds of GPU")
def command(old: Path, new: Path, as_json: bool, html: Path | None, fail_on: tuple[str, ...], force: bool) -> None:
    """Compare the saved checks OLD and NEW cell by cell: SAME, WORSE, BETTER or UNSURE, at p50 and p99.

    Differences in GPU, driver, settings and host come first. Exits 1 if a cell is WORSE or newly STARVED, or has
    another change that --fail-on names. --html writes the page of NEW with the comparison.

    Two files of watch --save are compared too: the time of a step, what bounds the program, its lines, waits and
    kernels. What is named exceeds the spread between runs: ×1.42 until each side has three runs, from then on by the
    runs. Exits 1 if a step is WORSE.

    \b
    Examples:
      stallscope compare before.json after.json
      stallscope compare before.json after.json --fail-on worse,starved,unsure --html report.html
      stallscope compare before.runs after.runs
    """
    # With --force the check would be lost.
    output_files.require_different({"OLD": old, output_files.HTML: html})
    output_files.require_different({"NEW": new, output_files.HTML: html})
    from stallprobes.watch.comparing import run_kind

    if any(map(run_kind.holds_runs, (old, new))):
        from stallscope.cli.watching import comparing

        comparing.compare_runs(old, new, html, fail_on, as_json=as_json, force=force)
        return
    files = output_files.OutputFiles({output_files.HTML: html}, force)
    with Progress() as progress:
        parts = 3 + files.any
        progress.part(1, parts)
        before = check_results.load_check(old, progress)
        progress.part(2, parts)
        after = check_results.load_check(new, progress)
        progress.part(3, parts)
        progress.begin("comparing the checks")
        comparison = check_results.compare_checks(before, after, force)
        progress.part(parts, parts)
        errors = files.write_check(comparison.new, comparison, progress=progress)
    with Output() as out:
        if as_json:
            out.json(check_results.comparison_document(comparison, fail_on))
        else:
            from stallscope.report import comparison_text

            comparison_text.show(out, comparison, check_results.regressions(comparison, fail_on))
    check_results.raise_errors(errors)
    check_results.exit_on_failure(comparison, fail_on)
