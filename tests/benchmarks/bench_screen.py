"""What the screen costs, through a real pseudo-terminal: CPU of its process, bytes to the terminal, start, memory.

    python tests/benchmarks/bench_screen.py [--seconds 20] [--size 160x48] [--gpu GPU] [--check]

Six probes and more are on: the first bench with its victims, and two aggressors. With --check it exits 1 where a figure
is above its limit. Where nvitop is installed and there is a driver, the same is printed for it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPU_PERCENT, KB_PER_S, START_RATIO = 8.0, 60.0, 1.5
EMPTY_APP = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("ready")
Empty().run()
"""


class Screen:
    """A program in a pseudo-terminal."""

    def __init__(self, arguments: Sequence[str], columns: int, rows: int) -> None:
        paths = os.pathsep.join([str(ROOT / "app"), str(ROOT / "probes"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": paths}
        environment.pop("NO_COLOR", None)
        self.begun = time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvpe(arguments[0], list(arguments), environment)

    def read(self, seconds: float) -> bytes:
        out, until = b"", time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                out += os.read(self.fd, 65536)
        return out

    def wait_for(self, words: bytes, seconds: float = 30.0) -> float:
        """Seconds from the start until ``words`` were written."""
        out = b""
        while words not in out:
            if time.monotonic() - self.begun > seconds:
                raise SystemExit(f"{words!r} did not come")
            out += self.read(0.005)
        return time.monotonic() - self.begun

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_kb(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@dataclass(frozen=True)
class Cost:
    """CPU in percent of a core, bytes to the terminal in kB/s, memory before and after in MB."""

    cpu: float
    kb_s: float
    memory_before: float
    memory_after: float


def cost(screen: Screen, seconds: float) -> Cost:
    """What it costs for ``seconds``."""
    memory, cpu, begun = screen.memory_kb(), screen.cpu_s(), time.monotonic()
    written = len(screen.read(seconds))
    took = time.monotonic() - begun
    return Cost(100 * (screen.cpu_s() - cpu) / took, written / took / 1000, memory / 1000, screen.memory_kb() / 1000)


def first_frame(arguments: Sequence[str], words: bytes, columns: int, rows: int, times: int = 5) -> float:
    """The median time until the first frame."""
    found = []
    for _ in range(times):
        screen = Screen(arguments, columns, rows)
        found.append(screen.wait_for(words))
        screen.end()
    return sorted(found)[times // 2]


def main() -> int:
    """Measure and print; 1 where a limit is broken and --check was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--size", default="160x48")
    parser.add_argument("--gpu")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    columns, rows = (int(part) for part in asked.size.split("x"))
    where = ["--gpu", asked.gpu, "--allow-shared"] if asked.gpu is not None else ["--sim", "h200"]
    ours = [sys.executable, "-m", "stallscope", *where]
    empty = first_frame([sys.executable, "-c", EMPTY_APP], b"ready", columns, rows)
    first = first_frame(ours, b"stallscope", columns, rows)
    screen = Screen(ours, columns, rows)
    live = screen.wait_for(b"baseline")
    screen.wait_for(b" old")
    screen.press("12b")
    screen.read(4.0)
    found = cost(screen, asked.seconds)
    screen.end()
    print(f"screen {asked.size}, 10 fps, seven probes: {found.cpu:.1f} % of a core, {found.kb_s:.1f} kB/s")
    print(f"memory {found.memory_before:.1f} MB, after {asked.seconds:g} s {found.memory_after:.1f} MB")
    print(
        f"first frame {first:.3f} s, an empty Textual app {empty:.3f} s: ×{first / empty:.2f}; live data {live:.3f} s"
    )
    nvitop = shutil.which("nvitop")
    if nvitop is not None and asked.gpu is not None:
        other = Screen([nvitop, "-m", "full"], columns, rows)
        other.read(3.0)
        theirs = cost(other, asked.seconds)
        other.end()
        print(f"nvitop in the same run: {theirs.cpu:.1f} % of a core, {theirs.kb_s:.1f} kB/s")
    broken = found.cpu > CPU_PERCENT or found.kb_s > KB_PER_S or first > START_RATIO * empty
    return int(asked.check and broken)


if __name__ == "__main__":
    raise SystemExit(main())
