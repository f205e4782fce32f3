"""Phases of a sequence: times in which its time is divided in one way, and then in another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.watch.division.binned_sums import BinnedSums, Times
from stallprobes.watch.division.gains import steady_ns
from stallprobes.watch.division.instants import WAITING
from stallprobes.watch.division.parts import NUMBERS, ORDER, Bound, Part
from stallprobes.watch.division.result import PhaseDivision, SequenceDivision, StepGrowth
from stallprobes.watch.intervals import Int64s

_Floats = NDArray[np.float64]
# Numbers of something from each of some times (ns) to before the next one.
Counts = Callable[[Int64s], Int64s]
# Smallest number of a program's steps in a bin of time. Bins with fewer steps are merged, since host and GPU may work
# by turns within a step. The mean step of a phase is computed only from _LEAST_STEPS * _LEAST_BINS steps on.
_LEAST_STEPS = 8
# Largest number of phases of a sequence that are reported. If there are more phases, no phase is reported.
_MOST_PHASES = 6
# Smallest number of bins in a phase. Phases, and growth of the steps, are searched only in at least twice this number
# of bins. Growth is the change from the mean step in the first _LEAST_BINS bins to the mean step in the last
# _LEAST_BINS bins.
_LEAST_BINS = 5
# Largest number of bins that are compared for the search for phases. With more bins, neighbouring bins are merged.
# Reason: the search takes time proportional to the square of the number of bins.
_MOST_BINS = 512
# Smallest difference between two phases in the share of a part of the time.
_LEAST_SHARE = 0.15
# Smallest factor between the times of a step in two phases. Also the smallest factor by which the steps must become
# longer or shorter during a time to count as growing or shrinking.
_LEAST_FACTOR = 1.3
# Smallest difference between two phases, in standard errors. Also the smallest growth of the steps, as a multiple of
# the scatter (standard deviation) of the logarithmic step times about a straight line.
_DEVIATIONS = 4.0
# Smallest standard error of the mean of a share. Reason: the clocks of records and calls have errors.
_LEAST_ERROR = 0.01
# Smallest reduction of the sum of squared differences (between each bin and the mean of its segment) at which bins get
# a further segment. Two segments of _LEAST_BINS bins reach this value if the segments differ by _LEAST_SHARE in the
# shares of two parts of the time.
_LEAST_GAIN = _LEAST_BINS / 2 * 2 * _LEAST_SHARE**2
# Factor of a second limit for a further segment. The second limit is _PENALTY, times the variance between neighbouring
# bins, times the binary logarithm of the number of bins. The larger of _LEAST_GAIN and the second limit holds.
_PENALTY = 3.0
# Median of the squared difference between two values of the same normal distribution, divided by the variance of the
# values. The median of squared differences between neighbouring bins, divided by this number, is the variance of the
# bins.
_MEDIAN_SQUARE = 0.91
# Largest ratio of two sums of squares at which the values of the bins count as growing steadily, without phases. The
# ratio is the sum of squared distances from a straight line, divided by the sum of squared distances from the means of
# the segments.
_MOST_OF_LINE = 1.5
# Columns of the sums by which bins are compared, as shares of the bin's time. The columns are each part of the time
# (except the end), and the time in which the host waits for the GPU.
_PARTS = [*(NUMBERS[part] for part in ORDER if part is not Part.END), WAITING]
# Position of a further value after _PARTS: the time of a step.
_STEP = len(_PARTS)


class _BinSegment(NamedTuple):
    """Bins from ``first`` to before ``end``: the mean of each value, and its squared standard error."""

    first: int
    end: int
    means: _Floats
    errors: _Floats


def phases_of(sums: BinnedSums, times: Times, counts: Counts, regular: bool) -> tuple[Times, ...]:
    """The times of each phase of a sequence in ``times``, the phase that begins first first; empty without two phases.

    ``sums`` are its parts (COLUMNS). ``counts`` has the number of its steps from each border (ns) to before the next,
    or of its waits if its steps are not ``regular``.
    """
    begins, rows = _merged(sums.begins(times), sums.during(times), counts)
    if len(rows) < 2 * _LEAST_BINS:
        return ()
    borders, whole = np.append(begins, min(times[-1][1], int(begins[-1]) + sums.width_ns)), steady_ns(rows)
    values = np.zeros((len(rows), _STEP + 1))
    values[:, :_STEP] = rows[:, _PARTS] / whole[:, None]
    if regular:
        counted = counts(borders)
        step = np.log(np.diff(borders) / np.maximum(counted, 0.5))
        # Steps are counted from somewhere in a bin on, and the last bin may end early.
        known = min(int(np.argmax(counted > 0)) + 1, len(step) - 1)
        step[:known], step[-1] = step[known], step[-2]
        values[:, _STEP] = step * _LEAST_SHARE / np.log(_LEAST_FACTOR)
    labels, spans = labels_of(values, whole / whole.mean()), list(pairwise(borders.tolist()))
    return tuple(
        _united([spans[at] for at in np.flatnonzero(labels == label).tolist()], ())
        for label in range(int(labels.max()) + 1 if labels.any() else 0)
    )


def growth_of(steps: BinnedSums, times: Times) -> StepGrowth | None:
    """How the time of a step grew or shrank evenly in ``times``; None if it did not.

    ``steps`` has the begins of steps.
    """
    # Only a part of the first and the last bin may be known.
    counted = np.trim_zeros(steps.during(times)[:, 0])[1:-1]
    width = -int(-_LEAST_STEPS // max(float(np.median(counted)), 1.0)) if len(counted) else 1
    sums = counted[: len(counted) // width * width].reshape(-1, width).sum(axis=1)
    if len(sums) < 2 * _LEAST_BINS or not sums.all():
        return None
    lengths, at = np.log(width * steps.width_ns / sums), np.arange(len(sums))
    slope, first = np.polyfit(at, lengths, 1)
    change, left = slope * (len(sums) - 1), float(np.std(lengths - first - slope * at))
    if abs(change) < max(np.log(_LEAST_FACTOR), _DEVIATIONS * left):
        return None
    first_ns, last_ns = (
        _LEAST_BINS * width * steps.width_ns // int(part.sum()) for part in (sums[:_LEAST_BINS], sums[-_LEAST_BINS:])
    )
    return StepGrowth(first_ns, last_ns)


def divided_phases(
    phases: Sequence[Times],
    divide: Callable[[Times], SequenceDivision],
    steps: BinnedSums | None,
    ended: bool,
    began_ns: int,
) -> tuple[tuple[PhaseDivision, ...], Times] | None:
    """The phases by their divisions, the last one first, or the longest one if the process has ``ended``, with times
    (ns) since the process began, and the times of the first one; None if the verdict on one is not known, or all are
    alike in verdict and time of a step.

    ``divide`` is the division of some times, ``steps`` has the begins of steps, None without regular ones. The process
    began at ``began_ns``.
    """
    if not 1 < len(phases) <= _MOST_PHASES:
        return None
    kept: list[PhaseDivision] = []
    for times in phases:
        found = _phase(times, divide(times), steps)
        same = next((each for each in kept if _alike(each, found)), None)
        if same is not None:
            kept.remove(same)
            times = _united(same.times, times)
            found = _phase(times, divide(times), steps)
        kept.append(found)
    if len(kept) < 2 or any(phase.verdict is Bound.UNKNOWN for phase in kept):
        return None
    first = max(kept, key=lambda phase: (phase.ns if ended else phase.times[-1][1], phase.times))
    others = sorted((phase for phase in kept if phase is not first), key=lambda phase: phase.times)
    described = (
        phase.changed(times=tuple((begin - began_ns, end - began_ns) for begin, end in phase.times))
        for phase in (first, *others)
    )
    return tuple(described), first.times


def _phase(times: Times, found: SequenceDivision, steps: BinnedSums | None) -> PhaseDivision:
    begins = 0 if steps is None else int(steps.during(times).sum())
    return PhaseDivision(
        times=tuple(times),
        verdict=found.verdict,
        second=found.second,
        host=found.host,
        gpu=found.gpu,
        price=found.price,
        step_ns=sum(end - begin for begin, end in times) // begins if begins >= _LEAST_STEPS * _LEAST_BINS else None,
    )


def _alike(one: PhaseDivision, other: PhaseDivision) -> bool:
    """True if two phases have the same verdict, and steps of about one length as far as that is known."""
    steps = sorted(phase.step_ns for phase in (one, other) if phase.step_ns is not None)
    return one.verdict is other.verdict and (len(steps) < 2 or steps[1] < _LEAST_FACTOR * steps[0])


def _united(one: Times, other: Times) -> Times:
    """The times of both, where one that begins at the end of another is a part of it."""
    united: list[tuple[int, int]] = []
    for begin, end in sorted((*one, *other)):
        united.append((united.pop()[0] if united and united[-1][1] == begin else begin, end))
    return united


def labels_of(values: _Floats, weights: _Floats) -> Int64s:
    """The phase of each bin, from 0 on in the order of their begins, by the ``values`` (float64[bins][values]) and
    ``weights`` of the bins; 0 alone without phases."""
    segments = _joined(_segments(values, weights), values, weights)
    labels = np.zeros(len(values), dtype=np.int64)
    if len(segments) < 2 or _grows(segments, values, weights):
        return labels
    phases: list[list[_BinSegment]] = []
    for segment in segments:
        same = next((number for number, each in enumerate(phases) if not _differ(each[0], segment)), len(phases))
        if same == len(phases):
            phases.append([])
        phases[same].append(segment)
        labels[segment.first : segment.end] = same
    return labels


def _merged(begins: Int64s, rows: Int64s, counts: Counts) -> tuple[Int64s, Int64s]:
    """Bins that are merged until they have enough steps, and are not too many; those without a known time belong to the
    one before."""
    known = steady_ns(rows) > 0
    begins, rows = begins[known], rows[known]
    if len(rows) < 2 * _LEAST_BINS:
        return begins, rows
    counted = counts(np.append(begins, 2 * begins[-1] - begins[-2]))
    some = counted[counted > 0]
    # A phase may have no steps.
    enough = not len(some) or np.median(some) >= _LEAST_STEPS
    groups = np.arange(len(rows)) if enough else np.unique(np.cumsum(counted) // _LEAST_STEPS, return_inverse=True)[1]
    first = np.flatnonzero(np.append(True, np.diff(groups // -(-(int(groups[-1]) + 1) // _MOST_BINS)) > 0))
    return begins[first], np.add.reduceat(rows, first)


def _segments(values: _Floats, weights: _Floats) -> list[_BinSegment]:
    """Segments of at least _LEAST_BINS bins, by the least sum of squared differences from their means (dynamic
    programming, as in segmented least squares)."""
    count = len(values)
    squares = np.square(np.diff(values, axis=0))
    variance = float(np.median(squares, axis=0).sum()) / _MEDIAN_SQUARE
    penalty = max(_LEAST_GAIN, _PENALTY * variance * float(np.log2(count)))
    mass = np.append(0.0, np.cumsum(weights))
    sums = np.vstack((np.zeros(values.shape[1]), np.cumsum(weights[:, None] * values, axis=0)))
    whole = np.append(0.0, np.cumsum(weights * np.square(values).sum(axis=1)))
    best, before = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=np.int64)
    best[0] = -penalty
    for end in range(_LEAST_BINS, count + 1):
        first = np.arange(end - _LEAST_BINS + 1)
        inside = np.square(sums[end] - sums[first]).sum(axis=1) / (mass[end] - mass[first])
        costs = best[first] + penalty + whole[end] - whole[first] - inside
        before[end] = np.argmin(costs)
        best[end] = costs[before[end]]
    borders = [count]
    while borders[-1]:
        borders.append(int(before[borders[-1]]))
    return [_segment(first, end, values, weights) for end, first in pairwise(borders)][::-1]


def _segment(first: int, end: int, values: _Floats, weights: _Floats) -> _BinSegment:
    chosen, mass = values[first:end], weights[first:end, None]
    means = (mass * chosen).sum(axis=0) / mass.sum()
    spread = np.square(mass * (chosen - means)).sum(axis=0) / mass.sum() ** 2
    return _BinSegment(first, end, means, spread * (end - first) / max(end - first - 1, 1))


def _joined(segments: list[_BinSegment], values: _Floats, weights: _Floats) -> list[_BinSegment]:
    """Segments of which neighbours differ: those that differ least are joined first."""
    while True:
        alike = [
            (float(np.abs(one.means - other.means).max()), at)
            for at, (one, other) in enumerate(pairwise(segments))
            if not _differ(one, other)
        ]
        if not alike:
            return segments
        at = min(alike)[1]
        united = _segment(segments[at].first, segments[at + 1].end, values, weights)
        segments = [*segments[:at], united, *segments[at + 2 :]]


def _differ(one: _BinSegment, other: _BinSegment) -> bool:
    distance = np.abs(one.means - other.means)
    errors = np.sqrt(np.maximum(one.errors, _LEAST_ERROR**2) + np.maximum(other.errors, _LEAST_ERROR**2))
    return bool(((distance >= _LEAST_SHARE) & (distance >= _DEVIATIONS * errors)).any())


def _grows(segments: list[_BinSegment], values: _Floats, weights: _Floats) -> bool:
    """True if values that differ lie about straight lines as well as they lie about the means of segments."""
    means = np.array([segment.means for segment in segments])
    values = values[:, np.ptp(means, axis=0) >= _LEAST_SHARE]
    means = means[:, np.ptp(means, axis=0) >= _LEAST_SHARE]
    weights = weights[:, None]
    times = np.arange(len(values))[:, None] - np.average(np.arange(len(values)), weights=weights[:, 0])
    left = values - np.average(values, axis=0, weights=weights[:, 0])
    slopes = (weights * times * left).sum(axis=0) / (weights * np.square(times)).sum()
    from_line = (weights * np.square(left - times * slopes)).sum(axis=0)
    lengths = [segment.end - segment.first for segment in segments]
    from_means = (weights * np.square(values - np.repeat(means, lengths, axis=0))).sum(axis=0)
    return bool((from_line <= _MOST_OF_LINE * from_means).all())
