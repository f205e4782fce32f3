"""Choice of the GPUs of a command, and consent to disturb other processes on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from stallprobes.errors import NoGpu
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode

if TYPE_CHECKING:
    from stallprobes.machine.gpus import Gpu, Survey


def choose_gpus(
    spec: str | None, count: int, allow_shared: bool, survey: Callable[[], Survey] | None = None
) -> tuple[tuple[Gpu, ...], Survey]:
    """At least ``count`` GPUs, those of ``spec`` first, and the survey that found them.

    ``survey`` returns one that is in progress; None for a new one.
    Raises CommandError: exit code 3 if there is no such GPU, 2 if other processes use one and the user did not agree.
    """
    from stallprobes.machine import gpus

    found = gpus.survey() if survey is None else survey()
    try:
        chosen = gpus.choose(spec, found, count)
    except NoGpu as error:
        raise CommandError(ExitCode.NO_GPU, str(error)) from error
    if not allow_shared:
        confirm_shared(chosen)
    return chosen, found


def uuids(chosen: Iterable[Gpu]) -> str | None:
    """UUIDs of the GPUs as a session expects them, separated by commas; None without a GPU."""
    return ",".join(gpu.cuda_uuid or gpu.uuid for gpu in chosen) or None


def confirm_shared(chosen: Iterable[Gpu]) -> None:
    """Ask before other processes are disturbed. Raises CommandError (exit code 2) on "no" or without a terminal."""
    from stallprobes.machine import gpus

    for gpu in chosen:
        others = gpus.others(gpu)
        if not others:
            continue
        who = f"{len(others)} other process{'es' if len(others) > 1 else ''} (pid {others[0].pid}: {others[0].name})"
        if not diagnostics.is_interactive():
            raise CommandError(
                ExitCode.USAGE, f"{gpu.label} is in use by {who}; use --allow-shared to run anyway and disturb them"
            )
        if not diagnostics.confirm(f"{gpu.label} is in use by {who}. Disturb them?"):
            raise CommandError(ExitCode.USAGE, "cancelled; nothing was measured")
