"""Memory, threads, descriptors and files of stallscope over an hour.

    python tests/benchmarks/bench_soak.py [--seconds 3600] [--size 160x48] [--gpu GPU] [--check]

At the same time run the screen, with 30 frames a second and an aggressor switched each second; checks, one after the
other; `watch` of a program that launches all the time; and attachments to such a program, one after the other. The last
two need a C compiler and x86-64, since their programs run beside stand-ins for libcuda and libcupti. Each minute prints
the memory, address space, mappings, threads and descriptors of each process that lasts, of the attached program between
two attachments, and how many files are in their folder for temporary ones. With --check it exits 1 where one has more
than 10 % more memory, address space or mappings than after the first sixth of the time (two minutes at least), or more
threads or descriptors; where files are left; or where a command failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_screen import ROOT, Screen, fast_settings
from factories.stand_in import COMPILER, StandIn
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE

MORE = 1.1
# What a process has after this time (s), and this part of all, is what it may keep. Reason: the reader of
# a program grew from 184 to 204 MB between 2 and 10 minutes, and to 205 MB in the 37 minutes after that.
FIRST_S, FIRST_PART = 120.0, 1 / 6
PRINTED_S = 60.0
# Enough that a thread or a descriptor which is there for a moment is not taken for a lasting one.
LOOKS, LOOKS_S = 5, 0.2
CHECK = ("check", "--sim", "--quick", "--victims", "launch,d2d", "--aggressors", "spin,alloc-free")
ATTACHED_S = 3.0
PAUSE_S = 1.0
# What a process may have more of than at first, for each of WORDS.
WORDS = ("memory in MB", "address space in MB", "mappings", "threads", "descriptors")
GROWTH = (MORE, MORE, MORE, 1.0, 1.0)
Use = tuple[float, ...]


def use_of(pid: int) -> Use:
    """WORDS of a process: the least of several looks."""
    looks = []
    for _ in range(LOOKS):
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in status)
        memory, space = (int(fields[name].split()[0]) / 1000 for name in ("VmRSS", "VmSize"))
        mappings = Path(f"/proc/{pid}/maps").read_bytes().count(b"\n")
        looks.append((memory, space, mappings, int(fields["Threads"]), len(os.listdir(f"/proc/{pid}/fd"))))
        time.sleep(LOOKS_S)
    return tuple(map(min, zip(*looks, strict=True)))


@dataclass
class Lasting:
    """A process that lasts: its use after the first minutes, and now."""

    name: str
    pid: int
    first: Use | None = None
    now: Use = (0.0,) * len(WORDS)

    def look(self) -> None:
        """Take what it uses now."""
        self.now = use_of(self.pid)

    @property
    def faults(self) -> list[str]:
        """What it has more than at first."""
        if self.first is None:
            return [f"{self.name}: too short"]
        found = zip(WORDS, self.first, self.now, GROWTH, strict=True)
        return [f"{self.name}: {word} {first:g} -> {now:g}" for word, first, now, more in found if now > first * more]


class Repeated:
    """A command that a thread runs again and again, with ``between`` called after each; counts ends and failures."""

    def __init__(
        self, words: Sequence[str], environment: dict[str, str], between: Callable[[], object] = lambda: None
    ) -> None:
        self.ended = self.failed = 0
        self.last_error = ""
        self._words, self._environment, self._between = words, environment, between
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_S):
            done = subprocess.run(
                [sys.executable, "-m", "stallscope", *self._words],
                env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            self._between()
            self.ended += 1
            if done.returncode:
                self.failed += 1
                self.last_error = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode)

    def end(self) -> None:
        """Let the running one end, and start no more."""
        self._stop.set()
        self._thread.join()


def start_attached(stand_in: StandIn, words: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """The program that launches all the time, until its input ends; ``words`` stand before it."""
    return subprocess.Popen(
        [*words, str(stand_in.folder / "attached"), "poll"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def main() -> int:
    """Measure and print; 1 where something grew or failed and --check was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--size", default="160x48")
    parser.add_argument("--gpu")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    columns, rows = (int(part) for part in asked.size.split("x"))
    where = ["--gpu", asked.gpu, "--allow-shared"] if asked.gpu is not None else ["--sim", "h200"]
    program = [sys.executable, "-m", "stallscope"]
    with contextlib.ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place = top / "runtime"
        place.mkdir(mode=0o700)
        paths = os.pathsep.join([str(ROOT / "app"), str(ROOT / "probes"), os.environ.get("PYTHONPATH", "")])
        places = {"TMPDIR": str(place), "XDG_RUNTIME_DIR": str(place)}
        environment = {**os.environ, **places, "PYTHONPATH": paths}
        settings = stack.enter_context(fast_settings())
        screen = Screen([*program, *where], columns, rows, changes={"STALLSCOPE_SETTINGS": settings, **places})
        screen.wait_for(b" old")
        screen.press("2b")
        lasting = [Lasting("screen", screen.pid), Lasting("its engine", screen.engine())]
        repeated = {"checks": Repeated(CHECK, environment)}
        target: Lasting | None = None
        ending: list[Callable[[], object]] = [repeated["checks"].end]
        if COMPILER is not None and platform.machine() == "x86_64":
            stand_in = StandIn.build(top / "stand_in")
            environment |= {CUPTI_VARIABLE: str(stand_in.folder / "libcupti.so.13")}
            beside = {**environment, "LD_LIBRARY_PATH": str(stand_in.folder)}
            watching = start_attached(stand_in, [*program, "watch", "--headless", "--"], beside)
            attached = start_attached(stand_in, [], beside)
            words = ("watch", "--pid", str(attached.pid), "--seconds", str(ATTACHED_S), "--headless")
            target = Lasting("attached program", attached.pid)
            repeated["attachments"] = Repeated(words, environment, target.look)
            ending += [repeated["attachments"].end, watching.communicate, attached.communicate]
            lasting += [Lasting("watch", watching.pid), target]
        begun, next_s, failed = time.monotonic(), PRINTED_S, False
        try:
            while (passed := time.monotonic() - begun) < asked.seconds:
                screen.press("1")
                screen.read(1.0)
                if passed >= next_s:
                    next_s += PRINTED_S
                    for one in lasting:
                        # What it uses while it is attached has the pages of the recording.
                        if one is not target:
                            one.look()
                        if passed >= max(FIRST_S, FIRST_PART * asked.seconds):
                            one.first = one.first or one.now
                    uses = [f"{one.name} {' '.join(f'{value:g}' for value in one.now)}" for one in lasting]
                    counts = [f"{one.ended} {name} ({one.failed} failed)" for name, one in repeated.items()]
                    print(f"{passed:5.0f} s: {'; '.join([*uses, *counts])}; {len(os.listdir(place))} files", flush=True)
        except (OSError, KeyError) as error:
            failed = True
            print(f"a process is gone: {error!r}")
        finally:
            for end in ending:
                end()
        screen.close()
        faults = [fault for one in lasting for fault in one.faults]
        faults += [f"{name}: {one.last_error}" for name, one in repeated.items() if one.failed]
        left = sorted(os.listdir(place))
        faults += [f"left over: {', '.join(left)}"] if left else []
    for one in lasting:
        print(f"{one.name}: {', '.join(WORDS)} {one.first} -> {one.now}")
    print(*faults or ["nothing grew, nothing failed, nothing is left"], sep="\n")
    return int(asked.check and (failed or bool(faults)))


if __name__ == "__main__":
    raise SystemExit(main())
