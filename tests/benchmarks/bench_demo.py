"""The whole demo in a terminal, from start to end without a key: its time, its cost, and what it found.

python tests/benchmarks/bench_demo.py [--seconds S] [--gpu GPU]

Runs ``stallscope demo`` at 80×24 and at 160×48, by default on the simulated GPU, and prints the wall-clock time, the
CPU time of the screen's process with its engines, and the table. Exits 1 if a demo did not end by itself with exit
code 0.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "app"))
sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.terminal import Terminal

SIZES = ((80, 24), (160, 48))
_SCREEN_BACK = b"\x1b[?1049l"
# A demo of many patterns takes minutes.
_LIMIT_S = 3600.0


def main() -> None:
    """Run both demos."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="time per step (%(default)s)")
    parser.add_argument("--gpu", help="a real GPU in place of the simulated one")
    asked = parser.parse_args()
    where = ["--sim"] if asked.gpu is None else ["--gpu", asked.gpu, "--allow-shared"]
    failed = False
    for size in SIZES:
        begun_s = time.monotonic()
        # A variable of the interpreter: the program then starts as usual, and is a child of this process.
        screen = Terminal(["demo", *where, "--seconds", str(asked.seconds)], size, {"PYTHONUTF8": "1"})
        while screen.alive and time.monotonic() - begun_s < _LIMIT_S:
            screen.read(0.1)
        code = screen.wait_for_end()
        took_s = time.monotonic() - begun_s
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = used.ru_utime + used.ru_stime
        failed = failed or code != 0
        print(f"{size[0]}×{size[1]}: exit code {code}, {took_s:.0f} s, CPU so far {cpu_s:.1f} s")
        at = screen.raw.rfind(_SCREEN_BACK)
        print(screen.text(since=max(at, 0)))
        screen.close()
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
