"""What attaching costs programs on a GPU, over many attachments: stops, hold-ups, waits for rows, and what remains.

Each program checks its own sums. It is attached at random moments; some processes are new, in the others the library is
woken again. Prints for each program how often it was attached, the time for which a thread was stopped to load the
library, the hold-up that stallscope states, the longest launch or step beside the usual one, the time until the first
call was recorded, and what a launch takes longer after the last detach than before the first attachment, with a 95 %
interval of the median (bootstrap over processes). Exits 1 if a program crashed or computed something wrong, was stopped
for more than 2 ms at p99, held up for more than 50 ms at p99, had rows later than 1.5 s, or keeps more than 0.4 us. For
long and hanging CUPTI itself may wait for the GPU, which counts in what is stated, and rows come once a call returns:
there the longest launch or step alone is limited.

python tests/benchmarks/bench_attach.py [PROGRAM ...] [--attachments N] [--fresh N] [--seconds S]

PROGRAM is loop, threads, long, hanging, training, generation, graphs or arrays; all by default. The first three need
nvcc, the last four PyTorch with torchvision, transformers, JAX and CuPy: what is not installed is left out, and said.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from factories.attached_gpu import Attached, GpuProgram, attach_once, build_loop  # noqa: E402
from stallprobes.errors import WatchError  # noqa: E402
from stallprobes.watch.environment import WatchOptions  # noqa: E402

LOOPS = {"loop": ["loop"], "threads": ["threads", "200"], "long": ["long", "30"]}
NEEDS = {"training": "torchvision", "generation": "transformers", "graphs": "jax", "arrays": "cupy"}
NAMES = (*LOOPS, "hanging", *NEEDS)
STOPPED_MS, HELD_MS, ROWS_S, REMAINS_NS = 2.0, 50.0, 1.5, 400.0
# How long launches are measured before the first attachment and after the last one.
MEASURED_S = 1.0
# Threads that begin hold each other's first launches up: they run once a second passes without so long a launch.
BEGUN_MS, BEGUN_S = 100.0, 30.0
DRAWS = 4000


@dataclass
class Found:
    """What was found of one program."""

    attached: list[Attached] = field(default_factory=list)
    remains_ns: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def main() -> int:
    """Run the programs and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[[], *NAMES], metavar="PROGRAM")
    parser.add_argument("--attachments", type=int, default=100)
    parser.add_argument("--fresh", type=int, default=10, help="new processes of each program")
    parser.add_argument("--seconds", type=float, default=0.7, help="of each attachment")
    asked = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="bench-attach-") as folder:
        names = asked.programs or NAMES
        loop = build_loop(Path(folder)) if any(name in LOOPS for name in names) else None
        for name in names:
            if find_spec(NEEDS.get(name, "numpy")) is None:
                print(f"{name}: left out, {NEEDS[name]} is not installed")
                continue
            few = name in ("long", "hanging")
            count = 10 if few and asked.attachments > 10 else asked.attachments
            fresh = count if name == "loop" else min(asked.fresh, count)
            failed |= show(name, measure(name, loop, count, fresh, asked.seconds))
    return int(failed)


def measure(name: str, loop: Path | None, count: int, fresh: int, seconds: float) -> Found:
    """Attach ``count`` times to ``fresh`` processes of a program."""
    found = Found()
    for number in range(fresh):
        times = count // fresh + (number < count % fresh)
        try:
            command = [str(loop), *LOOPS[name]] if name in LOOPS else []
            kind = "gate" if name == "hanging" else name
            with GpuProgram(command) if command else GpuProgram.python(kind) as program:
                attach_repeatedly(name, program, times, seconds, found)
        except (RuntimeError, WatchError, OSError) as error:
            found.failures.append(str(error))
    return found


def attach_repeatedly(name: str, program: GpuProgram, times: int, seconds: float, found: Found) -> None:
    """Attach to one process, and compare its launches before and after."""
    hangs = name == "hanging"
    before = 0
    if name == "threads":
        wait_until_begun(program)
    if name == "loop":
        program.ask()
        time.sleep(MEASURED_S)
        before = program.ask().median_ns
    for _ in range(times):
        time.sleep(random.random())
        found.attached.append(attach_once(program, seconds, WatchOptions(cost=1.0), asks=not hangs, hangs=hangs))
    if name == "loop":
        program.ask()
        time.sleep(MEASURED_S)
        found.remains_ns.append(program.ask().median_ns - before)
    program.ask()
    program.end()


def wait_until_begun(program: GpuProgram) -> None:
    """Wait until the program makes no long launches of its own. Raises RuntimeError where it always does."""
    program.ask()
    for _ in range(int(BEGUN_S)):
        time.sleep(1.0)
        if program.ask().longest_ns < BEGUN_MS * 1e6:
            return
    raise RuntimeError(f"a launch of more than {BEGUN_MS:g} ms each second, without an attachment")


def show(name: str, found: Found) -> bool:
    """Print what was found of a program. Returns whether a limit is exceeded."""
    failed = bool(found.failures)
    print(f"{name}: attached {len(found.attached)} times, {len(found.failures)} failures")
    for failure in found.failures[:5]:
        print(f"    {failure}")
    stopped = np.array([one.stopped_ns for one in found.attached if one.stopped_ns]) / 1e6
    held = np.array([one.held_up_ns for one in found.attached]) / 1e6
    rows = np.array([one.rows_s for one in found.attached])
    longest = np.array([max(one.longest_ns - one.usual_ns, 0) for one in found.attached]) / 1e6
    waits = name in ("long", "hanging")
    for text, values, unit, limit in (
        ("thread stopped", stopped, "ms", STOPPED_MS),
        ("hold-up as stated", held, "ms", None if waits else HELD_MS),
        ("longest launch or step, less the usual one", longest, "ms", HELD_MS if name in LOOPS else None),
        ("first call recorded after", rows, "s", None if waits else ROWS_S),
        ("attach returned after", np.array([one.attach_s for one in found.attached]), "s", None),
        ("detach returned after", np.array([one.detach_s for one in found.attached]), "s", None),
    ):
        failed |= shown(text, values, unit, limit)
    if found.remains_ns:
        low, high = interval(np.array(found.remains_ns))
        print(
            f"    a launch takes longer after detaching: {np.median(found.remains_ns):.0f} ns ({low:.0f} to {high:.0f})"
        )
        failed |= bool(np.median(found.remains_ns) > REMAINS_NS)
    without = sum(not one.records for one in found.attached)
    print(f"    without calls {sum(not one.calls for one in found.attached)}, without records {without}")
    return failed


def shown(text: str, values: NDArray[np.float64], unit: str, limit: float | None) -> bool:
    """Print a distribution. Returns whether its p99 exceeds the limit."""
    if not len(values):
        return False
    p50, p99 = np.percentile(values, [50, 99])
    exceeds = limit is not None and p99 > limit
    most = "" if limit is None else f", at most {limit:g} {unit}{': EXCEEDED' if exceeds else ''}"
    print(f"    {text}: p50 {p50:.3f}, p99 {p99:.3f}, max {values.max():.3f} {unit}{most}")
    return bool(exceeds)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of the median."""
    drawn = np.random.default_rng(0).choice(values, (DRAWS, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


if __name__ == "__main__":
    sys.exit(main())
