"""The capture of a live timeline: trigger, limits, and what is kept; and the engine's timeline behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from factories.simulated_machine import SimulatedMachine
from factories.traces import advance, history_of, traced_machine
from stallprobes.engine.snapshot import Snapshot
from stallprobes.engine.timeline.reader import read_rows
from stallprobes.errors import EngineFailed
from stallprobes.latency.baseline import Baseline
from stallprobes.model import MS, Phase
from stallprobes.patterns import patterns
from stallprobes.recording.observation import SIM
from stallprobes.records.timeline import BEGINNING, OFF, TimelinePosition, TimelineProblem, TimelineStatus
from stallprobes.traces.history import TraceHistory
from stallscope.tui.sources.live_timeline import LiveTimeline, TimelineCondition
from stallscope.tui.timeline.trace_capture import CaptureState, TraceCapture, limit_text

PROBES = patterns()["secondary-context-d2d"].variant("kernel-other-context").probes
SPAN_NS = 10 * MS


def state_of(capture: TraceCapture) -> CaptureState:
    return capture.state


def condition_of(timeline: LiveTimeline) -> TimelineCondition:
    return timeline.report.condition


class Stall:
    """A simulated machine in which the copy stalls once its aggressor is switched on."""

    def __init__(self) -> None:
        self.machine: SimulatedMachine = traced_machine(*PROBES)
        self.history: TraceHistory = history_of(PROBES)
        self.aggressor = PROBES[1].name
        self.machine.switch(False, [self.aggressor])
        self.baselines: Mapping[str, Baseline] = {}
        self.advance(600)
        before = self.machine.board.snapshot()
        self.advance(1_000)
        window = self.machine.board.snapshot().minus(before)
        victim = PROBES[0].name
        self.baselines = {victim: Baseline.of([window[victim].channels] * 4, duration_ns=4_000 * MS)}

    def advance(self, ms: int) -> None:
        advance(self.machine, self.history, ms * MS)

    def feed(self, capture: TraceCapture) -> bool:
        snapshot: Snapshot = self.machine.board.snapshot()
        return capture.feed(self.history, PROBES, self.baselines, snapshot, ("other (pid 3)",), SPAN_NS)


@pytest.fixture(scope="module")
def stall() -> Stall:
    return Stall()


def test_armed_it_freezes_at_the_first_call_above_its_baseline(stall: Stall) -> None:
    capture = TraceCapture()
    assert not stall.feed(capture)
    capture.arm()
    stall.advance(200)
    assert not stall.feed(capture)
    assert state_of(capture) is CaptureState.ARMED
    assert limit_text(capture, capture.limits).startswith("baseline (10")
    stall.machine.switch(True, [stall.aggressor])
    while not stall.feed(capture):
        stall.advance(50)
    assert state_of(capture) is CaptureState.FROZEN
    trace, found = capture.trace, capture.found
    assert trace is not None
    assert found is not None
    assert trace.trigger is not None
    assert trace.trigger.began_ns == found.began_ns
    assert found.ns > 0.1 * MS
    assert found.phase in (Phase.WAIT, Phase.START)
    # What led to it is kept, and what followed for the rest of the span.
    assert trace.begin_ns < found.began_ns - 100 * MS
    assert trace.end_ns >= found.end_ns + 3 * MS
    assert trace.others == ("other (pid 3)",)
    assert capture.why.startswith("d2d@secondary ")
    # The frozen trace stays as it is.
    stall.advance(50)
    assert not stall.feed(capture)
    assert capture.trace is trace
    stall.machine.switch(False, [stall.aggressor])
    stall.advance(300)


def test_a_limit_of_its_own_replaces_the_baselines(stall: Stall) -> None:
    capture = TraceCapture()
    capture.set_limit(1)
    capture.arm()
    # Calls before the trigger was armed do not count.
    assert not stall.feed(capture)
    stall.advance(50)
    assert stall.feed(capture) or state_of(capture) is CaptureState.TRIGGERED
    assert capture.found is not None
    assert capture.found.ns < 0.1 * MS


def test_of_a_stall_of_the_monitor_the_worst_call_is_the_trigger(stall: Stall) -> None:
    capture = TraceCapture()
    # The limit of the trigger does not matter for it.
    capture.set_limit(10**12)
    capture.arm(PROBES[0].name)
    stall.machine.switch(True, [stall.aggressor])
    while not stall.feed(capture):
        stall.advance(100)
    stall.machine.switch(False, [stall.aggressor])
    stall.advance(300)
    trace, found = capture.trace, capture.found
    assert trace is not None
    assert found is not None
    calls = trace.calls[trace.calls["probe"] == 0]
    assert found.began_ns in calls["began_ns"]
    assert found.ns > MS
    capture.go_live()
    assert (capture.trace, capture.found, capture.stalled) == (None, None, None)


def test_limits_step_by_1_2_5() -> None:
    capture = TraceCapture()
    assert limit_text(capture, None) == "baseline, not known yet"
    capture.step_limit(1, MS)
    assert capture.above_ns == MS
    capture.step_limit(1, MS)
    assert limit_text(capture, None) == "2.00 ms"
    for _ in range(30):
        capture.step_limit(-1, MS)
    assert capture.above_ns == 10_000
    capture.set_limit(None)
    assert capture.above_ns is None


class FakeSession:
    """A session whose timeline answers what the test says."""

    probes = PROBES
    backend = SIM

    def __init__(self) -> None:
        self.alive = True
        self.status: TimelineStatus | None = OFF
        self.asked: list[bool] = []
        self.answer: Any = None

    def switch_timeline(self, on: bool) -> None:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.asked.append(on)
        self.status = self.answer

    def timeline_status(self) -> TimelineStatus | None:
        return self.status


def test_an_engine_is_asked_once_for_each_switch_and_each_new_engine_again() -> None:
    timeline, session = LiveTimeline(), FakeSession()
    assert condition_of(timeline) is TimelineCondition.NO_ENGINE
    timeline.follow(session)  # type: ignore[arg-type]
    assert session.asked == []
    assert condition_of(timeline) is TimelineCondition.OFF
    assert timeline.is_on is False
    timeline.switch(True)
    assert condition_of(timeline) is TimelineCondition.SWITCHING_ON
    assert timeline.is_on is None
    for _ in range(5):
        timeline.follow(session)
    assert session.asked == [True]
    assert condition_of(timeline) is TimelineCondition.SWITCHING_ON
    assert timeline.read(None) is None
    session.status = TimelineStatus(on=True)
    assert condition_of(timeline) is TimelineCondition.ON
    session.alive = False
    assert condition_of(timeline) is TimelineCondition.NO_ENGINE
    assert timeline.is_on is False
    other = FakeSession()
    timeline.follow(None)
    timeline.follow(other)
    assert other.asked == [True]
    other.status = TimelineStatus(on=True)
    timeline.switch(False)
    assert condition_of(timeline) is TimelineCondition.SWITCHING_OFF
    assert other.asked == [True, False]


def test_a_problem_is_reported_and_calls_are_not_longer_then() -> None:
    timeline, session = LiveTimeline(), FakeSession()
    session.answer = TimelineStatus(False, TimelineProblem.TAKEN, "another tool uses CUPTI", "end it")
    timeline.follow(session)  # type: ignore[arg-type]
    timeline.switch(True)
    report = timeline.report
    assert report.condition is TimelineCondition.PROBLEM
    assert "another tool uses CUPTI" in report.status.sentence
    assert timeline.is_on is False
    # The engine may end while it is asked.
    session.answer = EngineFailed(4, "the engine ended")
    timeline.switch(False)
    assert condition_of(timeline) is TimelineCondition.OFF


class BoardSession(FakeSession):
    """A session over the board of a simulated machine."""

    def __init__(self, stall: Stall) -> None:
        super().__init__()
        self.machine = stall.machine

    def timeline_status(self) -> TimelineStatus | None:
        return self.machine.backend.timeline()

    def timeline_rows(self, since: TimelinePosition = BEGINNING) -> Any:
        status = self.machine.backend.timeline()
        assert status is not None
        return read_rows(self.machine.board, since, status)


def test_a_history_begins_when_the_timeline_is_switched_on(stall: Stall) -> None:
    timeline, session = LiveTimeline(), BoardSession(stall)
    timeline.follow(session)  # type: ignore[arg-type]
    timeline.switch(True)
    first = timeline.read(None)
    assert first is not None
    assert first.started_ns == first.begin_ns
    begun_ns = first.begin_ns
    stall.advance(100)
    assert timeline.read(None) is first
    trace = first.trace(first.begin_ns, first.collected_ns)
    assert len(trace.calls) > 50
    assert (trace.calls["began_ns"] >= begun_ns - 10 * MS).all()
    stall.machine.backend.switch_timeline(False)
    stall.advance(50)
    assert timeline.read(None) is None
    stall.machine.backend.switch_timeline(True)
    second = timeline.read(None)
    assert second is not None
    assert second is not first
    assert second.begin_ns > first.begin_ns
