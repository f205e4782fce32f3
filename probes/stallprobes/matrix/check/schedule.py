"""Schedule of a check: the order of its cells and the lengths of their windows.

A share of the time is for additional repeats. They are measured in rounds, each with the cells that gain most by them
at its start.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from stallprobes.matrix.check.plan import AggressorSet, Plan, VictimProbe, enables_peer_access
from stallprobes.matrix.check.window_measurer import Lengths

# Number of regular repeats of a check of a real GPU. Reason for many short repeats: a machine's latencies vary from
# second to second, but not within a window. On a noisy H200, nine of ten phases detected a change by a factor of 4.0
# with 5 repeats, and of 2.8 with 6 repeats.
REPEATS = 6
# Number of first repeats of a check in which every victim is measured beside all aggressors. Later repeats leave out
# slow aggressors, because windows with slow aggressors take half of the time. Later repeats also stop when the time
# budget is spent.
LEAST_REPEATS = 4
# Number of repeats of a check of a simulated GPU.
VIRTUAL_REPEATS = 4
# Number of repeats of a quick check.
QUICK_REPEATS = 3
# Time budget (s) of a check for each of its columns (sets of aggressors). Reason: an additional column must take no
# time from other columns.
COLUMN_S = 2.25
# Smallest time budget (s) of a check. The documented duration of a check, with start and report, is 70 s.
LEAST_BUDGET_S = 58.5
# Time budget (s) of a quick check. The documented duration of a quick check, with start and report, is 12 s.
QUICK_BUDGET_S = 9.0
# Share of a check's time budget for additional repeats. Only the cells (a victim beside aggressors) whose precision
# improves most get additional repeats.
ADDITIONAL_SHARE = 0.2
# Share of a quick check's time budget for additional repeats. The share is smaller than ADDITIONAL_SHARE because each
# additional repeat costs more time. Reason: in a quick check, fewer victims share the start of the aggressors.
QUICK_ADDITIONAL_SHARE = 0.1
# Number of rounds of additional repeats in a check. In each round, a victim gets at most one repeat beside the same
# aggressors.
ROUNDS = 4

# Limits of the length (s) of a window in a check of a real GPU, before any extension. _SHORTEST_S: smallest length,
# also the length in the first repeat, which only warms up. _LONGEST_S: largest length. The time budget determines the
# length within these limits.
_SHORTEST_S, _LONGEST_S = 0.006, 0.06
# Length (s of virtual time) of a window on a simulated GPU: _VIRTUAL_SHORTEST_S in the first repeat, which only warms
# up, and _VIRTUAL_S in all other repeats.
_VIRTUAL_S, _VIRTUAL_SHORTEST_S = 0.009, 0.001
# Length of a baseline window as a share of the window with aggressors: _BASELINE_PART in real time,
# _VIRTUAL_BASELINE_PART on a simulated GPU. A short baseline window suffices, as each baseline serves the windows
# before and after the baseline.
_BASELINE_PART, _VIRTUAL_BASELINE_PART = 0.5, 0.4
# Number of a victim's calls that a window should have: _CALLS in real time, _VIRTUAL_CALLS on a simulated GPU. A window
# with fewer calls is extended. A check with 8 calls per window detects nearly the same ratios as a check with 20 calls,
# and has the time for another repeat of every cell.
_CALLS, _VIRTUAL_CALLS = 8, 160
# Largest length (s) to which a window with too few calls is extended. _EXTENDED_S: length in real time.
# _VIRTUAL_EXTENDED_S: length on a simulated GPU. Exception in the first measured repeat: a window with fewer than
# STARVED_CALLS calls is extended to STARVED_WINDOW_NS.
_EXTENDED_S, _VIRTUAL_EXTENDED_S = 0.06, 0.1
# Duration (s) of an aggressor's iteration above which the aggressor is slow. Later repeats leave out slow aggressors
# (see LEAST_REPEATS). A check of a simulated GPU leaves out no aggressor.
_SLOW_S = 0.015
# Number of consecutive blocks between two baselines: _BLOCKS_PER_BASELINE in real time, _VIRTUAL_BLOCKS_PER_BASELINE on
# a simulated GPU. A block is the windows of several victims beside the same aggressors. With 2 blocks, baselines take a
# fifth of a real check. A simulated machine needs fewer baselines because the machine does not vary.
_BLOCKS_PER_BASELINE, _VIRTUAL_BLOCKS_PER_BASELINE = 2, 4
# Number of victims of a block in the first repeat, which only warms up: _WARM_UP_VICTIMS in real time,
# _VIRTUAL_WARM_UP_VICTIMS on a simulated GPU. Each block takes the next victims in turn: with few aggressors, some
# victims get no warm-up.
_WARM_UP_VICTIMS, _VIRTUAL_WARM_UP_VICTIMS = 2, 4
# Largest factor by which a window is lengthened to contain a long iteration of an aggressor. _STRETCH: factor in real
# time. _VIRTUAL_STRETCH: factor on a simulated GPU. The length is set before the window begins, by the time of an
# iteration in the aggressor's previous block.
_STRETCH, _VIRTUAL_STRETCH = 10, 2
# Weight of the previous value in the moving average of the time (s) that a block takes in addition to its windows. A
# block is several victims, measured one after the other beside the same aggressors.
_SMOOTHING = 0.7
# Estimated time of an additional repeat of a victim, in multiples of a regular repeat's time. _ADDITIONAL_COST:
# multiple in real time. _VIRTUAL_ADDITIONAL_COST: multiple on a simulated GPU. Reason: fewer victims share the start of
# the aggressors and the baselines. The virtual multiple is larger because the simulation of a start takes longer than
# the simulation of a window.
_ADDITIONAL_COST, _VIRTUAL_ADDITIONAL_COST = 2.0, 6.0


@dataclass(frozen=True)
class Block:
    """One aggressor set with victims, in one repeat. Repeat 0 warms up and is discarded.

    ``additional``: it has only victims that gain by another repeat, and counts in their cells only, not in the cells of
    the host control or of the column quiet.
    """

    repeat: int
    aggressor_set: AggressorSet
    victims: tuple[VictimProbe, ...]
    additional: bool = False


def blocks(plan: Plan, repeats: int, seed: int, virtual: bool = False) -> list[Block]:
    """Blocks of each aggressor set with all victims, for each repeat in an order that ``seed`` determines.

    The blocks of repeat 0 have a few victims each, in turn.
    """
    most = _VIRTUAL_WARM_UP_VICTIMS if virtual else _WARM_UP_VICTIMS
    out = []
    for repeat in range(repeats + 1):
        order = list(plan.aggressor_sets)
        random.Random(f"{seed} order {repeat}").shuffle(order)
        for number, column in enumerate(order):
            few = repeat == 0 and len(plan.victims) > most
            places = [(number * most + place) % len(plan.victims) for place in range(most)]
            out.append(Block(repeat, column, tuple(plan.victims[place] for place in places) if few else plan.victims))
    return out


def additional_blocks(plan: Plan, cells: Collection[tuple[str, str]], repeat: int, seed: int) -> list[Block]:
    """Blocks of the ``cells`` (row, column), one for each aggressor set, in an order that ``seed`` determines."""
    out = []
    for aggressor_set in plan.aggressor_sets:
        victims = tuple(victim for victim in plan.victims if (victim.row.name, aggressor_set.column.name) in cells)
        out += [Block(repeat, aggressor_set, victims, additional=True)] if victims else []
    random.Random(f"{seed} order {repeat}").shuffle(out)
    return out


def victims_of(whole: Iterable[Block]) -> tuple[VictimProbe, ...]:
    """The victims of the blocks, each once."""
    return tuple({victim.row.name: victim for block in whole for victim in block.victims}.values())


def window_count(whole: Iterable[Block]) -> int:
    """Number of windows with an aggressor in the blocks."""
    return sum(len(block.victims) for block in whole)


def with_peer_access(whole: Iterable[Block], enabling: bool) -> list[Block]:
    """The blocks with only the cells whose probes enable peer access or, unless ``enabling``, with the others only.

    The two parts are measured in separate engines, since peer access affects a whole process.
    """

    def belongs(victim: VictimProbe, aggressor_set: AggressorSet) -> bool:
        return any(enables_peer_access(probe) for probe in (victim.probe, *aggressor_set.probes)) is enabling

    parts = (
        replace(block, victims=tuple(victim for victim in block.victims if belongs(victim, block.aggressor_set)))
        for block in whole
    )
    return [block for block in parts if block.victims]


def repeats(plan: Plan, virtual: bool) -> int:
    """Number of regular repeats of ``plan``; fewer in ``virtual`` time, where no machine varies."""
    if plan.quick:
        return QUICK_REPEATS
    return VIRTUAL_REPEATS if virtual else REPEATS


def budget_s(plan: Plan) -> float:
    """The time in s that the windows of a check with ``plan`` may take."""
    return QUICK_BUDGET_S if plan.quick else max(COLUMN_S * len(plan.aggressor_sets), LEAST_BUDGET_S)


class TimeBudget:
    """Lengths of windows and number of additional repeats.

    Both are fixed in virtual time, else chosen so that the check meets its time budget.
    """

    def __init__(self, plan: Plan, virtual: bool) -> None:
        """The time budget starts now."""
        self._virtual = virtual
        self._budget_s = budget_s(plan)
        self._share = QUICK_ADDITIONAL_SHARE if plan.quick else ADDITIONAL_SHARE
        self._aggressor_sets = len(plan.aggressor_sets)
        self._began = time.monotonic()
        self._overhead_s = 0.1
        self._part_began_s = 0.0
        self._part_ends_s = self._budget_s
        self._regular_ends_s = (1 - self._share) * self._budget_s
        # Windows with an aggressor: their number and the sum of their lengths.
        self._regular_windows, self._lengths_s = 0, 0.0

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def begin_part(self, windows: int, windows_left: int) -> None:
        """Begin a part with ``windows`` of the ``windows_left`` windows: it gets that share of the remaining time."""
        began_s = self.spent_s
        part_s = max(self._budget_s - began_s, 0.0) * windows / max(windows_left, 1)
        self._part_began_s, self._part_ends_s = began_s, began_s + part_s
        self._regular_ends_s = began_s + (1 - self._share) * part_s

    def begin_additional(self) -> None:
        """End the regular repeats of the part: the rest of its time is for additional ones, at most their share."""
        spent_s = self.spent_s
        most_s = (spent_s - self._part_began_s) * self._share / (1 - self._share)
        self._part_ends_s = min(self._part_ends_s, spent_s + most_s)

    @property
    def additional_time_spent(self) -> bool:
        """True if no time is left for additional repeats; never in virtual time."""
        return not self._virtual and self.spent_s >= self._part_ends_s

    def expected_additional(self, windows: int, number: int) -> int:
        """Expected number of cells in round ``number`` of additional repeats, with ``windows`` windows in the regular
        ones."""
        cost = _VIRTUAL_ADDITIONAL_COST if self._virtual else _ADDITIONAL_COST
        total = round(windows * self._share / (1 - self._share) / cost)
        return total // ROUNDS + (number < total % ROUNDS)

    def additional(self, windows: int, number: int) -> float:
        """Limit of the costs of round ``number``, from 0 on, of additional repeats: seconds, in virtual time cells."""
        if self._virtual:
            return self.expected_additional(windows, number)
        return max(self._part_ends_s - self.spent_s, 0.0) / (ROUNDS - number) if self._regular_windows else 0.0

    def lengths(self, left: Sequence[Block]) -> Lengths:
        """Lengths of the windows of the first block of ``left``."""
        block = left[0]
        extended_s = _VIRTUAL_EXTENDED_S if self._virtual else _EXTENDED_S
        if self._virtual:
            window_s, shortest_s, stretch, part = (
                _VIRTUAL_S,
                _VIRTUAL_SHORTEST_S,
                _VIRTUAL_STRETCH,
                _VIRTUAL_BASELINE_PART,
            )
        else:
            shortest_s, stretch, part = _SHORTEST_S, _STRETCH, _BASELINE_PART
            if block.additional:
                # As long as the regular ones on average, so that the repeats of a cell are alike.
                window_s = self._lengths_s / max(self._regular_windows, 1)
            else:
                each = (self._regular_ends_s - self.spent_s) / len(left) - self._overhead_s
                window_s = each / (len(block.victims) * (1 + _BASELINE_PART))
            window_s = min(max(window_s, _SHORTEST_S), _LONGEST_S)
        if block.repeat == 0:
            return Lengths(shortest_s, shortest_s * part, shortest_s, extended_s, 0, False)
        calls = _VIRTUAL_CALLS if self._virtual else _CALLS
        return Lengths(window_s, window_s * part, window_s * stretch, extended_s, calls, block.repeat == 1)

    @property
    def blocks_per_baseline(self) -> int:
        """Number of consecutive blocks that share the baselines before and after them."""
        return _VIRTUAL_BLOCKS_PER_BASELINE if self._virtual else _BLOCKS_PER_BASELINE

    def may_end(self, block: Block) -> bool:
        """True if ``block`` belongs to a repeat that may be incomplete: a regular one after the first LEAST_REPEATS."""
        return not self._virtual and LEAST_REPEATS < block.repeat <= REPEATS

    def is_late(self, block: Block) -> bool:
        """True if ``block`` belongs to a repeat that may be incomplete, and the time of the regular ones is spent."""
        return self.may_end(block) and self.spent_s >= self._regular_ends_s

    def is_slow(self, iteration_s: float) -> bool:
        """True if aggressors whose iterations take ``iteration_s`` seconds are slow; never in virtual time."""
        return not self._virtual and iteration_s > _SLOW_S

    def add_block(self, block: Block, lengths: Lengths, seconds: float) -> None:
        """Update the estimates with a block that took ``seconds``."""
        if block.additional:
            return
        if block.repeat:
            self._regular_windows += len(block.victims)
            self._lengths_s += len(block.victims) * lengths.window_s
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
