"""Comparison of watched runs on a GPU: pairs with a known change, and pairs without one (tests/programs/compared).

Rounds run every variant of every program once under ``watch --save``, one after the other. Then pairs are compared, run
by run and, from three rounds on, with all runs of both: each change in both directions, and each variant with itself.
The truth is the program's own clock: its steps beyond ×1.42 are WORSE or BETTER, within ×1.1 neither may be said;
between these, the direction must be right if one is said. Prints the first sentence of each pair, right or wrong, and
whether the line with the comment ``changed:`` is named; then totals. Exits 1 if any WORSE or BETTER is wrong.

python tests/benchmarks/bench_watch_compare.py [--minutes M] [--pairs N] [--seconds S] [--only WORD] [--cost PERCENT]
    [--keep FOLDER | --read FOLDER]

--keep has the saved runs, which --read compares again. The programs need PyTorch, JAX and nvcc; one that is missing is
left out and said.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
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
# Pairs of variants by program: before and after the change.
PAIRS = {
    "cpp_changes.cu": (("pageable", "pinned"), ("launches", "graph"), ("waits", "one-wait")),
    "torch_changes.py": (("item", "no-item"), ("pageable", "pinned"), ("launches", "graph"), ("fp32", "bf16")),
    "jax_changes.py": (("every-loss", "few-losses"), ("numpy", "on-gpu")),
}
# Changes of the GPU's work, of which no line of the host is the cause.
WITHOUT_LINE = {("fp32", "bf16")}
DECIDED, NOTHING = math.log(1.42), math.log(1.1)
LONGEST_S = 90


@dataclass
class Runs:
    """The runs of a variant with the time of a step (ns) by the program's own clock."""

    program: str
    variant: str
    runs: list[WatchFindings] = field(default_factory=list)
    steps_ns: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Judged:
    """A pair that was compared; ``named`` is None where no line is to be named."""

    title: str
    result: RunsComparison
    own: float
    right: bool
    decided: bool
    named: bool | None


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
    watch = [
        sys.executable,
        "-m",
        "stallscope",
        "watch",
        "--headless",
        "--cost",
        f"{given.cost:g}",
        "--save",
        str(saved),
    ]
    try:
        done = subprocess.run([*watch, "--", *command], capture_output=True, text=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        print(f"{command}: no end in {LONGEST_S} s", flush=True)
        return None
    steps = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("STEP_NS")]
    if done.returncode or not steps:
        print(f"{command} failed ({done.returncode}): {done.stderr[-800:]}", flush=True)
        return None
    return float(steps[0])


def measure(given: argparse.Namespace, place: Path) -> None:
    """Run rounds of all variants until the time is over; ``place`` gets the runs and ``steps.json``."""
    end, longest = time.monotonic() + given.minutes * 60, 0.0
    commands = {}
    for program in chosen(given):
        command = started(program, place)
        if command is None:
            print(f"{program} is left out: its compiler or library is missing", flush=True)
        else:
            commands[program] = command
    known = place / "steps.json"
    steps: list[list[object]] = json.loads(known.read_text()) if known.exists() else []
    for number in range(given.rounds):
        for program, command in commands.items():
            for variant in dict.fromkeys(variant for pair in chosen(given)[program] for variant in pair):
                begin = time.monotonic()
                if begin + longest > end:
                    print(f"{number} rounds, and a part of the next one", flush=True)
                    return
                line = [*command, "--variant", variant, "--seconds", f"{given.seconds:g}"]
                ns = run_once(line, place / f"{program}.runs", given)
                longest = max(longest, time.monotonic() - begin)
                if ns is not None:
                    steps.append([program, variant, ns])
                    known.write_text(json.dumps(steps))
    print(f"{given.rounds} rounds", flush=True)


def chosen(given: argparse.Namespace) -> dict[str, list[tuple[str, str]]]:
    """The pairs by program."""
    pairs = [(program, pair) for program, listed in PAIRS.items() for pair in listed]
    pairs = [(program, pair) for program, pair in pairs if given.only in f"{program} {' '.join(pair)}"][: given.pairs]
    found: dict[str, list[tuple[str, str]]] = {}
    for program, pair in pairs:
        found.setdefault(program, []).append(pair)
    return found


def read(place: Path) -> dict[tuple[str, str], Runs]:
    """The runs in a folder, by program and variant."""
    found: dict[tuple[str, str], Runs] = {}
    for program, variant, ns in json.loads((place / "steps.json").read_text()):
        found.setdefault((program, variant), Runs(program, variant)).steps_ns.append(ns)
    for program in PAIRS:
        path = place / f"{program}.runs"
        for run in run_file.load(path) if path.exists() else ():
            words = run.program or ()
            variant = words[words.index("--variant") + 1]
            if run.exit_code == 0 and (program, variant) in found:
                found[program, variant].runs.append(run)
    for each in found.values():
        assert len(each.runs) == len(each.steps_ns), (each.program, each.variant)
    return found


def pairs_of(found: dict[tuple[str, str], Runs], given: argparse.Namespace) -> Iterator[tuple[str, Runs, Runs, str]]:
    """What is compared: a title, both sides, and the variant whose line changed, "" without a change."""
    for program, listed in chosen(given).items():
        for pair in listed:
            sides = [found[program, variant] for variant in pair if (program, variant) in found]
            if len(sides) < 2:
                continue
            line = "" if pair in WITHOUT_LINE else pair[0]
            for old, new in (sides, sides[::-1]):
                for number in range(min(len(old.runs), len(new.runs))):
                    yield "change", part(old, number), part(new, number), line
                if min(len(old.runs), len(new.runs)) >= 3:
                    yield "change, all runs", old, new, line
            for side in sides:
                for number in range(1, len(side.runs)):
                    yield "no change", part(side, number - 1), part(side, number), ""


def part(runs: Runs, number: int) -> Runs:
    """One run of a variant."""
    return Runs(runs.program, runs.variant, runs.runs[number : number + 1], runs.steps_ns[number : number + 1])


def judged(title: str, old: Runs, new: Runs, line: str) -> Judged:
    """A comparison beside the truth."""
    result = compare(old.runs, new.runs)
    own = sum(map(math.log, new.steps_ns)) / len(new.steps_ns) - sum(map(math.log, old.steps_ns)) / len(old.steps_ns)
    said = {Change.WORSE: 1, Change.BETTER: -1}.get(result.change, 0)
    right = (said == 0 or said * own > 0) and not (said and abs(own) < NOTHING)
    named = None
    if line and said:
        marks = (f"changed: {line}\n", f"changed: {line}")
        source = (PROGRAMS / old.program).read_text().splitlines()
        lines = [number for number, text in enumerate(source, 1) if text.endswith(marks)]
        texts = [result.sentence, *(item.name for item in result.items)]
        named = any(f"{old.program}:{number} " in f"{text} " for number in lines for text in texts)
    name = f"{old.program} {old.variant} → {new.variant} ({len(old.runs)} and {len(new.runs)} runs; {title})"
    return Judged(name, result, own, right, abs(own) < DECIDED or said != 0, named)


def main() -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--pairs", type=int, default=100)
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
            one = judged(title, old, new, line)
            kind = "no change" if title == "no change" else "change"
            totals[f"{kind}: {one.result.change}"] += 1
            totals[f"{kind}: wrong"] += not one.right
            totals[f"{kind}: above ×1.42 and not decided"] += not one.decided
            if one.named is not None:
                totals["line named" if one.named else "line not named"] += 1
            words = "right" if one.right and one.decided else "not decided" if one.right else "WRONG"
            place_words = "" if one.named is None else ", line named" if one.named else ", line not named"
            print(f"{one.title}\n  own steps ×{math.exp(one.own):.2f}: {words}{place_words}\n  {one.result.sentence}")
    for name, number in sorted(totals.items()):
        print(f"{number:4d}  {name}")
    return int(any(number and name.endswith(": wrong") for name, number in totals.items()))


if __name__ == "__main__":
    sys.exit(main())
