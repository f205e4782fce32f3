"""Traces of the simulated GPU in this process, in virtual time, histories fed from it, and a trace made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from factories.simulated_machine import SimulatedMachine, machine
from stallprobes.engine.timeline.reader import read_rows
from stallprobes.model import MS, US, Probe
from stallprobes.native.layouts.cupti import CopyKind, RecordKind
from stallprobes.records.rows import CALL, OVERHEAD, TENURE, WORK
from stallprobes.records.timeline import TimelineLosses
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.trace import (
    OPEN,
    OpenCall,
    OpenWork,
    Trace,
    TracedProbe,
    TraceNames,
    TraceTrigger,
)

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


def handmade_trace(victim: Probe, aggressor: Probe, begin_ns: int = 10**9, wall_s: float = WALL_S) -> Trace:
    """A trace of 10 ms from ``wall_s`` on, with a row of every kind: a copy waits 2 ms for a kernel of another context.

    It is small: it is a part of the base of thousands of mutants.
    """
    call, kernel = begin_ns + 5 * MS, begin_ns - MS
    begun, returned, start = call, call + 3 * US, call + 2 * MS
    return Trace(
        begin_ns=begin_ns,
        end_ns=begin_ns + 10 * MS,
        collected_ns=begin_ns + 9 * MS,
        probes=(TracedProbe.of(victim), TracedProbe.of(aggressor)),
        names=TraceNames({1: "primary", 2: "secondary"}, {(1, 7): "own", (2, 9): "own"}),
        calls=np.array([(1, 0, 4, kernel, kernel + 2 * MS, 1), (0, 0, 9, begun, returned, 1)], CALL),
        work=np.array(
            [
                (5, RecordKind.KERNEL, kernel + MS, start - 80 * US, 0, 1, 7, 1, 0, 4, kernel, 0, 0, 0, 0, 70),
                (3, RecordKind.KERNEL, call, call + US, 0, 1, 8, -1, -1, -1, 0, 0, 0, 0, 0, 71),
                (
                    *(6, RecordKind.COPY, start, start + 60 * US, 0, 2, 9, 0, 0, 9, begun, returned),
                    *(CopyKind.DEVICE_TO_DEVICE, 3 + 256 * 3, 4096, 72),
                ),
            ],
            WORK,
        ),
        tenures=np.array([(1, begin_ns, start - 80 * US), (2, start, OPEN)], TENURE),
        overheads=np.array([(4, 1, begin_ns + MS, begin_ns + MS + 10 * US)], OVERHEAD),
        context_switches=True,
        losses=TimelineLosses(dropped=1, overwritten=2),
        wall_offset_s=wall_s - begin_ns / 1e9,
        open_calls=(OpenCall(1, 0, begin_ns + 9 * MS),),
        others=("train (pid 7)",),
        trigger=TraceTrigger(0, begun, returned),
        simulated=False,
        open_work=(OpenWork(1, 0, 0, 1, 7, begin_ns + 8 * MS, 2),),
    )
