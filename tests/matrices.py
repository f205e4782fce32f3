"""Made-up interference matrices: drawn from lognormal laws with a seed, so that what must be found in them is known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stallprobes.latency.histogram import Histogram
from stallprobes.matrix.matrix import QUIET, Cell, Column, Matrix, Repeat, Row, Status
from stallprobes.model import Lane, Phase
from stallprobes.verdicts.rules import Verdict

CALL, WAIT, INTENDED = Lane(Phase.CALL), Lane(Phase.WAIT), Lane(Phase.INTENDED)
ROWS = (
    Row("launch", "launch · primary · own stream", "launch", "primary", "own"),
    Row("d2d", "D2D · primary · own stream", "d2d", "primary", "own"),
    Row("d2d@secondary", "D2D · secondary · own stream", "d2d", "secondary", "own"),
    Row("d2h-pinned", "pinned D2H · primary · own stream", "d2h-pinned", "primary", "own"),
)
COLUMNS = (
    Column(QUIET, "nothing beside it", ()),
    Column("spin", "spin kernel · 16 blocks", ("spin",)),
    Column("host-alloc-free", "pinned alloc/free", ("host-alloc-free",)),
    Column("d2h-pinned-large", "pinned D2H · large", ("d2h-pinned-large",)),
    Column("alloc-async", "cuMemAllocAsync/FreeAsync", ("alloc-async",)),
)
FINGERPRINT: Mapping[str, object] = {
    "hostname": "node-a",
    "gpu": "Made-up GPU",
    "driver": "580.1",
    "unknown": {},
}
# Middle of each lane in quiet, ns.
USUAL = {"launch": (2700, 5000), "d2d": (3800, 5600), "d2d@secondary": (3400, 5600), "d2h-pinned": (1200, 8000)}


def made_up(
    seed: int,
    *,
    times: Mapping[tuple[str, str], float] | None = None,
    tails: Mapping[tuple[str, str], float] | None = None,
    calls: int = 250,
    repeats: int = 4,
    spread: float = 0.15,
    drift: float = 0.0,
    rows: tuple[Row, ...] = ROWS,
    columns: tuple[Column, ...] = COLUMNS,
    fingerprint: Mapping[str, object] = FINGERPRINT,
) -> Matrix:
    """A matrix of ``calls`` calls in each repeat of each cell.

    ``times`` multiplies every call of a cell (row, column), ``tails`` one call in 25. ``spread`` is the lognormal
    sigma of a call, ``drift`` that of a whole repeat.
    """
    dice = np.random.default_rng(seed)
    cells = {}
    for row in rows:
        for column in columns:
            key = (row.name, column.name)
            factor, tail = (times or {}).get(key, 1.0), (tails or {}).get(key, 1.0)

            def lanes(factor: float, tail: float, n: int, row: Row = row) -> dict[Lane, Histogram]:
                shift = float(np.exp(dice.normal(0, drift))) if drift else 1.0
                found = {}
                for lane, middle in zip((CALL, WAIT), USUAL.get(row.name, (3000, 5000)), strict=True):
                    drawn = middle * factor * shift * np.exp(dice.normal(0, spread, n))
                    drawn = np.where(dice.random(n) < 0.04, drawn * tail, drawn)
                    found[lane] = Histogram.of(drawn.astype(np.int64))
                return found

            quiet = column.name == QUIET
            cells[key] = Cell(
                row=row.name,
                column=column.name,
                status=Status.OK,
                repeats=tuple(
                    Repeat(
                        lanes=lanes(factor, tail, calls),
                        before={} if quiet else lanes(1.0, 1.0, calls // 2),
                        after={} if quiet else lanes(1.0, 1.0, calls // 2),
                        calls=calls,
                        window_s=calls * 5e-5,
                    )
                    for _ in range(repeats)
                ),
                verdicts=() if factor < 3 else (_stalled(row, column, factor),),
            )
    return Matrix(
        backend="cuda",
        fingerprint=fingerprint,
        started_at="2026-11-21T10:00:00+00:00",
        seconds=60.0,
        rows=rows,
        columns=columns,
        cells=cells,
        seed=seed,
        repeats=repeats,
        pace_us=50.0,
        program="1.0",
    )


def _stalled(row: Row, column: Column, factor: float) -> Verdict:
    quiet = USUAL.get(row.name, (3000, 5000))[0] / 1000
    return Verdict(
        probe=row.name,
        phase=Phase.CALL,
        quantile="p50",
        quiet_us=quiet,
        now_us=quiet * factor,
        ratio=factor,
        kind="stalled",
        cause="It was made up so.",
        sentence=f"{row.title}: call p50 is ×{factor:g} while “{column.title}” runs. It was made up so.",
        helps="Make it up otherwise.",
    )
