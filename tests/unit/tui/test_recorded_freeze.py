"""The trace at which the screen of the timeline froze, in the recording of the screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.recordings import STALL
from factories.traces import simulated_trace
from stallprobes.catalog import Placement, entries
from stallprobes.engine.backend import Options
from stallprobes.model import MS, SECONDARY
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording
from stallprobes.traces.trace import Trace
from stallprobes.traces.trigger import CallTrigger, SlowCall, slowest_call
from stallscope.tui.common.screen import ScreenContext
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.settings import Settings
from stallscope.tui.sources.live import LiveSource
from stallscope.tui.timeline.screen import TimelineScreen
from stallscope.tui.timeline.trace_capture import CaptureState
from stallscope.tui.timeline.traces import LiveTrace

PROBES = (entries()["d2d"].probe(Placement(context=SECONDARY)), entries()["spin"].probe())


@pytest.fixture(scope="module")
def frozen() -> tuple[Trace, SlowCall]:
    """A trace of 300 ms and its slowest call."""
    trace = simulated_trace(*PROBES, ns=300 * MS)
    found = slowest_call(
        trace.between(trace.begin_ns + 100 * MS, trace.end_ns - 100 * MS), CallTrigger(PROBES, above_ns=0).limits({})
    )
    assert found is not None
    return trace.changed(trigger=found.trigger), found


@pytest.fixture
def context() -> ScreenContext:
    return ScreenContext(LiveSource(Options(profile="h200")), Settings())


def test_the_part_around_the_slow_call_is_recorded(frozen: tuple[Trace, SlowCall], context: ScreenContext) -> None:
    trace, found = frozen
    kept: list[Trace] = []
    context.record_trace = kept.append
    screen = TimelineScreen(context)
    screen.capture.trace, screen.capture.found, screen.capture.state = trace, found, CaptureState.FROZEN
    assert isinstance(screen.traces, LiveTrace)
    screen.traces.record_frozen()
    (recorded,) = kept
    assert recorded.trigger == found.trigger
    assert recorded.begin_ns == found.began_ns - 50 * MS
    assert recorded.end_ns == found.end_ns + 20 * MS
    assert len(recorded.calls) < len(trace.calls)


def test_a_trace_that_was_frozen_by_a_key_is_not(frozen: tuple[Trace, SlowCall], context: ScreenContext) -> None:
    kept: list[Trace] = []
    context.record_trace = kept.append
    screen = TimelineScreen(context)
    screen.capture.trace = frozen[0]
    assert isinstance(screen.traces, LiveTrace)
    screen.traces.record_frozen()
    assert kept == []


def test_the_recorder_of_the_screen_gets_it(
    frozen: tuple[Trace, SlowCall], context: ScreenContext, tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path / "a.rec")
    Monitor(context, LiveSource(Options(profile="h200")), recorder)
    assert context.record_trace is not None
    source = Recording(STALL)
    recorder.put_blocking(next(source.play()), {})
    source.close()
    context.record_trace(frozen[0])
    recorder.close(10.0)
    found = Recording(tmp_path / "a.rec")
    assert found.trace(0).trigger == frozen[0].trigger
    Monitor(context, LiveSource(Options(profile="h200")))
    assert context.record_trace is None
