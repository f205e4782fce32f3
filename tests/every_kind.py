"""Matrices made up for whoever shows them: with every kind of cell, as large as a whole check, and hostile ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import matrices

from stallprobes.latency.histogram import Histogram
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, MatrixColumn, MatrixRow, Status
from stallprobes.model import Phase
from stallprobes.verdicts.rules import Verdict

FINGERPRINT: Mapping[str, object] = {
    "gpu": "NVIDIA H200",
    "driver": "580.159.04",
    "cuda": "13.0",
    "mig": False,
    "environment": {"CUDA_MODULE_LOADING": "LAZY"},
    "governor": None,
    "unknown": {"governor": "the kernel shows no cpufreq governor"},
}
NOTHING = MatrixColumn(QUIET, "nothing beside it", ())


def verdict(kind: str, **changed: object) -> Verdict:
    """A verdict of ``kind`` on "launch" with made-up words."""
    values: dict[str, object] = {
        "probe": "launch",
        "phase": Phase.CALL,
        "quantile": "p50",
        "quiet_us": 2.7,
        "now_us": 27.0,
        "ratio": 10.0,
        "kind": kind,
        "cause": f"The cause of {kind}.",
        "sentence": f"launch: {kind}. The cause of {kind}.",
        "helps": f"A remedy for {kind}.",
    }
    return Verdict(**{**values, **changed})  # type: ignore[arg-type]


def matrix(seed: int = 1) -> Matrix:
    """Every kind of cell once or more: "launch" has them all, the other victims what goes for whole lines."""
    names = (
        "stalled", "tail", "late", "starved", "slower", "unsure", "host", "invalid", "unsupported", "missing", "calm",
    )  # fmt: skip
    columns = (NOTHING, *(MatrixColumn(name, f"title of {name}", (name,)) for name in names))
    made = matrices.made_up(seed, columns=columns, fingerprint=FINGERPRINT)
    cells = dict(made.cells)

    def change(row: str, column: str, **changed: object) -> None:
        cells[row, column] = replace(cells[row, column], **changed)  # type: ignore[arg-type]

    change("launch", "stalled", verdicts=(verdict("stalled"),))
    change("d2d", "stalled", verdicts=(verdict("stalled", probe="d2d", ratio=427.0, now_us=1152.9),))
    change("launch", "tail", verdicts=(verdict("stalled", quantile="p99", ratio=21.0, now_us=56.7),))
    change("launch", "late", verdicts=(verdict("stalled", phase=Phase.DUE, quantile="p99", ratio=14_000.0),))
    stuck = verdict("starved", quantile="in-flight", now_us=1.2e6, ratio=4e5)
    none = tuple(
        replace(r, calls=0, channels={channel: Histogram.empty() for channel in r.channels})
        for r in cells["launch", "starved"].repeats
    )
    change(
        "launch", "starved", status=Status.STARVED, verdicts=(stuck,), repeats=none,
        in_flight_us=1.2e6, in_flight_op="cuLaunchKernel",
    )  # fmt: skip
    for kind in ("slower", "unsure", "host"):
        change("launch", kind, verdicts=(verdict(kind, ratio=2.0, now_us=5.4),))
    change(
        "launch", "invalid", status=Status.INVALID, reason="the clocks were throttled", verdicts=(verdict("stalled"),)
    )
    for row in made.rows:
        change(row.name, "unsupported", status=Status.UNSUPPORTED, reason="it needs two GPUs", repeats=())
    change("launch", "missing", status=Status.MISSING, repeats=())
    return replace(made, cells=cells)


def whole(seed: int = 1) -> Matrix:
    """As many victims and aggressors as the largest check has, a third of them stalled; a simulated one."""
    rows = tuple(
        MatrixRow(f"victim-{n}@secondary", f"victim number {n} · own stream", "launch", "x", "own") for n in range(14)
    )
    columns = (NOTHING, *(MatrixColumn(f"aggressor-{n}/null", f"aggressor number {n}", (f"a{n}",)) for n in range(26)))
    times = {(r.name, c.name): 2.0 ** (n % 12) for n, c in enumerate(columns[1:]) if n % 3 == 0 for r in rows}
    made = matrices.made_up(
        seed, rows=rows, columns=columns, times=times, fingerprint={**FINGERPRINT, "gpu": "NVIDIA H200 (SIMULATED)"}
    )
    return replace(made, backend="simulated", profile="h200", sim_seed=7)


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'\x1b[31m\x07‮\ud800"


def hostile() -> Matrix:
    """A matrix whose every name, title, reason and fingerprint would like to be more than a name."""
    made = matrices.made_up(1, times={("launch", "spin"): 30})
    rows = tuple(replace(row, name=f"{row.name}{EVIL}", title=EVIL) for row in made.rows)
    columns = tuple(c if c.name == QUIET else replace(c, name=f"{c.name}{EVIL}", title=EVIL) for c in made.columns)
    cells: dict[tuple[str, str], Cell] = {}
    for row, new_row in zip(made.rows, rows, strict=True):
        for column, new_column in zip(made.columns, columns, strict=True):
            cell = made.cells[row.name, column.name]
            verdicts = tuple(replace(v, cause=EVIL, sentence=EVIL, helps=EVIL) for v in cell.verdicts)
            key = (new_row.name, new_column.name)
            cells[key] = replace(
                cell, row=key[0], column=key[1], verdicts=verdicts, reason=EVIL, in_flight_us=1e6, in_flight_op=EVIL
            )
    return replace(
        made,
        rows=rows,
        columns=columns,
        cells=cells,
        started_at=EVIL,
        program=EVIL,
        fingerprint={"gpu": EVIL, EVIL: EVIL, "packages": {EVIL: EVIL}, "unknown": {EVIL: EVIL}},
        hosts={EVIL: {"gpu": EVIL}},
    )
