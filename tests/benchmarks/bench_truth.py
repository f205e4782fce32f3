"""Watches programs of random schedules and prints how what ``watch`` says compares with their truth, by dimension.

python tests/benchmarks/bench_truth.py [--programs N] [--first SEED] [--seconds S] [--cost PERCENT]
    [--attached SHARE] [--pairs] [--model | --virtual] [--gpus N] [--save FILE] [--from FILE ...] [--really N]
    [--keep FOLDER] [--again FOLDER] [--minutes M]

It needs gcc, and a GPU; with --model the programs run beside a model of two GPUs, without one. With --virtual they run
in virtual time, without a GPU and gcc: their results are the same on a busy machine. With --gpus 2 the programs are the
first ones from SEED on that use two GPUs. --attached is the share of programs that are attached. With --pairs each
program also runs unwatched, and the table has by how much it was slower. --save writes the results as JSON, from which
--from prints the tables again, of several files together. --keep keeps each program's schedule, trace, report and
readings in a folder, which --again judges by today's rules, without running anything. --minutes begins no further
program after so long. --really runs N programs, unwatched, with and without one of their causes, and prints what that
gained beside what the replay says. Exits 1 if a program failed.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from stallprobes.watch.report import document  # noqa: E402
from truth import reading, schedules, virtual  # noqa: E402
from truth.judging import Result, tables  # noqa: E402
from truth.kept_readings import analyzed  # noqa: E402
from truth.programs import Programs, build  # noqa: E402
from truth.schedules import Schedule  # noqa: E402
from truth.truth import SIDES, SPECIFIC, Trace, truth_of  # noqa: E402

# From this gain on, a cause is worth being removed really.
_REAL_GAIN = 0.1
_ATTEMPTS = 100
# What is kept of each program, and of programs with so much of it nothing.
_KEPT = (".txt", ".trace", ".json", ".readings")
_MOST_KEPT_BYTES = 200_000_000


def watch(programs: Programs, schedule: Schedule, attached: bool, pairs: bool) -> Result:
    """Watch one program and compute its truth."""
    result = Result(schedule.seed, schedule.shape, attached, schedule.knowable, None, None)
    try:
        watched = programs.run(schedule, attached=attached)
        plain = 0.0
        if pairs:
            plain = truth_of(schedule, programs.run(schedule, watched=False).trace).step_ns
        return judge(replace(result, report=watched.report, plain_step_ns=plain), schedule, watched.trace)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as problem:
        return replace(result, failure=repr(problem))


def run_virtually(schedule: Schedule) -> Result:
    """Run one program in virtual time and compute its truth."""
    ran = virtual.run(schedule)
    result = Result(schedule.seed, schedule.shape, False, schedule.knowable, None, ran.report)
    return judge(result, schedule, ran.trace)


def judge(result: Result, schedule: Schedule, trace: Trace) -> Result:
    """``result`` with the truth about its report."""
    report = result.report
    window = report.window_ns if report and report.window_ns[1] else None
    has_phases = report is not None and report.phase_ns != report.window_ns
    of_phase = truth_of(schedule, trace, report.phase_ns) if report and has_phases else None
    return replace(result, truth=truth_of(schedule, trace, window), of_phase=of_phase)


def keep(folder: Path, programs: Programs, seed: int) -> None:
    """Keep what the last program has written."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in programs.folder.glob("now.*"):
        if file.stat().st_size <= _MOST_KEPT_BYTES:
            shutil.move(file, folder / f"{seed}{file.suffix}")


def compress(file: Path) -> None:
    """Replace a kept file by a compressed one."""
    file.with_name(f"{file.name}.xz").write_bytes(lzma.compress(file.read_bytes(), preset=1))
    file.unlink()


def _compress_all(folder: Path) -> None:
    with ProcessPoolExecutor() as pool:
        list(pool.map(compress, [file for file in folder.glob("[0-9]*.*") if file.suffix in _KEPT]))


def report_again(folder: Path, seed: int, thread: int) -> reading.Report:
    """What today's rules say about a program: of its readings, where these were kept, else what was said."""
    readings = folder / f"{seed}.readings.xz"
    if readings.exists():
        with lzma.open(readings) as file:
            return reading.report_of(document(analyzed(io.BufferedReader(file))), thread)
    return reading.report_of(json.loads(lzma.decompress((folder / f"{seed}.json.xz").read_bytes())), thread)


def judge_again(folder: Path) -> list[Result]:
    """The results of a folder of ``keep``, by today's reading of reports and today's truth."""
    results = []
    for before in msgspec.json.decode((folder / "results.json").read_bytes(), type=list[Result]):
        if before.report is None:
            results.append(before)
            continue
        text, trace = (folder / f"{before.seed}.{ending}.xz" for ending in ("txt", "trace"))
        words = dict(line.split(" ", 1) for line in lzma.decompress(text.read_bytes()).decode().splitlines()[:4])
        schedule = schedules.schedule(before.seed, float(words["seconds"]), int(words["gpus"]))
        with tempfile.NamedTemporaryFile() as file:
            file.write(lzma.decompress(trace.read_bytes()))
            file.flush()
            made = Trace.read(Path(file.name), schedule)
        report = report_again(folder, before.seed, made.threads[0])
        results.append(judge(replace(before, report=report), schedule, made))
    return results


def really(programs: Programs, schedule: Schedule) -> str | None:
    """A line about what a removed cause really gains; None if none can be removed, or if none gains much."""
    truth = truth_of(schedule, programs.run(schedule, watched=False).trace)
    if not truth.known:
        return None
    for cause in sorted((*SPECIFIC, *SIDES), key=lambda cause: (cause in SIDES, -truth.gains.get(cause, 0.0))):
        changed = schedules.without(schedule, cause) if truth.gains.get(cause, 0.0) >= _REAL_GAIN else None
        if changed is None or changed == schedule:
            continue
        other = truth_of(changed, programs.run(changed, watched=False).trace)
        # Once more as it was: the machine may have changed meanwhile.
        again = truth_of(schedule, programs.run(schedule, watched=False).trace)
        if other.step_ns and again.step_ns:
            before, after = truth.step_ns / 1e6, again.step_ns / 1e6
            replayed, gain = truth.gains[cause], 1 - 2 * other.step_ns / (truth.step_ns + again.step_ns)
            return (
                f"{schedule.seed:5} {schedule.shape:20} {cause:12} replay {replayed:4.0%}, really {gain:4.0%} "
                f"({(replayed - gain) * 100:+.0f} points); step {before:.2f} ms, and again {after:.2f} ms"
            )
    return None


def _run_really(programs: Programs, arguments: argparse.Namespace) -> int:
    done = 0
    for seed in range(arguments.first, arguments.first + _ATTEMPTS):
        line = really(programs, schedules.schedule(seed, arguments.seconds, arguments.gpus))
        if line is not None:
            print(line, flush=True)
            done += 1
        if done == arguments.really:
            break
    return 0


def _run(programs: Programs | None, arguments: argparse.Namespace) -> list[Result]:
    results: list[Result] = []
    until = time.monotonic() + 60 * arguments.minutes
    every = (schedules.schedule(seed, arguments.seconds, arguments.gpus) for seed in count(arguments.first))
    wanted = (schedule for schedule in every if schedule.gpus == arguments.gpus)
    for number, schedule in enumerate(islice(wanted, arguments.programs)):
        if time.monotonic() > until:
            break
        # Spread evenly over the seeds.
        attached = int((number + 1) * arguments.attached) > int(number * arguments.attached)
        results.append(watch(programs, schedule, attached, arguments.pairs) if programs else run_virtually(schedule))
        print(f"{schedule.seed:5} {schedule.shape:22} {results[-1].outcome}", file=sys.stderr, flush=True)
        if arguments.keep and programs:
            keep(arguments.keep, programs, schedule.seed)
        for file in (arguments.save, arguments.keep and arguments.keep / "results.json"):
            if file:
                file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    return results


def main(words: Sequence[str] | None = None) -> int:
    """Run what the arguments say; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--cost", type=float, default=5.0)
    parser.add_argument("--attached", type=float, default=0.2, metavar="SHARE")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--from", type=Path, nargs="+", dest="files", metavar="FILE")
    parser.add_argument("--really", type=int, default=0, metavar="N")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--again", type=Path, metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=1e9, metavar="M")
    arguments = parser.parse_args(words)
    if arguments.again:
        results = judge_again(arguments.again)
    elif arguments.virtual:
        results = _run(None, arguments)
    elif arguments.files:
        results = [
            each for path in arguments.files for each in msgspec.json.decode(path.read_bytes(), type=list[Result])
        ]
    else:
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder), arguments.model)
            readings = "now.readings" if arguments.keep else ""
            programs = Programs(Path(folder), arguments.model, ("--cost", f"{arguments.cost:g}"), readings=readings)
            if arguments.really:
                return _run_really(programs, arguments)
            results = _run(programs, arguments)
            if arguments.keep:
                _compress_all(arguments.keep)
    print("\n".join(tables(results)))
    return int(any(result.outcome == "failed" for result in results))


if __name__ == "__main__":
    sys.exit(main())
