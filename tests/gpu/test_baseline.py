"""On a real GPU: the spin kernel disturbs nothing in its own context, and each aggressor does what it is known for."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import pytest

from factories.measured_patterns import measured
from stallprobes.catalog import entries
from stallprobes.engine.session import Session
from stallprobes.latency.window import Window
from stallprobes.measurement.result import ProbeResult
from stallprobes.model import KIB, MIB, US, Channel, Kind, Phase, Probe, Role, Variant

pytestmark = pytest.mark.gpu

CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)
LOUD = ("STALLED", "STARVED")

PAIRS = 8
WINDOW_S = 0.5
WARM_S = 0.5
# The kernel that runs and the one queued behind it take 50 ms each.
DRAIN_S = 0.2
SETTLE_S = 0.1
STARTED_WITHIN_S = 5.0
WITHIN = 1.10

VICTIMS = {
    "launch": ("launch", None),
    "d2d": ("d2d", None),
    "d2h-4KiB": ("d2h-pinned", 4 * KIB),
    "d2h-1MiB": ("d2h-pinned", 1 * MIB),
    "h2d-4KiB": ("h2d-pinned", 4 * KIB),
    "h2d-1MiB": ("h2d-pinned", 1 * MIB),
}


def window(session: Session, seconds: float) -> Mapping[str, Window]:
    before = session.snapshot()
    session.run_for(seconds)
    return session.snapshot().minus(before)


def switch(session: Session, on: bool) -> None:
    """Turn the spin kernel on, until the GPU says that it runs, or off, until it has run out."""
    before = session.snapshot().probes["spin"].proof
    session.set_running({"spin": on})
    if not on:
        session.run_for(DRAIN_S)
        return
    for _ in range(int(STARTED_WITHIN_S / SETTLE_S)):
        session.run_for(SETTLE_S)
        if session.snapshot().probes["spin"].proof > before:
            return
    raise AssertionError("the spin kernel did not start")


def compared(probe: Probe) -> tuple[dict[Channel, dict[bool, list[float]]], list[tuple[bool, int]]]:
    """The p50s (ns) of windows with the spin on and off in turn; and for each window how many spins started in it."""
    middles: dict[Channel, dict[bool, list[float]]] = {channel: {True: [], False: []} for channel in (CALL, WAIT)}
    spins = []
    with Session([probe, entries()["spin"].probe(name="spin")]) as session:
        session.set_running([probe.name])
        session.run_for(WARM_S)
        for pair in range(PAIRS):
            # Which comes first changes, so that a drift of the machine counts for neither.
            for on in (False, True) if pair % 2 == 0 else (True, False):
                switch(session, on)
                seen = window(session, WINDOW_S)
                spins.append((on, seen["spin"].proof))
                for channel, by in middles.items():
                    middle = seen[probe.name].channels[channel].percentile(50)
                    assert middle is not None, f"no {channel.phase} returned with the spin {'on' if on else 'off'}"
                    by[on].append(middle)
        assert session.probe_failures() == ()
    return middles, spins


@pytest.mark.parametrize("name", VICTIMS)
def test_a_victim_in_the_spin_kernels_context_stays_within_a_tenth_or_the_spread_of_its_baseline(name: str) -> None:
    entry, size = VICTIMS[name]
    middles, spins = compared(entries()[entry].probe(size=size, name=name))
    for on, started in spins:
        assert (started >= 3) if on else (started == 0), spins
    for channel, by in middles.items():
        beside, alone = statistics.median(by[True]), statistics.median(by[False])
        # A shared machine moves the p50 of a call of 3 µs by a factor of two between windows without any aggressor.
        limit = max(WITHIN * alone, *by[False])
        assert beside <= limit, f"{channel.phase}: {beside:.0f} ns beside it, {alone:.0f} ns alone; {by}"


def launch_beside(aggressor: str) -> ProbeResult:
    """Launches each 20 us, as the known figures were taken, before and beside ``aggressor``."""
    launch = entries()["launch"].probe(period_ns=20 * US)
    variant = Variant(
        name=aggressor,
        kind=Kind.CONTROL,
        title=aggressor,
        probes=(launch, entries()[aggressor].probe(), entries()["host"].probe()),
        expect="",
        why="",
    )
    (result,) = measured([("probes", variant)], 1.5).variants
    if result.status == "unsupported":
        pytest.skip(result.reason or "")
    assert result.status == "ok", result.reason
    assert all(probe.error is None for probe in result.probes)
    (found,) = [probe for probe in result.probes if probe.probe.role is Role.VICTIM]
    return found


def times_quiet(probe: ProbeResult) -> float:
    now, quiet = probe.window.channels[CALL].percentile(50), probe.baseline[CALL].percentile(50)
    assert now is not None
    assert quiet is not None
    return now / quiet


@pytest.mark.parametrize("aggressor", ["alloc-free", "host-alloc-free", "host-register", "stream-churn"])
def test_launches_take_twice_as_long_or_starve_beside(aggressor: str) -> None:
    launch = launch_beside(aggressor)
    assert launch.starved or times_quiet(launch) >= 2
    assert launch.state in (*LOUD, "slower")


def test_launches_stall_or_starve_beside_a_free_that_waits_for_a_kernel() -> None:
    assert launch_beside("free-beside-kernel").state in LOUD


@pytest.mark.parametrize("aggressor", ["alloc-async", "nvml-poll", "launch-queue-full", "h2d-pinned-large"])
def test_launches_stay_below_twice_quiet_beside(aggressor: str) -> None:
    launch = launch_beside(aggressor)
    assert not launch.starved
    assert times_quiet(launch) < 2
