"""Wording of the comparison with a reference: what is unusual here, and how that was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.matrix import PHASES
from stallprobes.units import plural, times
from stallprobes.wording import check_wording

if TYPE_CHECKING:
    from stallprobes.matrix.reference import Reference, ReferenceCell, ReferenceComparison, UnusualCell

# Title of the list of cells (each an aggressor with a victim) that are unusual compared with the reference.
REFERENCE_TITLE = "Unusual here, compared with other machines"


def reference_title(reference: Reference) -> str:
    """``h200-580: NVIDIA H200, driver 580.159.04, CUDA 13.0, 4 checks of 2 machines, 2026-11-21``."""
    first, last = reference.dates
    dates = first if first == last else f"{first} to {last}"
    cuda = reference.fingerprint.cuda or "n/a"
    checks, machines = plural(len(reference.checks), "check"), plural(reference.machines, "machine")
    return f"{reference.name}: {reference.gpu}, driver {reference.driver}, CUDA {cuda}, {checks} of {machines}, {dates}"


def unusual_groups(comparison: ReferenceComparison) -> tuple[tuple[str, tuple[UnusualCell, ...]], ...]:
    """The unusual cells with what they have in common; groups without a cell are left out."""
    groups = (
        ("Stalled here, not on the reference", comparison.stalled_here),
        ("Stalled on the reference, not here", comparison.stalled_there),
    )
    return tuple((title, cells) for title, cells in groups if cells)


def unusual_figures(cell: UnusualCell) -> str:
    """``call p50 ×12, on the reference ×1.0 to ×1.1``."""
    if cell.ratio is None:
        here = "a call did not return"
    else:
        here = f"{check_wording.phase_name(cell.phase)} {cell.quantile} {times(cell.ratio)}"
    if cell.there is None:
        return f"{here}, on the reference starved"
    # A call in flight has no percentile, so the reference's median stands for it.
    what = f"{check_wording.phase_name(cell.phase)} {Quantile.P50} " if cell.ratio is None else ""
    return f"{here}, on the reference {what}{_range(*cell.there)}"


def reference_notes(comparison: ReferenceComparison) -> list[str]:
    """Sentences on how the comparison with a reference was made and what it means."""
    left_out = [
        f"{number} {why}"
        for number, why in (
            (comparison.disagreed, "on which its checks disagree"),
            (comparison.unjudged, "not judged here"),
            (comparison.absent, "that it does not have"),
        )
        if number
    ]
    notes = [
        f"Compared: {plural(comparison.compared, 'cell')}"
        + (f"; left out: {', '.join(left_out)}." if left_out else ".")
    ]
    if comparison.differences:
        here = (
            f"{difference.key.replace('_', ' ')} {check_wording.format_value(difference.new)}"
            f" (reference {check_wording.format_value(difference.old)})"
            for difference in comparison.differences
        )
        notes.append(f"This machine differs: {', '.join(here)}.")
    if comparison.quick:
        notes.append("A quick check has fewer calls, so it misses rare stalls: where it has too few, nothing is named.")
    if comparison.simulated:
        notes.append("This GPU is SIMULATED, the reference is of real ones.")
    notes.append("A reference is no earlier check: a difference is no change, nor a failure but by --fail-on unusual.")
    return notes


def reference_cell(cell: ReferenceCell) -> str:
    """A cell on the reference: ``stalled in 4 of 4 checks; call p50 ×1.0 to ×1.1, wait p50 ×380 to ×420``."""
    states = ", ".join(f"{state} in {number}" for state, number in cell.checks.items())
    ratios = ", ".join(
        f"{check_wording.phase_name(phase)} {quantile} {_range(*bounds)}"
        for phase, ranges in cell.ratios.items()
        for quantile, bounds in ranges.items()
        if phase in PHASES
    )
    return f"{states} of {plural(cell.measured, 'check')}" + (f"; {ratios}" if ratios else "")


def _range(low: float, high: float) -> str:
    return times(low) if times(low) == times(high) else f"{times(low)} to {times(high)}"
