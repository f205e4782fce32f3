"""Messages, questions and the status line on stderr, and the exit codes."""

from __future__ import annotations

import os
import sys
import threading
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


# Words for each exit code in the help.
EXIT_CODE_MEANINGS = {
    ExitCode.SUCCESS: "success",
    ExitCode.REGRESSION: "compare or check found what --fail-on names",
    ExitCode.USAGE: "invalid usage, or a file that cannot be read or written",
    ExitCode.NO_GPU: "no usable GPU",
    ExitCode.FAILED: "the engine, the GPU or stallscope itself failed during the command",
    ExitCode.DAMAGED: "a recording is damaged or truncated; what comes before was read",
    ExitCode.INTERRUPTED: "interrupted",
}

# Control sequence that returns to the first column and erases the line.
_CLEAR_LINE = "\r\x1b[K"
# Width (columns) that is assumed for a terminal of unknown size.
_UNKNOWN_COLUMNS = 80


class CommandError(Exception):
    """Ends the command with ``exit_code`` and one sentence on stderr."""

    def __init__(self, exit_code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.sentence = sentence


def print_message(sentence: str) -> None:
    """Print one line on stderr, above the status line if there is one. A closed stderr is ignored."""
    status_line.write_above(f"stallscope: {printable(sentence)}\n")


def print_failure(error: BaseException) -> None:
    """Print what went wrong: the error's own sentence, the shortage behind it, or for a defect its traceback."""
    from stallprobes.errors import StallprobesError, reason_of

    if isinstance(error, CommandError | StallprobesError):
        print_message(reason_of(error).rstrip("."))
    elif (why := shortage_behind(error)) is not None:
        print_message(why)
    else:
        import traceback

        traceback.print_exception(error)
        print_message("this is a defect of stallscope: please report it")


def shortage_behind(error: BaseException) -> str | None:
    """The shortage that caused ``error``, as a clause; None if another reason did."""
    try:
        from stallprobes.machine.shortage import shortage

        return shortage(error)
    except MemoryError:
        return "too little memory"


def confirm(question: str) -> bool:
    """Ask on stderr and read the answer from stdin; anything but yes is no."""
    status_line.clear()
    try:
        asked = _write(f"stallscope: {printable(question)} [y/N] ")
        return asked and sys.stdin.readline().strip().lower() in ("y", "yes")
    except (OSError, ValueError):
        return False


def is_interactive() -> bool:
    """True if stdin and stderr are terminals, so that a question can be answered."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def is_terminal(stream: object) -> bool:
    """True if ``stream`` is a terminal; False if it is closed or missing."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


# Advice where the terminal cannot show a screen.
SCREENLESS = "for text and JSON output see: stallscope --help"


def screen_obstacle(instead: str = SCREENLESS) -> str | None:
    """Why this terminal cannot show the screen, as a sentence that ends with what works ``instead``; None if it can."""
    term = os.environ.get("TERM", "")
    if term in ("", "dumb", "unknown"):
        which = f"TERM={term} has no such support" if term else "TERM is not set"
        return f"the screen needs a terminal with cursor addressing, but {which}; {instead}"
    # The screen is drawn on stderr, so stdout may be a file.
    if not is_interactive():
        return f"the screen needs a terminal for input and output; {instead}"
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


def redraws_line() -> bool | None:
    """True if stderr shows a line that changes in its place; False: as a line of its own now and then.

    None in a file, in a pipe, and where CI marks the terminal as the log of a continuous integration.
    """
    if not is_terminal(sys.stderr) or os.environ.get("CI"):
        return None
    return os.environ.get("TERM", "") not in ("", "dumb")


def in_foreground() -> bool:
    """True if this process may write to its terminal: a job in the background would write into another one's line."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        # Not the terminal that it is controlled by.
        return True


class StatusLine:
    """The last line on stderr, which is drawn again in its place; messages are printed above it.

    There is one, since two would erase each other: ``status_line``. Any thread may draw it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._shown = ""

    def draw(self, line: str) -> bool:
        """Show ``line`` in the place of the last one, as much of it as fits; False where that is not possible."""
        with self._lock:
            try:
                columns = os.get_terminal_size(sys.stderr.fileno()).columns or _UNKNOWN_COLUMNS
            except (OSError, ValueError, AttributeError):
                return False
            self._shown = cut_columns(printable(line), columns - 1)
            return _write(TerminalText(_CLEAR_LINE + self._shown))

    def clear(self) -> None:
        """Remove the line from the terminal."""
        with self._lock:
            if self._shown:
                self._shown = ""
                _write(TerminalText(_CLEAR_LINE))

    def write_above(self, text: str) -> bool:
        """Write ``text``, which ends with a newline, above the line. False if stderr is closed."""
        with self._lock:
            shown, before = self._shown, TerminalText(_CLEAR_LINE if self._shown else "")
            written = _write(before) and _write(text)
            return written and _write(TerminalText(shown))


# The line of progress on stderr, which other output erases first.
status_line = StatusLine()


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
