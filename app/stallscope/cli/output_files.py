"""Files that a command is going to write: whether they can be, before anything is measured, and writing them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stallscope.cli.diagnostics import Exit, Problem

if TYPE_CHECKING:
    from stallprobes.matrix.compare import Comparison
    from stallprobes.matrix.matrix import Matrix

SAVE, HTML, PROMETHEUS = "--save", "--html", "--prometheus"
# How a file of --prometheus begins. The collector wants one file with what was measured last, so it may be replaced.
_OURS = b"# HELP stallscope_"


class OutputFiles:
    """The files by their options. Raises Problem (exit code 2) for one that cannot be written, or is there without
    ``force``; only a file of ``--prometheus`` may be replaced without it, by the next one."""

    def __init__(self, paths: Mapping[str, Path | None], force: bool) -> None:
        self._force = force
        self._paths = {option: path for option, path in paths.items() if path is not None}
        if not self._paths:
            return
        from stallprobes.errors import FileNotWritten
        from stallprobes.files import atomic

        seen: dict[str, str] = {}
        for option, path in self._paths.items():
            if str(path) == "-":
                raise Problem(Exit.USAGE, f"{option} takes a file; for stdout say --json")
            try:
                atomic.ready(path, force=force or (option == PROMETHEUS and _ours(path)))
            except FileNotWritten as error:
                raise Problem(Exit.USAGE, f"{option}: {error}") from error
            real = os.path.realpath(path)
            if real in seen:
                raise Problem(Exit.USAGE, f"{seen[real]} and {option} name the same file {path}")
            seen[real] = option

    def write(self, matrix: Matrix, comparison: Comparison | None = None, hosts: Sequence[str] = ()) -> list[str]:
        """Write all of them, each whole or not at all. Returns a sentence for each one that failed."""
        if not self._paths:
            return []
        from stallprobes.errors import CheckFileError, FileNotWritten
        from stallprobes.matrix import document as check_document

        writers: dict[str, Callable[[Path], None]] = {
            SAVE: lambda path: check_document.save(matrix, path, force=self._force),
            HTML: lambda path: self._page(matrix, path, comparison, hosts),
            PROMETHEUS: lambda path: self._prometheus(matrix, path),
        }
        failed = []
        for option, path in self._paths.items():
            try:
                writers[option](path)
            except (FileNotWritten, CheckFileError) as error:
                failed.append(f"{option}: {error}")
        return failed

    def _page(self, matrix: Matrix, path: Path, comparison: Comparison | None, hosts: Sequence[str]) -> None:
        from stallprobes.files import atomic
        from stallscope.report import html_page

        text = html_page.page(matrix, comparison, hosts)
        # A name from somewhere else may hold what UTF-8 has no word for.
        atomic.write(path, (text.encode("utf-8", errors="replace"),), force=self._force)

    def _prometheus(self, matrix: Matrix, path: Path) -> None:
        from stallprobes.matrix import prometheus

        prometheus.write(matrix, path)


def _ours(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_OURS)) == _OURS
    except OSError:
        return False
