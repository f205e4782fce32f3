"""Cost of the screen, through a real pseudo-terminal: CPU of its process, bytes to the terminal, start, memory.

    python tests/benchmarks/bench_screen.py [--seconds 20] [--size 160x48] [--gpu GPU] [--timeline] [--check]
    python tests/benchmarks/bench_screen.py --disturb --gpu GPU [--rounds 5] [--round-seconds 4] [--check]

Six probes are on: three victims, the host control and two aggressors, and the screen says that it follows the stall;
with --check it exits 1 where it does not. The screen is measured at 10 frames a second, at 30 with an aggressor
switched each second, with the timeline open (live at spans of 10 ms, 1 s and, once so much is recorded, 10 s, and
frozen), paused, and with a terminal that does not read. With --timeline only the timeline is measured. The reference is
one bare Line-API widget of the same size that draws all its lines 10 times a second, measured before and after each of
them: a machine that is busy costs both more. With --check it exits 1 where a figure is above its limit.
Where nvitop is installed and there is a driver, it is measured in the same run.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "probes")]

if TYPE_CHECKING:
    from stallprobes.engine.board import Board
    from stallprobes.engine.snapshot import Snapshot
    from stallprobes.latency.histogram import Histogram

KB_PER_S, START_RATIO, LIVE_AFTER_S = 30.0, 1.5, 2.0
# CPU as a multiple of the bare widget's: 12 % and 1 % of a core where that costs 2.9 %.
CPU_RATIO, FAST_RATIO, IDLE_RATIO = 2.0, 12 / 2.9, 1 / 2.9
TIMELINE_RATIO = 3.0
# At 10 frames a second; at the longest span a frame takes nearly as long as a column does, so that some are alike.
TIMELINE_DRAWS = 7.0
FAST_FPS = 30
P50_RATIO, P99_RATIO = 1.05, 1.25
SETTLE_S, PAUSE_S = 0.5, 0.005
EMPTY_APP = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("ready")
Empty().run()
"""
BARE_APP = """
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.strip import Strip
from textual.widget import Widget
LETTERS = "".join(chr(33 + number % 90) for number in range(2000))
class Bare(Widget):
    frame = 0
    def on_mount(self):
        self.set_interval(0.1, self.step)
    def step(self):
        self.frame += 1
        self.refresh()
    def render_line(self, y):
        at = (self.frame + y) % 90
        return Strip([Segment(LETTERS[at : at + self.size.width], Style(color="green"))], self.size.width)
class BareApp(App):
    def compose(self):
        yield Bare()
BareApp().run()
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
        # What was written until what ``wait_for`` waited for.
        self.first_output = b""
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
        self.first_output += out
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

    def ignore(self, seconds: float) -> bytes:
        """Let time pass without reading."""
        time.sleep(seconds)
        return b""

    def close(self) -> None:
        """End it as a terminal that is closed does, and read what it writes until then."""
        os.kill(self.pid, signal.SIGHUP)
        with contextlib.suppress(OSError):
            while os.read(self.fd, 65536):
                pass
        os.waitpid(self.pid, 0)
        os.close(self.fd)

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


def cost(screen: Screen, seconds: float, each_second: Callable[[float], bytes] | None = None) -> Cost:
    """The cost within ``seconds``; ``each_second`` reads, by default ``screen.read``."""
    memory, cpu, begun = screen.memory_kb(), screen.cpu_s(), time.monotonic()
    written = 0
    while (left := begun + seconds - time.monotonic()) > 0:
        written += len((each_second or screen.read)(min(left, 1.0)))
    took = time.monotonic() - begun
    return Cost(100 * (screen.cpu_s() - cpu) / took, written / took / 1000, memory / 1000, screen.memory_kb() / 1000)


class BareWidget:
    """The bare Line-API widget, in a process that is stopped while another one is measured."""

    def __init__(self, columns: int, rows: int, seconds: float) -> None:
        self._seconds = seconds
        self._screen = Screen([sys.executable, "-c", BARE_APP], columns, rows)
        self._screen.read(2.0)
        self._screen.stop(True)
        self._last = self._measure()

    def _measure(self) -> Cost:
        self._screen.stop(False)
        self._screen.read(0.5)
        found = cost(self._screen, self._seconds)
        self._screen.stop(True)
        return found

    def beside(self, what: str, measure: Callable[[], Cost]) -> tuple[Cost, float]:
        """Measure, and print; the cost, and the CPU as a multiple of the bare widget's before and after it."""
        before, found = self._last, measure()
        self._last = self._measure()
        bare = (before.cpu + self._last.cpu) / 2
        print(f"{what}: {found.cpu:.1f} % of a core, {found.kb_s:.1f} kB/s; ", end="")
        print(f"bare widget {bare:.1f} %, {before.kb_s:.1f} kB/s: ×{found.cpu / bare:.2f}", flush=True)
        return found, found.cpu / bare

    def end(self) -> None:
        self._screen.stop(False)
        self._screen.end()


def first_frame(arguments: Sequence[str], words: bytes, columns: int, rows: int, times: int = 5) -> float:
    """The median time until the first frame."""
    found = []
    for _ in range(times):
        screen = Screen(arguments, columns, rows)
        found.append(screen.wait_for(words))
        screen.end()
    return sorted(found)[times // 2]


def measure_timeline(screen: Screen, size: str, bare: BareWidget, seconds: float) -> tuple[float, float]:
    """The largest cost of the open timeline, as a multiple of the bare widget's, and the fewest draws a second.

    Then the cost of a frozen one is printed.
    """
    screen.press("gr")
    # On a GPU the first recording takes some 16 s to start.
    screen.wait_for("Timeline●".encode(), time.monotonic() - screen.begun + 40.0)
    screen.read(3.0)
    # The focused probe stalls, so it has frozen: the home key returns to live.
    screen.press("\x1b[H")
    screen.read(1.0)
    worst, fewest = 0.0, float("inf")
    for keys, what, settle_s in (("", "10 ms", 1.0), ("-" * 6, "1 s", 1.0), ("-" * 3, "10 s", 12.0)):
        screen.press(keys)
        screen.read(settle_s)
        screen.draws = 0
        _, ratio = bare.beside(f"timeline {size}, 10 fps, span {what}", lambda: cost(screen, seconds))
        draws = screen.draws / seconds
        print(f"timeline {size}, span {what}: {draws:.1f} draws a second", flush=True)
        worst, fewest = max(worst, ratio), min(fewest, draws)
    screen.press("p")
    screen.read(1.0)
    bare.beside("timeline frozen", lambda: cost(screen, seconds))
    screen.press("r\x1b")
    screen.read(2.0)
    return worst, fewest


def timeline_alone(arguments: Sequence[str], name: str, size: tuple[int, int], seconds: float) -> tuple[float, float]:
    """``measure_timeline`` of a screen of its own with six probes on."""
    bare, screen = BareWidget(*size, seconds / 2), Screen(arguments, *size)
    screen.wait_for(b" old")
    screen.press("12")
    screen.read(4.0)
    found = measure_timeline(screen, name, bare, seconds)
    screen.end()
    bare.end()
    return found


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
        screen = Screen(arguments, *size, changes={"STALLSCOPE_SETTINGS": stack.enter_context(fast_settings())})
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


def measure_fast(
    arguments: Sequence[str], size: tuple[int, int], bare: BareWidget, seconds: float
) -> tuple[Cost, float]:
    """The cost at FAST_FPS with an aggressor switched each second."""
    with fast_settings() as settings:
        screen = Screen(arguments, *size, changes={"STALLSCOPE_SETTINGS": settings})
        screen.wait_for(b" old")
        screen.press("2")
        screen.read(2.0)

        def toggled(left_s: float) -> bytes:
            screen.press("1")
            return screen.read(left_s)

        what = f"screen {size[0]}x{size[1]}, {FAST_FPS} fps, an aggressor switched each second"
        found = bare.beside(what, lambda: cost(screen, seconds, toggled))
        screen.end()
    return found


@contextlib.contextmanager
def fast_settings() -> Iterator[str]:
    """The path of a settings file with FAST_FPS frames a second."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as settings:
        settings.write(f"frames_per_second = {FAST_FPS}\n")
        settings.flush()
        yield settings.name


def main() -> int:
    """Measure and print; 1 where a limit is broken and --check was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--size", default="160x48")
    parser.add_argument("--gpu")
    parser.add_argument("--timeline", action="store_true")
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
    if asked.timeline:
        timeline, draws = timeline_alone(ours, asked.size, (columns, rows), asked.seconds)
        print(f"limits: ×{TIMELINE_RATIO:.2f}, {TIMELINE_DRAWS:g} draws a second")
        return int(asked.check and (timeline > TIMELINE_RATIO or draws < TIMELINE_DRAWS))
    empty = first_frame([sys.executable, "-c", EMPTY_APP], b"ready", columns, rows)
    first = first_frame(ours, b"stallscope", columns, rows)
    bare = BareWidget(columns, rows, asked.seconds / 2)
    screen = Screen(ours, columns, rows)
    live = screen.wait_for(b"baseline")
    quiet = screen.wait_for(b" old")
    screen.press("12")
    stalled = b"because" in screen.first_output + screen.read(4.0)
    what = f"screen {asked.size}, 10 fps, six probes"
    found, ratio = bare.beside(what, lambda: cost(screen, asked.seconds))
    print(f"memory {found.memory_before:.1f} MB, after {asked.seconds:g} s {found.memory_after:.1f} MB")
    timeline, draws = measure_timeline(screen, asked.size, bare, asked.seconds)
    screen.press("p")
    screen.read(1.0)
    _, paused = bare.beside("paused", lambda: cost(screen, asked.seconds))
    screen.press("p")
    screen.read(1.0)
    screen.ignore(2.0)
    _, unread = bare.beside("terminal not reading", lambda: cost(screen, asked.seconds, screen.ignore))
    resumed = len(screen.read(1.0)) > 0
    screen.end()
    _, fast = measure_fast(ours, (columns, rows), bare, asked.seconds)
    bare.end()
    print(
        f"first frame {first:.3f} s, an empty Textual app {empty:.3f} s: ×{first / empty:.2f}; live figures "
        f"{live - first:.3f} s after it, the baseline {quiet - first:.3f} s after it"
    )
    nvitop = shutil.which("nvitop")
    if nvitop is not None and asked.gpu is not None:
        other = Screen([nvitop, "-m", "full"], columns, rows)
        other.read(3.0)
        theirs = cost(other, asked.seconds)
        other.end()
        print(f"nvitop in the same run: {theirs.cpu:.1f} % of a core, {theirs.kb_s:.1f} kB/s")
    print(
        f"limits: ×{CPU_RATIO:.2f} and {KB_PER_S:g} kB/s at 10 fps, ×{FAST_RATIO:.2f} at 30, ×{IDLE_RATIO:.2f} idle, "
        f"×{TIMELINE_RATIO:.2f} and {TIMELINE_DRAWS:g} draws a second with the timeline open"
    )
    late = first > START_RATIO * empty or live - first > LIVE_AFTER_S
    dear = ratio > CPU_RATIO or fast > FAST_RATIO or max(paused, unread) > IDLE_RATIO or found.kb_s > KB_PER_S
    dear = dear or timeline > TIMELINE_RATIO
    return int(asked.check and (late or dear or not stalled or draws < TIMELINE_DRAWS or not resumed))


if __name__ == "__main__":
    raise SystemExit(main())
