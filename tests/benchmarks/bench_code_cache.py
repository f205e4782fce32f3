"""What the keys of compiled code cost at a start that compiles nothing: CPU time in ms, median of several processes.

python tests/benchmarks/bench_code_cache.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

PROBES = Path(__file__).parents[2] / "probes"
STARTS = 9

# Prints the CPU time in ms, of all and of the keys, and the number of keys: for the loop, then with the timeline.
START = """
import sys
import time

sys.path.insert(0, sys.argv[1])
from stallprobes.engine import code_cache

set_key, spent = code_cache.set_key, []

def timed(function):
    since = time.process_time_ns()
    key = set_key(function)
    spent.append(time.process_time_ns() - since)
    return key

code_cache.set_key = timed
from stallprobes.engine import loop
print(time.process_time_ns() / 1e6, sum(spent) / 1e6, len(spent))
from stallprobes.engine.timeline import buffers, collecting
buffers.callbacks()
print(time.process_time_ns() / 1e6, sum(spent) / 1e6, len(spent))
"""


def start() -> list[list[float]]:
    """A start's figures: a row for the loop, and one for the loop and the timeline."""
    command = [sys.executable, "-c", START, str(PROBES)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [[float(word) for word in line.split()] for line in text.splitlines()]


def main() -> int:
    # The first start may compile.
    start()
    starts = [start() for _ in range(STARTS)]
    for row, what in enumerate(("the loop", "the loop and the timeline")):
        whole, spent, keys = (statistics.median(one[row][column] for one in starts) for column in range(3))
        print(f"{what}: {keys:.0f} keys {spent:.1f} ms of {whole:.0f} ms CPU time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
