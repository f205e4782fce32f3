"""The times of a program's steps, for the benchmark of what watching costs: each program here writes them to a file.

python PROGRAM.py SECONDS FILE

The file exists, and is empty, once the steps begin.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

# Steps that are not counted: they load code and allocate.
WARM_UP = 20


def run_steps(step: Callable[[], object]) -> None:
    """Make steps for the seconds of the command line, then write when each ended (CLOCK_MONOTONIC, ns)."""
    seconds, file = float(sys.argv[1]), Path(sys.argv[2])
    for _ in range(WARM_UP):
        step()
    file.touch()
    ends = [time.monotonic_ns()]
    while ends[-1] - ends[0] < seconds * 1e9:
        step()
        ends.append(time.monotonic_ns())
    np.save(file, np.array(ends))
