"""What a screen is fed, ten times a second: the bench of probes, the board, NVML and the engine's state, all frozen.

A live source makes frames, a recording keeps them, and a scope reads them; none of them knows which it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stallprobes.engine.backend import ProbeFailure
from stallprobes.engine.board import Snapshot
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.model import Probe

CUDA = "cuda"
SIM = "sim"
HOST = "host"

STARTING = "starting"
READY = "ready"
SILENT = "silent"
LOST = "lost"
REFUSED = "refused"


@dataclass(frozen=True)
class ProbeSet:
    """The probes that stand ready together, and on what.

    ``pattern`` and ``variant`` are "" for probes chosen one by one. ``gpu`` is the GPU in words, ``more_gpus`` those
    beside it, ``facts`` what else is known of it (driver, CUDA). ``why_simulated`` is the reason in a sentence where
    the GPU is a simulated one. ``watch`` says what to look for.
    """

    title: str
    probes: tuple[Probe, ...]
    backend: str
    gpu: str = ""
    facts: tuple[str, ...] = ()
    pattern: str = ""
    variant: str = ""
    watch: str = ""
    why_simulated: str | None = None
    more_gpus: tuple[str, ...] = ()

    def probe(self, name: str) -> Probe | None:
        """The probe called ``name``, None when it is not on the bench."""
        return next((probe for probe in self.probes if probe.name == name), None)


@dataclass(frozen=True)
class EngineStatus:
    """What the engine does.

    ``state`` is "starting", "ready", "silent" (its heartbeat stopped), "lost" (it ended) or "refused" (this machine
    cannot run the bench). ``age_s`` is for how long; ``sentence`` says why, "" where there is nothing to say.
    """

    state: str
    age_s: float = 0.0
    sentence: str = ""


@dataclass(frozen=True, eq=False)
class Observation:
    """All that was known at one moment. ``wall_s`` is seconds since 1970 (UTC).

    ``held`` are aggressors that are switched on but wait until quiet is measured. ``others`` are processes of others
    that compute on the GPU, in words. ``snapshot`` is None until the engine has been ready once.
    """

    wall_s: float
    probe_set: ProbeSet
    engine: EngineStatus
    snapshot: Snapshot | None = None
    telemetry: TelemetrySnapshot | None = None
    probe_failures: tuple[ProbeFailure, ...] = ()
    held: frozenset[str] = frozenset()
    others: tuple[str, ...] = field(default=())
