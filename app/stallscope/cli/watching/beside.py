"""Aggressors beside a watched program, in a process of stallscope's own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stallprobes.catalog import beside_programs
from stallprobes.measurement.aggressors import Aggressors
from stallprobes.watch.live.beside_trial import ENOUGH_TURNS, BesideTrial
from stallscope.cli.process import diagnostics


def trial_beside(
    names: Sequence[str], shared_allowed: bool, headless: bool, calls_only: bool = False
) -> BesideTrial | None:
    """The trial of aggressors ``names``; None without any where nobody can choose some, as with ``calls_only``.

    On a screen it has no end. ``shared_allowed``: other processes on the GPU may be disturbed too.
    """
    if (headless or calls_only) and not names:
        return None
    if names:
        diagnostics.print_message(
            f"aggressors will run on the program's GPU, in turns: {', '.join(names)}; all ranks of its job slow down"
        )

    def make(uuid: str, pids: Collection[int], cpus: int | None) -> Aggressors:
        return Aggressors(names or beside_programs(), uuid, pids, cpus, shared_allowed=shared_allowed)

    return BesideTrial(make, names, ENOUGH_TURNS if headless else 0)
