"""The scope: quiet once, windows, one entry for one stall, and nothing made of an engine that did not answer."""

from __future__ import annotations

from dataclasses import replace

from stallprobes.live.analyzer import Scope
from stallprobes.live.observation import SILENT, EngineStatus, Frame
from stallprobes.live.recording import Recording
from stallprobes.live.view_model import report_text, stale
from stallprobes.model import MS


def frames_of(recording: Recording) -> list[Frame]:
    return list(recording.play())


def test_quiet_is_measured_once_and_stays_the_yardstick(stall: Recording) -> None:
    frames = frames_of(stall)
    scope = Scope(frames[0].bench)
    bases = []
    for frame in frames:
        scope.feed(frame)
        bases.append(scope.quiet.get("d2d"))
    known = [base for base in bases if base is not None]
    assert known
    assert all(base is known[0] for base in known)
    assert bases.index(known[0]) < 40


def test_quiet_is_never_gathered_while_something_disturbs(stall: Recording) -> None:
    frames = frames_of(stall)
    scope = Scope(frames[0].bench)
    for frame in frames:
        scope.feed(frame)
        assert frame.snapshot is not None
        if frame.snapshot.probes["spin-primary"].on:
            scope.forget_quiet()
            assert set(scope.quiet_missing) == {"d2d", "host"}
            assert scope.picture("d2d").rows[0].state == "baseline"


def test_the_state_goes_from_quiet_to_stalled_and_back(stall: Recording) -> None:
    frames = frames_of(stall)
    scope = Scope(frames[0].bench)
    states: list[str] = []
    for frame in frames:
        scope.feed(frame)
        row = scope.picture("d2d").row("d2d")
        assert row is not None
        if not states or states[-1] != row.state:
            states.append(row.state)
    assert states == ["starting", "baseline", "quiet", "STALLED", "quiet"]


def test_one_stall_is_one_entry_with_the_worst_that_was_seen(stall: Recording) -> None:
    frames = frames_of(stall)
    scope = Scope(frames[0].bench)
    for frame in frames:
        scope.feed(frame)
    (entry,) = scope.picture(None).log
    assert entry.verdict.quantile == "p50"
    assert entry.verdict.ratio is not None
    assert entry.verdict.ratio > 100


def test_the_focus_shows_quiet_behind_live_and_marks_where_something_was_switched(stall: Recording) -> None:
    frames = frames_of(stall)
    scope = Scope(frames[0].bench)
    for frame in frames:
        scope.feed(frame)
    view = scope.picture("d2d", columns=100, span_s=20).focus
    assert view is not None
    assert all(lane.quiet is not None for lane in view.lanes)
    assert [words for _, words in view.marks] == ["spin kernel on", "spin kernel off"]
    on, off = (column for column, _ in view.marks)
    assert 0 <= on < off < 100
    high = view.heat[:, 30:].sum(axis=1)
    assert high[on + 2 : off - 2].all()
    assert not high[: on - 1].any()


def test_frames_of_an_engine_that_is_silent_make_no_stall(stall: Recording) -> None:
    frames = [frame for frame in frames_of(stall) if frame.snapshot and not frame.snapshot.probes["spin-primary"].on]
    scope = Scope(frames[0].bench)
    for number, frame in enumerate(frames):
        silent = 20 <= number < 25
        scope.feed(replace(frame, engine=EngineStatus(SILENT, 1.0)) if silent else frame)
    assert scope.picture(None).log == ()


def test_a_copy_stands_still_while_the_scope_goes_on(stall: Recording) -> None:
    frames = frames_of(stall)
    scope = Scope(frames[0].bench)
    for frame in frames[:30]:
        scope.feed(frame)
    kept = scope.copy()
    before = kept.picture("d2d")
    for frame in frames[30:]:
        scope.feed(frame)
    after = kept.picture("d2d")
    assert after.rows == before.rows
    assert after.log == before.log
    assert before.focus is not None
    assert after.focus is not None
    assert (after.focus.heat == before.focus.heat).all()


def test_clear_keeps_quiet_and_forgets_the_rest(stall: Recording) -> None:
    frames = frames_of(stall)
    scope = Scope(frames[0].bench)
    for frame in frames[:60]:
        scope.feed(frame)
    assert scope.picture(None).log
    scope.clear()
    assert scope.picture(None).log == ()
    assert scope.quiet


def test_the_slowest_call_of_a_victim_is_known_for_the_trap(stall: Recording) -> None:
    frames = frames_of(stall)
    scope = Scope(frames[0].bench)
    slowest = []
    for frame in frames:
        scope.feed(frame)
        slowest.append(scope.slowest_ns())
    assert max(slowest[:20]) < MS < max(slowest)


def test_the_report_says_it_in_text_and_a_lost_engine_is_said_in_every_row(stall: Recording) -> None:
    frames = frames_of(stall)
    scope = Scope(frames[0].bench)
    for frame in frames[:60]:
        scope.feed(frame)
    text = report_text(scope.picture("d2d"), ["head"])
    assert "STALLED" in text
    assert "time-slice" in text
    assert text.startswith("head\n")
    picture = stale(scope.picture("d2d"), "engine lost")
    assert picture.focus is not None
    assert picture.focus.row.state == "engine lost"
    rows = picture.rows
    assert {row.state for row in rows} <= {"engine lost", "off"}
    assert rows[0].state == "engine lost"
