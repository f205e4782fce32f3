"""Watching a program: what it needs before it starts, what is read while it runs, and the report at its end."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stallprobes.errors import FileNotWritten, WatchError
from stallprobes.files import atomic
from stallprobes.watch.building import library
from stallprobes.watch.document import document
from stallprobes.watch.environment import WatchOptions, variables
from stallprobes.watch.findings import WatchFindings
from stallprobes.watch.folder import create_folder
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.known_stalls import KnownStalls
from stallprobes.watch.layout import CUPTI_VARIABLE
from stallprobes.watch.libcupti import cupti_of_this_machine
from stallprobes.watch.process import WatchedProcess
from stallscope.cli import diagnostics, foreground
from stallscope.cli.diagnostics import CommandError
from stallscope.cli.foreground import ForegroundProgram, WatchExit, shell_exit_code
from stallscope.cli.stdout import ClosedPipeError, Output
from stallscope.report.watch_text import command_title, show_watch
from stallscope.report.watch_wording import PROFILER_FINDS_IT_TAKEN, PROFILER_GETS_IT, start_problem, still_running

# Often enough that no ring of slow calls or records is overwritten before it is read, except by a burst.
POLL_S = 0.1
# Usual ways to end a program: no message names these signals.
_EXPECTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def run(words: Sequence[str], options: WatchOptions, json_file: Path | None, force: bool) -> int:
    """Run the program, report to stderr and return its exit code.

    Raises WatchError or CommandError if it was not started, and FileNotWritten where it ended well and the report could
    not be written to ``json_file``.
    """
    setup = _prepare(options, os.environ)
    try:
        watch = ProgramWatch(words, setup)
        with foreground.held_signals() as blocked:
            program = ForegroundProgram(words, setup.environment, blocked)
            watch.announce(program.pid)
            code = program.wait(POLL_S, watch.poll, watch.report)
        return watch.end(code, json_file, force)
    finally:
        setup.remove()


def print_environment(options: WatchOptions) -> None:
    """Make a folder, and write the environment of programs that write to it to stdout, as exports for a shell.

    Raises WatchError, also without a compiler.
    """
    present = dict(os.environ)
    chosen = present.get("TMPDIR")
    folder = create_folder(Path(chosen) if chosen else None)
    try:
        added = variables(library(), folder, options, present, _libcupti(present))
        out = Output()
        for name, value in added.items():
            out.write(f"export {name}={shlex.quote(value)}\n")
        out.flush()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    diagnostics.print_message(f"report what they write by: stallscope watch --attach {shlex.quote(str(folder))}")


def show_folder(folder: Path, json_file: Path | None, force: bool, known: KnownStalls | None = None) -> None:
    """Write the report of ``folder`` to stdout, and to ``json_file``. Raises WatchError and FileNotWritten."""
    analyzer = FolderAnalysis(folder, known)
    analyzer.poll()
    analyzer.finish_looking()
    analyzer.poll()
    found = analyzer.findings()
    if json_file is not None:
        _save(found, json_file, force)
    out = Output()
    show_watch(out, found, str(folder))
    out.flush()


@dataclass(frozen=True)
class WatchSetup:
    """What a program is started with. ``folder`` is None where it cannot be watched, with the reason in ``problem``."""

    environment: Mapping[str, str]
    options: WatchOptions
    folder: Path | None
    problem: str = ""

    def remove(self) -> None:
        """Remove the folder."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _prepare(options: WatchOptions, present: Mapping[str, str]) -> WatchSetup:
    """The setup of a program. Raises WatchError where another tool is injected."""
    folder = None
    try:
        built = library()
        folder = create_folder()
    except WatchError as error:
        # The program was asked for; without its report it is still of use.
        return WatchSetup(present, options, None, str(error).rstrip("."))
    try:
        added = variables(built, folder, options, present, _libcupti(present))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return WatchSetup({**present, **added}, options, folder)


def _libcupti(present: Mapping[str, str]) -> Path | None:
    """The libcupti that the user names, else the first that fits; None without any."""
    named = present.get(CUPTI_VARIABLE)
    return Path(named) if named else cupti_of_this_machine()


class ProgramWatch:
    """What is known of a program that runs: read while it runs, so that nothing is overwritten before it is read.

    Nothing here ends the program or changes its exit code: what fails is said after its end.
    """

    def __init__(self, words: Sequence[str], setup: WatchSetup) -> None:
        self._words = tuple(words)
        self._setup = setup
        self._analyzer = None if setup.folder is None else FolderAnalysis(setup.folder, setup.options.known)
        self._announced: set[tuple[int, int]] = set()
        self._problems = [f"Nothing was recorded: {setup.problem}."] if setup.problem else []
        self._failure: Exception | None = None

    def announce(self, pid: int) -> None:
        """Say that the program, process ``pid``, is watched, and what that changes for it."""
        if self._setup.problem:
            diagnostics.print_message(f"{self._words[0]} runs, but nothing is recorded: {self._setup.problem}")
            return
        change = PROFILER_GETS_IT if self._setup.options.yield_to_profiler else PROFILER_FINDS_IT_TAKEN
        diagnostics.print_message(
            f"watching {self._words[0]} (pid {pid}); {change}; for a report now: kill -USR1 {os.getpid()}"
        )

    def poll(self) -> None:
        """Read what is new."""
        if self._analyzer is not None and self._failure is None:
            with self._failures_kept():
                self._analyzer.poll()
                for process in self._analyzer.processes:
                    self._announce_problem(process)

    def report(self) -> None:
        """Write the report so far to stderr."""
        self.poll()
        with self._failures_kept():
            self._print(self._findings())

    def end(self, code: int, json_file: Path | None, force: bool) -> int:
        """Write the last report to stderr and to ``json_file``; returns the exit code of the command.

        That is the program's, whose end was ``code`` (-n by signal n), or WatchExit.FAILED where only the watch failed.
        """
        self._announce_signal(code)
        code = shell_exit_code(code)
        self.poll()
        if self._analyzer is not None:
            self._problems += map(still_running, self._analyzer.running)
        with self._failures_kept():
            found = self._findings()
            self._print(found)
            if json_file is not None:
                _save(found, json_file, force, self._words, code, self._problems)
        if self._failure is None:
            return code
        if isinstance(self._failure, WatchError | FileNotWritten):
            diagnostics.print_message(str(self._failure).rstrip("."))
        else:
            traceback.print_exception(self._failure)
        return code or WatchExit.FAILED

    @contextmanager
    def _failures_kept(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of any kind: a defect must not leave the program alone with the terminal
            self._failure = self._failure or error

    def _findings(self) -> WatchFindings:
        return WatchFindings(0, 0, ()) if self._analyzer is None else self._analyzer.findings()

    def _print(self, found: WatchFindings) -> None:
        # Where nobody reads stderr, the program's exit code is still of use.
        with suppress(CommandError, ClosedPipeError):
            out = Output.on_stderr()
            out.line()
            show_watch(out, found, command_title(self._words), self._problems)
            out.flush()

    def _announce_problem(self, process: WatchedProcess) -> None:
        key = process.pid, process.image
        problem = None if key in self._announced else start_problem(process)
        if problem is not None:
            self._announced.add(key)
            diagnostics.print_message(problem)

    def _announce_signal(self, code: int) -> None:
        """Say by which signal the program ended, as shells do for a program that they started themselves."""
        if code < 0 and -code not in _EXPECTED:
            name = signal.strsignal(-code) or "unknown"
            diagnostics.print_message(f"{self._words[0]} was ended by signal {-code} ({name})")


def _save(
    found: WatchFindings,
    path: Path,
    force: bool,
    words: Sequence[str] | None = None,
    exit_code: int | None = None,
    problems: Sequence[str] = (),
) -> None:
    text = io.StringIO()
    Output(text).json(document(found, words, exit_code, problems))
    atomic.write(path, (text.getvalue().encode(),), force=force)
