"""Simulated NVML values: derived from the simulation, complete, on the way from the engine to the screen."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from factories.simulated_machine import SECOND, SimulatedMachine, machine
from stallprobes.catalog import Placement, entries
from stallprobes.engine.session import Session
from stallprobes.machine.gpm import METRICS
from stallprobes.machine.simulated_telemetry import SENSORS, SIMULATED_UUID, SimulatedTelemetry
from stallprobes.machine.telemetry import NAMES
from stallprobes.model import GREEN, PRIMARY, SECONDARY


def values(of: SimulatedMachine) -> Mapping[str, object]:
    words = of.board.header.sensors[: len(SENSORS)]
    snapshot = SimulatedTelemetry(lambda: words).snapshot()
    assert snapshot.state == "live"
    return {name: reading.value for name, reading in snapshot.readings.items()}


def test_every_field_of_nvml_has_a_value() -> None:
    found = values(machine(entries()["launch"].probe()))
    assert set(found) == set(NAMES)
    assert {name for name, value in found.items() if value is None} == set(METRICS) - {name for name, _ in SENSORS}


def test_a_spin_is_full_utilization_and_warms_the_gpu() -> None:
    seen = machine(entries()["launch"].probe(), entries()["spin"].probe())
    seen.switch(True, ["launch"])
    seen.advance(SECOND)
    quiet = values(seen)
    seen.switch(True, ["spin"])
    seen.advance(3 * SECOND)
    busy = values(seen)
    assert quiet["utilisation_percent"] == 0
    assert quiet["clock_reasons"] == ("idle",)
    assert busy["utilisation_percent"] == 100
    assert busy["power_w"] > 1.3 * quiet["power_w"]  # type: ignore[operator]
    assert busy["temperature_c"] > quiet["temperature_c"]  # type: ignore[operator]
    seen.switch(False)
    seen.advance(2 * SECOND)
    assert values(seen)["utilisation_percent"] == 0


@pytest.mark.parametrize(
    ("aggressor", "active", "utilisation"),
    [("spin", 100 * 16 / 132, 100), ("spin-full", 100, 100), ("event-poll", 0.76, 99)],
)
def test_sm_activity_counts_the_sms_that_have_a_kernel(aggressor: str, active: float, utilisation: float) -> None:
    seen = machine(entries()[aggressor].probe())
    seen.run(3 * SECOND)
    found = values(seen)
    assert found["sm_active_percent"] == pytest.approx(active, rel=0.02)
    assert found["utilisation_percent"] == pytest.approx(utilisation, abs=1)
    assert 0 < found["sm_occupancy_percent"] <= found["sm_active_percent"]  # type: ignore[operator]


def test_a_preempted_kernel_occupies_no_sm() -> None:
    spins = [entries()["spin-full"].probe(Placement(context)) for context in (PRIMARY, SECONDARY)]
    seen = machine(*spins)
    seen.run(3 * SECOND)
    found = values(seen)
    assert 60 < found["sm_active_percent"] <= found["utilisation_percent"] + 1 <= 101  # type: ignore[operator]


@pytest.mark.parametrize(("aggressor", "field"), [("d2h-pinned-large", "from"), ("h2d-pinned-large", "to")])
def test_transfers_show_on_the_bus(aggressor: str, field: str) -> None:
    seen = machine(entries()[aggressor].probe())
    seen.run()
    other = {"from": "to", "to": "from"}[field]
    assert values(seen)[f"pcie_{field}_gpu_kb_s"] == pytest.approx(53e6, rel=0.1)
    assert values(seen)[f"pcie_{other}_gpu_kb_s"] == 0


def test_memory_counts_contexts_and_buffers_and_a_green_context_is_none() -> None:
    def used(*places: Placement) -> int:
        probes = [entries()["launch"].probe(place, name=str(number)) for number, place in enumerate(places)]
        seen = machine(*probes)
        seen.run()
        found = values(seen)["memory_used_bytes"]
        assert isinstance(found, int)
        return found

    one = used(Placement())
    assert one > 500 << 20
    assert used(Placement(), Placement(GREEN)) == one
    assert used(Placement(), Placement(SECONDARY)) == 2 * one


def test_two_contexts_that_alternate_are_busy_but_for_the_change_over() -> None:
    seen = machine(entries()["spin"].probe(), entries()["spin"].probe(Placement(SECONDARY), name="other"))
    seen.run()
    assert 80 < values(seen)["utilisation_percent"] < 100  # type: ignore[operator]


def test_a_session_hands_them_over_and_none_after_its_end() -> None:
    session = Session([entries()["spin"].probe()], backend="sim")
    with session:
        session.set_running(["spin"])
        session.run_for(1.0)
        snapshot = SimulatedTelemetry(session.sensors).snapshot()
    assert snapshot.uuid == SIMULATED_UUID
    assert snapshot["utilisation_percent"].value == 100
    assert SimulatedTelemetry(session.sensors).snapshot().state == "starting"
