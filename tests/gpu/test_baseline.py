"""On a real GPU: the spin kernel disturbs nothing in its own context."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

import pytest

from stallprobes.catalog import entries
from stallprobes.engine.session import Session
from stallprobes.model import KIB, MIB, Channel, Phase

pytestmark = pytest.mark.gpu

CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)

PAIRS = 8
# 100 calls of a victim, which have the GPU one after the other.
WINDOW_S = 0.1
WARM_S = 0.05
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


@dataclass(frozen=True)
class Middles:
    """The p50s (ns) of a victim's windows by channel, with the spin kernel on and off."""

    of: dict[Channel, dict[bool, list[float]]] = field(
        default_factory=lambda: {channel: {True: [], False: []} for channel in (CALL, WAIT)}
    )


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


def add_windows(session: Session, on: bool, found: dict[str, Middles]) -> None:
    """Measure a window of each victim, alone beside the spin kernel or without it, and add its p50s."""
    spins = session.snapshot().probes["spin"].proof
    for name, middles in found.items():
        session.set_running({one: one == name for one in found})
        session.run_for(WARM_S)
        before = session.snapshot()
        session.run_for(WINDOW_S)
        seen = session.snapshot().minus(before)[name]
        for channel, by in middles.of.items():
            middle = seen.channels[channel].percentile(50)
            assert middle is not None, f"no {channel.phase} of {name} returned with the spin {'on' if on else 'off'}"
            by[on].append(middle)
    started = session.snapshot().probes["spin"].proof - spins
    assert (started >= 2 * len(found)) if on else (started == 0), started


@pytest.fixture(scope="module")
def measured() -> dict[str, Middles]:
    """The p50s of each victim with the spin kernel on and off in turn, all of one engine."""
    victims = [entries()[entry].probe(size=size, name=name) for name, (entry, size) in VICTIMS.items()]
    found = {name: Middles() for name in VICTIMS}
    with Session([*victims, entries()["spin"].probe(name="spin")]) as session:
        for pair in range(PAIRS):
            # Which comes first changes, so that a drift of the machine counts for neither.
            for on in (False, True) if pair % 2 == 0 else (True, False):
                switch(session, on)
                add_windows(session, on, found)
        assert session.probe_failures() == ()
    return found


@pytest.mark.parametrize("name", VICTIMS)
def test_a_victim_in_the_spin_kernels_context_stays_within_a_tenth_or_the_spread_of_its_baseline(
    measured: dict[str, Middles], name: str
) -> None:
    for channel, by in measured[name].of.items():
        beside, alone = statistics.median(by[True]), statistics.median(by[False])
        # A shared machine moves the p50 of a call of 3 µs by a factor of two between windows without any aggressor.
        limit = max(WITHIN * alone, *by[False])
        assert beside <= limit, f"{channel.phase}: {beside:.0f} ns beside it, {alone:.0f} ns alone; {by}"
