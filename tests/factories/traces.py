"""Traces of the simulated GPU in this process, in virtual time, and histories fed from it."""

from __future__ import annotations

from collections.abc import Sequence

from factories.simulated_machine import SimulatedMachine, machine
from stallprobes.engine.timeline.reader import read_rows
from stallprobes.model import MS, Probe
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.trace import Trace

READ_EVERY_NS = 50 * MS
START_NS = 250 * MS
WALL_S = 1_770_000_000.0


def traced_machine(*probes: Probe, **options: object) -> SimulatedMachine:
    """A simulated machine with the timeline on and all probes running."""
    made = machine(*probes, **options)
    made.backend.switch_timeline(True)
    made.switch(True)
    return made


def advance(made: SimulatedMachine, history: TraceHistory, ns: int) -> None:
    """Advance the simulation, and feed the history as a live reader does."""
    while ns > 0:
        made.advance(min(ns, READ_EVERY_NS))
        ns -= READ_EVERY_NS
        status = made.backend.timeline()
        assert status is not None
        rows = read_rows(made.board, history.position, status)
        history.feed(rows, WALL_S + rows.at_ns / 1e9)


def simulated_trace(*probes: Probe, ns: int = 50 * MS, **options: object) -> Trace:
    """The trace of ``ns`` of ``probes`` on a simulated GPU, after the start of all probes."""
    made = traced_machine(*probes, **options)
    history = history_of(made.probes)
    advance(made, history, START_NS + ns)
    end_ns = history.collected_ns
    return history.trace(end_ns - ns, end_ns, snapshot=made.board.snapshot())


def history_of(probes: Sequence[Probe]) -> TraceHistory:
    """An empty history of a simulated GPU."""
    return TraceHistory(probes, simulated=True)
