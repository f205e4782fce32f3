"""Lines of the verdict log: three for each current verdict, none of them cut in 80 columns."""

from __future__ import annotations

from typing import Any

import pytest

from factories.causes import every_cause
from factories.verdicts import verdict
from stallprobes.catalog import Cause
from stallprobes.live.view_model import LogEntry
from stallprobes.model import Phase
from stallprobes.patterns.naming import parse_probe
from stallprobes.verdicts.candidates import aggressor_groups
from stallprobes.verdicts.explanations import Explained, began_with, beside_aggressors
from stallprobes.verdicts.verdict import Proof, Verdict
from stallscope.tui.common.lines import Line
from stallscope.tui.monitor.guide import Guide
from stallscope.tui.monitor.verdict_log import VerdictLogView, entry_lines, log_lines, worst_first


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


def entry(number: int, kind: str, ended_s: float | None = None) -> LogEntry:
    found = verdict(kind, ratio=427.0, head=f"sentence {number}.", cause="", remedy="")
    return LogEntry(number, 3600.0, found, ended_s)


def test_the_worst_that_holds_stands_before_what_came_later() -> None:
    entries = (entry(5, "slower"), entry(4, "stalled", 3700.0), entry(3, "starved"), entry(2, "stalled"))
    view = VerdictLogView(entries, expect="Expected of it: something")
    shown = [text(line) for _, line in log_lines(view, 80, 5)]
    assert "3 current, 1 past" in shown[0]
    assert [one.number for one in worst_first(entries)] == [3, 2, 5, 4]
    assert "STARVED" in shown[1]
    assert "Expected of it: " in text(log_lines(view, 80, 12)[1][1])


KEYS_OF = {"spin": "1", "host-alloc-free": "3", "launch": "a"}


def logged(found: Verdict, since: str = "", ended_s: float | None = None, cut_off: str = "") -> LogEntry:
    return LogEntry(1, 3600.0 * 12 + 61, found, ended_s, cut_off=cut_off, since=since)


def shown_lines(entry: LogEntry, width: int, **options: Any) -> list[str]:
    view = VerdictLogView((entry,), keys_of=KEYS_OF, **options)
    return [text(line).rstrip() for line in entry_lines(entry, view, width)]


def explained(found: Explained) -> Verdict:
    return verdict("stalled", ratio=427.0, baseline_ns=3_090.0, now_ns=2.57e6).changed(**found._asdict())


LAUNCH, SPIN, PINNING = (parse_probe(name) for name in ("launch", "spin", "host-alloc-free"))


def test_a_current_verdict_has_three_lines_for_what_why_and_what_helps() -> None:
    entry = logged(explained(beside_aggressors(LAUNCH, [PINNING], phase=Phase.CALL)), "host-alloc-free")
    what, why, remedy = shown_lines(entry, 80, remedy_key="v")
    assert what == " STALLED  a launch  call 3.09 µs → 2.57 ms  ×427  since 3 host-alloc-free"
    assert why == " because  of 3 host-alloc-free: pinning pages holds locks that other calls need"
    assert remedy == " v remedy pin memory once before the critical part, and reuse it"


def test_a_name_that_is_too_long_drops_the_time_then_the_switch() -> None:
    entry = logged(explained(beside_aggressors(LAUNCH, [SPIN], phase=Phase.CALL)), "spin")
    whole = " STALLED  a launch  call 3.09 µs → 2.57 ms  ×427  since 1 spin, 12:01:01"
    for width, end in ((80, whole), (70, whole.removesuffix(", 12:01:01")), (58, whole.partition("  since")[0])):
        assert shown_lines(entry, width)[0] == end


def test_a_cause_that_is_not_known_says_so_and_offers_blame() -> None:
    entry = logged(explained(beside_aggressors(LAUNCH, [SPIN, PINNING], phase=Phase.CALL)))
    _, why, blame = shown_lines(entry, 80, blame_key="B")
    assert why == " cause    not known yet: 2 aggressors run; 1 spin or 3 host-alloc-free"
    assert blame == " B blame  finds which of them it is, by experiment"
    assert len(shown_lines(entry, 80)) == 2


def test_a_probable_cause_is_called_so() -> None:
    found = explained(beside_aggressors(LAUNCH, [SPIN, PINNING], phase=Phase.CALL))
    (group,) = aggressor_groups([PINNING])
    entry = logged(began_with(found, LAUNCH, group, [LAUNCH]), "host-alloc-free")
    assert shown_lines(entry, 80)[1] == " probably 3 host-alloc-free: pinning pages holds locks that other calls need"


@pytest.mark.parametrize("cause", [*every_cause()], ids=lambda cause: cause.short)
def test_no_cause_and_no_remedy_is_cut_in_80_columns(cause: Cause) -> None:
    longest = "peer-copy-direct-behind-kernel"
    found = explained(Explained(cause.why, cause.remedy, cause.short, cause.short_remedy, Proof.RULE, (longest,)))
    view = VerdictLogView(keys_of={longest: "3"}, remedy_key="v")
    lines = [text(line) for line in entry_lines(logged(found, longest), view, 80)]
    assert cause.short in lines[1]
    assert cause.short_remedy in lines[2]
    assert all(len(line) <= 80 and "…" not in line for line in lines)


@pytest.mark.parametrize(
    ("cut_off", "duration"),
    [("", "lasted 39.0 s"), ("the timeline was switched on", "39.0 s, until the timeline was switched on")],
    ids=["ended", "cut-off"],
)
def test_a_past_entry_is_a_line_that_says_how_long_it_lasted_or_was_observed(cut_off: str, duration: str) -> None:
    (line,) = shown_lines(logged(verdict("stalled", ratio=427.0), ended_s=3600.0 * 12 + 100, cut_off=cut_off), 120)
    assert duration in line


@pytest.mark.parametrize("height", [4, 5, 6, 12])
def test_a_second_verdict_is_whole_or_its_first_line(height: int) -> None:
    first = explained(beside_aggressors(LAUNCH, [PINNING], phase=Phase.CALL))
    view = VerdictLogView((logged(first), logged(first.changed(probe="d2d"))), Guide(next_step="Next: e"))
    lines = [text(line) for _, line in log_lines(view, 80, height)]
    assert sum("because" in line for line in lines) == sum("remedy" in line for line in lines)
    assert len(lines) <= height
