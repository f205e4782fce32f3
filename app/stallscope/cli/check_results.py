"""Results of checks: loading, comparing and printing them, and their exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stallprobes.errors import NotComparable, TimelinesDiffer
from stallprobes.verdicts.kinds import FAIL_ON, FAILURES, UNUSUAL
from stallscope.cli import completers
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.limits import collect_rarely
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.stdout import Output

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import CellChange, Comparison
    from stallprobes.matrix.matrix import Matrix
    from stallprobes.matrix.reference import Reference, ReferenceComparison


_Command = TypeVar("_Command", bound=Callable[..., Any])


def fail_on(*more: str, help_: str) -> Callable[[_Command], _Command]:
    """The option --fail-on: its values are the changes of a comparison, and ``more``; ``help_`` begins its help."""
    results = (*FAILURES, *more)

    def checked(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
        names = [name.strip().lower() for name in value.split(",") if name.strip()]
        if names == [completers.NONE]:
            return ()
        for name in names:
            if name == completers.NONE:
                raise click.BadParameter(f"{completers.NONE} cannot be combined with other values")
            if name not in results:
                raise click.BadParameter(f'"{name}" is not one of {", ".join(results)} or {completers.NONE}')
        if not names:
            raise click.BadParameter(f"use one or more of {', '.join(results)}, or {completers.NONE}")
        return tuple(dict.fromkeys(names))

    return click.option(
        "--fail-on",
        default=",".join(FAIL_ON),
        show_default=True,
        callback=checked,
        shell_complete=completers.failures(results),
        metavar="RESULTS",
        help=f"{help_}, separated by commas: {', '.join(results)}; or {completers.NONE}.",
    )


def load_check(path: Path, progress: Progress | None = None) -> Matrix:
    """The saved check in ``path``, whose reading ``progress`` shows. Raises CheckFileError."""
    from stallprobes.matrix import check_file

    collect_rarely()
    if progress is None:
        return check_file.load(path)
    progress.begin(f"reading {path.name}")
    return check_file.load(path, progress.shower(f"reading {path.name}"))


def compare_checks(old: Matrix, new: Matrix, force: bool) -> Comparison:
    """The comparison. Raises NotComparable if the two do not belong together, unless ``force``."""
    from stallprobes.matrix.comparing import compare as comparing

    with force_named():
        return comparing.compare(old, new, force=force)


@contextmanager
def force_named() -> Iterator[None]:
    """Context in which NotComparable names the option --force, where that makes the two comparable."""
    try:
        yield
    except TimelinesDiffer:
        raise
    except NotComparable as error:
        raise NotComparable(f"{str(error).rstrip('.')}; use --force to compare them anyway") from error


def load_reference(name: str | None) -> Reference | None:
    """The reference of --reference, None for none or without the option.

    Raises CheckFileError for an unknown name, and for a file that is no reference.
    """
    if name is None or name == completers.NONE:
        return None
    from stallprobes.matrix import reference_choice

    return reference_choice.load(name)


def against_reference(matrix: Matrix, name: str | None, chosen: Reference | None) -> ReferenceComparison | None:
    """Unusual cells of ``matrix`` by the ``chosen`` reference of --reference ``name``.

    Without ``name`` by the fitting reference of the package, None without one. Raises NotComparable if the chosen
    reference does not fit.
    """
    from stallprobes.matrix import reference_choice

    if chosen is not None:
        return chosen.unusual(matrix)
    return None if name == completers.NONE else reference_choice.unusual(matrix)


def comparison_document(
    comparison: Comparison, fail_on: Sequence[str], check: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """JSON document of the comparison (stallscope.compare/3), with the new check's document in it if given."""
    from stallprobes.matrix.comparing import comparison as comparing

    return comparing.document(comparison, fail_on, regressions(comparison, fail_on), check)


def print_check(
    matrix: Matrix,
    comparison: Comparison | None = None,
    fail_on: Sequence[str] = (),
    *,
    as_json: bool,
    full: bool = False,
    hosts: Sequence[str] = (),
    reference: ReferenceComparison | None = None,
) -> None:
    """Write a check to stdout, with its comparisons with an earlier check and with a reference, if any."""
    with Output() as out:
        if as_json:
            from stallprobes.matrix import document as check_document

            document = check_document.lazy_document(matrix, reference)
            out.json(document if comparison is None else comparison_document(comparison, fail_on, document))
        else:
            from stallscope.report import matrix_text

            changed = () if comparison is None else regressions(comparison, fail_on)
            matrix_text.show(
                out, matrix, hosts, comparison=comparison, regressions=changed, reference=reference, full=full
            )


def raise_errors(sentences: Sequence[str]) -> None:
    """Report files that could not be written. Raises CommandError (exit code 2) with the last sentence, if any."""
    for sentence in sentences[:-1]:
        diagnostics.print_message(sentence)
    if sentences:
        raise CommandError(ExitCode.USAGE, sentences[-1])


def regressions(comparison: Comparison, fail_on: Sequence[str]) -> tuple[CellChange, ...]:
    """The cells with a change in ``fail_on``, which may also have UNUSUAL."""
    return comparison.regressions([name for name in fail_on if name != UNUSUAL])


def exit_on_failure(
    comparison: Comparison | None, fail_on: Sequence[str], reference: ReferenceComparison | None = None
) -> None:
    """End the process with exit code 1 if a change, or a cell that stalls only here, is in ``fail_on``.

    Raises CommandError (exit code 2) where no cell could be compared with the reference that UNUSUAL needs.
    """
    if comparison is not None and regressions(comparison, fail_on):
        diagnostics.exit_process(ExitCode.REGRESSION)
    if UNUSUAL not in fail_on:
        return
    if reference is None or not reference.compared:
        raise CommandError(
            ExitCode.USAGE, f"--fail-on {UNUSUAL}: no cell could be compared with a reference; name another one"
        )
    if reference.stalled_here:
        diagnostics.exit_process(ExitCode.REGRESSION)
