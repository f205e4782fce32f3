"""What is measured of a run for a comparison: its main sequence, and the time that one unit of its work takes.

A unit of work is a step of the first old run. Steps are found by calls, and a change of the program may change which
calls mark them: so the kernels, counted by name, say whether two steps do the same work.
"""

from __future__ import annotations

import math
import os.path
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from stallprobes.watch.attribution.findings import ProcessFindings, WatchFindings
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division.result import KernelTime
from stallprobes.watch.division.steps import Step
from stallprobes.watch.lines.result import ProgramSequence

# Smallest number of executions of a kernel in each run for its rate to be compared.
_LEAST_COUNT = 20
# Largest factor between the rates of a kernel and of the median kernel at which both agree.
_AGREES = 1.1
# Smallest share of the compared kernels that must agree.
_MOST_AGREE = 0.6
# Smallest share of each run's executions that the kernels which agree must have. _FEW_COVERED: if _SEVERAL names agree.
# _MOST_COVERED: in runs with phases, whose longest one may do other work. Runs of other programs need _LEAST_COVERED
# and _MANY names.
_LEAST_COVERED, _FEW_COVERED, _MOST_COVERED, _SEVERAL, _MANY = 0.5, 0.2, 0.8, 3, 8
# Largest factor between the numbers of kernels in a step for two steps without a common kernel, but marked by the same
# call, to count as the same work.
_SAME_NUMBER = 1.5
# Smallest share of the time of common kernels in kernels of other sizes at which two runs do other work.
_OTHER_SIZES = 0.2
# Largest slowdown (relative) by records that is believed, and the largest one that is possible.
_MOST_SLOWED, _POSSIBLY_SLOWED = 0.3, 1.0
# Smallest factor by which both the step and the rate of kernels must change for the step to be believed where records
# may have slowed the kernels down: it decides nothing then.
_LARGE_CHANGE = 1.42
# Commands that run another program, which their first file names.
_RUNS_ANOTHER = re.compile(
    r"python[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|srun|env|sh|bash|timeout|numactl|taskset"
)
# Why a run without a steady state has no rate.
_NO_STEADY_STATE = "it had no steady state of three seconds, so that its start-up counts too: watch it longer"
# Largest share of the records that may be lost for the rates of kernels to be known.
_MOST_LOST = 0.02
# Longest unit of work (ns) that is believed: a year.
_LONGEST_NS = 3.2e16
# Number of operations that are a unit of work where no step is known.
OPERATIONS = 1000


class WorkUnit(StrEnum):
    """What is compared. The values are those of JSON.

    STEP: the time of a step. KERNELS: the time in which the kernels of a step, or OPERATIONS operations, are executed.
    """

    STEP = "step"
    KERNELS = "kernels"


class MeasuredRun(NamedTuple):
    """A run, its main process and sequence, and the time (ns) that a unit of work takes in it."""

    run: WatchFindings
    process: ProcessFindings
    sequence: ProgramSequence
    unit_ns: float
    unit: WorkUnit = WorkUnit.STEP

    @property
    def taken(self) -> float:
        """Share of the time (0 to 1) that others took of it: time-slices of the GPU, and CPUs."""
        ready = 0.0 if self.sequence.ready is None else self.sequence.ready.share
        return min(self.sequence.share(Part.SHARED) + ready * self.sequence.share(Part.HOST), 0.99)

    @property
    def slowed(self) -> float:
        """How much slower (relative) it is while work is recorded; 0 if it is recorded all of the time."""
        cost = self.process.cost
        if cost is None or not 0 < cost.recorded < 1:
            return 0.0
        return min(((cost.low + cost.high) / 2 if cost.compared else cost.high) / cost.recorded, _MOST_SLOWED)

    @property
    def possibly_slowed(self) -> float:
        """How much slower (relative) it may be at most while work is recorded."""
        cost = self.process.cost
        return 0.0 if cost is None or not 0 < cost.recorded < 1 else min(cost.high / cost.recorded, _POSSIBLY_SLOWED)

    @property
    def sm_clock_mhz(self) -> float | None:
        """The median SM clock of its GPU; None if not known."""
        device, gpus = self.sequence.device, self.process.gpus
        uuid = gpus[device] if device is not None and device < len(gpus) else ""
        return next((gpu.sm_clock_mhz for gpu in self.run.gpus if gpu.uuid == uuid), None)

    def ns(self, share: float) -> float:
        """A share of the time in nanoseconds of a unit of work."""
        return share * self.unit_ns


def main_sequence(run: WatchFindings) -> tuple[ProcessFindings, ProgramSequence] | None:
    """The sequence with most work on the GPU, of the process of the lowest rank; None if no work was recorded."""
    divided = [
        (process, sequence)
        for process in run.processes
        for sequence in process.sequences
        if sequence.divided and sequence.steady_ns > 0
    ]
    if not divided:
        return None
    lowest = min((process.rank.number for process, _ in divided if process.rank is not None), default=None)
    ranked = [each for each in divided if lowest is None or (each[0].rank and each[0].rank.number == lowest)]
    return max(ranked, key=lambda each: (each[1].gpu.share * each[1].steady_ns, each[1].operations))


def first_measured(run: WatchFindings) -> MeasuredRun | str:
    """The run whose step is the unit of work; else why it has none, as a clause."""
    return _believed(_first_measured(run))


def measured(run: WatchFindings, first: MeasuredRun) -> MeasuredRun | str:
    """Another run, by the unit of work of the ``first`` one; else why it cannot be compared, as a clause."""
    return _believed(_measured(run, first))


def _believed(run: MeasuredRun | str) -> MeasuredRun | str:
    """A run, unless its figures cannot be, as in a file that somebody made."""
    if isinstance(run, MeasuredRun) and not 1 <= run.unit_ns <= _LONGEST_NS:
        return "its figures make no sense"
    return run


def _first_measured(run: WatchFindings) -> MeasuredRun | str:
    found = main_sequence(run)
    if found is None:
        return _no_work(run)
    process, sequence = found
    step = known_step(process, sequence)
    if why := _not_its_own_pace(run, sequence):
        return why
    if step is not None:
        return MeasuredRun(run, process, sequence, step.ns)
    if sequence.verdict is Bound.UNKNOWN:
        return _not_recorded(process)
    if not _steady(process):
        return _NO_STEADY_STATE
    if not sequence.operations:
        return "no operation of the GPU ended while it was recorded"
    return MeasuredRun(run, process, sequence, sequence.steady_ns / sequence.operations * OPERATIONS, WorkUnit.KERNELS)


def _measured(run: WatchFindings, first: MeasuredRun) -> MeasuredRun | str:
    found = main_sequence(run)
    if found is None:
        return _no_work(run)
    process, sequence = found
    if why := _not_its_own_pace(run, sequence) or _other_sizes(first.sequence, sequence):
        return why
    step, known = known_step(process, sequence), known_step(first.process, first.sequence)
    if step is not None and known is not None and step.range and step.range == known.range:
        return MeasuredRun(run, process, sequence, step.ns)
    # Of phases the longest ones are measured, which may be others.
    have_phases = bool(sequence.phases or first.sequence.phases)
    same_program = program_of(command_of(run)) == program_of(command_of(first.run))
    rate = _rate_of_kernels(first.process, process)
    if rate is not None and rate.is_enough(same_program=same_program, have_phases=have_phases):
        by_kernels = first.unit_ns / rate.factor
        by_rate = MeasuredRun(run, process, sequence, by_kernels, WorkUnit.KERNELS)
        # In windows with records, kernels are rarer than in all of the time.
        agrees = _AGREES * (1 + max(first.slowed, by_rate.slowed))
        if step is not None and known is not None:
            by_step = by_rate._replace(unit_ns=step.ns, unit=WorkUnit.STEP)
            slowed = _same_mark(step, known) and _differs_by_records(first, by_step, by_rate)
            if slowed or 1 / agrees <= step.ns / by_kernels <= agrees:
                return by_step
        for each in (process, first.process):
            if _records_lost(each):
                return _not_recorded(each)
        for each, verdict in ((process, sequence.verdict), (first.process, first.sequence.verdict)):
            if verdict is Bound.UNKNOWN:
                return _not_recorded(each)
        return by_rate if _steady(process) and _steady(first.process) else _NO_STEADY_STATE
    if have_phases:
        return "its longest phase runs other kernels, or others of them more often"
    if not same_program:
        return "it is another program, whose kernels are others"
    if step is None or known is None:
        return "its steps are not regular, and its kernels are others, or others of them run more often"
    if not _same_mark(step, known):
        return "its steps begin at other calls, and its kernels are others"
    numbers = [_in_a_step(*each) for each in ((first.process, known), (process, step))]
    if min(numbers) * _SAME_NUMBER < max(numbers):
        return "its kernels are others, and a step has another number of them"
    return MeasuredRun(run, process, sequence, step.ns)


def _differs_by_records(first: MeasuredRun, by_step: MeasuredRun, by_rate: MeasuredRun) -> bool:
    """True if the step of a run changed as the rate of its kernels did, but for what recording them may add.

    Both changed so much that the verdict is the same by either.
    """
    step, rate = (math.log(run.unit_ns / first.unit_ns) for run in (by_step, by_rate))
    most = math.log(_AGREES * (1 + max(first.possibly_slowed, by_rate.possibly_slowed)))
    return abs(step - rate) <= most and step * rate > 0 and min(abs(step), abs(rate)) >= math.log(_LARGE_CHANGE)


def common_kernels(old: ProgramSequence, new: ProgramSequence) -> list[tuple[KernelTime, KernelTime]]:
    """The kernels that ran often enough in both, by name."""
    before, after = _by_name(old), _by_name(new)
    return [(before[name], after[name]) for name in before if name in after]


def _no_work(run: WatchFindings) -> str:
    if not run.processes:
        return "no process of it recorded a call"
    return "no work of the GPU was recorded" + (" (--calls-only)" if run.processes[0].calls_only else "")


def _not_its_own_pace(run: WatchFindings, sequence: ProgramSequence) -> str:
    """Why the rate of a sequence does not say how fast it is, as a clause; "" if it does."""
    if run.beside is not None and run.beside.on_ns:
        return "aggressors ran beside it (--beside)"
    if sequence.step is not None and sequence.step.range:
        return ""
    if sequence.verdict is Bound.IDLE:
        return "it waits for data or requests from outside, which set its pace"
    if sequence.verdict is Bound.ASLEEP:
        return "it sleeps for a reason that is not known, which may set its pace"
    return ""


def command_of(run: WatchFindings) -> tuple[str, ...]:
    """The words of the command, or the command line of the first process; none without a process."""
    return run.program or tuple(process.command for process in run.processes[:1])


def program_of(command: Sequence[str]) -> str:
    """Name of the program of a command: of an interpreter's or launcher's script, else of the file."""
    words = command if len(command) > 1 else " ".join(command).split()
    names = [os.path.basename(word) for word in words if not word.startswith("-")]
    if len(names) > 1 and _RUNS_ANOTHER.fullmatch(names[0]):
        return next((name for name in names[1:] if name.endswith(".py")), names[1])
    return names[0] if names else ""


def _steady(process: ProcessFindings) -> bool:
    return process.division is not None and process.division.steady


class _Rate(NamedTuple):
    """How many times as often kernels run in another run: ``names`` of them, and they have the share ``covered`` of the
    executions of each run."""

    factor: float
    names: int
    covered: float

    def is_enough(self, *, same_program: bool, have_phases: bool) -> bool:
        """True if it is that of the program's work."""
        if not same_program:
            return self.covered >= _LEAST_COVERED and self.names >= _MANY
        if have_phases:
            return self.covered >= _MOST_COVERED
        return self.covered >= (_FEW_COVERED if self.names >= _SEVERAL else _LEAST_COVERED)


def _rate_of_kernels(old: ProcessFindings, new: ProcessFindings) -> _Rate | None:
    """How many times as often the kernels of ``old`` run in ``new``; None if these do not say the same.

    All threads count, whichever are in one sequence.
    """
    (counts, rates), (new_counts, new_rates) = map(_kernels_of, (old, new))
    names = [name for name, count in counts.items() if min(count, new_counts.get(name, 0)) >= _LEAST_COUNT]
    factors = {name: new_rates[name] / rates[name] for name in names}
    if not factors:
        return None
    middle = statistics.median_low(factors.values())
    agree = [name for name, factor in factors.items() if abs(math.log(factor / middle)) < math.log(_AGREES)]
    if len(agree) < _MOST_AGREE * len(factors):
        return None
    covered = min(sum(side[name] for name in agree) / sum(side.values()) for side in (counts, new_counts))
    return _Rate(middle, len(agree), covered)


def _kernels_of(process: ProcessFindings) -> tuple[Mapping[str, int], Mapping[str, float]]:
    """How often the kernels of a process ran by their names, and how often in a nanosecond."""
    counts: dict[str, int] = {}
    rates: dict[str, float] = {}
    for sequence in process.sequences:
        for kernel in sequence.kernels if sequence.steady_ns > 0 else ():
            if kernel.name:
                counts[kernel.name] = counts.get(kernel.name, 0) + kernel.count
                rates[kernel.name] = rates.get(kernel.name, 0.0) + kernel.count / sequence.steady_ns
    return counts, rates


def _other_sizes(old: ProgramSequence, new: ProgramSequence) -> str:
    """Why common kernels with constant numbers of blocks do other work, as a clause; "" if they do the same."""
    pairs = [
        (before, after)
        for before, after in common_kernels(old, new)
        if 0 < before.least_blocks == before.most_blocks and 0 < after.least_blocks == after.most_blocks
    ]
    other = [pair for pair in pairs if pair[0].most_blocks != pair[1].most_blocks]
    if not other or sum(before.share for before, _ in other) < _OTHER_SIZES * sum(before.share for before, _ in pairs):
        return ""
    before, after = max(other, key=lambda pair: pair[0].share)
    return f"its kernels have other sizes, {before.most_blocks} → {after.most_blocks} blocks, and so do other work"


def _by_name(sequence: ProgramSequence) -> Mapping[str, KernelTime]:
    return {kernel.name: kernel for kernel in sequence.kernels if kernel.name and kernel.count >= _LEAST_COUNT}


def known_step(process: ProcessFindings, sequence: ProgramSequence) -> Step | None:
    """The step of a sequence, unless it has no length; without one that of the process's sequence with most operations.

    A thread of a library's own, such as that of a backward pass, has no calls that mark a step.
    """
    others = sorted(process.sequences, key=lambda each: -each.operations)
    steps = (each.step for each in (sequence, *others) if each.device == sequence.device)
    return next((step for step in steps if step is not None and step.ns), None)


def _same_mark(one: Step, other: Step) -> bool:
    return (one.range, one.function) == (other.range, other.function)


def _in_a_step(process: ProcessFindings, step: Step) -> float:
    """Kernels of a process in one of its steps."""
    return max(sum(_kernels_of(process)[1].values()) * step.ns, 0.1)


def _records_lost(process: ProcessFindings) -> bool:
    return process.missed_records > _MOST_LOST * process.records


def _not_recorded(process: ProcessFindings) -> str:
    """Why a run has no rate if what bounds it is not known, as a clause."""
    if _records_lost(process):
        return "too many records of its work were lost: watch it with --cost 5, and longer"
    whole = process.cost is not None and process.cost.recorded >= 1
    return "too much of it was not recorded: watch it longer" + ("" if whole else ", or with --cost 100")


def mean(runs: Sequence[MeasuredRun], value: Callable[[MeasuredRun], float]) -> float:
    """The mean of a value over runs."""
    return statistics.fmean(map(value, runs))


def most_frequent(values: Iterable[Bound]) -> tuple[Bound, ...]:
    """The verdicts of runs, the most frequent one first."""
    counts: dict[Bound, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return tuple(sorted(counts, key=lambda bound: -counts[bound]))
