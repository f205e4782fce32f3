"""What the screen costs, through a real pseudo-terminal: CPU of its process, bytes to the terminal, start, memory.

    python tests/benchmarks/bench_screen.py [--seconds 20] [--size 160x48] [--gpu GPU] [--check]
    python tests/benchmarks/bench_screen.py --disturb --gpu GPU [--rounds 5] [--round-seconds 4] [--check]

Six probes and more are on: the first bench with its victims, and two aggressors. With --check it exits 1 where a figure
is above its limit. Where nvitop is installed and there is a driver, the same is printed for it.

--disturb says what a screen that draws 30 times a second does to what is measured: a launch's p50 and p99, by turns
with the screen and without it (stopped by SIGSTOP: the engine, its probes and their contexts are the same ones and go
on). The figures are read from the engine's own board, which neither of them notices. Without --gpu the GPU is a
simulated one, whose figures no screen can change; what is real then is a host control beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "probes")]

if TYPE_CHECKING:
    from stallprobes.engine.board import Board, Snapshot
    from stallprobes.latency.histogram import Histogram

CPU_PERCENT, KB_PER_S, START_RATIO, LIVE_AFTER_S = 8.0, 60.0, 1.5, 2.0
P50_RATIO, P99_RATIO = 1.05, 1.25
DISTURB_FPS, SETTLE_S, PAUSE_S = 30, 0.5, 0.005
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

    def __init__(
        self, arguments: Sequence[str], columns: int, rows: int, changes: Mapping[str, str] | None = None
    ) -> None:
        paths = os.pathsep.join([str(ROOT / "app"), str(ROOT / "probes"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": paths}
        environment |= {"STALLSCOPE_SETTINGS": os.devnull, **(changes or {})}
        environment.pop("NO_COLOR", None)
        self.begun = time.monotonic()
        self.draws = 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvpe(arguments[0], list(arguments), environment)

    def read(self, seconds: float) -> bytes:
        out, until, last = b"", time.monotonic() + seconds, 0.0
        while (left := until - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                # What follows at once is more of the same frame.
                self.draws += time.monotonic() - last > PAUSE_S
                out += os.read(self.fd, 65536)
                last = time.monotonic()
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

    def engine(self) -> int:
        """The process id of its engine."""
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and b"stallprobes.engine.main" in (entry / "cmdline").read_bytes():
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[1]) == self.pid:
                        return int(entry.name)
        raise SystemExit("the screen has no engine")

    def stop(self, stopped: bool) -> None:
        """Stop its process, or let it go on; the engine is another one."""
        os.kill(self.pid, signal.SIGSTOP if stopped else signal.SIGCONT)

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


def board_of(engine: int) -> Board:
    """The board of an engine, mapped here as well."""
    from stallprobes.engine.board import Board, BoardLayout
    from stallscope.tui import probe_sets

    for entry in Path(f"/proc/{engine}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(entry) == "/memfd:stallscope (deleted)":
                return Board.attach(
                    os.open(entry, os.O_RDWR | os.O_CLOEXEC), BoardLayout.of(probe_sets.default_probes())
                )
    raise SystemExit("the engine has no board")


class Arms:
    """What one probe's calls took with the screen and without it."""

    def __init__(self, what: str, name: str, look: Callable[[], Snapshot]) -> None:
        self.what = what
        self._name = name
        self._look = look
        self._before: Snapshot | None = None
        self._channels: dict[bool, list[Histogram]] = {True: [], False: []}

    def begin(self) -> None:
        """From here on."""
        self._before = self._look()

    def end(self, with_screen: bool) -> None:
        """Up to here."""
        from stallprobes.model import Channel, Phase

        assert self._before is not None
        self._channels[with_screen].append(self._look().minus(self._before)[self._name].channels[Channel(Phase.CALL)])

    def ratios(self) -> tuple[float, float]:
        """Print what was seen; how many times the p50 and p99 without the screen are those with it.

        Each is the median over the rounds: a window in which the machine did something else has a tail of its own.
        """
        found = {
            with_screen: [self._figures(parts, q) for q in (50, 99)] for with_screen, parts in self._channels.items()
        }
        middles = {with_screen: [median(rounds) for rounds in figures] for with_screen, figures in found.items()}
        calls = {with_screen: sum(part.count for part in parts) for with_screen, parts in self._channels.items()}
        for with_screen, words in ((True, "with"), (False, "without")):
            p50, p99 = middles[with_screen]
            rounds = " ".join(f"{ns:.0f}" for ns in found[with_screen][1])
            print(f"{self.what} {words}: p50 {p50:.0f} ns p99 {p99:.0f} ns ({calls[with_screen]} calls); p99s {rounds}")
        ratio = tuple(now / max(quiet, 1.0) for now, quiet in zip(middles[True], middles[False], strict=True))
        print(f"{self.what}: p50 ×{ratio[0]:.3f}, p99 ×{ratio[1]:.3f}", flush=True)
        return ratio[0], ratio[1]

    @staticmethod
    def _figures(parts: Sequence[Histogram], q: int) -> list[float]:
        return [part.percentile(q) or 0.0 for part in parts]


def disturb(arguments: Sequence[str], simulated: bool, size: tuple[int, int], rounds: int, seconds: float) -> bool:
    """Measure what the screen does to what is measured, and print it; whether a limit is broken."""
    from stallprobes.catalog import entries
    from stallprobes.engine.session import Session

    with contextlib.ExitStack() as stack:
        settings = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".toml"))
        settings.write(f"frames_per_second = {DISTURB_FPS}\n")
        settings.flush()
        screen = Screen(arguments, *size, changes={"STALLSCOPE_SETTINGS": settings.name})
        stack.callback(screen.end)
        screen.wait_for(b" old")
        board = board_of(screen.engine())
        arms = [Arms("SIMULATED launch" if simulated else "launch", "launch", board.snapshot)]
        if simulated:
            host = Session([entries()["host"].probe()], backend="host")
            stack.enter_context(host)
            host.set_running(["host"])
            arms.append(Arms("host control", "host", host.snapshot))
        else:
            arms.append(Arms("host control", "host", board.snapshot))
        written, draws = 0, 0
        for number in range(2 * rounds):
            # With, without, without, with: what drifts is in both alike.
            with_screen = number % 4 in (0, 3)
            screen.stop(not with_screen)
            screen.read(SETTLE_S)
            for arm in arms:
                arm.begin()
            screen.draws = 0
            got = len(screen.read(seconds))
            for arm in arms:
                arm.end(with_screen)
            if with_screen:
                written, draws = written + got, draws + screen.draws
            elif got:
                raise SystemExit("the screen draws although it is stopped")
        screen.stop(False)
    drawn = rounds * seconds
    print(f"screen {size[0]}x{size[1]}: {draws / drawn:.1f} draws a second, {written / drawn / 1000:.1f} kB/s")
    found = [arm.ratios() for arm in arms]
    print(f"limits: p50 ×{P50_RATIO}, p99 ×{P99_RATIO}; {rounds} rounds of {seconds:g} s each")
    judged = found[1:] if simulated else found[:1]
    return any(p50 > P50_RATIO or p99 > P99_RATIO for p50, p99 in judged)


def main() -> int:
    """Measure and print; 1 where a limit is broken and --check was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--size", default="160x48")
    parser.add_argument("--gpu")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--disturb", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-seconds", type=float, default=4.0)
    asked = parser.parse_args()
    columns, rows = (int(part) for part in asked.size.split("x"))
    where = ["--gpu", asked.gpu, "--allow-shared"] if asked.gpu is not None else ["--sim", "h200"]
    ours = [sys.executable, "-m", "stallscope", *where]
    if asked.disturb:
        broken = disturb(ours, asked.gpu is None, (columns, rows), asked.rounds, asked.round_seconds)
        return int(asked.check and broken)
    empty = first_frame([sys.executable, "-c", EMPTY_APP], b"ready", columns, rows)
    first = first_frame(ours, b"stallscope", columns, rows)
    screen = Screen(ours, columns, rows)
    live = screen.wait_for(b"baseline")
    quiet = screen.wait_for(b" old")
    screen.press("12b")
    screen.read(4.0)
    found = cost(screen, asked.seconds)
    screen.end()
    print(f"screen {asked.size}, 10 fps, seven probes: {found.cpu:.1f} % of a core, {found.kb_s:.1f} kB/s")
    print(f"memory {found.memory_before:.1f} MB, after {asked.seconds:g} s {found.memory_after:.1f} MB")
    print(
        f"first frame {first:.3f} s, an empty Textual app {empty:.3f} s: ×{first / empty:.2f}; live figures "
        f"{live - first:.3f} s after it, the quiet base {quiet - first:.3f} s after it"
    )
    nvitop = shutil.which("nvitop")
    if nvitop is not None and asked.gpu is not None:
        other = Screen([nvitop, "-m", "full"], columns, rows)
        other.read(3.0)
        theirs = cost(other, asked.seconds)
        other.end()
        print(f"nvitop in the same run: {theirs.cpu:.1f} % of a core, {theirs.kb_s:.1f} kB/s")
    late = first > START_RATIO * empty or live - first > LIVE_AFTER_S
    return int(asked.check and (late or found.cpu > CPU_PERCENT or found.kb_s > KB_PER_S))


if __name__ == "__main__":
    raise SystemExit(main())
