"""Spread of a program's figures between its runs, and the change that is more than that."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple, Self

from stallprobes.matrix.comparing.comparison import Change
from stallprobes.matrix.comparing.sensitivity import student_t_limit

# Smallest number of runs of each side from which their spread is measured.
LEAST_RUNS = 3
# Spread of a run (of the logarithm, about 25 %) that is assumed with fewer runs. Two runs differ by less than the
# square root of two times this, ×1.42, if both are within ×0.85 to ×1.2, as processes of one program are (measured,
# H200).
ASSUMED_SPREAD = 0.25
# Standard deviation of the logarithm of a run's figure before any run is known: that of an even spread from 0.85 to
# 1.2. It counts as much as one further run, so that three runs that are alike by chance decide nothing.
_PRIOR_DEVIATION = 0.1
# Largest probability that runs of an unchanged program count as changed, if their figures are normally distributed.
# Simulated with three to five runs of each side: 0 to 0.3 % of pairs with an even spread from ×0.85 to ×1.2.
_FALSE_ALARMS = 0.002
# Smallest change (of the logarithm) that is ever reported: a step is known to 4 %.
_LEAST_CHANGE = math.log(1.05)
# Part of the smallest change that is reported from which on a change is unsure. One of ten pairs of runs of an
# unchanged program differs by more, if their figures are normally distributed.
_UNSURE = 0.66


class Spread(NamedTuple):
    """How much the runs of two sides vary without a change.

    ``limit`` is the smallest logarithm of a ratio that counts as a change, ``interval`` half of the 95 % interval of
    that logarithm; ``measured``: by the runs themselves.
    """

    limit: float
    interval: float
    measured: bool

    @classmethod
    def of(cls, old: Sequence[float], new: Sequence[float]) -> Self:
        """That of the figures of the runs of each side, at least one of each."""
        logs = [[math.log(value) for value in side] for side in (old, new)]
        freedom = len(old) + len(new) - 2
        squares = sum(sum((value - statistics.fmean(side)) ** 2 for value in side) for side in logs)
        error = math.sqrt(1 / len(old) + 1 / len(new))
        if min(len(old), len(new)) >= LEAST_RUNS:
            deviation = math.sqrt((_PRIOR_DEVIATION**2 + squares) / (freedom + 1))
            limit, interval = (deviation * error * student_t_limit(p, freedom + 1) for p in (_FALSE_ALARMS, 0.05))
            return cls(max(limit, _LEAST_CHANGE), interval, True)
        # Not less with two runs: a program can have two speeds, of which each process gets one.
        limit = math.sqrt(2) * ASSUMED_SPREAD
        if freedom:
            limit = max(limit, math.sqrt(squares / freedom) / _PRIOR_DEVIATION * limit)
        return cls(limit, limit * 0.8, False)

    def change(self, log_ratio: float, *, less: float | None = None) -> Change:
        """The change of a time by ``log_ratio``, of which ``less`` is left without what is not the program's."""
        left = log_ratio if less is None else less
        if min(abs(log_ratio), abs(left)) >= self.limit and log_ratio * left > 0:
            return Change.WORSE if log_ratio > 0 else Change.BETTER
        return Change.UNSURE if abs(log_ratio) >= _UNSURE * self.limit else Change.SAME
