"""Wording of a comparison of two checks: the changes, the detectable changes, and their certainty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.comparing.comparability import Difference
from stallprobes.matrix.comparing.comparison import CellOutcome, Change, QuantileChange
from stallprobes.matrix.matrix import QUIET
from stallprobes.units import duration_ns, plural, times
from stallprobes.wording import check_wording

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import CellChange, Comparison


def change_counts(comparison: Comparison) -> str:
    """Number of cells by outcome: ``2 WORSE, 0 BETTER, 1 newly STARVED, 290 SAME, 3 only in NEW``."""
    if not comparison.cells:
        return "no cell in common"
    always = (CellOutcome.WORSE, CellOutcome.BETTER)
    counts = {outcome: number for outcome, number in comparison.outcomes().items() if number or outcome in always}
    parts = [f"{number} {outcome.look.word}" for outcome, number in counts.items()]
    for places, where in ((comparison.only_old, "OLD"), (comparison.only_new, "NEW")):
        if places:
            parts.append(f"{len(places)} only in {where}")
    return ", ".join(parts)


def unchanged_text(comparison: Comparison) -> str:
    """``72 cells, of which 6 are baselines``: those that are SAME."""
    same = [cell for cell in comparison.cells if cell.outcome is CellOutcome.SAME]
    baselines = sum(cell.column == QUIET for cell in same)
    own = f", of which {baselines} {'is a baseline' if baselines == 1 else 'are baselines'}" if baselines else ""
    return f"{plural(len(same), 'cell')}{own}"


def sensitivity_text(comparison: Comparison) -> str:
    """``half of the phases would have shown ×1.5 at p50, nine of ten ×3.0``; "" where nothing could be detected."""
    sensitivity = comparison.detectable[Quantile.P50]
    if sensitivity is None or sensitivity.half is None:
        return ""
    most = "" if sensitivity.nine_of_ten is None else f", nine of ten {times(sensitivity.nine_of_ten)}"
    return f"half of the phases would have shown {times(sensitivity.half)} at p50{most}"


def detectable_text(cell: CellChange) -> str:
    """Changes that a cell with the result SAME could have detected: ``no change above call p50 ×1.6, p99 ×2.1; wait p50
    ×1.4``."""
    by_channel: dict[str, list[str]] = {}
    for part in cell.parts:
        if part.detectable is not None:
            by_channel.setdefault(check_wording.channel_name(part.channel), []).append(
                f"{part.quantile} {times(part.detectable)}"
            )
    limits = "; ".join(f"{name} {', '.join(ratios)}" for name, ratios in by_channel.items())
    return f"no change above {limits}" if limits else "too few calls to detect a change" if cell.parts else ""


def difference_line(difference: Difference) -> str:
    """``driver 570.9 → 580.1``."""
    key = difference.key.replace("_", " ")
    return f"{key} {check_wording.format_value(difference.old)} → {check_wording.format_value(difference.new)}"


def change_figures(cell: CellChange) -> str:
    """Changes in a cell: ``call p50 2.70 µs → 5.40 µs (×2.0)``, or its note."""
    if cell.note:
        return cell.note
    parts = [part for part in cell.parts if part.change == cell.change]
    return "; ".join(compared_text(part) for part in parts) or cell.outcome.look.word


def compared_text(part: QuantileChange) -> str:
    """One compared percentile: ``call p50 2.70 µs → 5.40 µs (×2.0)``, or why it is unsure."""
    name = f"{part.channel.phase}{f' of {part.channel.label}' if part.channel.label else ''} {part.quantile}"
    if part.change is Change.UNSURE and part.why:
        return f"{name} {part.why.rstrip('.')}"
    change = f"{name} {duration_ns(part.old_ns)} → {duration_ns(part.new_ns)}"
    if part.ratio is None:
        return change
    # Far below 1 it would be ×0.0.
    return f"{change} ({times(part.ratio) if part.ratio >= 0.095 else f'×{part.ratio:.1g}'})"


def places_by_column(places: Iterable[tuple[str, str]], separator: str = ", ") -> list[str]:
    """``beside COLUMN: ROW, ROW`` for each column of ``places``, (row, column) each."""
    by_column: dict[str, list[str]] = {}
    for row, column in places:
        by_column.setdefault(column, []).append(row)
    return [f"beside {column}: {separator.join(rows)}" for column, rows in by_column.items()]


def false_alarms(comparison: Comparison) -> str:
    """Reliability of WORSE and BETTER."""
    one_in = round(1 / comparison.false_alarm_rate)
    return (
        f"If nothing changed and calls were independent, at most 1 such comparison in {one_in} would report WORSE or "
        "BETTER for any cell. Real machines vary more than chance alone: confirm a single changed cell with a second "
        "check. UNSURE looks changed, without enough evidence. In a cell that is SAME, a change above the ratio that "
        "it states would have been WORSE or UNSURE with a probability of 90 %."
    )
