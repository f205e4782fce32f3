"""Result of a run: its variants, the evidence on each probe, and how much the machine varied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stallprobes.latency.baseline import widest
from stallprobes.latency.ratio import Quantile
from stallprobes.measurement.gpu_state import GpuStates
from stallprobes.model import JUDGED_PHASES, Channel, Kind, Role
from stallprobes.records.timeline_summary import TimelineSummary
from stallprobes.traces.trace import Trace
from stallprobes.verdicts.blame import Blame
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict

# The words of the document that are not those of the screen.
_STATES = {VerdictKind.HOST: "slower", VerdictKind.FAILED: "failed"}
# The phases whose variation is that of the machine; a start is near 0, and a part of the wait.
_VARYING = tuple(phase for phase in JUDGED_PHASES if phase.traits.host)


@dataclass(frozen=True, eq=False)
class ProbeResult(Evidence):
    """The evidence on one probe in one variant.

    ``kind`` is that of the worst verdict on a victim or the host control, FAILED after an error; None for an aggressor
    without one, and without a verdict.
    """

    kind: VerdictKind | None = None

    @property
    def state(self) -> str:
        """The word for ``kind``; without one "running" or "off" for an aggressor, "n/a" for another probe."""
        if self.kind is not None:
            return _STATES.get(self.kind, self.kind.look.word)
        if self.probe.role is not Role.AGGRESSOR:
            return "n/a"
        return "running" if self.window.iterations or self.window.in_flight is not None else "off"


@dataclass(frozen=True, eq=False)
class VariantResult:
    """The result of one variant.

    ``status`` is ok, unsupported or invalid, the latter two with a ``reason``. ``baseline_s`` and ``window_s`` are the
    measured seconds without and with the aggressors. ``slots``: victims of different contexts ran in slots;
    ``together``: slots were switched off. ``blame`` is the result of the experiment that switched
    each aggressor on and off, None without one. ``timeline`` says how the timeline was recorded, None without it.
    ``trace`` is what it recorded last until the aggressors were switched off, None unless it was asked for.
    ``gpu_states`` are what the GPU did in the baseline and in the window, None without a GPU.
    """

    pattern: str
    variant: str
    kind: Kind
    status: str
    reason: str | None
    probes: tuple[ProbeResult, ...]
    verdicts: tuple[Verdict, ...]
    baseline_s: float
    window_s: float
    slots: bool = False
    together: bool = False
    blame: Blame | None = None
    timeline: TimelineSummary | None = None
    trace: Trace | None = None
    gpu_states: GpuStates | None = None

    def widest(self, quantile: Quantile) -> RunSpread | None:
        """The largest spread of a percentile among the judged phases that the host measures.

        None where no baseline has two windows with enough calls.
        """
        known = {one.probe.name: one.variation for one in self.probes if one.variation is not None}
        found = widest(known, map(Channel, _VARYING), quantile)
        return None if found is None else RunSpread(found[0], str(found[1].phase), found[2])


@dataclass(frozen=True)
class RunSpread:
    """How much the machine varied: the highest over the lowest percentile of the windows of a baseline (0.25 s each),
    and the victim and phase."""

    probe: str
    phase: str
    ratio: float


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of a run. ``backend`` is "cuda", "sim" or "host"; profile and seed are the simulated GPU's.

    ``timeline``: it was on, which adds to each call.
    """

    backend: str
    profile: str | None
    seed: int | None
    fingerprint: Mapping[str, object]
    started_at: str
    seconds: float
    variants: tuple[VariantResult, ...]
    interrupted: bool = False
    timeline: bool = False

    @property
    def simulated(self) -> bool:
        """Whether the GPU was simulated."""
        return self.backend == "sim"

    @property
    def timeline_summary(self) -> TimelineSummary | None:
        """How the timeline of all variants was recorded; None without it."""
        return TimelineSummary.joined(one.timeline for one in self.variants if one.timeline is not None)

    @property
    def spread(self) -> RunSpread | None:
        """The largest spread of a median in the run; None where none is known."""
        found = (variant.widest(Quantile.P50) for variant in self.variants)
        return max((one for one in found if one is not None), key=lambda one: one.ratio, default=None)
