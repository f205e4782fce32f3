"""What ``watch`` says of programs beside their truths, which were written before the programs (tests/programs/unseen).

Each program runs under ``watch`` with everything recorded, unless --cost says otherwise. Of each are printed: the
verdict and the first line of its main sequence, how much of the time of its slow calls in the steady state has a cause,
and how much has a wrong one; then the sums. Exits 1 if a cause is wrong, if less than 95 % of the slow time has one, or
if the verdict or the first line is right in fewer than nine of ten.

python tests/benchmarks/bench_unseen.py [PROGRAM ...] [--reasons] [--cost PERCENT] [--keep FOLDER] [--read FOLDER]

With --reasons they are those of unseen/reasons, each slow for one reason of the host, which the verdict or the first
lines must name (--cost 5 unless it says otherwise). With --keep what was read of each stays in a folder, which --read
analyzes and judges again by today's rules, without running anything. The programs need the libraries that their README
names; those in CUDA need nvcc.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from stallprobes.watch import report  # noqa: E402
from truth.kept_readings import analyzed  # noqa: E402

PROGRAMS = ROOT / "tests" / "programs" / "unseen"
WITH_CAUSE, RIGHT_FIRST = 0.95, 0.9
LONGEST_S = 120
# What causes of a truth are called in the document, for a call that waits for such work or does it itself.
WORDS = {
    "gpu-work": {"gpu-work", "staged-copy"},
    "allocation": {"allocation", "async-allocation", "itself", "free"},
    "free": {"free", "async-allocation", "itself"},
    "host-allocation": {"host-allocation", "itself"},
    "compilation": {"compilation", "module-loading", "module", "itself"},
    "module-loading": {"module-loading", "module", "lazy-loading"},
    "unknown": {"unattributed"},
}
NO_CAUSE = {"unattributed", "records-off"}
# What watching itself takes, by CUPTI's records, is never a wrong cause.
OWN = {"tracing"}


@dataclass
class Judged:
    """What is right of one program; times in ns. ``wrong`` are those of slow calls by function and cause."""

    verdict: str = "none"
    verdict_right: bool = False
    line: str = "none"
    line_right: bool = False
    slow_ns: int = 0
    with_cause_ns: int = 0
    expected_ns: int = 0
    wrong: Counter[tuple[str, str]] = field(default_factory=Counter)
    sentences: list[str] = field(default_factory=list)


def command_of(program: Path, place: Path) -> list[str]:
    """How a program is started; one in CUDA is compiled first."""
    if program.suffix == ".py":
        return [sys.executable, str(program)]
    compiled = place / program.stem
    first = program.read_text().partition("\n")[0]
    flags = first.partition("// flags: ")[2].split()
    subprocess.run(["nvcc", "-O2", "-g", "-std=c++17", "-o", str(compiled), str(program), *flags], check=True)
    return [str(compiled)]


def document_of(program: Path, place: Path, cost: float) -> dict[str, Any] | None:
    """What ``watch`` says of a program; None if that failed."""
    readings, said = (place / f"{program.name}.{ending}" for ending in ("readings", "json"))
    watch = [sys.executable, "-m", "truth.kept_readings", str(readings), "watch", "--headless"]
    watch += ["--cost", f"{cost:g}", "--json", str(said)]
    path = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    with (place / f"{program.name}.log").open("w") as log:
        try:
            done = subprocess.run(
                [*watch, "--", *command_of(program, place)],
                env={**os.environ, "PYTHONPATH": path},
                stdout=log,
                stderr=log,
                timeout=LONGEST_S,
            )
        except subprocess.TimeoutExpired:
            return None
    return None if done.returncode or not said.exists() else json.loads(said.read_text())


def document_from(readings: Path) -> dict[str, Any] | None:
    """What is said of readings that were kept, by today's rules; None if there are none."""
    if not readings.exists():
        return None
    with readings.open("rb") as file:
        return report.document(analyzed(file))


def judge(truth: dict[str, Any], document: dict[str, Any]) -> Judged:
    """What is right of a document."""
    found = Judged()
    process = max(document["processes"], key=lambda one: one["calls"])
    division = process["division"]
    main: list[int] = []
    if division is not None and process["sequences"]:
        sequence = process["sequences"][0]
        main = sequence["threads"]
        found.verdict, found.sentences = sequence["verdict"], [sequence["sentence"]]
        found.verdict_right = bool({sequence["verdict"], sequence["second"]} & set(truth["bound"]))
    else:
        found.verdict_right = "none" in truth["bound"]
    for group in process["sequences"]:
        if group["threads"] == main and group["lines"]:
            first = group["lines"][0]
            found.line = _place(first["place"])
            found.line_right = (
                found.line in truth["lines"]
                or (first["place"] or {}).get("function") in truth.get("functions", ())
                or first["sentence"].startswith(tuple(truth.get("threads", ())))
            )
            found.sentences += [line["sentence"] for line in group["lines"][:3]]
            said = " ".join([*found.sentences, *(line["remedy"] for line in group["lines"][:3])])
            found.verdict_right &= truth.get("says", "") in said
    steady_ns = 0 if division is None else process["began_ns"] + division["start_up_ns"]
    for call in process["slow_calls"]:
        if call["begin_ns"] < steady_ns or call["nested"]:
            continue
        _add(found, truth, call, not main or call["thread"] in main)
    return found


def _add(found: Judged, truth: dict[str, Any], call: dict[str, Any], of_main: bool) -> None:
    cause, ns, function = call["cause"], call["excess_ns"], call["function"]
    found.slow_ns += ns
    expected = [
        one
        for one in truth.get("slow", ())
        if function.startswith(one["function"]) and of_main == (one.get("thread") != "second")
    ]
    words = {word for one in expected for word in WORDS.get(one["cause"], {one["cause"]})}
    unknown_is_right = cause in words and cause in NO_CAUSE
    found.with_cause_ns += ns if cause not in NO_CAUSE or unknown_is_right else 0
    if expected:
        found.expected_ns += ns
        if cause not in words | NO_CAUSE | OWN:
            found.wrong[function, cause] += ns


def _place(frame: dict[str, Any] | None) -> str:
    if frame is None:
        return "none"
    file = Path(frame.get("source") or frame["file"] or "").name
    return f"{file}:{frame['line']}" if frame["line"] else f"{frame['function']} in {file}"


def show(truth: dict[str, Any], judged: Judged) -> None:
    """Print what was found."""
    word = {True: "right", False: "WRONG"}
    share = f"{judged.with_cause_ns / judged.slow_ns:.0%}" if judged.slow_ns else "–"
    print(
        f"{truth['file']:22} {judged.verdict} {word[judged.verdict_right]} (truth {' or '.join(truth['bound'])}); "
        f"first line {judged.line} {word[judged.line_right]}; slow {judged.slow_ns / 1e6:.0f} ms, {share} with a cause,"
        f" {judged.expected_ns / 1e6:.0f} ms of the truth's calls"
    )
    for (function, cause), ns in judged.wrong.most_common(4):
        print(f"    WRONG {cause} for {ns / 1e6:.0f} ms of {function}")
    if not (judged.verdict_right and judged.line_right):
        for sentence in judged.sentences:
            print(f"    {sentence}")
    sys.stdout.flush()


def main() -> int:
    """Run the programs, or read what was kept of them; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--reasons", action="store_true")
    parser.add_argument("--cost", type=float)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--read", type=Path)
    options = parser.parse_args()
    folder, cost = (PROGRAMS / "reasons", 5.0) if options.reasons else (PROGRAMS, 100.0)
    truths = tomllib.loads((folder / "truths.toml").read_text())["program"]
    chosen = [one for one in truths if not options.programs or one["file"] in options.programs]
    found, failed = [], []
    with tempfile.TemporaryDirectory() as temporary:
        place = options.read or options.keep or Path(temporary)
        place.mkdir(exist_ok=True)
        for truth in chosen:
            if options.read:
                document = document_from(place / f"{truth['file']}.readings")
            else:
                document = document_of(folder / truth["file"], place, options.cost or cost)
            if document is None:
                failed.append(truth["file"])
                print(f"{truth['file']:22} FAILED", flush=True)
                continue
            found.append(judge(truth, document))
            show(truth, found[-1])
    slow = sum(one.slow_ns for one in found)
    share = sum(one.with_cause_ns for one in found) / slow if slow else 1.0
    wrong = sum(one.wrong.total() for one in found)
    verdicts, lines = sum(one.verdict_right for one in found), sum(one.line_right for one in found)
    print(
        f"{len(found)} programs: {verdicts} verdicts right, {lines} first lines right, {share:.1%} of "
        f"{slow / 1e6:.0f} ms with a cause, {wrong / 1e6:.0f} ms with a wrong one; failed: {', '.join(failed) or 0}"
    )
    least = RIGHT_FIRST * len(found)
    return int(bool(failed) or share < WITH_CAUSE or wrong > 0 or min(verdicts, lines) < least)


if __name__ == "__main__":
    sys.exit(main())
