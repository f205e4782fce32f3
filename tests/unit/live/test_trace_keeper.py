"""The keeper of traces: of the first slow call, of a stall below the limits, of a call in flight; how many it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from msgspec import structs

from factories.recordings import WALL_S
from factories.simulated_machine import SimulatedMachine
from factories.traces import traced_machine
from stallprobes.catalog import Placement, entries
from stallprobes.engine.snapshot import Snapshot
from stallprobes.engine.timeline.reader import TimelineRows, read_rows
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import InFlight
from stallprobes.live import trace_keeper
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.trace_keeper import TraceKeeper
from stallprobes.live.view_model import LogEntry
from stallprobes.model import MS, SECONDARY, Channel, Phase
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.board import CALL_MEASURED, HostCall
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, Observation, ProbeSet
from stallprobes.traces.summary import summary
from stallprobes.traces.trace import Trace
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict

PROBES = (
    entries()["d2d"].probe(Placement(context=SECONDARY)),
    entries()["spin"].probe(),
    entries()["host"].probe(),
)
COPY, SPIN, HOST = PROBES
PROBE_SET = ProbeSet(title="made up", probes=PROBES, backend=SIM)
STEP_NS = 50 * MS


def baseline(ns: int) -> dict[str, Baseline]:
    """A baseline of the copy whose calls and starts all took ``ns``."""
    window = {Channel(phase): Histogram.of([ns] * 100) for phase in (Phase.CALL, Phase.WAIT, Phase.START)}
    return {COPY.name: Baseline.of([window, window])}


def stall(number: int, probe: str = COPY.name, kind: VerdictKind = VerdictKind.STALLED) -> LogEntry:
    return LogEntry(number, WALL_S, Verdict(probe, Phase.WAIT, Quantile.P50, 3000.0, 15_000.0, 5.0, kind, "made up"))


@dataclass
class Moment:
    """What a session had at one moment."""

    rows: TimelineRows
    snapshot: Snapshot

    @property
    def observation(self) -> Observation:
        wall_s = WALL_S + self.snapshot.at_ns / 1e9
        return Observation(
            wall_s=wall_s,
            probe_set=PROBE_SET,
            engine=EngineStatus(EngineCondition.READY),
            snapshot=self.snapshot,
            timeline=True,
        )


def moments(made: SimulatedMachine, keeper: TraceKeeper, ns: int) -> list[Moment]:
    found: list[Moment] = []
    for _ in range(ns // STEP_NS):
        made.advance(STEP_NS)
        status = made.backend.timeline()
        assert status is not None
        rows = read_rows(made.board, keeper.position if not found else found[-1].rows.position, status)
        found.append(Moment(rows, made.board.snapshot()))
    return found


@pytest.fixture(scope="module")
def session() -> list[Moment]:
    """The copy alone for 0.3 s, then 0.4 s beside the spin kernel of another context, from the beginning on."""
    made = traced_machine(*PROBES)
    made.switch(False, [SPIN.name])
    keeper = TraceKeeper(PROBES, lambda _: None)
    found = moments(made, keeper, 300 * MS)
    made.switch(True, [SPIN.name])
    return [*found, *_following(made, found[-1], 400 * MS)]


def _following(made: SimulatedMachine, last: Moment, ns: int) -> list[Moment]:
    keeper = TraceKeeper(PROBES, lambda _: None)
    keeper.history.position = last.rows.position
    return moments(made, keeper, ns)


def fed(
    session: list[Moment], known: Mapping[str, Baseline], log: Mapping[int, tuple[LogEntry, ...]] | None = None
) -> tuple[TraceKeeper, list[Trace]]:
    """A keeper after all moments, and what it kept; ``log`` has the verdicts known from a moment on."""
    kept: list[Trace] = []
    keeper = TraceKeeper(PROBES, kept.append, others=("train (pid 7)",), simulated=True)
    entries_: tuple[LogEntry, ...] = ()
    for number, moment in enumerate(session):
        entries_ = (log or {}).get(number, entries_)
        keeper.feed(moment.rows, moment.observation, analyzer(known, entries_))
    return keeper, kept


def analyzer(known: Mapping[str, Baseline], log: tuple[LogEntry, ...] = ()) -> Analyzer:
    return cast(Analyzer, SimpleNamespace(baselines=known, log=log))


def test_the_first_slow_call_has_a_trace_with_what_led_to_it(session: list[Moment]) -> None:
    _, (trace,) = fed(session, baseline(5_000))
    found = summary(trace)
    assert found is not None
    assert (found.probe, found.phase) == (COPY.name, Phase.START)
    assert trace.trigger is not None
    assert trace.begin_ns <= trace.trigger.began_ns - 50 * MS
    assert trace.end_ns >= trace.trigger.returned_ns + found.ns + 20 * MS
    # Its records have arrived.
    assert trace.collected_ns >= trace.end_ns - STEP_NS
    assert trace.simulated
    assert trace.others == ("train (pid 7)",)


def test_without_a_slow_call_there_is_none(session: list[Moment]) -> None:
    assert fed(session, baseline(10 * MS))[1] == []
    assert fed(session, {})[1] == []
    assert fed(session[:6], baseline(5_000))[1] == []


def test_a_stall_below_the_limits_has_the_trace_of_its_worst_call(session: list[Moment]) -> None:
    # As slow as the limits allow, but a verdict says that it stalls.
    keeper, (trace,) = fed(session, baseline(10 * MS), {10: (stall(1),), 12: (stall(1), stall(2))})
    found = summary(trace)
    assert found is not None
    assert found.probe == COPY.name
    # The worst one of thousands of calls.
    recent = keeper.history.trace(0, session[10].rows.collected_ns)
    own = recent.calls[recent.calls["probe"] == PROBES.index(COPY)]
    assert found.ns == (own["returned_ns"] - own["began_ns"]).max()


@pytest.mark.parametrize(
    "entry", [stall(1, kind=VerdictKind.SLOWER), stall(1, probe="nobody"), stall(1, kind=VerdictKind.UNSTEADY)]
)
def test_other_verdicts_have_none(session: list[Moment], entry: LogEntry) -> None:
    assert fed(session, {}, {10: (entry,)})[1] == []


def test_a_trace_that_is_not_complete_is_cut_at_the_end(session: list[Moment]) -> None:
    first = fed(session, baseline(5_000))[1][0]
    assert first.trigger is not None
    until = next(n for n, one in enumerate(session) if one.rows.collected_ns >= first.trigger.returned_ns + 3 * MS)
    keeper, kept = fed(session[: until + 1], baseline(5_000))
    keeper.finish()
    assert [one.trigger for one in kept] == [first.trigger]
    keeper.finish()
    assert len(kept) == 1


@pytest.mark.parametrize("returns", [False, True])
def test_a_call_in_flight_has_a_trace(session: list[Moment], returns: bool) -> None:
    kept: list[Trace] = []
    keeper = TraceKeeper(PROBES, kept.append)
    for moment in session[:3]:
        keeper.feed(moment.rows, moment.observation, analyzer(baseline(5_000)))
    # The copy that began then has not returned.
    since_ns, last = session[2].snapshot.at_ns, session[6]
    none = {name: calls[:0] for name, calls in last.rows.calls.items()}
    age_ns = last.snapshot.at_ns - since_ns
    part = structs.replace(last.snapshot.probes[COPY.name], in_flight=InFlight(0, since_ns, age_ns, since_ns))
    snapshot = replace(last.snapshot, probes={**last.snapshot.probes, COPY.name: part})
    stuck = structs.replace(last.observation, snapshot=snapshot)
    keeper.feed(replace(last.rows, calls=none, records=last.rows.records[:0]), stuck, analyzer(baseline(5_000)))
    later = session[7].rows
    if returns:
        row = (since_ns, last.snapshot.at_ns + MS, CALL_MEASURED, 7)
        later = replace(later, calls=none | {COPY.name: np.array([row], dtype_of(HostCall))})
        stuck = session[7].observation
    else:
        later = replace(later, calls=none)
    keeper.feed(later, stuck, analyzer(baseline(5_000)))
    keeper.finish()
    (trace,) = kept
    found = summary(trace)
    assert found is not None
    assert found.ns == age_ns + (MS if returns else 0)
    assert (found.in_flight, found.call) == (not returns, "cuMemcpyDtoDAsync")


def test_at_most_some_a_minute_are_kept(session: list[Moment], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_keeper, "MOST_A_MINUTE", 0)
    keeper, kept = fed(session, baseline(5_000))
    assert (keeper.passed_over, kept) == (1, [])
