"""What the tests of the screen share: a recording of the simulated GPU, apps over it, and a terminal to run in."""

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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stallprobes
import stallscope
from stallprobes.engine.backend import Options
from stallprobes.live.capture import capture
from stallprobes.live.observation import SIM, ProbeSet
from stallprobes.live.recording import Recording
from stallprobes.patterns import patterns

ROOTS = [str(Path(package.__path__[0]).parent) for package in (stallscope, stallprobes)]
WALL_S = 1_800_000_000.0
_ESCAPES = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[\]P_].*?(?:\x07|\x1b\\)|\x1b.", re.DOTALL)


def bench_of(pattern: str, variant: str) -> ProbeSet:
    """The bench of a pattern's variant on the simulated GPU."""
    what = patterns()[pattern].variant(variant)
    return ProbeSet(f"{pattern} · {variant}", what.probes, SIM, pattern=pattern, variant=variant, expect=what.expect)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks on the screen show UTC, and nobody's own settings count."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("STALLSCOPE_SETTINGS", os.devnull)
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def stall_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording: a copy in a second context, quiet, then stalled for 3 s by a kernel in the first."""
    path = tmp_path_factory.mktemp("recordings") / "stall.rec"
    probe_set = bench_of("secondary-context-d2d", "kernel-other-context")
    capture(probe_set, path, options=Options(profile="h200"), seconds=3.0, wall_s=WALL_S)
    return path


@pytest.fixture(scope="session")
def stall(stall_file: Path) -> Recording:
    """The same, read."""
    return Recording(stall_file)


class Terminal:
    """A program in a pseudo-terminal. ``seen`` is all it wrote, without escape sequences."""

    def __init__(self, arguments: list[str], size: tuple[int, int], environment: dict[str, str]) -> None:
        columns, rows = size
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LC_ALL", "LC_CTYPE", "COLUMNS", "LINES")}
        env |= {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(ROOTS), **environment}
        self.raw = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(sys.executable, [sys.executable, "-m", "stallscope", *arguments], env)
        self.before = termios.tcgetattr(self.fd)
        self.status: int | None = None

    @property
    def seen(self) -> str:
        return _ESCAPES.sub(b"", self.raw).decode(errors="replace")

    def read(self, seconds: float) -> bytes:
        """Read for ``seconds``, or to the end."""
        begun, until = len(self.raw), time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.raw += os.read(self.fd, 65536)
                except OSError:
                    break
        return self.raw[begun:]

    def wait_for(self, words: str, seconds: float = 20.0, since: int = 0) -> float:
        """Wait until ``words`` were written after byte ``since``; returns how long that took."""
        begun = time.monotonic()
        while words not in _ESCAPES.sub(b"", self.raw[since:]).decode(errors="replace"):
            assert time.monotonic() - begun < seconds, f"{words!r} is not on the screen: {self.seen[-3000:]}"
            assert self.alive, f"it ended: {self.seen[-3000:]}"
            self.read(0.05)
        return time.monotonic() - begun

    def press(self, keys: str) -> int:
        """Press keys; returns how much had been written before."""
        at = len(self.raw)
        os.write(self.fd, keys.encode())
        return at

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    @property
    def alive(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is None

    def left_within(self, seconds: float) -> float:
        """Wait for its end; returns how long that took."""
        begun = time.monotonic()
        while self.alive:
            assert time.monotonic() - begun < seconds, "it is still there"
            self.read(0.01)
        self.read(0.05)
        return time.monotonic() - begun

    def children(self) -> list[int]:
        """The processes it started that live."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[1]) == self.pid and fields[0] not in "ZX":
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
            self.left_within(5)
        os.close(self.fd)


OpenTerminal = Callable[..., Terminal]


@pytest.fixture
def terminal() -> Iterator[OpenTerminal]:
    """Open ``stallscope`` in a terminal of its own: arguments, then ``size`` and changes to the environment."""
    opened: list[Terminal] = []

    def start(*arguments: str, size: tuple[int, int] = (120, 36), **environment: str) -> Terminal:
        opened.append(Terminal(list(arguments), size, environment))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
