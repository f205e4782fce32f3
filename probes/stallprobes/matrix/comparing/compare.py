"""Comparison of two interference matrices: each cell is worse, better, the same, or unsure.

A cell is worse or better only if three conditions hold. Size: ratio and difference exceed their limits. Calls: an
exact test of the number of calls above a cut is significant, corrected for the number of tests. Repeats: the change is
large compared with the variance between repeats, in this cell and in similar ones, no single repeat causes it, and
chance does not make such a change of cells with two modes. The last condition is needed because the calls of one repeat
are not independent. A change of sufficient size that fails another condition is UNSURE if it is larger than the cell's
own variance explains; else the cell is the same, and states the smallest ratio that it could have detected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import median

from stallprobes.errors import NotComparable, TimelinesDiffer
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.statistics import VariancePrior, prior_variance, student_t_two_sided
from stallprobes.latency.window import ChannelMap, merged_groups
from stallprobes.matrix.comparing.comparability import differences, mismatch, timeline_mismatch
from stallprobes.matrix.comparing.comparison import (
    FALSE_ALARMS,
    CellChange,
    Change,
    Comparison,
    QuantileChange,
    sensitivities,
)
from stallprobes.matrix.comparing.modes import Modes
from stallprobes.matrix.comparing.quantile_comparison import CALLS, P50, P99, QuantileTest, beyond, quantile_tests
from stallprobes.matrix.comparing.sensitivity import detectable, power_sd, student_t_limit, tail_distance
from stallprobes.matrix.matrix import QUIET, Cell, CellPlace, Matrix, Status
from stallprobes.matrix.noise import baseline_range
from stallprobes.model import Channel, Phase
from stallprobes.units import duration_ns, range_ns, times
from stallprobes.verdicts.kinds import IN_FLIGHT_NS, STARVED_CALLS, STARVED_WINDOW_NS

# Largest p-value of a change that a comparison reports as unsure. A change with a larger p-value counts as chance,
# unless the calls are too few (ENOUGH_CALLS). If nothing changed on the machine, about one in a hundred tested
# latencies has a smaller p-value.
UNSURE_P_VALUE = 0.01
# If both checks have at least this number of calls, an insignificant change of the median counts as chance. With fewer
# calls, an insignificant change is reported as unsure. Reason: with fewer calls, even a large change can be
# insignificant.
ENOUGH_CALLS = 8
# Largest dispersion (ratio of variances) with which a comparison also tests a p99 by the number of slow calls. The
# dispersion is the variance of the number of slow calls between repeats, divided by the variance for independent calls.
# The repeats of a cell and of similar cells determine the dispersion.
DISPERSION = 2.0
# Limit like DISPERSION, for the dispersion estimated only from the repeats of the cell itself. The limit is higher
# because a cell has few repeats. By chance, 1 of 50 cells with independent calls exceeds the limit.
CELL_DISPERSION = 2.6
# Largest ratio of a victim's latency to its baseline, in the old check, with which a common change of latency and
# baseline is reported only for the baseline. With a larger ratio, the change of the latency is reported too, as unsure.
# A common change is by about the same factor, for example due to the CPU's clock.
ALIKE = 10.0

# Smallest number of tested latencies of victims beside the same aggressors for which the mean variance between repeats
# is computed.
_FEWEST_TESTS = 4
# Factor that raises the detectable ratio if a check has additional repeats. The logarithm of the ratio that the test of
# the repeats can detect is multiplied by this factor. The smallest relevant ratio is not raised. Reason: additional
# repeats go to cells that vary, and the other cells seem to vary less than they do.
SELECTION = 1.04
# Ratio of two variances above which the latencies beside the same aggressors count as having several modes (levels).
# The ratio: variance of the median latency between repeats, as the mean beside these aggressors, divided by the
# estimate from all cells. With several modes, the test of a p99 uses at least the mean variance of the p99 beside these
# aggressors.
_MULTIMODAL = 6.0
# Smallest factor by which a check with starvation must differ from the other check. The age of a call in flight is
# compared with the other check's longest call. The number of the other check's calls is compared with the limit of
# starvation; with a smaller factor, the change is unsure.
_NEAR = 3.0


# Order in which the changes of the phases (call, wait, ...) determine the change of a cell (a victim beside
# aggressors). The cell gets the first change in this list that any phase of the cell has.
_WORST = (Change.WORSE, Change.BETTER, Change.UNSURE, Change.SAME)


def compare(old: Matrix, new: Matrix, *, force: bool = False) -> Comparison:
    """Comparison of the cells that both ``old`` and ``new`` measured.

    Raises NotComparable if GPU model, profile or measurement differ, unless ``force``; even then if only one has the
    timeline, which adds to each call.
    """
    if (problem := timeline_mismatch(old.timeline, new.timeline)) is not None:
        raise TimelinesDiffer(problem)
    if not force and (problem := mismatch(old, new)) is not None:
        raise NotComparable(problem)
    before, now = (
        {key for key, cell in matrix.cells.items() if cell.status is not Status.MISSING} for matrix in (old, new)
    )
    both = [key for key in new.cells if key in before and key in now]
    only_old, only_new = before - now, now - before
    cells = _cells(old, new, both)
    return Comparison(
        old=old,
        new=new,
        detectable=sensitivities(cells),
        differences=differences(old, new),
        cells=cells,
        only_old=tuple(CellPlace(*key) for key in old.cells if key in only_old),
        only_new=tuple(CellPlace(*key) for key in new.cells if key in only_new),
    )


def _cells(old: Matrix, new: Matrix, both: Iterable[tuple[str, str]]) -> tuple[CellChange, ...]:
    keys = list(both)
    tests: dict[tuple[str, str], list[QuantileTest]] = {
        key: quantile_tests(old.cells[key], new.cells[key])
        for key in keys
        if old.cells[key].status is Status.OK and new.cells[key].status is Status.OK
    }
    tester = _Tester(old, new, tests)
    # The column quiet first: a row's other cells depend on it.
    changes = {key: tester.cell(key, tests[key]) for key in sorted(tests, key=lambda key: key[1] != QUIET)}
    return tuple(_cell(old.cells[key], new.cells[key], changes.get(key, ())) for key in keys)


@dataclass(frozen=True)
class _Prior:
    """Prior variance of the logarithm of the ratio, with the median weight and inverse repeats of its tests."""

    variance: VariancePrior
    weight: float
    inverse_repeats: float

    def of(self, test: QuantileTest) -> VariancePrior:
        """The prior of ``test``: its variance falls with the number of repeats, and grows with fewer calls in each."""
        more = test.inverse_repeats / self.inverse_repeats
        fewer = self.weight / (test.weight * more)
        return replace(self.variance, variance=self.variance.variance * more * max(1.0, fewer))


class _Tester:
    """All tests of a comparison, which share prior variances and the correction for their number.

    Some cells have additional repeats, mostly those that vary. The priors come from the first repeats of every cell:
    the cells without additional ones are a selection that varies little, the cells with them one that varies much.
    """

    def __init__(self, old: Matrix, new: Matrix, tests_of: Mapping[tuple[str, str], list[QuantileTest]]) -> None:
        self._old, self._new = old, new
        self._allowed = FALSE_ALARMS / max(sum(map(len, tests_of.values())), 1)
        self._priors: dict[tuple[str, Quantile], _Prior] = {}
        self._dispersion_priors: dict[str, VariancePrior] = {}
        first = {key: _first_tests(old, new, key, cell_tests) for key, cell_tests in tests_of.items()}
        self._selected = any(first[key] is not tests_of[key] for key in first)
        tests = [test for cell_tests in first.values() for test in cell_tests]
        groups: dict[tuple[str, Quantile], list[QuantileTest]] = {}
        for test in tests:
            if test.has_calls:
                groups.setdefault((test.channel.phase, test.quantile), []).append(test)
        for key, group in groups.items():
            freedom = max(test.variance[1] for test in group)
            weight = median(test.weight for test in group)
            alike = [other for other in group if other.variance[1] == freedom and other.weight >= weight / 2]
            inverse = median(other.inverse_repeats for other in alike or group)
            self._priors[key] = _Prior(prior_variance([other.variance[0] for other in alike], freedom), weight, inverse)
            if key[1] is P99:
                self._dispersion_priors[key[0]] = prior_variance([other.tail_dispersion for other in alike], freedom)
        self._column_variances = _column_means(tests, lambda test: test.variance[0] / test.inverse_repeats)
        tails = [test for test in tests if test.quantile is P99]
        self._column_dispersions = _column_means(tails, lambda test: test.tail_dispersion)
        self._baseline_changes: dict[tuple[str, Channel, Quantile], Change] = {}
        self._baseline_ratios: dict[tuple[str, Channel, Quantile], float] = {}
        self._row_baselines: dict[str, list[tuple[ChannelMap, ChannelMap]]] = {}
        self._variation = cache(partial(baseline_range, (old, new)))
        self._modes = Modes([test for each in tests_of.values() for test in each if test.has_calls], self._is_change)

    def cell(self, key: tuple[str, str], tests: Iterable[QuantileTest]) -> tuple[QuantileChange, ...]:
        """The changes of the cell ``key``; the cell in the column quiet must come before its row's others."""
        changes = []
        for test in tests:
            row, place = test.cell.row, (test.cell.row, test.channel, test.quantile)
            if not test.has_calls:
                changes.append(_without_calls(test))
                continue
            least = self._detectable(test)
            change, why = self._change(test, least)
            if key[1] != QUIET and change in (Change.WORSE, Change.BETTER):
                change, why = self._beside_baseline(test, change, why)
                change, why = self._within_variation(test, change, why)
            elif key[1] == QUIET:
                ratio = self._baseline_ratio(row, test.channel, test.quantile)
                if change is Change.SAME and beyond(ratio, test.limit):
                    change = Change.UNSURE
                    why = f"The baseline of this row's other cells is {times(ratio)} the old one"
                self._baseline_changes[place] = change
            change, why = self._within_modes(test, change, why)
            phase, label = test.channel
            sentence = f"{why}." if why else ""
            figures = (*test.values_ns, test.ratio)
            changes.append(QuantileChange(phase, label or None, test.quantile, *figures, change, sentence, least))
        return tuple(changes)

    def _detectable(self, test: QuantileTest) -> float | None:
        """The smallest ratio that would have been worse or unsure with a probability of 90 %."""
        if test.single_repeat:
            return None
        variance, freedom = self._own_variance(test)
        deviation = math.sqrt(variance)
        margin = power_sd(int(freedom)) * deviation
        p_value = UNSURE_P_VALUE if test.quantile is P50 else UNSURE_P_VALUE / 2
        allowance = SELECTION if self._selected else 1.0
        limits = [allowance * (student_t_limit(p_value, int(freedom)) * deviation + margin)]
        if test.quantile is P99:
            dispersion, freedom = self._own_dispersion(test)
            if dispersion <= DISPERSION and test.tail_dispersion <= CELL_DISPERSION:
                wanted = student_t_limit(UNSURE_P_VALUE / 2 / test.cuts, int(freedom)) + power_sd(int(freedom))
                if tail_distance(test) >= wanted * math.sqrt(max(dispersion, 1.0)):
                    limits.append(0.0)
        return detectable(test, UNSURE_P_VALUE, margin, limits)

    def _own_variance(self, test: QuantileTest) -> tuple[float, float]:
        """Variance of the logarithm of the ratio by the cell's repeats and those of similar cells, and its freedom."""
        return self._priors[test.channel.phase, test.quantile].of(test).moderated(*test.variance)

    def _own_dispersion(self, test: QuantileTest) -> tuple[float, float]:
        return self._dispersion_priors[test.channel.phase].moderated(test.tail_dispersion, test.variance[1])

    def _change(self, test: QuantileTest, least: float | None) -> tuple[Change, str]:
        """The change, and its reason as a sentence without the full stop."""
        if not test.relevant and not test.relevant_by_repeats:
            return Change.SAME, ""
        values = f"{duration_ns(test.values_ns[0])} → {duration_ns(test.values_ns[1])}"
        if test.single_repeat:
            return Change.UNSURE, f"{values}, but one repeat does not show the variance"
        p_value = test.p_value()
        if p_value > self._allowed:
            why = f"too few of {test.old.calls} and {test.new.calls} calls are beyond it"
        elif not test.relevant:
            why = f"only the mean of the repeats differs by {times(math.exp(test.log_ratio))}"
        elif not test.steady:
            why = "one repeat alone causes the difference"
        elif self._repeats_p_value(test) > self._allowed:
            why = "the repeats vary too much"
        else:
            return (Change.WORSE if test.ratio > 1 else Change.BETTER), f"{values} ({times(test.ratio)})"
        if p_value > UNSURE_P_VALUE:
            chance = test.quantile is P99 or min(test.old.calls, test.new.calls) >= ENOUGH_CALLS
        else:
            own = not test.steady or self._repeats_p_value(test, own=True) > UNSURE_P_VALUE
            chance = own and not beyond(test.ratio, math.inf if least is None else least)
        if chance:
            return Change.SAME, f"{values}, which is within chance: {why}"
        return Change.UNSURE, f"{values}, but {why}"

    def _repeats_p_value(self, test: QuantileTest, own: bool = False) -> float:
        """The p-value of the difference by the variance between repeats.

        An aggressor may stay in one of two modes for seconds. Some rows of a check then contain both modes and others,
        by chance, only one: so the variance of a cell is at least the mean of its column.
        The p99 varies strongly if few calls are slow. The number of slow calls is then the better statistic, unless it
        varies between repeats by more than chance. So the tail has two tests, and one significant test suffices.
        With ``own``, the column is left out.
        """
        variance, freedom = self._own_variance(test)
        column = (test.cell.column, test.channel.phase, test.quantile)
        modes = not own and (test.quantile is P50 or self._has_modes(test))
        if modes:
            variance = max(variance, self._column_variances.get(column, 0.0) * test.inverse_repeats)
        along = test.log_ratio if test.ratio > 1 else -test.log_ratio
        p_value = student_t_two_sided(max(along, 0.0) / math.sqrt(variance), freedom)
        if test.quantile is P50:
            return p_value
        dispersion, freedom = self._own_dispersion(test)
        # In a column with modes, the number of slow calls per repeat depends on the mode.
        if modes:
            dispersion = max(dispersion, self._column_dispersions.get(column, 0.0))
        # The prior of similar cells does not apply to a cell whose own repeats vary more.
        if dispersion > DISPERSION or test.tail_dispersion > CELL_DISPERSION:
            return min(1.0, 2 * p_value)
        distance = test.distance() / math.sqrt(max(dispersion, 1.0))
        return min(1.0, 2 * p_value, 2 * test.cuts * student_t_two_sided(distance, freedom))

    def _has_modes(self, test: QuantileTest) -> bool:
        key = (test.channel.phase, P50)
        if key not in self._priors:
            return False
        prior = self._priors[key]
        column = self._column_variances.get((test.cell.column, *key), 0.0) * prior.inverse_repeats
        return column > _MULTIMODAL * prior.variance.variance

    def _is_change(self, test: QuantileTest) -> bool:
        """True if all conditions of a change hold, the cheap ones first."""
        return (
            test.relevant
            and test.steady
            and self._repeats_p_value(test) <= self._allowed
            and test.p_value() <= self._allowed
        )

    def _within_modes(self, test: QuantileTest, change: Change, why: str) -> tuple[Change, str]:
        """UNSURE in place of a change that chance alone could make where repeats have two modes as far apart."""
        if change not in (Change.WORSE, Change.BETTER) or self._modes.false_changes(test) <= FALSE_ALARMS:
            return change, why
        number = self._modes.as_far_apart(test)
        return Change.UNSURE, f"{why}, but repeats within one check differ by as much in {number} of the other phases"

    def _within_variation(self, test: QuantileTest, change: Change, why: str) -> tuple[Change, str]:
        """UNSURE in place of a change between two values that also occur among the baselines of the row.

        A machine can stay in one of its modes for all repeats of a cell, which the variance between them cannot show;
        the baselines are measured before and after every cell.
        """
        if change not in (Change.WORSE, Change.BETTER):
            return change, why
        limits = self._variation(test.cell.row, test.channel, test.quantile)
        if limits is None or not all(limits[0] <= value <= limits[1] for value in test.values_ns if value is not None):
            return change, why
        words = f"{why}, but the baselines of this row vary as much with no aggressor ({range_ns(*limits)})"
        return Change.UNSURE, words

    def _beside_baseline(self, test: QuantileTest, change: Change, why: str) -> tuple[Change, str]:
        """The change of a cell relative to its row's baseline: one cause is reported once, in the column quiet."""
        place = (test.cell.row, test.channel, test.quantile)
        baseline_ratio = self._baseline_ratio(*place)
        excess = test.ratio / baseline_ratio
        if (excess if change is Change.WORSE else 1 / excess) >= test.limit:
            return change, why
        baseline_change = self._baseline_changes.get(place, Change.SAME)
        if baseline_change is Change.SAME or test.values_ns[0] > ALIKE * self._old_baseline_ns(*place):
            return Change.UNSURE, f"{why}, but the baseline of this row is {times(baseline_ratio)} too"
        return Change.SAME, f"It changed with the baseline of its row, which is {times(baseline_ratio)} the old one"

    def _baseline_ratio(self, row: str, channel: Channel, quantile: Quantile) -> float:
        """The new baseline of a row over the old one: the median of its cells."""
        place = (row, channel, quantile)
        if place not in self._baseline_ratios:
            if row not in self._row_baselines:
                keys = [key for key in self._new.cells if key[0] == row and key in self._old.cells]
                old, new = (_baselines(matrix.cells[key] for key in keys) for matrix in (self._old, self._new))
                self._row_baselines[row] = list(zip(old, new, strict=True))
            logs = [
                math.log(now / before)
                for channels in self._row_baselines[row]
                for before, now in [[_percentile_ns(part, channel, quantile) for part in channels]]
                if before is not None and now is not None
            ]
            self._baseline_ratios[place] = math.exp(median(logs)) if logs else 1.0
        return self._baseline_ratios[place]

    def _old_baseline_ns(self, row: str, channel: Channel, quantile: Quantile) -> float:
        baselines = _baselines(cell for key, cell in self._old.cells.items() if key[0] == row)
        percentiles = [_percentile_ns(part, channel, quantile) for part in baselines]
        return median([ns for ns in percentiles if ns is not None] or [1.0])


def _first_tests(old: Matrix, new: Matrix, key: tuple[str, str], tests: list[QuantileTest]) -> list[QuantileTest]:
    """The tests of a cell without its additional repeats; ``tests`` where it has none."""
    cells = [_with_first_repeats(matrix, matrix.cells[key]) for matrix in (old, new)]
    if cells == [old.cells[key], new.cells[key]]:
        return tests
    return quantile_tests(*cells)


def _with_first_repeats(matrix: Matrix, cell: Cell) -> Cell:
    # The repeats of a merged matrix are its hosts.
    if matrix.hosts or len(cell.repeats) <= matrix.repeats:
        return cell
    return cell.changed(repeats=cell.repeats[: matrix.repeats])


def _column_means(
    tests: Iterable[QuantileTest], figure: Callable[[QuantileTest], float]
) -> dict[tuple[str, Phase, Quantile], float]:
    """The mean of a measure of variance between repeats, by column, phase and percentile."""
    figures: dict[tuple[str, Phase, Quantile], list[float]] = {}
    for test in tests:
        if test.has_calls and test.cell.column != QUIET and test.variance[1] > 1:
            figures.setdefault((test.cell.column, test.channel.phase, test.quantile), []).append(figure(test))
    return {key: sum(values) / len(values) for key, values in figures.items() if len(values) >= _FEWEST_TESTS}


def _without_calls(test: QuantileTest) -> QuantileChange:
    old, new = (repeats.percentile_ns(test.quantile) for repeats in (test.old, test.new))
    why = f"The {'old' if old is None else 'new'} check has no calls."
    phase, label = test.channel
    return QuantileChange(phase, label or None, test.quantile, old, new, None, Change.UNSURE, why)


def _baselines(cells: Iterable[Cell]) -> list[dict[Channel, Histogram]]:
    """The sum of the baselines of each cell."""
    return merged_groups(map(_baseline_parts, cells))


def _baseline_parts(cell: Cell) -> list[ChannelMap]:
    """The baselines of a cell, of the column quiet its windows; none unless it was measured."""
    if not cell.status.measured:
        return []
    if cell.column == QUIET:
        return [repeat.window.channels for repeat in cell.repeats]
    return [part for repeat in cell.repeats for part in (repeat.before, repeat.after)]


def _percentile_ns(channels: ChannelMap, channel: Channel, quantile: Quantile) -> float | None:
    """A percentile in ns, at least 1; None with too few calls."""
    histogram = channels.get(channel, Histogram.empty())
    ns = histogram.percentile_or_none(quantile.percent, max(CALLS[quantile], 20))
    return None if ns is None else max(ns, 1.0)


def _cell(old: Cell, new: Cell, parts: tuple[QuantileChange, ...]) -> CellChange:
    change = CellChange(new.row, new.column, Change.SAME, parts=parts)
    statuses = (old.status, new.status)
    if statuses == (Status.UNSUPPORTED, Status.UNSUPPORTED):
        return change.changed(note=f"Unsupported in both: {_reason(new)}")
    for cell, which in ((new, "new"), (old, "old")):
        if not cell.status.measured:
            note = f"{str(cell.status).capitalize()} in the {which} check: {_reason(cell)}"
            return change.changed(change=Change.UNSURE, note=note)
    if statuses == (Status.STARVED, Status.STARVED):
        return change.changed(note="Starved in both: fewer than 3 calls returned in half a second.")
    if _starves_only(new, old):
        return _starvation_change(change.changed(change=Change.WORSE, newly_starved=True), new, old)
    if _starves_only(old, new):
        return _starvation_change(change.changed(change=Change.BETTER, no_longer_starved=True), old, new)
    worst = min((part.change for part in parts), key=_WORST.index, default=Change.UNSURE)
    return change.changed(change=worst, note="" if parts else "No calls.")


def _starves_only(cell: Cell, other: Cell) -> bool:
    """True if only ``cell`` is starved: by status, or by a call in flight for longer than any call of ``other``."""
    if Status.STARVED in (cell.status, other.status):
        return cell.status is Status.STARVED
    in_flight_ns = cell.in_flight_ns or 0
    if in_flight_ns < IN_FLIGHT_NS or _starved_share(cell) < 0.5:
        return False
    longest = max((histogram.max_ns for histogram in other.channels.values()), default=0)
    return in_flight_ns >= _NEAR * max(longest, other.in_flight_ns or 0)


def _starved_share(cell: Cell) -> float:
    """Share (0 to 1) of the repeats in which so few calls returned that the victim may be starved."""
    return sum(repeat.window.iterations < STARVED_CALLS for repeat in cell.repeats) / max(len(cell.repeats), 1)


def _starvation_change(change: CellChange, starved: Cell, other: Cell) -> CellChange:
    """``change`` with its note; unsure if the check without starvation was close to it."""
    words = "Starved now and not before" if change.newly_starved else "Starved before and no longer"
    if starved.in_flight_ns is not None:
        words += f": {starved.in_flight_op or 'a call'} was in flight for {duration_ns(starved.in_flight_ns)}"
    rate = other.iterations / other.seconds if other.seconds > 0 else math.inf
    fewest = min((repeat.window.iterations for repeat in other.repeats), default=0)
    if rate < _NEAR * STARVED_CALLS / (STARVED_WINDOW_NS / 1e9) or fewest < _NEAR * STARVED_CALLS:
        note = f"{words}, but the other check was close to it, with {rate:.0f} calls per second."
        return change.changed(change=Change.UNSURE, newly_starved=False, no_longer_starved=False, note=note)
    return change.changed(note=f"{words}.")


def _reason(cell: Cell) -> str:
    return f"{(cell.reason or 'no reason is known').rstrip('.')}."
