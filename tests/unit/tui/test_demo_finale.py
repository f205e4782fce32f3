"""The finale of the demo: bars in proportion to each pattern's own stall, pages, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.geometry import Size

from stallprobes.demo.outcome import NOTHING, PatternOutcome
from stallprobes.latency.ratio import Quantile
from stallprobes.model import Phase
from stallprobes.patterns import patterns
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict
from stallscope.tui.common.lines import Line, length
from stallscope.tui.demo.finale import Finale, FinaleView, pattern_lines

PATTERN = patterns()["secondary-context-d2d"]


def verdict(ns: float | None, kind: VerdictKind = VerdictKind.STALLED, quantile: Quantile = Quantile.P50) -> Verdict:
    return Verdict("d2d", Phase.WAIT, quantile, 5_600, ns, None, kind, "")


def outcome(stall_ns: float | None, remedy_ns: float = 5_550) -> PatternOutcome:
    found = verdict(stall_ns), verdict(remedy_ns, VerdictKind.QUIET)
    return PatternOutcome(PATTERN, "stall", "kernel-same-context", None, *found)


def text(line: Line) -> str:
    return "".join(part for part, _ in line).rstrip()


def cells(one: PatternOutcome, width: int = 80) -> list[int]:
    return [text(line).count("█") for line in pattern_lines(one, width)[1:]]


class SizedFinale(Finale):
    """A finale without a screen."""

    lines_high = 23

    @property
    def size(self) -> Size:
        return Size(80, self.lines_high)


def page(outcomes: list[PatternOutcome], height: int, turned: int = 0) -> tuple[int, list[str]]:
    widget = SizedFinale()
    widget.lines_high = height
    widget.view = FinaleView(replace(NOTHING, outcomes=tuple(outcomes)), 12, turned, "20 s")
    return widget.pages, [text(line) for line in widget.lines(80, height)]


def test_a_pattern_is_its_name_and_a_bar_for_each_step() -> None:
    assert [text(line) for line in pattern_lines(outcome(1_920_000), 80)] == [
        " secondary-context-d2d",
        "   quiet  ▏ 5.60 µs",
        f"   stall  {'█' * 32} 1.92 ms  ×343  reported ×1412 (V100)",
        "   remedy ▏ 5.55 µs  kernel-same-context",
    ]


def test_bars_are_linear_and_each_pattern_has_its_own_scale() -> None:
    assert cells(outcome(5_600 * 4, 5_600 * 2)) == [8, 32, 16]
    assert cells(outcome(5_600 * 4e6, 5_600 * 2e6)) == [0, 32, 16]
    assert cells(outcome(5_600 * 4, 5_600 * 8)) == [4, 16, 32]
    assert cells(outcome(5_600 * 4, 5_600), width=120) == [12, 48, 12]


def test_other_percentiles_and_kinds_are_named() -> None:
    one = replace(outcome(1e6), stalled=verdict(1e6, VerdictKind.GPU_TIME, Quantile.P99))
    lines = pattern_lines(one, 80)
    assert "1.00 ms  p99  ×179  GPU time" in text(lines[2])
    assert text(lines[1]) == "   GPU    ▏ 5.60 µs"


def test_a_starved_victim_has_a_whole_bar() -> None:
    one = replace(outcome(None), stalled=verdict(None, VerdictKind.STARVED))
    assert text(pattern_lines(one, 80)[2]).startswith(f"   stall  {'█' * 32} fewer than 3 calls in 0.5 s")


@pytest.mark.parametrize("width", [60, 70, 80])
def test_what_was_reported_is_left_out_whole_where_it_does_not_fit(width: int) -> None:
    lines = pattern_lines(outcome(1_920_000), width)
    assert all(length(line) <= width for line in lines)
    assert text(lines[2]).endswith(("×343", "(V100)"))
    assert text(lines[3]).endswith("kernel-same-context")


def test_a_failure_is_beside_the_name_and_nothing_measured_is_no_bar() -> None:
    lines = pattern_lines(PatternOutcome(PATTERN, problem="the engine was killed"), 80)
    assert text(lines[0]) == " secondary-context-d2d  the engine was killed"
    assert [text(line) for line in lines[1:]] == [
        "   quiet  ▏ –",
        "   stall  ▏ –  reported ×1412 (V100)",
        "   remedy ▏ –",
    ]


@pytest.mark.parametrize(("height", "per_page", "pages"), [(23, 4, 3), (39, 7, 2), (47, 9, 2)])
def test_a_page_has_as_many_patterns_as_fit_and_pages_turn(height: int, per_page: int, pages: int) -> None:
    outcomes = [*([outcome(1e6)] * 11), PatternOutcome(PATTERN, skipped="2 GPUs are needed")]
    found, lines = page(outcomes, height)
    assert found == pages
    assert len(lines) <= height + 1
    assert sum(line.endswith("secondary-context-d2d") for line in lines) == per_page
    assert lines[0].startswith(" demo: what was found    11 of 12 patterns")
    assert lines[0].endswith(f"page 1/{pages}, 20 s")
    assert not any("2 GPUs are needed" in line for line in lines)
    _, last = page(outcomes, height, turned=pages - 1)
    assert last[0].endswith(f"page {pages}/{pages}, 20 s")
    assert last[-1] == " not possible here: secondary-context-d2d: 2 GPUs are needed"
    _, again = page(outcomes, height, turned=pages)
    assert again == lines
