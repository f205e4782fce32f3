"""cuLaunchKernel timed by the compiled loop and by a C program, in alternating rounds, on a real GPU.

python tests/benchmarks/bench_launch.py [--seconds S] [--rounds N] [--json FILE]

Needs a GPU and gcc, cc or nvcc. Every thread launches an empty kernel each 20 us on a stream of its own and waits for
nothing. Each figure is the median over the rounds of that round's percentile. Both sides' samples go through the same
buckets, so that their width favours neither.

Exits 1 when the loop is slower than C, when a busy Python thread in its process makes it slower, or when three probes
disturb each other more than three C threads do. Slower: a p50 more than 5 % or a p99 more than 25 % higher; with three
threads a p50 more than 10 % higher. The ratios are those of neighbouring rounds, since a machine can be several times
as slow for a second; a claim fails if the whole 95 % interval of the median ratio breaks it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.median_interval import MedianInterval
from stallprobes.catalog import Placement
from stallprobes.catalog.kernels import launch_op
from stallprobes.engine import layout
from stallprobes.engine.backend import Options
from stallprobes.engine.board import Board
from stallprobes.engine.layout import BoardLayout, ProbeState
from stallprobes.errors import BackendError, Unsupported
from stallprobes.latency.histogram import Histogram
from stallprobes.model import US, Channel, Phase, Probe, Program, Role

CALL = Channel(Phase.CALL)
PERIOD_NS = 20 * US
WARM_UP_S = 0.1
ENDED_WITHIN_S = 2.0
SOURCE = Path(__file__).with_name("launch.c")
PTX = Path(__file__).parents[2] / "probes" / "stallprobes" / "engine" / "cuda" / "kernels.ptx"

BY_C, BY_LOOP = "C", "loop"
BY_C_BUSY, BY_LOOP_BUSY = "C, busy Python elsewhere", "loop, busy Python thread"
BY_THREE_C, BY_THREE_LOOPS = "C, three threads", "loop, three probes"
NAMES = (BY_C, BY_LOOP, BY_C_BUSY, BY_LOOP_BUSY, BY_THREE_C, BY_THREE_LOOPS)
P99_LIMIT = 1.25


@dataclass(frozen=True)
class Claim:
    """What must hold of ``name`` against ``base``, as ratios of p50 and p99."""

    name: str
    base: str
    p50_limit: float
    words: str


CLAIMS = (
    Claim(BY_LOOP, BY_C, 1.05, "the loop against C"),
    Claim(BY_LOOP_BUSY, BY_LOOP, 1.05, "the loop with a busy Python thread beside it against the loop alone"),
    Claim(BY_THREE_LOOPS, BY_THREE_C, 1.10, "three probes against three C threads"),
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


def failures(by: Mapping[str, Figures]) -> list[str]:
    """The claims that do not hold, in words."""
    found = []
    for claim in CLAIMS:
        now, base = by[claim.name], by[claim.base]
        for quantile, ours, others, limit in (
            ("p50", now.p50s, base.p50s, claim.p50_limit),
            ("p99", now.p99s, base.p99s, P99_LIMIT),
        ):
            ratio = MedianInterval.of([one / other for one, other in zip(ours, others, strict=True)])
            if ratio.low > limit:
                one, other = statistics.median(ours), statistics.median(others)
                found.append(
                    f"{claim.words}: {quantile} {one:.0f} ns against {other:.0f} ns, "
                    f"×{ratio.median:.2f} (×{ratio.low:.2f} to ×{ratio.high:.2f}), at most ×{limit:.2f}"
                )
    return found


def build(folder: Path) -> Path:
    """Compile launch.c into ``folder``. Raises SystemExit without a compiler."""
    program = folder / "launch"
    compiler = next(filter(None, map(shutil.which, ("gcc", "cc", "nvcc"))), None)
    if compiler is None:
        raise SystemExit("there is no gcc, cc or nvcc to build the C program with")
    flags = ["-O2", "-Xcompiler", "-pthread"] if Path(compiler).name == "nvcc" else ["-O2", "-pthread"]
    subprocess.run([compiler, *flags, "-o", str(program), str(SOURCE), "-ldl"], check=True)
    return program


def by_c(program: Path, threads: int, seconds: float) -> Histogram:
    """The samples of all threads of the C program, whose process then ends."""
    iterations, warm = (str(max(1, round(s * 1e9 / PERIOD_NS))) for s in (seconds, WARM_UP_S))
    command = [str(program), str(PTX), str(threads), str(PERIOD_NS), iterations, warm]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the C program failed: {done.stderr.decode(errors='replace').strip()}")
    return Histogram.of(np.frombuffer(done.stdout, dtype=np.int64).tolist())


class Loops:
    """Three probes in this very process, so that a Python thread can be busy beside them; parked when not asked."""

    def __init__(self) -> None:
        from stallprobes.engine.cuda.backend import create

        program = Program((launch_op(Placement()),))
        probes = [Probe(f"launch-{n}", "launch", Role.VICTIM, program, PERIOD_NS, "launch") for n in range(3)]
        self._board = Board.create(BoardLayout.of(probes))
        self._backend = create()
        self.info = self._backend.prepare(probes, self._board, Options())
        self._backend.start()

    def samples(self, probes: int, seconds: float) -> Histogram:
        """What the first ``probes`` of them measure together in ``seconds``."""
        parts = [self._board[number] for number in range(probes)]
        for part in parts:
            part.words[layout.RUN] = 1
        time.sleep(WARM_UP_S)
        before = self._board.snapshot()
        time.sleep(seconds)
        window = self._board.snapshot().minus(before)
        for part in parts:
            part.words[layout.RUN] = 0
        self._await_parked()
        merged = Histogram.empty()
        for part in parts:
            merged = merged.merge(window[part.name].channels[CALL])
        return merged

    def close(self) -> None:
        """End the probes' threads."""
        self._board.header[layout.QUIT] = 1
        self._backend.stop(ENDED_WITHIN_S)
        self._board.close()

    def _await_parked(self) -> None:
        until = time.monotonic() + ENDED_WITHIN_S
        while any(self._board[number].words[layout.STATE] != ProbeState.PARKED for number in range(len(self._board))):
            if time.monotonic() > until:
                troubles = "; ".join(failure.sentence for failure in self._backend.poll())
                raise SystemExit(f"a probe did not come to rest: {troubles or 'its call has not returned'}")
            time.sleep(0.001)


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


def measured(program: Path, loops: Loops, rounds: int, seconds: float) -> dict[str, Figures]:
    """Figures by name: one thread first, then three, each time C and loop in turn."""
    by: dict[str, list[Histogram]] = {name: [] for name in NAMES}
    for _ in range(rounds):
        by[BY_C].append(by_c(program, 1, seconds))
        by[BY_LOOP].append(loops.samples(1, seconds))
        with busy_python():
            # What one more busy core costs by itself: it is shown, and nothing is judged by it.
            by[BY_C_BUSY].append(by_c(program, 1, seconds))
            by[BY_LOOP_BUSY].append(loops.samples(1, seconds))
    for _ in range(rounds):
        by[BY_THREE_C].append(by_c(program, 3, seconds))
        by[BY_THREE_LOOPS].append(loops.samples(3, seconds))
    return {name: figures(histograms) for name, histograms in by.items()}


def show(by: Mapping[str, Figures]) -> None:
    """The table, with the ratios that are judged."""
    print(f"{'timed by':26} {'p50':>7} {'p99':>7} {'p99.9':>7} {'max':>8} {'calls':>8}   p50 and p99 against")
    for name, one in by.items():
        line = f"{name:26} {one.p50:7.0f} {one.p99:7.0f} {one.p999:7.0f} {one.max:8.0f} {one.calls:8}"
        claim = next((claim for claim in CLAIMS if claim.name == name), None)
        if claim is not None:
            base = by[claim.base]
            line += f"   {one.p50 / base.p50:.2f} {one.p99 / base.p99:.2f}  {claim.base}"
        print(line)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 3600")
    return value


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=_positive, default=1.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=7, choices=range(1, 1000), metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    given = parser.parse_args()
    try:
        loops = Loops()
    except (BackendError, Unsupported) as error:
        raise SystemExit(str(error)) from error
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        print(f"{loops.info['devices']}")
        print(f"ns; medians of {given.rounds} alternating rounds of {given.seconds:g} s, a launch each 20 us")
        try:
            by = measured(program, loops, given.rounds, given.seconds)
        finally:
            loops.close()
    show(by)
    failed = failures(by)
    for sentence in failed:
        print(f"FAILED: {sentence}")
    if given.json is not None:
        document = {
            "rounds": given.rounds,
            "seconds": given.seconds,
            "period_ns": PERIOD_NS,
            "devices": loops.info["devices"],
            "ns": {name: asdict(one) for name, one in by.items()},
            "failures": failed,
        }
        given.json.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
