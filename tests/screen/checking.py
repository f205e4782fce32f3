"""Checks for the tests of the matrix screen: made-up ones with every kind of cell, and tools that measure nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from matrices import COLUMNS, ROWS, made_up

from stallprobes.errors import EXIT_ENGINE, EngineFailed
from stallprobes.matrix import plan
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, MatrixColumn, Status
from stallprobes.matrix.plan import Plan
from stallprobes.matrix.runner import CheckProgress
from stallprobes.model import Phase
from stallprobes.verdicts.rules import Verdict
from stallscope.tui.matrix.services import MatrixServices
from stallscope.tui.sources.live import Ground

FINGERPRINT = {"gpu": "Made-up GPU", "driver": "580.1", "cuda": "13.0", "unknown": {}}
MORE = (
    *COLUMNS,
    MatrixColumn("d2h-pageable-warm/null", "pageable D2H · warm · null stream", ("d2h-pageable-warm/null",)),
    MatrixColumn("peer-copy-behind-kernel", "kernel, then peer copy", ("peer-copy-behind-kernel",)),
    MatrixColumn("context-churn", "context churn", ("context-churn",)),
)


def check(seed: int = 1, *, driver: str = "580.1", slower: float = 1.0) -> Matrix:
    """Four victims beside seven others: stalls, a starved cell, one that cannot be, one that does not count.

    ``slower`` is how many times slower ``launch`` is beside ``alloc-async``.
    """
    times = {
        ("d2d@secondary", "spin"): 427.0,
        ("launch", "host-alloc-free"): 900.0,
        ("d2d", "host-alloc-free"): 12.0,
        ("launch", "alloc-async"): slower,
    }
    whole = made_up(seed, times=times, columns=MORE, fingerprint={**FINGERPRINT, "driver": driver})
    cells = dict(whole.cells)
    starved = ("d2h-pinned", "host-alloc-free")
    cells[starved] = replace(
        cells[starved],
        status=Status.STARVED,
        verdicts=(_starved(),),
        in_flight_us=499_000.0,
        in_flight_op="cuMemcpyDtoHAsync",
    )
    for row in ROWS:
        key = (row.name, "peer-copy-behind-kernel")
        cells[key] = Cell(*key, Status.UNSUPPORTED, "a second GPU is needed, and there is one")
    key = ("launch", "context-churn")
    cells[key] = replace(cells[key], status=Status.INVALID, reason="the aggressor did not run in the window")
    tail = ("d2d", "d2h-pageable-warm/null")
    cells[tail] = replace(cells[tail], verdicts=(_tail(),))
    return replace(whole, cells=cells)


def _starved() -> Verdict:
    sentence = "pinned D2H · primary · own stream: starved, 0 calls returned in 0.7 s. Pinning pages is slow."
    return Verdict(
        "d2h-pinned", Phase.CALL, "in-flight", 2.0, 499_000.0, 249_500.0, "starved", "", sentence, "Pin memory once."
    )


def _tail() -> Verdict:
    sentence = "D2D · primary · own stream: wait p99 6.1 µs → 79.3 µs (×13)."
    return Verdict("d2d", Phase.WAIT, "p99", 6.1, 79.3, 13.0, "stalled", "", sentence, "Use another stream.")


class Scripted(MatrixServices):
    """Tools that measure nothing: cells of a made-up matrix come one by one, ``pace_s`` apart.

    With ``fails_after`` the engine is lost after so many cells. ``running`` is set as soon as it measures, and it
    goes on only while ``go`` is set. ``deaf`` does not look at what stops it for so many seconds.
    """

    def __init__(self, pace_s: float = 0.0, fails_after: int | None = None, deaf: float = 0.0) -> None:
        self.pace_s = pace_s
        self.fails_after = fails_after
        self.deaf = deaf
        self.running = threading.Event()
        self.go = threading.Event()
        self.go.set()
        self.grounds: list[Ground] = []
        self.seeds: list[int] = []
        self.engine_was_there = True
        self.engine_pid: Callable[[], int | None] = lambda: None

    def plan(self, quick: bool) -> Plan:
        """Two victims beside two aggressors, or four beside three."""
        victims = ("launch", "d2d@secondary") if quick else ("launch", "d2d", "d2d@secondary", "d2h-pinned")
        aggressors = ("spin", "host-alloc-free") if quick else ("spin", "host-alloc-free", "alloc-async")
        return plan.plan(victims, aggressors, quick=quick)

    def run(
        self, plan: Plan, ground: Ground, seed: int, progress: Callable[[CheckProgress], None], stop: Callable[[], bool]
    ) -> Matrix:
        """Let the cells of a made-up matrix come."""
        self.grounds.append(ground)
        self.seeds.append(seed)
        self.engine_was_there = self.engine_pid() is not None
        whole = made_up(
            seed,
            times={("d2d@secondary", "spin"): 400.0},
            rows=plan.rows,
            columns=plan.columns,
            fingerprint=FINGERPRINT,
            calls=60,
        )
        whole = replace(whole, backend="simulated", profile="h200", sim_seed=1, quick=plan.quick)
        keys, cells = list(whole.cells), dict(whole.cells)
        self.running.set()
        for number, key in enumerate(keys):
            time.sleep(self.deaf)
            while not self.go.is_set() and not stop():
                time.sleep(0.01)
            if self.fails_after == number:
                raise EngineFailed(EXIT_ENGINE, "the engine ended (killed by SIGKILL)")
            if stop():
                cells |= {key: Cell(*key, Status.MISSING) for key in keys[number:]}
                return replace(whole, cells=cells, interrupted=True)
            progress(CheckProgress(number, len(keys), 9.0, f"repeat 1 of 4 · {key[1]}"))
            time.sleep(self.pace_s)
            if key[1] != QUIET:
                progress(CheckProgress(number + 1, len(keys), 8.0, f"repeat 1 of 4 · {key[1]}", cells[key]))
        return whole
