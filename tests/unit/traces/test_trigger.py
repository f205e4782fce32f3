"""The trigger of traces: limits that follow the baseline, the first call above them, and what does not count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from factories.simulated_machine import SimulatedMachine
from factories.traces import advance, history_of, traced_machine
from stallprobes.catalog import Placement, entries
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import InFlight
from stallprobes.model import MS, SECONDARY, US, Channel, Phase, Probe
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.trace import OPEN
from stallprobes.traces.trigger import CallTrigger, limit_ns, slow_calls, slowest_call

PROBES = (
    entries()["spin"].probe(),
    entries()["d2d"].probe(Placement(context=SECONDARY)),
    entries()["host"].probe(),
)
SPIN, COPY, HOST = PROBES
CALL, START, EARLY = Channel(Phase.CALL), Channel(Phase.START), Channel(Phase.EARLY)


def baseline(**channels: int) -> Baseline:
    """A baseline of 100 calls of equal length (ns) in each of ``channels``."""
    window = {Channel(Phase(name)): Histogram.of([ns] * 100) for name, ns in channels.items()}
    return Baseline.of([window, window], duration_ns=2 * 10**9)


@pytest.fixture(scope="module")
def session() -> tuple[SimulatedMachine, TraceHistory, dict[str, Baseline]]:
    """A copy in a secondary context: 800 ms alone, then 150 ms with the spin kernel in the primary one."""
    made = traced_machine(*PROBES)
    made.switch(False, [SPIN.name])
    history = history_of(PROBES)
    advance(made, history, 300 * MS)
    before = made.board.snapshot()
    advance(made, history, 500 * MS)
    windows = made.board.snapshot().minus(before)
    known = {name: Baseline.of([window.channels]) for name, window in windows.items() if name != SPIN.name}
    made.switch(True, [SPIN.name])
    advance(made, history, 150 * MS)
    return made, history, known


@pytest.mark.parametrize(
    ("known", "channel", "limit"),
    [
        (baseline(call=3_000), CALL, 103 * US),
        (baseline(call=400_000), CALL, 1_200 * US),
        (baseline(early=3_000), START, 100 * US),
        (baseline(call=3_000), START, None),
    ],
)
def test_the_limit_follows_the_baseline(known: Baseline, channel: Channel, limit: int | None) -> None:
    found = limit_ns(known, channel)
    assert (found is None) == (limit is None)
    assert found is None or found == pytest.approx(limit, rel=0.02)


def test_a_rare_call_of_the_baseline_does_not_fire_again() -> None:
    window = {CALL: Histogram.of([3_000] * 1000 + [700_000])}
    found = limit_ns(Baseline.of([window]), CALL)
    assert found is not None
    assert found >= 690_000


def test_a_quiet_session_does_not_fire(session: tuple[SimulatedMachine, TraceHistory, dict[str, Baseline]]) -> None:
    _, history, known = session
    end_ns = history.collected_ns - 150 * MS
    quiet = history.trace(end_ns - 500 * MS, end_ns)
    assert slowest_call(quiet, CallTrigger(PROBES).limits(known)) is None


def test_the_first_copy_behind_the_kernel_fires_by_its_start(
    session: tuple[SimulatedMachine, TraceHistory, dict[str, Baseline]],
) -> None:
    _, history, known = session
    trigger = CallTrigger(PROBES)
    begin_ns = history.collected_ns - 600 * MS
    trigger.skip(begin_ns)
    found = trigger.feed(history, known)
    assert found is not None
    assert found.probe == PROBES.index(COPY)
    assert found.phase is Phase.START
    assert found.ns > found.limit_ns > 100 * US
    trace = history.trace(found.since_ns - MS, found.end_ns + MS, trigger=found.trigger)
    call = trace.trigger_call()
    assert call is not None
    (work,) = trace.work_of(call)
    assert work["start_ns"] - found.returned_ns == found.ns
    # No earlier one is above its limit.
    limits = trigger.limits(known)
    earlier = history.trace(begin_ns, found.end_ns - 1)
    assert not list(slow_calls(earlier, limits, begin_ns, found.end_ns - 1))


def test_after_a_slow_call_those_of_the_cool_down_are_passed_over(
    session: tuple[SimulatedMachine, TraceHistory, dict[str, Baseline]],
) -> None:
    _, history, known = session
    for cool_down_s, fires in ((0.0, True), (0.02, True), (10.0, False)):
        trigger = CallTrigger(PROBES, cool_down_s=cool_down_s)
        first = trigger.feed(history, known)
        assert first is not None
        # The same records once more, as if they were new.
        trigger._scanned_ns = 0
        second = trigger.feed(history, known)
        assert (second is not None) == fires
        assert second is None or second.end_ns > first.end_ns + cool_down_s * 1e9


def test_a_given_limit_replaces_that_of_the_baseline(
    session: tuple[SimulatedMachine, TraceHistory, dict[str, Baseline]],
) -> None:
    _, history, known = session
    assert CallTrigger(PROBES, above_ns=10**9).feed(history, known) is None
    low = CallTrigger(PROBES, above_ns=1).feed(history, {})
    assert low is not None
    assert low.limit_ns == 1
    # The aggressor and the host control have no limit.
    limits = CallTrigger(PROBES, above_ns=1).limits({})
    assert (limits.calls[PROBES.index(SPIN)] == OPEN).all()
    assert (limits.calls[PROBES.index(HOST)] == OPEN).all()


def test_without_a_baseline_nothing_fires(session: tuple[SimulatedMachine, TraceHistory, dict[str, Baseline]]) -> None:
    _, history, _ = session
    assert CallTrigger(PROBES).feed(history, {}) is None


def test_a_slow_host_is_the_cause_of_a_slow_call(
    session: tuple[SimulatedMachine, TraceHistory, dict[str, Baseline]],
) -> None:
    _, history, known = session
    limits = CallTrigger(PROBES).limits(known)
    trace = history.trace(history.collected_ns - 150 * MS, history.collected_ns)
    worst = slowest_call(trace, limits)
    assert worst is not None
    calls = trace.calls.copy()
    hosts = np.flatnonzero(calls["probe"] == PROBES.index(HOST))
    for share, fires in ((0.4, True), (0.6, False)):
        calls["began_ns"][hosts[0]] = worst.since_ns
        calls["returned_ns"][hosts[0]] = worst.since_ns + round(share * worst.ns)
        slow_host = trace.changed(calls=calls[np.argsort(calls["began_ns"], kind="stable")])
        assert (worst in slow_calls(slow_host, limits, trace.begin_ns, trace.end_ns)) == fires


def test_a_call_in_flight_fires_after_100_ms(
    session: tuple[SimulatedMachine, TraceHistory, dict[str, Baseline]],
) -> None:
    made, history, known = session
    snapshot = made.board.snapshot()
    part = snapshot.probes[COPY.name]
    for age_ns, fires in ((99 * MS, False), (101 * MS, True)):
        flight = InFlight(0, snapshot.at_ns - age_ns, age_ns, snapshot.at_ns - age_ns)
        stuck = replace(snapshot, probes={**snapshot.probes, COPY.name: structs.replace(part, in_flight=flight)})
        trigger = CallTrigger(PROBES)
        trigger.skip(history.collected_ns)
        found = trigger.feed(history, known, stuck)
        assert (found is not None) == fires
        assert found is None or (found.in_flight and found.ns == age_ns)


def test_the_slowest_call_is_that_of_a_probe_and_a_phase(
    session: tuple[SimulatedMachine, TraceHistory, dict[str, Baseline]],
) -> None:
    _, history, known = session
    limits = CallTrigger(PROBES).limits(known)
    trace = history.trace(history.collected_ns - 150 * MS, history.collected_ns)
    number = PROBES.index(COPY)
    slow = [call for call in slow_calls(trace, limits, trace.begin_ns, trace.end_ns) if call.phase is Phase.START]
    starts = slowest_call(trace, limits, number, Phase.START)
    assert starts is not None
    assert starts.ns == max(call.ns for call in slow)
    assert slowest_call(trace, limits, PROBES.index(HOST)) is None


def test_a_probe_without_ops_has_no_limit() -> None:
    assert CallTrigger(()).limits({}).calls.shape == (0, 0)
    bare: Probe = replace(COPY, program=replace(COPY.program, ops=()))
    assert CallTrigger((bare,)).limits({}).calls.shape == (1, 0)


def test_the_rest_of_a_calls_work_is_late_only_after_its_first_part_has_ended(
    session: tuple[SimulatedMachine, TraceHistory, dict[str, Baseline]],
) -> None:
    _, history, known = session
    limits = CallTrigger(PROBES).limits(known)
    end_ns = history.collected_ns - 150 * MS
    quiet = history.trace(end_ns - 100 * MS, end_ns)
    (row, *_) = np.flatnonzero((quiet.work["probe"] == PROBES.index(COPY)) & (quiet.work["iteration"] > 0))
    first = quiet.work[row]
    for gap_ns, fires in ((50 * US, False), (200 * US, True)):
        long, rest = first.copy(), first.copy()
        long["end_ns"] = first["start_ns"] + 300 * US
        rest["start_ns"], rest["end_ns"] = long["end_ns"] + gap_ns, long["end_ns"] + gap_ns + US
        work = np.concatenate((quiet.work[:row], [long, rest], quiet.work[row + 1 :]))
        staged = quiet.changed(work=work[np.argsort(work["start_ns"], kind="stable")])
        found = list(slow_calls(staged, limits, staged.begin_ns, staged.end_ns))
        assert [call.end_ns for call in found] == ([rest["start_ns"]] if fires else [])
