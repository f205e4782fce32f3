"""The analyzer: one baseline, windows, one log entry for one stall, and none for an engine that does not answer."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from stallprobes.latency.ratio import Quantile
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import report_text
from stallprobes.model import MS, Phase
from stallprobes.recording.observation import EngineCondition, EngineStatus, Observation
from stallprobes.recording.recording import Recording
from stallprobes.verdicts.blame import AggressorBlame, Blame, BlameOutcome, Conclusion, FigureBlame, Interval
from stallprobes.verdicts.verdict import Proof


def frames_of(recording: Recording) -> list[Observation]:
    return list(recording.play())


def test_quiet_is_measured_once_and_stays_the_yardstick(stall: Recording) -> None:
    frames = frames_of(stall)
    analyzer = Analyzer(frames[0].probe_set)
    bases = []
    for observation in frames:
        analyzer.feed(observation)
        bases.append(analyzer.baselines.get("d2d@secondary"))
    known = [base for base in bases if base is not None]
    assert known
    assert all(base is known[0] for base in known)
    assert bases.index(known[0]) < 40


def test_quiet_is_never_gathered_while_something_disturbs(stall: Recording) -> None:
    frames = frames_of(stall)
    analyzer = Analyzer(frames[0].probe_set)
    disturbed = 0
    for observation in frames:
        analyzer.feed(observation)
        assert observation.snapshot is not None
        if observation.snapshot.probes["spin"].on:
            disturbed += 1
            analyzer.discard_baselines()
            assert set(analyzer.without_baseline) == {"d2d@secondary", "host"}
            assert analyzer.monitor_view("d2d@secondary").rows[0].state == "baseline"
    assert disturbed > 10


def test_the_state_goes_from_quiet_to_stalled_and_back(stall: Recording) -> None:
    frames = frames_of(stall)
    analyzer = Analyzer(frames[0].probe_set)
    states: list[str] = []
    for observation in frames:
        analyzer.feed(observation)
        row = analyzer.monitor_view("d2d@secondary").row("d2d@secondary")
        assert row is not None
        if not states or states[-1] != row.state:
            states.append(row.state)
    assert states == ["starting", "baseline", "quiet", "STALLED", "quiet"]


def test_one_stall_is_one_entry_with_the_worst_that_was_seen(stall: Recording) -> None:
    frames = frames_of(stall)
    analyzer = Analyzer(frames[0].probe_set)
    for observation in frames:
        analyzer.feed(observation)
    (entry,) = analyzer.monitor_view(None).log
    assert entry.verdict.quantile == "p50"
    assert entry.verdict.ratio is not None
    assert entry.verdict.ratio > 100


def test_the_focus_shows_quiet_behind_live_and_marks_where_something_was_switched(stall: Recording) -> None:
    frames = frames_of(stall)
    analyzer = Analyzer(frames[0].probe_set)
    for observation in frames:
        analyzer.feed(observation)
    view = analyzer.monitor_view("d2d@secondary", columns=100, span_s=20).focus
    assert view is not None
    assert all(channel.baseline is not None for channel in view.channels)
    assert [words for _, words in view.marks] == ["spin on", "spin off"]
    on, off = (column for column, _ in view.marks)
    assert 0 <= on < off < 100
    high = view.heat[:, 30:].sum(axis=1)
    assert high[on + 2 : off - 2].all()
    assert not high[: on - 1].any()


def test_frames_of_an_engine_that_is_silent_make_no_stall(stall: Recording) -> None:
    frames = [
        observation
        for observation in frames_of(stall)
        if observation.snapshot and not observation.snapshot.probes["spin"].on
    ]
    analyzer = Analyzer(frames[0].probe_set)
    for number, observation in enumerate(frames):
        silent = 20 <= number < 25
        analyzer.feed(
            structs.replace(observation, engine=EngineStatus(EngineCondition.SILENT, 1.0)) if silent else observation
        )
    assert analyzer.monitor_view(None).log == ()


def test_after_a_gap_windows_begin_anew_and_no_verdict_spans_it(stall: Recording) -> None:
    frames, gap_ns = frames_of(stall), 60_000 * MS
    analyzer = Analyzer(frames[0].probe_set)
    number = 0
    while not analyzer.log or number < 10:
        analyzer.feed(frames[number])
        number += 1
    assert analyzer.log[-1].ended_s is None
    ended_s = frames[number - 1].wall_s
    # As after ctrl+z and fg.
    for observation in frames[number : number + 2]:
        assert observation.snapshot is not None
        parts = {
            name: structs.replace(part, at_ns=part.at_ns + gap_ns) for name, part in observation.snapshot.probes.items()
        }
        later = replace(observation.snapshot, at_ns=observation.snapshot.at_ns + gap_ns, probes=parts)
        analyzer.feed(structs.replace(observation, snapshot=later, wall_s=observation.wall_s + 60))
    assert analyzer.log[-1].ended_s == ended_s
    assert analyzer.log[-1].cut_off == "the observations were interrupted"
    assert analyzer._windows is not None
    assert analyzer._windows.longest_ns < 1_000 * MS


def test_a_copy_stands_still_while_the_analyzer_is_fed(stall: Recording) -> None:
    frames = frames_of(stall)
    analyzer = Analyzer(frames[0].probe_set)
    for observation in frames[:30]:
        analyzer.feed(observation)
    kept = analyzer.copy()
    before = kept.monitor_view("d2d@secondary")
    for observation in frames[30:]:
        analyzer.feed(observation)
    after = kept.monitor_view("d2d@secondary")
    assert after.rows == before.rows
    assert after.log == before.log
    assert before.focus is not None
    assert after.focus is not None
    assert (after.focus.heat == before.focus.heat).all()


def test_clear_keeps_quiet_and_forgets_the_rest(stall: Recording) -> None:
    frames = frames_of(stall)
    analyzer = Analyzer(frames[0].probe_set)
    for observation in frames[:60]:
        analyzer.feed(observation)
    assert analyzer.monitor_view(None).log
    analyzer.clear()
    assert analyzer.monitor_view(None).log == ()
    assert analyzer.baselines


def test_the_slowest_call_of_a_victim_is_known_for_the_trap(stall: Recording) -> None:
    frames = frames_of(stall)
    analyzer = Analyzer(frames[0].probe_set)
    slowest = []
    for observation in frames:
        analyzer.feed(observation)
        slowest.append(analyzer.slowest_ns())
    assert max(slowest[:20]) < MS < max(slowest)


def test_the_report_says_it_in_text_and_a_lost_engine_is_said_in_every_row(stall: Recording) -> None:
    frames = frames_of(stall)
    analyzer = Analyzer(frames[0].probe_set)
    for observation in frames[:60]:
        analyzer.feed(observation)
    text = report_text(analyzer.monitor_view("d2d@secondary"), ["head"])
    assert "STALLED" in text
    assert "time-slice" in text
    assert text.startswith("head\n")
    monitor_view = analyzer.monitor_view("d2d@secondary").with_state("engine lost")
    assert monitor_view.focus is not None
    assert monitor_view.focus.row.state == "engine lost"
    rows = monitor_view.rows
    assert {row.state for row in rows} <= {"engine lost", "off"}
    assert rows[0].state == "engine lost"


def test_during_a_blame_experiment_nothing_is_judged_learnt_or_logged(stall: Recording) -> None:
    frames = frames_of(stall)
    analyzer = Analyzer(frames[0].probe_set)
    for observation in frames:
        analyzer.feed(structs.replace(observation, experiment=True))
    assert not analyzer.baselines
    assert not analyzer.log
    view = analyzer.monitor_view("d2d@secondary")
    assert view.focus is not None
    assert [words for _, words in view.focus.marks] == ["blame"]
    # The history shows all calls.
    assert view.focus.heat.sum() > 0


def test_blame_proves_the_cause_of_present_and_later_verdicts(stall: Recording) -> None:
    frames = frames_of(stall)
    probe_set = frames[0].probe_set
    d2d, spin = probe_set.probe("d2d@secondary"), probe_set.probe("spin")
    assert d2d is not None
    assert spin is not None
    found = Blame((spin.name,), 6, 4.0, (_spin_is_the_cause(d2d.name, spin.name),))
    analyzer = Analyzer(probe_set)
    added = False
    for observation in frames:
        analyzer.feed(observation)
        current = [entry for entry in analyzer.log if entry.verdict.phase is Phase.WAIT and entry.ended_s is None]
        if current and not added:
            analyzer.judgement.add_blame(found, observation.wall_s)
            added = True
    assert added
    proven = [entry.verdict for entry in analyzer.log if entry.verdict.phase is Phase.WAIT]
    assert [one.proof for one in proven] == [Proof.BLAME]
    assert proven[0].aggressors == (spin.name,)
    # A figure without a current entry gets one that has ended.
    analyzer = Analyzer(probe_set)
    analyzer.judgement.add_blame(found, 7.0)
    (entry,) = analyzer.log
    assert (entry.began_s, entry.ended_s, entry.verdict.proof) == (7.0, 7.0, Proof.BLAME)


def _spin_is_the_cause(victim: str, aggressor: str) -> FigureBlame:
    part = AggressorBlame(aggressor, 1.9e6, 5e3, Interval(1.0, 1.0, 1.0), Conclusion.CAUSE)
    return FigureBlame(victim, Phase.WAIT, None, Quantile.P50, 5e3, 1.9e6, BlameOutcome.STALL, (part,))
