"""How long a simulated check takes, and how well comparisons of such checks find what changed.

python tests/benchmarks/bench_check.py [--rounds N] [--seeds N] [--keep DIR] [--processes P]

Needs no GPU. The first lines are the wall-clock times of the whole and of the quick check. ``--seeds 100`` makes a
hundred whole checks, each with a stall of 1.5 times the p99 planted in a cell that its seed picks, and compares them
with one without: how many are found, and in how many any other cell was called worse or better. For every five of
them one check without a stall is compared as well. That takes half an hour on two cores. ``--keep`` holds what is
done in a folder, so that it can be stopped and continued. ``--processes`` makes so many checks at once.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.planted_stalls import InjectionPoint, Outcome, measured, outcome, places
from stallprobes.engine.backend import Options
from stallprobes.matrix import check_file
from stallprobes.matrix.check import runner
from stallprobes.matrix.check.plan import plan
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.matrix import Matrix

WANTED_S, WANTED_QUICK_S = 10.0, 15.0
WANTED_FOUND, WANTED_FALSE = 0.95, 0.01
OLD_SEED = 1000
EACH = 5


def times(rounds: int) -> bool:
    """Print how long checks take; whether it is short enough."""
    well = True
    for words, quick, wanted in (("whole", False, WANTED_S), ("quick", True, WANTED_QUICK_S)):
        took = []
        for number in range(rounds):
            began = time.monotonic()
            runner.run(plan(quick=quick), backend="sim", options=Options(seed=number), seed=number)
            took.append(time.monotonic() - began)
        print(f"{words} check, simulated: {statistics.median(took):.1f} s, limit {wanted:g} s", flush=True)
        well = well and statistics.median(took) <= wanted
    return well


def kept(keep: Path | None, name: str, seed: int, place: InjectionPoint | None) -> Matrix:
    """A check of ``seed`` with a stall in ``place``, out of the folder ``keep`` if it is there."""
    file = None if keep is None else keep / f"{name}.json.gz"
    if file is not None and file.exists():
        return check_file.load(file)
    made = measured(plan(), seed, place)
    if file is not None:
        check_file.save(made, file)
    return made


def compared(seed: int, keep: Path | None) -> tuple[InjectionPoint, Outcome, Outcome | None]:
    """The place of the stall of ``seed``, what a comparison finds of it, and of a check without one, if it is due."""
    old = kept(keep, f"old-{OLD_SEED}", OLD_SEED, None)
    there = places(old)
    place = there[random.Random(seed).randrange(len(there))]
    planted = outcome(compare(old, kept(keep, f"planted-{seed}", seed, place)), place)
    plain = None
    if seed % EACH == 0:
        plain = outcome(compare(old, kept(keep, f"plain-{seed}", OLD_SEED + seed, None)), None)
    return place, planted, plain


def seeds(count: int, keep: Path | None, processes: int) -> bool:
    """Print what comparisons find; whether that is enough."""
    with tempfile.TemporaryDirectory() as folder:
        keep = keep or Path(folder)
        old = kept(keep, f"old-{OLD_SEED}", OLD_SEED, None)
        print(f"{len(places(old))} places in {len(old.cells)} cells", flush=True)
        planted, plain = [], []
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            found = pool.map(partial(compared, keep=keep), range(1, count + 1))
            for seed, (where, said, without) in enumerate(found, 1):
                planted.append(said)
                plain += [] if without is None else [without]
                if not said.found or said.others:
                    print(
                        f"seed {seed}: {where.row} beside {where.column}, {where.phase}: found {said.found}, also"
                        f" {said.others}",
                        flush=True,
                    )
    return _told(planted, plain)


def _told(planted: list[Outcome], plain: list[Outcome]) -> bool:
    found = sum(one.found for one in planted)
    wrong = sum(bool(one.others) for one in [*planted, *plain])
    print(f"planted and found: {found} of {len(planted)}")
    print(f"comparisons that call another cell worse or better: {wrong} of {len(planted) + len(plain)}")
    return found >= WANTED_FOUND * len(planted) and wrong <= WANTED_FALSE * (len(planted) + len(plain))


def main() -> None:
    """Measure and print; exit code 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="checks of each kind (%(default)s)")
    parser.add_argument("--seeds", type=int, default=0, help="checks with a planted stall (%(default)s)")
    parser.add_argument("--keep", type=Path, help="a folder for what is done")
    parser.add_argument("--processes", type=int, default=1, help="checks made at once (%(default)s)")
    asked = parser.parse_args()
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
    well = times(asked.rounds) if asked.rounds else True
    if asked.seeds:
        well = seeds(asked.seeds, asked.keep, asked.processes) and well
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
