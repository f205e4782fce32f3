"""Recordings with the timeline on: its phases, its state and its traces come back, and verdicts are the live ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from factories.recordings import WALL_S, probe_set_of
from factories.replayed import replayed
from factories.virtual_session import VirtualSession, virtual_sessions
from stallprobes.engine.backend import Options
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.ratio import Quantile
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.capture import capture
from stallprobes.model import Channel, Phase
from stallprobes.recording.observation import EngineCondition, EngineStatus, Observation, ProbeSet
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording
from stallprobes.traces.summary import summary
from stallprobes.verdicts.kinds import VerdictKind
from stallscope.tui.sources.replay import ReplaySource

PROBE_SET = probe_set_of("secondary-context-d2d", "kernel-other-context")
START = Channel(Phase.START)
VICTIM, AGGRESSOR = "d2d@secondary", "spin"
# Seconds, timeline on, aggressor on.
PARTS = ((3.0, False, False), (3.0, True, False), (1.0, True, True), (1.2, False, False))


@dataclass
class Recorded:
    """A recording, and what was known live: the observations, the analyzer, and its baselines at each observation."""

    file: Path
    observations: list[Observation]
    analyzer: Analyzer
    baselines: list[Mapping[str, Baseline]]


@pytest.fixture(scope="module")
def switched(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A recording in which the timeline is switched on, the aggressor runs, and both are switched off."""
    path = tmp_path_factory.mktemp("timeline") / "switched.rec"
    recorder = Recorder(path)
    session = VirtualSession(PROBE_SET.probes, backend="sim", options=Options(profile="h200"))
    found = Recorded(path, [], Analyzer(PROBE_SET), [])
    with session:
        session.set_running({probe.name: probe.name != AGGRESSOR for probe in PROBE_SET.probes})
        for seconds, timeline, aggressor in (
            (3.0, False, False),
            (3.0, True, False),
            (1.0, True, True),
            (1.2, False, False),
        ):
            session.switch_timeline(timeline)
            session.set_running({AGGRESSOR: aggressor})
            for _ in range(round(seconds * 10)):
                session.run_for(0.1)
                snapshot = session.snapshot()
                observation = Observation(
                    wall_s=WALL_S + snapshot.at_ns / 1e9,
                    probe_set=PROBE_SET,
                    engine=EngineStatus(EngineCondition.READY),
                    snapshot=snapshot,
                    timeline=timeline,
                )
                found.analyzer.feed(observation)
                found.observations.append(observation)
                found.baselines.append(dict(found.analyzer.baselines))
                recorder.put_blocking(observation, found.analyzer.baselines)
    recorder.close(10.0)
    assert recorder.problem is None
    return found


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``record --timeline`` writes, with a second of the aggressor."""
    path = tmp_path_factory.mktemp("timeline") / "captured.rec"
    with virtual_sessions():
        capture(PROBE_SET, path, options=Options(profile="h200", timeline=True), seconds=1.0)
    return path


def log_of(analyzer: Analyzer) -> list[tuple[object, ...]]:
    """The log without the onset, which takes the recent calls that no recording has."""
    return [
        (one.number, round(one.began_s, 3), one.ended_s and round(one.ended_s, 3), one.verdict.sentence)
        for one in analyzer.log
    ]


def test_a_switch_in_the_middle_is_in_the_recording(switched: Recorded) -> None:
    recorded = list(Recording(switched.file).play())
    assert [one.timeline for one in recorded] == [one.timeline for one in switched.observations]
    before, after = recorded[29].snapshot, recorded[-1].snapshot
    live = switched.observations[-1].snapshot
    assert before is not None
    assert after is not None
    assert live is not None
    assert START not in before.probes[VICTIM].channels
    assert after.probes[VICTIM].channels == live.probes[VICTIM].channels
    assert after.probes[VICTIM].first_ns == live.probes[VICTIM].first_ns
    assert after.probes[VICTIM].channels[START].count > 100


def test_a_replay_gives_the_verdicts_of_the_live_session(switched: Recorded) -> None:
    assert [entry.verdict.kind for entry in switched.analyzer.log] == [VerdictKind.STALLED]
    assert log_of(replayed(switched.file).analyzer) == log_of(switched.analyzer)


def test_baselines_are_of_one_state_of_the_timeline(switched: Recorded) -> None:
    recording = Recording(switched.file)
    for number, observation in enumerate(switched.observations):
        known = recording.baselines(number)
        assert set(known) == set(switched.baselines[number])
        has_start = any(START in one.channels and one.channels[START].count for one in known.values())
        assert not (has_start and not observation.timeline)
    last_on = max(number for number, observation in enumerate(switched.observations) if observation.timeline)
    on, off = switched.baselines[last_on][VICTIM], switched.analyzer.baselines[VICTIM]
    assert on.percentile_ns(START, Quantile.P50) is not None
    assert START not in off.channels or not off.channels[START].count


@pytest.mark.parametrize(("number", "timeline"), [(58, True), (75, False)])
def test_a_seek_compares_only_within_one_state(switched: Recorded, number: int, timeline: bool) -> None:
    recording = Recording(switched.file)
    baselines = recording.baselines(number)
    assert VICTIM in baselines
    analyzer: Analyzer | None = None
    for observation in recording.play(number):
        if analyzer is None:
            analyzer = Analyzer(observation.probe_set, baselines=baselines)
        analyzer.feed(observation)
        if observation.timeline is not timeline:
            break
        assert analyzer.baselines[VICTIM].at_ns == baselines[VICTIM].at_ns
    assert analyzer is not None
    if timeline:
        assert VICTIM not in analyzer.baselines
        assert analyzer.known_baselines[VICTIM].at_ns == baselines[VICTIM].at_ns


def test_a_capture_keeps_the_trace_of_the_first_slow_call(captured: Path) -> None:
    recording = Recording(captured)
    (recorded,) = recording.traces()
    trace = recording.trace(recorded.number)
    found = summary(trace)
    assert found is not None
    assert (found.probe, found.phase, found.in_flight) == (VICTIM, Phase.START, False)
    assert found.ns > 1_000_000
    assert found.cause == "context primary had the engine"
    assert recorded.wall_s == pytest.approx(found.wall_s, abs=0.01)
    assert recorded.at_s == pytest.approx(found.wall_s - recording.begun_s, abs=0.01)
    # What led to it, and what followed.
    assert trace.trigger is not None
    assert trace.begin_ns <= trace.trigger.began_ns - 50_000_000
    assert trace.end_ns >= trace.trigger.returned_ns + found.ns
    assert trace.simulated
    assert trace.names.contexts
    assert (np.diff(trace.calls["began_ns"]) >= 0).all()


def test_the_replay_finds_the_trace_nearest_to_a_position(captured: Path, switched: Recorded) -> None:
    source = ReplaySource(Recording(captured))
    (recorded,) = source.traces
    for at_s in (0.0, recorded.at_s, 1e6):
        nearest = source.nearest_trace(at_s)
        assert nearest is not None
        trace = source.trace(nearest)
        assert trace is not None
        assert trace.trigger is not None
    source.close()
    without = ReplaySource(Recording(switched.file))
    assert without.traces == ()
    assert without.nearest_trace(0.0) is None
    without.close()


def test_a_probe_set_that_changes_keeps_its_traces(captured: Path, tmp_path: Path) -> None:
    """Traces of another probe set come before its first observation is written, or after it."""
    recording = Recording(captured)
    trace = recording.trace(0)
    path = tmp_path / "a.rec"
    recorder = Recorder(path)
    recorder.put_trace_blocking(trace)
    first = next(recording.play())
    recorder.put_blocking(first, {})
    recorder.put_trace_blocking(trace)
    other: ProbeSet = structs.replace(first.probe_set, title="other")
    recorder.put_blocking(structs.replace(first, probe_set=other, wall_s=first.wall_s + 10), {})
    recorder.put_trace_blocking(trace.changed(wall_offset_s=trace.wall_offset_s + 10))
    recorder.close(10.0)
    assert (recorder.written, recorder.traces, recorder.traces_dropped) == (2, 2, 1)
    kept = Recording(path)
    assert [kept.number_at(one.at_s) for one in kept.traces()] == [0, 1]
