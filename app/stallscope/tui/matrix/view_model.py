"""View model of the matrix screen: the figures, labels and order of all cells.

The percentiles of hundreds of cells take too long for the thread of the screen. The thread that reads or measures the
matrix computes them; the screen only formats them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from stallprobes.latency.ratio import PERCENTILES, BaselineRatio, Quantile, phase_channels
from stallprobes.matrix import findings
from stallprobes.matrix.comparing.comparison import CellOutcome
from stallprobes.matrix.matrix import PHASES, QUIET, Cell, CellKind, Matrix, Status
from stallprobes.model import Phase
from stallprobes.units import times
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording
from stallprobes.wording.headline import Headline, headline
from stallscope.report.matrix_block import LegendEntry, MatrixBlock, legend, symbol, worst_cell
from stallscope.tui.common.lines import Run, short_duration

if TYPE_CHECKING:
    from stallprobes.latency.window import ChannelMap
    from stallprobes.matrix.comparing.comparison import CellChange, Comparison, QuantileChange
    from stallprobes.matrix.reference import Reference, ReferenceComparison

# Place of a cell: its victim and its aggressor.
Key = tuple[str, str]

# Mark of a cell (a victim beside an aggressor) whose stall shows only in p99 and not in the median. The mark replaces
# the usual mark of a stall.
TAIL_MARK = "!*"
# Mark of a cell whose stall shows only in the latency from the due time. The due time is the time for which the call
# was scheduled. The mark replaces the usual mark of a stall.
DUE_MARK = "!d"
# Name of the p99 of the latency from the due time. Percentiles of other latencies have the names p50 and p99.
DUE = "due"
# Kinds of verdicts (findings about a victim), other than stalls, whose marks the legend explains.
_MARKED = (VerdictKind.SLOWER, VerdictKind.DRIFT, VerdictKind.HOST)
# States of unmeasured cells whose marks the legend explains: not supported by the machine, and not measured.
_UNMEASURED = (Status.UNSUPPORTED, Status.MISSING)
# Legend of the matrix of one check: marks and their words.
LEGEND = (
    (VerdictKind.STALLED.look.mark, "stalled"),
    (TAIL_MARK, "at p99 only"),
    (DUE_MARK, "rare"),
    *((kind.look.mark, kind.look.word) for kind in _MARKED),
    *((status.look.mark, status.look.word) for status in _UNMEASURED),
)
# Legend of the matrix of a comparison: marks and their words.
CHANGE_LEGEND = (
    ("STARVES", "it did not before"),
    (CellOutcome.UNSURE.look.word, CellOutcome.UNSURE.look.meaning),
    (Status.MISSING.look.mark, "not in both"),
)
# Letter after the ratio in a cell with a single ratio: c for the ratio of the call, w for the ratio of the wait.
_PHASE_LETTERS = {Phase.CALL: "c", Phase.WAIT: "w"}
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


class CellValue(StrEnum):
    """Content of the cells of the matrix; the value is the content's name in the title.

    ``SYMBOLS``: a block with a symbol for each cell. All other contents are figures in a table. ``JUDGED``: the ratio
    of the worst verdict; without a verdict, the ratio of the medians. ``P50``, ``P99``: the ratio of this percentile to
    the baseline. ``CHANGE``: the change since the compared check.
    """

    SYMBOLS = "symbols"
    JUDGED = "as judged"
    P50 = "p50"
    P99 = "p99"
    CHANGE = "change"


@dataclass(frozen=True)
class PhaseFigures:
    """One phase of a cell: p50 and p99 beside the aggressor (ns), and their ratios to the baseline.

    Both mappings are empty without calls, ``ratios`` also without a baseline. ``kind``, ``quantile`` and ``ratio`` are
    those of the phase's worst verdict; QUIET, "p50" and the ratio of the medians without one. The quantile ``DUE`` is
    p99 from the due time.
    """

    now_ns: Mapping[Quantile, float]
    ratios: Mapping[Quantile, BaselineRatio]
    kind: VerdictKind = VerdictKind.QUIET
    quantile: str = Quantile.P50
    ratio: float | None = None

    def ratio_at(self, quantile: Quantile) -> float | None:
        """Ratio to the baseline at ``quantile``, None without calls in either."""
        return self.ratios[quantile].ratio if quantile in self.ratios else None


@dataclass(frozen=True)
class CellFigures:
    """One cell: its kind, its phases, and the sort key of its severity."""

    kind: CellKind
    parts: Mapping[Phase, PhaseFigures]
    weight: tuple[int, float] = (0, 0.0)


@dataclass(frozen=True)
class CellLabel:
    """Text of a cell and its style."""

    text: str
    style: str = ""


def cell_figures(cell: Cell) -> CellFigures:
    """Figures of ``cell``; takes about half a millisecond."""
    worst = cell.worst
    weight = (0, 0.0) if worst is None else worst.weight
    # The properties of the cell would keep every histogram of the matrix unpacked.
    now, baseline = cell.sums()
    parts = {phase: part for phase in PHASES if (part := _phase_figures(cell, now, baseline, phase)).now_ns}
    return CellFigures(cell.kind, parts, weight)


def _phase_figures(cell: Cell, now: ChannelMap, baseline: ChannelMap, phase: Phase) -> PhaseFigures:
    part = _largest_ratio_percentiles(now, baseline, phase)
    # Rare stalls show in the due time, which the screen shows as part of the call.
    mine = (phase, Phase.DUE) if phase is Phase.CALL else (phase,)
    own = [verdict for verdict in cell.verdicts if verdict.phase in mine and verdict.ratio is not None]
    worst = max(own, key=lambda verdict: verdict.weight, default=None)
    if worst is None or worst.kind.severity == 0:
        return replace(part, ratio=part.ratio_at(Quantile.P50))
    quantile = DUE if worst.phase is Phase.DUE else worst.quantile
    return replace(part, kind=worst.kind, quantile=quantile, ratio=worst.ratio)


def _largest_ratio_percentiles(now: ChannelMap, baseline: ChannelMap, phase: Phase) -> PhaseFigures:
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
    return max(parts, key=lambda part: part.ratio_at(Quantile.P50) or 0.0)


# Labels of a cell in one line, and of its call and wait in a line each.
CellLabels = tuple[CellLabel, CellLabel, CellLabel]


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

    def order(self, worst_first: bool, changed: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of rows and columns as measured, or the worst first: by change with ``changed``.

        The column quiet is first. While cells are being measured each keeps its place.
        """
        return _order(self, worst_first and (changed or self.block is not None), changed)

    def block_order(self, worst_first: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the victims and of the aggressors that have a line in the block, in the order of ``order``."""
        victims, aggressors = self.order(worst_first, changed=False)
        aggressors = tuple(name for name in aggressors if name != QUIET)
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

    def labels(self, key: Key, value: CellValue) -> CellLabels:
        """The cell in one line, and its call and wait in a line each."""
        cell, figures = self.matrix.cells.get(key), self.figures.get(key)
        if value is CellValue.CHANGE:
            return _change_labels(self.changes.get(key))
        if cell is None or figures is None:
            return _word_labels(Status.MISSING.look.mark, Status.MISSING.look.style)
        if not cell.status.measured:
            return _word_labels(cell.status.look.mark, cell.status.look.style)
        if key[1] == QUIET:
            return _baseline_labels(figures, Quantile.P99 if value is CellValue.P99 else Quantile.P50)
        if figures.kind in (VerdictKind.STARVED, VerdictKind.FAILED):
            return _word_labels(figures.kind.look.word, figures.kind.look.style)
        lines = tuple(_phase_label(figures.parts.get(phase), value) for phase in PHASES)
        return _worse_phase_label(figures, value), *lines  # type: ignore[return-value]


@lru_cache(4)
def _order(matrix_view: MatrixView, worst_first: bool, changed: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    matrix = matrix_view.matrix
    rows, columns = [row.name for row in matrix.rows], [column.name for column in matrix.columns]
    if worst_first and changed:
        worst: tuple[dict[str, tuple[float, float]], ...] = ({}, {})
        for key in matrix.cells:
            weight = matrix_view.weight(key, changed)
            for weights, name in zip(worst, key, strict=True):
                weights[name] = max(weights.get(name, weight), weight)
        none = (0.0, 0.0)
        rows.sort(key=lambda name: worst[0].get(name, none), reverse=True)
        columns.sort(key=lambda name: (name == QUIET, worst[1].get(name, none)), reverse=True)
    elif worst_first:
        rows = [row.name for row in findings.victims(matrix)]
        quiet = [name for name in columns if name == QUIET]
        columns = [*quiet, *(column.name for column in findings.aggressors(matrix))]
    return tuple(rows), tuple(columns)


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


@lru_cache(1)
def all_labels(matrix_view: MatrixView, value: CellValue) -> Mapping[Key, CellLabels]:
    """The labels of all cells, which a running check has drawn several times a second."""
    return {key: matrix_view.labels(key, value) for key in matrix_view.matrix.cells}


def _word_labels(text: str, style: str) -> CellLabels:
    return CellLabel(text, style), CellLabel(text, style), CellLabel("")


def _baseline_labels(figures: CellFigures, quantile: Quantile) -> CellLabels:
    parts = [figures.parts.get(phase) for phase in PHASES]
    call, wait = (CellLabel("" if part is None else short_duration(part.now_ns.get(quantile))) for part in parts)
    return call, call, wait


def _phase_label(part: PhaseFigures | None, value: CellValue, letter: str = "") -> CellLabel:
    """One phase with its mark, in columns of their own so that figures are aligned."""
    if part is None:
        return CellLabel("")
    ratio = _shown_ratio(part, value)
    tails: dict[str, str] = {Quantile.P99: TAIL_MARK, DUE: DUE_MARK} if part.kind is VerdictKind.STALLED else {}
    mark = tails.get(part.quantile, part.kind.look.mark)
    return CellLabel(f"{_ratio(ratio)}{letter}{mark:<2}", kind_style(part.kind))


def _shown_ratio(part: PhaseFigures, value: CellValue) -> float | None:
    if value is CellValue.JUDGED:
        return part.ratio
    return part.ratio_at(Quantile.P50 if value is CellValue.P50 else Quantile.P99)


def _worse_phase_label(figures: CellFigures, value: CellValue) -> CellLabel:
    """The worse of call and wait, with the phase's letter."""
    if not figures.parts:
        return CellLabel("–", "faint")

    def weight(phase: Phase) -> tuple[int, float]:
        part = figures.parts[phase]
        ratio = _shown_ratio(part, value)
        return (part.kind.severity if value is CellValue.JUDGED else 0, ratio or 0.0)

    phase = max(figures.parts, key=weight)
    return _phase_label(figures.parts[phase], value, _PHASE_LETTERS[phase])


def _change_labels(change: CellChange | None) -> CellLabels:
    if change is None:
        return _word_labels(Status.MISSING.look.mark, Status.MISSING.look.style)
    word, style = change.change.look.word, change.change.look.style
    if change.newly_starved:
        return _word_labels("STARVES", style)
    if change.outcome is CellOutcome.SAME:
        return _word_labels(word, style)
    worst = max((part for part in change.parts if part.change is change.change), key=_distance, default=None)
    below = (
        ""
        if worst is None or worst.ratio is None
        else f"{times(worst.ratio)}{_PHASE_LETTERS.get(worst.channel.phase, '')}"
    )
    return CellLabel(word, style), CellLabel(word, style), CellLabel(below, style)


def _distance(part: QuantileChange) -> float:
    return 0.0 if not part.ratio else max(part.ratio, 1 / part.ratio)


def _ratio(ratio: float | None) -> str:
    """A ratio in at most five characters: ``×427``, ``×94k``."""
    if ratio is None:
        return "–"
    if ratio >= 9999.5:
        return f"×{ratio / 1e6:.1f}M" if ratio >= 999_500 else f"×{ratio / 1e3:.0f}k"
    return times(ratio)
