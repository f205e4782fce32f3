"""A check without an engine, for the matrix screen: the cells of a made-up matrix."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from factories.matrices import made_up
from factories.matrix_examples import SMALL_FINGERPRINT
from factories.waiting import LIMIT_S
from stallprobes.engine.backend import Options
from stallprobes.errors import EXIT_ENGINE, EngineFailed
from stallprobes.matrix.check import plan, runner
from stallprobes.matrix.check.plan import Plan
from stallprobes.matrix.check.progress import CheckProgress
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, Status

_PLAN = plan.plan


class ScriptedCheck:
    """A check that measures nothing: the cells of a made-up matrix come one by one.

    After ``pauses_after`` cells none comes until ``go`` is set or the check is stopped; after ``fails_after`` cells
    the engine is lost. ``running`` is set when the check begins. With ``deaf`` it does nothing until ``hears`` is set.
    """

    def __init__(self, pauses_after: int | None = None, fails_after: int | None = None, deaf: bool = False) -> None:
        self.pauses_after = pauses_after
        self.fails_after = fails_after
        self.hears = threading.Event()
        if not deaf:
            self.hears.set()
        self.running = threading.Event()
        self.go = threading.Event()
        self.options: list[Options] = []
        self.seeds: list[int] = []
        self.engine_was_there = True
        self.engine_pid: Callable[[], int | None] = lambda: None

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Within it, a check of the matrix screen is this one."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plan, "plan", self.plan)
            patch.setattr(runner, "run", self.run)
            yield

    def plan(self, quick: bool) -> Plan:
        """Two victims beside two aggressors, or four beside three."""
        victims = ("launch", "d2d@secondary") if quick else ("launch", "d2d", "d2d@secondary", "d2h-pinned")
        aggressors = ("spin", "host-alloc-free") if quick else ("spin", "host-alloc-free", "alloc-async")
        return _PLAN(victims, aggressors, quick=quick)

    def run(
        self,
        plan: Plan,
        *,
        options: Options,
        seed: int,
        progress: Callable[[CheckProgress], None],
        stop: Callable[[], bool],
        **_: object,
    ) -> Matrix:
        """Let the cells of a made-up matrix come."""
        self.options.append(options)
        self.seeds.append(seed)
        self.engine_was_there = self.engine_pid() is not None
        whole = made_up(
            seed,
            times={("d2d@secondary", "spin"): 400.0},
            rows=plan.rows,
            columns=plan.columns,
            fingerprint=SMALL_FINGERPRINT,
            calls=60,
        )
        whole = whole.changed(backend="simulated", profile="h200", sim_seed=1, quick=plan.quick)
        keys, cells = list(whole.cells), dict(whole.cells)
        self.running.set()
        for number, key in enumerate(keys):
            self.hears.wait(LIMIT_S)
            while number == self.pauses_after and not self.go.is_set() and not stop():
                time.sleep(0.01)
            if self.fails_after == number:
                raise EngineFailed(EXIT_ENGINE, "the engine ended (killed by SIGKILL)")
            if stop():
                cells |= {key: Cell(*key, Status.MISSING) for key in keys[number:]}
                return whole.changed(cells=cells, interrupted=True)
            progress(CheckProgress(number, len(keys), 9.0, f"repeat 1 of 4 · {key[1]}"))
            if key[1] != QUIET:
                progress(CheckProgress(number + 1, len(keys), 8.0, f"repeat 1 of 4 · {key[1]}", cells[key]))
        return whole
