"""The verdict log of a screen that is left alone: nothing may be slower, stalled or starved.

python tests/benchmarks/bench_quiet.py [--minutes N] [--load] [--gpu] [--record FILE]

By default victims and host control run on the host backend, which needs no GPU; with --gpu the default probes of the
screen run on the first GPU, aggressors switched off. --load keeps every core of this machine busy for half of the time,
in bursts of 0.05 to 2 s. The analyzer is fed 30 times a second, as by the screen. Prints the entries of the log by kind
and each false one; exits 1 where there is one. Host noise and unsteady are true of such a machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "app"))
sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.live.analyzer import Analyzer
from stallprobes.machine import gpus
from stallprobes.machine.telemetry import Telemetry
from stallprobes.model import Probe, Role
from stallprobes.recording.observation import CUDA, EngineCondition, EngineStatus, Observation, ProbeSet
from stallprobes.recording.recorder import Recorder
from stallprobes.verdicts.kinds import VerdictKind
from stallscope.tui import probe_sets

FRAMES_S = 30
FALSE = (VerdictKind.SLOWER, VerdictKind.STALLED, VerdictKind.STARVED, VerdictKind.FAILED)
SHORTEST_S, LONGEST_S = 0.05, 2.0


def busy_half_the_time(seed: int) -> None:
    """Alternate between computing and sleeping, each for a random time; never returns."""
    rng = random.Random(seed)
    while True:
        until = time.monotonic() + rng.uniform(SHORTEST_S, LONGEST_S)
        while time.monotonic() < until:
            sum(range(10_000))
        time.sleep(rng.uniform(SHORTEST_S, LONGEST_S))


def host_probes() -> tuple[Probe, ...]:
    """Three victims that call what the host control calls, and the host control."""
    control = entries()["host"].probe()
    victims = [
        replace(control, name=f"victim-{number}", title=f"victim {number}", role=Role.VICTIM) for number in (1, 2, 3)
    ]
    return (*victims, control)


def watch(gpu: bool, seconds: float, record: Path | None) -> Analyzer:
    """The analyzer after ``seconds`` with all victims running and no aggressor."""
    probes = probe_sets.default_probes() if gpu else host_probes()
    probe_set = ProbeSet(title="left alone", probes=probes, backend=CUDA if gpu else "host")
    uuid = gpus.choose(None, gpus.survey(), 1)[0].uuid if gpu else None
    session = Session(probes, backend=probe_set.backend, options=Options(gpu=uuid))
    telemetry = Telemetry(uuid) if uuid is not None else None
    recorder = None if record is None else Recorder(record)
    analyzer = Analyzer(probe_set)
    try:
        session.start()
        if telemetry is not None:
            telemetry.start()
        session.set_running([probe.name for probe in probes if probe.role is not Role.AGGRESSOR])
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            session.run_for(1 / FRAMES_S)
            observation = Observation(
                wall_s=time.time(),
                probe_set=probe_set,
                engine=EngineStatus(EngineCondition.READY),
                snapshot=session.snapshot(),
                telemetry=None if telemetry is None else telemetry.snapshot(),
                probe_failures=session.probe_failures(),
            )
            analyzer.feed(observation)
            if recorder is not None:
                recorder.put(observation, analyzer.baselines)
    finally:
        if telemetry is not None:
            telemetry.stop()
        session.stop()
        if recorder is not None:
            recorder.close(10.0)
    return analyzer


def main() -> int:
    """Run the benchmark and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--record", type=Path)
    chosen = parser.parse_args()
    cores = os.cpu_count() or 1
    spawn = multiprocessing.get_context("spawn")
    loads = [spawn.Process(target=busy_half_the_time, args=(seed,), daemon=True) for seed in range(cores)]
    began_s = time.time()
    try:
        for load in loads if chosen.load else []:
            load.start()
        analyzer = watch(chosen.gpu, 60 * chosen.minutes, chosen.record)
    finally:
        for load in loads:
            if load.is_alive():
                load.terminate()
    counts = Counter(entry.verdict.kind for entry in analyzer.log)
    print(
        f"{chosen.minutes:g} min, {'GPU' if chosen.gpu else 'host backend'}, load {'on' if chosen.load else 'off'}:",
        end=" ",
    )
    print(", ".join(f"{number} {kind}" for kind, number in counts.items()) or "no entry")
    for name, baseline in analyzer.baselines.items():
        print(f"  {name}: baseline of {baseline.duration_ns / 1e9:.0f} s")
    false = [entry for entry in analyzer.log if entry.verdict.kind in FALSE]
    for entry in analyzer.log:
        if entry in false or entry.verdict.kind is VerdictKind.UNSTEADY:
            print(f"  {entry.began_s - began_s:6.1f} s  {entry.verdict.kind}  {entry.text}")
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
