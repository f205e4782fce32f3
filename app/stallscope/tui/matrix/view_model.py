"""View model of the matrix screen: the figures, symbols and order of all cells.

The percentiles of hundreds of cells take too long for the thread of the screen. The thread that reads or measures the
matrix computes them; the screen only formats them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from stallprobes.latency.ratio import PERCENTILES, BaselineRatio, Quantile, phase_channels
from stallprobes.matrix import findings
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, CellKind, Matrix
from stallprobes.model import Phase
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording
from stallprobes.wording.headline import Headline, headline
from stallscope.report.matrix_block import LegendEntry, MatrixBlock, legend, symbol, worst_cell
from stallscope.tui.common.lines import Run

if TYPE_CHECKING:
    from stallprobes.latency.window import ChannelMap
    from stallprobes.matrix.reference import ReferenceComparison

# Place of a cell: its victim and its aggressor.
Key = tuple[str, str]


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


# The phases of one cell.
CellFigures = Mapping[Phase, PhaseFigures]


def cell_figures(cell: Cell) -> CellFigures:
    """Figures of ``cell``; takes about half a millisecond."""
    # The properties of the cell would keep every histogram of the matrix unpacked.
    now, baseline = cell.sums()
    return {phase: part for phase in PHASES if (part := _phase_figures(now, baseline, phase)).now_ns}


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
    """A matrix with the figures of its cells, and the headline of its report.

    ``headline``, ``block`` and ``reference``, the comparison with a reference, are None while cells are being measured.
    """

    matrix: Matrix
    figures: Mapping[Key, CellFigures]
    headline: Headline | None = None
    block: MatrixBlock | None = None
    reference: ReferenceComparison | None = None

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

    @cached_property
    def order(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the victims, and of the aggressors that have a line in the block, the worst first.

        While cells are being measured each keeps its place.
        """
        if self.block is not None and self.block.lines:
            return self.block.victims, self.block.lines
        rows = self.matrix.rows if self.block is None else findings.victims(self.matrix)
        columns = self.matrix.columns if self.block is None else findings.aggressors(self.matrix)
        return tuple(row.name for row in rows), tuple(column.name for column in columns if column.name != QUIET)

    @cached_property
    def worst(self) -> Key | None:
        """Key of the worst cell beside an aggressor with a line, None if all are quiet."""
        cells = (cell for key, cell in self.matrix.cells.items() if key[1] in self.order[1] and key in self.figures)
        weights = {
            cell.key: worst.weight for cell in cells if (worst := cell.worst) is not None and worst.weight[0] > 0
        }
        return max(weights, key=lambda key: weights[key], default=None)


# Styles of the symbols of cells: X starved, F failed, █ ▓ ▒ ░ stalled (the highest ratio first), ! invalid. The
# next statement adds the dim symbols; all others have the default style.
_SYMBOL_STYLES = {"X": "alarm", "F": "alarm", "█": "hot", "▓": "live", "▒": "active", "░": "heat", "!": "warn"}
_SYMBOL_STYLES |= dict.fromkeys("·.n-", "dim")


def symbol_style(sign: str) -> str:
    """The style of a cell's symbol."""
    return _SYMBOL_STYLES.get(sign, "")


@lru_cache(1)
def block_symbols(
    matrix_view: MatrixView, ascii_only: bool
) -> tuple[Mapping[Key, Run], tuple[LegendEntry, ...], Mapping[str, str]]:
    """The symbols of all cells with their styles, their legend, and the worst ratio beside each aggressor that is not
    quiet for every victim. A running check has them drawn several times a second."""
    matrix = matrix_view.matrix
    symbols = {key: symbol(cell, ascii_only) for key, cell in matrix.cells.items()}
    worst = {column.name: worst_cell(matrix, column.name) for column in matrix.columns}
    starved = VerdictKind.STARVED
    return (
        {key: (sign, symbol_style(sign)) for key, sign in symbols.items()},
        tuple(legend(matrix, ascii_only)),
        {
            name: starved.look.word if cell.kind is starved else check_wording.short_figure(cell)
            for name, cell in worst.items()
            if cell is not None
        },
    )
