"""What the reader of watch and the helper threads of the injected library take, beside stand-ins or on a GPU.

Four threads launch kernels at about each rate, and every call and record is kept (``--cost 100``). The reader does what
the screen does, in a thread of its own, with the same rests. Prints the share of a core that each takes, and what was
lost. Exits 1 if a record or a call was lost or missed, or above 30 % of a core together at the highest rate, 10 % at
the lowest.

python tests/benchmarks/bench_watch_reader.py [--seconds S] [--gpu]

With --gpu the program launches on the first GPU; it is compiled with nvcc.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.stand_in import StandIn
from stallprobes.watch.environment import WatchOptions, cupti_of_this_machine, library, variables
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram
from stallprobes.watch.reading.folder import create_folder

EVERYTHING = WatchOptions(cost=1.0)
THREADS = 4
# Launches of each thread in each of a thousand steps a second, and the most that reader and helpers may take together.
CASES = ((5, 0.10), (25, 0.20), (62, 0.30))
LEAST_S = 0.1
# On a GPU, each so many launches a second by all threads.
RATES = (20_000, 90_000, 200_000)
PROGRAM = Path(__file__).parents[1] / "programs" / "launch_rate.cu"


def helper_seconds(pid: int) -> float:
    """The CPU time (s) of the library's threads in a process."""
    found = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith("stallscope"):
            found += int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


def on_gpu(program: Path, rate: int, seconds: float) -> Callable[[Path], subprocess.Popen[str]]:
    """What starts the compiled program, which launches for longer than is measured, with a folder for its file."""

    def start(folder: Path) -> subprocess.Popen[str]:
        more = variables(library(), folder, EVERYTHING, os.environ, cupti_of_this_machine())
        command = [str(program), str(THREADS), str(rate), str(2 * seconds + 10)]
        return subprocess.Popen(command, env={**os.environ, **more}, text=True)

    return start


def beside(stand_in: StandIn, launches: int) -> Callable[[Path], subprocess.Popen[str]]:
    """What starts the host program beside the stand-ins, with a folder for its file."""
    words = "threads-until-stopped", str(THREADS), str(launches)
    return lambda folder: stand_in.start(folder, *words, options=EVERYTHING)


def measure(start: Callable[[Path], subprocess.Popen[str]], seconds: float) -> tuple[float, float, float, int]:
    """Records a second, the shares of a core of reader and helpers, and the calls and records that were lost."""
    folder = create_folder()
    program = start(folder)
    try:
        live = LiveProgram(folder, WatchedProgram("steps"))
        while not live.processes:
            live.update()
        begun, cpu, helpers = time.monotonic(), time.thread_time(), helper_seconds(program.pid)
        first = live.processes[0]
        while time.monotonic() - begun < seconds:
            before = time.thread_time()
            live.update()
            time.sleep(max(LEAST_S, live.rest_s(time.thread_time() - before)))
        span = time.monotonic() - begun
        reader, helpers = (time.thread_time() - cpu) / span, (helper_seconds(program.pid) - helpers) / span
        last = live.processes[0]
        (found,) = live.findings().processes
        lost = last.lost_records + last.lost_calls + found.missed_records
        return (last.records - first.records) / span, reader, helpers, lost
    finally:
        program.terminate()
        program.communicate()
        shutil.rmtree(folder)


def main() -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--gpu", action="store_true", help="launch on the first GPU, in place of stand-ins")
    options = parser.parse_args()
    seconds, within = options.seconds, True
    with tempfile.TemporaryDirectory() as place:
        if options.gpu:
            program = Path(place, "launch_rate")
            subprocess.run(["nvcc", "-O2", "-std=c++17", "-o", str(program), str(PROGRAM)], check=True)
            starts = [on_gpu(program, rate, seconds) for rate in RATES]
        else:
            stand_in = StandIn.build(Path(place), ("-O2",))
            starts = [beside(stand_in, launches) for launches, _ in CASES]
        print(f"{'records a second':>17}{'reader':>9}{'helpers':>9}{'together':>10}{'limit':>8}{'lost':>8}")
        for start, (_, limit) in zip(starts, CASES, strict=True):
            rate, reader, helpers, lost = measure(start, seconds)
            together = reader + helpers
            shares = "".join(
                f"{100 * share:{width}.1f} %" for share, width in ((reader, 7), (helpers, 7), (together, 8))
            )
            print(f"{rate:17.0f}{shares}{100 * limit:6.0f} %{lost:8}", flush=True)
            within &= together <= limit and not lost
    return int(not within)


if __name__ == "__main__":
    sys.exit(main())
