"""A simulated machine in this process: probes on it, time that passes when told, and the board they fill."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from stallprobes.engine.backend import Options, ProbeFailure
from stallprobes.engine.board import PERIOD_NS, RUN, Board, Layout, ProbeSnapshot, Snapshot
from stallprobes.engine.sim.backend import SimBackend
from stallprobes.model import PRIMARY, Channel, Context, Op, Phase, Probe, Program, Role

MS = 1_000_000
SECOND = 1_000_000_000
CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)


class Bench:
    """Probes on a simulated machine, all parked at first."""

    def __init__(self, probes: Sequence[Probe], options: Options) -> None:
        self.probes = tuple(probes)
        self.board = Board.create(Layout.of(self.probes))
        self.backend = SimBackend()
        self.info = self.backend.prepare(self.probes, self.board, options)
        self.backend.start()
        self.probe_failures: list[ProbeFailure] = []

    def switch(self, on: bool, names: Iterable[str] | None = None) -> None:
        for name in names if names is not None else [probe.name for probe in self.probes]:
            self.board[name].words[RUN] = int(on)

    def set_period(self, name: str, period_ns: int) -> None:
        self.board[name].words[PERIOD_NS] = period_ns

    def advance(self, ns: int) -> None:
        self.backend.advance(ns)
        self.probe_failures += self.backend.poll()

    def window(self, ns: int) -> Snapshot:
        """What happens in the next ``ns``."""
        before = self.board.snapshot()
        self.advance(ns)
        return self.board.snapshot().minus(before)

    def run(self, ns: int = SECOND) -> Snapshot:
        """Everything on; the window of ``ns`` after a start of 100 ms."""
        self.switch(True)
        self.advance(100 * MS)
        return self.window(ns)


MakeBench = Callable[..., Bench]


@pytest.fixture
def bench() -> MakeBench:
    """Makes a bench of probes; further arguments are fields of Options."""

    def make(*probes: Probe, **options: object) -> Bench:
        return Bench(probes, Options(**options))  # type: ignore[arg-type]

    return make


def p50_us(part: ProbeSnapshot, channel: Channel = CALL) -> float:
    return at_us(part, 50, channel)


def at_us(part: ProbeSnapshot, q: float, channel: Channel = CALL) -> float:
    value = part.channels[channel].percentile(q)
    assert value is not None, f"{part.name} has no {channel.phase} in the window"
    return value / 1000


def program_probe(
    name: str, ops: Sequence[Op], context: Context | None = PRIMARY, period_ns: int = MS, **parts: object
) -> Probe:
    """A probe of a program that is in no catalogue."""
    program = Program(ops=tuple(ops), context=context, **parts)  # type: ignore[arg-type]
    return Probe(name, name, Role.VICTIM, program, period_ns, entry=name)


class Helpers:
    """The functions above, for tests that get them by fixture."""

    p50 = staticmethod(p50_us)
    at = staticmethod(at_us)
    probe = staticmethod(program_probe)
    call, wait = CALL, WAIT


@pytest.fixture
def us() -> type[Helpers]:
    """How tests read figures: ``us.p50(part, lane)`` and ``us.at(part, q, lane)`` in us; ``us.probe`` makes probes."""
    return Helpers
