"""A program beside the screen: its output goes to a pane or to a file, and its input is empty.

The program has a session of its own without a terminal, so that it cannot write beside the screen. It gets no signal
from the terminal; the screen sends signals to its process group.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stallprobes.files import atomic
from stallprobes.machine import processes

# MOST_LINES: largest number of last lines of output that are kept. LONGEST_LINE: largest number of characters of a kept
# line.
MOST_LINES, LONGEST_LINE = 2000, 1000
# Escape sequences, which are removed from the program's output: control sequences (ESC [ …), strings to the
# terminal (ESC ] … BEL or ESC \), and shorter ones.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
# Pattern of the possible beginning of an escape sequence at the end of the read text. This beginning is kept until more
# text is read.
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
# Largest number of characters that are kept as the beginning of an escape sequence. A longer beginning counts as text.
_LONGEST_ESCAPE = 4096
# Control characters that end or change the current line of the program's output; the bell (\a) is dropped.
_CONTROLS = re.compile("([\r\n\b\t\a])")
# Distance (columns) of tab stops.
_TAB = 8
# Largest number of bytes of the program's output that are read at a time.
_READ_BYTES = 1 << 16
# Longest wait (s), after the end of the program, until the program's whole output is read.
_DRAIN_S = 1.0


@dataclass(frozen=True)
class ShownOutput:
    """The last lines of a program's output, or the sentence ``elsewhere`` with the place of the output."""

    lines: Sequence[str] = ()
    elsewhere: str = ""


class ProgramOutput:
    """The last lines of a program's output. One thread feeds it, any other thread reads it.

    A carriage return begins the line anew, as progress bars use it. ``count`` is the number of complete lines so far.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._line, self._rest = "", ""
        self._returned = False
        self._lock = threading.Lock()
        self.count = 0

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        text = _ESCAPES.sub("", self._rest + self._decoder.decode(data))
        begun = _BEGUN.search(text)
        self._rest = ""
        if begun is not None and len(text) - begun.start() <= _LONGEST_ESCAPE:
            text, self._rest = text[: begun.start()], text[begun.start() :]
        with self._lock:
            for part in _CONTROLS.split(text):
                self._add(part)

    def _add(self, part: str) -> None:
        if part == "\n":
            self._lines.append(self._line)
            self._line, self._returned = "", False
            self.count += 1
        elif part == "\r":
            # The next text replaces the line, unless the line ends here.
            self._returned = True
        elif part == "\b":
            self._line = self._line[:-1]
        elif part and part != "\a":
            before = "" if self._returned else self._line
            text = part if part != "\t" else " " * (_TAB - len(before) % _TAB)
            self._line, self._returned = (before + text)[:LONGEST_LINE], False

    def complete(self) -> tuple[int, list[str]]:
        """The number of complete lines so far, and the last ones."""
        with self._lock:
            return self.count, list(self._lines)

    def lines(self, most: int = MOST_LINES) -> list[str]:
        """The last lines, the incomplete one included."""
        with self._lock:
            lines = [*self._lines, self._line] if self._line else list(self._lines)
        return lines[-most:] if most else []


class PaneProgram:
    """A started program. ``output`` has its lines, unless they go to ``file``.

    ``exit_code`` is -n if signal n ended it, None while it runs. ``ended_by_signal``: a signal that ended the screen
    was passed on to it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        file: Path | None = None,
        size: tuple[int, int] = (80, 24),
        *,
        force: bool = False,
        defaults: Collection[signal.Signals] = (),
    ) -> None:
        """Start the program with its output in a pane of ``size`` columns and lines, or in the new ``file``.

        With ``force`` that one may replace another file, once the program has started. ``defaults`` are signals that
        it gets with their default action although this process ignores them. Raises OSError or ValueError if the
        program cannot be started, and FileNotWritten if ``file`` cannot be written.
        """
        self.arguments, self.file = tuple(arguments), file
        self.output = ProgramOutput()
        self.ended_by_signal = False
        self._lock = threading.Lock()
        self.exit_code: int | None = None
        self._master = -1
        if file is None:
            self.pid = self._start_in_pane(environment, size, defaults)
        else:
            with atomic.created(file, force=force) as target:
                self.pid = _start(arguments, environment, target, defaults)
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, name="program output", daemon=True)
        if file is None:
            self._reader.start()
        threading.Thread(target=self._wait, name="program end", daemon=True).start()

    @property
    def running(self) -> bool:
        """True if it runs."""
        return self.exit_code is None

    def send(self, number: int) -> None:
        """Send a signal to the program and the processes of its group, unless it has ended."""
        with self._lock, contextlib.suppress(ProcessLookupError, PermissionError):
            if self.exit_code is None:
                os.killpg(self.pid, number)

    def end_by_signal(self, number: int) -> None:
        """Pass a signal on that ends the screen."""
        self.ended_by_signal = True
        self.send(number)
        # A program that is stopped gets it only when it continues.
        self.send(signal.SIGCONT)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end and return the exit code; None if it still runs after ``timeout_s``."""
        self._ended.wait(timeout_s)
        return self.exit_code

    def drain(self) -> None:
        """Wait a moment until all that the ended program wrote is read."""
        if self.file is None:
            self._reader.join(_DRAIN_S)

    def resize(self, columns: int, lines: int) -> None:
        """Set the size of the pane, which is the terminal size of the program."""
        if self._master >= 0 and columns > 0 and lines > 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _start_in_pane(
        self, environment: Mapping[str, str], size: tuple[int, int], defaults: Collection[signal.Signals]
    ) -> int:
        self._master, target = pty.openpty()
        try:
            _plain(target)
            self.resize(*size)
            return _start(self.arguments, {**environment, "TERM": "dumb"}, target, defaults)
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(target)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, _READ_BYTES)
            except OSError:
                # Every other end is closed.
                data = b""
            if not data:
                return
            self.output.feed(data)

    def _wait(self) -> None:
        # It stays unreaped until nobody can send it a signal: its number is no other process's.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()


def _plain(terminal: int) -> None:
    """Switch off the terminal's conversion of newlines and its echo."""
    modes = termios.tcgetattr(terminal)
    modes[1] &= ~termios.OPOST
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


def _start(
    arguments: Sequence[str], environment: Mapping[str, str], target: int, defaults: Collection[signal.Signals]
) -> int:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, target, 1),
        (os.POSIX_SPAWN_DUP2, target, 2),
    ]
    return processes.spawn(arguments, environment, file_actions=actions, setsid=True, setsigmask=[], setsigdef=defaults)
