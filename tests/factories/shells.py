"""Interactive shells in a pseudo-terminal, in which a test presses Tab."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from pathlib import Path

from factories.waiting import LIMIT_S

# Arguments without settings of the user, and what is typed before the completion script is read.
SHELLS: dict[str, tuple[tuple[str, ...], str]] = {
    "bash": (("--norc", "--noprofile", "-i"), "bind 'set bell-style none'"),
    "zsh": (("-f", "-i"), "autoload -U compinit && compinit -u -D"),
    "fish": (("--no-config", "-i"), "set -g fish_autosuggestion_enabled 0"),
}
_MARK = "LINE:"
_BEGINNING_OF_LINE = "\x01"
_ESCAPES = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[\]P_k].*?(?:\x07|\x1b\\)|\x1b.", re.DOTALL)


class InteractiveShell:
    """A shell of SHELLS that has read the completion ``script``. A context manager: leaving ends it."""

    def __init__(self, program: str, script: Path, environment: dict[str, str]) -> None:
        name = os.path.basename(program)
        arguments, prepare = SHELLS[name]
        self._raw = b""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            # No line is wrapped.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 400, 0, 0))
            os.execve(program, [name, *arguments], {**environment, "TERM": "vt100", "INPUTRC": os.devnull})
        self._type(f"{prepare}\nsource {script}\n")

    def __enter__(self) -> InteractiveShell:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.close(self._fd)
        os.waitpid(self._pid, 0)

    def completed(self, line: str, then: str = "") -> str:
        """The command line after ``line``, Tab and ``then`` were typed."""
        begun = len(self._raw)
        # The shell reads what follows the Tab when the completion is done. echo shows the line as the shell reads it.
        self._type(f"{line}\t{then}{_BEGINNING_OF_LINE}echo {_MARK} \n")
        pattern = re.compile(rf"^{_MARK} (.*)$", re.MULTILINE)
        until = time.monotonic() + LIMIT_S
        while (found := pattern.search(self._text(begun))) is None:
            assert time.monotonic() < until, self._text(begun)
            if select.select([self._fd], [], [], 0.1)[0]:
                self._raw += os.read(self._fd, 65536)
        return found[1].strip()

    def _text(self, since: int) -> str:
        text = _ESCAPES.sub(b"", self._raw[since:]).decode(errors="replace").replace("\r\n", "\n")
        # Complete lines only.
        return text.replace("\r", "\n").rpartition("\n")[0]

    def _type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())
