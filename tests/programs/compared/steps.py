"""Steps of a program for some seconds, and the time that one takes."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Callable

WARM_UP_S = 1.0


def arguments() -> argparse.Namespace:
    """The variant and the seconds of the command line. Waits for ``--gate``, a file that this process then locks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", required=True)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--gate")
    given = parser.parse_args()
    if given.gate:
        # Unlocked by the end of the process: programs use the GPU one after the other.
        fcntl.flock(os.open(given.gate, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)
    return given


def compute(seconds: float) -> None:
    """Compute on the host."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def run(step: Callable[[], None], wait: Callable[[], None], seconds: float) -> None:
    """Run steps, then ``wait``, and print the mean time of a step in ns."""
    begin = time.perf_counter()
    while time.perf_counter() < begin + WARM_UP_S:
        step()
    wait()
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds:
        step()
        steps += 1
    wait()
    sys.stdout.write(f"STEP_NS {(time.perf_counter() - begin) / steps * 1e9:.0f}\n")
