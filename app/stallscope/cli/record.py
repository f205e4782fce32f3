"""The command ``record``: which GPU, which variant, and what to say when it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from stallprobes.engine.backend import Options, Unsupported
from stallprobes.engine.session import EngineFailed
from stallprobes.live.capture import capture
from stallprobes.live.observation import CUDA, SIM, GpuName, ProbeSet
from stallprobes.live.recording import RecordingError
from stallprobes.machine import gpus
from stallprobes.measurement import measure
from stallscope.cli.diagnostics import Exit, Problem


@dataclass(frozen=True)
class Chosen:
    """A bench, on which GPUs (none of a simulated one), and how the engine is to run."""

    probe_set: ProbeSet
    gpus: tuple[gpus.Gpu, ...]
    options: Options


def chosen(pattern: str, variant: str, gpu: str | None, sim: str | None) -> Chosen:
    """What was asked for. Raises Problem for names that are none, and where there is no such GPU."""
    try:
        ((name, what),) = measure.selection([pattern], [variant])
    except (measure.UnknownName, ValueError) as error:
        raise Problem(Exit.USAGE, str(error)) from error
    probe_set = ProbeSet(f"{name} · {variant}", what.probes, CUDA, pattern=name, variant=variant, expect=what.expect)
    if sim is not None:
        return Chosen(replace(probe_set, backend=SIM), (), Options(profile=sim))
    survey = gpus.survey()
    try:
        found = gpus.choose(gpu, survey, what.needs.gpus)
    except gpus.NoGpu as error:
        raise Problem(Exit.NO_GPU, str(error)) from error
    facts = (f"driver {survey.driver_version or 'n/a'}", f"CUDA {survey.driver.cuda_version_text}")
    on = replace(probe_set, gpus=tuple(GpuName.of_label(one.label) for one in found), details=facts)
    return Chosen(on, found, Options(gpu=",".join(one.cuda_uuid or one.uuid for one in found)))


def record(what: Chosen, file: Path, seconds: float, stop: Callable[[], bool]) -> None:
    """Record it. Raises Problem."""
    uuid = what.gpus[0].uuid if what.gpus else None
    try:
        capture(what.probe_set, file, options=what.options, seconds=seconds, uuid=uuid, stop=stop)
    except RecordingError as error:
        raise Problem(Exit.USAGE, str(error)) from error
    except Unsupported as error:
        raise Problem(Exit.FAILED, error.reason) from error
    except EngineFailed as error:
        raise Problem(error.exit_code, error.sentence) from error
