"""In what order a check measures its cells, and for how long each."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stallprobes.matrix.cell_runner import Lengths
from stallprobes.matrix.plan import AggressorSet, Plan, VictimProbe, enables_peer_access

REPEATS = 4
QUICK_REPEATS = 3
# What a check may take, of the 90 s and 15 s that are promised; starting and drawing take the rest.
BUDGET_S = 74.0
QUICK_BUDGET_S = 8.5

_SHORTEST_S, _LONGEST_S = 0.006, 0.06
# A simulated GPU's windows, in virtual time.
_VIRTUAL_S, _VIRTUAL_SHORTEST_S = 0.009, 0.001
# A window of quiet is this part of one beside the aggressor; it counts twice, before and after.
_QUIET_PART, _VIRTUAL_QUIET_PART = 0.5, 0.2
# A window is made longer for so many calls, as far as they can be had in a tenth of a second.
_CALLS, _VIRTUAL_CALLS = 20, 160
# The aggressor's turn may make a window so many times the usual length.
_STRETCH, _VIRTUAL_STRETCH = 10, 2
# How much of what a block took beside its windows is taken over from one block to the next.
_KEPT = 0.7


@dataclass(frozen=True)
class Block:
    """One disturbance with some victims, in one repeat (0 is the one that is thrown away)."""

    repeat: int
    aggressor_set: AggressorSet
    victims: tuple[VictimProbe, ...]


def blocks(plan: Plan, repeats: int, seed: int) -> list[Block]:
    """Every disturbance with all victims, in each repeat in another order, which ``seed`` makes."""
    found = []
    for repeat in range(repeats + 1):
        order = list(plan.aggressor_sets)
        random.Random(f"{seed} order {repeat}").shuffle(order)
        found += [Block(repeat, one, plan.victims) for one in order]
    return found


def with_peer_access(whole: Iterable[Block], enabling: bool) -> list[Block]:
    """The part of the blocks whose cells need peer access on or, unless ``enabling``, may have it off."""

    def belongs(victim: VictimProbe, one: AggressorSet) -> bool:
        return any(enables_peer_access(probe) for probe in (victim.probe, *one.probes)) is enabling

    parts = (
        replace(block, victims=tuple(victim for victim in block.victims if belongs(victim, block.aggressor_set)))
        for block in whole
    )
    return [block for block in parts if block.victims]


class Pace:
    """How long windows are: always the same in virtual time, else such that the check ends in time."""

    def __init__(self, plan: Plan, virtual: bool) -> None:
        """The time runs from now on."""
        self._virtual = virtual
        self._budget_s = QUICK_BUDGET_S if plan.quick else BUDGET_S
        self._aggressor_sets = len(plan.aggressor_sets)
        self._began = time.monotonic()
        self._overhead_s = 0.1

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def lengths(self, left: Sequence[Block]) -> Lengths:
        """How long the windows of the first block of ``left`` are."""
        block = left[0]
        if self._virtual:
            window_s, shortest_s, stretch, part = _VIRTUAL_S, _VIRTUAL_SHORTEST_S, _VIRTUAL_STRETCH, _VIRTUAL_QUIET_PART
        else:
            shortest_s, stretch, part = _SHORTEST_S, _STRETCH, _QUIET_PART
            each = (self._budget_s - self.spent_s) / len(left) - self._overhead_s
            window_s = min(max(each / (len(block.victims) * (1 + _QUIET_PART)), _SHORTEST_S), _LONGEST_S)
        if block.repeat == 0:
            return Lengths(shortest_s, shortest_s * part, shortest_s, 0, False)
        calls = _VIRTUAL_CALLS if self._virtual else _CALLS
        return Lengths(window_s, window_s * part, window_s * stretch, calls, block.repeat == 1)

    def took(self, block: Block, lengths: Lengths, seconds: float) -> None:
        """Learn from a block that took ``seconds``."""
        windows = len(block.victims) * lengths.window_s * (1 + _QUIET_PART)
        self._overhead_s = _KEPT * self._overhead_s + (1 - _KEPT) * max(seconds - windows, 0.0)

    def left_s(self, done: int, total: int, repeats: int) -> float | None:
        """Seconds left: by the pace so far or, while there is none yet, by what the check may take at most."""
        part = done / max(total, 1)
        if part >= 1 / (repeats + 1):
            return self.spent_s * (1 - part) / part
        if self._virtual:
            return None
        longest_s = total * _LONGEST_S * (1 + _QUIET_PART) + self._aggressor_sets
        return max(min(self._budget_s, longest_s) - self.spent_s, 0.0)
