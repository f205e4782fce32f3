"""Lines of a program: the sums of its samples by the places of its own code, for each sequence of its division."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from stallprobes.files.codec import attributes
from stallprobes.native.layouts.driver_calls import CallFamily, CallKind, family_of
from stallprobes.native.layouts.watch_file import STACKS
from stallprobes.watch.division.binned_sums import Figure, Times
from stallprobes.watch.division.outside_waits import HOST_FUNCTIONS
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division.result import CAUSE_LIMIT, GPU_LIMIT, GrowingLine, SequenceDivision, because_of_host
from stallprobes.watch.lines.call_times import BETWEEN
from stallprobes.watch.lines.held_calls import FunctionCalls, HeldSum
from stallprobes.watch.lines.logged_calls import WAITING
from stallprobes.watch.lines.places import PACKAGES, innermost, order, place_of
from stallprobes.watch.lines.result import (
    HoldingCalls,
    InnerPlace,
    LineTime,
    LockHolder,
    ProgramLine,
    ProgramSequence,
    TaskTime,
)
from stallprobes.watch.lines.sample_sums import SampleSums
from stallprobes.watch.lines.second_sums import NO_SUM, SampleKey, SampleSum
from stallprobes.watch.lines.waits import WaitSum, wait_places
from stallprobes.watch.reading.call_stack import UNKNOWN_PYTHON, CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.compilers import DeviceCompiler
from stallprobes.watch.reading.library_tasks import LibraryTask, is_part

# Largest number of program lines that a sequence (threads that call by turns) keeps: the lines with the highest cost.
MOST_LINES = 50
# Half-width of a 95 % interval of the normal distribution, in standard deviations.
_DEVIATIONS = 1.96
# Shortest mean time (ns) that host functions in the streams explain: between GPU operations, or of a copy that blocks.
# Between kernels, the GPU itself needs 0.8 to 1.3 us (see least_gaps.py); in 47 programs that no host functions held,
# the mean was 4.2 us at most (H200s).
_LEAST_HELD_NS = 20_000
# Smallest ratio of the time in which copies block outside their work to the work, at which host functions explain it.
# Measured on H200s: 3 400 and more behind host functions of 5 and 400 ms.
_MUCH_LONGER = 20
# Smallest number of host functions for each GPU operation at which they explain the time between operations.
_LEAST_HOST_FUNCTIONS = 0.01
# Kinds of time at a line of the program. _WAITS: time inside calls that wait for the GPU. _CALLS: time inside other
# calls. _BETWEEN: time between calls.
_WAITS, _CALLS, _BETWEEN = range(3)
# Verdicts for which the lines of a sequence are ordered by their whole time instead of their cost. Reason: with these
# verdicts, host time by itself costs nothing, or its cost is not known. The same holds where the host waits for copies
# that do not block and keep the GPU busy.
_COUNT_ALIKE = (Bound.GPU, Bound.GAPS, Bound.HELD, Bound.COMMUNICATION, Bound.SHARED, Bound.UNKNOWN)
# Smallest number of samples with a place in the code from which the places of similar samples are estimated. Similar
# samples have the same thread, function and kind of call. With fewer samples, the similar samples remain without a
# place.
_LEAST_KNOWN = 10
# Largest number of inner places (places in the functions that a line calls) that a line keeps.
_MOST_INNER = 3
# Limits for the lines at which other threads have Python's global lock. _LEAST_WAITING: smallest share of the time that
# a sequence waits for the lock. _MOST_HOLDERS: largest number of lines.
_LEAST_WAITING, _MOST_HOLDERS = 0.05, 3
# Smallest share of a line's cost that an inner place (a place in a function that the line calls) must have for the line
# to keep the place.
_LEAST_INNER = 0.05
# Smallest share of the change of a step's time that a line must cause to be named with the change.
_LEAST_OF_GROWTH = 0.5
# Smallest increase of a line's share of the time at which the line counts as growing. The increase is the difference
# between the shares in the first and the last third of a run.
_LEAST_GROWN = 0.25
# Smallest share of a line's growth that must lie between the first and the second third of a run. At least the same
# share must lie between the second and the last third. Reason: the growth must be spread over the run.
_EVENLY = 0.2
# Lower limit of the divisor in a quotient of two shares of the time: a line's share divided by the share of all other
# lines. If the other lines have a smaller share, this limit is the divisor. Reason: the divisor must not be 0.
_LEAST_OTHERS = 0.02
# Smallest number of samples in each third of a run at which growing lines are searched for.
_LEAST_SAMPLES = 50
# Smallest share of the time before a line that must have passed since calls at one other line for that to be named.
_NEARLY_ALL = 0.9
# Smallest cost (share of the time) of a task of a library that is kept.
_LEAST_TASK = 0.01
# Sum of the samples with a key.
_KeyedSum = tuple[SampleKey, SampleSum]


# What a thread does in a library beside the program's own work: the compiler of device code and the task.
_Does = tuple[DeviceCompiler | None, LibraryTask | None]
# Neither a compiler nor a task.
NOTHING_ELSE: _Does = (None, None)


@dataclass
class _LineSum:
    """The samples at one place: by sort of time and function, by stack, and by thread; ``costs`` (ns) are by stack."""

    whole: SampleSum = NO_SUM
    times: Counter[tuple[int, int]] = field(default_factory=Counter)
    stacks: Counter[int] = field(default_factory=Counter)
    threads: Counter[int] = field(default_factory=Counter)
    costs: Counter[int] = field(default_factory=Counter)
    compiles: Counter[DeviceCompiler] = field(default_factory=Counter)
    # The costs (ns) of tasks of libraries.
    tasks: Counter[LibraryTask] = field(default_factory=Counter)
    # Time (ns) asleep for a lock of the module threading that another thread has.
    own_lock_ns: int = 0
    price: float = 0.0

    def add(self, key: SampleKey, sample: SampleSum, price: float, cost_ns: int, does: _Does = NOTHING_ELSE) -> None:
        compiler, task = does
        if compiler is not None and key.kind == BETWEEN:
            self.compiles[compiler] += sample.ns
        if task is not None:
            self.tasks[task] += cost_ns
        self.whole = self.whole.plus(sample)
        self.times[_sort_of(key), key.function] += sample.ns
        self.stacks[key.stack] += sample.ns
        self.threads[key.thread] += sample.ns
        self.costs[key.stack] += cost_ns
        self.price += price


_Division = TypeVar("_Division", bound=SequenceDivision)
# A line of the program, and the compiler of device code in which its thread is there; None if it is in none.
_CallersPlace = tuple[StackFrame, DeviceCompiler | None]
# Time (ns) since calls at lines of the program, by the call stack of the next call.
_Left = dict[int, Counter[StackFrame | None]]
# Time (ns) at lines of the program by thread and function.
_PlacesOfCalls = dict[tuple[int, int], Counter[_CallersPlace]]


class _Caller(NamedTuple):
    """A line of the program that calls libraries, in a thread, and its share of the time between calls; ``compiler`` is
    the library if that compiles device code."""

    place: StackFrame
    thread: int
    share: float
    compiler: DeviceCompiler | None = None


def lines_of(
    samples: SampleSums,
    begin_ns: int,
    divided: Iterable[SequenceDivision] | None,
    stacks: Mapping[int, CallStack],
    leader: Callable[[int], int],
    ended: bool = False,
    roles: Set[int] = frozenset(),
) -> tuple[ProgramSequence, ...]:
    """The sequences of ``divided`` with their lines since ``begin_ns``, in their order; without a division each
    group of threads with one ``leader``, the one with most samples first.

    ``stacks`` are by their number in the file. ``ended``: the run has, and what followed the last work of a sequence is
    left out. ``roles`` are threads of libraries that have a role of their own, such as a backward pass: that of other
    threads without a line of the program belongs to the lines that called the library.
    """
    read = _Read(samples, begin_ns, stacks, ended, roles)
    if divided is not None:
        sequences = tuple(
            read.sequence(each)
            if not each.phases
            else _Read(samples, begin_ns, stacks, ended, roles, each.phases[0].times).sequence(each)
            for each in divided
        )
        passed_ns = max(samples.until_ns - begin_ns, 0)
        if any(sequence.growth for sequence in sequences):
            late = _Read(samples, begin_ns + passed_ns // 2, stacks, ended, roles)
            return tuple(_with_grown_line(sequence, late) for sequence in sequences)
        if ended and any(_may_grow(sequence) for sequence in sequences):
            later = [_Read(samples, begin_ns + passed_ns * third // 3, stacks, ended, roles) for third in (1, 2)]
            return tuple(_with_growing_line(each, *later) if _may_grow(each) else each for each in sequences)
        return sequences
    groups: dict[int, list[int]] = {}
    for thread in read.thread_ids:
        groups.setdefault(leader(thread), []).append(thread)
    alone = (read.sequence(SequenceDivision(threads=tuple(threads))) for threads in groups.values())
    return tuple(sorted(alone, key=lambda sequence: -sequence.samples))


def count_alike(division: SequenceDivision) -> bool:
    """True if the lines of a sequence are ordered by all of their time, not by their cost."""
    if division.verdict is not Bound.COPY:
        return division.verdict in _COUNT_ALIKE
    blocking = sum(waits.ns for waits in division.waits if family_of(waits.function) is CallFamily.COPY)
    return copies_always(division) and blocking < CAUSE_LIMIT * division.covered_ns


def copies_always(division: SequenceDivision) -> bool:
    """True if a sequence is copy-bound while the GPU always works: blocking copies then cost their time, other waits
    nothing."""
    return division.verdict is Bound.COPY and division.gpu.share >= GPU_LIMIT


def interval(ns: int, whole: SampleSum) -> Figure:
    """The share of ``ns`` in all samples, with Wilson's interval (95 %) for so many samples of different weights."""
    if not whole.ns:
        return Figure(0.0, 0.0, 1.0)
    share, count = min(ns / whole.ns, 1.0), whole.ns**2 / whole.squares
    square = _DEVIATIONS**2 / count
    middle = (share + square / 2) / (1 + square)
    width = _DEVIATIONS / (1 + square) * (share * (1 - share) / count + square / (4 * count)) ** 0.5
    return Figure(share, max(min(middle - width, share), 0.0), min(max(middle + width, share), 1.0))


def _with_grown_line(sequence: ProgramSequence, late: _Read) -> ProgramSequence:
    """A sequence whose growing step names the line that makes it grow, by the ``late`` half of the time."""
    growth = sequence.growth
    if growth is None:
        return sequence
    after = late.sequence(SequenceDivision(**attributes(sequence, SequenceDivision)))
    first_ns, last_ns = sequence.ns - after.ns, after.ns
    if min(first_ns, last_ns) <= 0:
        return sequence
    # The steps of each half take as long as those in its middle.
    factor: float = growth.last_ns / max(growth.first_ns, 1)
    early_step, late_step = growth.first_ns * factor**0.25, growth.first_ns * factor**0.75
    times = {line.place: line.share.share * last_ns for line in after.lines}
    changes = {
        line.place: times.get(line.place, 0.0) / last_ns * late_step
        - (line.share.share * sequence.ns - times.get(line.place, 0.0)) / first_ns * early_step
        for line in sequence.lines
        if line.place not in (None, PACKAGES, UNKNOWN_PYTHON)
    }
    whole = late_step - early_step
    place = max(changes, key=lambda each: changes[each] * whole, default=None)
    if place is None or changes[place] * whole < _LEAST_OF_GROWTH * whole**2:
        return sequence
    return sequence.changed(growth=growth.changed(place=place))


def _may_grow(sequence: ProgramSequence) -> bool:
    return not sequence.phases and sequence.growth is None and sequence.samples >= 3 * _LEAST_SAMPLES


def _with_growing_line(sequence: ProgramSequence, middle: _Read, late: _Read) -> ProgramSequence:
    """A sequence with the line that takes ever more of its time, by the sums of its last two thirds and of the last."""
    division = SequenceDivision(**attributes(sequence, SequenceDivision))
    read = sequence, middle.sequence(division), late.sequence(division)
    samples, ns = ([each.samples for each in read], [each.ns for each in read])
    if min(samples[0] - samples[1], samples[1] - samples[2], samples[2]) < _LEAST_SAMPLES:
        return sequence
    lines = [{line.place: line.share.share * each.ns for line in each.lines} for each in read]
    grown, place = _LEAST_GROWN, None
    for line in sequence.lines:
        times = [each.get(line.place, 0.0) for each in lines]
        first, second = ((times[at] - times[at + 1]) / max(ns[at] - ns[at + 1], 1) for at in (0, 1))
        last = times[2] / max(ns[2], 1)
        if line.place in (None, PACKAGES, UNKNOWN_PYTHON) or last - first < grown:
            continue
        if _is_even(first, second, last) or _is_even(*map(_odds, (first, second, last))):
            grown, place, shares = last - first, line.place, (first, second, last)
    if place is None:
        return sequence
    first, second, last = (min(max(share, 0.0), 1.0) for share in shares)
    return sequence.changed(growing=GrowingLine(place, (first, second, last)))


def _is_even(first: float, second: float, last: float) -> bool:
    return _EVENLY * (last - first) <= second - first <= (1 - _EVENLY) * (last - first)


def _odds(share: float) -> float:
    """The time of a line divided by the time of all other lines. It grows evenly even if the share of the line is close
    to 1."""
    return max(share, 0.0) / max(1 - share, _LEAST_OTHERS)


class _Read:
    """The sums of all threads since ``begin_ns``; only those of ``times`` (ns) since the process began, unless that is
    None."""

    def __init__(
        self,
        samples: SampleSums,
        begin_ns: int,
        stacks: Mapping[int, CallStack],
        ended: bool,
        roles: Set[int],
        times: Times | None = None,
    ) -> None:
        self._roles = roles
        # Long after the begin of a process, a period may be longer than a phase.
        within = None if times is None else samples.periods_in(times) or None
        self._functions, self._stacks, self._entered_before = samples.functions, stacks, samples.entered_before
        self._holders, self._left = samples.lock_holders, samples.left_before
        self._seconds = samples.seconds_since(begin_ns, within)
        self._sums: dict[int, list[_KeyedSum]] = {}
        for key, sample in samples.since(begin_ns, ended, within).items():
            self._sums.setdefault(key.thread, []).append((key, sample))
        self._held = samples.held_since(begin_ns, within)
        self._loads = samples.calls_since(begin_ns, ended, within, lambda key: key.kind == int(CallKind.LOADS))
        self._host_functions = samples.calls_since(begin_ns, ended, within, self._calls_host)
        self._waits: dict[int, dict[SampleKey, float]] = {}
        for key, calls in samples.waits_since(begin_ns, ended, within).items():
            self._waits.setdefault(key.thread, {})[key] = calls

    def _calls_host(self, key: SampleKey) -> bool:
        return self._functions.get(key.function, "").startswith(HOST_FUNCTIONS)

    @property
    def thread_ids(self) -> Iterable[int]:
        """The threads with samples."""
        return self._sums

    def sequence(self, division: SequenceDivision) -> ProgramSequence:
        """A sequence with its lines."""
        threads = division.threads
        division = _with_host_functions(division, sum(map(self._host_functions.__getitem__, threads)))
        functions, stacks = self._functions, self._stacks
        mine = [each for thread in dict.fromkeys(threads) for each in self._sums.get(thread, ())]
        places: dict[StackFrame | None, _LineSum] = {}
        prices = {waits.function: division.price.share * waits.share for waits in division.waits}
        waited: Counter[str] = Counter()
        whole = NO_SUM
        for key, sample in mine:
            whole = whole.plus(sample)
            if key.kind in WAITING:
                waited[functions.get(key.function, "")] += sample.ns
        calls = {key: made for thread in threads for key, made in self._waits.get(thread, {}).items()}
        waits = {key: WaitSum(made) for key, made in calls.items()}
        by_time, copies = count_alike(division), copies_always(division)
        callers, does = self._callers(mine), self._does(mine)
        places_of_calls = self._places_of_calls(mine)
        entered = partial(self._entered, places_of_calls)
        for key, sample in self._placed(mine):
            price, function = 0.0, functions.get(key.function, "")
            if key.kind in WAITING and sample.ns:
                price = prices.get(function, 0.0) * sample.ns / waited[function]
                waits.setdefault(key, WaitSum()).add(0.0, sample.ns, price)
            all_of_it = by_time or key.kind not in WAITING or (copies and family_of(function) is CallFamily.COPY)
            cost_ns = sample.ns if all_of_it else round(price * whole.ns)
            place, doing = place_of(stacks.get(key.stack)), does(key)
            if place != PACKAGES or key.thread in self._roles or not callers:
                places.setdefault(place, _LineSum()).add(key, sample, price, cost_ns, doing)
                continue
            for caller in entered(key) or callers:
                line = places.setdefault(caller.place, _LineSum())
                part = sample.times(caller.share)
                mine_ns = round(cost_ns * caller.share)
                doing = doing[0] or caller.compiler, doing[1]
                line.add(key._replace(thread=caller.thread), part, price * caller.share, mine_ns, doing)
        holders: Counter[int] = Counter()
        own_locks: Counter[int] = Counter()
        for (holder, number), ns in self._holders(threads).items():
            if holder <= STACKS:
                holders[holder] += ns
                continue
            own_locks[holder - STACKS] += ns
            if (waiting := places.get(place_of(stacks.get(number)))) is not None:
                waiting.own_lock_ns += ns
        left = self._left_lines(threads, places_of_calls)
        lines = [_line(place, line, whole, functions, stacks, left) for place, line in places.items()]
        lines.sort(key=lambda line: (-line.cost.share, -line.share.share, order(line.place)))
        own_lock = min(sum(line.own_lock for line in lines), 1.0)
        division = _with_lock(with_compilers(division, lines), own_lock)
        return ProgramSequence(
            **attributes(division, SequenceDivision),
            samples=whole.samples,
            ns=whole.ns,
            loads_per_second=sum(map(self._loads.__getitem__, threads)) / self._seconds if self._seconds else 0.0,
            lines=tuple(lines[:MOST_LINES]),
            wait_places=wait_places(waits, whole.ns, self._seconds, functions, stacks),
            holding=tuple(self._holding(threads)),
            lock_holders=self._lock_holders(holders) if _waits_for_python(division) else (),
            own_lock=own_lock,
            own_lock_holders=self._lock_holders(own_locks),
            tasks=tuple(_tasks(places, whole.ns)),
        )

    def _does(self, mine: Iterable[_KeyedSum]) -> Callable[[SampleKey], _Does]:
        """What threads do in libraries beside the program's own work, by the keys of their samples."""
        # Between calls, the frames may be those of Python alone: what all calls of the function with the same frames of
        # Python are part of has the time before them there.
        tasks: dict[tuple[tuple[StackFrame, ...], int], set[LibraryTask | None]] = {}
        frees: set[StackFrame | None] = set()
        for key, _ in mine:
            stack = self._stacks.get(key.stack)
            if stack is not None and stack.native:
                task = self._task(stack, key)
                tasks.setdefault((stack.python, key.function), set()).add(task)
                # Where memory is freed in order to allocate, what is allocated was freed before.
                frees |= {place_of(stack)} if task is LibraryTask.CACHE_FREE else set()

        def does(key: SampleKey) -> _Does:
            stack = self._stacks.get(key.stack)
            if stack is None:
                return NOTHING_ELSE
            task = self._task(stack, key)
            if frees and key.kind == int(CallKind.ALLOCATES) and place_of(stack) in frees:
                task = LibraryTask.CACHE_FREE
            if task is None and key.kind == BETWEEN and not stack.native:
                found = tasks.get((stack.python, key.function), set())
                task = next(iter(found)) if len(found) == 1 else None
            return stack.compiler, task

        return does

    def _task(self, stack: CallStack, key: SampleKey) -> LibraryTask | None:
        return stack.task if stack.task is not None and is_part(stack.task, self._name(key.function)) else None

    def _lock_holders(self, holders: Mapping[int, int]) -> tuple[LockHolder, ...]:
        """Where other threads have a lock, by how long (ns) they have it with each stack."""
        places: Counter[StackFrame] = Counter()
        for number, ns in holders.items():
            stack = self._stacks.get(number)
            if stack is not None and stack.python:
                places[place_of(stack) or stack.python[0]] += ns
        whole = max(places.total(), 1)
        most = sorted(places.items(), key=lambda item: (-item[1], order(item[0])))[:_MOST_HOLDERS]
        return tuple(LockHolder(place, ns / whole) for place, ns in most)

    def _placed(self, mine: Iterable[_KeyedSum]) -> Iterator[_KeyedSum]:
        """Sums of some threads; sums without a stack are spread over the stacks of the same thread, function and sort
        of time: a stack was too expensive at some moment, which is no evidence of its place."""
        placed: dict[SampleKey, list[_KeyedSum]] = {}
        unplaced = []
        for key, sample in mine:
            if place_of(self._stacks.get(key.stack)) is None:
                unplaced.append((key, sample))
                continue
            placed.setdefault(key.without_stack, []).append((key, sample))
            yield key, sample
        for key, sample in unplaced:
            others = placed.get(key.without_stack, [])
            whole = sum(sums.ns for _, sums in others)
            if sum(sums.samples for _, sums in others) < _LEAST_KNOWN or not whole:
                yield key, sample
                continue
            for other, sums in others:
                yield other, sample.times(sums.ns / whole)

    def _callers(self, mine: Iterable[_KeyedSum]) -> list[_Caller]:
        """Lines of the program before whose calls the threads of a sequence spend their time, with their shares."""
        times: dict[StackFrame, Counter[int]] = {}
        for key, sample in mine:
            place = place_of(self._stacks.get(key.stack)) if key.kind == BETWEEN else None
            if place not in (None, PACKAGES, UNKNOWN_PYTHON):
                times.setdefault(place, Counter())[key.thread] += sample.ns
        whole = sum(ns.total() for ns in times.values())
        return [
            _Caller(place, ns.most_common(1)[0][0], ns.total() / whole) for place, ns in times.items() if ns.total()
        ]

    def _places_of_calls(self, mine: Iterable[_KeyedSum]) -> _PlacesOfCalls:
        """How long (ns) a thread spent at each line of the program in and before calls of a function."""
        times: _PlacesOfCalls = {}
        for key, sample in mine:
            stack = self._stacks.get(key.stack)
            place = place_of(stack)
            if stack is not None and place is not None and place not in (PACKAGES, UNKNOWN_PYTHON):
                compiler = stack.compiler if key.kind == BETWEEN else None
                times.setdefault((key.thread, key.function), Counter())[place, compiler] += sample.ns
        return times

    def _entered(self, places: _PlacesOfCalls, key: SampleKey) -> list[_Caller]:
        """The lines by which other threads entered the library before samples of one of its threads."""
        found: dict[_CallersPlace, Counter[int]] = {}
        for call, ns in self._entered_before(key.thread, key.stack).items():
            lines = places.get(call, Counter())
            for place, time_ns in lines.items():
                found.setdefault(place, Counter())[call[0]] += round(ns * time_ns / max(lines.total(), 1))
        whole = sum(times.total() for times in found.values())
        return [
            _Caller(place, times.most_common(1)[0][0], times.total() / whole, compiler)
            for (place, compiler), times in found.items()
            if times.total()
        ]

    def _left_lines(self, threads: Collection[int], places: _PlacesOfCalls) -> _Left:
        """By call stacks: how long (ns) samples between calls stand for since calls at lines of the program; None for
        those of functions that are called at several lines."""
        left: _Left = {}
        for (thread, stack, function), ns in self._left.items():
            if thread in threads:
                lines: Counter[StackFrame | None] = Counter()
                for (place, _), time_ns in places.get((thread, function), Counter()).items():
                    lines[place] += time_ns
                left.setdefault(stack, Counter())[_most(lines)] += ns
        return left

    def _holding(self, threads: tuple[int, ...]) -> list[HoldingCalls]:
        """The calls of other threads that hold up calls of some threads."""
        sums: dict[FunctionCalls, HeldSum] = {}
        held: dict[FunctionCalls, Counter[int]] = {}
        for (holder, (thread, function)), held_calls in self._held.items():
            if thread in threads:
                before = sums.get(holder, HeldSum())
                sums[holder] = HeldSum(before.calls + held_calls.calls, before.ns + held_calls.ns)
                held.setdefault(holder, Counter())[function] += held_calls.calls
        holding = [
            HoldingCalls(
                thread=holder.thread,
                function=self._name(holder.function),
                place=self._place_of(holder),
                held=self._name(held[holder].most_common(1)[0][0]),
                calls=total.calls,
                per_second=total.calls / self._seconds if self._seconds else 0.0,
                share=min(total.ns / 1e9 / self._seconds, 1.0) if self._seconds else 0.0,
            )
            for holder, total in sums.items()
        ]
        return sorted(holding, key=lambda calls: (-calls.share, calls.thread, calls.function))

    def _place_of(self, holder: FunctionCalls) -> StackFrame | None:
        """The line with most of the time of a thread inside or before calls of a function."""
        times: Counter[int] = Counter()
        for key, sample in self._sums.get(holder.thread, ()):
            if key.function == holder.function and key.stack:
                times[key.stack] += sample.ns
        return place_of(self._stacks.get(times.most_common(1)[0][0])) if times else None

    def _name(self, function: int) -> str:
        return self._functions.get(function, f"function {function}")


def _tasks(places: Mapping[StackFrame | None, _LineSum], whole_ns: int) -> Iterator[TaskTime]:
    """The tasks of libraries beside the program's own work, the one that costs most first."""
    costs: Counter[LibraryTask] = Counter()
    for line in places.values():
        costs.update(line.tasks)
    for task, cost_ns in costs.most_common():
        place, most = max(places.items(), key=lambda item: item[1].tasks[task])
        if whole_ns and cost_ns >= _LEAST_TASK * whole_ns:
            yield TaskTime(
                task=task,
                cost=min(cost_ns / whole_ns, 1.0),
                place=place,
                place_share=most.tasks[task] / cost_ns,
                thread=most.threads.most_common(1)[0][0],
            )


def _waits_for_python(division: SequenceDivision) -> bool:
    """True if a sequence waits for Python's global lock, or for another thread, which may run Python meanwhile."""
    return division.interpreter >= _LEAST_WAITING or division.verdict is Bound.THREAD


def with_compilers(division: _Division, lines: Iterable[ProgramLine]) -> _Division:
    """A division that is host-bound where compilers of device code take most of the host's time at its ``lines``.

    Sleep in a compiler, for its processes or threads, is no sleep for data.
    """
    gain = division.price.share if division.verdict is Bound.WAIT else 0.0
    compiles = sum(line.compiles for line in lines)
    verdict, second = because_of_host(division.verdict, division.second, compiles, gain, division.gpu.share)
    return division if verdict is division.verdict else _with_verdict(division, verdict, second)


def _with_lock(division: SequenceDivision, own_lock: float) -> SequenceDivision:
    """A division that is bound by another thread where it sleeps for most of the time without GPU work, since it waits
    for a lock of the program for the share ``own_lock`` of its time: also a thread that sleeps has a lock."""
    if division.verdict is not Bound.ASLEEP or own_lock < max(CAUSE_LIMIT, (1 - division.gpu.share) / 2):
        return division
    return _with_verdict(division, Bound.THREAD, division.second)


def _with_host_functions(division: SequenceDivision, calls: int) -> SequenceDivision:
    """A division that is bound by the functions of the host which its GPU work calls in ``calls`` calls: where the time
    between its operations is longer than the GPU needs, or where about each copy that blocks has such a function, and
    takes far longer than its work."""
    between_ns, blocking_ns = (division.parts.get(part, 0) for part in (Part.BETWEEN, Part.COPY))
    copies = sum(wait.calls for wait in division.waits if family_of(wait.function) is CallFamily.COPY)
    held = {
        Bound.GAPS: between_ns >= _LEAST_HELD_NS * division.operations
        and calls >= _LEAST_HOST_FUNCTIONS * division.operations,
        Bound.COPY: 2 * calls >= copies
        and blocking_ns >= max(_LEAST_HELD_NS * copies, _MUCH_LONGER * division.parts.get(Part.COPIES, 0)),
    }
    if not calls or not held.get(division.verdict, False):
        return division
    return _with_verdict(division, Bound.HELD, None if division.second is Bound.GPU else division.second)


def _with_verdict(division: _Division, verdict: Bound, second: Bound | None) -> _Division:
    phases = tuple(phase.changed(verdict=verdict, second=second) for phase in division.phases[:1])
    return division.changed(verdict=verdict, second=second, phases=(*phases, *division.phases[1:]))


def _most(lines: Counter[StackFrame | None]) -> StackFrame | None:
    """The line with nearly all of the time; None without one."""
    return next((line for line, ns in lines.items() if ns >= _NEARLY_ALL * lines.total()), None)


def _line(
    place: StackFrame | None,
    line: _LineSum,
    whole: SampleSum,
    functions: Mapping[int, str],
    stacks: Mapping[int, CallStack],
    left: _Left,
) -> ProgramLine:
    stack = stacks.get(line.stacks.most_common(1)[0][0])
    if place == PACKAGES and stack is not None and stack.place is not None:
        place = stack.place.changed(function="", offset=None)
    share, cost = interval(line.whole.ns, whole), line.costs.total() / whole.ns if whole.ns else 0.0
    # What waits cost is known apart from the number of samples.
    scale = cost / share.share if share.share else 0.0
    between = _time(line, _BETWEEN, whole, functions)
    since = None
    if place is not None and place.kind is FrameKind.NATIVE:
        since = _most(sum((left.get(number, Counter()) for number in line.stacks), Counter()))
    return ProgramLine(
        place=place,
        stack=stack,
        thread=line.threads.most_common(1)[0][0],
        samples=line.whole.samples,
        share=share,
        cost=Figure(*(min(scale * bound, 1.0) for bound in (share.share, share.low, share.high))),
        waits=_time(line, _WAITS, whole, functions),
        calls=_time(line, _CALLS, whole, functions),
        between=between,
        since=since if since != place else None,
        compiles=line.compiles.total() / whole.ns if whole.ns else 0.0,
        compiler=line.compiles.most_common(1)[0][0] if line.compiles else None,
        own_lock=min(line.own_lock_ns / whole.ns, between.share) if whole.ns else 0.0,
        tasks={task: min(ns / whole.ns, 1.0) for task, ns in line.tasks.items()} if whole.ns else {},
        price=min(line.price, 1.0),
        inner=_inner(line, whole, stacks),
    )


def _inner(line: _LineSum, whole: SampleSum, stacks: Mapping[int, CallStack]) -> tuple[InnerPlace, ...]:
    """Most expensive innermost frames at a line; none if the line itself is the only one."""
    costs: Counter[StackFrame] = Counter()
    for number, cost_ns in line.costs.items():
        stack = stacks.get(number)
        if stack is not None and stack.own:
            costs[innermost(stack)] += cost_ns
    least = max(_LEAST_INNER * line.costs.total(), 1)
    most = sorted(costs.items(), key=lambda item: (-item[1], order(item[0])))[:_MOST_INNER]
    inner = tuple(InnerPlace(place=frame, cost=min(ns / whole.ns, 1.0)) for frame, ns in most if ns >= least)
    places = {place_of(stacks.get(number)) for number in line.costs}
    return inner if any(each.place not in places for each in inner) else ()


def _time(line: _LineSum, sort: int, whole: SampleSum, functions: Mapping[int, str]) -> LineTime:
    times = Counter({function: ns for (kind, function), ns in line.times.items() if kind == sort})
    if not times:
        return LineTime()
    function = times.most_common(1)[0][0]
    return LineTime(share=times.total() / whole.ns, function=functions.get(function, f"function {function}"))


def _sort_of(key: SampleKey) -> int:
    if key.kind == BETWEEN:
        return _BETWEEN
    return _WAITS if key.kind in WAITING else _CALLS
