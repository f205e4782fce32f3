"""Output files of a command: checked before the measurement, written after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stallprobes.errors import CheckFileError, FileNotRead, FileNotWritten
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.progress import Progress

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import Comparison
    from stallprobes.matrix.matrix import Matrix
    from stallprobes.matrix.reference import ReferenceComparison

# File descriptors of stdout and stderr. A file to which stdout or stderr is redirected must not be replaced.
_STREAMS = 1, 2
# Options that name an output file.
SAVE, HTML, CSV, PROMETHEUS, TRACE = "--save", "--html", "--csv", "--prometheus", "--trace"


class OutputFiles:
    """Output files by option.

    Raises CommandError (exit code 2) for a file that cannot be written, or exists while ``force`` is False.
    """

    def __init__(self, paths: Mapping[str, Path | None], force: bool) -> None:
        self._force = force
        self._paths = {option: path for option, path in paths.items() if path is not None}
        for option, path in self._paths.items():
            require_writable(option, path, force)
        require_different(self._paths)

    @property
    def any(self) -> bool:
        """True if there is a file to write."""
        return bool(self._paths)

    def write(self, writers: Mapping[str, Callable[[Path], object]], progress: Progress) -> list[str]:
        """Write every file by the writer of its option, completely or not at all. Returns a sentence for each failed
        file."""
        failed = []
        for option, path in self._paths.items():
            progress.begin(f"writing {path.name}")
            try:
                writers[option](path)
            except (FileNotWritten, CheckFileError) as error:
                failed.append(f"{option}: {error}")
        return failed

    def write_check(
        self,
        matrix: Matrix,
        comparison: Comparison | None = None,
        hosts: Sequence[str] = (),
        reference: ReferenceComparison | None = None,
        *,
        progress: Progress,
    ) -> list[str]:
        """Write every file of a check. Returns a sentence for each failed file."""
        if not self._paths:
            return []
        from stallprobes.files import tables
        from stallprobes.matrix import check_file, prometheus

        def page() -> str:
            from stallscope.report import html_page

            return html_page.page(matrix, comparison, hosts, reference)

        return self.write(
            {
                SAVE: lambda path: check_file.save(
                    matrix, path, force=self._force, progress=progress.shower(f"saving {path.name}")
                ),
                HTML: lambda path: self.write_text(path, page()),
                CSV: lambda path: tables.save_csv(matrix.to_records(), path, force=self._force),
                PROMETHEUS: lambda path: prometheus.write(matrix, path),
            },
            progress,
        )

    def write_text(self, path: Path, text: str) -> None:
        """Write ``text`` to the file ``path``."""
        from stallprobes.files import atomic

        atomic.write(path, (text.encode(),), force=self._force)


def require_writable(option: str, path: Path, force: bool, for_stdout: str = "use --json for stdout") -> None:
    """Raise CommandError (exit code 2) where the file ``path`` of ``option`` could not be written now.

    A file of ``--prometheus`` may replace an earlier one without ``force``: the collector reads the latest metrics.
    ``-`` is refused, which other programs take for stdout, and stdout's own file: ``for_stdout`` says what to do.
    """
    from stallprobes.files import atomic

    _refuse_stdout(option, path, for_stdout)
    try:
        atomic.ready(path, force=force or (option == PROMETHEUS and _is_prometheus_export(path)))
    except FileNotWritten as error:
        raise CommandError(ExitCode.USAGE, f"{option}: {error}") from error


def require_different(paths: Mapping[str, Path | None]) -> None:
    """Raise CommandError (exit code 2) where two options name one file."""
    used: dict[str, str] = {}
    for option, path in paths.items():
        if path is None:
            continue
        try:
            real = os.path.realpath(path)
        except FileNotFoundError as error:
            # The current folder was removed.
            raise CommandError(ExitCode.USAGE, f"{option}: {path} is in a folder that does not exist") from error
        if real in used:
            raise CommandError(
                ExitCode.USAGE, f"{used[real]} and {option} name the same file {path}; use different files"
            )
        used[real] = option


def require_new_file(option: str, path: Path) -> None:
    """Raise CommandError (exit code 2) where the recording ``path`` of ``option`` could not be created."""
    # The recorder refuses a file that exists, by a sentence without --force, which no recording has.
    require_writable(option, path, True, "a recording cannot be written to stdout")


def _refuse_stdout(option: str, path: Path, remedy: str) -> None:
    if str(path) == "-":
        raise CommandError(ExitCode.USAGE, f"{option} needs a file; {remedy}")
    for stream in _STREAMS:
        with suppress(OSError, ValueError):
            if os.path.samestat(os.stat(path), os.fstat(stream)) and path.is_file():
                # The new file would replace the one that the stream still writes to.
                raise CommandError(ExitCode.USAGE, f"{option} needs another file than stdout or stderr; {remedy}")


def _is_prometheus_export(path: Path) -> bool:
    from stallprobes.files import input_file, prometheus

    with suppress(FileNotRead, OSError):
        # What is read of a pipe is gone.
        if path.is_file():
            with input_file.opened(path) as file:
                return file.read(len(prometheus.START)) == prometheus.START
    return False
