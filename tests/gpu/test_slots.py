"""On a real GPU: victims of two contexts in slots are as fast as alone, and a stall is as visible.

Pairs of windows, alone and in slots, follow each other within the same minute, since the machine itself changes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

import pytest

from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.latency.window import Window
from stallprobes.model import Channel, Phase
from stallscope.tui.probe_sets import default_probes

pytestmark = pytest.mark.gpu

WAIT = Channel(Phase.WAIT)
VICTIMS = ("launch", "d2d@secondary", "d2h-pinned", "host")
WAITING = VICTIMS[:3]
PAIRS = 5
WINDOW_S = 0.5
SETTLE_S = 0.3
STARTED_WITHIN_S = 5.0
WITHIN = 1.10
SLOTTED_RATIO = 300
QUIET_RATIO = 1.5
# Another context's change-over; a launch that waits for it is not quiet.
CHANGE_OVER_NS = 100_000


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(default_probes(), "cuda") as made:
        yield made


def measured(session: Session, names: tuple[str, ...], seconds: float = WINDOW_S) -> Mapping[str, Window]:
    session.set_running(names)
    session.run_for(SETTLE_S)
    before = session.snapshot()
    session.run_for(seconds)
    return session.snapshot().minus(before)


def p50_ns(windows: Mapping[str, Window], name: str) -> float:
    found = windows[name].channels[WAIT].percentile(50)
    assert found is not None
    return found


def test_the_waits_of_the_default_screen_are_those_of_each_victim_alone(session: Session) -> None:
    ratios: dict[str, list[float]] = {name: [] for name in WAITING}
    for _ in range(PAIRS):
        together = measured(session, VICTIMS)
        for name in WAITING:
            ratios[name].append(p50_ns(together, name) / p50_ns(measured(session, (name,)), name))
    for each in ratios.values():
        assert 1 / WITHIN <= statistics.median(each) <= WITHIN, ratios


def test_each_victim_has_its_share_of_the_time_and_keeps_its_period(session: Session) -> None:
    windows = measured(session, VICTIMS, 2.0)
    rates = {name: window.iterations / window.seconds for name, window in windows.items() if name in VICTIMS}
    shares = {name: windows[name].seconds / windows["host"].seconds for name in VICTIMS}
    for name in VICTIMS:
        assert rates[name] == pytest.approx(1000, rel=0.02)
        assert shares[name] == pytest.approx(0.5 if name in WAITING[:2] else 1.0, abs=0.06)


def test_with_the_spin_kernel_the_copy_waits_300_times_as_long_and_the_launch_is_quiet(session: Session) -> None:
    quiet = measured(session, VICTIMS)
    proof = session.snapshot().probes["spin"].proof
    session.set_running((*VICTIMS, "spin"))
    for _ in range(round(STARTED_WITHIN_S / SETTLE_S)):
        session.run_for(SETTLE_S)
        if session.snapshot().probes["spin"].proof > proof:
            break
    disturbed = measured(session, (*VICTIMS, "spin"), 2.0)
    ratios = {name: p50_ns(disturbed, name) / p50_ns(quiet, name) for name in WAITING}
    tail_ns = disturbed["launch"].channels[WAIT].percentile(99)
    session.set_running(())
    session.run_for(SETTLE_S)
    assert ratios["d2d@secondary"] >= SLOTTED_RATIO, ratios
    assert max(ratios["launch"], ratios["d2h-pinned"]) <= QUIET_RATIO, ratios
    assert tail_ns is not None
    assert tail_ns < CHANGE_OVER_NS


def test_together_both_wait_for_the_change_over() -> None:
    with Session(default_probes(), "cuda", options=Options(together=True)) as session:
        windows = measured(session, VICTIMS)
        waits = {name: p50_ns(windows, name) for name in WAITING}
    assert min(waits["launch"], waits["d2d@secondary"]) > CHANGE_OVER_NS, waits
    assert waits["d2h-pinned"] < CHANGE_OVER_NS, waits
