"""Comparison of watched runs on a GPU: pairs with a known change, and pairs without one (tests/programs/compared).

Rounds run every variant of every program once under ``watch --save``. One program uses the GPU at a time; meanwhile the
next ones import their libraries, and the report of the last one is made. Then all runs of both variants of a change are
compared, in both directions, and the first run of each variant with its second one: of these pairs without a change,
none shares a run with another one. The truth is the program's own clock: its steps beyond ×1.42 are WORSE or BETTER,
within ×1.1 neither may be said; between these, the direction must be right if one is said. Of one that is said, the
ratio must be that of the program's clock, but for ×1.42. Prints the first sentence of each pair, right or wrong, and
whether the line with the comment ``changed:`` is named; then totals. Exits 1 if any WORSE or BETTER is wrong.

python tests/benchmarks/bench_watch_compare.py [--minutes M] [--rounds N] [--seconds S] [--only REGEX] [--cost PERCENT]
    [--keep FOLDER | --read FOLDER]

--keep has the saved runs and their programs, which --read compares again. The programs need PyTorch, JAX and nvcc; one
that is missing is left out and said.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from stallprobes.matrix.comparing.comparison import Change  # noqa: E402
from stallprobes.watch.attribution.findings import WatchFindings  # noqa: E402
from stallprobes.watch.comparing import run_file  # noqa: E402
from stallprobes.watch.comparing.compare import compare  # noqa: E402
from stallprobes.watch.comparing.comparison import RunsComparison  # noqa: E402

PROGRAMS = ROOT / "tests" / "programs" / "compared"
CPP, TORCH, JAX = "cpp_changes.cu", "torch_changes.py", "jax_changes.py"
# Pairs of variants: program, before and after the change.
PAIRS = {
    "pinned instead of pageable memory": (
        (CPP, "pageable", "pinned"),
        (CPP, "read-pageable", "read-pinned"),
        (TORCH, "pageable", "pinned"),
        (TORCH, "to-pageable", "to-pinned"),
        (JAX, "pageable", "pinned"),
    ),
    "waits removed": (
        (CPP, "waits", "one-wait"),
        (TORCH, "item", "no-item"),
        (TORCH, "each-loss", "few-losses"),
        (JAX, "every-loss", "few-losses"),
        (JAX, "each-layer", "last-layer"),
    ),
    "a graph instead of launches": (
        (CPP, "launches", "graph"),
        (CPP, "forks", "forked-graph"),
        (TORCH, "launches", "graph"),
        (TORCH, "layers", "layers-graph"),
        (JAX, "launches", "graph"),
    ),
    "bf16 instead of fp32": (
        (CPP, "fp32", "bf16"),
        (TORCH, "fp32", "bf16"),
        (TORCH, "layers-fp32", "layers-bf16"),
        (TORCH, "attention-fp32", "attention-bf16"),
        (JAX, "fp32", "bf16"),
    ),
    "no copy": ((JAX, "numpy", "on-gpu"),),
}
DECIDED, NOTHING = math.log(1.42), math.log(1.1)
LONGEST_S = 90
# Kind of changes whose programs launch so much that a fourth of the time is recorded: their runs last twice as long.
LONGER = "a graph instead of launches"
# Programs at a time, of which one uses the GPU.
LANES = 3


@dataclass
class Runs:
    """The runs of a variant with the time of a step (ns) by the program's own clock."""

    program: str
    variant: str
    runs: list[WatchFindings] = field(default_factory=list)
    steps_ns: list[float] = field(default_factory=list)

    def part(self, number: int) -> Runs:
        """One run."""
        return Runs(self.program, self.variant, [self.runs[number]], [self.steps_ns[number]])


@dataclass(frozen=True)
class Judged:
    """A pair that was compared; ``named`` is None where no line is to be named."""

    title: str
    result: RunsComparison
    own: float
    right: bool
    decided: bool
    named: bool | None

    @property
    def word(self) -> str:
        """What is said of it."""
        return "right" if self.right and self.decided else "not decided" if self.right else "WRONG"


def started(program: str, place: Path) -> list[str] | None:
    """How a program is started; None if its compiler or library is missing."""
    source = PROGRAMS / program
    if source.suffix == ".py":
        return [sys.executable, str(source)] if find_spec(program.partition("_")[0]) else None
    if shutil.which("nvcc") is None:
        return None
    compiled = place / source.stem
    subprocess.run(["nvcc", "-O2", "-g", "-std=c++17", "-o", str(compiled), str(source)], check=True)
    return [str(compiled)]


def run_once(command: Sequence[str], saved: Path, given: argparse.Namespace) -> float | None:
    """Watch a program and save the run; the time of its steps (ns), None if it failed."""
    watch = [sys.executable, "-m", "stallscope", "watch", "--headless", "--cost", f"{given.cost:g}", "--save", saved]
    try:
        done = subprocess.run([*map(str, watch), "--", *command], capture_output=True, text=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        print(f"{command}: no end in {LONGEST_S} s", flush=True)
        return None
    steps = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("STEP_NS")]
    if done.returncode or not steps or not saved.exists():
        print(f"{command} failed ({done.returncode}): {done.stderr[-800:]}", flush=True)
        return None
    return float(steps[0])


def measure(given: argparse.Namespace, place: Path) -> None:
    """Run rounds of all variants until the time is over; ``place`` gets the runs and ``steps.json``."""
    end = time.monotonic() + given.minutes * 60
    commands = {}
    for program in dict.fromkeys(program for program, *_ in chosen(given)):
        command = started(program, place)
        shutil.copy(PROGRAMS / program, place)
        if command is None:
            print(f"{program} is left out: its compiler or library is missing", flush=True)
        else:
            commands[program] = [*command, "--gate", str(place / "gate")]
    longer = {(program, variant) for program, *both in PAIRS[LONGER] for variant in both}
    variants = dict.fromkeys((program, variant) for program, *both in chosen(given) for variant in both)
    due = [
        (number, program, variant)
        for number in range(given.rounds)
        for program, variant in variants
        if program in commands
    ][::-1]
    steps: list[tuple[int, str, str, float]] = []
    lock = threading.Lock()

    def lane() -> None:
        longest = 0.0
        while True:
            with lock:
                begin = time.monotonic()
                if not due or begin + longest > end:
                    return
                number, program, variant = due.pop()
            seconds = given.seconds * (2 if (program, variant) in longer else 1)
            command = [*commands[program], "--seconds", f"{seconds:g}", "--variant", variant]
            ns = run_once(command, saved_run(place, program, variant, number), given)
            longest = max(longest, time.monotonic() - begin)
            with lock:
                if ns is not None:
                    steps.append((number, program, variant, ns))
                    (place / "steps.json").write_text(json.dumps(sorted(steps)))

    lanes = [threading.Thread(target=lane) for _ in range(LANES)]
    for each in lanes:
        each.start()
    for each in lanes:
        each.join()
    print(f"{len(steps)} runs, {len(due)} left out", flush=True)


def saved_run(place: Path, program: str, variant: str, number: int) -> Path:
    """The file of a run."""
    return place / f"{Path(program).stem}.{variant}.{number}.run"


def chosen(given: argparse.Namespace) -> list[tuple[str, str, str]]:
    """The pairs: program, before and after."""
    every = ((kind, pair) for kind, pairs in PAIRS.items() for pair in pairs)
    return [pair for kind, pair in every if re.search(given.only, f"{kind}: {' '.join(pair)}")]


def read(place: Path) -> dict[tuple[str, str], Runs]:
    """The runs in a folder, by program and variant."""
    found: dict[tuple[str, str], Runs] = {}
    for number, program, variant, ns in json.loads((place / "steps.json").read_text()):
        runs = found.setdefault((program, variant), Runs(program, variant))
        runs.steps_ns.append(ns)
        runs.runs += run_file.load(saved_run(place, program, variant, number))
    return found


def pairs_of(found: dict[tuple[str, str], Runs], given: argparse.Namespace) -> Iterator[tuple[str, Runs, Runs, str]]:
    """What is compared: a title, both sides, and the variant whose line changed, "" without a change."""
    for program, before, after in chosen(given):
        sides = [found[program, variant] for variant in (before, after) if (program, variant) in found]
        if len(sides) == 2:
            yield "change", sides[0], sides[1], before
            yield "change back", sides[1], sides[0], before
        for side in sides:
            if len(side.runs) > 1:
                yield "no change", side.part(0), side.part(1), ""


def judged(place: Path, title: str, old: Runs, new: Runs, line: str) -> Judged:
    """A comparison beside the truth."""
    result = compare(old.runs, new.runs)
    own = sum(map(math.log, new.steps_ns)) / len(new.steps_ns) - sum(map(math.log, old.steps_ns)) / len(old.steps_ns)
    said = {Change.WORSE: 1, Change.BETTER: -1}.get(result.change, 0)
    right = said == 0 or (said * own > 0 and abs(own) >= NOTHING and abs(math.log(result.ratio or 1) - own) < DECIDED)
    named = None
    if line and said:
        mark = re.compile(rf"changed: {re.escape(line)}$")
        source = (place / old.program).read_text().splitlines()
        lines = [number for number, text in enumerate(source, 1) if mark.search(text)]
        texts = [result.sentence, *(item.name for item in result.items)]
        named = any(f"{old.program}:{number} " in f"{text} " for number in lines for text in texts)
    name = f"{old.program} {old.variant} → {new.variant} ({len(old.runs)} and {len(new.runs)} runs; {title})"
    return Judged(name, result, own, right, abs(own) < DECIDED or said != 0, named)


def main() -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--cost", type=float, default=5.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--read", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        place = given.read or given.keep or Path(made)
        if given.read is None:
            place.mkdir(parents=True, exist_ok=True)
            measure(given, place)
        if not (place / "steps.json").exists():
            print("nothing was run")
            return 1
        totals: Counter[str] = Counter()
        for title, old, new, line in pairs_of(read(place), given):
            one = judged(place, title, old, new, line)
            totals[f"{title}: {one.result.change}"] += 1
            totals[f"{title}: wrong"] += not one.right
            totals[f"{title}: above ×1.42 and not decided"] += not one.decided
            if one.named is not None:
                totals[f"{title}: line {'named' if one.named else 'not named'}"] += 1
            place_words = "" if one.named is None else ", line named" if one.named else ", line not named"
            print(
                f"{one.title}\n  own steps ×{math.exp(one.own):.2f}: {one.word}{place_words}\n  {one.result.sentence}"
            )
    for name, number in sorted(totals.items()):
        print(f"{number:4d}  {name}")
    return int(any(number and name.endswith(": wrong") for name, number in totals.items()))


if __name__ == "__main__":
    sys.exit(main())
