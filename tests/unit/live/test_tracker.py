"""The tracker: what is logged when, what a switch proves, drift, and an unsteady probe said once."""

from __future__ import annotations

from factories.verdicts import verdict
from stallprobes.live.tracker import MOST_ENTRIES, Switch, VerdictTracker
from stallprobes.live.view_model import LogEntry
from stallprobes.verdicts.verdict import Verdict

TICK_S = 0.2
STALLED = verdict("stalled", probe="d2d", ratio=300.0)
SLOWER = verdict("slower", probe="d2d", ratio=2.0)
UNSTEADY = verdict("unsteady", probe="d2d", ratio=2.0).changed(range_ns=(4_500.0, 9_000.0))


class Log:
    """A tracker that is fed a judgement every 0.2 s."""

    def __init__(self) -> None:
        self.tracker = VerdictTracker()
        self.ticks = 0

    def feed(self, ticks: int, *verdicts: Verdict, after: bool = False, extended_s: int = 0) -> None:
        for _ in range(ticks):
            self.ticks += 1
            at_s = self.ticks * TICK_S
            self.tracker.feed(
                verdicts,
                round(at_s * 1e9),
                at_s,
                after=after,
                onset=lambda _: ("", ""),
                extended_ns=lambda _: extended_s * 10**9,
            )

    def switch(self, name: str, on: bool) -> None:
        self.tracker.switched(Switch(name, on, round(self.ticks * TICK_S * 1e9)))

    @property
    def entry(self) -> LogEntry:
        (entry,) = self.tracker.entries
        return entry

    @property
    def kinds(self) -> list[str]:
        return [entry.verdict.kind for entry in self.tracker.entries]


def test_a_stall_is_logged_when_it_is_found_twice_and_slower_after_two_windows() -> None:
    stalled, slower = Log(), Log()
    stalled.feed(1, STALLED)
    assert not stalled.tracker.entries
    stalled.feed(1, STALLED)
    assert stalled.entry.began_s == 2 * TICK_S
    slower.feed(6, SLOWER)
    assert not slower.tracker.entries
    slower.feed(1, SLOWER)
    assert slower.entry.began_s == TICK_S


def test_slower_of_rare_calls_is_logged_after_a_window_of_other_calls() -> None:
    log = Log()
    log.feed(100, SLOWER, extended_s=20)
    assert not log.tracker.entries
    log.feed(1, SLOWER, extended_s=20)
    assert log.entry.began_s == TICK_S


def test_slower_for_a_second_is_a_jump_of_the_machine_and_not_logged() -> None:
    log = Log()
    for _ in range(5):
        log.feed(6, SLOWER)
        log.feed(3)
    assert not log.tracker.entries


def test_what_begins_and_ends_with_one_aggressor_is_proven_by_switching() -> None:
    log = Log()
    log.switch("spin", True)
    log.feed(20, STALLED)
    log.switch("spin", False)
    log.feed(5, STALLED)
    log.feed(3)
    assert log.entry.verdict.proof == "switching"
    assert "began and ended with spin" in log.entry.text


def test_a_switch_proves_nothing_that_began_before_or_ended_long_after_or_has_two_suspects() -> None:
    before, late, two = Log(), Log(), Log()
    before.feed(5, STALLED)
    before.switch("spin", True)
    before.feed(20, STALLED)
    before.switch("spin", False)
    late.switch("spin", True)
    late.feed(20, STALLED)
    late.switch("spin", False)
    late.feed(20, STALLED)
    two.switch("spin", True)
    two.switch("alloc", True)
    two.feed(20, STALLED)
    two.switch("spin", False)
    for log in (before, late, two):
        log.feed(3)
        assert log.entry.verdict.proof == "none"


def test_slower_that_stays_after_the_aggressors_is_drift() -> None:
    log = Log()
    log.switch("spin", True)
    log.feed(20, SLOWER)
    log.switch("spin", False)
    log.feed(1, SLOWER, after=True)
    assert log.entry.verdict.kind == "drift"
    assert log.entry.ended_s is not None
    assert "after the aggressors stopped" in log.entry.text
    log.feed(9, SLOWER, after=True)
    assert log.kinds == ["drift"]


def test_a_stall_that_stays_after_the_aggressor_is_no_drift_and_not_proven() -> None:
    log = Log()
    log.switch("spin", True)
    log.feed(20, STALLED)
    log.switch("spin", False)
    log.feed(3, STALLED, after=True)
    log.feed(3)
    assert (log.entry.verdict.kind, log.entry.verdict.proof) == ("stalled", "none")


def test_an_unsteady_probe_is_said_once_with_its_widest_range() -> None:
    log = Log()
    log.feed(3, UNSTEADY)
    log.feed(5)
    assert log.entry.ended_s is not None
    log.feed(3, UNSTEADY.changed(range_ns=(4_500.0, 12_700.0)))
    assert log.entry.verdict.range_ns == (4_500.0, 12_700.0)
    assert log.entry.ended_s is None
    log.feed(3, UNSTEADY)
    assert log.entry.verdict.range_ns == (4_500.0, 12_700.0)


def test_the_last_entries_are_kept() -> None:
    log = Log()
    for _ in range(MOST_ENTRIES + 2):
        log.feed(2, STALLED)
        log.feed(3)
    assert [entry.number for entry in log.tracker.entries] == list(range(3, MOST_ENTRIES + 3))


def test_a_judgement_counts_for_as_many_as_its_time_had() -> None:
    seldom = VerdictTracker()
    for number in range(1, 5):
        assert not seldom.entries
        seldom.feed([SLOWER], number * 400_000_000, number * 0.4, after=False, onset=lambda _: ("", ""))
    assert len(seldom.entries) == 1
    # A stall is still found in two windows, since one may contain a single outlier.
    once = VerdictTracker()
    once.feed([STALLED], 10**9, 1.0, after=False, onset=lambda _: ("", ""))
    assert not once.entries
