"""How fast the simulated GPU is: virtual seconds for each of one core, the whole run, its share of a core when paced.

python tests/benchmarks/bench_sim.py [--seconds S] [--rounds N] [--whole] [--paced]

Needs no GPU. Each line is one set of probes on the profile h200; the figure is the median over the rounds of virtual
time over processor time, in this process. ``--whole`` adds ``stallscope run all --sim``, ``--paced`` an engine that
keeps to the clock on the wall, as the screen has it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from stallprobes.catalog import Placement, entries
from stallprobes.engine.backend import Options
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.session import Session
from stallprobes.engine.sim.backend import SimBackend
from stallprobes.model import SECONDARY, Probe

ROOT = Path(__file__).parents[2]
WANTED = 8.0
WANTED_WHOLE_S = 30.0
WANTED_PACED = 0.40
VICTIMS = ("launch", "d2d", "d2h-pinned", "host")
BESIDE = ("spin", "d2h-pageable-warm", "alloc-free", "stream-churn", "event", "context-sync", "nvml-poll")


def victims() -> list[Probe]:
    """Four probes at 1 kHz."""
    return [entries()[name].probe() for name in VICTIMS]


def speed(probes: list[Probe], seconds: float) -> float:
    """Virtual seconds for each second of processor time."""
    board = Board.create(BoardLayout.of(probes))
    backend = SimBackend()
    backend.prepare(probes, board, Options())
    backend.start()
    for probe in probes:
        board[probe.name].words.run = 1
    backend.advance(200_000_000)
    began = time.process_time()
    backend.advance(round(seconds * 1e9))
    return seconds / (time.process_time() - began)


def paced_share(seconds: float) -> float:
    """The engine's share of a core while four victims and a spin kernel in another context run at the wall's pace."""
    probes = [*victims(), entries()["d2d"].probe(Placement(SECONDARY), name="d2d@secondary"), entries()["spin"].probe()]
    with Session(probes, backend="sim", options=Options(paced=True)) as session:
        session.set_running([probe.name for probe in probes])
        session.run_for(0.5)
        pid = session.engine_pid
        if pid is None:
            raise SystemExit("the engine is gone")
        before, began = _processor_s(pid), time.monotonic()
        session.run_for(seconds)
        return (_processor_s(pid) - before) / (time.monotonic() - began)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def whole_run_s() -> float:
    """``stallscope run all --sim`` from start to end."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'probes'}{os.pathsep}{ROOT / 'app'}"}
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "stallscope", "run", "all", "--sim", "--json"],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="virtual seconds of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--paced", action="store_true")
    given = parser.parse_args()
    sets = {"four probes at 1 kHz": victims()}
    sets |= {f"the same and {name}": [*victims(), entries()[name].probe()] for name in BESIDE}
    found: dict[str, list[float]] = {words: [] for words in sets}
    for _ in range(given.rounds):
        for words, probes in sets.items():
            found[words].append(speed(probes, given.seconds))
    for words, figures in found.items():
        print(f"{words:40} {statistics.median(figures):8.1f} x wall-clock  ({min(figures):.1f} to {max(figures):.1f})")
    failed = statistics.median(found["four probes at 1 kHz"]) < WANTED
    if given.whole:
        seconds = whole_run_s()
        failed |= seconds > WANTED_WHOLE_S
        print(f"{'run all --sim, 2 s each':40} {seconds:8.1f} s")
    if given.paced:
        share = paced_share(max(given.seconds, 3.0))
        failed |= share > WANTED_PACED
        print(f"{'paced, six probes':40} {100 * share:8.1f} % of a core")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
