"""Program of ``bench_watch_training.py``: trains, and switches the recording off and on between blocks of steps.

python watched_training.py LIBRARY PAIRS BLOCK_S

Prints the time of a step (ns) of each pair of blocks: recorded, not recorded.
"""

from __future__ import annotations

import ctypes
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

from training import Training

WARM_UP = 200


def step_ns(training: Training, seconds: float) -> float:
    """The mean time of a step over a block; the loss is read in each, so that none is under way at its end."""
    begin, steps = time.perf_counter_ns(), 0
    while (passed := time.perf_counter_ns() - begin) < seconds * 1e9 or not steps:
        training.step()
        steps += 1
    return passed / steps


def main(library: str, pairs: int, seconds: float) -> None:
    """Measure ``pairs`` pairs in an order by chance."""
    training = Training("item")
    switch = ctypes.CDLL(library).watch_switch
    for _ in range(WARM_UP):
        training.step()
    chance = random.Random(1)
    for _ in range(pairs):
        times = {}
        for recorded in chance.sample((1, 0), 2):
            if switch(recorded) <= 0:
                sys.exit("the recording cannot be switched")
            training.step()
            times[recorded] = step_ns(training, seconds)
        sys.stdout.write(f"{times[1]:.0f} {times[0]:.0f}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
