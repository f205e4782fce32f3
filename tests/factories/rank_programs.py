"""Ranks of a job that communicate, simulated: what each one's calls, kernels and samples of time would be.

A rank is a host thread, a stream for its kernels, and one for each communicator. A collective begins on a rank once it
is submitted and the kernels in front of it have ended, and ends on all ranks when data has moved since the last one
began.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

BEGIN_NS = 100_000_000_000
MS, US = 1_000_000, 1_000
LAUNCH, SYNC, SYNC_ALL, ALLOC = "cuLaunchKernel", "cuStreamSynchronize", "cuCtxSynchronize", "cuMemAlloc_v2"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
# A launch, and from its return to the start of its kernel.
_LAUNCH_NS, _START_NS = 5 * US, 4 * US
_COMPUTE_STREAM, _FIRST_STREAM = 7, 20
WORLD = "world"


@dataclass(frozen=True)
class Host:
    """Work of the host at a line, before the next call."""

    ns: int
    line: int = 31


@dataclass(frozen=True)
class Kernel:
    """A kernel."""

    ns: int
    name: str = "_Z4gemmPf"
    line: int = 32


@dataclass(frozen=True)
class Reduce:
    """A collective in which data moves for ``ns``; ``waited``: later kernels wait for its end."""

    ns: int
    communicator: str = WORLD
    name: str = ALL_REDUCE
    waited: bool = True
    line: int = 33


@dataclass(frozen=True)
class Sync:
    """The host waits for its kernels, by a call for its stream or for all."""

    line: int = 34
    function: str = SYNC


@dataclass(frozen=True)
class Call:
    """A call that blocks the host."""

    ns: int
    function: str = ALLOC
    line: int = 35


Action = Host | Kernel | Reduce | Sync | Call
# The actions of a step by rank and number of the step.
Program = Callable[[int, int], Sequence[Action]]


class MadeCall(NamedTuple):
    """A call with the line that made it."""

    function: str
    begin_ns: int
    end_ns: int
    correlation: int
    line: int


class MadeKernel(NamedTuple):
    """A kernel with its stream, and the number of its launch."""

    name: str
    start_ns: int
    end_ns: int
    stream: int
    correlation: int


class MadeSample(NamedTuple):
    """A sample of the time from ``since_ns`` to ``at_ns``, ``between`` calls or inside one of ``function``."""

    function: str
    since_ns: int
    at_ns: int
    between: bool
    line: int


@dataclass
class RankRun:
    """What a rank did."""

    number: int
    calls: list[MadeCall] = field(default_factory=list)
    kernels: list[MadeKernel] = field(default_factory=list)
    samples: list[MadeSample] = field(default_factory=list)
    end_ns: int = BEGIN_NS

    def without(self, *spans: tuple[float, float]) -> RankRun:
        """The run without records of kernels that ended in some spans (s since the begin)."""
        times = [(BEGIN_NS + round(begin * 1e9), BEGIN_NS + round(end * 1e9)) for begin, end in spans]
        kept = [one for one in self.kernels if not any(begin <= one.end_ns < end for begin, end in times)]
        return RankRun(self.number, self.calls, kept, self.samples, self.end_ns)

    def since(self, seconds: float) -> RankRun:
        """The run as if it was attached later."""
        first = BEGIN_NS + round(seconds * 1e9)
        return RankRun(
            self.number,
            [one for one in self.calls if one.begin_ns >= first],
            [one for one in self.kernels if one.start_ns >= first],
            [one for one in self.samples if one.since_ns >= first],
            self.end_ns,
        )

    def until(self, at_ns: int) -> RankRun:
        """The run as far as it is known at a time."""
        return RankRun(
            self.number,
            [one for one in self.calls if one.end_ns <= at_ns],
            [one for one in self.kernels if one.end_ns <= at_ns],
            [one for one in self.samples if one.at_ns <= at_ns],
            at_ns,
        )


# What a rank waits for: its communicator, when it began, how long data moves.
_Arrival = tuple[str, int, int]


class _Rank:
    """One rank of a program."""

    def __init__(self, number: int, program: Program, steps: int, streams: Mapping[str, int], offset_ns: int) -> None:
        self.run = RankRun(number)
        self._program, self._steps, self._streams = program, steps, streams
        self._offset_ns = offset_ns
        self._now = BEGIN_NS + 10 * MS
        self._free = dict.fromkeys((WORLD, *streams), 0)
        self._compute = 0
        self._correlation = 0
        self._between: list[tuple[int, int, int]] = []

    def steps(self) -> Generator[_Arrival, int, None]:
        """Runs; at each collective it asks when that ends."""
        for step in range(self._steps):
            for action in self._program(self.run.number, step):
                yield from self._do(action)
        self.run.end_ns = self._now + MS

    def _do(self, action: Action) -> Generator[_Arrival, int, None]:
        match action:
            case Host():
                self._between.append((self._now, self._now + action.ns, action.line))
                self._now += action.ns
            case Kernel():
                start = max(self._call(LAUNCH, _LAUNCH_NS, action.line) + _START_NS, self._compute)
                self._compute = start + action.ns
                self._kernel(action.name, start, self._compute, _COMPUTE_STREAM)
            case Reduce():
                returned = self._call(LAUNCH, _LAUNCH_NS, action.line)
                start = max(returned + _START_NS, self._compute, self._free[action.communicator])
                correlation = self._correlation
                end = yield action.communicator, start, action.ns
                self._free[action.communicator] = end
                self._kernel(action.name, start, end, self._streams[action.communicator], correlation)
                if action.waited:
                    self._compute = max(self._compute, end)
            case Sync():
                self._call(action.function, max(self._compute - self._now, 0) + 3 * US, action.line)
            case Call():
                self._call(action.function, action.ns, action.line)

    def _call(self, function: str, ns: int, line: int) -> int:
        begin = self._now
        self.run.samples += [MadeSample(function, since, at, True, of) for since, at, of in self._between]
        self._between.clear()
        self._correlation += 1
        self._now = begin + ns
        self.run.calls.append(MadeCall(function, begin, self._now, self._correlation, line))
        self.run.samples.append(MadeSample(function, begin, self._now, False, line))
        return self._now

    def _kernel(self, name: str, start: int, end: int, stream: int, correlation: int | None = None) -> None:
        number = self._correlation if correlation is None else correlation
        self.run.kernels.append(MadeKernel(name, start + self._offset_ns, end + self._offset_ns, stream, number))


def run_ranks(
    program: Program,
    ranks: int = 2,
    steps: int = 400,
    communicators: Mapping[str, Sequence[int]] | None = None,
    offsets_ns: Sequence[int] = (),
    seed: int = 1,
) -> list[RankRun]:
    """What each of ``ranks`` does in ``steps`` of a program.

    ``communicators`` are their ranks by name, by default all of them in one. ``offsets_ns`` are the errors with which
    the times of each rank's kernels are converted. A collective ends on each rank up to 3 us after it could.
    """
    members = {WORLD: range(ranks)} | dict(communicators or {})
    streams = {name: _FIRST_STREAM + number for number, name in enumerate(members)}
    random = np.random.default_rng(seed)
    offsets = [*offsets_ns, *[0] * (ranks - len(offsets_ns))]
    every = [_Rank(number, program, steps, streams, offsets[number]) for number in range(ranks)]
    running = {one.run.number: one.steps() for one in every}
    arrived: dict[int, _Arrival] = {}
    ends: dict[int, int | None] = dict.fromkeys(running)
    while running:
        for number in [number for number in running if number not in arrived]:
            try:
                end = ends.pop(number)
                arrived[number] = next(running[number]) if end is None else running[number].send(end)
            except StopIteration:
                del running[number]
        for name, of in members.items():
            here = [number for number in of if number in arrived and arrived[number][0] == name]
            if here and len(here) == len(of):
                last = max(arrived[number][1] for number in here)
                for number in here:
                    _, start, ns = arrived.pop(number)
                    ends[number] = max(last + ns, start) + int(random.integers(0, 3 * US))
        if arrived and len(arrived) == len(running) and not any(number in ends for number in running):
            raise ValueError(f"the ranks wait for each other: {arrived}")
    return [one.run for one in every]
