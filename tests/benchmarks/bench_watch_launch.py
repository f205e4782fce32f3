"""What the injected library adds to a launch on a GPU, beside the least that a library with CUPTI can do.

A loop of launches runs in interleaved processes: alone, with ``least_watch.c`` and with the library, each with
callbacks only and with all kinds of records. Prints the time of a launch and the differences within rounds, with 95 %
intervals of the median (bootstrap). Exits 1 if the upper end of the library's difference is above 0.1 us with callbacks
only, or 0.2 us with records.

python tests/benchmarks/bench_watch_launch.py [--rounds N] [--seconds S] [--callbacks]

With --callbacks only the two variants with callbacks run, for more rounds in the same time.

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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from stallprobes.native.building.libraries import write_header  # noqa: E402
from stallprobes.native.layouts.watch_file import COLLECTED  # noqa: E402
from stallprobes.native.sources import NATIVE  # noqa: E402
from stallprobes.watch.environment import (  # noqa: E402
    INJECTION_VARIABLE,
    WatchOptions,
    cupti_of_this_machine,
    library,
    variables,
)
from stallprobes.watch.reading.folder import create_folder  # noqa: E402

PROGRAMS = ROOT / "tests" / "programs"
ALONE, LEAST_CALLS, CALLS, LEAST_RECORDS, RECORDS = (
    "alone", "least, callbacks", "library, callbacks", "least, records", "library, records",
)  # fmt: skip
VARIANTS = (ALONE, LEAST_CALLS, CALLS, LEAST_RECORDS, RECORDS)
# What is compared, and the most that it may be (ns); without a limit it is shown only.
DIFFERENCES = (
    (CALLS, LEAST_CALLS, 100.0), (RECORDS, LEAST_RECORDS, 200.0), (LEAST_CALLS, ALONE, None),
    (LEAST_RECORDS, ALONE, None),
)  # fmt: skip
OPTIONS = {CALLS: WatchOptions(calls_only=True), RECORDS: WatchOptions(cost=1.0)}
DRAWS = 4000


def build(folder: Path) -> tuple[Path, Path]:
    """The program and the least library, compiled in ``folder``."""
    program, least = folder / "launch_steps", folder / "least_watch.so"
    subprocess.run(["nvcc", "-O2", "-std=c++17", "-o", str(program), str(PROGRAMS / "launch_steps.cu")], check=True)
    write_header(folder)
    includes = [f"-I{folder}", *(f"-I{NATIVE / part}" for part in ("common", "cupti"))]
    flags = ["-O2", "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-Wall", "-Wextra"]
    subprocess.run(["gcc", *flags, *includes, "-o", str(least), str(PROGRAMS / "least_watch.c"), "-ldl"], check=True)
    return program, least


def launch_ns(variant: str, program: Path, least: Path, seconds: float, cpu: int) -> float:
    """The time of a launch (ns) in a process of its own."""
    cupti, folder = cupti_of_this_machine(), create_folder()
    more: Mapping[str, str] = {}
    if variant in OPTIONS:
        more = variables(library(), folder, OPTIONS[variant], os.environ, cupti)
    elif variant != ALONE:
        kinds = ",".join(str(int(kind)) for kind in COLLECTED) if variant == LEAST_RECORDS else ""
        more = {INJECTION_VARIABLE: str(least), "LEAST_WATCH_CUPTI": str(cupti), "LEAST_WATCH_KINDS": kinds}
    try:
        command = [str(program), str(seconds), str(cpu)]
        done = subprocess.run(command, env={**os.environ, **more}, stdout=subprocess.PIPE, text=True, check=True)
        return float(done.stdout)
    finally:
        shutil.rmtree(folder)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of the median."""
    medians = np.median(np.random.default_rng(1).choice(values, (DRAWS, len(values))), axis=1)
    low, high = np.percentile(medians, (2.5, 97.5))
    return float(low), float(high)


def is_within(times: Mapping[str, NDArray[np.float64]]) -> bool:
    """Print the differences; whether each is below its limit."""
    within = True
    for one, other, limit in DIFFERENCES:
        if not {one, other} <= times.keys():
            continue
        values = times[one] - times[other]
        low, high = interval(values)
        said = "" if limit is None else f", limit {limit / 1000:.1f}"
        print(f"{one} - {other}: {np.median(values) / 1000:+.3f} us ({low / 1000:.3f} to {high / 1000:.3f}{said})")
        within &= limit is None or high <= limit
    return within


def measure(rounds: Iterable[int], seconds: float, variants: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """The time of a launch (ns) with each variant in each round; the order differs from round to round."""
    found: dict[str, list[float]] = {variant: [] for variant in variants}
    cpu = max(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as place:
        program, least = build(Path(place))
        for number in rounds:
            order = random.Random(number).sample(variants, len(variants))
            for variant in order:
                found[variant].append(launch_ns(variant, program, least, seconds, cpu))
    return {variant: np.array(values) for variant, values in found.items()}


def main() -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--callbacks", action="store_true")
    options = parser.parse_args()
    variants = (CALLS, LEAST_CALLS) if options.callbacks else VARIANTS
    times = measure(range(options.rounds), options.seconds, variants)
    for variant, values in times.items():
        print(f"{variant:20}{np.median(values) / 1000:8.3f} us a launch ({min(values) / 1000:.3f} at least)")
    return int(not is_within(times))


if __name__ == "__main__":
    sys.exit(main())
