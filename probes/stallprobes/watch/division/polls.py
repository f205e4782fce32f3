"""Waits of a thread that asks the driver again and again whether work has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from stallprobes.records.rows import Rows
from stallprobes.watch.division.instants import Flags
from stallprobes.watch.intervals import NONE, Int64s, expanded, int64s

# Functions by which a thread asks whether work has ended.
QUERIES = ("cuStreamQuery", "cuEventQuery")
# Smallest number of consecutive queries of a handle that count as a wait for the handle. Reason: the result of each
# query is not known.
_LEAST_POLLS = 3
# Time (ns) between consecutive queries of a handle below which the queries count as one wait.
_POLL_NS = 50_000
# Time (ns) between two runs of queries of the same handle below which the runs count as one wait. Reason: a thread that
# loses its CPU makes no queries in this time.
_INTERRUPTED_NS = 10_000_000


class Polls(NamedTuple):
    """Runs of queries by which a thread waits for a stream or an event: the places of the first and the last query of
    each run, and flags of all calls but the other queries of the runs (``kept``)."""

    first: Int64s
    last: Int64s
    kept: Flags

    @classmethod
    def of(cls, rows: Rows, functions: Mapping[int, str]) -> Polls:
        """The runs among the outermost calls of a log (DRIVER_CALL, those of a thread in order)."""
        kept = np.ones(len(rows), dtype=np.bool_)
        queries = [number for number, name in functions.items() if name.startswith(QUERIES)]
        asks = np.isin(rows["function"], queries) if queries else ~kept
        if np.count_nonzero(asks) < _LEAST_POLLS:
            return cls(NONE, NONE, kept)
        order = np.argsort(rows["thread"], kind="stable")
        own = [np.ascontiguousarray(rows[name][order]) for name in ("thread", "function", "stream", "bytes")]
        same = asks[order][1:] & np.logical_and.reduce([column[1:] == column[:-1] for column in own])
        gaps = int64s(rows["began_ns"][order][1:]) - int64s(rows["returned_ns"][order][:-1])
        first = np.flatnonzero(np.append(True, ~same | (gaps >= _POLL_NS)))
        polls = np.diff(np.append(first, len(rows))) >= _LEAST_POLLS
        # Of two runs for one handle, the first may have been interrupted.
        interrupted = polls[1:] & polls[:-1] & same[first[1:] - 1] & (gaps[first[1:] - 1] < _INTERRUPTED_NS)
        first, polls = first[np.append(True, ~interrupted)], polls[np.append(True, ~interrupted)]
        last = np.append(first[1:], len(rows)) - 1
        first, last = first[polls], last[polls]
        kept[order[expanded(first, last)[1]]] = False
        return cls(order[first], order[last], kept)
