"""What reading NVML costs a program on a GPU: the time of its steps with the readings of ``watch`` and without.

A process of its own reads what ``watch`` reads of a GPU (gpu_counters.py, gpu_clocks.py), in turns of 0.75 s in an
order by chance: not at all, once, and every 0.1 s. For a training and a decode loop of a graph it prints the ratio of
the median and of the mean time of a step to that without readings: the median over the rounds, with its 95 % interval
by the bootstrap. From both kinds follows what one reading a second, as of ``watch``, costs the mean step at most. Exits
1 if that is more than 0.2 %.

python tests/benchmarks/bench_counter_cost.py [--seconds S]
"""

from __future__ import annotations

import argparse
import json
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

from stallprobes.machine import nvml
from stallprobes.watch import gpu_clocks, gpu_counters

# A turn, its begin that does not count, and the time from its begin to the first reading (s).
TURN_S, PAUSE_S, FIRST_S = 0.75, 0.05, 0.2
# Time (s) between two readings of a turn, by its kind; 0: none.
KINDS = {"none": 0.0, "once": 1.0, "ten times a second": 0.1}
RESAMPLES, MOST = 4000, 0.002
# Readings a second of the turns that have some.
RATES = {kind: (1 + (TURN_S - FIRST_S) // period) / TURN_S for kind, period in KINDS.items() if period}


def read_on_demand(uuid: str) -> None:
    """Read the GPU at the period that each line of the input has. Prints how often, and how long it took."""
    module = nvml.load()
    handle = module.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    fields = [each for made in (gpu_counters, gpu_clocks) for each in made._fields() if each.period_s <= 10]
    took: list[float] = []
    values: dict[str, Any] = {}
    period, due = 0.0, 0.0
    while True:
        wait = max(0.0, due - time.monotonic()) if period else None
        if select.select([sys.stdin], [], [], wait)[0]:
            line = sys.stdin.readline()
            if not line:
                break
            period, due = float(line), time.monotonic() + FIRST_S
            continue
        begin = time.monotonic()
        for each in fields:
            try:
                values[each.name] = each.read(module, handle)
            except module.NVMLError as error:
                values[each.name] = error
        took.append(time.monotonic() - begin)
        due += period
    last = {name: str(value)[:200] for name, value in values.items()}
    print(json.dumps({"readings": len(took), "median_s": statistics.median(took or [0.0]), "last": last}))


def rounds_of(step: Callable[[], Any], seconds: float, orders: IO[str]) -> Iterator[dict[str, list[float]]]:
    """The times of the steps (s) of each round's turns, by their kinds; ``orders`` is the reader's input."""
    chance, until = random.Random(1), time.monotonic() + seconds
    while time.monotonic() + TURN_S * len(KINDS) < until:
        times: dict[str, list[float]] = {}
        for kind in chance.sample(sorted(KINDS), len(KINDS)):
            orders.write(f"{KINDS[kind]}\n")
            orders.flush()
            begin, steps = time.monotonic(), []
            while (now := time.monotonic()) < begin + TURN_S:
                step()
                if now > begin + PAUSE_S:
                    steps.append(time.monotonic() - now)
            times[kind] = steps
        yield times


def ratio(rounds: list[dict[str, list[float]]], kind: str, of: Callable[[list[float]], float]) -> tuple[float, ...]:
    """The median ratio of a kind of turn to those without readings, and its 95 % interval."""
    ratios = np.array([of(each[kind]) / of(each["none"]) for each in rounds])
    medians = np.median(np.random.default_rng(1).choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    return (float(np.median(ratios)), *(float(each) for each in np.quantile(medians, (0.025, 0.975))))


def main() -> int:
    """Measure both programs; 1 if one may cost more than it should."""
    import torch
    from limit_programs import Work, graph_decoding, training

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    programs: dict[str, Callable[[], Work]] = {
        "training": lambda: training(8, 1024, True),
        "graph decoding": lambda: graph_decoding(2048, 8, 1),
    }
    is_dear, kept, until = False, {}, time.monotonic() + options.seconds
    for left, (name, make) in zip((2, 1), programs.items(), strict=True):
        step = make().step
        for _ in range(20):
            step()
        reading = [sys.executable, __file__, "--reader", uuid]
        reader = subprocess.Popen(reading, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert reader.stdin is not None
        rounds = list(rounds_of(step, (until - time.monotonic()) / left, reader.stdin))
        print(f"{name}: {len(rounds)} rounds of {len(KINDS)} turns, {reader.communicate()[0].strip()}")
        kept[name] = rounds
        bounds = []
        for kind, rate in RATES.items():
            for words, of in (("median", statistics.median), ("mean", statistics.fmean)):
                middle, low, high = ratio(rounds, kind, of)
                print(f"  {kind:18} {words:6} step {middle:.5f} ({low:.5f} to {high:.5f})", flush=True)
            bounds.append((high - 1) / rate)
        print(f"  a reading a second costs at most {min(bounds):.3%} of the mean step", flush=True)
        is_dear |= min(bounds) > MOST
        del step
    if options.json is not None:
        options.json.write_text(json.dumps(kept))
    return int(is_dear)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reader"]:
        read_on_demand(sys.argv[2])
    else:
        sys.exit(main())
