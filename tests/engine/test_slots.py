"""Slots of a real engine: its thread opens and closes them, its loops keep to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from factories.host_probes import host_probe
from factories.waiting import wait_until
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.model import MS, SLOT_NS, Channel, Op, Phase, Probe, Role
from stallprobes.native.layouts.board import ProbeState

pytestmark = pytest.mark.usefixtures("forked_engines")

CALL = Channel(Phase.CALL)
NAMES = ("a", "b", "c")


def victim(name: str, group: str | None, *ops: Op, period_ns: int = 5 * MS) -> Probe:
    return replace(
        host_probe(name, *ops, period_ns=period_ns), role=Role.VICTIM, slot_group=None if group is None else (0, group)
    )


@pytest.fixture(scope="module")
def session(forked_engines: None) -> Iterator[Session]:
    """Two victims of one group, one of another, one without."""
    hung = victim("hung", "three", Op("native:sleep", (600_000 * MS,)))
    with Session([victim("a", "one"), victim("b", "two"), victim("c", "one"), victim("d", None), hung], "host") as made:
        yield made


def ends(session: Session, name: str) -> list[int]:
    return [int(end) for end in session.snapshot().probes[name].samples["end_ns"]]


def unmeasured(session: Session, name: str) -> int:
    """How many calls of a probe are not in its histogram."""
    part = session.snapshot().probes[name]
    return part.iterations - part.channels[CALL].count


def test_groups_run_one_after_the_other(session: Session) -> None:
    session.set_running([*NAMES, "d"])
    for name in NAMES:
        wait_until(lambda name=name: session.snapshot().probes[name].iterations > 60, f"{name} has three slots")  # type: ignore[misc]
    snapshot = session.snapshot()
    parts = snapshot.probes
    assert {name: parts[name].in_slots for name in (*NAMES, "d")} == {"a": True, "b": True, "c": True, "d": False}
    assert all(parts[name].state is ProbeState.RUNNING and parts[name].on for name in NAMES)
    # In the order of time, the calls of the two groups come in blocks. Without slots two of three calls would follow
    # one of the other group. On a busy machine a call may end in the next slot.
    calls = sorted(
        [(end, "one") for name in ("a", "c") for end in ends(session, name)] + [(e, "two") for e in ends(session, "b")]
    )
    changes = sum(before[1] != now[1] for before, now in pairwise(calls))
    assert 2 <= changes < len(calls) / 6
    # The first call of each slot is not measured, apart from the very first one. On a busy machine slots are longer, so
    # that as many calls lie in fewer of them.
    for name in NAMES:
        wait_until(lambda name=name: unmeasured(session, name) > 2, f"{name} has calls that are not measured")  # type: ignore[misc]
    assert parts["d"].channels[CALL].count == pytest.approx(parts["d"].iterations - 1, abs=1)
    both = parts["a"].allowed_ns + parts["b"].allowed_ns
    assert both <= snapshot.at_ns - parts["a"].on_since_ns + SLOT_NS
    assert min(parts["a"].allowed_ns, parts["b"].allowed_ns) >= 2 * SLOT_NS


def test_a_stuck_call_blocks_no_other_group_and_the_board_says_so(session: Session) -> None:
    session.set_running([*NAMES, "hung"])
    wait_until(lambda: session.snapshot().probes["hung"].in_flight is not None, "the call hangs")
    before = session.snapshot().probes
    for name in NAMES:
        wait_until(lambda name=name: session.snapshot().probes[name].iterations > before[name].iterations + 40, name)  # type: ignore[misc]
    wait_until(lambda: session.snapshot().probes["hung"].allowed_ns > 2 * SLOT_NS, "its own slots go on")
    after = session.snapshot().probes
    for name in NAMES:
        window = after[name].minus(before[name])
        # A busy machine may take the CPU between the readings of the two.
        assert 0 < window.not_alone_ns <= window.duration_ns + SLOT_NS
    flight = after["hung"].in_flight
    assert flight is not None
    assert flight.allowed_ns < flight.age_ns


def test_a_group_alone_is_not_interrupted(session: Session) -> None:
    session.set_running(["b"])
    wait_until(lambda: session.snapshot().probes["a"].state is ProbeState.PARKED, "a is parked")
    session.run_for(0.05)
    before = session.snapshot()
    wait_until(lambda: session.snapshot().at_ns > before.at_ns + 3 * SLOT_NS, "three slots passed")
    window = session.snapshot().minus(before)["b"]
    assert window.duration_ns >= 3 * SLOT_NS
    assert window.channels[CALL].count >= window.iterations - 1


def test_together_every_victim_runs_all_the_time() -> None:
    with Session([victim("a", "one"), victim("b", "two")], "host", options=Options(together=True)) as session:
        session.set_running(["a", "b"])
        wait_until(lambda: session.snapshot().probes["b"].iterations > 5, "b runs")
        parts = session.snapshot().probes
        assert not any(part.in_slots for part in parts.values())
        assert parts["a"].channels[CALL].count == pytest.approx(parts["a"].iterations - 1, abs=1)
