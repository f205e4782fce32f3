"""The same seed, the same samples; virtual time; nothing loaded that belongs to a real GPU or a screen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from factories.loaded_modules import loaded_modules
from factories.simulated_machine import CALL, SimulatedMachine, at_us, machine, p50_us
from stallprobes.catalog import Placement, entries
from stallprobes.engine.sim.sampling import QUANTILES, UNIT_BITS, LatencyDistribution, RandomStream, lognormal_factors
from stallprobes.model import MS, SECONDARY, Channel, Kind, Phase, Probe
from stallprobes.native.layouts.board import ProbeState
from stallprobes.patterns import patterns

PROBES = Path(__file__).parents[2] / "probes"


def probes() -> list[Probe]:
    names = ("launch", "d2d", "event", "spin", "stream-churn", "d2h-pageable-warm")
    return [entries()[name].probe(Placement(SECONDARY) if name == "d2d" else None) for name in names]


def rings(made: SimulatedMachine) -> dict[str, list[list[int]]]:
    return {name: part.samples.tolist() for name, part in made.board.snapshot().probes.items()}


def run(made: SimulatedMachine, *steps_ns: int) -> dict[str, list[list[int]]]:
    made.switch(True)
    for ns in steps_ns:
        made.advance(ns)
    return rings(made)


def test_the_same_seed_gives_the_same_samples() -> None:
    first = run(machine(*probes(), seed=7), 200 * MS)
    assert first == run(machine(*probes(), seed=7), 200 * MS)
    assert all(first.values())


FRAMEWORKS = ("launch-storm", "event-poll-storm", "host-callback", "vmm-churn")


@pytest.mark.parametrize(
    ("pattern", "variant"),
    [(name, one.name) for name in FRAMEWORKS for one in patterns()[name].variants if one.kind is Kind.STALL],
)
def test_a_pattern_of_several_threads_gives_the_same_samples_however_the_time_is_cut(
    pattern: str, variant: str
) -> None:
    several = patterns()[pattern].variant(variant).probes
    whole = run(machine(*several, seed=5), 50 * MS)
    assert whole == run(machine(*several, seed=5), *[1_234_567] * 30, 50 * MS - 30 * 1_234_567)
    assert all(whole.values())


def test_samples_do_not_depend_on_how_the_time_is_cut() -> None:
    whole = run(machine(*probes()), 60 * MS)
    assert whole == run(machine(*probes()), *[1_234_567] * 48, 60 * MS - 48 * 1_234_567)


def test_another_seed_gives_other_samples_of_the_same_spread() -> None:
    one = machine(entries()["launch"].probe(), seed=1)
    other = machine(entries()["launch"].probe(), seed=2)
    seen, seen_other = one.run(2_000 * MS)["launch"], other.run(2_000 * MS)["launch"]
    assert rings(one) != rings(other)
    for q in (50, 99):
        assert 0.8 < at_us(seen, q) / at_us(seen_other, q) < 1.25


def test_a_probe_rolls_its_own_dice_whoever_else_is_there() -> None:
    """Each far from the other, so that they never meet: what one probe sees is what it sees alone."""
    alone = run(machine(entries()["host"].probe()), 50 * MS)
    beside = run(machine(entries()["host"].probe(), entries()["launch"].probe()), 50 * MS)
    assert alone["host"] == beside["host"]


def test_a_known_seed_gives_known_samples() -> None:
    """On every machine: nothing here may depend on how a processor rounds."""
    rolls = RandomStream(1, "launch")
    cost = LatencyDistribution(3_100, 8_000)
    assert [cost.draw(rolls) for _ in range(8)] == EXPECTED
    assert lognormal_factors(407)[QUANTILES // 2] in range((1 << UNIT_BITS), (1 << UNIT_BITS) + 20)


EXPECTED = [2106, 2675, 4461, 5016, 3406, 4477, 4768, 3682]


def test_costs_have_the_median_and_the_tail_they_were_given() -> None:
    rolls = RandomStream(3, "x")
    cost = LatencyDistribution(3_000, 9_000)
    values = np.array([cost.draw(rolls) for _ in range(20_000)])
    assert 0.98 < float(np.percentile(values, 50)) / 3_000 < 1.02
    assert 0.93 < float(np.percentile(values, 99)) / 9_000 < 1.07
    with pytest.raises(ValueError, match="median"):
        LatencyDistribution(10, 5)


def test_the_boards_clock_is_the_virtual_time() -> None:
    made = machine(entries()["launch"].probe())
    before = made.board.now()
    made.advance(5_000 * MS)
    assert made.board.now() - before == 5_000 * MS
    assert made.board.header.clock_ns == made.board.now()


def test_a_probe_keeps_its_pace_and_hears_of_changes() -> None:
    made = machine(entries()["launch"].probe())
    assert made.board.snapshot().probes["launch"].state is ProbeState.PARKED
    made.switch(True)
    made.advance(50 * MS)
    assert made.window(1_000 * MS)["launch"].iterations == 1_000
    made.set_period("launch", 5 * MS)
    made.advance(20 * MS)
    assert made.window(1_000 * MS)["launch"].iterations == 200
    made.switch(False)
    made.advance(20 * MS)
    assert made.window(100 * MS)["launch"].iterations == 0
    assert made.board.snapshot().probes["launch"].state is ProbeState.PARKED


def test_the_first_turn_is_kept_apart_and_slow() -> None:
    made = machine(entries()["launch"].probe())
    made.switch(True)
    made.advance(1_000 * MS)
    seen = made.board.snapshot().probes["launch"]
    first = seen.first_ns[CALL]
    assert first is not None
    assert first / 1000 > 3 * p50_us(seen)
    assert seen.channels[CALL].count == seen.iterations - 1


def test_a_call_in_flight_shows_its_age_and_counts() -> None:
    made = machine(entries()["launch"].probe(), entries()["free-beside-kernel"].probe(), sim_set={"wake_us": "30"})
    seen = made.run(500 * MS)
    due = seen["launch"].channels[Channel(Phase.DUE)]
    assert due.count >= 450
    assert due.percentile(50) is not None


def test_a_wrong_code_stops_the_probe_alone() -> None:
    from stallprobes.model import Load, Op, Word

    bad = Probe(
        "bad", "bad", entries()["launch"].role, entries()["launch"].probe().program.__class__(
            ops=(Op("cuMemFree", (Load(Word("nothing")),), label="free"),)
        ), MS, entry="bad",
    )  # fmt: skip
    made = machine(bad, entries()["launch"].probe())
    seen = made.run(200 * MS)
    assert [failure.sentence for failure in made.probe_failures] == [
        "bad: cuMemFree (free) returned 1 (CUDA_ERROR_INVALID_VALUE)"
    ]
    assert seen["launch"].iterations == 200
    assert made.board.snapshot().probes["bad"].state is ProbeState.ERROR


def test_stopping_ends_every_thread_and_runs_its_teardown() -> None:
    made = machine(*probes())
    made.run(100 * MS)
    assert made.backend.stop(10.0)
    assert {part.state for part in made.board.snapshot().probes.values()} == {ProbeState.ENDED}


def test_the_simulated_gpu_loads_nothing_of_a_real_one_or_of_a_screen() -> None:
    loaded, _ = loaded_modules("import stallprobes.engine.sim.backend", {"PYTHONPATH": str(PROBES)})
    packages = {name.partition(".")[0] for name in loaded}
    assert "simpy" in packages
    assert not packages & {"cuda", "textual", "rich", "click", "pynvml"}
    assert "stallprobes.engine.cuda" not in loaded
