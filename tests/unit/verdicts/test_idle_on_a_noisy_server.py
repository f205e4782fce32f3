"""Launches after idle times beside the baselines of a recorded noisy H200 server.

The server made no call after an idle time while it was recorded. Those of two recorded runs of ``idle-wakeup`` are
judged against its baselines, before and after, and so are its own quiet calls, as few and as far apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from factories.recorded_runs import recorded_run
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import MIDDLE, Histogram
from stallprobes.latency.window import ChannelMap, Window, merged
from stallprobes.model import Channel, Phase
from stallprobes.patterns import patterns
from stallprobes.recording.recording import Recording
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.rules import judge

RECORDED = Path(__file__).parents[2] / "gpu" / "recorded"
NOISY = RECORDED / "quiet-h200-noisy.rec"
RUNS = ("h200-processes-1", "h200-processes-2")
PATTERN = patterns()["idle-wakeup"]
CALL = Channel(Phase.CALL)
# Of each variant: the calls in its window, and the steps of 0.1 s between both baselines.
CALLS = {"after-100ms": 20, "after-1s": 4, "after-5s": 4}
STEPS = {"after-100ms": 20, "after-1s": 40, "after-5s": 200}
BASELINE_STEPS, WINDOW_STEPS = 10, 2
TRIALS = 60

Latencies = npt.NDArray[np.float64]
Spoil = Callable[[Latencies], Latencies]


def values(histogram: Histogram) -> Latencies:
    buckets, counts = histogram.used
    return np.repeat(MIDDLE[buckets], counts).astype(np.float64)


@cache
def quiet() -> Mapping[str, tuple[Latencies, ...]]:
    """The latencies (ns) of launches and of the host control in each 0.1 s of the noisy server."""
    snapshots = [one.snapshot for one in Recording(NOISY).play() if one.snapshot is not None]
    steps = [late.minus(early) for early, late in pairwise(snapshots)]
    return {name: tuple(values(step[name].channels[CALL]) for step in steps) for name in ("launch", "host")}


@cache
def idle(variant: str) -> Mapping[str, Latencies]:
    """The latencies (ns) of recorded calls of ``variant``, after its idle times."""
    found: dict[str, list[Latencies]] = {"launch": [], "host": []}
    for run in RUNS:
        variants = recorded_run(f"{run}.json.gz").variants
        (result,) = (one for one in variants if (one.pattern, one.variant) == (PATTERN.name, variant))
        for probe in result.probes:
            found[probe.name].append(values(probe.phases[Phase.CALL].distribution))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def kinds(variant: str, *, is_idle: bool, spoil: Spoil = lambda latencies: latencies) -> Counter[str]:
    """How often a launch has which verdict, with baselines from ``TRIALS`` places of the recording.

    Its window has calls after idle times, or the server's quiet ones. ``spoil`` changes the launches of the server.
    """
    rng, found = np.random.default_rng(7), Counter[str]()
    probes = {probe.name: probe for probe in PATTERN.variant(variant).probes}
    between = STEPS[variant]
    for at in rng.integers(0, len(quiet()["launch"]) - 2 * BASELINE_STEPS - between, TRIALS):
        evidence = []
        for name, probe in probes.items():
            steps = quiet()[name]
            starts = (at, at + BASELINE_STEPS + between)
            changed: Spoil = spoil if name == "launch" else lambda latencies: latencies
            before, after = (
                [
                    {CALL: Histogram.of(changed(np.concatenate(steps[begin : begin + WINDOW_STEPS])).astype(np.int64))}
                    for begin in range(start, start + BASELINE_STEPS, WINDOW_STEPS)
                ]
                for start in starts
            )
            apart = np.linspace(at + BASELINE_STEPS, at + BASELINE_STEPS + between - 1, CALLS[variant]).astype(int)
            now = (
                rng.choice(idle(variant)[name], CALLS[variant])
                if is_idle or name == "host"
                else np.array([rng.choice(changed(steps[step])) for step in apart])
            )
            window = Window(
                {CALL: Histogram.of(now.astype(np.int64))},
                len(now),
                len(now) * probe.period_ns,
                period_ns=probe.period_ns,
            )
            baselines: tuple[ChannelMap, ...] = (merged(before), merged(after))
            evidence.append(Evidence(probe, window, baselines, variation=Baseline.of(before + after)))
        worst = max((one for one in judge(evidence) if one.probe == "launch"), key=lambda one: one.kind.severity)
        found[str(worst.kind)] += 1
    return found


def busier(latencies: Latencies) -> Latencies:
    """``latencies`` where 1 call in 50 takes 40 to 90 µs: each p99 is as long as a call after an idle time."""
    changed, rng = latencies.copy(), np.random.default_rng(latencies.size)
    late = rng.random(latencies.size) < 0.02
    changed[late] = rng.uniform(40_000, 90_000, int(late.sum()))
    return changed


@pytest.mark.parametrize("variant", CALLS)
@pytest.mark.parametrize("spoil", [lambda latencies: latencies, busier], ids=["recorded", "busier"])
def test_launches_after_idle_times_are_stalled_and_quiet_ones_are_not(variant: str, spoil: Spoil) -> None:
    assert kinds(variant, is_idle=True, spoil=spoil)["stalled"] >= 0.98 * TRIALS
    assert kinds(variant, is_idle=False, spoil=spoil)["stalled"] == 0
