"""What the reader of watch and the helper threads of the injected library take, beside stand-ins.

A program launches kernels at about each rate, and every call and record is kept (``--cost 100``). The reader does what
the screen does, in a thread of its own, with the same rests. Prints the share of a core that each takes, and what was
lost. Exits 1 if a record or a call was lost or missed, or above 30 % of a core together at the highest rate, 10 % at
the lowest.

python tests/benchmarks/bench_watch_reader.py [--seconds S]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.stand_in import StandIn
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram
from stallprobes.watch.reading.folder import create_folder

EVERYTHING = WatchOptions(cost=1.0)
# Launches in each of a thousand steps a second, and the most that reader and helpers may take together.
CASES = ((20, 0.10), (100, 0.20), (250, 0.30))
LEAST_S = 0.1


def helper_seconds(pid: int) -> float:
    """The CPU time (s) of the library's threads in a process."""
    found = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith("stallscope"):
            found += int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


def measure(stand_in: StandIn, launches: int, seconds: float) -> tuple[float, float, float, int]:
    """Records a second, the shares of a core of reader and helpers, and the calls and records that were lost."""
    folder = create_folder()
    program = stand_in.start(folder, "steps-until-stopped", str(launches), options=EVERYTHING)
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
    seconds = parser.parse_args().seconds
    within = True
    with tempfile.TemporaryDirectory() as place:
        stand_in = StandIn.build(Path(place), ("-O2",))
        print(f"{'records a second':>17}{'reader':>9}{'helpers':>9}{'together':>10}{'limit':>8}{'lost':>8}")
        for launches, limit in CASES:
            rate, reader, helpers, lost = measure(stand_in, launches, seconds)
            together = reader + helpers
            shares = "".join(
                f"{100 * share:{width}.1f} %" for share, width in ((reader, 7), (helpers, 7), (together, 8))
            )
            print(f"{rate:17.0f}{shares}{100 * limit:6.0f} %{lost:8}", flush=True)
            within &= together <= limit and not lost
    return int(not within)


if __name__ == "__main__":
    sys.exit(main())
