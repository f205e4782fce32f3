"""What watching costs a training loop on a GPU: the time of a step with the recording on over that with it off.

Both are measured in one process, in pairs of blocks of 0.25 s in an order by chance. Prints the median of the ratio
with its 95 % interval by bootstrap, and the mean, for --calls-only and for everything. Exits 1 if the upper bound of
the median exceeds 3 % with calls alone or 6 % with everything. Needs a GPU and PyTorch.

python tests/benchmarks/bench_watch_training.py [--pairs 300]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from factories.watched_folders import read_folder
from stallprobes.machine.libcuda_survey import ask
from stallprobes.native.building.compilers import of_system
from stallprobes.native.building.libraries import INJECTED_LIBRARY, write_header
from stallprobes.watch.environment import WatchOptions, find_cupti, variables

HERE = Path(__file__).parent
LIMITS = {True: 1.03, False: 1.06}
RESAMPLES = 10_000


def pairs_of(library: Path, folder: Path, calls_only: bool, pairs: int, seconds: float) -> np.ndarray:
    """The times of a step: float64[pairs][recorded, not recorded]."""
    folder.mkdir(mode=0o700)
    options = WatchOptions(calls_only=calls_only)
    added = variables(library, folder, options, os.environ, find_cupti(ask().cuda_version or 0))
    program = [sys.executable, str(HERE / "watched_training.py"), str(library), str(pairs), str(seconds)]
    done = subprocess.run(program, env=dict(os.environ) | added, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    for process in read_folder(folder).processes:
        print(
            f"  {process.calls} calls and {process.records} records, {process.lost_calls} calls and"
            f" {process.lost_records} records lost, {process.state.name.lower()}"
        )
    return np.array([line.split() for line in done.stdout.splitlines()], dtype=np.float64)


def main() -> int:
    """Print the ratios; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=0.25)
    options = parser.parse_args()
    exceeded = False
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "inject.so")
        write_header(Path(folder))
        flags = ("-Wl,--wrap=ss_choose_calls", str(HERE / "watch_switch.c"))
        INJECTED_LIBRARY.compile(library, of_system()[0], Path(folder), flags)
        for calls_only, limit in LIMITS.items():
            print("calls only" if calls_only else "everything")
            times = pairs_of(library, Path(folder, str(calls_only)), calls_only, options.pairs, options.seconds)
            ratios = times[:, 0] / times[:, 1]
            chance = np.random.default_rng(1)
            medians = np.median(chance.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
            low, high = np.percentile(medians, (2.5, 97.5))
            quartiles = ", ".join(f"×{one:.3f}" for one in np.percentile(ratios, (25, 75)))
            print(
                f"  step {statistics.median(times[:, 1]) / 1e6:.3f} ms not recorded; ratio of {len(ratios)} pairs"
                f" ×{np.median(ratios):.4f}, 95 % interval ×{low:.4f} to ×{high:.4f} (limit ×{limit}); mean"
                f" ×{ratios.mean():.4f}; quartiles {quartiles}"
            )
            exceeded |= bool(high > limit)
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
