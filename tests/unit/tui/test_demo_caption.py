"""The caption of the demo: the bar of the steps, its targets, and two lines of text at every width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallprobes.demo.plan import DemoPhase, steps
from stallprobes.machine.telemetry import TelemetryReading, TelemetrySnapshot
from stallprobes.patterns import patterns
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, Observation, ProbeSet
from stallscope.tui.common.lines import Line, length
from stallscope.tui.demo.caption import CAPTION_LINES, CaptionView, DemoCaption, caption
from stallscope.tui.demo.tour import DemoState, DemoTour

ALL = steps(patterns().values())
NOTHING = Observation(0.0, ProbeSet("", (), SIM), EngineStatus(EngineCondition.READY))


def text(line: Line) -> str:
    return "".join(part for part, _ in line).rstrip()


def drawn(view: CaptionView, width: int) -> tuple[DemoCaption, list[Line]]:
    widget = DemoCaption()
    widget.view = view
    return widget, widget.lines(width, CAPTION_LINES)


def view_at(phase: DemoPhase) -> CaptionView:
    tour = DemoTour(ALL)
    tour.go_to(phase)
    tour.state = DemoState.RUNNING
    return caption(tour, None, NOTHING, replayed=False)


def test_the_bar_says_which_step_is_present_and_which_are_to_come() -> None:
    for phase, bar in (
        (DemoPhase.QUIET, "● quiet ──── □ stall ──── □ remedy"),
        (DemoPhase.STALL, "● quiet ──── ● stall ──── □ remedy"),
        (DemoPhase.REMEDY, "● quiet ──── ● stall ──── ● remedy"),
    ):
        widget, lines = drawn(view_at(phase), 80)
        assert text(lines[0]) == f" demo 1/12 secondary-context-d2d  {bar}   8 s left"
        assert [style for word, style in lines[0] if word.endswith(phase)] == ["warn"]
        assert [text(lines[0])[begin:end] for begin, end, _ in widget.targets[0]] == [
            f"{bar[bar.index(str(one)) - 2]} {one}" for one in DemoPhase
        ]
        assert [target for _, _, target in widget.targets[0]] == list(DemoPhase)


@pytest.mark.parametrize("width", [60, 80, 120, 160, 250])
def test_every_step_fits_and_its_note_is_never_cut(width: int) -> None:
    for step in ALL:
        tour = DemoTour([step])
        view = replace(caption(tour, None, NOTHING, replayed=False), phases=tuple(DemoPhase), note="measuring")
        _, lines = drawn(view, width)
        assert len(lines) == CAPTION_LINES
        assert all(length(line) <= width for line in lines)
        assert text(lines[0]).endswith("measuring")
        assert all("● quiet" in text(line) for line in lines[:1])


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
    tour = DemoTour(ALL)
    tour.go_to(DemoPhase.STALL)
    _, lines = drawn(caption(tour, None, replace(NOTHING, telemetry=busy), replayed=False), 80)
    assert text(lines[2]).endswith("Utilisation is 98 %: it does not say who waits.")


def test_the_longest_text_that_fits_is_shown_and_else_the_last_one_is_cut() -> None:
    _, lines = drawn(CaptionView(texts=("word " * 60, "short")), 80)
    assert [text(line) for line in lines[1:]] == [" short", ""]
    _, lines = drawn(CaptionView(texts=("word " * 60,)), 80)
    assert text(lines[2]).endswith("…")
