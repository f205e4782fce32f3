"""What watching costs programs on a GPU: by the times of their own steps, and as ``watch`` states it.

Each program runs with the budget of --cost, beside the reader that the screen has, from the start and attached. Its
windows are compared within the process: the usual time of a step in each window with records, and in each time in
which calls are followed that quiet windows leave out, with that in the windows without on both sides. Reason: a machine
that others share is slower for seconds at a time. The time of the switches counts in full. What all windows have, such
as the callbacks of all calls where no window is quiet, is computed as in the statement. Programs of FOLLOWED are
attached for their calls alone too, for moments, and compared with the times on both sides in which nothing watches
them; there the cost leaves out the first half second, and "by the mean" is that of the whole attachments. Where all
calls were followed in these, and with records too, that is what callbacks and CUPTI's presence cost in both.

Prints for each the cost with its 95 % interval (bootstrap over what was compared), whether that ends a point above the
budget at most, what was stated, and whether it holds the cost; then a table. A program whose records can cost 1 % at
most has windows late or never: then nothing is compared, which a longer run may change. Exits 1 if an interval ends
higher, if fewer than nine of ten measured costs lie in the stated interval, if the two intervals of one have nothing in
common, if a record was lost, or if a launch within a window with records has none.

python tests/benchmarks/bench_watch_cost.py [PROGRAM ...] [--seconds S] [--cost PERCENT] [--runs N] [--way WAY ...]
    [--limit SECONDS] [--keep FILE]

Most programs need PyTorch and torchvision, transformers, or JAX; those of watch_parts.cu need nvcc. --keep writes all
that a statement of cost is computed from, and the times of the steps, as JSON (gzip).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from factories.watched_programs import PROGRAMS, launches_by_record  # noqa: E402
from stallprobes.errors import WatchError  # noqa: E402
from stallprobes.watch.attaching.attached_processes import AttachedProcesses  # noqa: E402
from stallprobes.watch.cost import WatchCost, calls_cost  # noqa: E402
from stallprobes.watch.environment import WatchOptions, cupti_of_this_machine, library, variables  # noqa: E402
from stallprobes.watch.live.live_program import LiveProgram  # noqa: E402
from stallprobes.watch.live.live_view import WatchedProgram  # noqa: E402
from stallprobes.watch.reading.folder import create_folder  # noqa: E402
from stallprobes.watch.reading.process import WatchedProcess  # noqa: E402
from stallprobes.watch.reading.record_windows import RESUMED_NS, RecordWindows  # noqa: E402

Int64s = NDArray[np.int64]
# Programs of their own, those of bench_watch_table.py, and those of watch_parts.cu.
NAMES = ("training", "generation", "gaussian_process", "compiled")
TABLE = ("lstm", "masked")
PARTS = ("storm", "replay", "poll", "threads")
FOLLOWED = (*TABLE, *PARTS)
START, ATTACHED, CALLS = "start", "attached", "calls"
# What --cost is by default with --calls-only.
CALLS_COST = 0.03
# What a cost may be above the budget.
MARGIN = 0.01
LEAST_S = 0.1
# Of a time that is compared.
LEAST_STEPS = 3
# Smallest number of comparisons of which there is an interval.
LEAST_COMPARED = 3
DRAWS = 1000
# The part of the runs that has to lie in the stated interval.
LEAST_INSIDE = 0.9
# Longest start of a program, and its time alone before and after an attachment (s).
BEGIN_S, ALONE_S = 120.0, 1.0
# Attachments for calls alone: their number, their time, that beside each, and that left out at the begin of each (s).
PAIRS, CALLS_S, BESIDE_S, SETTLE_S = 5, 1.5, 0.7, 0.5
Middle = Callable[[Int64s], np.floating[Any]]


@dataclass(frozen=True)
class Slower:
    """By which shares of time something slowed a program while it lasted, each time that it was compared, and for
    which share of the time it lasted."""

    values: NDArray[np.float64]
    share: float

    def draws(self) -> NDArray[np.float64]:
        """The median cost first, and then those of DRAWS bootstrap samples, as shares of all the time."""
        if not len(self.values):
            return np.full(DRAWS + 1, np.nan if self.share else 0.0)
        drawn = np.median(np.random.default_rng(1).choice(self.values, (DRAWS, len(self.values))), axis=1)
        return np.append(np.median(self.values), drawn) * self.share


@dataclass
class Run:
    """What one run showed. Shares (0 to 1) are of the time since records were off first, or of that of the pairs."""

    name: str
    way: str
    budget: float
    stated: WatchCost
    ends: Int64s
    facts: dict[str, Any]
    measured: dict[str, Slower] = field(default_factory=dict)
    # What is not compared: the switches, and the callbacks that are on in all windows.
    added: dict[str, float] = field(default_factory=dict)
    by_mean: float = 0.0
    # The rate in windows without records and with quiet ones by that before and after an attachment.
    beside: float = float("nan")
    problems: str = ""

    @property
    def cost(self) -> tuple[float, float, float]:
        """What watching cost, with its 95 % interval. A cost below zero is the scatter of the machine."""
        every = [one.draws() for one in self.measured.values()] or [np.full(DRAWS + 1, np.nan)]
        draws = np.maximum(sum(every) + sum(self.added.values()), 0.0)
        low, high = np.percentile(draws[1:], (2.5, 97.5))
        return float(draws[0]), float(low), float(high)

    @property
    def is_measured(self) -> bool:
        """Whether the cost was."""
        return self.compared >= LEAST_COMPARED and not np.isnan(self.cost[0])

    @property
    def compared(self) -> int:
        """How many times what costs most was compared."""
        return max((len(one.values) for one in self.measured.values()), default=0)

    @property
    def within(self) -> bool:
        """Whether the interval ends at most MARGIN above the budget."""
        return not (self.is_measured and self.cost[2] > self.budget + MARGIN)

    @property
    def agrees(self) -> bool:
        """Whether the measured and the stated interval have anything in common."""
        _, low, high = self.cost
        return not self.is_measured or (low <= self.stated.high and high >= self.stated.low)

    @property
    def inside(self) -> bool | None:
        """Whether the stated interval holds the cost; None where nothing was compared."""
        return self.stated.low <= self.cost[0] <= self.stated.high if self.is_measured else None


def command_of(name: str, seconds: float, times: Path, parts: Path | None) -> list[str]:
    """The command line of a program that writes the ends of its steps to ``times``."""
    if name in PARTS:
        assert parts is not None
        return [str(parts), name, str(times)]
    words = [sys.executable, str(PROGRAMS / f"{name}_steps.py"), str(seconds), str(times)]
    return [words[0], str(PROGRAMS / "table_steps.py"), *words[2:], name] if name in TABLE else words


@contextmanager
def started(
    name: str, seconds: float, times: Path, parts: Path | None, more: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that makes steps for so long, until it is left."""
    # A framework finds its own libcupti: not that of stallscope, where this is found by PYTHONPATH.
    environment = {each: value for each, value in os.environ.items() if each != "PYTHONPATH"}
    ready = {"READY": str(times.with_name("ready"))}
    command = command_of(name, seconds, times, parts)
    with subprocess.Popen(command, env={**environment, **ready, **more}, stdout=subprocess.DEVNULL) as program:
        try:
            limit_s = time.monotonic() + BEGIN_S
            while not times.exists() and time.monotonic() < limit_s:
                if program.poll() is not None:
                    raise RuntimeError(f"{name} failed with {program.returncode}")
                time.sleep(0.01)
            yield program
            if program.poll() if name in PARTS else program.wait(seconds + BEGIN_S):
                raise RuntimeError(f"{name} failed with {program.returncode}")
        finally:
            program.kill()


def ends_of(name: str, times: Path) -> Int64s:
    """When the steps of a program that has ended did (ns)."""
    if name in PARTS:
        return np.fromfile(times, np.int64)
    ends: Int64s = np.load(times)
    return ends


def follow(live: LiveProgram, until_s: float, program: subprocess.Popen[bytes]) -> None:
    """Read what is new, as often as the screen does."""
    while program.poll() is None and time.monotonic() < until_s:
        before = time.thread_time()
        live.update()
        rest_s = max(LEAST_S, live.rest_s(time.thread_time() - before))
        time.sleep(max(min(rest_s, until_s - time.monotonic()), 0))


def of_busiest(live: LiveProgram) -> tuple[WatchedProcess, WatchCost, int]:
    """The process that makes most calls, what is stated of it, and the records that were lost.

    Loaders of data and compilers are processes of their own.
    """
    live.update(analyze=True)
    if not live.processes:
        raise RuntimeError("no call of CUDA")
    findings = max(live.findings().processes, key=lambda one: one.calls)
    process = next(one for one in live.processes if one.pid == findings.pid)
    assert findings.cost is not None
    return process, findings.cost, process.lost_records + findings.missed_records


def facts_of(process: WatchedProcess) -> dict[str, Any]:
    """All that a statement of cost is computed from."""
    names = (
        "late", "callback_ns", "stacks_ns", "records", "calls", "cpus", "budget", "ended_ns", "finalized", "beside",
        "leaves_graphs", "not_held", "cupti_version",
    )  # fmt: skip
    windows = {each: values.tolist() for each, values in vars(process.windows).items()}
    threads = [
        {
            "started_ns": thread.started_ns,
            "ended_ns": thread.ended_ns,
            "owners": thread.owners,
            "figures": {each: [one.total.count, one.total_ns] for each, one in thread.figures.items()},
        }
        for thread in process.threads
    ]
    return {
        **{each: getattr(process, each) for each in names},
        "started_ns": process.started.monotonic_ns,
        "now_ns": process.clocks.monotonic_ns,
        "kinds": sorted(process.kinds),
        "ranges": [ranges.begun for ranges in process.ranges],
        "threads": threads,
        "windows": windows,
    }


def compare_windows(run: Run, process: WatchedProcess) -> None:
    """Compare the windows of a run by its steps."""
    end_ns = process.ended_ns or process.clocks.monotonic_ns
    windows, ends = process.windows, run.ends[run.ends <= end_ns]
    first_ns = windows.first_off_ns if windows.first_off_ns < end_ns else process.started.monotonic_ns
    low, high = calls_cost(process, first_ns, end_ns, compared=True)
    # Where windows are quiet, most of the difference is what calls without callbacks might cost: not seen on a GPU.
    calls = low if windows.quiet.any() else (low + high) / 2
    run.added = {"calls": calls, "switches": windows.switching_ns(first_ns) / max(end_ns - first_ns, 1)}
    if not len(ends) or windows.first_off_ns >= ends[-1]:
        return
    run.measured = slower_by_windows(ends, windows, np.median)
    by_mean = sum(one.draws()[0] for one in slower_by_windows(ends, windows, np.mean).values())
    run.by_mean = float(by_mean) + sum(run.added.values())


def slower_by_windows(ends: Int64s, windows: RecordWindows, middle: Middle) -> dict[str, Slower]:
    """By what records slow the program, and callbacks that are off in quiet windows; the times of steps have a
    ``middle``."""
    until_ns, since_ns = int(ends[-1]), windows.first_off_ns
    off = windows.quiet if windows.quiet.any() else ~windows.on
    begins, until = windows.begins, np.minimum(windows.ends, until_ns)
    # Callbacks are on again a while before records are.
    kept = np.where(windows.quiet & (windows.ends < until_ns), until - RESUMED_NS, until)
    resumed = np.flatnonzero(windows.quiet & (kept < until))
    spans = [(*span, kind) for kind, chosen in (("records", windows.on), ("callbacks", ~windows.on & ~off))
             for span in zip(begins[chosen], until[chosen], strict=True)]  # fmt: skip
    spans += [(kept[at], until[at], "callbacks") for at in resumed]
    usual = [_usual(ends, begin, end, middle) for begin, end in zip(begins, kept, strict=True)]
    bases = [(begin, at) for at, begin in enumerate(begins) if off[at] and not np.isnan(usual[at])]
    found: dict[str, list[float]] = {"records": [], "callbacks": []}
    lasted = dict.fromkeys(found, 0)
    for begin, end, kind in spans:
        if begin < since_ns or end <= begin:
            continue
        lasted[kind] += int(end - begin)
        before = [usual[at] for base, at in bases if base < begin][-1:]
        after = [usual[at] for base, at in bases if base >= end][:1]
        took = _usual(ends, begin, end, middle)
        if before and after and not np.isnan(took):
            found[kind].append(1 - (before[0] + after[0]) / 2 / took)
    every = max(until_ns - since_ns, 1)
    return {kind: Slower(np.array(values), lasted[kind] / every) for kind, values in found.items()}


def _usual(ends: Int64s, begin: int, end: int, middle: Middle) -> float:
    steps = np.diff(ends[slice(*np.searchsorted(ends, (begin, end)))])
    return float(middle(steps)) if len(steps) >= LEAST_STEPS else float("nan")


def watch_from_start(name: str, seconds: float, cost: float, parts: Path | None) -> list[Run]:
    """Run a program with the library from its start. Raises RuntimeError if it fails."""
    folder = create_folder()
    more = variables(library(), folder, WatchOptions(cost=cost), os.environ, cupti_of_this_machine())
    try:
        with tempfile.TemporaryDirectory() as place:
            times = Path(place, "steps.npy")
            live = LiveProgram(folder, WatchedProgram(name))
            with started(name, seconds, times, parts, more) as program:
                until_s = time.monotonic() + seconds + (0 if name in PARTS else BEGIN_S)
                follow(live, until_s, program)
                # One that is killed.
                ended = program.poll() is not None
                if not ended:
                    process, stated, lost = of_busiest(live)
            if ended:
                process, stated, lost = of_busiest(live)
            # The last records of one that was killed are lost.
            missing, found = missing_launches(folder, process) if ended else (0, 0)
            run = Run(name, START, cost, stated, ends_of(name, times), facts_of(process))
    finally:
        shutil.rmtree(folder)
    compare_windows(run, process)
    run.problems = problems_of(process, lost) + (
        f", {missing} of {missing + found} launches without record" * bool(missing)
    )
    return [run]


def watch_attached(name: str, seconds: float, cost: float, parts: Path | None, ways: tuple[str, ...]) -> list[Run]:
    """Attach to a program that runs, for its calls alone some times, then once for so long. Raises RuntimeError."""
    follows = CALLS in ways and name in FOLLOWED
    pairs = PAIRS if follows else 0
    # An attachment takes a second or two.
    lasts = 2 * ALONE_S + pairs * (CALLS_S + BESIDE_S + 1) + (seconds + 3) * (ATTACHED in ways)
    runs: list[Run] = []
    spans: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as place:
        times = Path(place, "steps.npy")
        with started(name, lasts, times, parts, {}) as program:
            time.sleep(ALONE_S)
            for _ in range(pairs):
                options = WatchOptions(calls_only=True, cost=CALLS_COST)
                process, run, span = attach_once(name, CALLS, CALLS_S, options, program)
                spans.append(span)
                runs[:] = [run]
                time.sleep(BESIDE_S)
            if ATTACHED in ways:
                process, run, last = attach_once(name, ATTACHED, seconds, WatchOptions(cost=cost), program)
                runs.append(run)
                time.sleep(ALONE_S)
        ends = ends_of(name, times)
    for run in runs:
        run.ends = ends
        if run.way == CALLS:
            compare_spans(run, spans)
        else:
            compare_windows(run, process)
            run.beside = rate_beside(ends, process.windows, last)
            if run is not runs[0] and runs[0].stated.followed == 1 and not process.windows.quiet.any():
                # All calls were followed in both.
                run.measured |= runs[0].measured
                del run.added["calls"]
    return runs


def attach_once(
    name: str, way: str, seconds: float, options: WatchOptions, program: subprocess.Popen[bytes]
) -> tuple[WatchedProcess, Run, tuple[int, int]]:
    """Attach for so long; from when to when (ns) that was. Raises RuntimeError."""
    with closing(AttachedProcesses()) as processes:
        begin_ns = time.monotonic_ns()
        try:
            attachment = processes.attach(program.pid, options)
            live = LiveProgram(processes, WatchedProgram(name))
            follow(live, time.monotonic() + seconds, program)
            attachment.detach()
        except WatchError as error:
            raise RuntimeError(str(error)) from error
        end_ns = time.monotonic_ns()
        process, stated, lost = of_busiest(live)
    run = Run(name, way, options.cost, stated, np.zeros(0, np.int64), facts_of(process))
    run.problems = problems_of(process, lost)
    return process, run, (begin_ns, end_ns)


def compare_spans(run: Run, spans: list[tuple[int, int]]) -> None:
    """Compare the times of attachments with those on both sides of each."""
    apart, beside, settle = (round(one * 1e9) for one in (0.1, BESIDE_S - 0.1, SETTLE_S))
    found = {"whole": 0, "settled": settle}
    slower: dict[str, list[float]] = {each: [] for each in found}
    for begin, end in spans:
        around = [_usual(run.ends, begin - beside, begin - apart, np.median),
                  _usual(run.ends, end + apart, end + beside, np.median)]  # fmt: skip
        for each, later in found.items():
            slower[each].append(1 - sum(around) / 2 / _usual(run.ends, begin + later, end, np.median))
    run.facts["spans"], run.facts["whole"] = spans, slower["whole"]
    values = np.array(slower["settled"])
    run.measured = {"callbacks": Slower(values[~np.isnan(values)], 1.0)}
    run.by_mean = float(np.median(slower["whole"]))


def rate_beside(ends: Int64s, windows: RecordWindows, span: tuple[int, int]) -> float:
    """The rate of steps in windows with least, by that before and after an attachment."""
    around = [_usual(ends, span[0] - 10**9, span[0] - 10**8, np.median),
              _usual(ends, span[1] + 10**8, span[1] + 10**9, np.median)]  # fmt: skip
    off = windows.quiet if windows.quiet.any() else ~windows.on
    until = np.minimum(windows.ends, span[1])
    each = [_usual(ends, begin, end, np.median) for begin, end in zip(windows.begins[off], until[off], strict=True)]
    each = [one for one in each if not np.isnan(one)]
    return sum(around) / 2 / float(np.median(each)) if each else float("nan")


def problems_of(process: WatchedProcess, lost: int) -> str:
    """What a recording lacks, as clauses that follow others."""
    counts = ((lost, "records lost"), (process.not_held, "calls not held"), (process.lost_calls, "calls lost"))
    return "".join(f", {count} {what}" for count, what in counts if count)


def missing_launches(folder: Path, process: WatchedProcess) -> tuple[int, int]:
    """How many launches within windows with records have none, and how many have theirs, as far as the log goes."""
    if not len(process.windows) or not process.records:
        return 0, 0
    for path in folder.glob("*.watch"):
        if not path.name.startswith(f"{process.pid}-"):
            path.unlink()
    found, missing = launches_by_record(folder)
    return missing, found


def row_of(run: Run) -> str:
    """The row of a run in the table."""
    cost, low, high = run.cost
    parts = {each: one.draws()[0] for each, one in run.measured.items() if one.share} | run.added
    made = f"{cost:.1%} ({low:.1%} to {high:.1%}; {run.compared})"
    if not run.is_measured:
        made = f"{run.compared} compared; computed {sum(run.added.values()):.1%}"
    by = f"{run.stated.compared} windows" if run.stated.compared else "computed"
    inside = {True: "yes", False: "no" if run.agrees else "**no**", None: "–"}[run.inside]
    cells = (
        run.name, run.way, made, f"{run.by_mean:.1%}", "yes" if run.within else "**no**",
        f"{run.stated.low:.1%} to {run.stated.high:.1%}", by, inside,
        ", ".join(f"{each} {value:.1%}" for each, value in parts.items() if value),
        f"{run.stated.recorded:.0%}", f"{run.stated.followed:.0%}", f"{run.stated.graphs:.1%}",
        "–" if np.isnan(run.beside) else f"{run.beside:.3f}", run.problems[2:],
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


HEAD = (
    "program", "way", "cost (95 %; compared)", "by the mean", "within", "stated", "by", "holds", "parts", "recorded",
    "followed",
    "graphs", "rate with least", "problems",
)  # fmt: skip


def kept(run: Run) -> dict[str, Any]:
    """A run as JSON; of the steps the first end and the times between ends."""
    steps = {"first_ns": int(run.ends[0]), "steps_ns": np.diff(run.ends).tolist()} if len(run.ends) else {}
    measured = {each: [one.values.tolist(), one.share] for each, one in run.measured.items()}
    stated = {each: getattr(run.stated, each) for each in run.stated.__struct_fields__}
    return {
        "name": run.name, "way": run.way, "budget": run.budget, "stated": stated, "cost": run.cost,
        "measured": measured, "added": run.added, "by_mean": run.by_mean, "problems": run.problems,
        "facts": run.facts, **steps,
    }  # fmt: skip


def build_parts(folder: Path) -> Path:
    """watch_parts.cu."""
    target, source = folder / "watch_parts", Path(__file__).with_name("watch_parts.cu")
    subprocess.run(["nvcc", "-O2", "-std=c++17", "-o", str(target), str(source)], check=True)
    return target


def measurements(name: str, asked: argparse.Namespace, parts: Path | None) -> Iterator[partial[list[Run]]]:
    """What runs a program, in one process each."""
    cost, ways = asked.cost / 100, tuple(asked.way)
    if ATTACHED in ways or (CALLS in ways and name in FOLLOWED):
        yield partial(watch_attached, name, asked.seconds, cost, parts, ways)
    if START in ways:
        yield partial(watch_from_start, name, asked.seconds, cost, parts)


def main() -> int:
    """Run the programs; the exit code."""
    every = (*PARTS, *NAMES, *TABLE)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*", default=every, metavar="PROGRAM", help=" ".join(every))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--cost", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--way", nargs="+", choices=(START, ATTACHED, CALLS), default=(START, ATTACHED, CALLS))
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no program begins")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    begun_s, runs, failures = time.monotonic(), [], []
    with tempfile.TemporaryDirectory() as place:
        parts = build_parts(Path(place)) if {*PARTS} & {*asked.programs} else None
        every_run = [each for name in asked.runs * [*asked.programs] for each in measurements(name, asked, parts)]
        for measure in every_run:
            try:
                if time.monotonic() - begun_s > asked.limit:
                    raise RuntimeError("no time is left")
                # A reader of its own, as a user has it.
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    made = pool.submit(measure).result()
                for run in made:
                    runs.append(run)
                    print(f"{time.monotonic() - begun_s:.0f} s {row_of(run)}", flush=True)
            except (BrokenExecutor, RuntimeError, WatchError, subprocess.SubprocessError, OSError, ValueError) as error:
                failures.append(f"{measure.args[0]}: {error}")
                print(failures[-1], flush=True)
            if asked.keep:
                with gzip.open(asked.keep, "wt") as file:
                    json.dump([kept(run) for run in runs], file)
    print("\n".join(["", f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", *map(row_of, runs), ""]))
    inside = [run.inside for run in runs if run.inside is not None]
    print(f"{sum(inside)} of {len(inside)} measured costs lie in the stated interval", *failures, sep="\n")
    within = all(run.within and run.agrees and not run.problems for run in runs)
    return int(bool(failures) or not within or sum(inside) < LEAST_INSIDE * len(inside))


if __name__ == "__main__":
    sys.exit(main())
