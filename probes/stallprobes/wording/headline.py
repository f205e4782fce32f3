"""Headline of a report on a check: the worst stalls, what changed, and how sure the figures are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallprobes.matrix import findings
from stallprobes.matrix.matrix import Cell, Matrix, Status
from stallprobes.matrix.noise import BaselineSpread, baseline_spread
from stallprobes.units import plural, times
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording, comparison_wording

if TYPE_CHECKING:
    from stallprobes.matrix.comparing.comparison import Comparison
    from stallprobes.matrix.reference import ReferenceComparison

# Largest number of cells (each an aggressor with a victim) that the headline names.
_WORST_CELLS = 2
# Keys of the machine's fingerprint whose differences between two checks the headline names.
_MACHINE_KEYS = ("gpu", "driver", "cuda", "profile")


# Labels and texts of the lines that begin a report.
Headline = tuple[tuple[str, str], ...]


def headline(
    matrix: Matrix, comparison: Comparison | None = None, reference: ReferenceComparison | None = None
) -> Headline:
    """The headline of ``matrix``, of the comparison whose newer side it is, and of that with a reference.

    Its lines are the worst stalls, what changed, and how sure the figures are.
    """
    return (
        ("Stalls", _stalls(matrix)),
        ("Changes", _changes(comparison, reference)),
        ("Measured", _certainty(matrix)),
    )


def _stalls(matrix: Matrix) -> str:
    counts = findings.counts(matrix)
    severe = {kind: number for kind, number in counts.items() if isinstance(kind, VerdictKind) and kind.severity}
    number = sum(counts.values())
    words = ", ".join(f"{count} {kind.look.word}" for kind, count in severe.items())
    worst = findings.worst_cells(matrix, _WORST_CELLS)
    if not worst:
        return f"no stall found in {plural(number, 'cell')}" + (f" ({words})" if words else "")
    return f"{words} of {plural(number, 'cell')}. Worst: {'; '.join(_cell_in_brief(cell) for cell in worst)}"


def _cell_in_brief(cell: Cell) -> str:
    kind = cell.shown_kind
    word = f"{kind.look.word}, " if kind is VerdictKind.STARVED else ""
    return f"{check_wording.cell_name(cell)} ({word}{check_wording.worst_figure(cell)})"


def _changes(comparison: Comparison | None, reference: ReferenceComparison | None = None) -> str:
    """The headline's line on what changed; without a comparison, what is unusual by a reference."""
    if comparison is None:
        if reference is not None:
            return f"not compared with an earlier check; {_unusual_count(reference)}"
        return "not compared with an earlier check (stallscope compare OLD NEW)"
    parts = [comparison_wording.change_counts(comparison)]
    machine = [difference for difference in comparison.differences if difference.key in _MACHINE_KEYS]
    parts += [comparison_wording.difference_line(difference) for difference in machine]
    parts += [line] if (line := comparison_wording.sensitivity_text(comparison)) else []
    return f"{'; '.join(parts)} (since {comparison.old.started_at})"


def _certainty(matrix: Matrix) -> str:
    counts = findings.counts(matrix)
    total = sum(counts.values())
    unmeasured = {kind: number for kind, number in counts.items() if isinstance(kind, Status)}
    text = f"{total - sum(unmeasured.values())} of {plural(total, 'cell')}"
    if unmeasured:
        text += f" ({', '.join(f'{number} {kind.look.word}' for kind, number in unmeasured.items())})"
    if matrix.interrupted:
        text += ", interrupted"
    spread = baseline_spread(matrix)
    return f"{text}; {'too few baselines to tell how they vary' if spread is None else _spread_text(spread)}"


def _spread_text(spread: BaselineSpread) -> str:
    """``baselines vary by ×1.3 (median over victims, worst ×2.1: event)``."""
    return (
        f"baselines vary by {times(spread.typical)} (median over victims, worst {times(spread.worst)}: "
        f"{spread.worst_row})"
    )


def _unusual_count(comparison: ReferenceComparison) -> str:
    here, there = len(comparison.stalled_here), len(comparison.stalled_there)
    name = f"other machines ({comparison.gpu}, driver {comparison.driver})"
    if not here and not there:
        return f"{plural(comparison.compared, 'cell')} as on {name}"
    words = [f"{number} {text}" for number, text in ((here, "stalled only here"), (there, "only there")) if number]
    return f"against {name}: {', '.join(words)}"
