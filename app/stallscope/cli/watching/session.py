"""Watching a program: what it needs before it starts, what is read while it runs, and the report at its end."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from stallprobes.errors import FileNotWritten, RunFileError, WatchError
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.causes.known_stalls import KnownStalls
from stallprobes.watch.comparing import run_file
from stallprobes.watch.environment import WatchOptions, asleep_variables, libcupti_of, library, variables
from stallprobes.watch.live.beside_trial import BesideTrial
from stallprobes.watch.live.live_program import LOOK_S, LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram
from stallprobes.watch.live.recorder import OutputLines, WatchRecorder
from stallprobes.watch.rank_text import process_words
from stallprobes.watch.reading.folder import create_folder
from stallprobes.watch.reading.folder_lock import FolderLock
from stallprobes.watch.reading.process import WatchedProcess
from stallprobes.watch.setup import WatchSetup, given_environment, prepare
from stallprobes.wording.watch_wording import PROFILER_FINDS_IT_TAKEN, PROFILER_GETS_IT, state_problem, still_running
from stallscope.cli.process import diagnostics, foreground
from stallscope.cli.process.diagnostics import CommandError
from stallscope.cli.process.foreground import ForegroundProgram, WatchExit, shell_exit_code
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.signals import InterruptHandler
from stallscope.cli.process.stdout import ClosedPipeError, Output
from stallscope.cli.watching.files import WatchFiles
from stallscope.report.watch_text import command_title, show_watch

# Usual time (s) between two reads of the file into which the program records its calls. The file has room for the calls
# of this time, except in a burst of calls. After a slow read, watch waits longer.
POLL_S = 0.1
# Longest sleep (s) between two checks for ctrl+c while watch waits for its next read of the record files.
_ANSWER_S = 0.05
# Text of the progress line while watch reads the calls that the program recorded.
_READING = "reading what the program recorded"
# Signals that usually end a program. If one of these signals has ended the program, watch prints no message.
_EXPECTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def run(
    words: Sequence[str],
    options: WatchOptions,
    files: WatchFiles,
    no_screen: str = "",
    times: int = 1,
    trial: BesideTrial | None = None,
) -> int:
    """Run the program so many ``times``, or until it fails, report to stderr and return the last exit code.

    ``trial`` has aggressors beside it. ``no_screen`` says why there is no screen, "" where none was asked for. Raises
    WatchError or CommandError if it was not started.
    """
    with foreground.held_signals() as blocked:
        try:
            for number in range(1, times + 1):
                if times > 1:
                    diagnostics.print_message(f"run {number} of {times}")
                if code := _run_once(words, options, files, no_screen, trial, blocked):
                    break
            return code
        finally:
            foreground.ignore_signals()


def _run_once(
    words: Sequence[str],
    options: WatchOptions,
    files: WatchFiles,
    no_screen: str,
    trial: BesideTrial | None,
    blocked: set[signal.Signals],
) -> int:
    setup = prepare(options, given_environment())
    try:
        watch = ProgramWatch(words, setup, files)
        watch.live.trial = trial
        program = ForegroundProgram(words, setup.environment, blocked)
        watch.announce(program.pid, no_screen)
        return watch.end(program.wait(POLL_S, watch.poll, watch.report))
    finally:
        setup.remove()


def require_run_file(path: Path) -> None:
    """Raise CommandError where no run can be appended to the file ``path``."""
    try:
        run_file.ready(path)
    except RunFileError as error:
        raise CommandError(WatchExit.FAILED, f"--save: {error}") from error


def print_environment(options: WatchOptions) -> None:
    """Make a folder, and write the environment of programs that write to it to stdout, as exports for a shell.

    Raises WatchError.
    """
    present = given_environment()
    chosen = present.get("TMPDIR")
    folder = create_folder(Path(chosen) if chosen else None)
    try:
        added = variables(library(), folder, options, present, libcupti_of(present))
        with Output() as out:
            for name, value in added.items():
                out.write(f"export {name}={shlex.quote(value)}\n")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    diagnostics.print_message(f"report what they write by: stallscope watch --attach {shlex.quote(str(folder))}")


def print_asleep_environment(options: WatchOptions) -> None:
    """Write the environment of programs in which the library sleeps to stdout, as exports for a shell.

    Raises WatchError.
    """
    with Output() as out:
        for name, value in asleep_variables(library(), options, given_environment()).items():
            out.write(f"export {name}={shlex.quote(value)}\n")
    diagnostics.print_message("watch a program that was started so by: stallscope watch --pid PID")


def show_folder(folder: Path, files: WatchFiles, known: KnownStalls | None = None) -> None:
    """Write the report of ``folder`` to stdout, and ``files``. Raises WatchError and FileNotWritten.

    With a recording, the report follows the end of all its processes, or a signal.
    """
    with ExitStack() as held:
        held.callback(FolderLock.join(folder).release)
        live = LiveProgram(folder, WatchedProgram(str(folder)), known, keep_ns=None)
        live.metrics = files.metrics
        with Progress() as progress:
            live.update(progress=progress.shower(_READING))
        recorder = None if files.record is None else WatchRecorder(files.record, live.trace_of)
        if recorder is not None and live.running:
            _record_running(live, recorder)
        failed: list[Exception] = []
        with Progress() as progress:
            read_to_the_end(live, progress)
            findings = live.findings()
            save_files(files, live, findings, recorder, progress, failed)
        with Output() as out:
            show_watch(out, findings, str(folder), full=files.full)
    for error in failed[:-1]:
        diagnostics.print_failure(error)
    if failed:
        raise failed[-1]


def _record_running(live: LiveProgram, recorder: WatchRecorder) -> None:
    """Put the moments of ``live`` into ``recorder`` until none of its processes runs any more, or until a signal.

    The signal is SIGINT, SIGTERM or SIGHUP. Raises WatchError where the folder cannot be read any more.
    """
    # A reading takes as long as it needs.
    with InterruptHandler(grace_s=0) as interrupt:
        who = process_words(live.running[0])
        more = f" and {len(live.running) - 1} more" if len(live.running) > 1 else ""
        diagnostics.print_message(f"recording {who}{more} until its end; ctrl+c ends the recording")
        try:
            while live.running and not recorder.problem and not interrupt.stop_requested():
                begun_s = time.thread_time()
                read_new(live, recorder)
                due_s = time.monotonic() + max(POLL_S, live.rest_s(time.thread_time() - begun_s))
                while time.monotonic() < due_s and not interrupt.stop_requested():
                    time.sleep(_ANSWER_S)
        except Exception:
            # What was recorded before stays readable.
            recorder.close()
            raise
        # A signal after the last reading ends nothing.
        interrupt.stop_requested()


def read_new(
    live: LiveProgram, recorder: WatchRecorder | None, progress: Callable[[float], None] = lambda _: None
) -> None:
    """Read what is new, and put the moment into the recording, if there is one. Raises WatchError.

    ``progress`` is called with the share (0 to 1) of the files that are read.
    """
    if recorder is None and live.trial is None and not live.metrics_due:
        live.read(progress)
    elif live.update(progress=progress) and live.moment is not None and recorder is not None:
        recorder.put(live.moment)


def read_to_the_end(live: LiveProgram, progress: Progress) -> None:
    """Read what the processes of ``live`` wrote last and analyze it. Raises WatchError."""
    progress.begin("reading the code of the program", at_most_s=LOOK_S)
    live.finish_looking()
    progress.begin(_READING)
    live.update(analyze=True, progress=progress.shower(_READING))
    progress.begin("analyzing the program's calls")


def finish_recording(live: LiveProgram, recorder: WatchRecorder | None, output: OutputLines | None = None) -> None:
    """Put the last moment into the recording, if there is one, and close it. Raises FileNotWritten."""
    if recorder is None:
        return
    if live.moment is not None:
        recorder.put(live.moment, output, last=True)
    recorder.close()
    if recorder.problem:
        raise FileNotWritten(f"--record: {recorder.problem}.")
    if recorder.left_out:
        if not recorder.written:
            raise FileNotWritten(f"--record: {recorder.left_out_text}.")
        diagnostics.print_message(recorder.left_out_text)
    diagnostics.print_message(f"recorded to {recorder.path}; stallscope replay shows it")


def save_files(
    files: WatchFiles,
    live: LiveProgram,
    findings: WatchFindings,
    recorder: WatchRecorder | None,
    progress: Progress,
    failures: list[Exception],
) -> None:
    """Write ``files`` and the end of the recording.

    A file that cannot be written costs neither the others nor the report: its error is put into ``failures``.
    """
    with kept(failures):
        files.save_report(findings, progress)
    with kept(failures):
        files.save_run(findings, progress)
    with kept(failures):
        save_metrics(live, findings)
    with kept(failures):
        files.save_trace(live, findings, progress)
    with kept(failures):
        finish_recording(live, recorder)


def close_trial(live: LiveProgram) -> None:
    """End the aggressors beside the program, if there are some. Raises WatchError where they were refused or ended."""
    if live.trial is not None:
        live.trial.close()
        if live.trial.problem:
            raise WatchError(live.trial.problem)


def save_metrics(live: LiveProgram, findings: WatchFindings) -> None:
    """Write the last metrics of ``live``, if it has a file for them. Raises FileNotWritten."""
    if live.metrics is not None:
        live.metrics.write(findings, last=True)


@contextmanager
def kept(failures: list[Exception], kind: type[Exception] = Exception) -> Iterator[None]:
    """Puts an error of ``kind`` that ends the block into ``failures``."""
    try:
        yield
    except kind as error:
        failures.append(error)


class ProgramWatch:
    """Watch of a program that runs: reads its calls meanwhile, so that nothing is overwritten before it is read.

    Nothing here ends the program or changes its exit code: what fails is said after its end.
    """

    def __init__(self, words: Sequence[str], setup: WatchSetup, files: WatchFiles) -> None:
        self._words = tuple(words)
        self._setup, self._files = setup, files
        program = WatchedProgram(command_title(words), tuple(words), problem=setup.problem)
        self.live = LiveProgram(setup.folder, program, setup.options.known, files.keep_ns)
        self.live.metrics = files.metrics
        self.recorder = None if files.record is None else WatchRecorder(files.record, self.live.trace_of)
        self._announced: set[tuple[int, int]] = set()
        self._problems = [f"Nothing was recorded: {setup.problem}."] if setup.problem else []
        self._failures: list[Exception] = []

    def announce(self, pid: int, no_screen: str = "") -> None:
        """Say that the program, process ``pid``, is watched, what that changes for it, and why there is no screen."""
        if self._setup.problem:
            diagnostics.print_message(f"{self._words[0]} runs, but nothing is recorded: {self._setup.problem}")
            return
        where = f" without a screen: {no_screen}" if no_screen else ""
        change = PROFILER_GETS_IT if self._setup.options.yield_to_profiler else PROFILER_FINDS_IT_TAKEN
        diagnostics.print_message(
            f"watching {self._words[0]} (pid {pid}){where}; {change}; for a report now: kill -USR1 {os.getpid()}"
        )

    def poll(self, progress: Callable[[float], None] = lambda _: None) -> float:
        """Read what is new. Returns the pause (s) until the next poll.

        ``progress`` is called with the share (0 to 1) of the files that are read.
        """
        begun_s = time.thread_time()
        if not self._failures:
            with self._failureskept():
                read_new(self.live, self.recorder, progress)
                for process in self.live.processes:
                    self._announce_problem(process)
        return self.live.rest_s(time.thread_time() - begun_s)

    def report(self) -> None:
        """Write the report so far to stderr."""
        self.poll()
        with self._failureskept():
            self._print(self.live.findings().with_problems(self._problems))

    def end(self, code: int, output: OutputLines | None = None) -> int:
        """Write the last report to stderr, and the files; returns the exit code of the command.

        That is the program's, whose end was ``code`` (-n by signal n), or WatchExit.FAILED where only the watch failed.
        """
        self._announce_signal(code)
        with self._failureskept():
            close_trial(self.live)
        ended, code = code, shell_exit_code(code)
        with Progress() as progress:
            self.poll(progress.shower(_READING))
            self._problems += [still_running(process) for process in self.live.running]
            with self._failureskept():
                progress.begin("analyzing the program's calls")
                findings = self.live.findings().with_problems(self._problems)
                progress.end()
                self._print(findings)
                report = findings.changed(program=tuple(self._words), exit_code=code)
                save_files(self._files, self.live, report, None, progress, self._failures)
            with self._failureskept():
                if self.recorder is not None:
                    progress.begin("finishing the recording")
                    self.live.update(replace(self.live.program, exit_code=ended), analyze=True)
                finish_recording(self.live, self.recorder, output)
        for failure in self._failures:
            diagnostics.print_failure(failure)
        return code or (WatchExit.FAILED if self._failures else 0)

    def _failureskept(self) -> AbstractContextManager[None]:
        # Any error: after a defect the program still needs its signals and its terminal.
        return kept(self._failures)

    def _print(self, findings: WatchFindings) -> None:
        # Where nobody reads stderr, the program's exit code is still of use.
        with suppress(CommandError, ClosedPipeError), Output.on_stderr() as out:
            out.line()
            show_watch(out, findings, command_title(self._words), self._files.full)

    def _announce_problem(self, process: WatchedProcess) -> None:
        key = process.pid, process.image
        problem = None if key in self._announced else state_problem(process)
        if problem is not None:
            self._announced.add(key)
            diagnostics.print_message(problem)

    def _announce_signal(self, code: int) -> None:
        """Say by which signal the program ended, as shells do for a program that they started themselves."""
        if code < 0 and -code not in _EXPECTED:
            name = signal.strsignal(-code) or "unknown"
            diagnostics.print_message(f"{self._words[0]} was ended by signal {-code} ({name})")
