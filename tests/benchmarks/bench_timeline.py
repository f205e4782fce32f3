"""The timeline against a C program with CUPTI of its own, what it costs, and what it loses, on a real GPU.

python tests/benchmarks/bench_timeline.py [--rounds N] [--seconds S] [--minute S] [--json FILE]

Needs a GPU, gcc or cc, and the package nvidia-cuda-cupti. Parts, each with its claims:

- agreement: copies of 1 MiB in a secondary context at 1 kHz, by the C program and by the engine in turn: alone, beside
  the spin kernel in the same context, and beside it in the primary one. ``start`` within 1 us at the median where no
  other context runs and within 3 % beside one, ``gpu`` within 0.2 us.
- cost: the median of a launch while the timeline was never on, then on and off in turn: at most 1.2 us more back to
  back, and 2 us more at 1 kHz by a thread that polls the clock between its calls. A thread that sleeps between them
  pays more, in the C program too: at most 1 us more than what records of kernels alone add there. Once it is off again,
  at most 5 % and 0.2 us more than before it was on for the first time. The differences are those of neighbours, since
  medians at 1 kHz vary by a factor of two between seconds; a claim fails if the whole 95 % interval of the difference's
  median breaks it.
- losses: six probes at 1 kHz for a minute: no record lost, at most 1 us of the collector for each record.

Exits 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.median_interval import MedianInterval
from stallprobes import catalog
from stallprobes.catalog import Placement
from stallprobes.engine import board
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.errors import EngineFailed
from stallprobes.latency.window import Window
from stallprobes.model import MS, SECONDARY, Channel, Phase, Probe
from stallprobes.native.layouts.schedule import LEAD_DEFAULT_NS

SOURCE = Path(__file__).with_name("timeline.c")
DECLARATIONS = Path(__file__).parents[1] / "data" / "cupti"
PTX = Path(__file__).parents[2] / "probes" / "stallprobes" / "engine" / "cuda" / "kernels.ptx"
BACKEND = "cuda"
SWITCH_S = 60.0
WARM_UP_S = 0.3
# In the order of the C program's modes: with which probe beside the copies.
MODES = ("alone", "same", "other")
# How a launch is made whose cost is measured.
BACK_TO_BACK, AWAKE, ASLEEP = "back to back", "1 kHz, awake", "1 kHz, asleep"
SIX = ("launch", "d2d", "d2h-pinned", "h2d-pinned", "graph-launch", "d2h-pageable")


@dataclass(frozen=True)
class Agreement:
    """Medians of ``start`` and ``gpu`` in ns, of the C program and of the engine, over the rounds."""

    mode: str
    start_c: float
    start_engine: float
    gpu_c: float
    gpu_engine: float

    def failures(self) -> Iterator[str]:
        """The claims that do not hold."""
        off = abs(self.start_engine - self.start_c)
        limit = 1_000.0 if self.mode != "other" else 0.03 * self.start_c
        if off > limit:
            yield f"{self.mode}: start {self.start_engine:.0f} ns against {self.start_c:.0f} ns in C"
        if abs(self.gpu_engine - self.gpu_c) > 200:
            yield f"{self.mode}: gpu {self.gpu_engine:.0f} ns against {self.gpu_c:.0f} ns in C"


def signed(found: MedianInterval) -> str:
    """The median of differences in ns with its interval."""
    return f"{found.median:+.0f} ({found.low:+.0f} to {found.high:+.0f})"


@dataclass(frozen=True)
class Cost:
    """Medians of a launch in ns before the timeline was on for the first time, while it was on, and while off again.

    ``more`` is on against off again, ``left`` off again against never on.
    """

    rate: str
    never: float
    on: float
    off_again: float
    more: MedianInterval
    left: MedianInterval
    limit_ns: float

    def failures(self) -> Iterator[str]:
        """The claims that do not hold."""
        if self.more.low > self.limit_ns:
            yield f"{self.rate}: {signed(self.more)} ns more while on, at most {self.limit_ns:.0f}"
        if self.left.low > 200 + 0.05 * self.never:
            yield f"{self.rate}: {signed(self.left)} ns more after it was on"


def probe(entry: str, placement: Placement | None = None, name: str | None = None, period_ns: int = MS) -> Probe:
    """A probe of the catalog under a name."""
    made = catalog.entries()[entry].probe(placement or Placement())
    return replace(made, name=name or entry, period_ns=period_ns)


def cupti_files() -> tuple[Path, Path]:
    """The folder of CUPTI's header, and the library beside it. Raises SystemExit without the package."""
    from importlib.util import find_spec

    spec = find_spec("nvidia")
    for place in () if spec is None else spec.submodule_search_locations or ():
        for header in Path(place).glob("*/include/cupti_activity.h"):
            libraries = sorted(header.parents[1].glob("lib/libcupti.so.*"))
            if libraries:
                return header.parent, libraries[0]
    raise SystemExit("there is no CUPTI header: pip install nvidia-cuda-cupti")


def build(folder: Path, include: Path) -> Path:
    """Compile timeline.c into ``folder``. Raises SystemExit without a compiler."""
    compiler = next(filter(None, map(shutil.which, ("gcc", "cc"))), None)
    if compiler is None:
        raise SystemExit("there is no gcc or cc to build the C program with")
    text = (include / "cupti_activity.h").read_text(encoding="utf-8", errors="replace")
    newest = max(re.findall(r"^\s*} CUpti_ActivityMemcpy(\d+);", text, re.MULTILINE), key=int)
    program = folder / "timeline"
    flags = ["-std=gnu11", "-O2", "-pthread", f"-DCOPY=CUpti_ActivityMemcpy{newest}"]
    folders = [f"-I{DECLARATIONS}", "-isystem", str(include)]
    subprocess.run([compiler, *flags, *folders, "-o", str(program), str(SOURCE), "-ldl"], check=True)
    return program


def by_c(program: Path, library: Path, mode: str, seconds: float) -> tuple[float, float]:
    """Medians of ``start`` and ``gpu`` in ns by the C program."""
    turns, warm = round(seconds * 1000), round(WARM_UP_S * 1000)
    command = [str(program), str(library), str(PTX), mode, str(turns), str(warm)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the C program failed: {done.stderr.decode(errors='replace').strip()}")
    rows = np.frombuffer(done.stdout, dtype=np.int64).reshape(-1, 4)
    rows = rows[rows[:, 2] > 0]
    return float(np.median(rows[:, 2] - rows[:, 1])), float(np.median(rows[:, 3] - rows[:, 2]))


def cost_in_c(program: Path, library: Path, mode: str, rounds: int, seconds: float) -> MedianInterval:
    """What records of kernels add to a launch at 1 kHz in the C program, in ns: windows of neighbours compared."""
    command = [str(program), str(library), str(PTX), mode, str(rounds), str(max(round(seconds * 1000), 1))]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the C program failed: {done.stderr.decode(errors='replace').strip()}")
    rows = np.frombuffer(done.stdout, dtype=np.int64).reshape(-1, 2)
    return MedianInterval.of((rows[:, 1] - rows[:, 0]).tolist())


def window(session: Session, name: str, seconds: float) -> Window:
    """The window of a probe over ``seconds``, after the warm-up."""
    session.run_for(WARM_UP_S)
    before = session.snapshot()
    session.run_for(seconds)
    return session.snapshot().minus(before)[name]


def median(found: Window, phase: Phase) -> float:
    """The median of a phase in ns. Raises SystemExit without a sample."""
    histogram = found.channels.get(Channel(phase))
    value = None if histogram is None else histogram.percentile(50)
    if value is None:
        raise SystemExit(f"the window has no {phase}")
    return value


def switched_on(session: Session) -> None:
    """Switch the timeline on. Raises SystemExit where it does not work."""
    status = session.switch_timeline(True, SWITCH_S)
    if status is None or not status.on:
        raise SystemExit("the timeline was not on in time" if status is None else status.sentence)


def agreement(program: Path, library: Path, rounds: int, seconds: float) -> list[Agreement]:
    """The C program and the engine in turn, for each mode."""
    copy = probe("d2d", Placement(context=SECONDARY), "copy")
    spins = {"same": probe("spin", Placement(context=SECONDARY), "same"), "other": probe("spin", None, "other")}
    found: dict[str, list[tuple[float, ...]]] = {mode: [] for mode in MODES}
    with Session([copy, *spins.values()], BACKEND, options=Options()) as session:
        switched_on(session)
        for _ in range(rounds):
            for mode in MODES:
                in_c = by_c(program, library, mode, seconds)
                session.set_running({"copy": True, **{name: name == mode for name in spins}})
                seen = window(session, "copy", seconds)
                session.set_running({"copy": False, **dict.fromkeys(spins, False)})
                session.run_for(WARM_UP_S)
                found[mode].append((in_c[0], median(seen, Phase.START), in_c[1], median(seen, Phase.GPU)))
    return [
        Agreement(mode, *(statistics.median(column) for column in zip(*rows, strict=True)))
        for mode, rows in found.items()
    ]


def costs(rounds: int, seconds: float, asleep_in_c: MedianInterval) -> list[Cost]:
    """A launch with the timeline never on, then on and off in turn: back to back, and at 1 kHz awake and asleep."""
    result = []
    for rate, period_ns, lead_ns, limit_ns in (
        (BACK_TO_BACK, 0, LEAD_DEFAULT_NS, 1_200.0),
        (AWAKE, MS, MS, 2_000.0),
        (ASLEEP, MS, LEAD_DEFAULT_NS, max(asleep_in_c.high + 1_000.0, 2_000.0)),
    ):
        with (
            patch.object(board, "LEAD_DEFAULT_NS", lead_ns),
            Session([probe("launch")], BACKEND, options=Options()) as session,
        ):
            session.set_running(["launch"])
            session.set_period("launch", period_ns)

            def launch(session: Session = session) -> float:
                return median(window(session, "launch", seconds), Phase.CALL)

            never = [launch() for _ in range(rounds)]
            on, off = [], []
            for _ in range(rounds):
                switched_on(session)
                on.append(launch())
                session.switch_timeline(False, SWITCH_S)
                off.append(launch())
        # Each time that it was on lies between two that it was off, but for the first.
        more = [on[0] - off[0]] + [on[i] - (off[i - 1] + off[i]) / 2 for i in range(1, rounds)]
        left = [after - statistics.median(never) for after in off]
        never_ns, on_ns, off_ns = map(statistics.median, (never, on, off))
        result.append(Cost(rate, never_ns, on_ns, off_ns, MedianInterval.of(more), MedianInterval.of(left), limit_ns))
    return result


def losses(seconds: float) -> tuple[dict[str, float], list[str]]:
    """Counts of six probes at 1 kHz for ``seconds``, and the claims that do not hold."""
    with Session([probe(name) for name in SIX], BACKEND, options=Options(timeline=True)) as session:
        session.set_running(SIX)
        position = session.timeline_rows().position
        for _ in range(round(seconds * 2)):
            session.run_for(0.5)
            rows = session.timeline_rows(position)
            position = rows.position
        found, cost = rows.losses, rows.cost
    each = (cost.decode_ns + cost.flush_ns) / max(cost.records, 1)
    counts = {
        "records": cost.records,
        "lost": found.lost,
        "exhausted": found.exhausted,
        "unmatched": found.unmatched,
        "decode_ns_per_record": cost.decode_ns / max(cost.records, 1),
        "all_ns_per_record": each,
    }
    failed = [f"{found.lost} records were lost"] if found.lost else []
    if cost.decode_ns > 1_000 * cost.records:
        failed.append(f"{counts['decode_ns_per_record']:.0f} ns of the collector for each record, at most 1000")
    return counts, failed


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, choices=range(1, 100), metavar="N")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    parser.add_argument("--minute", type=float, default=60.0, help="length of the part that counts losses")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args(given)
    include, library = cupti_files()
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder), include)
        agreements = agreement(program, library, options.rounds, options.seconds)
        in_c = {
            rate: cost_in_c(program, library, mode, 4 * options.rounds, options.seconds / 2)
            for rate, mode in ((AWAKE, "launch-awake"), (ASLEEP, "launch"))
        }
    print(f"{'copies':8} {'start in C':>12} {'engine':>10} {'gpu in C':>10} {'engine':>10}   ns, medians")
    for one in agreements:
        print(f"{one.mode:8} {one.start_c:12.0f} {one.start_engine:10.0f} {one.gpu_c:10.0f} {one.gpu_engine:10.0f}")
    found = costs(4 * options.rounds, options.seconds / 2, in_c[ASLEEP])
    print(f"{'launch':14} {'never on':>8} {'on':>8} {'off again':>10}   ns, medians; on against off; off against never")
    for cost in found:
        print(f"{cost.rate:14} {cost.never:8.0f} {cost.on:8.0f} {cost.off_again:10.0f}", end="")
        print(f"   {signed(cost.more)}   {signed(cost.left)}")
    for rate, more in in_c.items():
        print(f"{rate} in C, records of kernels alone: {signed(more)}")
    counts, failed = losses(options.minute)
    print("  ".join(f"{name} {value:.0f}" for name, value in counts.items()))
    failed += [text for one in agreements for text in one.failures()]
    failed += [text for cost in found for text in cost.failures()]
    for sentence in failed:
        print(f"FAILED: {sentence}")
    if options.json is not None:
        document = {
            "agreement": [vars(one) for one in agreements],
            "cost": [asdict(one) for one in found],
            "cost_in_c": {rate: asdict(more) for rate, more in in_c.items()},
            "losses": counts,
            "failures": failed,
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EngineFailed as error:
        sys.exit(str(error))
