"""A bar of the parts of a program's time, for text and screen."""

from __future__ import annotations

from stallprobes.watch.division.parts import Part
from stallprobes.watch.division.result import SequenceDivision
from stallprobes.watch.division_text import parts_text
from stallscope.report.columns import display_width

# Text and its style.
Run = tuple[str, str]
# Smallest share (0 to 1) of a sequence's time at which the legend of the bar names a part of this time. A sequence is a
# group of threads that take turns to call the driver.
_LEAST_NAMED = 0.005
# Blanks between two parts that the legend of the bar names.
_GAP = "  "


def bar(sequence: SequenceDivision, width: int) -> list[Run]:
    """A bar of exactly ``width`` columns; a part has as many of them as its share gives it, by largest remainders."""
    parts = [(part, ns) for part, ns in sequence.parts.items() if part is not Part.END and ns]
    total = sum(ns for _, ns in parts)
    if not total or width < 1:
        return []
    cells = {part: ns * width // total for part, ns in parts}
    by_remainder = sorted(parts, key=lambda item: -(item[1] * width % total))
    for part, _ in by_remainder[: width - sum(cells.values())]:
        cells[part] += 1
    return [(part.traits.mark * count, part.traits.style) for part, count in cells.items() if count]


def legend(sequence: SequenceDivision, width: int) -> list[list[Run]]:
    """The parts of a bar with their marks and shares, the largest first, in lines of at most ``width`` columns."""
    lines: list[list[Run]] = [[]]
    used = 0
    named = [(part, text) for part, text in parts_text(sequence) if sequence.share(part) >= _LEAST_NAMED]
    for part, text in sorted(named, key=lambda item: -sequence.parts[item[0]]):
        size = display_width(text) + 2
        if used and used + len(_GAP) + size > width:
            lines.append([])
            used = 0
        if used:
            lines[-1].append((_GAP, ""))
            used += len(_GAP)
        lines[-1] += [(f"{part.traits.mark} ", part.traits.style), (text, "")]
        used += size
    return lines
