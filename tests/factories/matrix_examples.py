"""Example matrices for reports and screens: every kind of cell, the largest size, hostile text, a small check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from factories import matrices
from factories.verdicts import verdict
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import Window
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, MatrixColumn, MatrixRow, Status
from stallprobes.model import Phase

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


def every_kind(seed: int = 1) -> Matrix:
    """Every kind of cell once or more: "launch" has them all, the other victims what goes for whole lines."""
    names = (
        "stalled", "tail", "late", "starved", "slower", "drift", "host", "invalid", "unsupported", "missing", "calm",
    )  # fmt: skip
    columns = (NOTHING, *(MatrixColumn(name, f"title of {name}", (name,)) for name in names))
    made = matrices.made_up(seed, columns=columns, fingerprint=FINGERPRINT)
    cells = dict(made.cells)

    def change(row: str, column: str, **changed: object) -> None:
        cells[row, column] = cells[row, column].changed(**changed)

    change("launch", "stalled", verdicts=(verdict("stalled"),))
    change("d2d", "stalled", verdicts=(verdict("stalled", probe="d2d", ratio=427.0, now_us=1152.9),))
    change("launch", "tail", verdicts=(verdict("stalled", quantile="p99", ratio=21.0, now_us=56.7),))
    change("launch", "late", verdicts=(verdict("stalled", phase=Phase.DUE, quantile="p99", ratio=14_000.0),))
    stuck = verdict("starved", quantile="in-flight", now_us=1.2e6, ratio=4e5)
    none = tuple(
        replace(
            r, window=Window({channel: Histogram.empty() for channel in r.window.channels}, 0, r.window.duration_ns)
        )
        for r in cells["launch", "starved"].repeats
    )
    change(
        "launch", "starved", status=Status.STARVED, verdicts=(stuck,), repeats=none,
        in_flight_ns=1_200_000_000, in_flight_op="cuLaunchKernel",
    )  # fmt: skip
    for kind in ("slower", "drift", "host"):
        change("launch", kind, verdicts=(verdict(kind, ratio=2.0, now_us=5.4),))
    change(
        "launch", "invalid", status=Status.INVALID, reason="the clocks were throttled", verdicts=(verdict("stalled"),)
    )
    for row in made.rows:
        change(row.name, "unsupported", status=Status.UNSUPPORTED, reason="it needs two GPUs", repeats=())
    change("launch", "missing", status=Status.MISSING, repeats=())
    return made.changed(cells=cells)


@cache
def largest(seed: int = 1) -> Matrix:
    """As many victims and aggressors as the largest check has, a third of them stalled; a simulated one."""
    rows = tuple(
        MatrixRow(f"victim-{n}@secondary", f"victim number {n} · own stream", "launch", "x", "own") for n in range(14)
    )
    columns = (NOTHING, *(MatrixColumn(f"aggressor-{n}/null", f"aggressor number {n}", (f"a{n}",)) for n in range(26)))
    times = {(r.name, c.name): 2.0 ** (n % 12) for n, c in enumerate(columns[1:]) if n % 3 == 0 for r in rows}
    made = matrices.made_up(
        seed, rows=rows, columns=columns, times=times, fingerprint={**FINGERPRINT, "gpu": "NVIDIA H200 (SIMULATED)"}
    )
    return made.changed(backend="simulated", profile="h200", sim_seed=7)


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'\x1b[31m\x07‮\ud800"


def hostile() -> Matrix:
    """A matrix whose every name, title, reason and fingerprint would like to be more than a name."""
    made = matrices.made_up(1, times={("launch", "spin"): 30})
    rows = tuple(row.changed(name=f"{row.name}{EVIL}", title=EVIL) for row in made.rows)
    columns = tuple(c if c.name == QUIET else c.changed(name=f"{c.name}{EVIL}", title=EVIL) for c in made.columns)
    cells: dict[tuple[str, str], Cell] = {}
    for row, new_row in zip(made.rows, rows, strict=True):
        for column, new_column in zip(made.columns, columns, strict=True):
            cell = made.cells[row.name, column.name]
            verdicts = tuple(v.changed(head=EVIL, cause=EVIL, remedy=EVIL) for v in cell.verdicts)
            key = (new_row.name, new_column.name)
            cells[key] = cell.changed(
                row=key[0],
                column=key[1],
                verdicts=verdicts,
                reason=EVIL,
                in_flight_ns=10**9,
                in_flight_op=EVIL,
            )
    return made.changed(
        rows=rows,
        columns=columns,
        cells=cells,
        started_at=EVIL,
        program=EVIL,
        fingerprint={"gpu": EVIL, EVIL: EVIL, "packages": {EVIL: EVIL}, "unknown": {EVIL: EVIL}},
        hosts={EVIL: {"gpu": EVIL}},
    )


SMALL_FINGERPRINT = {"gpu": "Made-up GPU", "driver": "580.1", "cuda": "13.0", "unknown": {}}
SMALL_COLUMNS = (
    *matrices.COLUMNS,
    MatrixColumn("d2h-pageable-warm/null", "pageable D2H · warm · null stream", ("d2h-pageable-warm/null",)),
    MatrixColumn("peer-copy-behind-kernel", "kernel, then peer copy", ("peer-copy-behind-kernel",)),
    MatrixColumn("context-churn", "context churn", ("context-churn",)),
)
STARVED = verdict(
    "starved",
    probe="d2h-pinned",
    quantile="in-flight",
    baseline_us=2.0,
    now_us=499_000.0,
    ratio=249_500.0,
    cause="",
    head="pinned D2H · primary · own stream: starved, 0 calls returned in 0.7 s. Pinning pages is slow.",
    remedy="Pin memory once.",
)
TAIL = verdict(
    probe="d2d",
    phase=Phase.WAIT,
    quantile="p99",
    baseline_us=6.1,
    now_us=79.3,
    ratio=13.0,
    cause="",
    head="D2D · primary · own stream: wait p99 6.1 µs → 79.3 µs (×13).",
    remedy="Use another stream.",
)


def screen_example(seed: int = 1, *, driver: str = "580.1", slower: float = 1.0) -> Matrix:
    """Four victims beside seven others: stalls, a starved cell, one that cannot be, one that does not count.

    ``slower`` is how many times slower ``launch`` is beside ``alloc-async``.
    """
    times = {
        ("d2d@secondary", "spin"): 427.0,
        ("launch", "host-alloc-free"): 900.0,
        ("d2d", "host-alloc-free"): 12.0,
        ("launch", "alloc-async"): slower,
    }
    fingerprint = {**SMALL_FINGERPRINT, "driver": driver}
    whole = matrices.made_up(seed, times=times, columns=SMALL_COLUMNS, fingerprint=fingerprint)
    cells = dict(whole.cells)
    starved = ("d2h-pinned", "host-alloc-free")
    cells[starved] = cells[starved].changed(
        status=Status.STARVED,
        verdicts=(STARVED,),
        in_flight_ns=499_000_000,
        in_flight_op="cuMemcpyDtoHAsync",
    )
    for row in matrices.ROWS:
        key = (row.name, "peer-copy-behind-kernel")
        cells[key] = Cell(*key, Status.UNSUPPORTED, "a second GPU is needed, and there is one")
    key = ("launch", "context-churn")
    cells[key] = cells[key].changed(status=Status.INVALID, reason="the aggressor did not run in the window")
    tail = ("d2d", "d2h-pageable-warm/null")
    cells[tail] = cells[tail].changed(verdicts=(TAIL,))
    return whole.changed(cells=cells)
