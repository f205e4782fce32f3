"""Slowdowns planted on a made-up noisy machine: what the screen's analyzer finds, over many seeds.

python tests/benchmarks/bench_live_noise.py [--seeds N]

For each length of the quiet time: a change of the ratio that the analyzer states as detectable must be found in 90 of
100 seeds, a stall of ×30 in all, and without a planted change nothing may be slower or stalled in more than 2 of 100.
Exits 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "app"))
sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.live_noise import Scenario, analyzed, detectable

QUIET_S = (3.0, 10.0, 30.0)
STALL = 30.0


def found(seed: int, scenario: Scenario) -> bool:
    """Whether the launch is called slower or stalled, and nothing else is."""
    kinds = {(entry.verdict.probe, entry.verdict.kind.is_stall) for entry in analyzed(seed, scenario).log}
    assert ("host", True) not in kinds
    return ("launch", True) in kinds


def main() -> int:
    """Run the benchmark and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    seeds = range(parser.parse_args().seeds)
    failed = False
    for quiet_s in QUIET_S:
        ratios = [detectable(seed, Scenario(quiet_s=quiet_s)) for seed in seeds]
        planted = sum(found(seed, Scenario(ratios[seed], quiet_s)) for seed in seeds) / len(seeds)
        stalls = sum(found(seed, Scenario(STALL, quiet_s)) for seed in seeds) / len(seeds)
        false = sum(found(seed, Scenario(1.0, quiet_s)) for seed in seeds) / len(seeds)
        middle = sorted(ratios)[len(ratios) // 2]
        print(
            f"{quiet_s:4.0f} s of baseline: detectable ×{middle:.1f} (median), found {planted:.0%}; "
            f"×{STALL:g} found {stalls:.0%}; false {false:.0%}"
        )
        failed |= planted < 0.9 or stalls < 1 or false > 0.02
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
