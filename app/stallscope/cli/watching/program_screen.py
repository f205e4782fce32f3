"""Watching a program on the screen: the program beside it, and what follows when the screen is closed."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress

from stallprobes.errors import EXIT_ENGINE
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.live.beside_trial import BesideTrial
from stallprobes.watch.setup import given_environment, prepare
from stallscope.cli import screen
from stallscope.cli.process import diagnostics, foreground
from stallscope.cli.process.diagnostics import CommandError
from stallscope.cli.process.inherited_signals import signals_to_reset
from stallscope.cli.process.limits import collect_rarely
from stallscope.cli.process.stdout import ClosedPipeError, Output
from stallscope.cli.watching.files import WatchFiles
from stallscope.cli.watching.session import POLL_S, ProgramWatch
from stallscope.tui.settings import Settings
from stallscope.tui.sources.pane_program import PaneProgram
from stallscope.tui.sources.watched import WatchedProgramSource

# Signals that are forwarded to the program after the screen has closed, until the program ends.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2)
# Number of last lines of the program's output that are printed if the program failed. Reason: the error message was on
# the screen, and the screen has closed.
_LAST_LINES = 20


def run(
    words: Sequence[str], options: WatchOptions, files: WatchFiles, known: Settings, trial: BesideTrial | None = None
) -> int:
    """Run the program beside the screen and return its exit code. ``trial`` has aggressors beside the program.

    Raises WatchError or CommandError if it was not started.
    """
    setup = prepare(options, given_environment())
    collect_rarely()
    try:
        watch = ProgramWatch(words, setup, files)
        watch.live.trial = trial
        defaults = set(signals_to_reset())
        if signal.getsignal(foreground.REPORT_SIGNAL) is not signal.SIG_IGN:
            defaults.add(foreground.REPORT_SIGNAL)
        # The report is on the screen.
        signal.signal(foreground.REPORT_SIGNAL, signal.SIG_IGN)
        try:
            program = PaneProgram(words, setup.environment, files.output, force=files.force, defaults=defaults)
        except (OSError, ValueError) as error:
            raise foreground.not_started(words[0], error) from error
        source = WatchedProgramSource(watch.live, program, recorder=watch.recorder)
        # Before the screen's modules are loaded, so that nothing is overwritten before it is read.
        source.start()
        try:
            crashed = screen.run_app(lambda: source, known, first="watch")[0] == EXIT_ENGINE
        finally:
            source.close()
        if crashed and program.running:
            diagnostics.print_message(f"{words[0]} (pid {program.pid}) continues without the screen")
        code = _outlast(program, watch, program.ended_by_signal or crashed)
        program.drain()
        _print_last_output(program, code)
        return watch.end(code, source.output_lines)
    finally:
        setup.remove()


def _outlast(program: PaneProgram, watch: ProgramWatch, alone: bool) -> int:
    """Wait for the end of the program, and return its exit code, -n if signal n ended it.

    Unless it is left ``alone``, it gets SIGINT first, as by ctrl+c.
    """
    for number in _FORWARDED:
        signal.signal(number, lambda got, _: program.send(got))
    try:
        if program.running and not alone:
            program.send(signal.SIGINT)
            # A program that is stopped gets it only when it continues.
            program.send(signal.SIGCONT)
            diagnostics.print_message(f"SIGINT sent to {program.arguments[0]} (pid {program.pid}); waiting for its end")
        while (code := program.wait(POLL_S)) is None:
            watch.poll()
    finally:
        # A signal for the program must not interrupt the report.
        for number in _FORWARDED:
            signal.signal(number, signal.SIG_IGN)
    return code


def _print_last_output(program: PaneProgram, code: int) -> None:
    lines = program.output.lines(_LAST_LINES)
    if not code or not lines:
        return
    # Where nobody reads stderr, the program's exit code is still of use.
    with suppress(CommandError, ClosedPipeError), Output.on_stderr() as out:
        out.line(f"The last output of {program.arguments[0]}:", "strong")
        for line in lines:
            out.line(line)
