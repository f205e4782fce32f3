"""What aggressors of ``watch --beside`` do to programs on a GPU: they may make steps slower, and do no harm.

Two programs (tests/programs/beside_steps.cu) check their results and allocate memory: "launch" launches small kernels,
"d2d" copies within the GPU. First each of them runs alone, attached, beside aggressors with six turns each: the ratios
must be about those of an H200 (EXPECTED). Then there are short runs, two at a time, started or attached, beside all
aggressors in pairs; in a third of them stallscope gets SIGKILL. Harm is a wrong result, an allocation of 256 MiB that
fails, an exit code of the program other than 0, a process of the aggressors 3 s after the end of stallscope, or a watch
that does not end.

Prints each ratio and each run. Exits 1 if a run had harm, if a ratio is not known or not about as expected, or if in
more than one of ten short runs no aggressor ran (with SIGKILL: their process did not run).

python tests/benchmarks/bench_beside.py [--seconds LIMIT] [--runs N] [--cases CASE ...]

What would take longer than LIMIT is left out, and said; all of it takes about 400 s. It needs nvcc, and a GPU that
nobody else uses: it disturbs all programs there.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from factories.processes import children, engines, has_ended  # noqa: E402
from stallprobes.catalog import beside_programs  # noqa: E402
from stallprobes.files.codec import decoded  # noqa: E402
from stallprobes.watch.beside.result import BesideResult, BesideRow  # noqa: E402

SOURCE = ROOT / "tests" / "programs" / "beside_steps.cu"
# By program and aggressor, the least and the largest ratio of a step. On two H200s they were 1.29 and 2.07, 1.41 and
# 1.37, 1.08 and 1.18, 1.01, 1.01; 2.39, 1.79 and 1.01.
EXPECTED = {
    "launch": {
        "spin": (1.1, 3.2), "dram": (1.1, 2.5), "h2d-pinned-large": (0.95, 1.4), "launch-burst": (0.95, 1.1),
        "alloc-free": (0.95, 1.1),
    },
    "d2d": {"spin": (1.7, 3.2), "dram": (1.3, 2.5), "launch-burst": (0.95, 1.1)},
}  # fmt: skip
# Time (s) of a short run that both aggressors need for a turn. While two programs share the GPU, only the read of the
# results of "launch" is regular, every 0.23 s: 20 of these make a step known (5 s), the findings have it 1 s later, the
# aggressors start (3 s), and four turns, every second one with an aggressor, have 8 such steps each (2 to 3 s).
WATCHED_S = {"launch": 24.0, "d2d": 12.0}
# Time (s) that a program runs before it is attached; after the end of the watch; and that its watch may take longer.
BEFORE_S, AFTER_S, LATE_S = 1.0, 4.0, 20.0
# Longest time (s) of all turns beside one program.
ALL_TURNS_S = 120.0
# Longest wait (s) for the aggressors' process; and for its end after that of stallscope.
BEGUN_S, GONE_S = 20.0, 3.0
# Smallest share of short runs with an aggressor.
LEAST_RAN = 0.9
WATCH = (sys.executable, "-m", "stallscope", "watch", "--headless", "--allow-shared")
RESULT = re.compile(r"steps \d+ wrong (\d+) refused (\d+) longest_ms [\d.]+")


class Report(msgspec.Struct):
    """What is read of the JSON document of a watch."""

    beside: BesideResult | None = None


@dataclass(frozen=True)
class Plan:
    """A program to be watched beside aggressors: from its start where ``starts``, else attached.

    It is watched for ``seconds``, or with None until all turns have been. ``kill_s`` is the time from the start of the
    aggressors' process to SIGKILL of stallscope, if it gets that.
    """

    case: str
    aggressors: tuple[str, ...]
    seconds: float | None = None
    starts: bool = False
    kill_s: float | None = None

    @property
    def lasts_s(self) -> float:
        """Longest time of the program."""
        return BEFORE_S + (ALL_TURNS_S if self.seconds is None else self.seconds) + AFTER_S


@dataclass(frozen=True)
class Run:
    """What came of a program: clauses of ``harm``, and whether an aggressor ``ran``.

    ``result`` is the line that the program prints at its end, ``errors`` what stallscope printed.
    """

    harm: tuple[str, ...]
    ran: bool
    beside: BesideResult
    result: str
    errors: str

    @property
    def text(self) -> str:
        """The harm, and the program's own figures."""
        return f"{', '.join(self.harm) or 'no harm'}; {self.result or 'no result'}"


@dataclass(frozen=True)
class Bench:
    """The program that was compiled, the ``folder`` of what it writes, and when all ends (``time.monotonic``)."""

    program: Path
    folder: Path
    end_s: float

    def has_time(self, plan: Plan, what: str) -> bool:
        """Whether enough time is left; where it is not, says so."""
        left = self.end_s - time.monotonic() >= plan.lasts_s + LATE_S
        if not left:
            print(f"{what}: left out, no time is left", flush=True)
        return left

    def turns(self, case: str) -> bool | None:
        """Six turns of each expected aggressor; whether all was as expected, None without the time for it."""
        plan = Plan(case, tuple(EXPECTED[case]))
        if not self.has_time(plan, f"turns beside {case}"):
            return None
        run = self.run(f"turns-{case}", plan)
        print(f"turns beside {case}: {run.text}", flush=True)
        rows = {row.aggressor: row for row in run.beside.rows}
        good = not run.harm
        for name, (low, high) in EXPECTED[case].items():
            row = rows.get(name, BesideRow(aggressor=name, reason="no turn"))
            word = "NOT KNOWN"
            if row.ratio is not None and not row.reason:
                word = "as expected" if low <= row.ratio.ratio <= high else f"NOT ×{low:g} to ×{high:g}"
            print(f"  {name}: {word}, {row.turns} turns. {row.sentence}", flush=True)
            good &= word == "as expected"
        if not rows:
            print(f"  {run.beside.problem} {run.errors[-1000:]}", flush=True)
        return good

    def short(self, number: int, cases: Sequence[str]) -> Run | None:
        """A short run, which its number chooses; None without the time for it."""
        names, case = beside_programs(), cases[number % len(cases)]
        # Killed before the aggressors' process is ready, in the first turns, and later.
        plan = Plan(
            case,
            tuple(names[(2 * number + at) % len(names)] for at in range(2)),
            WATCHED_S[case],
            starts=number // 2 % 2 == 1,
            kill_s=1.0 + number % 4 * 2.5 if number % 3 == 2 else None,
        )
        if not self.has_time(plan, f"run {number}"):
            return None
        run = self.run(f"run-{number}", plan)
        how = f"{'started' if plan.starts else 'attached'}{'' if plan.kill_s is None else ', SIGKILL'}"
        turns = "".join(f", {row.aggressor} {row.turns} turns" for row in run.beside.rows)
        ran = "ran" if run.ran else f"DID NOT RUN. {run.beside.problem}"
        print(f"run {number} {case} {how}: {run.text}; {' and '.join(plan.aggressors)} {ran}{turns}", flush=True)
        if run.harm or not run.ran:
            print(f"  {run.errors[-1000:]}", flush=True)
        return run

    def run(self, name: str, plan: Plan) -> Run:
        """Watch a program as planned, to the end of both."""
        output, errors, document = (self.folder / f"{name}.{kind}" for kind in ("txt", "err", "json"))
        # The shell says how the program ended, also where it has outlived stallscope.
        shell = ["sh", "-c", '"$0" "$@"; echo "exit $?"', str(self.program), plan.case, str(plan.lasts_s)]
        line = [*WATCH, "--json", str(document), "--beside", ",".join(plan.aggressors)]
        pid = 0
        with output.open("w") as out, errors.open("w") as err:
            if plan.starts:
                watch = subprocess.Popen([*line, "--", *shell], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            else:
                program = subprocess.Popen(shell, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
                time.sleep(BEFORE_S)
                pid = next(iter(children(program.pid)), program.pid)
                line += ["--pid", str(pid), *([] if plan.seconds is None else ["--seconds", str(plan.seconds)])]
                watch = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
        within(BEGUN_S, lambda: engines(watch.pid) or watch.poll() is not None)
        known, ran = engines(watch.pid), False
        if plan.kill_s is not None:
            time.sleep(plan.kill_s)
            ran = not all(map(has_ended, known))
            watch.kill()
        ended = within(plan.lasts_s + LATE_S, lambda: watch.poll() is not None)
        watch.kill()
        watch.wait()
        gone = within(GONE_S, lambda: all(map(has_ended, known)))
        if plan.seconds is None and not has_ended(pid):
            os.kill(pid, signal.SIGTERM)
        within(plan.lasts_s, lambda: "exit " in output.read_text(errors="replace"))
        if not has_ended(pid):
            os.kill(pid, signal.SIGKILL)
        text = output.read_text(errors="replace")
        result = RESULT.search(text)
        beside = decoded(document.read_bytes(), Report).beside if document.exists() else None
        harms = {
            "stallscope DOES NOT END": not ended,
            "the aggressors' process IS LEFT": not gone,
            f"the program ENDED OTHERWISE: {text[-300:].strip()!r}": result is None or "exit 0\n" not in text,
            "WRONG results or REFUSED allocations": result is not None and result.groups() != ("0", "0"),
        }
        return Run(
            tuple(words for words, holds in harms.items() if holds),
            ran or (beside is not None and beside.on_ns > 0),
            beside or BesideResult(problem="" if plan.kill_s else "There is no report."),
            result[0] if result else "",
            errors.read_text(errors="replace"),
        )


def within(seconds: float, condition: Callable[[], object]) -> bool:
    """Whether a condition holds within so long, for which it waits."""
    end_s = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True


def build(folder: Path) -> Path:
    """The program, compiled in a folder; ends this process where it cannot be, or cannot run."""
    if shutil.which("nvcc") is None:
        sys.exit("nvcc, which compiles tests/programs/beside_steps.cu, is not found: nothing was measured.")
    program = folder / "beside_steps"
    subprocess.run(["nvcc", "-O2", "-std=c++17", "-o", str(program), str(SOURCE)], check=True)
    tried = subprocess.run([str(program), "launch", "0"], capture_output=True, text=True)
    if tried.returncode:
        sys.exit(f"No program can use the GPU: {tried.stderr.strip()}")
    return program


def main() -> int:
    """Run all and print what came of it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=500.0, metavar="LIMIT", help="longest time (default: 500)")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="number of short runs (default: 20)")
    parser.add_argument("--cases", nargs="+", choices=tuple(EXPECTED), default=tuple(EXPECTED), metavar="CASE",
                        help=f"programs: {', '.join(EXPECTED)} (default: all)")  # fmt: skip
    asked = parser.parse_args()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-beside-", ignore_cleanup_errors=True) as place:
        bench = Bench(build(Path(place)), Path(place), begun_s + asked.seconds)
        turns = [bench.turns(case) for case in asked.cases]
        with ThreadPoolExecutor(2) as pool:
            made = pool.map(lambda number: bench.short(number, asked.cases), range(asked.runs))
            runs = [run for run in made if run is not None]
    harmed, ran = sum(bool(run.harm) for run in runs), sum(run.ran for run in runs)
    print(f"{len(runs)} short runs: {harmed} with harm, {ran} beside an aggressor; {time.monotonic() - begun_s:.0f} s")
    nothing = not runs and turns.count(None) == len(turns)
    return int(nothing or False in turns or harmed > 0 or ran < LEAST_RAN * len(runs))


if __name__ == "__main__":
    sys.exit(main())
