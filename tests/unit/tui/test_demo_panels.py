"""The panels of the demo: the caption at every width, and bars in proportion to each pattern's own stall."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from stallprobes.demo import DemoPhase, PatternOutcome
from stallprobes.latency.ratio import Quantile
from stallprobes.machine.telemetry import TelemetryReading, TelemetrySnapshot
from stallprobes.model import Phase
from stallprobes.patterns import patterns
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, Observation, ProbeSet
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict
from stallscope.tui.common.lines import Line, length
from stallscope.tui.demo.panels import (
    CAPTION_LINES,
    CaptionView,
    DemoCaption,
    FinaleView,
    caption,
    finale_lines,
    pattern_lines,
)
from stallscope.tui.demo.tour import DemoTour

PATTERN = patterns()["secondary-context-d2d"]
NOTHING = Observation(
    wall_s=0.0, probe_set=ProbeSet(title="", probes=(), backend=SIM), engine=EngineStatus(EngineCondition.READY)
)


def text(line: Line) -> str:
    return "".join(part for part, _ in line).rstrip()


def drawn(view: CaptionView, width: int) -> tuple[DemoCaption, list[Line]]:
    widget = DemoCaption()
    widget.view = view
    return widget, widget.lines(width, CAPTION_LINES)


def view_at(phase: DemoPhase) -> CaptionView:
    tour = DemoTour(patterns().values())
    tour.go_to(phase)
    tour.running = True
    return caption(tour, NOTHING)


def test_the_bar_says_which_step_is_present_and_which_are_to_come() -> None:
    for phase, bar in (
        (DemoPhase.QUIET, "● quiet ── □ stall ── □ remedy"),
        (DemoPhase.STALL, "● quiet ── ● stall ── □ remedy"),
        (DemoPhase.REMEDY, "● quiet ── ● stall ── ● remedy"),
    ):
        widget, lines = drawn(view_at(phase), 80)
        assert text(lines[0]) == f" demo 1/12 secondary-context-d2d  {bar}       8 s left"
        assert [style for word, style in lines[0] if word.endswith(phase)] == ["warn"]
        assert [text(lines[0])[begin:end] for begin, end, _ in widget.targets[0]] == [
            f"{bar[bar.index(str(one)) - 2]} {one}" for one in DemoPhase
        ]
        assert [target for _, _, target in widget.targets[0]] == list(DemoPhase)


@pytest.mark.parametrize("width", [60, 80, 120, 160, 250])
def test_every_step_fits_and_its_note_is_never_cut(width: int) -> None:
    for pattern in patterns().values():
        tour = DemoTour([pattern])
        for phase in tour.phases:
            tour.go_to(phase)
            tour.paused = True
            _, lines = drawn(caption(tour, NOTHING), width)
            assert len(lines) == CAPTION_LINES
            assert all(length(line) <= width for line in lines)
            assert text(lines[0]).endswith("PAUSED")
            assert f"● {phase}" in text(lines[0])


def test_the_quiet_step_announces_that_the_line_moves_and_the_others_what_to_expect() -> None:
    _, lines = drawn(view_at(DemoPhase.QUIET), 80)
    assert text(lines[1]).startswith(" Watch the line: it is about to move. A D2D copy in a second context")
    _, lines = drawn(view_at(DemoPhase.STALL), 80)
    said = "Each copy waits for a time-slice to end: about 2 ms, compared with microseconds alone."
    assert said in " ".join(" ".join(map(text, lines[1:])).split())
    _, lines = drawn(view_at(DemoPhase.REMEDY), 80)
    assert text(lines[1]).startswith(" Kernel and copy both in the primary context. The copy is as fast as")


def test_a_stall_is_beside_the_utilisation_which_does_not_show_it() -> None:
    busy = TelemetrySnapshot("GPU-0", 1, "live", None, {"utilisation_percent": TelemetryReading(98, 1)})
    tour = DemoTour(patterns().values())
    tour.go_to(DemoPhase.STALL)
    _, lines = drawn(caption(tour, structs.replace(NOTHING, telemetry=busy)), 80)
    assert text(lines[2]).endswith("Utilisation is 98 %: it does not say who waits.")


def test_the_longest_text_that_fits_is_shown_and_else_the_last_one_is_cut() -> None:
    _, lines = drawn(CaptionView(texts=("word " * 60, "short")), 80)
    assert [text(line) for line in lines[1:]] == [" short", ""]
    _, lines = drawn(CaptionView(texts=("word " * 60,)), 80)
    assert text(lines[2]).endswith("…")


def verdict(ns: float | None, kind: VerdictKind = VerdictKind.STALLED, quantile: Quantile = Quantile.P50) -> Verdict:
    return Verdict("d2d", Phase.WAIT, quantile, 5_600, ns, ns and ns / 5_600, kind, "")


def outcome(stall_ns: float | None, remedy_ns: float = 5_550) -> PatternOutcome:
    return PatternOutcome(PATTERN, "stall", "kernel-same-context", verdict(stall_ns), remedy_ns)


def cells(one: PatternOutcome, width: int = 80) -> list[int]:
    return [text(line).count("█") for line in pattern_lines(one, width)[1:]]


def page(outcomes: list[PatternOutcome], height: int, passed: float = 0.0) -> list[str]:
    view = FinaleView(tuple(outcomes), 12, passed, "20 s")
    return [text(line) for line in finale_lines(view, 80, height)]


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
    assert text(pattern_lines(one, 80)[2]).startswith(f"   stall  {'█' * 32} –  STARVED")


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
def test_a_page_has_as_many_patterns_as_fit_and_time_turns_it(height: int, per_page: int, pages: int) -> None:
    outcomes = [*([outcome(1e6)] * 11), PatternOutcome(PATTERN, skipped="2 GPUs are needed")]
    lines = page(outcomes, height)
    assert len(lines) <= height + 1
    assert sum(line.endswith("secondary-context-d2d") for line in lines) == per_page
    assert lines[0].startswith(" demo: what was found    11 of 12 patterns")
    assert lines[0].endswith(f"page 1/{pages}, 20 s")
    assert not any("2 GPUs are needed" in line for line in lines)
    last = page(outcomes, height, passed=0.99)
    assert last[0].endswith(f"page {pages}/{pages}, 20 s")
    assert last[-1] == " not possible here: secondary-context-d2d: 2 GPUs are needed"
    assert page(outcomes, height, passed=1.0) == last
