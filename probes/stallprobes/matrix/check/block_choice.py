"""Choice of the cells that get an additional repeat, by the gain in precision per second.

A block switches the aggressors of a column on once, which takes longer than a window. The victims of a column therefore
share a block, and a column is chosen by the sum of their gains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stallprobes.matrix.comparing.precision import PhaseSpread, spreads
from stallprobes.matrix.matrix import Repeat

# Estimated time (s) to start, settle and end the aggressors of a block of a check. A block measures several victims,
# one after the other, beside the same aggressors.
_SWITCH_S = 0.03
# Number of baseline windows (without aggressors) in the estimated cost of an additional window with aggressors. A
# window needs one baseline window before and one after. The number is below 2 because neighboring windows share
# baseline windows.
_BASELINES_PER_WINDOW = 1.3


@dataclass(frozen=True)
class Aim:
    """A ratio that phases should be able to detect.

    A phase that detects ``enough`` contributes nothing, one that detects only ``hopeless`` the whole ``weight``.
    """

    enough: float
    hopeless: float
    weight: float

    def loss(self, ratio: float) -> float:
        """The contribution of a phase that detects ``ratio``."""
        part = math.log(ratio / self.enough) / math.log(self.hopeless / self.enough)
        return self.weight * min(max(part, 0.0), 1.0)


# Aims for the choice of additional repeats in a check, as ratios at p50 that phases (call, wait, ...) detect: 1.5 in
# half of the phases, 3 in nine of ten phases, and a third aim that uses spare time. The values of ``enough`` are lower
# than these ratios because the two checks of a comparison differ. The second weight was measured on a noisy H200
# (bench_detectable.py): a smaller weight missed the second aim, a larger weight the first aim.
AIMS = (Aim(1.48, 1.6, 1.0), Aim(2.6, 8.0, 2.0), Aim(1.48, 20.0, 0.5))


class BlockCosts:
    """Estimated costs of additional blocks: seconds, in virtual time the number of windows."""

    def __init__(self, virtual: bool) -> None:
        self._virtual = virtual
        self._windows_s: dict[tuple[str, str], float] = {}
        self._between_s: dict[str, float] = {}
        self._baselines = 0
        self._baselines_s = 0.0

    def add_block(self, column: str, windows_s: Mapping[str, float], seconds: float) -> None:
        """Add a measured block, with the length of each row's window."""
        for row, length_s in windows_s.items():
            self._windows_s[row, column] = length_s
        rest_s = max(seconds - _SWITCH_S - sum(windows_s.values()), 0.0)
        self._between_s[column] = rest_s / max(len(windows_s), 1)

    def add_baselines(self, windows: int, seconds: float) -> None:
        """Add ``windows`` measured baseline windows that took ``seconds`` together."""
        self._baselines += windows
        self._baselines_s += seconds

    @property
    def switch(self) -> float:
        """Cost of a block besides its windows."""
        return 0.0 if self._virtual else _SWITCH_S

    def window(self, row: str, column: str) -> float:
        """Cost of a window of a cell that was measured, with its baselines."""
        if self._virtual:
            return 1.0
        baseline_s = self._baselines_s / max(self._baselines, 1)
        return self._windows_s[row, column] + self._between_s[column] + _BASELINES_PER_WINDOW * baseline_s


def gain(phases: Iterable[PhaseSpread]) -> float:
    """Reduction of the losses of a cell's phases by one more repeat."""
    reduction = 0.0
    for phase in phases:
        now, then = phase.detectable(phase.repeats), phase.detectable(phase.repeats + 1)
        reduction += sum(aim.loss(now) - aim.loss(then) for aim in AIMS)
    return reduction


@dataclass(frozen=True)
class _Candidate:
    """Cells of a column that are worth their ``cost`` together."""

    keys: tuple[tuple[str, str], ...]
    gain: float
    cost: float

    @property
    def worth(self) -> float:
        return self.gain / self.cost


def chosen_cells(
    cells: Mapping[tuple[str, str], Sequence[Repeat]], costs: BlockCosts, limit: float
) -> list[tuple[str, str]]:
    """The cells (row, column) with the largest gains per cost, up to the cost ``limit``; none without a gain."""
    columns: dict[str, list[_Candidate]] = {}
    for key, phases in spreads(cells).items():
        if (expected := gain(phases)) > 0:
            columns.setdefault(key[1], []).append(_Candidate((key,), expected, costs.window(*key)))
    blocks = {column: _best_block(candidates, costs.switch) for column, candidates in columns.items()}
    # A further victim of a block is worth less than the block: it comes after it.
    further = [cell for column, group in columns.items() for cell in group if cell.keys[0] not in blocks[column].keys]
    chosen: list[tuple[str, str]] = []
    begun: set[str] = set()
    left = limit
    for candidate in sorted([*blocks.values(), *further], key=lambda item: -item.worth):
        column = candidate.keys[0][1]
        is_block = candidate is blocks[column]
        if candidate.cost > left or not (is_block or column in begun):
            continue
        begun.add(column)
        left -= candidate.cost
        chosen += candidate.keys
    return chosen


def _best_block(candidates: Iterable[_Candidate], switch: float) -> _Candidate:
    """The cells of a column that are worth most together with the cost of a block."""
    whole = best = None
    for candidate in sorted(candidates, key=lambda item: -item.worth):
        if whole is None:
            whole = _Candidate(candidate.keys, candidate.gain, candidate.cost + switch)
        else:
            whole = _Candidate((*whole.keys, *candidate.keys), whole.gain + candidate.gain, whole.cost + candidate.cost)
        if best is None or whole.worth > best.worth:
            best = whole
    assert best is not None
    return best
