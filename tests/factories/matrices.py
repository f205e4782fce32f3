"""Interference matrices drawn from lognormal distributions with a seed, so that every stall in them is known."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from factories.verdicts import verdict
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import ChannelMap, Window
from stallprobes.matrix.check.block_choice import BlockCosts, chosen_cells
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, MatrixColumn, MatrixRow, Repeat, Status
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.verdict import Verdict

CALL, WAIT, DUE = Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE)
ROWS = (
    MatrixRow("launch", "launch · primary · own stream", "launch", "primary", "own"),
    MatrixRow("d2d", "D2D · primary · own stream", "d2d", "primary", "own"),
    MatrixRow("d2d@secondary", "D2D · secondary · own stream", "d2d", "secondary", "own"),
    MatrixRow("d2h-pinned", "pinned D2H · primary · own stream", "d2h-pinned", "primary", "own"),
)
COLUMNS = (
    MatrixColumn(QUIET, "nothing beside it", ()),
    MatrixColumn("spin", "spin kernel · 16 blocks", ("spin",)),
    MatrixColumn("host-alloc-free", "pinned alloc/free", ("host-alloc-free",)),
    MatrixColumn("d2h-pinned-large", "pinned D2H · large", ("d2h-pinned-large",)),
    MatrixColumn("alloc-async", "cuMemAllocAsync/FreeAsync", ("alloc-async",)),
)
FINGERPRINT: Mapping[str, object] = {
    "hostname": "node-a",
    "gpu": "Made-up GPU",
    "driver": "580.1",
    "unknown": {},
}
# Median of each channel in the baseline, ns.
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
    steps: float = 1.0,
    rough: float = 1.0,
    rows: tuple[MatrixRow, ...] = ROWS,
    columns: tuple[MatrixColumn, ...] = COLUMNS,
    fingerprint: Mapping[str, object] = FINGERPRINT,
) -> Matrix:
    """A matrix of ``calls`` calls in each repeat of each cell.

    ``times`` multiplies every call of a cell (row, column), ``tails`` one call in 25. ``spread`` is the lognormal
    sigma of a call, ``drift`` that of a whole repeat. ``steps``: each repeat is slower by a factor between 1 and this,
    independent of the others; in every third cell up to its power ``rough``.
    """
    drawn = _cells(
        seed,
        times=tuple((times or {}).items()),
        tails=tuple((tails or {}).items()),
        calls=calls,
        repeats=repeats,
        spread=spread,
        drift=drift,
        steps=steps,
        rough=rough,
        rows=rows,
        columns=columns,
    )
    return Matrix(
        backend="cuda",
        fingerprint=fingerprint,
        started_at="2026-11-21T10:00:00+00:00",
        seconds=60.0,
        rows=rows,
        columns=columns,
        cells=dict(drawn),
        seed=seed,
        repeats=repeats,
        pace_ns=50_000,
        program="1.0",
    )


# Many tests ask for the same cells; they are frozen, and hold what was computed from them.
@lru_cache(maxsize=32)
def _cells(
    seed: int,
    *,
    times: tuple[tuple[tuple[str, str], float], ...],
    tails: tuple[tuple[tuple[str, str], float], ...],
    calls: int,
    repeats: int,
    spread: float,
    drift: float,
    steps: float,
    rough: float,
    rows: tuple[MatrixRow, ...],
    columns: tuple[MatrixColumn, ...],
) -> Mapping[tuple[str, str], Cell]:
    dice = np.random.default_rng(seed)
    cells: dict[tuple[str, str], Cell] = {}
    for row in rows:
        for column in columns:
            key = (row.name, column.name)
            most = steps ** (rough if len(cells) % 3 == 1 else 1.0)
            factor, tail = dict(times).get(key, 1.0), dict(tails).get(key, 1.0)

            def channels(
                factor: float, tail: float, n: int, row: MatrixRow = row, most: float = most
            ) -> dict[Channel, Histogram]:
                shift = float(np.exp(dice.normal(0, drift))) if drift else 1.0
                shift *= float(most ** dice.random()) if most > 1 else 1.0
                found = {}
                for channel, middle in zip((CALL, WAIT), USUAL.get(row.name, (3000, 5000)), strict=True):
                    drawn = middle * factor * shift * np.exp(dice.normal(0, spread, n))
                    drawn = np.where(dice.random(n) < 0.04, drawn * tail, drawn)
                    found[channel] = Histogram.of(drawn.astype(np.int64))
                return found

            quiet = column.name == QUIET
            cells[key] = Cell(
                row=row.name,
                column=column.name,
                status=Status.OK,
                repeats=tuple(
                    Repeat(
                        window(channels(factor, tail, calls), calls, calls * 5e-5),
                        before={} if quiet else channels(1.0, 1.0, calls // 2),
                        after={} if quiet else channels(1.0, 1.0, calls // 2),
                    )
                    for _ in range(repeats)
                ),
                verdicts=() if factor < 3 else (_stalled(row, column, factor),),
            )
    return cells


def uneven(seed: int, *, repeats: int = 4, rounds: int = 4, share: float = 0.25, **settings: Any) -> Matrix:
    """A matrix with additional repeats, as a check measures them.

    In each of the ``rounds``, at most the ``share`` of the cells gets one more: those that gain most precision by it.
    """
    whole = made_up(seed, repeats=repeats + rounds, **{"rough": 2.0, **settings})
    counts = dict.fromkeys(whole.cells, repeats)
    measured = [key for key in counts if key[1] != QUIET]
    for _ in range(rounds):
        held = {key: whole.cells[key].repeats[: counts[key]] for key in measured}
        for key in chosen_cells(held, BlockCosts(virtual=True), round(share * len(measured))):
            counts[key] += 1
    cells = {key: cell.changed(repeats=cell.repeats[: counts[key]]) for key, cell in whole.cells.items()}
    return whole.changed(cells=cells, repeats=repeats)


def window(channels: ChannelMap, calls: int, seconds: float) -> Window:
    """A victim's window of ``calls`` iterations."""
    return Window(channels, iterations=calls, duration_ns=round(seconds * 1e9), period_ns=50_000)


def _stalled(row: MatrixRow, column: MatrixColumn, factor: float) -> Verdict:
    baseline_us = USUAL.get(row.name, (3000, 5000))[0] / 1000
    return verdict(
        probe=row.name,
        baseline_us=baseline_us,
        now_us=baseline_us * factor,
        ratio=factor,
        cause="It was made up so.",
        head=f"{row.title}: call p50 is ×{factor:g} while “{column.title}” runs.",
        remedy="Make it up otherwise.",
    )
