"""Outcome of the demo: what the analyzer found in the stall and in the remedy of each pattern."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stallprobes.latency.ratio import PERCENTILES, Quantile, phase_channels
from stallprobes.latency.window import ChannelMap
from stallprobes.live.analyzer import Analyzer
from stallprobes.model import JUDGED_PHASES, Pattern, Phase, Probe, Role
from stallprobes.recording.observation import CUDA, SIM, ProbeSet
from stallprobes.verdicts.kinds import VerdictKind

# The phases that are known without the timeline.
_HOST_PHASES = tuple(phase for phase in JUDGED_PHASES if phase.traits.host)
_HOST_TIME = (VerdictKind.GPU_TIME, VerdictKind.OVERHEAD)


@dataclass(frozen=True)
class StepLatency:
    """The most telling figure of a step: of the worst verdict, else the largest ratio among the victims.

    Times are ns, None where unknown. Of a verdict on GPU time the baseline is the time
    on the GPU, and ``now_ns`` that in the call. ``cause`` is a sentence, "" without a verdict that has one. ``label``
    is the operation that was measured, "" for all of the phase.
    """

    probe: str
    phase: Phase | None
    quantile: Quantile
    baseline_ns: float | None
    now_ns: float | None
    kind: VerdictKind
    cause: str = ""
    label: str = ""

    def ratio(self, baseline_ns: float | None) -> float | None:
        """``now_ns`` over ``baseline_ns``, which counts as at least 1 ns."""
        return None if self.now_ns is None or baseline_ns is None else self.now_ns / max(baseline_ns, 1.0)

    @property
    def figure(self) -> str:
        """What was measured: ``wait p50``, ``call in flight``, ``GPU → call``."""
        if self.kind in _HOST_TIME:
            return "GPU → call"
        quantile = "in flight" if self.quantile is Quantile.IN_FLIGHT else str(self.quantile)
        return quantile if self.phase is None else f"{self.phase.traits.word} {quantile}"


@dataclass(frozen=True)
class PatternOutcome:
    """What the demo found in one pattern.

    ``quiet``, ``stalled`` and ``remedied`` are None where that step was not shown, or too short. ``stall`` and
    ``remedy`` are names of variants, "" where none was shown. ``skipped`` is the reason why this machine cannot run the
    pattern, ``no_remedy`` why none of its remedies; ``problem`` is a failure while it ran. Each is a sentence or "".
    """

    pattern: Pattern
    stall: str = ""
    remedy: str = ""
    quiet: StepLatency | None = None
    stalled: StepLatency | None = None
    remedied: StepLatency | None = None
    skipped: str = ""
    no_remedy: str = ""
    problem: str = ""

    @property
    def baseline_ns(self) -> float | None:
        """The latency without the stall: the stalled probe's baseline, else the figure of the quiet step."""
        if self.stalled is not None and self.stalled.baseline_ns is not None:
            return self.stalled.baseline_ns
        return None if self.quiet is None else self.quiet.now_ns

    @property
    def ratio(self) -> float | None:
        """The stalled latency over ``baseline_ns``."""
        return None if self.stalled is None else self.stalled.ratio(self.baseline_ns)


@dataclass(frozen=True)
class DemoResult:
    """The outcomes of a demo, and where it ran: backend, GPUs and details as a probe set has them."""

    backend: str
    gpus: tuple[str, ...]
    details: tuple[str, ...]
    outcomes: tuple[PatternOutcome, ...]

    @classmethod
    def of(cls, probe_set: ProbeSet | None, outcomes: Iterable[PatternOutcome]) -> DemoResult:
        """The result of a demo that showed ``probe_set``, the one with the most GPUs; None if no engine was ready."""
        if probe_set is None:
            return cls(CUDA, (), (), tuple(outcomes))
        gpus = tuple(gpu.label for gpu in probe_set.gpus)
        return cls(probe_set.backend, gpus, probe_set.details, tuple(outcomes))

    @property
    def simulated(self) -> bool:
        """Whether the GPU was simulated."""
        return self.backend == SIM

    @property
    def machine(self) -> str:
        """``NVIDIA H200 (GPU 0) · driver 580.159.04 · CUDA 13.0``; "" if no engine was ready."""
        alike = len(self.gpus) > 1 and len(set(self.gpus)) == 1
        gpus = f"{len(self.gpus)} × {self.gpus[0]}" if alike else " + ".join(self.gpus)
        return " · ".join((f"SIMULATED {gpus}" if self.simulated else gpus, *self.details))


def last_number(analyzer: Analyzer) -> int:
    """The number of the newest entry in the log, 0 without one."""
    return max((entry.number for entry in analyzer.log), default=0)


def worst_latency(analyzer: Analyzer, after: int) -> StepLatency | None:
    """The worst verdict on a probe of the present set, among the entries of the log after the number ``after``."""
    names = {probe.name for probe in analyzer.probe_set.probes if probe.role is not Role.HOST}
    found = [entry.verdict for entry in analyzer.log if entry.number > after and entry.verdict.probe in names]
    slower = [one for one in found if one.kind.is_slowdown and one.kind is not VerdictKind.HOST]
    worst = max(slower, key=lambda one: one.weight, default=None)
    if worst is None:
        return None
    return StepLatency(
        worst.probe,
        worst.phase,
        worst.quantile,
        worst.baseline_ns,
        worst.now_ns,
        worst.kind,
        worst.cause,
        worst.label,
    )


def present_latency(analyzer: Analyzer, like: StepLatency | None = None) -> StepLatency | None:
    """A latency of the present window, of a probe that has no verdict to show.

    With ``like`` the figure that corresponds to it: the same phase, operation and percentile, of the victim with the
    same name, else of the first one. Otherwise the median with the largest ratio to its baseline among the victims.
    None without a call.
    """
    probes = [probe for probe in analyzer.probe_set.probes if probe.role is Role.VICTIM]
    probes = probes or [probe for probe in analyzer.probe_set.probes if probe.role is not Role.HOST]
    if like is not None:
        probes = sorted(probes, key=lambda probe: probe.name != like.probe)[:1]
    quantile = Quantile.P50 if like is None or like.quantile not in PERCENTILES else like.quantile
    found = [
        one
        for probe in probes
        for phase in _HOST_PHASES
        if (one := _present(analyzer, probe, phase, quantile, "" if like is None else like.label)) is not None
    ]
    alike = [one for one in found if like is not None and one.phase is like.phase]
    return max(alike or found, key=lambda one: (one.ratio(one.baseline_ns) or 0.0, one.now_ns or 0.0), default=None)


def remedied_latency(analyzer: Analyzer, after: int, stalled: StepLatency | None) -> StepLatency | None:
    """The figure of a remedy that corresponds to ``stalled``, of the worst stall in that phase if there is one.

    ``after`` is as in ``worst_latency``.
    """
    worst = worst_latency(analyzer, after)
    if worst is not None and worst.kind.is_stall and (stalled is None or worst.phase is stalled.phase):
        return worst
    return present_latency(analyzer, stalled)


def _present(analyzer: Analyzer, probe: Probe, phase: Phase, quantile: Quantile, label: str) -> StepLatency | None:
    """The figure of the operation ``label``, or of the slowest one where the probe has none of that name."""
    now = _percentiles(analyzer.channels(probe.name), phase, quantile)
    if not now:
        return None
    chosen = label if label in now else max(now, key=lambda name: now[name])
    baseline = analyzer.baselines.get(probe.name)
    before = {} if baseline is None else _percentiles(baseline.channels, phase, quantile)
    return StepLatency(probe.name, phase, quantile, before.get(chosen), now[chosen], VerdictKind.QUIET, label=chosen)


def _percentiles(channels: ChannelMap, phase: Phase, quantile: Quantile) -> dict[str, float]:
    """The percentile of each operation of ``phase`` by its label."""
    found = {
        one.label: channels[one].percentile(quantile.percent)
        for one in phase_channels(channels, phase)
        if one in channels
    }
    return {label: value for label, value in found.items() if value is not None}
