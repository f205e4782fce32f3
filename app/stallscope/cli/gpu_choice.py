"""Choice of the engine and the GPUs of a command, and consent to disturb other processes on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from stallprobes.errors import NoGpu
from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.progress import Progress

if TYPE_CHECKING:
    from stallprobes.engine.backend import Options
    from stallprobes.machine.gpus import Gpu, Survey

# Advice in the error message if CUDA can use no GPU of this machine.
_WITHOUT_GPU = "`stallscope doctor` says what is missing; `--sim` uses a simulated GPU"


@dataclass(frozen=True)
class ChosenEngine:
    """Where a command measures: the backend, the options of its sessions, and the GPUs with the survey that found them.

    A simulated engine has neither GPUs nor a survey.
    """

    backend: Literal["cuda", "sim"]
    options: Options
    gpus: tuple[Gpu, ...] = ()
    survey: Survey | None = None


def choose_engine(
    options: Options, count: int, allow_shared: bool, progress: Progress, survey: Callable[[], Survey] | None = None
) -> ChosenEngine:
    """The engine for ``options``: an engine of their simulated GPU, else with ``count`` GPUs from ``choose_gpus``."""
    if options.profile is not None:
        return ChosenEngine("sim", options)
    from stallprobes.machine import gpus

    chosen, surveyed = choose_gpus(options.gpu, count, allow_shared, progress, survey)
    return ChosenEngine("cuda", replace(options, gpu=gpus.uuids(chosen)), chosen, surveyed)


def choose_gpus(
    spec: str | None, count: int, allow_shared: bool, progress: Progress, survey: Callable[[], Survey] | None = None
) -> tuple[tuple[Gpu, ...], Survey]:
    """At least ``count`` GPUs, the ones of ``spec`` first, and their survey.

    ``survey`` returns the result of a survey that has begun; with None a new one begins. ``progress`` shows it. Raises
    NoGpu if there is no such GPU, and CommandError (exit code 2) if other processes use one and the user did not agree
    to disturb them.
    """
    from stallprobes.machine import gpus

    progress.begin("asking the driver for its GPUs", at_most_s=gpus.SURVEY_S)
    surveyed = gpus.survey() if survey is None else survey()
    progress.end()
    try:
        chosen = gpus.choose(spec, surveyed, count)
    except NoGpu as error:
        if any(gpu.cuda_index is not None for gpu in surveyed.gpus):
            raise
        raise NoGpu(f"{error}; {_WITHOUT_GPU}") from error
    for gpu in () if allow_shared else chosen:
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
    return chosen, surveyed
