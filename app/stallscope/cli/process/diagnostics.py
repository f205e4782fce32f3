"""Messages, questions and progress on stderr, and the exit codes."""

from __future__ import annotations

import os
import sys
import time
from enum import IntEnum
from typing import NoReturn

from stallprobes.foreign_text import printable
from stallscope.cli.process.streams import guarded
from stallscope.report.columns import cut_columns
from stallscope.report.text import TerminalText


class ExitCode(IntEnum):
    """Exit codes of every command."""

    SUCCESS = 0
    REGRESSION = 1
    USAGE = 2
    NO_GPU = 3
    FAILED = 4
    DAMAGED = 5
    INTERRUPTED = 130


EXIT_CODE_MEANINGS = {
    ExitCode.SUCCESS: "success",
    ExitCode.REGRESSION: "a regression or a failed expectation",
    ExitCode.USAGE: "invalid usage, or a file that cannot be read or written",
    ExitCode.NO_GPU: "no usable GPU",
    ExitCode.FAILED: "the engine, the GPU or stallscope itself failed during the command",
    ExitCode.DAMAGED: "a recording is damaged or truncated; what comes before was read",
    ExitCode.INTERRUPTED: "interrupted",
}

# Back to the first column, and the line erased.
_CLEAR_LINE = "\r\x1b[K"


class CommandError(Exception):
    """Ends the command with ``exit_code`` and one sentence on stderr."""

    def __init__(self, exit_code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.sentence = sentence


def print_message(sentence: str) -> None:
    """Print one line on stderr. A closed stderr is ignored."""
    _write(f"stallscope: {printable(sentence)}\n")


def print_notice(sentence: str) -> None:
    """Print one line on stderr while a progress bar may be there, which is drawn again below it."""
    if is_terminal(sys.stderr) and os.environ.get("TERM", "") != "dumb":
        _write(TerminalText(_CLEAR_LINE))
    print_message(sentence)


def confirm(question: str) -> bool:
    """Ask on stderr and read the answer from stdin; anything but yes is no."""
    try:
        asked = _write(f"stallscope: {printable(question)} [y/N] ")
        return asked and sys.stdin.readline().strip().lower() in ("y", "yes")
    except (OSError, ValueError):
        return False


def is_interactive() -> bool:
    """Whether stdin and stderr are terminals, so that a question can be answered."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def is_terminal(stream: object) -> bool:
    """Whether ``stream`` is a terminal; False if it is closed or missing."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


def screen_obstacle() -> str | None:
    """Why this terminal cannot show the screen, as a sentence; None if it can."""
    term = os.environ.get("TERM", "")
    if term in ("", "dumb", "unknown"):
        which = f"TERM={term} has no such support" if term else "TERM is not set"
        return (
            f"the screen needs a terminal with cursor addressing, but {which}; for text and JSON output see: "
            "stallscope --help"
        )
    # The screen is drawn on stderr, so stdout may be a file.
    if not is_interactive():
        return "the screen needs a terminal for input and output; for text and JSON output see: stallscope --help"
    return None


def program_screen_obstacle() -> str:
    """Why a program cannot be watched on the screen, as a clause; "" if it can.

    Its output has a pane, so where stdout is a file or a pipe, somebody wants it there.
    """
    if not is_terminal(sys.stdout):
        return "stdout is no terminal"
    if not is_interactive():
        return f"{'stderr' if is_terminal(sys.stdin) else 'stdin'} is no terminal"
    return "" if screen_obstacle() is None else "the terminal has no cursor addressing (TERM)"


def exit_process(code: int) -> NoReturn:
    """End the process with ``code``, without an error message if stdout or stderr cannot be flushed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            # The interpreter flushes again at exit and would print an error.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1 if stream is sys.stdout else 2)
    raise SystemExit(int(code))


class ProgressBar:
    """Progress bar on stderr. Use as a context manager.

    Drawn on a terminal only. Elsewhere nothing is printed, or a line every ``line_interval_s`` seconds if given.
    """

    WIDTH = 24

    def __init__(self, line_interval_s: float | None = None) -> None:
        self._drawable = is_terminal(sys.stderr) and os.environ.get("TERM", "") != "dumb"
        self._visible = False
        self._line_interval_s = line_interval_s
        self._last_line_s: float | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show_time(self, done_s: float, total_s: float, text: str) -> None:
        """Show that ``done_s`` of ``total_s`` seconds have passed, followed by ``text``."""
        self.show(done_s / total_s if total_s > 0 else 0.0, f"{done_s:.0f}/{total_s:.0f} s  {text}")

    def show(self, fraction: float, text: str) -> None:
        """Show the finished ``fraction`` (0 to 1), followed by ``text``."""
        if not self._drawable:
            self._print_line(fraction, text)
            return
        filled = round(min(1.0, max(0.0, fraction)) * self.WIDTH)
        line = f"[{'#' * filled}{'-' * (self.WIDTH - filled)}] {text}"
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except (OSError, ValueError):
            columns = 0
        self._drawable = columns > 0 and _write(TerminalText(_CLEAR_LINE + cut_columns(printable(line), columns - 1)))
        if not self._drawable:
            self._line_interval_s = None
        self._visible = self._drawable

    def _print_line(self, fraction: float, text: str) -> None:
        if self._line_interval_s is None:
            return
        now = time.monotonic()
        if self._last_line_s is None or now - self._last_line_s >= self._line_interval_s:
            self._last_line_s = now
            print_message(f"{fraction:.0%}: {text}")

    def clear(self) -> None:
        """Remove the bar from the terminal."""
        if self._visible:
            self._visible = False
            self._drawable = _write(TerminalText(_CLEAR_LINE))


def _write(text: str) -> bool:
    """Write ``text`` on stderr. False if it is closed or cannot be written."""
    if sys.stderr is None:
        return False
    try:
        stream = guarded(sys.stderr)
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        return False
    return True
