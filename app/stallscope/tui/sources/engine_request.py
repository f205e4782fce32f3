"""Request for an engine: which GPU the command line selects, and where a further engine can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stallprobes.engine.backend import Options
from stallprobes.machine import gpus
from stallprobes.recording.observation import ProbeSet


@dataclass(frozen=True)
class EngineRequest:
    """The command line's choice: ``gpu`` by index, UUID or PCI address, or ``sim``, a profile of the simulated GPU.

    With ``together``, victims of different contexts run at the same time instead of in slots. ``first`` are the probes
    at the start, by default those of the monitor.
    """

    gpu: str | None = None
    sim: str | None = None
    seed: int = 1
    sim_set: Mapping[str, str] = field(default_factory=dict)
    allow_shared: bool = False
    together: bool = False
    first: ProbeSet | None = None


@dataclass(frozen=True)
class EngineTarget:
    """Where another engine can run. ``gpu`` are UUIDs separated by commas, None on the simulated GPU."""

    backend: str
    gpu: str | None
    options: Options
    survey: gpus.Survey | None
    label: str = ""
    details: tuple[str, ...] = ()
