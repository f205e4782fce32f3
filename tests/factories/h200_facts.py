"""Facts that a check of an H200 must show: for each pair the least, or the most, ratio to the baseline.

Measured with driver 580.159.04 and CUDA 13.0, independently of the check. A stall is a cell that the check calls
stalled or starved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stallprobes.latency.ratio import PERCENTILES
from stallprobes.matrix.matrix import Matrix
from stallprobes.model import Phase


@dataclass(frozen=True)
class Fact:
    """``least`` ratio to the baseline of a phase at p50 or p99, and ``most`` at p50; ``stalls``: whether the cell is a
    stall, None for either. With two GPUs the driver hands locks over in another order than with one: what is the
    median on one machine is the tail on the other.
    """

    row: str
    column: str
    phase: Phase | None = None
    least: float = 0.0
    most: float = float("inf")
    stalls: bool | None = None


CALL, WAIT = Phase.CALL, Phase.WAIT
FACTS = (
    Fact("d2d@secondary", "spin", WAIT, least=200, stalls=True),
    # The first call after a wait of 2 ms finds cold caches: x1.4 to x2.9 in thirteen checks of several hosts.
    Fact("d2d@secondary", "spin", CALL, most=4),
    Fact("d2d", "spin", WAIT, most=1.5, stalls=False),
    Fact("launch", "spin", WAIT, most=1.5, stalls=False),
    Fact("d2h-pinned@secondary", "spin", WAIT, most=1.5, stalls=False),
    Fact("d2d", "spin-full", WAIT, least=500, stalls=True),
    Fact("launch", "d2h-pageable-warm", CALL, least=1.4, most=6),
    Fact("launch/shared", "d2h-pageable-warm", stalls=True),
    Fact("launch/null", "d2h-pageable-warm", stalls=True),
    Fact("launch", "d2h-pageable-warm/null", CALL, least=200, stalls=True),
    Fact("launch", "d2h-pageable-fresh", CALL, most=2),
    Fact("launch/shared", "d2h-pageable-fresh", stalls=True),
    Fact("launch/null", "d2h-pageable-fresh", stalls=True),
    Fact("launch", "d2h-pinned-large", CALL, most=2, stalls=False),
    Fact("d2h-pinned", "d2h-pinned-large", WAIT, least=50, stalls=True),
    Fact("launch", "h2d-pinned-large", CALL, most=2.5, stalls=False),
    Fact("launch", "h2d-pageable-large", CALL, most=2.5, stalls=False),
    Fact("launch", "alloc-free", CALL, least=4, stalls=True),
    Fact("d2d", "alloc-free", CALL, least=4, stalls=True),
    Fact("d2h-pinned", "alloc-free", CALL, least=10, stalls=True),
    Fact("launch", "free-beside-kernel", CALL, least=500, stalls=True),
    Fact("launch", "host-alloc-free", CALL, least=100, stalls=True),
    Fact("d2d", "host-alloc-free", stalls=True),
    Fact("d2h-pinned", "host-alloc-free", stalls=True),
    Fact("launch", "host-register", CALL, least=100, stalls=True),
    Fact("d2d", "host-register", stalls=True),
    Fact("d2h-pinned", "host-register", stalls=True),
    Fact("launch", "module-load", CALL, least=3, stalls=True),
    Fact("d2d", "module-load", CALL, least=3, stalls=True),
    Fact("d2h-pinned", "module-load", CALL, least=5, stalls=True),
    Fact("launch", "module-first-launch", CALL, least=2.5, stalls=True),
    Fact("d2h-pinned", "module-first-launch", CALL, least=3, stalls=True),
    Fact("launch", "stream-churn", CALL, least=2),
    Fact("d2d", "stream-churn", CALL, least=2),
    Fact("d2h-pinned", "stream-churn", CALL, least=3),
    Fact("launch", "context-churn", CALL, most=1.5),
    Fact("d2d", "context-churn", CALL, most=1.5),
    Fact("event", "context-churn", stalls=False),
    Fact("launch", "alloc-async", CALL, most=1.5, stalls=False),
    Fact("d2d", "alloc-async", CALL, most=1.5, stalls=False),
    Fact("event", "alloc-async", stalls=False),
    Fact("launch", "context-sync", CALL, most=2.5, stalls=False),
    Fact("d2d", "context-sync", CALL, most=2.5, stalls=False),
    Fact("launch", "launch-queue-full", CALL, most=1.5, stalls=False),
    Fact("d2d", "launch-queue-full", CALL, most=1.5, stalls=False),
    Fact("d2h-pinned", "launch-queue-full", stalls=False),
    Fact("launch", "launch-burst-x15/own", stalls=True),
    Fact("d2d", "launch-burst-x15/own", stalls=True),
    Fact("launch", "nvml-poll", CALL, most=1.5, stalls=False),
    Fact("d2h-pinned", "nvml-poll", stalls=False),
    Fact("launch", "gated-copy/null", stalls=True),
)


def facts_of(rows: Iterable[str], columns: Iterable[str]) -> list[Fact]:
    """The facts about the pairs that a check of ``rows`` and ``columns`` measures."""
    known_rows, known_columns = set(rows), set(columns)
    return [fact for fact in FACTS if fact.row in known_rows and fact.column in known_columns]


def broken(matrix: Matrix, facts: Iterable[Fact] = FACTS) -> list[str]:
    """The facts that ``matrix`` does not show, in words; a pair without a cell is one of them."""
    found = []
    for fact in facts:
        cell = matrix.cells.get((fact.row, fact.column))
        pair = f"{fact.row} beside {fact.column}"
        if cell is None:
            found.append(f"{pair}: no cell")
            continue
        if not cell.repeats:
            found.append(f"{pair}: {cell.status} ({cell.reason})")
            continue
        if fact.stalls is not None and (cell.kind in ("stalled", "starved")) is not fact.stalls:
            found.append(f"{pair} is {cell.kind}")
        if fact.phase is None:
            continue
        middle, tail = (times.ratio if (times := cell.ratio(fact.phase, quantile)) else 0.0 for quantile in PERCENTILES)
        if max(middle, tail) < fact.least or middle > fact.most:
            found.append(f"{pair}: {fact.phase} is ×{middle:.1f} at p50, ×{tail:.1f} at p99")
    return found
