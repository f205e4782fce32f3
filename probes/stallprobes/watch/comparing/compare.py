"""Comparison of watched runs before and after a change of their program or machine."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stallprobes.matrix.comparing.comparison import Change
from stallprobes.units import plural
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.comparing.comparison import ItemChange, RunsComparison, RunsSide, Sort
from stallprobes.watch.comparing.differences import differences, require_same_kind
from stallprobes.watch.comparing.measures import (
    MeasuredRun,
    WorkUnit,
    command_of,
    common_kernels,
    first_measured,
    known_step,
    mean,
    measured,
    most_frequent,
)
from stallprobes.watch.comparing.places import Place, matched, own_line
from stallprobes.watch.comparing.sentence import GONE, sentence
from stallprobes.watch.comparing.spread import Spread
from stallprobes.watch.division.binned_sums import CLOCK_ERROR
from stallprobes.watch.division.parts import GPU_PARTS, Bound, Part
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.reading.call_stack import StackFrame
from stallprobes.watch.sentences import frame_text

# Smallest change of a part, line, place of waits or kernel that is reported, as a share of the longer step.
_LEAST_OF_STEP = 0.05
# Error (logarithm) of a rate of kernels, beside what records slow the program down.
_RATE_ERROR = 0.05
# Smallest factor in the mean time of the kernels that both sides have that is reported.
_KERNELS_LONGER = 1.1
# Smallest part of a change (of the logarithm) for which the SM clock, or what others took, is named as a reason.
_LEAST_PART = 0.03
# Number of standard errors in half of a 95 % interval.
_DEVIATIONS = 2.0


class _Value(NamedTuple):
    """Time (ns) of an item in a unit of work, and half of its interval."""

    ns: float
    error_ns: float


_Values = Mapping[tuple[Place, str], _Value]


def compare(old: Sequence[WatchFindings], new: Sequence[WatchFindings], *, force: bool = False) -> RunsComparison:
    """Compare runs, at least one of each side, the oldest first.

    Of each side the runs of the last run's command count. Raises NotComparable for other models of GPU, unless
    ``force``.
    """
    if not force:
        require_same_kind(old, new)
    before, before_left = _of_last_command(old)
    after, after_left = _of_last_command(new)
    first, why = _first(before)
    if first is None:
        return _unsure(before, after, (before_left, after_left), f"In the old runs, {why}.")
    sides: list[list[MeasuredRun]] = []
    for name, runs, left in (("old", before, before_left), ("new", after, after_left)):
        found = [first if run is first.run else measured(run, first) for run in runs]
        whys = Counter(each for each in found if isinstance(each, str))
        left += [f"{plural(count, 'run')}: {text}." for text, count in whys.items()]
        sides.append([each for each in found if isinstance(each, MeasuredRun)])
        if not sides[-1]:
            return _unsure(
                before, after, (before_left, after_left), f"In the {name} runs, {whys.most_common(1)[0][0]}."
            )
    return _compared(sides[0], sides[1], (before, after), (before_left, after_left))


def _of_last_command(runs: Sequence[WatchFindings]) -> tuple[list[WatchFindings], list[str]]:
    """The runs of the command of the last one, and a sentence on others."""
    chosen = [run for run in runs if command_of(run) == command_of(runs[-1])]
    others = len(runs) - len(chosen)
    return chosen, [f"{plural(others, 'run')} of another command than the last run's."] if others else []


def _first(runs: Sequence[WatchFindings]) -> tuple[MeasuredRun | None, str]:
    """The first run that has a unit of work, with a step if any has one; else why there is none."""
    found = [first_measured(run) for run in runs]
    known = [each for each in found if isinstance(each, MeasuredRun)]
    known.sort(key=lambda each: each.unit is not WorkUnit.STEP)
    return (known[0], "") if known else (None, next(each for each in found if isinstance(each, str)))


def _unsure(
    old: Sequence[WatchFindings], new: Sequence[WatchFindings], left_out: tuple[list[str], list[str]], why: str
) -> RunsComparison:
    result = RunsComparison(
        change=Change.UNSURE,
        why=why,
        differences=differences(old, new),
        old=_side(old, [], left_out[0]),
        new=_side(new, [], left_out[1]),
    )
    return result.changed(sentence=sentence(result))


def _compared(
    old: list[MeasuredRun],
    new: list[MeasuredRun],
    runs: tuple[Sequence[WatchFindings], Sequence[WatchFindings]],
    left_out: tuple[list[str], list[str]],
) -> RunsComparison:
    units = [[each.unit_ns for each in side] for side in (old, new)]
    spread = Spread.of(*units)
    unit = WorkUnit.KERNELS if any(each.unit is WorkUnit.KERNELS for each in (*old, *new)) else WorkUnit.STEP
    if unit is WorkUnit.KERNELS:
        slowed = abs(mean(new, lambda each: each.slowed) - mean(old, lambda each: each.slowed))
        error = _RATE_ERROR + slowed
        spread = spread._replace(limit=spread.limit + error, interval=spread.interval + error)
    ratio = _log_of_mean(new) - _log_of_mean(old)
    taken = mean(new, lambda each: math.log(1 - each.taken)) - mean(old, lambda each: math.log(1 - each.taken))
    clocks = _clocks(old, new)
    by_clock = (
        0.0 if clocks is None else -math.log(clocks[1] / clocks[0]) * mean(new, lambda each: each.sequence.gpu.share)
    )
    change, why = _decision(spread, ratio, by_clock, taken)
    result = RunsComparison(
        change=change,
        why=why,
        unit=unit,
        operations=all(known_step(each.process, each.sequence) is None for each in old),
        ratio=math.exp(ratio),
        low=math.exp(ratio - spread.interval) if spread.measured else None,
        high=math.exp(ratio + spread.interval) if spread.measured else None,
        detectable=math.exp(spread.limit),
        measured=spread.measured,
        differences=differences(*runs),
        notes=tuple(_notes(old, new, clocks)),
        items=tuple(_items(old, new, spread)),
        old=_side(runs[0], old, left_out[0]),
        new=_side(runs[1], new, left_out[1]),
    )
    return result.changed(sentence=sentence(result))


def _decision(spread: Spread, ratio: float, by_clock: float, taken: float) -> tuple[Change, str]:
    """The change by the logarithm of the ratio, and why it is unsure.

    ``by_clock`` is the part of it that the SM clock may explain, ``-taken`` that of time which others took.
    """
    change = spread.change(ratio)
    if change is Change.UNSURE:
        runs = (
            "Three runs or more of each measure how much they vary." if not spread.measured else "More runs may tell."
        )
        return change, f"Runs of one program differ by as much. {runs}"
    if change in (Change.WORSE, Change.BETTER):
        for part, why in ((by_clock, "The SM clock differs, and may be the reason."), (-taken, _OTHERS)):
            if abs(part) >= _LEAST_PART and spread.change(ratio, less=ratio - part) is not change:
                return Change.UNSURE, why
    return change, ""


# Why a change may be that of other processes.
_OTHERS = "Other processes took more of the GPU or of the CPUs in some of the runs, and may be the reason."


def _side(runs: Sequence[WatchFindings], found: list[MeasuredRun], left_out: Sequence[str]) -> RunsSide:
    side = RunsSide(command=command_of(runs[-1]), began_at=runs[-1].began_at, runs=len(found), left_out=tuple(left_out))
    if not found:
        return side
    place, before = _main_place(found[-1].sequence)
    parts = {part for each in found for part in each.sequence.parts if part is not Part.END}
    return side.changed(
        unit_ns=tuple(each.unit_ns for each in found),
        verdicts=most_frequent(each.sequence.verdict for each in found),
        seconds=most_frequent(each.sequence.second for each in found if each.sequence.second is not None),
        line="" if place is None else frame_text(place),
        before=before,
        parts={part: _mean_ns(found, part) for part in Part if part in parts},
    )


def _main_place(sequence: ProgramSequence) -> tuple[StackFrame | None, bool]:
    """The line that explains the verdict, and whether its time is before its calls; of waits the costliest place."""
    wait = next((wait for wait in sequence.wait_places if own_line(wait.place) is not None), None)
    if sequence.verdict is Bound.WAIT and wait is not None:
        return wait.place, False
    line = next((line for line in sequence.lines if own_line(line.place) is not None), None)
    if line is None:
        return None, False
    return line.place, line.between.share > max(line.calls.share, line.waits.share)


def _mean_ns(runs: Sequence[MeasuredRun], part: Part) -> int:
    """The mean time (ns) of a part in a unit of work."""
    return round(mean(runs, lambda each: each.ns(each.sequence.share(part))))


def _log_of_mean(side: Sequence[MeasuredRun]) -> float:
    return mean(side, lambda each: math.log(each.unit_ns))


def _clocks(old: Sequence[MeasuredRun], new: Sequence[MeasuredRun]) -> tuple[float, float] | None:
    """The median SM clocks of both sides (MHz); None if one is not known."""
    sides = [[each.sm_clock_mhz for each in side if each.sm_clock_mhz] for side in (old, new)]
    return (statistics.median(sides[0]), statistics.median(sides[1])) if all(sides) else None


def _notes(old: Sequence[MeasuredRun], new: Sequence[MeasuredRun], clocks: tuple[float, float] | None) -> Iterator[str]:
    pairs = common_kernels(old[-1].sequence, new[-1].sequence)
    weight = sum(before.share for before, _ in pairs)
    if weight > 0:
        longer = math.exp(
            sum(before.share * math.log(max(after.mean_ns, 1) / max(before.mean_ns, 1)) for before, after in pairs)
            / weight
        )
        if not 1 / _KERNELS_LONGER < longer < _KERNELS_LONGER:
            text = f"The kernels that both have take ×{longer:.2f} as long"
            known = clocks is not None and not 0.97 < clocks[1] / clocks[0] < 1.03
            yield f"{text}; the SM clock was {clocks[0]:.0f} → {clocks[1]:.0f} MHz." if known and clocks else f"{text}."
    sides = (("old", old), ("new", new))
    for what, has in _LACKS:
        lacking = [name for name, side in sides if any(map(has, side))]
        if lacking:
            yield f"The {' and the '.join(lacking)} runs have {what}."
    for name, side in sides:
        phases = [each.sequence.phases for each in side if each.sequence.phases]
        if phases:
            share = statistics.fmean(each[0].ns / max(sum(phase.ns for phase in each), 1) for each in phases)
            yield f"The {name} runs have phases: the longest one is compared, {100 * share:.0f} % of the time."


# What runs may lack, and whether a run does.
_LACKS: tuple[tuple[str, Callable[[MeasuredRun], bool]], ...] = (
    ("no call stacks, so that lines and waits are not compared", lambda run: not run.sequence.samples),
    (
        "no steady state: their start-up counts too",
        lambda run: run.process.division is not None and not run.process.division.steady,
    ),
)


def _items(old: Sequence[MeasuredRun], new: Sequence[MeasuredRun], spread: Spread) -> list[ItemChange]:
    """What changed by more than the intervals and the spread, the largest change in time first."""
    stacks = all(each.sequence.samples for each in (*old, *new))
    sorts = tuple(Sort) if stacks else (Sort.KERNEL, Sort.PART)
    least_ns = _LEAST_OF_STEP * max(mean(side, lambda each: each.unit_ns) for side in (old, new))
    found = []
    for sort in sorts:
        before, after = (_mean_values([_values(sort, each) for each in side]) for side in (old, new))
        for (was, function), (place, _), one, other in matched(before, after):
            one, other = one or _NOTHING, other or _NOTHING
            lower, higher = sorted((one, other))
            least = max(least_ns, lower.error_ns + higher.error_ns)
            if higher.ns - lower.ns < least or lower.ns > higher.ns * math.exp(-spread.limit):
                continue
            change = Change.WORSE if other.ns > one.ns else Change.BETTER
            # Where it is gone, the line may be there all the same.
            name = (was if other.ns <= GONE * one.ns else place).text
            found.append(
                ItemChange(sort=sort, name=name, function=function, old_ns=one.ns, new_ns=other.ns, change=change)
            )
    return sorted(found, key=lambda item: -abs(item.saved_ns))


_NOTHING = _Value(0.0, 0.0)


def _values(sort: Sort, run: MeasuredRun) -> _Values:
    """The items of one sort in a run."""
    sequence, values = run.sequence, dict[tuple[Place, str], _Value]()

    def add(place: Place, function: str, share: float, error: float) -> None:
        known = values.get((place, function), _NOTHING)
        values[place, function] = _Value(known.ns + run.ns(share), known.error_ns + run.ns(error))

    if sort is Sort.PART:
        for part in sequence.parts:
            if part not in (Part.END, Part.UNKNOWN):
                add(Place(part.word), "", sequence.share(part), _error_of(sequence, part))
    elif sort is Sort.KERNEL:
        for kernel in sequence.kernels:
            if kernel.name:
                add(Place(kernel.name), "", kernel.count * kernel.mean_ns / sequence.steady_ns, 0.0)
    elif sort is Sort.LAUNCH:
        for kernel in sequence.kernels:
            if (place := own_line(kernel.place)) is not None:
                add(Place.of(place), "", kernel.count * kernel.mean_ns / sequence.steady_ns, 0.0)
    elif sort is Sort.LINE:
        for line in sequence.lines:
            if (place := own_line(line.place)) is not None:
                add(Place.of(place), "", line.cost.share, (line.cost.high - line.cost.low) / 2)
    else:
        for wait in sequence.wait_places:
            if (place := own_line(wait.place)) is not None:
                error = _DEVIATIONS * math.sqrt(wait.price * max(1 - wait.price, 0.0) / max(sequence.samples, 1))
                add(Place.of(place), wait.function, wait.price, error)
    return values


def _error_of(sequence: ProgramSequence, part: Part) -> float:
    """Half of the interval of the share of a part: as wide, for its share, as that of the GPU's or the host's time."""
    figure = sequence.gpu if part in GPU_PARTS else sequence.host
    return max((figure.high - figure.low) / 2 * min(sequence.share(part) / max(figure.share, 0.01), 1.0), CLOCK_ERROR)


def _mean_values(runs: Sequence[_Values]) -> _Values:
    keys = {key: None for values in runs for key in values}
    return {
        key: _Value(
            statistics.fmean(values.get(key, _NOTHING).ns for values in runs),
            statistics.fmean(values.get(key, _NOTHING).error_ns for values in runs),
        )
        for key in keys
    }
