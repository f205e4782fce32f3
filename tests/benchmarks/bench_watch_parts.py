"""What each part of watching costs by itself, within one process: subscription, callbacks, records, and what stays.

A library with nothing but CUPTI (watch_parts.c) goes through phases while a program (watch_parts.cu) makes calls:
``launch``, 200 small kernels and a wait; ``threads``, 16 such threads; ``replay``, a graph of 100 kernels launched
again and again; ``decode``, a graph of 900 kernels launched and waited for; ``storm``, a graph of 300 kernels captured,
instantiated, launched once and destroyed; ``query``, a stream that is asked until its kernel ends; ``poll``, one asked
500 000 times a second. Prints the rate of each phase as a multiple of that of the first, for ``decode`` and ``storm``
the time of each step, and the records of kernels whose call had a callback, or none. With --after, N processes make
calls before, with and after records; what an operation takes longer in each phase is printed. With several --api they
take turns. It needs a GPU and nvcc.

python tests/benchmarks/bench_watch_parts.py [MODE ...] [--parts PHASES] [--early KIND] [--after N] [--cupti LIBCUPTI]
    [--api v1|v2|fields|hardware]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "probes")]

from stallprobes.watch.environment import cupti_of_this_machine  # noqa: E402

MODES = ("launch", "threads", "replay", "decode", "storm", "query", "poll")
PARTS = "base:1.5;sub:1;waits:1.2;calls:1.5;off:1;records:1.5;off:1.2;calls,records:1.8;calls:1.5;off:1.2;unsub:1.5"
AFTER = "base:1.2;sub:0.6;calls,records:0.8;off:1;unsub:1.2"
STEPS = ("capture", "instantiate", "launch", "destroy", "wait")
# Time (ns) from the begin of a phase that is left out, and the longest start of the program (s).
SETTLE_NS, START_S = 50_000_000, 30


@dataclass(frozen=True)
class Phase:
    """A phase: its parts, the operations a second, the time (us) of each step, and records with and without a call."""

    parts: str
    rate: float
    steps: tuple[float, ...]
    records: tuple[int, int]


def build(folder: Path) -> tuple[Path, Path]:
    """The program and the library."""
    program, injected = folder / "watch_parts", folder / "watch_parts.so"
    subprocess.run(["nvcc", "-O2", "-std=c++17", "-o", str(program), str(HERE / "watch_parts.cu")], check=True)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(injected), str(HERE / "watch_parts.c"), "-lpthread", "-ldl"]
    subprocess.run(command, check=True)
    return program, injected


def run(
    built: tuple[Path, Path], mode: str, parts: str, cupti: str, early: int | None = None, api: str = "v1"
) -> list[Phase]:
    """The phases of one process. Raises SystemExit if it fails."""
    program, injected = built
    with tempfile.TemporaryDirectory() as folder:
        settings = {"PARTS": parts, "READY": str(Path(folder, "ready")), "CUPTI": cupti, "API": api}
        more = {} if early is None else {"EARLY": str(early)}
        environment = {**os.environ, "CUDA_INJECTION64_PATH": str(injected), **settings, **more}
        seconds = sum(float(phase.rpartition(":")[2]) for phase in parts.split(";"))
        done = subprocess.run(
            [str(program), mode], env=environment, capture_output=True, text=True, timeout=seconds + START_S
        )
    said = [line.split() for line in done.stderr.splitlines()]
    print("".join(f"  {' '.join(line)}\n" for line in said if line and line[0] not in ("PHASE", "RECORDS")), end="")
    begins = [int(line[1]) for line in said if line[:1] == ["PHASE"]]
    counts = [(int(line[1]), int(line[2])) for line in said if line[:1] == ["RECORDS"]]
    names = [phase.rpartition(":")[0] for phase in parts.split(";")]
    if done.returncode or len(begins) != len(names) + 1 or len(counts) != len(names):
        sys.exit(f"{mode} failed with {done.returncode}: {done.stderr[-300:]}")
    rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    phases = []
    for at, name in enumerate(names):
        inside = [row for row in rows if row[0] > begins[at] + SETTLE_NS and row[1] < begins[at + 1]]
        operations = max(sum(row[2] for row in inside), 1)
        steps = tuple(sum(row[3 + step] for row in inside) / operations / 1e3 for step in range(len(STEPS)))
        rate = median(row[2] * 1e9 / (row[1] - row[0]) for row in inside) if inside else 0.0
        phases.append(Phase(name, rate, steps, counts[at]))
    return phases


def print_phases(mode: str, phases: list[Phase]) -> None:
    """Print a line for each phase."""
    print(mode)
    for phase in phases:
        steps = "".join(f" {name} {took:.0f}" for name, took in zip(STEPS, phase.steps, strict=True))
        with_call, without = phase.records
        records = f"  records with a call {with_call}, without {without}" if with_call or without else ""
        times = f"  us:{steps}" if any(phase.steps) else ""
        print(
            f"  {phase.parts:16} {phase.rate:11.0f} a second ×{phase.rate / phases[0].rate:.3f}{times}{records}",
            flush=True,
        )


def print_after(
    built: tuple[Path, Path], mode: str, count: int, cupti: str, early: int | None, apis: list[str], parts: str
) -> None:
    """Print what an operation takes longer in each phase, in so many processes of each API."""
    added: dict[str, list[list[float]]] = {}
    names: list[str] = []
    for api in count * apis:
        phases = run(built, mode, parts, cupti, early, api)
        base = 1e9 / phases[0].rate
        names = [phase.parts for phase in phases]
        added.setdefault(api, []).append([1e9 / phase.rate - base for phase in phases])
        named = ", ".join(f"{name} {ns:+.0f}" for name, ns in zip(names, added[api][-1], strict=True))
        print(f"{mode} {api}: {base:.0f} ns an operation; {named}", flush=True)
    for api, rows in added.items():
        for name, column in zip(names, zip(*rows, strict=True), strict=True):
            print(
                f"{mode} {api} {name}: {median(column):+.0f} ns ({min(column):+.0f} to {max(column):+.0f})", flush=True
            )


def main() -> int:
    """Run the modes; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modes", nargs="*", default=MODES, metavar="MODE", help=" ".join(MODES))
    parser.add_argument("--parts", metavar="PHASES")
    parser.add_argument("--api", action="append", choices=("v1", "v2", "fields", "hardware"))
    parser.add_argument("--early", type=int, metavar="KIND", help="enable this kind of records before the program runs")
    parser.add_argument("--after", type=int, default=0, metavar="N")
    parser.add_argument("--cupti", default=str(cupti_of_this_machine() or ""), metavar="LIBCUPTI")
    options = parser.parse_args()
    apis = options.api or ["v1"]
    with tempfile.TemporaryDirectory() as folder:
        built = build(Path(folder))
        for mode in options.modes:
            if options.after:
                parts = options.parts or AFTER
                print_after(built, mode, options.after, options.cupti, options.early, apis, parts)
                continue
            for api in apis:
                print_phases(mode, run(built, mode, options.parts or PARTS, options.cupti, options.early, api))
    return 0


if __name__ == "__main__":
    sys.exit(main())
