"""What the reader of watch and the helper threads of the injected library take, beside stand-ins or on a GPU.

Four threads launch kernels at about each rate, and every call and record is kept (``--cost 100``). The reader does what
the screen does, in a thread of its own, with the same rests. Prints the share of a core that each takes, and what was
lost. Exits 1 if a record or a call was lost or missed, or above 30 % of a core together at the highest rate, 10 % at
the lowest, which are limits for one process.

python tests/benchmarks/bench_watch_reader.py [--seconds S] [--gpu] [--processes N]

With --gpu the program launches on the GPUs, of which each process has one in turn; it is compiled with nvcc. Each of N
processes has an Nth of the rate.
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
from stallprobes.machine.libcuda_survey import ask
from stallprobes.watch.environment import WatchOptions, cupti_of_this_machine, library, variables
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram
from stallprobes.watch.reading.folder import create_folder

EVERYTHING = WatchOptions(cost=1.0)
THREADS = 4
# Launches of each thread in each of a thousand steps a second, and the most that reader and helpers may take together.
CASES = ((5, 0.10), (25, 0.20), (62, 0.30))
LEAST_S = 0.1
# Starts a program with a folder for its file, and its number among the processes.
Start = Callable[[Path, int], subprocess.Popen[str]]
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


def on_gpu(program: Path, rate: int, seconds: float) -> Start:
    """What starts the compiled program, which launches for longer than is measured, on one of the GPUs."""
    devices = max(len(ask().devices), 1)

    def start(folder: Path, number: int) -> subprocess.Popen[str]:
        more = variables(library(), folder, EVERYTHING, os.environ, cupti_of_this_machine())
        command = [str(program), str(THREADS), str(rate), str(2 * seconds + 10)]
        environment = {**os.environ, **more}
        if number:
            environment["CUDA_VISIBLE_DEVICES"] = str(number % devices)
        return subprocess.Popen(command, env=environment, text=True)

    return start


def beside(stand_in: StandIn, launches: int) -> Start:
    """What starts the host program beside the stand-ins."""
    words = "threads-until-stopped", str(THREADS), str(launches)
    return lambda folder, _: stand_in.start(folder, *words, options=EVERYTHING)


def measure(start: Start, seconds: float, processes: int = 1) -> tuple[float, float, float, int]:
    """Records a second, the shares of a core of reader and helpers, and the calls and records that were lost."""
    folder = create_folder()
    programs = [start(folder, number) for number in range(processes)]

    def helper_time() -> float:
        return sum(helper_seconds(program.pid) for program in programs)

    def records() -> int:
        return sum(process.records for process in live.processes)

    try:
        live = LiveProgram(folder, WatchedProgram("steps"))
        while len(live.processes) < processes:
            live.update()
        begun, cpu, helpers, first = time.monotonic(), time.thread_time(), helper_time(), records()
        while time.monotonic() - begun < seconds:
            before = time.thread_time()
            live.update()
            time.sleep(max(LEAST_S, live.rest_s(time.thread_time() - before)))
        span = time.monotonic() - begun
        reader, helpers = (time.thread_time() - cpu) / span, (helper_time() - helpers) / span
        rate = (records() - first) / span
        lost = sum(process.lost_records + process.lost_calls for process in live.processes)
        lost += sum(found.missed_records for found in live.findings().processes)
        return rate, reader, helpers, lost
    finally:
        for program in programs:
            program.terminate()
            program.communicate()
        shutil.rmtree(folder)


def main() -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--gpu", action="store_true", help="launch on the GPUs, in place of stand-ins")
    parser.add_argument("--processes", type=int, default=1, help="how many processes have the rate together")
    options = parser.parse_args()
    seconds, processes, within = options.seconds, options.processes, True
    with tempfile.TemporaryDirectory() as place:
        if options.gpu:
            program = Path(place, "launch_rate")
            subprocess.run(["nvcc", "-O2", "-std=c++17", "-o", str(program), str(PROGRAM)], check=True)
            starts = [on_gpu(program, rate // processes, seconds) for rate in RATES]
        else:
            stand_in = StandIn.build(Path(place), ("-O2",))
            starts = [beside(stand_in, max(launches // processes, 1)) for launches, _ in CASES]
        print(f"{'records a second':>17}{'reader':>9}{'helpers':>9}{'together':>10}{'limit':>8}{'lost':>8}")
        for start, (_, limit) in zip(starts, CASES, strict=True):
            rate, reader, helpers, lost = measure(start, seconds, processes)
            together = reader + helpers
            shares = "".join(
                f"{100 * share:{width}.1f} %" for share, width in ((reader, 7), (helpers, 7), (together, 8))
            )
            most = f"{100 * limit:6.0f} %" if processes == 1 else f"{'':8}"
            print(f"{rate:17.0f}{shares}{most}{lost:8}", flush=True)
            within &= (processes > 1 or together <= limit) and not lost
    return int(not within)


if __name__ == "__main__":
    sys.exit(main())
