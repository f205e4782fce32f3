"""What watching costs programs on a GPU: by the times of their own steps, and as ``watch`` states it.

Each program runs with the default budget, or that of --cost, beside the reader that the screen has. The median of its
steps' times in each window with records is compared with those of the two windows without beside it: a machine that
others share is slower for seconds at a time, and its mean differs by 5 to 15 % from window to window. The mean is
printed beside, for what disturbs few steps. What callbacks cost is computed, as in the statement. Prints for each
program the cost by steps with its 95 % interval (bootstrap over the compared windows) and the stated interval, and how
many launches within windows with records have none. A program whose records can cost 1 % at most has windows late or
never: then nothing is compared, which a longer run may change. Exits 1 if a cost by steps is above 6 % with a budget of
5 or less, if fewer than nine of ten compared costs lie in the stated interval, if the two intervals of one have nothing
in common, if no run of a program was compared, or if a record was lost.

python tests/benchmarks/bench_watch_cost.py [PROGRAM ...] [--seconds S] [--cost PERCENT] [--runs N]

The programs need PyTorch and torchvision, transformers, and JAX.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from factories.watched_programs import PROGRAMS, launches_by_record  # noqa: E402
from stallprobes.watch.cost import WatchCost, calls_cost  # noqa: E402
from stallprobes.watch.environment import WatchOptions, cupti_of_this_machine, library, variables  # noqa: E402
from stallprobes.watch.live.live_program import LiveProgram  # noqa: E402
from stallprobes.watch.live.live_view import WatchedProgram  # noqa: E402
from stallprobes.watch.reading.folder import create_folder  # noqa: E402
from stallprobes.watch.reading.process import WatchedProcess  # noqa: E402
from stallprobes.watch.reading.record_windows import RecordWindows  # noqa: E402

NAMES = ("training", "generation", "gaussian_process", "compiled")
LIMIT = 0.06
LEAST_S = 0.1
# Of a window that is compared.
LEAST_STEPS = 8
DRAWS = 1000
# The part of the runs that has to lie in the stated interval.
LEAST_INSIDE = 0.9


@dataclass(frozen=True)
class Measured:
    """What one run showed. The shares (0 to 1) are of the time since records were off first; ``mean`` is what records
    cost by the mean of the steps' times."""

    stated: WatchCost
    calls: float
    records: float
    mean: float
    interval: tuple[float, float]
    recorded: float
    lost: int
    not_held: int
    missing: int
    found: int


def watch_steps(name: str, seconds: float, cost: float) -> Measured:
    """Run the program, with the reader beside it. Raises SystemExit if it fails."""
    folder = create_folder()
    with tempfile.TemporaryDirectory() as place:
        times = Path(place, "steps.npy")
        command = [sys.executable, str(PROGRAMS / f"{name}_steps.py"), str(seconds), str(times)]
        more = variables(library(), folder, WatchOptions(cost=cost), os.environ, cupti_of_this_machine())
        program = subprocess.Popen(command, env={**os.environ, **more}, stdout=subprocess.DEVNULL)
        live = LiveProgram(folder, WatchedProgram(name))
        while program.poll() is None:
            before = time.thread_time()
            live.update()
            time.sleep(max(LEAST_S, live.rest_s(time.thread_time() - before)))
        live.update()
        try:
            if program.returncode or not live.processes:
                sys.exit(f"{name} failed with {program.returncode}, or made no call of CUDA.")
            # Loaders of data and compilers are processes of their own.
            findings = max(live.findings().processes, key=lambda one: one.calls)
            process = next(one for one in live.processes if one.pid == findings.pid)
            missing, found = missing_launches(folder, process)
            assert findings.cost is not None
            ends, windows = np.load(times), process.windows
            records, interval, recorded = cost_by_steps(ends, windows, np.median)
            mean = cost_by_steps(ends, windows, np.mean)[0]
        finally:
            shutil.rmtree(folder)
    lost = process.lost_records + findings.missed_records
    end_ns = process.ended_ns or process.clocks.monotonic_ns
    calls = sum(calls_cost(process, min(process.windows.first_off_ns, end_ns), end_ns, compared=True)) / 2
    return Measured(findings.cost, calls, records, mean, interval, recorded, lost, process.not_held, missing, found)


def missing_launches(folder: Path, process: WatchedProcess) -> tuple[int, int]:
    """How many launches within windows with records have none, and how many have theirs, as far as the log goes."""
    if not len(process.windows):
        return 0, 0
    for path in folder.glob("*.watch"):
        if not path.name.startswith(f"{process.pid}-"):
            path.unlink()
    found, missing = launches_by_record(folder)
    return missing, found


def cost_by_steps(
    ends: NDArray[np.int64], windows: RecordWindows, middle: Callable[[NDArray[np.int64]], np.floating[Any]]
) -> tuple[float, tuple[float, float], float]:
    """The share of time that records cost by the steps' times, its 95 % interval, and the share with records.

    The times are compared by their ``middle``; NaN where there are none.
    """
    if not len(windows) or windows.first_off_ns > ends[-1]:
        return 0.0, (0.0, 0.0), 1.0
    share = windows.share_on(int(ends[-1]), windows.first_off_ns)
    usual = np.full(len(windows), np.nan)
    for number, (begin, end) in enumerate(zip(windows.begins, windows.ends, strict=True)):
        steps = np.diff(ends[(ends >= begin) & (ends <= end)])
        if begin >= windows.first_off_ns and len(steps) >= LEAST_STEPS:
            usual[number] = middle(steps)
    beside = (usual[:-2] + usual[2:]) / 2
    compared = windows.on[1:-1] & ~windows.on[:-2] & ~windows.on[2:] & ~np.isnan(usual[1:-1] + beside)
    slowdowns = 1 - beside[compared] / usual[1:-1][compared]
    if not len(slowdowns):
        return float("nan"), (float("nan"), float("nan")), share
    drawn = np.median(np.random.default_rng(1).choice(slowdowns, (DRAWS, len(slowdowns))), axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5)) * share
    return float(np.median(slowdowns)) * share, (float(low), float(high)), share


def print_run(name: str, run: Measured, budget: float) -> tuple[bool, bool | None]:
    """Print a line; whether all is within the limits, and whether the cost lies in the stated interval.

    None: nothing was compared, by the steps or by ``watch``, which then says that its cost is computed.
    """
    # Records do not make a program faster: a cost below zero is the scatter of the machine.
    cost, low, high = (float(np.maximum(one + run.calls, 0.0)) for one in (run.records, *run.interval))
    compared = not np.isnan(cost) and run.recorded < 1
    measured = compared and run.stated.compared > 0
    agrees = not measured or (low <= run.stated.high and high >= run.stated.low)
    inside = bool(run.stated.low <= cost <= run.stated.high) if measured else None
    verdict = "" if inside else ", not inside" if agrees else ", DIFFERS"
    if inside is None:
        verdict = ", computed" if compared else ", not compared"
    parts = (
        f"records {run.records:6.1%} ({run.interval[0]:.1%} to {run.interval[1]:.1%}; by the mean {run.mean:.1%}),"
        f" calls {run.calls:.1%}"
    )
    stated = f"stated {run.stated.low:.1%} to {run.stated.high:.1%} ({run.stated.compared} comparisons)"
    print(
        f"{name:18}{cost:6.1%}: {parts}; {stated}{verdict}; records on {run.recorded:.0%} of"
        f" the time; {run.missing} of {run.missing + run.found} launches without record, {run.lost} records lost,"
        f" {run.not_held} calls not held",
        flush=True,
    )
    within = agrees and (budget > 0.05 or not cost > LIMIT) and not (run.lost or run.missing or run.not_held)
    return within, inside


def main() -> int:
    """Run the programs; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", default=NAMES, metavar="PROGRAM", help=" ".join(NAMES))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--cost", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    budget = options.cost / 100
    runs = [
        print_run(name, watch_steps(name, options.seconds, budget), budget)
        for _ in range(options.runs)
        for name in options.programs
    ]
    compared = [one for _, one in runs if one is not None]
    print(f"{sum(compared)} of {len(compared)} compared costs lie in the stated interval")
    programs = len(options.programs)
    never = [name for at, name in enumerate(options.programs) if all(one is None for _, one in runs[at::programs])]
    if never:
        print(f"no run of {', '.join(never)} was compared: give more --seconds")
    return int(bool(never) or not all(one for one, _ in runs) or sum(compared) < LEAST_INSIDE * len(compared))


if __name__ == "__main__":
    sys.exit(main())
