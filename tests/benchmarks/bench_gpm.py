"""Whether reading NVML's GPM counters disturbs the calls that stallscope measures, in one process on a GPU.

python tests/benchmarks/bench_gpm.py [--windows N] [--seed N] [--aggressors NAME,...] [--sim] [--json FILE]

The default victims run, and windows of 1 s alternate: one with the counters read at the screen's period beside NVML's
other values, one with the other values only; chance decides which of a pair comes first. For each victim and phase it
prints p50 and p99 without the counters, and the median of the paired changes with its 95 % interval. Exits 1 where an
interval is not within 2 % at p50 or 10 % at p99; and says how many samples of the counters had values. With --sim it
runs on the simulated GPU, whose calls nothing disturbs, to test itself.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "app"))
sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import numpy as np

from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.engine.snapshot import Snapshot
from stallprobes.machine import gpm, gpus
from stallprobes.machine.telemetry import FIELDS, Telemetry, TelemetryField
from stallprobes.model import Phase, Role
from stallprobes.recording.observation import CUDA, SIM
from stallscope.tui import probe_sets

WINDOW_S = 1.0
# The time after a switch that belongs to neither kind.
PAUSE_S = 0.05
# The percentage of a quantile, its largest change, and the fewest calls of a window that have one.
QUANTILES = {"p50": (50, 0.02, 50), "p99": (99, 0.1, 200)}
RESAMPLES = 2000


# A probe's channel, and a quantile.
Figure = tuple[str, str]
# The values in ns of pairs of windows: without the counters, and with them.
Pairs = list[tuple[float, float]]


class SwitchedCounters:
    """The counters as a field of Telemetry, read only while ``on``."""

    def __init__(self) -> None:
        self.on = False
        self.samples = 0
        self.with_values = 0
        self._counters = gpm.GpmCounters()

    def read(self, module: Any, handle: Any) -> Mapping[str, float | None]:
        """The values of the counters; None of each while ``on`` is False."""
        if not self.on:
            return dict.fromkeys(gpm.METRICS)
        values = self._counters.read(module, handle)
        self.samples += 1
        self.with_values += values["sm_active_percent"] is not None
        return values


def measured(chosen: argparse.Namespace, counters: SwitchedCounters) -> dict[Figure, Pairs]:
    """The pairs of windows of each figure."""
    rng = random.Random(chosen.seed)
    probes = probe_sets.default_probes()
    uuid = None if chosen.sim else gpus.choose(None, gpus.survey(), 1)[0].uuid
    session = Session(probes, backend=SIM if chosen.sim else CUDA, options=Options(gpu=uuid, seed=chosen.seed))
    field = TelemetryField("gpm", gpm.PERIOD_S, counters.read, slow=True, names=tuple(gpm.METRICS))
    telemetry = None if uuid is None else Telemetry(uuid, fields=(*FIELDS, field))
    pairs: dict[Figure, Pairs] = defaultdict(list)
    try:
        session.start()
        if telemetry is not None:
            telemetry.start()
        aggressors = {name for name in chosen.aggressors.split(",") if name}
        session.set_running(
            [probe.name for probe in probes if probe.role is not Role.AGGRESSOR or probe.name in aggressors]
        )
        session.run_for(2.0)
        for number in range(chosen.windows // 2):
            pair: dict[bool, dict[Figure, float]] = {}
            order = [False, True]
            rng.shuffle(order)
            for counters.on in order:
                session.run_for(PAUSE_S)
                before = session.snapshot()
                session.run_for(WINDOW_S)
                now = session.snapshot()
                pair[counters.on] = percentiles(before, now)
            for key in pair[False].keys() & pair[True].keys():
                pairs[key].append((pair[False][key], pair[True][key]))
            if number % 10 == 9:
                print(f"  {2 * number + 2} windows", file=sys.stderr, flush=True)
    finally:
        if telemetry is not None:
            telemetry.stop()
        session.stop()
    return pairs


def percentiles(before: Snapshot, now: Snapshot) -> dict[Figure, float]:
    """The percentiles in ns of the calls between two snapshots."""
    found = {}
    for name, window in now.minus(before).items():
        for channel, histogram in window.channels.items():
            if channel.phase not in (Phase.CALL, Phase.WAIT):
                continue
            for quantile, (percent, _, least) in QUANTILES.items():
                value = histogram.percentile_or_none(percent, least)
                if value:
                    found[" ".join((name, channel.phase, channel.label)).strip(), quantile] = value
    return found


def interval(pairs: Pairs, rng: np.random.Generator) -> tuple[float, float, float]:
    """The paired change and its 95 % interval: the median of the ratios, by the bootstrap.

    A call takes up to twice as long for seconds at a time, whatever is read, so a mean tells of those times.
    """
    ratios = np.array([on / off for off, on in pairs])
    medians = np.median(rng.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(np.median(ratios)) - 1, float(low) - 1, float(high) - 1


def main() -> int:
    """Run the benchmark and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--aggressors", default="")
    parser.add_argument("--sim", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    counters = SwitchedCounters()
    pairs = measured(chosen, counters)
    rng = np.random.default_rng(chosen.seed)
    rows = []
    for (channel, quantile), values in sorted(pairs.items()):
        _, most, _ = QUANTILES[quantile]
        change, low, high = interval(values, rng)
        without = float(np.median([off for off, _ in values]))
        within = -most <= low and high <= most
        rows.append(
            {"channel": channel, "quantile": quantile, "pairs": len(values), "without_ns": without}
            | {"change": change, "low": low, "high": high, "within": within}
        )
        print(
            f"{channel:32} {quantile} {without / 1000:10.2f} µs  {change:+7.2%}  {low:+7.2%} to {high:+7.2%}"
            f"  {len(values)} pairs{'' if within else '  NOT WITHIN'}"
        )
    print(f"{counters.samples} samples of the counters, {counters.with_values} with values")
    if chosen.json is not None:
        found = {"rows": rows, "samples": counters.samples, "pairs": {" ".join(key): one for key, one in pairs.items()}}
        chosen.json.write_text(json.dumps(found) + "\n")
    return 0 if rows and all(row["within"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
