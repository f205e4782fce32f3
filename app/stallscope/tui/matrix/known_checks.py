"""Content of the matrix before a check was measured here: the last saved check, else a reference of the package.

A reference has no histograms, only how often each cell stalled and the ranges of the ratios in its checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum

from msgspec.structs import asdict

from stallprobes.errors import CheckFileError
from stallprobes.latency.ratio import BaselineRatio, Quantile
from stallprobes.matrix import check_file, reference_choice
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, Matrix, MatrixColumn, Status
from stallprobes.matrix.reference import CellState, Reference, ReferenceCell, ReferenceRow
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.evidence import STALLED
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict
from stallscope.report.matrix_block import MatrixBlock
from stallscope.tui.matrix.view_model import CellFigures, Key, MatrixView, PhaseFigures


class Unmeasured(StrEnum):
    """Origin of a shown check that was not measured in this session: the last saved check, or a reference."""

    SAVED = "saved"
    REFERENCE = "reference"


# Kind of verdict that the screen shows for a cell of a reference (a summary of recorded checks of another machine),
# by the cell's state in the reference.
_KINDS = {
    CellState.QUIET: VerdictKind.QUIET,
    CellState.SLOWER: VerdictKind.SLOWER,
    CellState.STALLED: VerdictKind.STALLED,
    CellState.STARVED: VerdictKind.STARVED,
    CellState.UNCLEAR: VerdictKind.UNSTEADY,
}
# Stand-in (ns) for a baseline latency that a reference does not store, such as the p99. The value has no effect, since
# the screen shows only ratios to the baseline.
_UNKNOWN_NS = 1e6


def known_check(gpu: str | None, driver: str | None) -> tuple[MatrixView, Unmeasured, str] | None:
    """The last saved check with its file, else the reference in the package that is nearest to ``gpu`` and ``driver``.

    None without both. Takes about half a millisecond a cell.
    """
    path = check_file.last_saved()
    if path is not None:
        try:
            return MatrixView.of(check_file.load(path)), Unmeasured.SAVED, str(path)
        except CheckFileError:
            # It was replaced by something else.
            pass
    reference = reference_choice.nearest(gpu, driver)
    return None if reference is None else (reference_view(reference), Unmeasured.REFERENCE, "")


def reference_view(reference: Reference) -> MatrixView:
    """The view of ``reference``: its cells are those of a matrix without measurements."""
    columns = [entry for entry in reference.columns if entry.name != QUIET]
    cells: dict[Key, Cell] = {}
    figures: dict[Key, CellFigures] = {}
    for row in reference.rows:
        key = (row.name, QUIET)
        figures[key] = CellFigures(VerdictKind.QUIET, _baseline(row))
        cells[key] = Cell(*key, Status.OK if figures[key].parts else Status.MISSING)
        for column in columns:
            key = (row.name, column.name)
            recorded = reference.by_place.get(key)
            if recorded is None or not recorded.checks:
                cells[key] = Cell(*key, Status.MISSING, "The reference does not have this cell.")
                figures[key] = CellFigures(Status.MISSING, {})
                continue
            figures[key], verdicts = _judged(row, recorded)
            starved = figures[key].kind is VerdictKind.STARVED
            cells[key] = Cell(*key, Status.STARVED if starved else Status.OK, verdicts=verdicts)
    matrix = Matrix(
        backend="cuda",
        fingerprint=asdict(reference.fingerprint),
        started_at=reference.checks[-1].started_at,
        seconds=sum(check.seconds for check in reference.checks),
        rows=reference.rows,
        columns=(MatrixColumn(QUIET, QUIET, ()), *columns),
        cells=cells,
        seed=0,
        repeats=reference.checks[-1].repeats,
        pace_ns=reference.pace_ns,
    )
    return MatrixView(matrix, figures, block=MatrixBlock.of(matrix), shown_reference=reference)


def _baseline(row: ReferenceRow) -> Mapping[Phase, PhaseFigures]:
    baseline_ns = row.baseline_ns
    return {phase: PhaseFigures({Quantile.P50: baseline_ns[phase]}, {}) for phase in PHASES if phase in baseline_ns}


def _judged(row: ReferenceRow, cell: ReferenceCell) -> tuple[CellFigures, tuple[Verdict, ...]]:
    """The state of most of the checks, the worse one of two, with the middle of each ratio's range; and its verdict."""
    state = max(cell.checks, key=lambda candidate: (cell.checks[candidate], _KINDS[candidate].severity))
    kind = _KINDS[state]
    parts = {phase: part for phase in PHASES if (part := _phase(row, cell, phase)).ratios}
    stalled = [
        (figure.ratio, phase, quantile)
        for quantile in (Quantile.P50, Quantile.P99)
        for phase, part in parts.items()
        if (figure := part.ratios.get(quantile)) is not None and figure.ratio >= STALLED
    ]
    # As in a check: the median shows a stall, or only the tail does.
    medians = [stall for stall in stalled if stall[2] is Quantile.P50]
    if not kind.severity:
        return CellFigures(kind, parts), ()
    verdict = Verdict(row.name, None, Quantile.P50, None, None, None, kind, head="")
    if chosen := medians or stalled:
        ratio, phase, quantile = max(chosen)
        verdict = verdict.changed(phase=phase, quantile=quantile, ratio=ratio)
    return CellFigures(kind, parts, verdict.weight), (verdict,)


def _phase(row: ReferenceRow, cell: ReferenceCell, phase: Phase) -> PhaseFigures:
    ratios: dict[Quantile, BaselineRatio] = {}
    for quantile in (Quantile.P50, Quantile.P99):
        limits = cell.range(phase, quantile)
        if limits is None:
            continue
        base_ns = row.baseline_ns.get(phase, _UNKNOWN_NS) if quantile is Quantile.P50 else _UNKNOWN_NS
        middle = math.sqrt(math.prod(max(ratio, 1e-9) for ratio in limits))
        ratios[quantile] = BaselineRatio(Channel(phase), quantile, base_ns, base_ns * middle)
    now_ns = {quantile: ratio.now_ns for quantile, ratio in ratios.items()}
    return PhaseFigures(now_ns, ratios)
