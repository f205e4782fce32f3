"""View model of a check as one block of symbols: a line for each aggressor, a column for each victim, the worst first.

A symbol is a cell's kind, that of a stall also how long it is; it is readable without colour and in ASCII. The text
report and the screen draw the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stallprobes.matrix import findings
from stallprobes.matrix.matrix import QUIET, CellKind, Status
from stallprobes.units import compact
from stallprobes.verdicts.kinds import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stallprobes.matrix.matrix import Cell, Matrix

# Symbols of a stalled cell (one victim beside one aggressor). The number before a symbol is the smallest ratio to the
# baseline for the symbol. The largest ratio comes first.
_STALLS = ((1000.0, "█"), (100.0, "▓"), (10.0, "▒"), (0.0, "░"))
# Symbols of cells that are not stalled, by the kind of their verdict or the reason why they were not measured. A
# kind that is not in this table gets its own letter or the first letter of its word.
_SYMBOLS: dict[CellKind, str] = {
    VerdictKind.QUIET: "·",
    VerdictKind.STARVED: "X",
    Status.INVALID: "!",
    Status.UNSUPPORTED: "n",
    Status.MISSING: "-",
}


@dataclass(frozen=True)
class MatrixBlock:
    """Names in the block of a check: the supported ``victims`` and ``aggressors``, the worst first.

    ``quiet`` are the aggressors beside which every victim is quiet, ``unreached`` those without any measurement.
    """

    victims: tuple[str, ...]
    aggressors: tuple[str, ...]
    quiet: tuple[str, ...]
    unreached: tuple[str, ...]

    @classmethod
    def of(cls, matrix: Matrix) -> MatrixBlock:
        """The block of ``matrix``."""
        victims = [(row.name, findings.row_cells(matrix, row.name)) for row in findings.victims(matrix)]
        columns = {column.name: findings.column_cells(matrix, column.name) for column in findings.aggressors(matrix)}
        columns = {name: cells for name, cells in columns.items() if not findings.all_unsupported(cells)}
        return cls(
            tuple(name for name, cells in victims if not findings.all_unsupported(cells)),
            tuple(columns),
            tuple(name for name, cells in columns.items() if _all_of(cells, VerdictKind.QUIET, Status.UNSUPPORTED)),
            tuple(name for name, cells in columns.items() if _all_of(cells, Status.MISSING)),
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """The aggressors with a line: neither quiet for every victim nor unreached."""
        return tuple(name for name in self.aggressors if name not in self.quiet and name not in self.unreached)


def _all_of(cells: Iterable[Cell], *kinds: CellKind) -> bool:
    return all(cell.shown_kind in kinds for cell in cells)


def quiet_text(matrix: Matrix, block: MatrixBlock) -> str:
    """A sentence on the aggressors that are quiet for every victim."""
    bound = findings.largest_quiet_ratio(cell for cell in matrix.cells.values() if cell.column in block.quiet)
    medians = "" if bound is None else f", medians at most ×{compact(bound)}"
    return f"Quiet for every victim{medians}: {', '.join(block.quiet)}"


def worst_cell(matrix: Matrix, aggressor: str) -> Cell | None:
    """The worst measured cell beside ``aggressor``, None if all of them are quiet."""
    measured = [cell for cell in findings.column_cells(matrix, aggressor) if cell.status.measured]
    weighted = [(verdicts[0].weight, cell) for cell in measured if (verdicts := findings.verdicts(cell))]
    return max(weighted, key=lambda item: item[0])[1] if weighted else None


def symbol(cell: Cell, ascii_only: bool = False) -> str:
    """The symbol of ``cell``."""
    kind = cell.shown_kind
    if kind is VerdictKind.STALLED:
        verdicts = findings.verdicts(cell)
        ratio = (verdicts[0].ratio if verdicts else None) or 0.0
        return next(stall for least, stall in _STALLS if ratio >= least)
    return _symbol_of(kind, ascii_only)


def _symbol_of(kind: CellKind, ascii_only: bool) -> str:
    if ascii_only and kind is VerdictKind.QUIET:
        # In ASCII a middle dot would be the symbol of what was not reached.
        return "."
    return _SYMBOLS.get(kind) or kind.look.letter or kind.look.word[0]


class LegendEntry(NamedTuple):
    """A symbol, the kind of its cells, and of a stall its least ratio to the baseline."""

    symbol: str
    kind: CellKind
    least: float | None = None

    @property
    def ratios(self) -> str:
        """The range of a stall's ratios, "" for other kinds."""
        if self.least is None:
            return ""
        return f"from ×{self.least:.0f}" if self.least else f"below ×{_STALLS[-2][0]:.0f}"


def legend(matrix: Matrix, ascii_only: bool = False) -> list[LegendEntry]:
    """The symbols in use, the worst first."""
    entries = []
    for kind in findings.counts(matrix):
        if kind is not VerdictKind.STALLED:
            entries.append(LegendEntry(_symbol_of(kind, ascii_only), kind))
            continue
        used = {symbol(cell) for cell in matrix.cells.values() if cell.column != QUIET}
        entries += [LegendEntry(stall, kind, least) for least, stall in _STALLS if stall in used]
    return entries
