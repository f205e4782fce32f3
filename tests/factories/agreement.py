"""Agreement of a simulated check with recorded checks of a real GPU, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stallprobes.latency.ratio import phase_channels
from stallprobes.matrix import check_file
from stallprobes.matrix.matrix import QUIET, Cell, Matrix
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.kinds import VerdictKind

RECORDED = Path(__file__).parents[1] / "gpu" / "recorded"
# Two checks in a row of two H200 of one host, and two of one H200 on a noisy host.
FILES = (
    "check-h200x2-1.json.gz",
    "check-h200x2-2.json.gz",
    # With the columns of a second process, blocking events, host functions and mapping.
    "check-h200x2-3.json.gz",
    "check-h200x2-4.json.gz",
    # With that of 15 threads that launch at the same time.
    "check-h200x2-5.json.gz",
    "check-h200-noisy-1.json.gz",
    "check-h200-noisy-2.json.gz",
)
APART = 2.0
HOST = "host"
_STALLS = {VerdictKind.STALLED, VerdictKind.STARVED}


@dataclass(frozen=True)
class CellAgreement:
    """A cell of which the recorded checks agree whether it is stalled, and whether the simulated one says the same."""

    row: str
    column: str
    recorded: tuple[str, ...]
    simulated: str
    agrees: bool

    def __str__(self) -> str:
        return f"{self.row:22} {self.column:26} recorded {', '.join(self.recorded):38} simulated {self.simulated}"


@dataclass(frozen=True)
class MedianAgreement:
    """A median in us on which the recorded checks agree within a factor of APART; ``simulated``: None without calls."""

    row: str
    column: str
    channel: Channel
    recorded: tuple[float, ...]
    simulated: float | None

    @property
    def ratio(self) -> float | None:
        """Simulated over the geometric mean of the recorded ones."""
        if self.simulated is None:
            return None
        return self.simulated / math.exp(sum(math.log(one) for one in self.recorded) / len(self.recorded))

    @property
    def agrees(self) -> bool:
        """Whether the two are within a factor of APART."""
        return self.ratio is not None and 1 / APART <= self.ratio <= APART

    def __str__(self) -> str:
        name = f"{self.channel.phase} {self.channel.label}".strip()
        recorded = " ".join(f"{one:.1f}" for one in self.recorded)
        ratio = "no call returned" if self.ratio is None else f"{self.simulated:.1f} (×{self.ratio:.2f})"
        return f"{self.row:22} {self.column:26} {name:20} recorded {recorded:38} simulated {ratio}"


@dataclass(frozen=True)
class MatrixAgreement:
    """All compared cells and medians."""

    cells: tuple[CellAgreement, ...]
    medians: tuple[MedianAgreement, ...]

    @property
    def share_of_cells(self) -> float:
        """Share of the cells that agree."""
        return sum(one.agrees for one in self.cells) / len(self.cells)

    @property
    def share_of_medians_apart(self) -> float:
        """Share of the medians that are more than a factor of APART apart."""
        return sum(not one.agrees for one in self.medians) / len(self.medians)

    def report(self) -> str:
        """The figures, then each disagreement."""
        cells, medians = ([one for one in part if not one.agrees] for part in (self.cells, self.medians))
        return "\n".join(
            [
                f"stalled or not: {len(self.cells) - len(cells)} of {len(self.cells)} cells agree "
                f"({100 * self.share_of_cells:.1f} %)",
                *(f"  {one}" for one in cells),
                f"medians more than a factor of {APART:g} apart: {len(medians)} of {len(self.medians)} "
                f"({100 * self.share_of_medians_apart:.1f} %)",
                *(f"  {one}" for one in medians),
            ]
        )


@cache
def recorded_checks() -> dict[str, Matrix]:
    """The recorded checks by file name; loaded once, since that takes a second for each."""
    return {name: check_file.load(RECORDED / name) for name in FILES}


def agreement(recorded: Sequence[Matrix], simulated: Matrix) -> MatrixAgreement:
    """Compare each cell of ``simulated`` that at least one of ``recorded`` measured."""
    cells, medians = [], []
    for (row, column), mine in simulated.cells.items():
        if column == QUIET or row == HOST:
            continue
        real = [found for one in recorded if (found := one.cells.get((row, column))) and found.status.measured]
        if not real:
            continue
        if len({is_stalled(one) for one in real}) == 1:
            kinds = tuple(str(one.kind) for one in real)
            cells.append(CellAgreement(row, column, kinds, str(mine.kind), is_stalled(mine) == is_stalled(real[0])))
        medians += _medians(row, column, real, mine)
    return MatrixAgreement(tuple(cells), tuple(medians))


def is_stalled(cell: Cell) -> bool:
    """Whether the product's own judgement of the cell is stalled or starved."""
    return cell.kind in _STALLS


def _medians(row: str, column: str, real: Sequence[Cell], mine: Cell) -> list[MedianAgreement]:
    found = []
    for phase in (Phase.CALL, Phase.WAIT):
        for channel in phase_channels(real[0].channels, phase):
            figures = [figure for one in real if (figure := _median(one, channel)) is not None]
            if figures and len(figures) == len(real) and max(figures) <= APART * min(figures):
                found.append(MedianAgreement(row, column, channel, tuple(figures), _median(mine, channel)))
    return found


def _median(cell: Cell, channel: Channel) -> float | None:
    channels: Mapping[Channel, object] = cell.channels
    if channel not in channels:
        return None
    value = cell.channels[channel].percentile(50)
    return None if not value else value / 1000
