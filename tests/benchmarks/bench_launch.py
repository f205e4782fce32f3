"""cuLaunchKernel timed by the loop and by plain C threads, in alternating short rounds of one process, on a real GPU.

python tests/benchmarks/bench_launch.py [--seconds S] [--rounds N] [--json FILE]

Needs a GPU and gcc or cc. Every thread launches an empty kernel each 20 us, at multiples of 20 us, on a stream of its
own, and waits for nothing. Both sides are in one process and one context, since two processes can differ by a fifth.
They use the same streams, since one stream can be slower than another for as long as the process runs: on an H200 the
ratio of three probes to three C threads was 0.97 to 1.04 from process to process on different streams, and 0.99 to 1.02
on the same ones. They run on the same CPUs, drawn anew for each pair of rounds, since a CPU can be slower than its
neighbours. Both sides' samples go through the same buckets, so that their width favours neither.

Exits 1 when the loop is slower than C, alone or as three probes against three C threads, or when a busy Python thread
in its process makes it slower. Slower: the median ratio of p50 above 1.03 or of p99 above 1.15, beside busy Python 1.05
and 1.25. The ratios are those of neighbouring rounds, since a machine can be several times as slow for a second; the
upper end of the 95 % interval of their median counts. Where that is above a limit and the median is not, too few rounds
were measured, and N more follow, twice at most.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.median_interval import MedianInterval
from stallprobes.catalog import Placement
from stallprobes.catalog.kernels import launch_op
from stallprobes.engine.backend import Options
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.op_table import OpTable
from stallprobes.engine.workers import ProbeThreads
from stallprobes.errors import BackendError, Unsupported
from stallprobes.latency.histogram import Histogram, indices
from stallprobes.model import US, Channel, Phase, Probe, Program, Role
from stallprobes.native.layouts.board import ProbeState
from stallprobes.native.layouts.histogram import BUCKETS

CALL = Channel(Phase.CALL)
PERIOD_NS = 20 * US
WARM_UP_S = 0.05
FLAGS = ("-O2", "-fPIC", "-shared", "-pthread")
ENDED_WITHIN_S = 2.0
# Largest number of times that the rounds are measured while a claim is undecided.
MOST_REPEATS = 3
SOURCE = Path(__file__).with_name("launch.c")

BY_C, BY_LOOP = "C", "loop"
BY_C_BUSY, BY_LOOP_BUSY = "C, busy Python thread", "loop, busy Python thread"
BY_THREE_C, BY_THREE_LOOPS = "C, three threads", "loop, three probes"
NAMES = (BY_C, BY_LOOP, BY_C_BUSY, BY_LOOP_BUSY, BY_THREE_C, BY_THREE_LOOPS)


@dataclass(frozen=True)
class Claim:
    """What must hold of ``name`` against ``base``, as ratios of p50 and p99."""

    name: str
    base: str
    p50_limit: float
    p99_limit: float
    words: str


CLAIMS = (
    Claim(BY_LOOP, BY_C, 1.03, 1.15, "the loop against C"),
    Claim(BY_LOOP_BUSY, BY_C_BUSY, 1.05, 1.25, "the loop with a busy Python thread beside it against C beside it"),
    Claim(BY_THREE_LOOPS, BY_THREE_C, 1.03, 1.15, "three probes against three C threads"),
)


@dataclass(frozen=True)
class Figures:
    """Medians over the rounds, in ns."""

    p50: float
    p99: float
    p999: float
    max: float
    calls: int
    # Of each round.
    p50s: tuple[float, ...]
    p99s: tuple[float, ...]


def figures(rounds: Sequence[Histogram]) -> Figures:
    """The medians of ``rounds``. Raises ValueError when one of them is empty."""
    if not rounds or not all(one.count for one in rounds):
        raise ValueError("a round without a single call")

    def each(q: float) -> tuple[float, ...]:
        return tuple(one.percentile(q) or 0.0 for one in rounds)

    median = statistics.median
    most = median(one.max_ns for one in rounds)
    calls = sum(one.count for one in rounds)
    return Figures(median(each(50)), median(each(99)), median(each(99.9)), most, calls, each(50), each(99))


def ratios(by: Mapping[str, Figures], claim: Claim) -> tuple[MedianInterval, MedianInterval]:
    """The ratios of p50 and p99 of neighbouring rounds."""
    now, base = by[claim.name], by[claim.base]
    p50, p99 = (
        MedianInterval.of([one / other for one, other in zip(ours, others, strict=True)])
        for ours, others in ((now.p50s, base.p50s), (now.p99s, base.p99s))
    )
    return p50, p99


def judged(by: Mapping[str, Figures]) -> Iterator[tuple[str, float, MedianInterval]]:
    """Each ratio that a claim limits: its words, the limit and the ratio."""
    for claim in CLAIMS:
        limits = (claim.p50_limit, claim.p99_limit)
        for quantile, ratio, limit in zip(("p50", "p99"), ratios(by, claim), limits, strict=True):
            yield f"{claim.words}: {quantile}", limit, ratio


def failures(by: Mapping[str, Figures]) -> list[str]:
    """The claims that do not hold, in words."""
    return [
        f"{words} ×{ratio.median:.3f} (×{ratio.low:.3f} to ×{ratio.high:.3f}), at most ×{limit:.2f}"
        for words, limit, ratio in judged(by)
        if ratio.high > limit
    ]


def undecided(by: Mapping[str, Figures]) -> bool:
    """Whether more rounds could decide: a claim fails by the interval alone, and no claim fails by its median."""
    failing = [(limit, ratio) for _, limit, ratio in judged(by) if ratio.high > limit]
    return bool(failing) and all(ratio.median <= limit for limit, ratio in failing)


class CThreads:
    """Plain C threads that launch in this process, in the context that is current."""

    def __init__(self, folder: Path, kernel: int, streams: Sequence[int]) -> None:
        """Compile launch.c into ``folder`` and load it; launch ``kernel`` on ``streams``. Raises SystemExit."""
        built = folder / "launch.so"
        compiler = next(filter(None, map(shutil.which, ("gcc", "cc"))), None)
        if compiler is None:
            raise SystemExit("there is no gcc and no cc to build the C threads with")
        subprocess.run([compiler, *FLAGS, "-o", str(built), str(SOURCE), "-ldl"], check=True)
        self._library = ctypes.CDLL(str(built))
        self._library.launch_run.argtypes = (ctypes.c_int, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p)
        self._library.launch_prepare.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
        status = self._library.launch_prepare(kernel, len(streams), (ctypes.c_void_p * len(streams))(*streams))
        if status:
            raise SystemExit(f"the C threads cannot be prepared: CUDA returned {status}")

    def samples(self, cpus: Sequence[int], seconds: float) -> Histogram:
        """What threads on these CPUs measure together in ``seconds``."""
        calls, warm = (max(1, round(s * 1e9 / PERIOD_NS)) for s in (seconds, WARM_UP_S))
        # Written beforehand, so that no store between two calls faults.
        samples = np.full(len(cpus) * calls, -1, dtype=np.int64)
        places = (ctypes.c_int * len(cpus))(*cpus)
        status = self._library.launch_run(len(cpus), places, PERIOD_NS, calls, warm, samples.ctypes.data)
        if status:
            raise SystemExit(f"the C threads failed: CUDA returned {status}")
        counts = np.bincount(indices(samples), minlength=BUCKETS).astype(np.uint64)
        return Histogram.of_counts(counts, int(samples.max()))


class _Tables(ProbeThreads):
    """The probes' threads, and their op tables."""

    def __init__(self) -> None:
        super().__init__()
        self.of_probes: list[OpTable] = []

    def add(self, probe: Probe, table: OpTable, board: Board, init: Callable[[], None] | None = None) -> None:
        self.of_probes.append(table)
        super().add(probe, table, board, init)


class Loops:
    """Three probes in this very process, so that a Python thread can be busy beside them; parked when not asked."""

    def __init__(self) -> None:
        from stallprobes.engine.cuda.backend import create

        program = Program((launch_op(Placement().resolved_stream()),), aligned=True)
        probes = [Probe(f"launch-{n}", "launch", Role.VICTIM, program, PERIOD_NS, "launch") for n in range(3)]
        self._board = Board.create(BoardLayout.of(probes))
        self._backend = create()
        tables = self._backend._workers = _Tables()
        self.info = self._backend.prepare(probes, self._board, Options())
        rows = [table.ops[0] for table in tables.of_probes]
        # The first and the ninth argument of cuLaunchKernel.
        self.kernel: int = rows[0].arguments[0]
        self.streams: list[int] = [row.arguments[8] for row in rows]
        self._backend.start()
        names = {path.read_text().strip(): int(path.parent.name) for path in Path("/proc/self/task").glob("*/comm")}
        self._threads = [names[probe.name] for probe in probes]
        # For the C threads: the probes' context.
        retain_primary_context()

    def samples(self, cpus: Sequence[int], seconds: float) -> Histogram:
        """What the first of them measure together in ``seconds``, one on each of these CPUs."""
        parts = [self._board[number] for number in range(len(cpus))]
        for thread, cpu in zip(self._threads, cpus, strict=False):
            os.sched_setaffinity(thread, {cpu})
        for part in parts:
            part.words.run = 1
        time.sleep(WARM_UP_S)
        before = self._board.snapshot()
        time.sleep(seconds)
        window = self._board.snapshot().minus(before)
        for part in parts:
            part.words.run = 0
        self._await_parked()
        merged = Histogram.empty()
        for part in parts:
            merged = merged.merge(window[part.name].channels[CALL])
        return merged

    def close(self) -> None:
        """End the probes' threads."""
        self._board.header.quit = 1
        self._backend.stop(ENDED_WITHIN_S)
        self._board.close()

    def _await_parked(self) -> None:
        until = time.monotonic() + ENDED_WITHIN_S
        while any(
            self._board[number].words.state != ProbeState.PARKED for number in range(len(self._board.layout.names))
        ):
            if time.monotonic() > until:
                troubles = "; ".join(failure.sentence for failure in self._backend.poll())
                raise SystemExit(f"a probe did not come to rest: {troubles or 'its call has not returned'}")
            time.sleep(0.001)


def retain_primary_context() -> None:
    """Make the primary context of the first GPU current in this thread. Raises SystemExit."""
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    status = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or driver.cuCtxSetCurrent(context)
    if status:
        raise SystemExit(f"the primary context cannot be used: CUDA returned {status}")


@contextmanager
def busy_python() -> Iterator[None]:
    """A thread that counts in Python and holds the GIL whenever it can."""
    ended = threading.Event()

    def count() -> None:
        number = 0
        while not ended.is_set():
            for _ in range(10_000):
                number += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measured(c: CThreads, loops: Loops, rounds: int, seconds: float) -> dict[str, Figures]:
    """Figures by name of ``rounds``, or of as many more as MOST_REPEATS allows while a claim is undecided."""
    by: dict[str, list[Histogram]] = {name: [] for name in NAMES}
    chance = random.Random(1)
    for _ in range(MOST_REPEATS):
        _measure(by, c, loops, rounds, seconds, chance)
        found = {name: figures(histograms) for name, histograms in by.items()}
        if not undecided(found):
            break
    return found


def _measure(
    by: Mapping[str, list[Histogram]], c: CThreads, loops: Loops, rounds: int, seconds: float, chance: random.Random
) -> None:
    """Add ``rounds``. C and loop alternate, and so does which of them is first."""
    sides: dict[str, Callable[[Sequence[int], float], Histogram]] = {"C": c.samples, "loop": loops.samples}
    for number in range(rounds):
        one, three = (chance.sample(sorted(os.sched_getaffinity(0)), count) for count in (1, 3))
        order = ("C", "loop") if number % 2 else ("loop", "C")
        for side in order:
            by[BY_C if side == "C" else BY_LOOP].append(sides[side](one, seconds))
        for side in order:
            by[BY_THREE_C if side == "C" else BY_THREE_LOOPS].append(sides[side](three, seconds))
        with busy_python():
            for side in order:
                by[BY_C_BUSY if side == "C" else BY_LOOP_BUSY].append(sides[side](one, seconds))


def show(by: Mapping[str, Figures]) -> None:
    """The table, with the ratios that are judged."""
    figures = f"{'timed by':26} {'p50':>7} {'p99':>7} {'p99.9':>7} {'max':>8} {'calls':>8}"
    print(f"{figures}   ratios of p50 and p99, with their 95 % intervals")
    for name, one in by.items():
        line = f"{name:26} {one.p50:7.0f} {one.p99:7.0f} {one.p999:7.0f} {one.max:8.0f} {one.calls:8}"
        claim = next((claim for claim in CLAIMS if claim.name == name), None)
        if claim is not None:
            for ratio in ratios(by, claim):
                line += f"   ×{ratio.median:.3f} (×{ratio.low:.3f} to ×{ratio.high:.3f})"
        print(line)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 3600")
    return value


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=_positive, default=0.2, help="length of a round")
    parser.add_argument("--rounds", type=int, default=100, choices=range(1, 1000), metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    given = parser.parse_args()
    try:
        loops = Loops()
    except (BackendError, Unsupported) as error:
        raise SystemExit(str(error)) from error
    with tempfile.TemporaryDirectory() as folder:
        c = CThreads(Path(folder), loops.kernel, loops.streams)
        print(f"{loops.info['devices']}")
        try:
            by = measured(c, loops, given.rounds, given.seconds)
        finally:
            loops.close()
    rounds = len(by[BY_LOOP].p50s)
    print(f"ns; medians of {rounds} pairs of rounds of {given.seconds:g} s, a launch each 20 us")
    show(by)
    failed = failures(by)
    for sentence in failed:
        print(f"FAILED: {sentence}")
    if given.json is not None:
        document = {
            "rounds": rounds,
            "seconds": given.seconds,
            "period_ns": PERIOD_NS,
            "devices": loops.info["devices"],
            "ns": {name: asdict(one) for name, one in by.items()},
            "ratios": {claim.words: [asdict(ratio) for ratio in ratios(by, claim)] for claim in CLAIMS},
            "failures": failed,
        }
        given.json.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
