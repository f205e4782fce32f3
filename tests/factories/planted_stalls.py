"""Checks of the simulated GPU with a stall planted in one cell, for what must find it and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from factories.virtual_session import virtual_sessions
from stallprobes.catalog.host import HOST
from stallprobes.engine.backend import Options
from stallprobes.engine.board import Board
from stallprobes.engine.sim.backend import SimBackend
from stallprobes.engine.sim.clock import Call, Clock
from stallprobes.engine.sim.sampling import QUANTILES, RandomStream
from stallprobes.matrix.check import runner
from stallprobes.matrix.check.plan import Plan
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import Change, Comparison
from stallprobes.matrix.matrix import QUIET, Matrix, Status
from stallprobes.model import Channel, Phase, Probe
from stallprobes.native.layouts.board import ProbeWords

# Half of what is less than this is less than the microsecond from which on a comparison calls a tail another one.
LEAST_P99_NS = 2_000
# With fewer calls in a cell nobody can tell what 1 in 100 of them does.
LEAST_CALLS = 400
TIMES = 1.5
# 1 call in so many is stalled.
EVERY = 20


@dataclass(frozen=True)
class InjectionPoint:
    """Where a stall can be planted: a cell, a phase, and the p99 (ns) that it has there."""

    row: str
    column: str
    phase: Phase
    p99_ns: float

    @property
    def at_least_ns(self) -> int:
        """How long a stalled call takes: ``TIMES`` the p99, which then is the p99."""
        return round(TIMES * self.p99_ns)


class StallingGpu(SimBackend):
    """A simulated GPU with a stall in ``place``: of random calls of the victim while the aggressor is on."""

    def __init__(self, place: InjectionPoint) -> None:
        super().__init__()
        self._place = place

    def prepare(self, probes: Sequence[Probe], board: Board, options: Options) -> dict[str, object]:
        """Make the threads, and stall the victim's calls."""
        info = super().prepare(probes, board, options)
        place, threads = self._place, {thread.probe.name: thread for thread in self._threads}
        if {place.row, place.column} <= threads.keys():
            victim, aggressor = threads[place.row], board[place.column].words
            row = victim.probe.program.channels.index(Channel(place.phase))
            clock, numbers = victim.host.clock, victim.host.random
            for at, (number, each, call, count) in enumerate(victim._calls):
                if each.channel == row:
                    stalled = partial(_stalled, call, place.at_least_ns, aggressor, clock, numbers)
                    victim._calls[at] = (number, each, stalled, count)
        return info


def _stalled(
    call: Callable[[], Call], at_least_ns: int, aggressor: ProbeWords, clock: Clock, numbers: RandomStream
) -> Call:
    began = clock.now
    result = yield from call()
    if aggressor.run and numbers.next_number() * EVERY < QUANTILES and clock.now - began < at_least_ns:
        yield at_least_ns - (clock.now - began)
    return result


def places(matrix: Matrix) -> list[InjectionPoint]:
    """All the places of ``matrix`` with calls enough and long enough."""
    found = []
    for (row, column), cell in matrix.cells.items():
        if column == QUIET or row == HOST or cell.status is not Status.OK:
            continue
        for phase in (Phase.CALL, Phase.WAIT):
            seen = cell.channels.get(Channel(phase))
            p99_ns = None if seen is None else seen.percentile(99)
            if seen is not None and p99_ns is not None and seen.count >= LEAST_CALLS and p99_ns >= LEAST_P99_NS:
                found.append(InjectionPoint(row, column, phase, p99_ns))
    return found


def measured(plan: Plan, seed: int, place: InjectionPoint | None = None) -> Matrix:
    """A check of the simulated GPU, with a stall in ``place``."""
    with virtual_sessions(SimBackend if place is None else partial(StallingGpu, place)):
        return runner.run(plan, backend="sim", options=Options(seed=seed), seed=seed)


@dataclass(frozen=True)
class Outcome:
    """What a comparison said: whether it found the planted cell, and which others it called changed."""

    found: bool
    others: tuple[tuple[str, str], ...]


def outcome(comparison: Comparison, place: InjectionPoint | None) -> Outcome:
    """What ``comparison`` says of ``place`` and of all the rest."""
    changed = {
        (cell.row, cell.column): cell.change
        for cell in comparison.cells
        if cell.change in (Change.WORSE, Change.BETTER)
    }
    where = None if place is None else (place.row, place.column)
    return Outcome(
        found=where is not None and changed.get(where) is Change.WORSE,
        others=tuple(key for key in changed if key != where),
    )


def planted(plan: Plan, old: Matrix, seed: int) -> tuple[InjectionPoint, Outcome]:
    """One seed's place, and what comparing with ``old`` says of a check with a stall there."""
    place = random.Random(seed).choice(places(old))
    return place, outcome(compare(old, measured(plan, seed, place)), place)
