"""Matching of the kernels of two processes that are the same collective, by their ends.

CUPTI converts the times of each GPU to CLOCK_MONOTONIC, with an error that differs between GPUs. No record says which
kernel of one process belongs to which kernel of the other. But no rank leaves a collective before the last rank has
arrived: whenever its kernels began, they end at nearly the same time. A distance between ends that recurs is therefore
the error of the clocks, and shows which kernels belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stallprobes.watch.division.instants import Flags
from stallprobes.watch.intervals import NONE, Int64s, expanded, int64s

# Largest distance (ns) between the ends of one collective in the records of two processes. The distance contains the
# error of the processes' clocks.
CLOCK_ERROR_NS = 1_000_000
# Tolerance (ns) for two ranks' kernels of one collective, after the clock offset is subtracted. The kernels' ends may
# differ by this value (long kernels: _DISTANCE_SHARE), and a kernel may end by this value before the other begins. The
# clock offsets by two pairs of kernels may differ by twice this value.
_CLUSTER_NS = 50_000
# Largest distance between the ends of two ranks' long kernels, less the clock offset, as a share of the shorter kernel.
# The limit is at least _CLUSTER_NS.
_DISTANCE_SHARE = 0.1
# Smallest delay at which a rank counts as late for a collective, as a multiple of the spread of matched kernels' ends.
# The spread is a percentile of the ends' distances (_SPREAD_PERCENTILE). The delay must also exceed _LEAST_LATE_NS.
_LATE_FACTOR = 3
# Smallest delay (ns) at which a rank counts as late for a collective. The delay must also exceed the limit by
# _LATE_FACTOR.
_LEAST_LATE_NS = 5_000
# Largest number of candidate pairs of kernels of two ranks that are compared. With more pairs, no clock offset stands
# out, and the ranks are not matched.
_MOST_PAIRS = 1 << 19
# The best clock offset leaves n kernels without a partner. The second best clock offset must leave at least
# _RIVAL_MARGIN + _RIVAL_FACTOR * n kernels without a partner. Otherwise, the second best offset is nearly as good, and
# the match is ambiguous.
_RIVAL_MARGIN = 3
# Factor of n in the smallest number of kernels without a partner (see _RIVAL_MARGIN).
_RIVAL_FACTOR = 3
# Percentile of the distances between the ends of matched kernels, corrected by the clock offset, that is used as their
# spread.
_SPREAD_PERCENTILE = 95


@dataclass(frozen=True, eq=False)
class Kernels:
    """Kernels that communicate, in the order of their ends: int64[n] each, times in ns.

    ``names`` are numbers of their names, ``operations`` of what they do. ``eligible``: a partner of the other process
    would have been recorded.
    """

    starts: Int64s
    ends: Int64s
    names: Int64s
    operations: Int64s
    eligible: Flags


class Match(NamedTuple):
    """Which kernels of two processes are one collective: ``pairs`` of places, in their order.

    The second one's ends are ``offset_ns`` later, give or take less than ``tolerance_ns``, by which no rank is called
    late. ``matched`` of the ``eligible`` kernels of the process with fewer of them have a partner. ``ambiguous``: with
    another offset nearly as many have.
    """

    first: Int64s
    second: Int64s
    offset_ns: int
    tolerance_ns: int
    matched: int
    eligible: int
    ambiguous: bool

    @property
    def share(self) -> float:
        """The share (0 to 1) of the kernels that have a partner."""
        return self.matched / self.eligible if self.eligible else 0.0


def match(first: Kernels, second: Kernels, near_ns: int | None = None) -> Match | None:
    """Match of the kernels of two processes that are one collective; None without evidence of any.

    With ``near_ns``, an offset that was known before, no other offset is searched.
    """
    mine, others = _candidates(first, second)
    apart = second.ends[others] - first.ends[mine]
    if near_ns is not None:
        kept = np.abs(apart - near_ns) <= 2 * _CLUSTER_NS
        mine, others, apart = mine[kept], others[kept], apart[kept]
    if not len(mine):
        return None
    offset = _offset(apart)
    pairs = _pairs(first, second, mine, others, apart, offset)
    if not len(pairs[0]):
        return None
    # The process with fewer kernels counts: the other one may also communicate with others.
    fewer = int(int(second.eligible.sum()) < int(first.eligible.sum()))
    counted = (first, second)[fewer].eligible
    eligible, matched = int(counted.sum()), int(counted[pairs[fewer]].sum())
    left = np.abs(apart - offset) > 2 * _CLUSTER_NS
    ambiguous = False
    if left.any():
        other = _pairs(first, second, mine[left], others[left], apart[left], _offset(apart[left]))
        without, otherwise = eligible - matched, eligible - int(counted[other[fewer]].sum())
        ambiguous = otherwise < _RIVAL_MARGIN + _RIVAL_FACTOR * without
    differences = second.ends[pairs[1]] - first.ends[pairs[0]]
    offset = int(np.median(differences))
    spread = float(np.percentile(np.abs(differences - offset), _SPREAD_PERCENTILE))
    tolerance = max(round(_LATE_FACTOR * spread), _LEAST_LATE_NS)
    return Match(*pairs, offset, tolerance, matched, eligible, ambiguous)


def _candidates(first: Kernels, second: Kernels) -> tuple[Int64s, Int64s]:
    """The pairs of kernels of one kind that end within the error of the clocks: places of each."""
    low = np.searchsorted(second.ends, first.ends - CLOCK_ERROR_NS, "left")
    high = np.searchsorted(second.ends, first.ends + CLOCK_ERROR_NS, "right")
    if int((high - low).sum()) > _MOST_PAIRS:
        return NONE, NONE
    mine, others = expanded(int64s(low), int64s(high))
    same = first.operations[mine] == second.operations[others]
    # Ranks of one program run the same kernels, so that an all-reduce of halves is none of floats just behind it. Where
    # a kernel has no other one of its name, as on GPUs of different kinds, what it does must do.
    unknown = ~np.isin(first.names, second.names)[mine] | ~np.isin(second.names, first.names)[others]
    same &= unknown | (first.names[mine] == second.names[others])
    return mine[same], others[same]


def _offset(apart: Int64s) -> int:
    """Distance of ends with most others near it."""
    ordered = np.sort(apart)
    counts = np.searchsorted(ordered, ordered + 2 * _CLUSTER_NS, "right") - np.arange(len(ordered))
    best = int(np.argmax(counts))
    return int(np.median(ordered[best : best + int(counts[best])]))


def _pairs(
    first: Kernels, second: Kernels, mine: Int64s, others: Int64s, apart: Int64s, offset: int
) -> tuple[Int64s, Int64s]:
    """Pairs of kernels that are each other's nearest ones."""
    distance = np.abs(apart - offset)
    shorter = np.minimum(first.ends[mine] - first.starts[mine], second.ends[others] - second.starts[others])
    near = distance <= np.maximum(_CLUSTER_NS, _DISTANCE_SHARE * shorter)
    # No rank leaves before the last one has come.
    near &= first.ends[mine] + offset + _CLUSTER_NS >= second.starts[others]
    near &= second.ends[others] + _CLUSTER_NS >= first.starts[mine] + offset
    mine, others, distance = mine[near], others[near], distance[near]
    nearest = _nearest(mine, distance) & _nearest(others, distance)
    return mine[nearest], others[nearest]


def _nearest(kernels: Int64s, distance: Int64s) -> Flags:
    """Flags of the pairs with the least distance among those of their kernel."""
    nearest = np.zeros(len(kernels), dtype=np.bool_)
    order = np.lexsort((distance, kernels))
    if len(order):
        nearest[order[np.append(True, kernels[order][1:] != kernels[order][:-1])]] = True
    return nearest
