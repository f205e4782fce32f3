"""``stallscope`` in a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

from factories import processes
from factories.command_line import ROOTS, variables_at_start
from factories.fork_server import Preload, server
from factories.waiting import LIMIT_S

# A short measurement of the baseline, few frames.
SETTINGS = Path(__file__).parents[1] / "screen" / "data" / "terminal.toml"

# The kernel passes on what a program wrote a little after its end, and then reports the end of the terminal.
_END_S = 0.5
# Until a key is pressed again: longer than the program waits for the rest of a paste.
_AGAIN_S = 2.0

_ESCAPES = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[\]P_].*?(?:\x07|\x1b\\)|\x1b.", re.DOTALL)


class Terminal:
    """The program in a pseudo-terminal of ``size`` (columns, rows); ``shell``: an interactive bash in its place.

    The program and its first engine start by a fork of a server that has imported their modules, unless ``environment``
    changes a variable that the interpreter reads at its start.
    """

    def __init__(
        self, arguments: list[str], size: tuple[int, int], environment: dict[str, str], shell: bool = False
    ) -> None:
        columns, rows = size
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LC_ALL", "LC_CTYPE", "COLUMNS", "LINES")}
        env |= {
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            # Behind them what this process has there: a machine may have its packages in a folder of their own.
            "PYTHONPATH": os.pathsep.join((*ROOTS, *filter(None, [os.environ.get("PYTHONPATH")]))),
            "STALLSCOPE_SETTINGS": str(SETTINGS),
        }
        forked = not shell and variables_at_start(env | environment) == variables_at_start(env)
        env |= environment
        self.raw = b""
        self._read_text = (0, 0, "")
        program = ["-m", "stallscope", *arguments]
        if forked:
            self.fd, follower = pty.openpty()
            self._resize(columns, rows)
            streams = dict.fromkeys(range(3), follower)
            self.pid = server(Preload.SCREEN).start(program, streams, env, terminal=True, engine="--sim" in arguments)
            os.close(follower)
        else:
            self.pid, self.fd = pty.fork()
            if self.pid == 0:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                if shell:
                    os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], env | {"PS1": "$ "})
                os.execve(sys.executable, [sys.executable, *program], env)
        self.before = termios.tcgetattr(self.fd)
        self.status: int | None = None

    def text(self, since: int = 0) -> str:
        """What it wrote after byte ``since``, without escape sequences."""
        read = (since, len(self.raw))
        if self._read_text[:2] != read:
            self._read_text = (*read, _ESCAPES.sub(b"", self.raw[since:]).decode(errors="replace"))
        return self._read_text[2]

    def read(self, seconds: float) -> bytes:
        """Read for ``seconds`` and then what waits, or to the end; returns what came."""
        begun, until = len(self.raw), time.monotonic() + seconds
        # At least once, however long this process was stopped.
        while select.select([self.fd], [], [], max(0.0, until - time.monotonic()))[0]:
            try:
                self.raw += os.read(self.fd, 65536)
            except OSError:
                break
        return self.raw[begun:]

    def wait_for(self, words: str, since: int = 0) -> None:
        """Read until ``words`` were written after byte ``since``."""
        self.wait_until(lambda: words in self.text(since), f"{words!r} is on the screen")

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Read until ``condition`` holds; AssertionError when the program ends before that."""
        until = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < until, f"after {LIMIT_S:g} s still not: {what}: {self.text()[-3000:]}"
            alive = self.alive
            self.read(0.02 if alive else _END_S)
            # What it wrote at last has been read.
            assert alive or condition(), f"it ended: {self.text()[-3000:]}"

    def press_until(self, keys: str, words: str) -> None:
        """Press keys until ``words`` are written, also if the program drops keys."""
        since, until = len(self.raw), time.monotonic() + LIMIT_S
        while words not in self.text(since):
            assert time.monotonic() < until, f"after {LIMIT_S:g} s still not: {words!r}: {self.text()[-3000:]}"
            self.press(keys)
            again = time.monotonic() + _AGAIN_S
            while words not in self.text(since) and time.monotonic() < again:
                self.read(0.02)

    def quit(self) -> int:
        """Press the key that quits wherever it is pressed until the program ends; returns its exit code."""
        until = time.monotonic() + LIMIT_S
        while self.alive:
            assert time.monotonic() < until, f"after {LIMIT_S:g} s it still runs: {self.text()[-3000:]}"
            self.press("\x11")
            again = time.monotonic() + _AGAIN_S
            while self.alive and time.monotonic() < again:
                self.read(0.02)
        return self.wait_for_end()

    def press(self, keys: str) -> int:
        """Press keys; returns the number of bytes written before."""
        return self.send(keys.encode())

    def click(self, column: int, row: int) -> int:
        """Press and release the left mouse button in a cell, counted from 1; returns as ``press``.

        Beside a dialog it closes it, and unlike escape it cannot be taken for the beginning of the next key.
        """
        return self.press(f"\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m")

    def send(self, data: bytes) -> int:
        """Send bytes as they are; returns the number of bytes written before."""
        at = len(self.raw)
        os.write(self.fd, data)
        return at

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        self._resize(columns, rows)
        os.kill(self.pid, signal.SIGWINCH)

    def _resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def alive(self) -> bool:
        """Whether the program runs; its exit code is in ``status`` afterwards."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is None

    def wait_for_end(self) -> int:
        """Read until the program ends; returns its exit code."""
        until = time.monotonic() + LIMIT_S
        while self.alive:
            assert time.monotonic() < until, f"after {LIMIT_S:g} s it still runs: {self.text()[-3000:]}"
            self.read(0.01)
        self.read(_END_S)
        assert self.status is not None
        return self.status

    def children(self) -> list[int]:
        """The running children of the program."""
        return processes.children(self.pid)

    def close(self) -> None:
        """Kill the program if it still runs."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
            self.wait_for_end()
        os.close(self.fd)


OpenTerminal = Callable[..., Terminal]
