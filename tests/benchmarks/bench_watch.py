"""What the injected library costs a program for each callback: a call beside stand-ins with and without it.

Each call has two callbacks. The time of a call without the library is that of the stand-in; the difference also has the
stand-in's own dispatch of callbacks. Exits 1 above 300 ns for a callback.

python tests/benchmarks/bench_watch.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.stand_in import StandIn
from stallprobes.watch.environment import WatchOptions

LIMIT_NS = 300.0
CALLS = 400_000
ROUNDS = 15
CALLS_ONLY = WatchOptions(calls_only=True)
# Name, arguments of the program, options.
CASES = (
    ("launch", ("0", "0"), CALLS_ONLY),
    ("launch, every call kept as slow", ("0", "0"), WatchOptions(slow_ns=0, calls_only=True)),
    ("pageable copy, no pinned memory", ("1", "0"), CALLS_ONLY),
    ("pageable copy, 100 pinned ranges", ("1", "100"), CALLS_ONLY),
    ("pageable copy, 1000 pinned ranges", ("1", "1000"), CALLS_ONLY),
    # As many blocks as the filter has buckets, so that it says nothing.
    ("the same, of 4 GiB", ("1", "1000", str(4 << 30)), CALLS_ONLY),
)


def call_ns(stand_in: StandIn, arguments: tuple[str, ...], options: WatchOptions | None) -> float:
    """The time of a call, with the library unless ``options`` is None."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {} if options is None else stand_in.environment(Path(folder), options)
        program = [str(stand_in.folder / "host"), "cost", str(CALLS), *arguments]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    """Print the costs; the exit code."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        stand_in = StandIn.build(Path(folder), ("-O2",))
        print(f"{'ns':36}{'without':>9}{'with':>9}{'callback':>10}{'quartiles':>16}")
        for name, arguments, options in CASES:
            pairs = [(call_ns(stand_in, arguments, None), call_ns(stand_in, arguments, options)) for _ in range(ROUNDS)]
            callbacks = sorted((after - before) / 2 for before, after in pairs)
            low, median, high = statistics.quantiles(callbacks, n=4)
            without, beside = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(f"{name:36}{without:9.1f}{beside:9.1f}{median:10.1f}{f'{low:.1f} to {high:.1f}':>16}")
            worst = max(worst, median)
    print(f"largest median of a callback: {worst:.0f} ns, limit {LIMIT_NS:.0f} ns")
    return int(worst > LIMIT_NS)


if __name__ == "__main__":
    sys.exit(main())
