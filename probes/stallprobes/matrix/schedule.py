"""Schedule of a check: the order of its cells and the lengths of their windows."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stallprobes.matrix.cell_runner import Lengths
from stallprobes.matrix.plan import AggressorSet, Plan, VictimProbe, enables_peer_access

REPEATS = 4
QUICK_REPEATS = 3
# Time budget of the measurement. A check is documented to take 90 s, a quick one 15 s, with start and report.
BUDGET_S = 74.0
QUICK_BUDGET_S = 8.5

_SHORTEST_S, _LONGEST_S = 0.006, 0.06
# A simulated GPU's windows, in virtual time.
_VIRTUAL_S, _VIRTUAL_SHORTEST_S = 0.009, 0.001
# Length of a baseline window over that of a window with the aggressor. It serves twice, as the one before and after.
_BASELINE_PART, _VIRTUAL_BASELINE_PART = 0.5, 0.2
# A window is extended to contain so many calls, up to a tenth of a second.
_CALLS, _VIRTUAL_CALLS = 20, 160
# A slow iteration of the aggressor may extend a window to so many times its usual length.
_STRETCH, _VIRTUAL_STRETCH = 10, 2
# Weight of the previous estimate in the moving average of a block's overhead.
_SMOOTHING = 0.7


@dataclass(frozen=True)
class Block:
    """One aggressor set with victims, in one repeat. Repeat 0 warms up and is discarded."""

    repeat: int
    aggressor_set: AggressorSet
    victims: tuple[VictimProbe, ...]


def blocks(plan: Plan, repeats: int, seed: int) -> list[Block]:
    """Blocks of each aggressor set with all victims, for each repeat in an order that ``seed`` determines."""
    found = []
    for repeat in range(repeats + 1):
        order = list(plan.aggressor_sets)
        random.Random(f"{seed} order {repeat}").shuffle(order)
        found += [Block(repeat, one, plan.victims) for one in order]
    return found


def with_peer_access(whole: Iterable[Block], enabling: bool) -> list[Block]:
    """The blocks with only the cells whose probes enable peer access or, unless ``enabling``, with the others only.

    The two parts are measured in separate engines, since peer access affects a whole process.
    """

    def belongs(victim: VictimProbe, one: AggressorSet) -> bool:
        return any(enables_peer_access(probe) for probe in (victim.probe, *one.probes)) is enabling

    parts = (
        replace(block, victims=tuple(victim for victim in block.victims if belongs(victim, block.aggressor_set)))
        for block in whole
    )
    return [block for block in parts if block.victims]


class Pace:
    """Lengths of windows: fixed in virtual time, else chosen so that the check meets its time budget."""

    def __init__(self, plan: Plan, virtual: bool) -> None:
        """The time budget starts now."""
        self._virtual = virtual
        self._budget_s = QUICK_BUDGET_S if plan.quick else BUDGET_S
        self._aggressor_sets = len(plan.aggressor_sets)
        self._began = time.monotonic()
        self._overhead_s = 0.1

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def lengths(self, left: Sequence[Block]) -> Lengths:
        """Lengths of the windows of the first block of ``left``."""
        block = left[0]
        if self._virtual:
            window_s, shortest_s, stretch, part = (
                _VIRTUAL_S,
                _VIRTUAL_SHORTEST_S,
                _VIRTUAL_STRETCH,
                _VIRTUAL_BASELINE_PART,
            )
        else:
            shortest_s, stretch, part = _SHORTEST_S, _STRETCH, _BASELINE_PART
            each = (self._budget_s - self.spent_s) / len(left) - self._overhead_s
            window_s = min(max(each / (len(block.victims) * (1 + _BASELINE_PART)), _SHORTEST_S), _LONGEST_S)
        if block.repeat == 0:
            return Lengths(shortest_s, shortest_s * part, shortest_s, 0, False)
        calls = _VIRTUAL_CALLS if self._virtual else _CALLS
        return Lengths(window_s, window_s * part, window_s * stretch, calls, block.repeat == 1)

    def add_block(self, block: Block, lengths: Lengths, seconds: float) -> None:
        """Update the estimated overhead with a block that took ``seconds``."""
        windows = len(block.victims) * lengths.window_s * (1 + _BASELINE_PART)
        self._overhead_s = _SMOOTHING * self._overhead_s + (1 - _SMOOTHING) * max(seconds - windows, 0.0)

    def left_s(self, done: int, total: int, repeats: int) -> float | None:
        """Estimated remaining seconds: extrapolated after the first repeat, before that from the time budget.

        None for a simulated GPU before the first repeat is done.
        """
        part = done / max(total, 1)
        if part >= 1 / (repeats + 1):
            return self.spent_s * (1 - part) / part
        if self._virtual:
            return None
        longest_s = total * _LONGEST_S * (1 + _BASELINE_PART) + self._aggressor_sets
        return max(min(self._budget_s, longest_s) - self.spent_s, 0.0)
