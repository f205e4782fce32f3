"""What the injected library adds to a launch on a GPU, beside the least that a library with CUPTI can do.

Two comparisons. In interleaved processes a loop of launches runs alone, with ``least_watch.c`` and with the library:
with callbacks only, and with records (the least with those of kernels, copies and memsets, the library with all that it
collects). They are many and short: on machines that others share, a launch takes 1.3 us longer for seconds at a time.
In three more processes the callbacks of every second step go to the library, and the others do the least
(``alternating_cupti.c``): what callbacks differ by is less than processes do. One of them has callbacks only, one all
records all the time, and one the default budget, for which calls pass a gate. The thread that launches has a core of
its own. Prints the time of a launch and the differences within rounds, with 95 % intervals of the median (bootstrap).
Exits 1 if an upper end is above 0.1 us with callbacks only, within a process, or above 0.2 us with records, in either
comparison.

python tests/benchmarks/bench_watch_launch.py [--processes N] [--rounds N] [--seconds S]

--processes is how many of each kind are interleaved, --rounds how many alternate, for --seconds each; 0 leaves one out.

It needs nvcc and gcc.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from stallprobes.native.building.libraries import write_header  # noqa: E402
from stallprobes.native.layouts.cupti import RecordKind  # noqa: E402
from stallprobes.native.sources import NATIVE  # noqa: E402
from stallprobes.watch.environment import (  # noqa: E402
    INJECTION_VARIABLE,
    WatchOptions,
    cupti_of_this_machine,
    library,
    variables,
)
from stallprobes.watch.reading.folder import create_folder  # noqa: E402
from stallprobes.watch.reading.map_reader import MapFile, watch_files  # noqa: E402

PROGRAMS = ROOT / "tests" / "programs"
ALONE, LEAST_CALLS, CALLS, LEAST_RECORDS, RECORDS = (
    "alone", "least, callbacks", "library, callbacks", "least, records", "library, records",
)  # fmt: skip
BUDGET = "library, budget"
VARIANTS = (ALONE, LEAST_CALLS, CALLS, LEAST_RECORDS, RECORDS)
# What runs in turn with the least in one process, and the most that it may add (ns); without a limit it is shown only.
IN_TURN = {CALLS: 100.0, RECORDS: 200.0, BUDGET: None}
# What is compared between processes, and the most that the first may take longer (ns).
DIFFERENCES = (
    (CALLS, LEAST_CALLS, None), (RECORDS, LEAST_RECORDS, 200.0), (LEAST_CALLS, ALONE, None),
    (LEAST_RECORDS, ALONE, None),
)  # fmt: skip
LEAST_KINDS = (RecordKind.KERNEL, RecordKind.COPY, RecordKind.MEMSET)
# Of a process that does not alternate.
PROCESS_S = 0.2
# The library takes the steps between its own for time between two calls, of which it takes samples: in steps of 400, in
# more than half of its steps, in ones as short as this, in one of ten. So the tenth percentile has none, as that of a
# program without such gaps.
LAUNCHES_IN_TURN = 100
OPTIONS = {CALLS: WatchOptions(calls_only=True, cost=1.0), RECORDS: WatchOptions(cost=1.0), BUDGET: WatchOptions()}
DRAWS = 4000


@dataclass(frozen=True, kw_only=True)
class Built:
    """The program and the libraries that were compiled."""

    program: Path
    least: Path
    alternating: Path


def build(folder: Path) -> Built:
    """Compile in ``folder``."""
    built = Built(
        program=folder / "launch_steps", least=folder / "least_watch.so", alternating=folder / "libcupti-alternating.so"
    )
    source = str(PROGRAMS / "launch_steps.cu")
    subprocess.run(["nvcc", "-O2", "-std=c++17", "-o", str(built.program), source], check=True)
    write_header(folder)
    flags = ["-O2", "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-Wall", "-Wextra", f"-I{folder}"]
    flags += [f"-I{NATIVE / part}" for part in ("common", "cupti")]
    cupti = cupti_of_this_machine()
    assert cupti is not None, "no libcupti was found"
    linked = ["-Wl,--no-as-needed", str(cupti), f"-Wl,-rpath,{cupti.parent}"]
    for target, name, more in (
        (built.least, "least_watch.c", []), (built.alternating, "alternating_cupti.c", linked),
    ):  # fmt: skip
        subprocess.run(["gcc", *flags, "-o", str(target), str(PROGRAMS / name), *more, "-ldl"], check=True)
    return built


@contextmanager
def own_core(cpu: int) -> Iterator[None]:
    """Threads that begin meanwhile get the other cores: the program itself moves the one that launches to ``cpu``."""
    allowed = os.sched_getaffinity(0)
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii")
    core = {number for part in siblings.split(",") for number in _numbers(part)}
    os.sched_setaffinity(0, allowed - core or allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _numbers(part: str) -> range:
    first, _, last = part.strip().partition("-")
    return range(int(first), int(last or first) + 1)


def launch_ns(
    built: Built, environment: Mapping[str, str], seconds: float, cpu: int, launches: int = 400
) -> list[float]:
    """The times of a launch (ns) in a process of its own: of all steps, of the odd and of the even ones."""
    command = [str(built.program), str(seconds), str(cpu), str(launches)]
    with own_core(cpu):
        done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


def of_variant(variant: str, built: Built, cpu: int) -> float:
    """The time of a launch (ns) with a variant in a process of its own."""
    cupti, folder = cupti_of_this_machine(), create_folder()
    environment: Mapping[str, str] = {}
    if variant in OPTIONS:
        environment = variables(library(), folder, OPTIONS[variant], os.environ, cupti)
    elif variant != ALONE:
        kinds = ",".join(str(int(kind)) for kind in LEAST_KINDS) if variant == LEAST_RECORDS else ""
        environment = {
            INJECTION_VARIABLE: str(built.least), "LEAST_WATCH_CUPTI": str(cupti), "LEAST_WATCH_KINDS": kinds,
        }  # fmt: skip
    try:
        return launch_ns(built, environment, PROCESS_S, cpu)[0]
    finally:
        shutil.rmtree(folder)


def calls_in(path: Path) -> int:
    """The calls that the library has counted in its file."""
    with MapFile(path) as file:
        return file.read().calls


def in_turn(variant: str, number: int, built: Built, seconds: float, cpu: int) -> tuple[float, float]:
    """The times of a launch (ns) with the library and with the least, in one process; the first step is of either."""
    folder, first = create_folder(), number % 2
    environment = {
        **variables(library(), folder, OPTIONS[variant], os.environ, built.alternating),
        "ALTERNATING_CUPTI": str(cupti_of_this_machine()), "ALTERNATING_FIRST": str(first),
    }  # fmt: skip
    try:
        _, odd, even = launch_ns(built, environment, seconds, cpu, LAUNCHES_IN_TURN)
        calls = [calls_in(path) for path in watch_files(folder)]
        assert any(calls), "the library was not called"
    finally:
        shutil.rmtree(folder)
    return (odd, even) if first else (even, odd)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of the median."""
    medians = np.median(np.random.default_rng(1).choice(values, (DRAWS, len(values))), axis=1)
    low, high = np.percentile(medians, (2.5, 97.5))
    return float(low), float(high)


def difference(one: str, other: str, values: NDArray[np.float64], limit: float | None = None) -> bool:
    """Print a difference (ns); whether the upper end of its interval is below the limit."""
    low, high = interval(values)
    said = "" if limit is None else f", limit {limit / 1000:.1f}"
    print(f"{one} - {other}: {np.median(values) / 1000:+.3f} us ({low / 1000:.3f} to {high / 1000:.3f}{said})")
    return limit is None or high <= limit


def compare_processes(count: int, built: Built, cpu: int) -> bool:
    """Print the time of a launch with each variant and the differences; whether each is below its limit.

    The order of the variants differs from round to round.
    """
    found: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for number in range(count):
        for variant in random.Random(number).sample(VARIANTS, len(VARIANTS)):
            found[variant].append(of_variant(variant, built, cpu))
    times = {name: np.array(values) for name, values in found.items()}
    for variant, values in times.items():
        print(f"{variant:20}{np.median(values) / 1000:8.3f} us a launch ({min(values) / 1000:.3f} at least)")
    within = [difference(one, other, times[one] - times[other], limit) for one, other, limit in DIFFERENCES]
    return all(within)


def compare_in_turn(rounds: int, seconds: float, built: Built, cpu: int) -> bool:
    """Print what the library adds to the least within one process; whether each is below its limit."""
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in IN_TURN}
    for number in range(rounds):
        for variant, pairs in turns.items():
            pairs.append(in_turn(variant, number, built, seconds, cpu))
    within = True
    for variant, pairs in turns.items():
        both = np.array(pairs)
        print(f"in turn: {variant} {np.median(both[:, 0]) / 1000:.3f} us, least {np.median(both[:, 1]) / 1000:.3f} us")
        within &= difference(variant, "least", both[:, 0] - both[:, 1], IN_TURN[variant])
    return within


def main() -> int:
    """Print the comparisons; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.7)
    options = parser.parse_args()
    cpu = max(os.sched_getaffinity(0))
    within = True
    with tempfile.TemporaryDirectory() as place:
        built = build(Path(place))
        if options.processes:
            within &= compare_processes(options.processes, built, cpu)
        if options.rounds:
            within &= compare_in_turn(options.rounds, options.seconds, built, cpu)
    return int(not within)


if __name__ == "__main__":
    sys.exit(main())
