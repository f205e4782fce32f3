"""The caption of the demo: its lines at every width, and what is cut."""

from __future__ import annotations

import pytest

from stallprobes.demo.plan import DemoPhase, DemoStep, plans
from stallprobes.patterns import patterns
from stallscope.tui.common.lines import Line, length
from stallscope.tui.demo.caption import CaptionView, DemoCaption, caption_height


def caption(title: str, note: str, runs: str, look: str, width: int) -> list[Line]:
    widget = DemoCaption()
    widget.view = CaptionView(title, note, runs, look)
    return widget.lines(width, caption_height(width))


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


@pytest.mark.parametrize("width", [60, 80, 120, 160, 250])
def test_every_step_fits_and_the_note_is_never_cut(width: int) -> None:
    for plan in plans(patterns().values()):
        for variant in (*plan.stalls, *plan.remedies):
            step = DemoStep(plan.pattern, DemoPhase.STALL, variant)
            title = f"1/5 {plan.pattern.name}: {plan.pattern.title}"
            lines = caption(title, "measuring the baseline", step.runs, step.look, width)
            assert 3 <= len(lines) <= caption_height(width)
            assert all(length(line) <= width for line in lines)
            assert "measuring the baseline" in text(lines[0])


def test_a_text_that_is_too_long_ends_with_a_mark() -> None:
    lines = caption("title", "", "what runs", "word " * 60, 80)
    assert len(lines) == 4
    assert text(lines[3]).endswith("…")
    assert text(lines[1]) == " what runs"


def test_a_wide_terminal_needs_one_line_for_each_text() -> None:
    lines = caption("title", "8 s left", "what runs", "word " * 20, 160)
    assert [text(line).split()[0] for line in lines] == ["──", "what", "word"]
