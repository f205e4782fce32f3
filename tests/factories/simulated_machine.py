"""A simulated machine in this process: its probes, its virtual time, and the board that they fill."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stallprobes.engine.backend import Options, ProbeFailure
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.sim.backend import SimBackend
from stallprobes.engine.snapshot import ProbeSnapshot
from stallprobes.latency.window import Window
from stallprobes.model import PRIMARY, Channel, Context, Op, Phase, Probe, Program, Role

MS = 1_000_000
SECOND = 1_000_000_000
CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)


class SimulatedMachine:
    """Probes on a simulated machine, all parked at first."""

    def __init__(self, probes: Sequence[Probe], options: Options) -> None:
        self.probes = tuple(probes)
        self.board = Board.create(BoardLayout.of(self.probes))
        self.backend = SimBackend()
        self.info = self.backend.prepare(self.probes, self.board, options)
        self.backend.start()
        self.probe_failures: list[ProbeFailure] = []

    def switch(self, on: bool, names: Iterable[str] | None = None) -> None:
        for name in names if names is not None else [probe.name for probe in self.probes]:
            self.board[name].words.run = int(on)

    def set_period(self, name: str, period_ns: int) -> None:
        self.board[name].words.period_ns = period_ns

    def advance(self, ns: int) -> None:
        self.backend.advance(ns)
        self.probe_failures += self.backend.poll()

    def window(self, ns: int) -> dict[str, Window]:
        """The windows of all probes over the next ``ns``."""
        before = self.board.snapshot()
        self.advance(ns)
        return self.board.snapshot().minus(before)

    def run(self, ns: int = SECOND) -> dict[str, Window]:
        """Everything on; the windows of ``ns`` after a start of 100 ms."""
        self.switch(True)
        self.advance(100 * MS)
        return self.window(ns)


def p50_us(part: ProbeSnapshot | Window, channel: Channel = CALL) -> float:
    """Median of a channel, µs."""
    return at_us(part, 50, channel)


def at_us(part: ProbeSnapshot | Window, q: float, channel: Channel = CALL) -> float:
    """Percentile ``q`` of a channel, µs; AssertionError if the window has no sample."""
    value = part.channels[channel].percentile(q)
    assert value is not None, f"there is no {channel.phase} in the window"
    return value / 1000


def program_probe(
    name: str, ops: Sequence[Op], context: Context | None = PRIMARY, period_ns: int = MS, **parts: object
) -> Probe:
    """A probe whose program is in no catalog entry."""
    program = Program(ops=tuple(ops), context=context, **parts)  # type: ignore[arg-type]
    return Probe(name, name, Role.VICTIM, program, period_ns, entry=name)


def machine(*probes: Probe, **options: object) -> SimulatedMachine:
    """A machine with ``probes``; ``options`` are fields of Options."""
    return SimulatedMachine(probes, Options(**options))  # type: ignore[arg-type]
