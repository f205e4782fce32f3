"""Observations: probe set, board snapshot, NVML values and engine status at one moment, frozen.

A live source makes them five or ten times a second, a recording stores them, and the analyzer reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from msgspec import Struct

from stallprobes.engine.backend import ProbeFailure
from stallprobes.engine.snapshot import Snapshot
from stallprobes.files.codec import WallSeconds
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.model import Probe

# Name of the engine's backend for a real GPU.
CUDA: Final = "cuda"
# Name of the engine's backend for a simulated GPU.
SIM: Final = "sim"
# Value of ``waiting`` (names of aggressors that wait for the baseline) if no aggressor waits. A recording leaves the
# member out only if the value is this object itself, not an equal set.
NONE_WAITING: frozenset[str] = frozenset()


class EngineCondition(StrEnum):
    """The condition of an engine as its owner sees it. The values are those of recordings.

    ``SILENT``: its heartbeat stopped. ``LOST``: its process ended. ``REFUSED``: this machine cannot run the probe set.
    """

    STARTING = "starting"
    READY = "ready"
    SILENT = "silent"
    LOST = "lost"
    REFUSED = "refused"


@dataclass(frozen=True)
class GpuName:
    """The model of a GPU and its number on this machine, None where it has none (simulated)."""

    model: str
    index: int | None = None

    @property
    def label(self) -> str:
        """``NVIDIA H200 (GPU 0)``."""
        return self.model if self.index is None else f"{self.model} (GPU {self.index})"


class ProbeSetHead(Struct, frozen=True, kw_only=True):
    """Members of a probe set and of its line in a recording: all but the probes.

    ``pattern`` and ``variant`` are "" for probes selected one by one; ``expect`` is the result to expect of the
    variant. ``gpus`` are empty while they are not known. ``details`` are driver and CUDA version, or profile and seed
    of the simulated GPU; ``why_simulated`` is the reason why the GPU is simulated, one sentence.
    """

    title: str
    backend: Literal["cuda", "sim", "host"]
    gpus: tuple[GpuName, ...] = ()
    details: tuple[str, ...] = ()
    pattern: str = ""
    variant: str = ""
    expect: str = ""
    why_simulated: str | None = None


class ProbeSet(ProbeSetHead, frozen=True, kw_only=True):
    """The probes of one engine, and the GPUs under them."""

    probes: tuple[Probe, ...]

    def probe(self, name: str) -> Probe | None:
        """The probe called ``name``, None where there is none."""
        return next((probe for probe in self.probes if probe.name == name), None)


@dataclass(frozen=True)
class EngineStatus:
    """Condition of the engine, the seconds since it began, and the reason in a sentence, "" for none."""

    state: EngineCondition
    age_s: float = 0.0
    sentence: str = ""


class ObservationHead(Struct, frozen=True, eq=False, kw_only=True):
    """Members of an observation and of its line in a recording. ``wall_s`` is in seconds since 1970 (UTC).

    ``waiting`` are aggressors that are switched on and start when the baseline is complete. ``other_processes`` compute
    on the GPU, ``NAME (pid N)`` each. ``experiment``: a blame experiment switches the aggressors. ``timeline``: the
    timeline is on, None while it is being switched.
    """

    wall_s: WallSeconds
    engine: EngineStatus
    probe_failures: tuple[ProbeFailure, ...] = ()
    waiting: frozenset[str] = NONE_WAITING
    other_processes: tuple[str, ...] = ()
    experiment: bool = False
    timeline: bool | None = False


class Observation(ObservationHead, frozen=True, eq=False, kw_only=True):
    """Everything known at one moment. ``snapshot`` is None until the engine has been ready once."""

    probe_set: ProbeSet
    snapshot: Snapshot | None = None
    telemetry: TelemetrySnapshot | None = None
