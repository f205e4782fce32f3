"""The checks of one or several hosts, for tests of files: with a cell of every status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from factories import matrices
from factories.verdicts import verdict
from stallprobes.latency.histogram import Histogram
from stallprobes.matrix import merge
from stallprobes.matrix.matrix import Cell, Matrix, Repeat, Status
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.kinds import VerdictKind

SPIN = ("d2d", "spin")
STARVED = ("d2d", "host-alloc-free")
UNSUPPORTED = ("launch", "alloc-async")
INVALID = ("launch", "spin")
MISSING = ("d2h-pinned", "alloc-async")


def host(seed: int, name: str | None = None, *, gpu: str = "Made-up GPU", calls: int = 250, **changes: Any) -> Matrix:
    """The check of one host with a real GPU's fingerprint; ``times`` and the like go to ``made_up``."""
    fingerprint: dict[str, object] = {"gpu": gpu, "uuid": f"GPU-{seed:04d}", "driver": "580.1", "unknown": {}}
    if name is not None:
        fingerprint["hostname"] = name
    return matrices.made_up(seed, calls=calls, fingerprint=fingerprint, **changes)


def starved_cell(key: tuple[str, str]) -> Cell:
    """A cell whose victim returned twice and then hung."""
    channels: Mapping[Channel, Histogram] = {
        Channel(Phase.CALL): Histogram.of([900_000_000, 880_000_001]),
        Channel(Phase.CALL, "cuMemcpyDtoDAsync: a"): Histogram.of([900_000_000]),
        Channel(Phase.DUE): Histogram.empty().add_waiting(1_190_000_000, 50_000),
    }
    quiet = {Channel(Phase.CALL): Histogram.of([3800] * 50)}
    starved = verdict(
        "starved",
        probe=key[0],
        phase=None,
        quantile="in-flight",
        baseline_us=3.8,
        now_us=1_190_000.0004,
        ratio=313157.8951,
        cause="The lock is held.",
        head=f"{key[0]}: starved, 2 calls returned in 0.6 s.",
        remedy="Do not “free” there.",
    )
    repeat = Repeat(matrices.window(channels, 2, 0.6), before=quiet, after=quiet)
    return Cell(
        *key,
        status=Status.STARVED,
        repeats=(repeat,),
        verdicts=(starved,),
        in_flight_ns=1_190_000_250,
        in_flight_op="cuMemcpyDtoDAsync",
    )


def changed(matrix: Matrix, *cells: Cell) -> Matrix:
    """``matrix`` with other cells in place of its own."""
    return matrix.changed(cells={**matrix.cells, **{(cell.row, cell.column): cell for cell in cells}})


def every_status(seed: int = 1, name: str | None = "node-a", **changes: Any) -> Matrix:
    """A check with a cell of every status, a stall, and a simulated GPU's seeds."""
    matrix = changed(
        host(seed, name, times={SPIN: 40.0}, **changes),
        starved_cell(STARVED),
        Cell(*UNSUPPORTED, status=Status.UNSUPPORTED, reason="the driver has no memory pools"),
        Cell(*MISSING, status=Status.MISSING),
    )
    invalid = matrix.cells[INVALID].changed(status=Status.INVALID, reason="the host control spiked; see above")
    return changed(matrix.changed(interrupted=True), invalid)


def merged_small() -> Matrix:
    """A merged check of two hosts with few calls: cells of several statuses, and verdicts on drift and on due times."""
    checks = []
    for seed, name in ((1, "node-a"), (2, "node-b")):
        small = host(seed, name, rows=matrices.ROWS[:2], columns=matrices.COLUMNS[:3], calls=20, repeats=1)
        keys = list(small.cells)
        late = verdict("stalled", probe=keys[1][0], phase=Phase.DUE, quantile="p99", cause="A lock.", remedy="Wait.")
        drift = verdict(VerdictKind.DRIFT, probe=keys[2][0], head="launch: as slow after.", cause="", remedy="")
        cells = [
            starved_cell(keys[0]),
            small.cells[keys[1]].changed(verdicts=(late,)),
            small.cells[keys[2]].changed(verdicts=(drift,)),
            small.cells[keys[3]].changed(status=Status.INVALID, reason="the host control spiked, see above"),
        ]
        checks.append((name, changed(small, *(cells if seed == 1 else cells[1:2]))))
    return merge.merge(checks).matrix
