"""Whether records of a program on a GPU are switched without harm: many switches, results checked, no record missing.

The library is built with windows of 1 ms at least, a flush each millisecond and a budget of half of the time, so that
it switches some hundred times a second, often during a flush. Each program runs with it for a while: threads that count
in kernels and check the count, the programs with steps of bench_watch_cost.py, and arrays of CuPy whose sum is checked.
They need PyTorch and torchvision, transformers, JAX and CuPy. Prints for each the switches, and the launches within
windows with records that have none; for the threads that count also the longest launch and its 99.99th percentile, with
switches, with records always on, and alone. Exits 1 if a program fails, a launch has no record, or a call could not be
held.

python tests/benchmarks/bench_watch_switches.py [PROGRAM ...] [--seconds S] [--cupti LIBCUPTI] [--switches-only]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from ctypes import sizeof
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from benchmarks.bench_watch_cost import NAMES  # noqa: E402
from factories.watched_programs import PROGRAMS, launches_by_record  # noqa: E402
from stallprobes.native.building.compilers import of_system  # noqa: E402
from stallprobes.native.building.libraries import INJECTED_LIBRARY, write_header  # noqa: E402
from stallprobes.native.dtypes import dtype_of  # noqa: E402
from stallprobes.native.layouts.watch_file import FileHeader  # noqa: E402
from stallprobes.native.sources import INJECTED  # noqa: E402
from stallprobes.watch.environment import WatchOptions, cupti_of_this_machine, variables  # noqa: E402
from stallprobes.watch.reading.folder import create_folder  # noqa: E402
from stallprobes.watch.reading.map_reader import MapFile, watch_files  # noqa: E402

THREADS = ("1", "2", "8")
WINDOW_MS = FLUSH_MS = 1
# Half of the time, so that neither windows with records nor those without are long.
BUDGET = 0.5
EVERYTHING = 1.0


def build(place: Path) -> tuple[Path, Path]:
    """The library that switches often, and the program that counts."""
    write_header(place)
    injected, program = place / INJECTED, place / "counted_launches"
    flags = (f"-DSS_LEAST_WINDOW_MS={WINDOW_MS}", f"-DSS_FLUSH_MS={FLUSH_MS}")
    INJECTED_LIBRARY.compile(injected, of_system()[0], place, flags)
    injected.chmod(0o755)
    source = PROGRAMS / "counted_launches.cu"
    subprocess.run(["nvcc", "-O2", "-std=c++17", "-o", str(program), str(source)], check=True)
    return injected, program


def windows_of(path: Path) -> int:
    """How many windows there were, of which the file has the last ones."""
    with path.open("rb") as file:
        return int(np.frombuffer(file.read(sizeof(FileHeader)), dtype_of(FileHeader))[0]["windows"])


def run(name: str, command: Sequence[str], injected: Path, cost: float, cupti: Path | None) -> bool:
    """Run a program with the library, and print what came of it; whether all is well."""
    folder = create_folder()
    more: Mapping[str, str] = variables(injected, folder, WatchOptions(cost=cost), os.environ, cupti)
    try:
        done = subprocess.run(command, env={**os.environ, **more}, stdout=subprocess.PIPE, text=True)
        processes = []
        for path in watch_files(folder):
            with MapFile(path) as file:
                processes.append((file.read(), windows_of(path), path))
        busiest, windows, kept = max(processes, key=lambda one: one[0].calls)
        for _, _, path in processes:
            if path != kept:
                path.unlink()
        found, missing = launches_by_record(folder) if len(busiest.windows) else (0, 0)
    finally:
        shutil.rmtree(folder)
    switches = max(windows - 2, 0)
    print(
        f"{name:30} exit code {done.returncode}, {switches:6} switches, {missing} of {missing + found} launches without"
        f" record, {busiest.lost_records} records lost, {busiest.not_held} calls not held {_launches(done.stdout)}",
        flush=True,
    )
    return not (done.returncode or missing or busiest.lost_records or busiest.not_held)


def _launches(output: str) -> str:
    longest = output.split()
    return f"; launch {longest[0]} us at most, p99.99 {longest[1]}" if len(longest) == 2 else ""


def main() -> int:
    """Run the programs; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", default=("count", *NAMES, "arrays"), metavar="PROGRAM")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--cupti", type=Path, default=cupti_of_this_machine())
    parser.add_argument("--switches-only", action="store_true", help="not always on, nor alone")
    options = parser.parse_args()
    within = True
    with tempfile.TemporaryDirectory() as place:
        injected, program = build(Path(place))
        for name in options.programs:
            if name != "count":
                steps = [str(PROGRAMS / f"{name}_steps.py"), str(options.seconds), str(Path(place, "steps.npy"))]
                within &= run(name, [sys.executable, *steps], injected, BUDGET, options.cupti)
                continue
            for threads in THREADS:
                command = [str(program), threads, str(options.seconds)]
                within &= run(f"{threads} threads that count", command, injected, BUDGET, options.cupti)
                if options.switches_only:
                    continue
                within &= run("  records always on", command, injected, EVERYTHING, options.cupti)
                alone = subprocess.run(command, stdout=subprocess.PIPE, text=True)
                print(f"{'  alone':30} exit code {alone.returncode} {_launches(alone.stdout)}", flush=True)
    return int(not within)


if __name__ == "__main__":
    sys.exit(main())
