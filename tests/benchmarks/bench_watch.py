"""What the injected library costs a program for each callback: a call beside stand-ins with and without it.

Each call has two callbacks. The time of a call without the library is that of the stand-in; the difference also has the
stand-in's own dispatch of callbacks. Then what the call stacks of slow calls cost: calls of 2.5 ms as quickly as
possible, in a compiled program and in a Python one. Exits 1 above 300 ns for a callback, or if stacks took more than
1 % of the time that the program made calls, and 2 ms once.

python tests/benchmarks/bench_watch.py
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.stand_in import SOURCES, StandIn
from factories.watched_folders import file_header, read_folder
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.folder import create_folder
from stallprobes.watch.reading.process import WatchedProcess

LIMIT_NS = 300.0
CALLS = 400_000
ROUNDS = 15
CALLS_ONLY = WatchOptions(calls_only=True, cost=1.0)
# Name, arguments of the program, options.
CASES = (
    ("launch", ("0", "0"), CALLS_ONLY),
    ("launch, every call kept as slow", ("0", "0"), WatchOptions(slow_ns=0, calls_only=True, cost=1.0)),
    ("query of one event", ("2", "0"), CALLS_ONLY),
    ("queries of two events by turns", ("3", "0"), CALLS_ONLY),
    ("pageable copy, no pinned memory", ("1", "0"), CALLS_ONLY),
    ("pageable copy, 100 pinned ranges", ("1", "100"), CALLS_ONLY),
    ("pageable copy, 1000 pinned ranges", ("1", "1000"), CALLS_ONLY),
    # As many blocks as the filter has buckets, so that it says nothing.
    ("the same, of 4 GiB", ("1", "1000", str(4 << 30)), CALLS_ONLY),
)
STEPS = 2000
STACK_SHARE, ONCE_NS = 0.01, 2_000_000


def call_ns(stand_in: StandIn, arguments: tuple[str, ...], options: WatchOptions | None) -> float:
    """The time of a call, with the library unless ``options`` is None."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {} if options is None else stand_in.environment(Path(folder), options)
        program = [str(stand_in.folder / "host"), "cost", str(CALLS), *arguments]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def stack_costs(stand_in: StandIn, program: list[str]) -> tuple[WatchedProcess, int, int]:
    """The process of a program that makes slow calls, with the number of its stacks and what they took (ns).

    Its folder is in memory, as that of the command is.
    """
    folder = create_folder()
    try:
        environment = {**os.environ, **stand_in.environment(folder, WatchOptions())}
        subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
        (process,) = read_folder(folder).processes
        header = file_header(folder, process)
    finally:
        shutil.rmtree(folder)
    return process, int(header["stacks"]), int(header["stacks_ns"])


def print_stack_costs(stand_in: StandIn) -> bool:
    """Print what stacks cost; whether that is within the limit."""
    python = [sys.executable, str(SOURCES.parent / "slow_steps.py"), str(stand_in.folder / "libcuda.so.1")]
    within = True
    print(f"{'call stacks':36}{'slow calls':>12}{'stacks':>9}{'µs each':>10}{'of the time':>13}")
    programs = {
        "compiled": [str(stand_in.folder / "host"), "steps", str(STEPS)],
        "Python": [*python, "steps", str(STEPS)],
        "Python, many frames": [*python, "deep", str(STEPS)],
    }
    for name, program in programs.items():
        process, stacks, stacks_ns = stack_costs(stand_in, program)
        (thread,) = process.threads
        time_ns = (process.ended_ns or 0) - thread.started_ns
        each = stacks_ns / stacks / 1000
        share = stacks_ns / time_ns
        print(f"{name:36}{thread.slow_count:12}{stacks:9}{each:10.1f}{100 * share:11.2f} %")
        within &= stacks_ns <= STACK_SHARE * time_ns + ONCE_NS + stacks_ns / stacks
    return within


def main() -> int:
    """Print the costs; the exit code."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        stand_in = StandIn.build(Path(folder), ("-O2",))
        print(f"{'ns':36}{'without':>9}{'with':>9}{'callback':>10}{'quartiles':>16}")
        for name, arguments, options in CASES:
            pairs = [(call_ns(stand_in, arguments, None), call_ns(stand_in, arguments, options)) for _ in range(ROUNDS)]
            callbacks = sorted((after - before) / 2 for before, after in pairs)
            low, median, high = statistics.quantiles(callbacks, n=4)
            without, beside = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(f"{name:36}{without:9.1f}{beside:9.1f}{median:10.1f}{f'{low:.1f} to {high:.1f}':>16}")
            worst = max(worst, median)
        within = print_stack_costs(stand_in)
    print(f"largest median of a callback: {worst:.0f} ns, limit {LIMIT_NS:.0f} ns")
    return int(worst > LIMIT_NS or not within)


if __name__ == "__main__":
    sys.exit(main())
