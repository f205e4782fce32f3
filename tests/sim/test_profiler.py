"""A profiler on the simulated GPU: what calls of its process take while it records, while it is attached, and after."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from factories.simulated_machine import CALL, WAIT, SimulatedMachine, at_us, machine, p50_us, program_probe
from factories.virtual_session import VirtualSession, virtual_sessions
from stallprobes.catalog import Placement, entries
from stallprobes.catalog.profiling import KINDS, SESSIONS
from stallprobes.engine.backend import Options
from stallprobes.engine.sim.profile import load
from stallprobes.latency.window import Window
from stallprobes.measurement import measure
from stallprobes.measurement.plan import plan, selection
from stallprobes.model import MS, Channel, Op, Phase, Process, Role
from stallprobes.patterns import patterns
from stallprobes.records.timeline import TimelineProblem

NS = 800 * MS
PATTERN = patterns()["profiler-on"]
LOCKS = load().locks
VICTIMS = ("launch", "launch-series", "d2d")
ENABLE, FLUSH, FINALIZE, REGISTER = (
    Channel(Phase.CALL, name)
    for name in ("cuptiActivityEnable", "cuptiActivityFlushAll", "cuptiFinalize", "cuptiActivityRegisterCallbacks")
)


@cache
def windows(variant: str) -> Mapping[str, Window]:
    return machine(*PATTERN.variant(variant).probes).run(NS)


def added_us(variant: str, victim: str, q: float = 50) -> float:
    """What a percentile of the call is above that without a profiler, in µs."""
    return at_us(windows(variant)[victim], q) - at_us(windows("never")[victim], q)


@pytest.mark.parametrize("victim", VICTIMS)
def test_each_call_takes_longer_while_a_profile_records_and_less_so_while_it_is_attached(victim: str) -> None:
    assert 0.9 * LOCKS.profiled_call_us < added_us("tracing", victim) < 1.2 * LOCKS.profiled_call_us
    assert 0.7 * LOCKS.attached_call_us < added_us("ended", victim) < 1.5 * LOCKS.attached_call_us
    assert LOCKS.attached_call_us < added_us("sessions", victim) < LOCKS.profiled_call_us


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_profiler_that_is_detached_costs_nothing(victim: str) -> None:
    assert abs(added_us("detached", victim)) < 0.12


@pytest.mark.parametrize("variant", [one.name for one in PATTERN.variants])
def test_no_wait_takes_longer(variant: str) -> None:
    for victim in VICTIMS:
        assert p50_us(windows(variant)[victim], WAIT) < 1.1 * p50_us(windows("never")[victim], WAIT)


@pytest.mark.parametrize("name", ["profiler", "profiler-sessions", "profiler-ended", "profiler-detached"])
def test_the_calls_of_a_profiler_are_measured(name: str) -> None:
    seen = machine(entries()[name].probe()).run(NS)[name]
    assert seen.iterations >= 1
    calls = load().calls
    assert 0.7 < p50_us(seen, ENABLE) / calls["cupti:cuptiActivityEnable"][0] < 2
    assert 0.3 < p50_us(seen, FLUSH) / calls["cupti:cuptiActivityFlushAll"][0] < 3
    assert 0.3 < p50_us(seen, FINALIZE) / calls["cupti:cuptiFinalize"][0] < 3


def launches(*placements: Placement, attached_call_us: str = "100") -> tuple[SimulatedMachine, list[str]]:
    """Launches in ``placements``, and a profiler that is switched off."""
    victims = [entries()["launch"].probe(where, name=f"launch {n}") for n, where in enumerate(placements)]
    settings = {"attached_call_us": attached_call_us}
    made = machine(entries()["profiler-ended"].probe(), *victims, sim_set=settings)
    made.switch(True, [victim.name for victim in victims])
    made.advance(20 * MS)
    return made, [victim.name for victim in victims]


def test_only_the_calls_of_its_process_take_longer() -> None:
    made, (own, other) = launches(Placement(), Placement(process=Process.SECOND))
    made.switch(True, ["profiler-ended"])
    made.advance(20 * MS)
    seen = made.window(200 * MS)
    assert p50_us(seen[own]) > 100
    assert p50_us(seen[other]) < 10


def test_nothing_is_left_of_a_profiler_that_was_switched_off() -> None:
    made, (own,) = launches(Placement())
    before = p50_us(made.window(100 * MS)[own])
    made.switch(True, ["profiler-ended"])
    made.advance(30 * MS)
    assert p50_us(made.window(100 * MS)[own]) > 100
    made.switch(False, ["profiler-ended"])
    made.advance(450 * MS)
    assert p50_us(made.window(100 * MS)[own]) < 1.5 * before


def test_copies_of_every_kind_take_longer() -> None:
    names = ("d2d", "d2h-pinned", "h2d-pinned", "d2h-pageable", "graph-launch")
    profiled = [Op("cupti:cuptiActivityEnable", (10,)), Op("native:sleep", (50 * MS,), phase=None)]
    profile = program_probe("profile", profiled, context=None)
    for name in names:
        made = machine(entries()[name].probe(), profile, sim_set={"profiled_call_us": "500"})
        made.switch(True, [name])
        made.advance(20 * MS)
        before = p50_us(made.window(30 * MS)[name])
        made.switch(True, ["profile"])
        made.advance(20 * MS)
        assert p50_us(made.window(30 * MS)[name]) > before + 450, name


def test_two_profilers_run_one_after_the_other() -> None:
    made = machine(entries()["profiler-sessions"].probe(), entries()["profiler-detached"].probe())
    seen = made.run(2_000 * MS)
    assert made.probe_failures == []
    assert min(one.iterations for one in seen.values()) >= 1
    assert sum(one.iterations for one in seen.values()) <= 5


def test_a_kind_that_does_not_exist_is_refused() -> None:
    made = machine(program_probe("wrong", [Op("cupti:cuptiActivityEnable", (0,))], context=None))
    made.run(5 * MS)
    assert [failure.code for failure in made.probe_failures] == [1]


@pytest.mark.parametrize("variant", [one.name for one in PATTERN.variants if one.name != "never"])
def test_the_samples_do_not_depend_on_how_the_time_is_cut(variant: str) -> None:
    def run(*steps_ns: int) -> dict[str, list[list[int]]]:
        made = machine(*PATTERN.variant(variant).probes, seed=5)
        made.switch(True)
        for ns in steps_ns:
            made.advance(ns)
        return {name: part.samples.tolist() for name, part in made.board.snapshot().probes.items()}

    whole = run(60 * MS)
    assert whole == run(*[1_234_567] * 40, 60 * MS - 40 * 1_234_567)
    assert all(whole.values())


def test_a_run_with_the_timeline_measures_the_variants_without_a_profiler() -> None:
    with virtual_sessions():
        done = measure.run(plan(selection(["profiler-on"]), seconds=0.5), backend="sim", options=Options(timeline=True))
    assert [one.status for one in done.variants] == ["ok", *["unsupported"] * 4]
    for found in done.variants[1:]:
        assert found.reason is not None
        assert "uses CUPTI in the engine's process" in found.reason


def test_launches_stall_beside_short_profiles_alone() -> None:
    """With another seed than test_agreement.py has."""
    with virtual_sessions():
        done = measure.run(plan(selection(["profiler-on"]), seconds=0.6), backend="sim", options=Options(seed=2))
    for found in done.variants:
        assert found.status == "ok"
        states = {one.name: one.state for one in found.probes if one.role is not Role.AGGRESSOR}
        if found.variant == "sessions":
            assert states["launch"] == "STALLED"
        else:
            assert not {"STALLED", "STARVED"} & set(states.values()), found.variant
        if found.variant in ("never", "ended", "detached"):
            assert set(states.values()) == {"quiet"}, found.variant


def test_nothing_is_submitted_while_a_profiler_attaches_itself() -> None:
    """The first call of CUPTI lasts milliseconds, and a launch meanwhile as long as what is left of it."""
    seen = windows("detached")
    attaching_us = seen["profiler-detached"].channels[REGISTER].max_ns / 1000
    assert 5_000 < attaching_us < 20_000
    for victim in VICTIMS:
        longest_us = seen[victim].channels[CALL].max_ns / 1000
        assert 0.5 * attaching_us < longest_us < attaching_us + 500, victim


@pytest.mark.parametrize("victim", VICTIMS)
def test_the_first_call_of_each_thread_in_a_profile_takes_longer(victim: str) -> None:
    seen = windows("sessions")
    calls = seen[victim].channels[CALL]
    slow = calls.share_above(round(900 * LOCKS.profiled_first_us)) * calls.count
    # The calls of the first iteration are not counted.
    profiles = seen["profiler-sessions"].channels[ENABLE].count / len(KINDS)
    assert 0.9 * profiles <= slow <= profiles + SESSIONS + 2


def test_the_timeline_of_a_session_with_a_profiler_is_taken() -> None:
    session = VirtualSession(PATTERN.variant("tracing").probes, "sim", options=Options())
    session.start()
    try:
        status = session.switch_timeline(True)
        assert status is not None
        assert status.problem is TimelineProblem.TAKEN
        session.run_for(0.05)
        assert session.snapshot().probes["launch"].channels[CALL].count == 0
        off = session.switch_timeline(False)
        assert off is not None
        assert off.problem is None
    finally:
        session.stop()
