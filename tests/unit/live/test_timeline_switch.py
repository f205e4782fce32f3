"""The analyzer and the timeline's switch: one baseline for each state, and no window of both."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from stallprobes.live.analyzer import Analyzer
from stallprobes.recording.observation import Observation
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording


def fed(observations: list[Observation], timeline_from: int, timeline_to: int) -> list[tuple[Observation, Analyzer]]:
    """The observations and copies of the analyzer after each; the timeline is on in a part of them."""
    analyzer = Analyzer(observations[0].probe_set)
    found = []
    for number, observation in enumerate(observations):
        analyzer.feed(structs.replace(observation, timeline=timeline_from <= number < timeline_to))
        found.append((observation, analyzer.copy()))
    return found


def aggressor_runs(observation: Observation) -> bool:
    return observation.snapshot is not None and observation.snapshot.probes["spin"].on


def test_each_state_of_the_timeline_has_its_own_baseline(stall: Recording) -> None:
    observations = list(stall.play())
    # The time before the aggressor, twice: the timeline is on in the second part.
    idle = [one for one in observations if not aggressor_runs(one)]
    first = next(number for number, (_, one) in enumerate(fed(idle, 10**6, 0)) if one.baselines)
    steps = fed(idle, first + 1, len(idle))
    before, after = steps[first][1], steps[first + 1][1]
    assert set(before.baselines) == {"d2d@secondary", "host"}
    assert after.timeline
    assert after.baselines == {}
    # The other state's baselines are known for limits of triggers, not for verdicts.
    assert after.known_baselines == before.baselines
    assert set(after.without_baseline) == {"d2d@secondary", "host"}
    assert after.verdicts == ()
    assert after.holds_aggressors
    again = Analyzer(idle[0].probe_set)
    for number, observation in enumerate(idle):
        again.feed(structs.replace(observation, timeline=first < number < first + 3))
    assert again.baselines.keys() == {"d2d@secondary", "host"}
    assert [words for _, words in again.monitor_view("d2d@secondary").focus.marks] == ["timeline on", "timeline off"]  # type: ignore[union-attr]


def test_an_aggressor_that_runs_when_it_is_switched_on_continues_and_nothing_is_judged(stall: Recording) -> None:
    observations = list(stall.play())
    on = next(number for number, one in enumerate(observations) if aggressor_runs(one))
    stalled = next(number for number, (_, one) in enumerate(fed(observations, 10**6, 0)) if one.log)
    assert stalled > on
    steps = fed(observations, stalled + 2, stalled + 10)
    switched = steps[stalled + 4][1]
    assert aggressor_runs(steps[stalled + 4][0])
    assert not switched.holds_aggressors
    row = switched.monitor_view("d2d@secondary").row("d2d@secondary")
    assert row is not None
    assert row.state == "baseline"
    # The entry ends with the judgements of its state, and begins anew with them.
    assert switched.log[0].ended_s is not None
    assert switched.log[0].cut_off == "the timeline was switched on"
    ended = steps[-1][1]
    assert len(ended.log) == 2
    # A new baseline, once it is asked for, is measured without aggressors.
    switched.discard_baselines()
    assert switched.holds_aggressors


def test_a_recording_keeps_when_the_timeline_was_being_switched(stall: Recording, tmp_path: Path) -> None:
    states = (False, None, True, True, None, False)
    recorder = Recorder(tmp_path / "switched.rec")
    for observation, state in zip(stall.play(), states, strict=False):
        recorder.put_blocking(structs.replace(observation, timeline=state), {})
    recorder.close(10)
    assert tuple(one.timeline for one in Recording(tmp_path / "switched.rec").play()) == states
