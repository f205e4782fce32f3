"""The finale of the demo: each pattern's stall as a bar, beside its quiet latency and that of its remedy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from textual.reactive import var

from stallprobes.demo.outcome import HOST_TIME, NOTHING, DemoResult, PatternOutcome
from stallprobes.latency.ratio import Quantile
from stallprobes.units import duration_ns, plural
from stallscope.tui.common.lines import Line, LineWidget, cut, length, short_ratio, spread

# Lines of the head, and of a pattern with the empty line before the next one.
_HEAD, _PATTERN = 3, 4 + 1


@dataclass(frozen=True)
class FinaleView:
    """What was found in how many ``patterns``, with the number of pages that were ``turned`` by time; ``note`` says
    what comes next."""

    result: DemoResult = NOTHING
    patterns: int = 0
    turned: int = 0
    note: str = ""


class Finale(LineWidget):
    """Draws what was found; a click on the first line turns the page."""

    view = var(FinaleView())
    # Pages that the user turned.
    turned = var(0)

    @property
    def pages(self) -> int:
        """The number of pages in the present size."""
        shown = [one for one in self.view.result.outcomes if not one.skipped]
        return max(1, math.ceil(len(shown) / self._patterns))

    @property
    def _patterns(self) -> int:
        """The number of patterns on a page."""
        return max(1, (self.size.height - _HEAD + 1) // _PATTERN)

    def watch_turned(self) -> None:
        """Draw another page."""
        self.redraw()

    def lines(self, width: int, height: int) -> list[Line]:
        """One page; on the last one also what this machine does not support."""
        outcomes, page = self.view.result.outcomes, (self.view.turned + self.turned) % self.pages
        skipped = [one for one in outcomes if one.skipped]
        shown = [one for one in outcomes if not one.skipped]
        found = f"    {len(shown)} of {plural(self.view.patterns, 'pattern')}"
        found += f", {len(skipped)} skipped" if skipped else ""
        left: Line = [(" demo: what was found", "strong"), (found, "")]
        self.targets = [[(0, width, 1)]]
        note = f"{f'page {page + 1}/{self.pages}, ' if self.pages > 1 else ''}{self.view.note} "
        out = [spread(left, [(note, "accent")], width)]
        out += [[(" Bars: time of the slowest phase, p50 or as said; each pattern to its own stall.", "dim")], []]
        for one in shown[page * self._patterns : (page + 1) * self._patterns]:
            out += [*pattern_lines(one, width), []]
        if skipped and page == self.pages - 1:
            out[height - 1 :] = []
            why = "; ".join(f"{one.pattern.name}: {one.skipped}" for one in skipped)
            out.append([(cut(f" not possible here: {why}", width), "dim")])
        return out


def pattern_lines(one: PatternOutcome, width: int) -> list[Line]:
    """The name of a pattern, and a bar for each of its steps, in proportion to the longest of them."""
    stalled, known, said, reported = one.stalled, one.pattern.latency, [], ""
    if stalled is not None:
        said.append("" if stalled.quantile is Quantile.P50 else stalled.quantile.replace("-", " "))
        said.append("" if one.ratio is None else f"×{short_ratio(one.ratio)}")
        said.append("" if stalled.kind.is_stall else stalled.kind.look.word)
    if known is not None:
        gpu = known.gpu.split()[-1].split("-")[0]
        reported = f"reported ×{short_ratio(known.stalled_ns / known.baseline_ns)} ({gpu})"
    rows: tuple[tuple[str, str, float | None, list[str], str], ...] = (
        ("GPU" if stalled is not None and stalled.kind in HOST_TIME else "quiet", "heat", one.baseline_ns, [], ""),
        ("stall", "hot", one.stalled_ns, said, reported),
        ("remedy", "good", one.remedied_ns, [], one.remedy or one.no_remedy or ""),
    )
    longest_ns = max((ns for _, _, ns, _, _ in rows if ns), default=1.0)
    out: list[Line] = [[(f" {one.pattern.name}", "strong"), (f"  {one.problem}" if one.problem else "", "bad")]]
    for label, style, ns, words, last in rows:
        # No call of a victim that is starved has a latency.
        starved = ns is None and label == "stall" and stalled is not None
        cells = round((longest_ns if starved else ns or 0.0) / longest_ns * (2 * width // 5))
        figure = "fewer than 3 calls in 0.5 s" if starved else duration_ns(ns)
        line: Line = [(f"   {label:<7}", ""), ("█" * cells or "▏", style)]
        line.append((f" {'  '.join([figure, *filter(None, words)])}", ""))
        fits = last and length(line) + len(last) + 2 <= width
        out.append([*line, (f"  {last}" if fits else "", "dim")])
    return out
