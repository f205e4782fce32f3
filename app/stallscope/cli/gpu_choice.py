"""The GPUs that a command measures on: chosen by name, and asked for where other processes use them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stallscope.cli import diagnostics
from stallscope.cli.diagnostics import Exit, Problem

if TYPE_CHECKING:
    from stallprobes.machine.gpus import Gpu, Survey


def choose(spec: str | None, wanted: int, allow_shared: bool) -> tuple[tuple[Gpu, ...], Survey]:
    """The GPUs of ``spec``, filled up to ``wanted``, and the survey they are from.

    Raises Problem: exit code 3 when there is none, 2 when others use one and nobody said that they may be disturbed.
    """
    from stallprobes.errors import NoGpu
    from stallprobes.machine import gpus

    survey = gpus.survey()
    try:
        chosen = gpus.choose(spec, survey, wanted)
    except NoGpu as error:
        raise Problem(Exit.NO_GPU, str(error)) from error
    if not allow_shared:
        ask_if_shared(chosen)
    return chosen, survey


def uuids(chosen: Iterable[Gpu]) -> str | None:
    """The GPUs as a session takes them, by commas; None for none."""
    return ",".join(gpu.cuda_uuid or gpu.uuid for gpu in chosen) or None


def ask_if_shared(chosen: Iterable[Gpu]) -> None:
    """Ask before others are disturbed. Raises Problem (exit code 2) for a no, or where nobody can answer."""
    from stallprobes.machine import gpus

    for gpu in chosen:
        others = gpus.others(gpu)
        if not others:
            continue
        who = f"{len(others)} other process{'es' if len(others) > 1 else ''} (pid {others[0].pid}: {others[0].name})"
        if not diagnostics.can_ask():
            raise Problem(Exit.USAGE, f"{gpu.label} is in use by {who}: say --allow-shared to disturb them")
        if not diagnostics.ask(f"{gpu.label} is in use by {who}. Disturb them?"):
            raise Problem(Exit.USAGE, "nothing was run")
