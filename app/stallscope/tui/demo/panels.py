"""The panels of the demo: a caption above the monitor, and at the end the findings in its place."""

from __future__ import annotations

import math
from dataclasses import dataclass

from textual.reactive import var

from stallprobes.demo import DemoPhase, PatternOutcome
from stallprobes.recording.observation import Observation
from stallprobes.units import plural
from stallscope.report.columns import wrapped
from stallscope.tui.common.lines import Line, LineWidget, cut, length, spread
from stallscope.tui.demo.tour import DemoTour

# Number of lines of the caption that explains a step of the demo.
CAPTION_LINES = 3
# Largest width (columns) of a line of the demo's caption: longer lines are hard to read.
_LONGEST_LINE = 120
# Heights (lines) on the finale, the demo's summary page: _HEAD for its heading, _PATTERN for each pattern with the
# empty line after it.
_HEAD, _PATTERN = 3, 4 + 1


@dataclass(frozen=True)
class CaptionView:
    """The present phase of ``phases`` with the ``title`` before them and a ``note`` at the end of the line; ``texts``
    are alternatives, the longest first."""

    title: str = ""
    phase: DemoPhase = DemoPhase.QUIET
    phases: tuple[DemoPhase, ...] = ()
    note: str = ""
    texts: tuple[str, ...] = ("The engine starts.",)


class DemoCaption(LineWidget):
    """Draws a caption; the target of a click is a phase."""

    view = var(CaptionView())

    def lines(self, width: int, height: int) -> list[Line]:
        """``demo 1/12 NAME  ● quiet ── ● stall ── □ remedy``: the present phase is bold, those to come are empty.
        Below it the longest text that fits in two lines."""
        view, note, mark, room = self.view, f" {self.view.note} ", "●", min(width - 2, _LONGEST_LINE)
        rest = width - len(note) - sum(len(phase) + 6 for phase in view.phases)
        bar: Line = [(cut(f" demo {view.title} ", rest), "strong")]
        self.targets = [[]]
        for phase in view.phases:
            text, style = f"{mark} {phase}", "warn" if phase is view.phase else "dim" if mark == "□" else ""
            bar.append((" ── " if self.targets[0] else " ", "faint"))
            self.targets[0].append((length(bar), length(bar) + len(text), phase))
            bar.append((text, style))
            mark = "□" if phase is view.phase else mark
        texts = [wrapped(text, room) for text in view.texts]
        first, *more = next((lines for lines in texts if len(lines) < CAPTION_LINES), texts[-1])
        folded: list[Line] = [[(f" {line}", "strong")] for line in (first, cut(" ".join(more), room))]
        return [spread(bar, [(note, "accent")], width), *folded]


def caption(tour: DemoTour, observation: Observation) -> CaptionView:
    """The caption of the present step: what there is to see, then why one should care; what runs is first where there
    is room."""
    step, pattern, variant = tour.step, tour.step.pattern, tour.step.variant
    percent = observation.telemetry and observation.telemetry["utilisation_percent"].value
    runs, see = f"{variant.title[:1].upper()}{variant.title[1:]}. ", variant.expect
    why = (pattern.remedy if step.phase is DemoPhase.REMEDY else pattern.why).split(". ")[0].rstrip(".")
    if step.phase is DemoPhase.QUIET:
        watch = "Watch the lines: at least one is" if len(variant.victims) > 1 else "Watch the line: it is"
        runs, see, why = "", f"{watch} about to move.", pattern.title
    elif step.phase is DemoPhase.STALL and percent is not None:
        why = f"Utilisation is {percent} %: it does not say who waits"
    note = "PAUSED" if tour.paused else f"{math.ceil(tour.left_s)} s left" if tour.running else ""
    title = f"{tour.patterns.index(pattern) + 1}/{len(tour.patterns)} {pattern.name}"
    texts = f"{runs}{see} {why}.", f"{see} {why}.", f"{runs}{see}", see
    return CaptionView(title, step.phase, tuple(tour.phases), note, texts)


@dataclass(frozen=True)
class FinaleView:
    """The findings, and the number of ``patterns``: the page after the share ``passed`` of the finale's time; ``note``
    names the next step."""

    outcomes: tuple[PatternOutcome, ...] = ()
    patterns: int = 0
    passed: float = 0.0
    note: str = ""


def finale_lines(view: FinaleView, width: int, height: int) -> list[Line]:
    """A page of as many patterns as fit; on the last one also what this machine does not support."""
    fitting = max(1, (height - _HEAD + 1) // _PATTERN)
    skipped = [outcome for outcome in view.outcomes if outcome.skipped]
    shown = [outcome for outcome in view.outcomes if not outcome.skipped]
    pages = max(1, math.ceil(len(shown) / fitting))
    page = min(int(view.passed * pages), pages - 1)
    counts = f"    {len(shown)} of {plural(view.patterns, 'pattern')}"
    counts += f", {len(skipped)} skipped" if skipped else ""
    note = f"{f'page {page + 1}/{pages}, ' if pages > 1 else ''}{view.note} "
    out = [spread([(" demo: what was found", "strong"), (counts, "")], [(note, "accent")], width)]
    out += [[(" Bars: time of the slowest phase, p50 or as said; each pattern to its own stall.", "dim")], []]
    for outcome in shown[page * fitting : (page + 1) * fitting]:
        out += [*pattern_lines(outcome, width), []]
    if skipped and page == pages - 1:
        why = "; ".join(f"{left_out.pattern.name}: {left_out.skipped}" for left_out in skipped)
        out[height - 1 :] = [[(cut(f" not possible here: {why}", width), "dim")]]
    return out


def pattern_lines(outcome: PatternOutcome, width: int) -> list[Line]:
    """The name of a pattern, and a bar for each of its steps, in proportion to the longest of them."""
    out: list[Line] = [[(f" {outcome.pattern.name}", "strong"), (f"  {outcome.problem}", "bad")]]
    longest_ns = max((ns for _, ns, _, _ in outcome.rows if ns), default=1.0)
    for style, (label, ns, words, note) in zip(("heat", "hot", "good"), outcome.rows, strict=True):
        bar = "█" * round((ns or 0.0) / longest_ns * (2 * width // 5)) or "▏"
        line: Line = [(f"   {label:<7}", ""), (bar, style), (f" {words}", "")]
        fits = length(line) + len(note) + 2 <= width
        out.append([*line, (f"  {note}" if fits else "", "dim")])
    return out
