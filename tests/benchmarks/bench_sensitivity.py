"""Whether a comparison detects a change of the size that it says it could have detected.

python tests/benchmarks/bench_sensitivity.py [--seeds N] [--noise FACTOR] [--rough POWER] [--processes P]

Needs no GPU. Each seed makes three checks of an unchanged machine, in which every repeat is slower by a factor of its
own, up to 2.2 (in every third cell up to its power ``--rough``), and the cells that gain most precision have additional
repeats. The first two checks state the ratio that a comparison could detect in a cell, the third gets a change of this
size in that cell and is compared with the first. Exits 1 if fewer than 90 of 100 changes are shown (as worse, or as
unsure in their direction), or if any other cell is worse or better in more than 1 of 100 comparisons.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories import matrices
from factories.planted_changes import Planted, planted
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import Change

NOISE = 2.2
WANTED_FOUND, WANTED_FALSE = 0.9, 0.01


def one(seed: int, quantile: Quantile, noise: float = NOISE, rough: float = 1.0) -> Planted:
    """A change planted in a check of a machine with this noise, to the power ``rough`` in every third cell."""
    old, other, new = (matrices.uneven(3 * seed + i, steps=noise, rough=rough, calls=500) for i in range(3))
    return planted(compare(old, other), old, new, quantile, seed)


def main() -> None:
    """Measure and print; exit code 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="changes per percentile (%(default)s)")
    parser.add_argument("--noise", type=float, default=NOISE, help="largest factor between repeats (%(default)s)")
    parser.add_argument("--rough", type=float, default=1.0, help="power of it in every third cell (%(default)s)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="seeds measured at once")
    asked = parser.parse_args()
    well = True
    for quantile in PERCENTILES:
        with ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool:
            found = list(
                pool.map(partial(one, quantile=quantile, noise=asked.noise, rough=asked.rough), range(asked.seeds))
            )
        shown = sum(each.found for each in found)
        worse = sum(each.part.change is Change.WORSE for each in found)
        wrong = sum(bool(each.others) for each in found)
        middle = statistics.median(each.ratio for each in found)
        print(
            f"{quantile}: {shown} of {len(found)} changes shown, {worse} as worse; stated ratio x{middle:.1f} "
            f"(median); another cell worse or better in {wrong} comparisons",
            flush=True,
        )
        well = well and shown >= WANTED_FOUND * len(found) and wrong <= WANTED_FALSE * len(found)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
