"""View model of the matrix screen: the figures, symbols and order of all cells.

The percentiles of hundreds of cells take too long for the thread of the screen. The thread that reads or measures the
matrix computes them; the screen only formats them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from stallprobes.latency.ratio import PERCENTILES, BaselineRatio, Quantile, phase_channels
from stallprobes.matrix import findings
from stallprobes.matrix.comparing.comparison import CellOutcome
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, CellKind, Matrix
from stallprobes.model import Phase
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording
from stallprobes.wording.headline import Headline, headline
from stallscope.report.matrix_block import LegendEntry, MatrixBlock, legend, symbol, worst_cell
from stallscope.tui.common.lines import Run

if TYPE_CHECKING:
    from stallprobes.latency.window import ChannelMap
    from stallprobes.matrix.comparing.comparison import CellChange, Comparison
    from stallprobes.matrix.reference import Reference, ReferenceComparison

# Place of a cell: its victim and its aggressor.
Key = tuple[str, str]

# Outcomes of the comparison of a cell in two checks, from the least to the most important change. An improvement is
# more important than no change, and less important than a regression. The screen sorts changes by this order.
_OUTCOME_ORDER = (
    CellOutcome.SAME,
    CellOutcome.UNSURE,
    CellOutcome.FED,
    CellOutcome.BETTER,
    CellOutcome.WORSE,
    CellOutcome.STARVED,
)


def kind_style(kind: CellKind) -> str:
    """Style of a kind in the matrix: quiet cells are dim, so that the others stand out."""
    return "dim" if kind is VerdictKind.QUIET else kind.look.style


@dataclass(frozen=True)
class PhaseFigures:
    """One phase of a cell: p50 and p99 beside the aggressor (ns), and their ratios to the baseline.

    Both mappings are empty without calls, ``ratios`` also without a baseline.
    """

    now_ns: Mapping[Quantile, float]
    ratios: Mapping[Quantile, BaselineRatio]


@dataclass(frozen=True)
class CellFigures:
    """One cell: its kind, its phases, and the sort key of its severity."""

    kind: CellKind
    parts: Mapping[Phase, PhaseFigures]
    weight: tuple[int, float] = (0, 0.0)


def cell_figures(cell: Cell) -> CellFigures:
    """Figures of ``cell``; takes about half a millisecond."""
    worst = cell.worst
    weight = (0, 0.0) if worst is None else worst.weight
    # The properties of the cell would keep every histogram of the matrix unpacked.
    now, baseline = cell.sums()
    parts = {phase: part for phase in PHASES if (part := _phase_figures(now, baseline, phase)).now_ns}
    return CellFigures(cell.kind, parts, weight)


def _phase_figures(now: ChannelMap, baseline: ChannelMap, phase: Phase) -> PhaseFigures:
    """Percentiles of the phase; with several ops in an iteration, those of the op with the largest ratio."""
    parts = []
    for channel in phase_channels(now, phase):
        now_ns = {quantile: now[channel].percentile(quantile.percent) for quantile in PERCENTILES if channel in now}
        ratios = {quantile: BaselineRatio.of(now, baseline, channel, quantile) for quantile in PERCENTILES}
        parts.append(
            PhaseFigures(
                {quantile: ns for quantile, ns in now_ns.items() if ns is not None},
                {quantile: ratio for quantile, ratio in ratios.items() if ratio is not None},
            )
        )
    return max(parts, key=lambda part: part.ratios[Quantile.P50].ratio if Quantile.P50 in part.ratios else 0.0)


@dataclass(frozen=True, eq=False)
class MatrixView:
    """A matrix with the figures of its cells, the headline of its report, and the changes of a comparison.

    ``headline``, ``block`` and ``reference``, the comparison with a reference, are None while cells are being measured.
    ``shown_reference`` is the reference in the view, None for a check.
    """

    matrix: Matrix
    figures: Mapping[Key, CellFigures]
    changes: Mapping[Key, CellChange] = field(default_factory=dict)
    headline: Headline | None = None
    block: MatrixBlock | None = None
    reference: ReferenceComparison | None = None
    shown_reference: Reference | None = None

    @classmethod
    def of(cls, matrix: Matrix, known: Mapping[Key, CellFigures] | None = None) -> MatrixView:
        """The view of a whole matrix, with the figures that are ``known``. Takes about half a millisecond a cell."""
        from stallprobes.matrix import reference_choice

        known = known or {}
        every = {key: known.get(key) or cell_figures(cell) for key, cell in matrix.cells.items()}
        unusual = reference_choice.unusual(matrix)
        lines = headline(matrix, reference=unusual)
        return cls(matrix, every, headline=lines, block=MatrixBlock.of(matrix), reference=unusual)

    def with_cell(self, cell: Cell) -> MatrixView:
        """The view with a new or changed cell."""
        key = cell.key
        matrix = self.matrix.changed(cells={**self.matrix.cells, key: cell})
        figures = {**self.figures, key: cell_figures(cell)}
        return replace(self, matrix=matrix, figures=figures, headline=None, block=None, reference=None)

    def compared(self, comparison: Comparison | None) -> MatrixView:
        """The view with the changes of ``comparison``, or without changes."""
        changes = () if comparison is None else comparison.cells
        block = MatrixBlock.of(self.matrix)
        # What changed has a line, though it is quiet.
        changed = {change.column for change in changes if change.outcome in _CHANGE_STYLES}
        block = replace(block, quiet=tuple(name for name in block.quiet if name not in changed))
        lines = self.headline and headline(self.matrix, comparison, self.reference)
        by_key = {change.key: change for change in changes}
        return replace(self, changes=by_key, headline=lines, block=block)

    def order(self, worst_first: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the victims, and of the aggressors that have a line in the block: the worst first, or as measured.

        While cells are being measured each keeps its place.
        """
        victims, aggressors = _order(self, worst_first and self.block is not None)
        if self.block is None or not self.block.lines:
            return victims, aggressors
        lines = self.block.lines
        return tuple(filter(self.block.victims.__contains__, victims)), tuple(filter(lines.__contains__, aggressors))

    def worst(self, changed: bool, columns: Container[str]) -> Key | None:
        """Key of the worst cell in ``columns``, None if all are quiet, or with ``changed`` the same."""
        keys = [key for key in self.matrix.cells if key[1] in columns]
        key = max(keys, key=lambda key: self.weight(key, changed), default=None)
        return key if key is not None and self.weight(key, changed)[0] > 0 else None

    def weight(self, key: Key, changed: bool) -> tuple[float, float]:
        """Sort key of the severity of a cell, or of its change; larger is worse."""
        if changed:
            change = self.changes.get(key)
            if change is None:
                return (0.0, 0.0)
            ratios = [part.ratio for part in change.parts if part.ratio is not None]
            return (float(_OUTCOME_ORDER.index(change.outcome)), max(ratios, default=0.0))
        figures = self.figures.get(key)
        return (0.0, 0.0) if figures is None else figures.weight


@lru_cache(4)
def _order(matrix_view: MatrixView, worst_first: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of all victims and aggressors."""
    matrix = matrix_view.matrix
    rows = findings.victims(matrix) if worst_first else matrix.rows
    columns = findings.aggressors(matrix) if worst_first else matrix.columns
    return tuple(row.name for row in rows), tuple(column.name for column in columns if column.name != QUIET)


# Styles of the symbols of cells: X starved, F failed, █ ▓ ▒ ░ stalled (the highest ratio first), ! invalid. The
# next statement adds the dim symbols; all others have the default style.
_SYMBOL_STYLES = {"X": "alarm", "F": "alarm", "█": "hot", "▓": "live", "▒": "active", "░": "heat", "!": "warn"}
_SYMBOL_STYLES |= dict.fromkeys("·.n-", "dim")
# Style of a cell by the outcome of its comparison; an outcome that is not in this table counts as no change.
_CHANGE_STYLES = {
    CellOutcome.WORSE: "alarm",
    CellOutcome.STARVED: "alarm",
    CellOutcome.BETTER: "better",
    CellOutcome.FED: "better",
}


def symbol_style(sign: str, change: CellChange | None = None, compared: bool = False) -> str:
    """The style of a cell's symbol; what is worse is reverse and what is better underlined.

    In a comparison a starved cell that is no worse is not reverse.
    """
    if change is not None and change.outcome in _CHANGE_STYLES:
        return _CHANGE_STYLES[change.outcome]
    style = _SYMBOL_STYLES.get(sign, "")
    return "bad" if compared and style == "alarm" else style


class BlockSymbols(NamedTuple):
    """The symbols of all cells with their styles, their legend, and the worst ratio beside each aggressor that is not
    quiet for every victim."""

    symbols: Mapping[Key, Run]
    legend: tuple[LegendEntry, ...]
    worst: Mapping[str, str]


@lru_cache(1)
def block_symbols(matrix_view: MatrixView, ascii_only: bool) -> BlockSymbols:
    """The symbols of ``matrix_view``, which a running check has drawn several times a second."""
    matrix, compared = matrix_view.matrix, bool(matrix_view.changes)
    symbols = {key: symbol(cell, ascii_only) for key, cell in matrix.cells.items()}
    worst = {column.name: worst_cell(matrix, column.name) for column in matrix.columns}
    starved = VerdictKind.STARVED
    return BlockSymbols(
        {key: (sign, symbol_style(sign, matrix_view.changes.get(key), compared)) for key, sign in symbols.items()},
        tuple(legend(matrix, ascii_only)),
        {
            name: starved.look.word if cell.kind is starved else check_wording.short_figure(cell)
            for name, cell in worst.items()
            if cell is not None
        },
    )
