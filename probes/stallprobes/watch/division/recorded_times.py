"""Times in which work of the GPU is recorded, and those in which a sequence has the graphics engine."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np

from stallprobes.watch.division.instants import NO_SPANS, Flags, Spans
from stallprobes.watch.intervals import FOREVER, Int64s, int64s
from stallprobes.watch.reading.process import WatchedProcess

# Shortest time (ns) without the GPU's graphics engine that counts for a sequence as a time-slice of other contexts. A
# shorter time is within the error of the clocks.
LEAST_AWAY_NS = 20_000


@dataclass(frozen=True, eq=False)
class Tenures:
    """Times in which contexts had the graphics engine of a GPU, in order, on the host's clock.

    Where ``joined`` is set, the switches between a tenure and the one before it are complete, so that nobody of this
    program had the engine between them. ``unplaced`` switches could not be converted.
    """

    contexts: Int64s
    starts: Int64s
    ends: Int64s
    joined: Flags
    unplaced: int = 0


# The tenures of each GPU by its number, and the number of context switches that they are made of.
EngineUse = tuple[Mapping[int, Tenures], int]
# Value if the times at which each context had the GPU's engine are not known.
NO_ENGINE_USE: EngineUse = ({}, 0)


def recorded(process: WatchedProcess) -> Spans:
    """The times in which all work of the GPU is recorded; the last one has no end, if records are on in it."""
    windows, first_ns = process.windows, process.recorded_ns
    last_ns = FOREVER if process.unrecorded_ns is None else process.unrecorded_ns
    if not len(windows):
        return Spans(int64s([first_ns]), int64s([max(last_ns, first_ns)]))
    ends = np.minimum(windows.ends, FOREVER)
    ends[-1] = max(last_ns, int(windows.begins[-1]))
    begins = np.maximum(windows.begins, np.minimum(windows.settled, FOREVER))
    kept = windows.on & (begins < ends)
    return Spans(begins[kept], ends[kept])


def unfollowed(process: WatchedProcess) -> Spans:
    """The times in which frequent calls are in no log."""
    windows = process.windows
    return Spans.united(windows.begins[windows.quiet], np.minimum(windows.ends[windows.quiet], FOREVER))


def away(tenures: Tenures | None, contexts: Set[int]) -> Spans:
    """The times in which none of ``contexts`` had the engine."""
    if tenures is None or not len(tenures.contexts):
        return NO_SPANS
    other = ~np.isin(tenures.contexts, list(contexts))
    joined = np.flatnonzero(tenures.joined)
    begins = np.concatenate((tenures.starts[other], tenures.ends[joined - 1]))
    ends = np.concatenate((tenures.ends[other], tenures.starts[joined]))
    spans = Spans.united(begins, ends)
    kept = spans.ends - spans.begins >= LEAST_AWAY_NS
    return Spans(spans.begins[kept], spans.ends[kept])
