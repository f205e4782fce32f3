"""Slots on the simulated GPU: victims of several contexts are as fast as alone, and stalls are as visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from factories.simulated_machine import CALL, MS, SECOND, WAIT, SimulatedMachine, at_us, machine, p50_us, program_probe
from stallprobes.catalog import Placement, entries
from stallprobes.latency.window import Window
from stallprobes.model import GREEN, PEER, PRIMARY, SECONDARY, SLOT_NS, THIRD, Channel, Context, Op, Phase, Probe
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.rules import judge
from stallscope.tui.probe_sets import default_probes

VICTIMS = ("launch", "d2d@secondary", "d2h-pinned", "host")
ALONE_WITHIN = 0.1


def probe(entry: str, context: Context = PRIMARY, name: str | None = None) -> Probe:
    return entries()[entry].probe(Placement(context), name=name)


def measured(made: SimulatedMachine, names: tuple[str, ...], ns: int = SECOND) -> Mapping[str, Window]:
    made.switch(True, names)
    made.advance(300 * MS)
    return made.window(ns)


@pytest.fixture(scope="module")
def default_screen() -> SimulatedMachine:
    """The probes of the screen at its start."""
    return machine(*default_probes())


@pytest.fixture(scope="module")
def quiet(default_screen: SimulatedMachine) -> Mapping[str, Window]:
    found = measured(default_screen, VICTIMS)
    default_screen.switch(False)
    default_screen.advance(50 * MS)
    return found


@pytest.mark.parametrize("name", VICTIMS)
def test_each_baseline_of_the_default_screen_is_that_of_the_victim_alone(
    default_screen: SimulatedMachine, quiet: Mapping[str, Window], name: str
) -> None:
    alone = measured(default_screen, (name,), SECOND // 2)[name]
    default_screen.switch(False)
    default_screen.advance(50 * MS)
    found = quiet[name]
    assert p50_us(found, CALL) == pytest.approx(p50_us(alone, CALL), rel=ALONE_WITHIN)
    if WAIT in found.channels:
        for q in (50, 99):
            assert at_us(found, q, WAIT) == pytest.approx(at_us(alone, q, WAIT), rel=ALONE_WITHIN)


def test_only_victims_that_use_the_graphics_engine_share_the_time(quiet: Mapping[str, Window]) -> None:
    assert {name: quiet[name].in_slots for name in VICTIMS} == dict(
        zip(VICTIMS, (True, True, False, False), strict=True)
    )
    assert [quiet[name].duration_ns for name in VICTIMS] == [SECOND // 2, SECOND // 2, SECOND, SECOND]
    assert [quiet[name].iterations for name in VICTIMS] == [500, 500, 1000, 1000]
    assert not any(window.missed for window in quiet.values())


def test_with_the_spin_kernel_the_copy_is_stalled_as_if_alone_and_the_launch_is_quiet(
    default_screen: SimulatedMachine, quiet: Mapping[str, Window]
) -> None:
    disturbed = measured(default_screen, (*VICTIMS, "spin"))
    assert p50_us(disturbed["d2d@secondary"], WAIT) >= 300 * p50_us(quiet["d2d@secondary"], WAIT)
    evidence = [
        Evidence(one, disturbed[one.name], () if one.name == "spin" else (quiet[one.name].channels,))
        for one in default_screen.probes
        if one.name in (*VICTIMS, "spin")
    ]
    kinds = {verdict.probe: verdict.kind for verdict in judge(evidence)}
    assert kinds["d2d@secondary"] is VerdictKind.STALLED
    assert {kinds[name] for name in ("launch", "d2h-pinned", "host")} == {VerdictKind.QUIET}
    # Each copy lasts one time-slice, so the last one of a slot is in flight when the launch's begins.
    assert 0 < disturbed["launch"].not_alone_ns < disturbed["launch"].duration_ns / 10


def test_a_launch_that_is_stuck_beyond_its_slot_does_not_make_its_wait_look_stalled(
    default_screen: SimulatedMachine, quiet: Mapping[str, Window]
) -> None:
    default_screen.switch(False)
    default_screen.advance(50 * MS)
    disturbed = measured(default_screen, (*VICTIMS, "host-alloc-free"))["launch"]
    assert p50_us(disturbed, CALL) > 100 * p50_us(quiet["launch"], CALL)
    assert at_us(disturbed, 99, WAIT) < 1.5 * at_us(quiet["launch"], 99, WAIT)


def test_together_each_waits_for_the_other_and_one_verdict_names_it() -> None:
    made = machine(*default_probes(), together=True)
    windows = measured(made, VICTIMS)
    for name in ("launch", "d2d@secondary"):
        assert p50_us(windows[name], WAIT) == pytest.approx(140, rel=0.05)
        assert not windows[name].in_slots
    evidence = [Evidence(one, windows[one.name]) for one in made.probes if one.name in VICTIMS]
    (found,) = [verdict for verdict in judge(evidence) if verdict.kind is not VerdictKind.QUIET]
    assert found.kind is VerdictKind.OVERHEAD
    assert "change-over" in found.head


@pytest.fixture(scope="module")
def stuck() -> SimulatedMachine:
    """A victim whose call never returns, and two victims of other contexts."""
    never = Op("native:sleep", (3600 * SECOND,))
    hung = replace(program_probe("hung", (never,)), slot_group=(0, "primary"))
    return machine(hung, probe("launch", SECONDARY, "second"), probe("d2d", THIRD, "third"))


def test_a_stuck_call_never_blocks_the_slots_of_others_and_is_starved_after_its_own_half_second(
    stuck: SimulatedMachine,
) -> None:
    stuck.switch(True)
    stuck.advance(900 * MS)
    begin = stuck.board.snapshot()
    verdicts = []
    for _ in range(20):
        stuck.advance(100 * MS)
        windows = stuck.board.snapshot().minus(begin)
        kinds = {found.probe: found.kind for found in judge([Evidence(one, windows[one.name]) for one in stuck.probes])}
        verdicts.append((windows["hung"].duration_ns, kinds["hung"]))
    for own_ns, kind in verdicts:
        assert (kind is VerdictKind.STARVED) == (own_ns >= 500 * MS), own_ns
    assert verdicts[-1][0] == pytest.approx(2 * SECOND / 3, abs=SLOT_NS)
    for name in ("second", "third"):
        window = windows[name]
        assert window.duration_ns == pytest.approx(2 * SECOND / 3, abs=SLOT_NS)
        assert window.iterations == pytest.approx(window.duration_ns / MS, abs=10)
        assert window.not_alone_ns == window.duration_ns
    flight = windows["hung"].in_flight
    assert flight is not None
    assert flight.age_ns > 2.5 * SECOND
    assert flight.allowed_ns < flight.age_ns / 2


def test_two_gpus_have_slots_of_their_own() -> None:
    """On GPU 1 two groups share the time, on GPU 2 one has it all."""
    made = machine(
        probe("launch"),
        probe("d2d", SECONDARY, "second"),
        probe("launch", PEER, "peer"),
        probe("launch", Context("green", 1), "peer-green"),
    )
    windows = measured(made, ("launch", "second", "peer", "peer-green"))
    assert [windows[name].duration_ns for name in ("launch", "second")] == [SECOND // 2] * 2
    assert [windows[name].iterations for name in ("peer", "peer-green")] == [1000, 1000]
    assert not windows["peer"].in_slots


def test_primary_and_green_run_at_the_same_time() -> None:
    made = machine(probe("launch"), probe("d2d", GREEN, "green"), probe("d2d", SECONDARY, "second"))
    windows = measured(made, ("launch", "green", "second"))
    assert {name: window.duration_ns for name, window in windows.items()} == dict.fromkeys(windows, SECOND // 2)
    ends = {name: windows[name].samples["end_ns"] // SLOT_NS for name in windows}
    assert set(ends["launch"]) == set(ends["green"])


def test_a_group_alone_is_not_interrupted_and_a_second_one_begins_at_once() -> None:
    made = machine(probe("launch"), probe("d2d", SECONDARY, "second"))
    alone = measured(made, ("launch",))["launch"]
    assert (alone.iterations, alone.duration_ns) == (1000, SECOND)
    made.switch(True, ("second",))
    both = made.window(SECOND)
    assert both["launch"].duration_ns == pytest.approx(SECOND / 2, abs=10 * MS)
    assert both["second"].duration_ns == pytest.approx(SECOND / 2, abs=10 * MS)
    made.switch(False, ("launch",))
    made.advance(10 * MS)
    assert made.window(SECOND)["second"].duration_ns == SECOND


def test_batches_of_back_to_back_calls_end_with_their_slot() -> None:
    first, second = (replace(probe("nvml-poll", name=name), slot_group=(0, name)) for name in ("first", "second"))
    made = machine(first, second)
    begin = made.board.now()
    made.switch(True)
    windows = made.window(3 * SLOT_NS // 2)
    assert 0 < windows["first"].samples["end_ns"][-1] - begin - SLOT_NS < MS // 100
    assert windows["second"].samples["end_ns"][0] > begin + SLOT_NS
    assert windows["first"].iterations == pytest.approx(2 * windows["second"].iterations, rel=0.05)


def test_aggressors_run_through() -> None:
    made = machine(*default_probes())
    windows = measured(made, (*VICTIMS, "host-alloc-free"))
    assert windows["host-alloc-free"].duration_ns == SECOND
    assert made.board["host-alloc-free"].words.run == 1
    assert windows["host-alloc-free"].channels[Channel(Phase.CALL)].count > 100
