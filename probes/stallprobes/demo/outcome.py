"""Outcome of the demo: what the analyzer found in the stall and in the remedy of each pattern."""

from __future__ import annotations

from dataclasses import dataclass

from stallprobes.demo.plan import DemoPhase, DemoStep
from stallprobes.latency.ratio import PERCENTILES, Quantile, phase_channels
from stallprobes.live.analyzer import Analyzer
from stallprobes.model import JUDGED_PHASES, Pattern, Role
from stallprobes.recording.observation import CUDA, SIM, ProbeSet
from stallprobes.units import duration_ns
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict

# The phases that are known without the timeline.
_HOST_PHASES = tuple(phase for phase in JUDGED_PHASES if phase.traits.host)
# Kinds whose baseline is the time on the GPU, and whose latency is that in the call.
HOST_TIME = (VerdictKind.GPU_TIME, VerdictKind.OVERHEAD)


@dataclass(frozen=True)
class PatternOutcome:
    """What the demo found in one pattern.

    ``quiet``, ``stalled`` and ``remedied`` are None where that step was not shown, or too short. Those without a
    verdict of the analyzer have the kind QUIET. Of a verdict on GPU time the baseline is the time on the GPU, and
    ``now_ns`` that in the call. ``stall`` and ``remedy`` are names of variants, None where none was shown. ``skipped``
    is the reason why this machine cannot run the pattern, ``no_remedy`` why none of its remedies; ``problem`` is a
    failure while it ran. Each is a sentence or None.
    """

    pattern: Pattern
    stall: str | None = None
    remedy: str | None = None
    quiet: Verdict | None = None
    stalled: Verdict | None = None
    remedied: Verdict | None = None
    skipped: str | None = None
    no_remedy: str | None = None
    problem: str | None = None

    @property
    def baseline_ns(self) -> float | None:
        """The latency without the stall: the stalled probe's baseline, else the figure of the quiet step."""
        if self.stalled is not None and self.stalled.baseline_ns is not None:
            return self.stalled.baseline_ns
        return None if self.quiet is None else self.quiet.now_ns

    @property
    def stalled_ns(self) -> float | None:
        """The stalled latency."""
        return None if self.stalled is None else self.stalled.now_ns

    @property
    def remedied_ns(self) -> float | None:
        """The latency with the remedy."""
        return None if self.remedied is None else self.remedied.now_ns

    @property
    def ratio(self) -> float | None:
        """The stalled latency over ``baseline_ns``, which counts as at least 1 ns."""
        now_ns, baseline_ns = self.stalled_ns, self.baseline_ns
        return None if now_ns is None or baseline_ns is None else now_ns / max(baseline_ns, 1.0)


@dataclass(frozen=True)
class DemoResult:
    """The outcomes of a demo, and where it ran: ``probe_set`` is the one with the most GPUs."""

    outcomes: tuple[PatternOutcome, ...]
    probe_set: ProbeSet

    @property
    def machine(self) -> str:
        """``NVIDIA H200 (GPU 0) · driver 580.159.04 · CUDA 13.0``; "" if no engine was ready."""
        gpus = " + ".join(gpu.label for gpu in self.probe_set.gpus)
        return " · ".join((f"SIMULATED {gpus}" if self.probe_set.backend == SIM else gpus, *self.probe_set.details))


# The result of a demo without an engine.
NOTHING = DemoResult((), ProbeSet("", (), CUDA))


def figure_name(found: Verdict) -> str:
    """What was measured: ``wait p50``, ``call in flight``, ``GPU → call``."""
    if found.kind in HOST_TIME:
        return "GPU → call"
    quantile = found.quantile.replace("-", " ")
    return quantile if found.phase is None else f"{found.phase.traits.word} {quantile}"


def last_number(analyzer: Analyzer) -> int:
    """The number of the newest entry in the log, 0 without one."""
    return max((entry.number for entry in analyzer.log), default=0)


def found_in(step: DemoStep, analyzer: Analyzer, after: int, known: PatternOutcome) -> Verdict | None:
    """The most telling figure of a step: of the worst verdict with a number above ``after``, else a latency.

    A remedy shows the figure that corresponds to that of the stall, unless a victim is stalled in the same phase.
    """
    worst = None if step.phase is DemoPhase.QUIET else _worst_verdict(analyzer, after)
    if step.phase is not DemoPhase.REMEDY:
        return worst or _latency(analyzer, None if step.variant.aggressors else known.quiet)
    if worst and worst.kind.is_stall and (known.stalled is None or worst.phase is known.stalled.phase):
        return worst
    return _latency(analyzer, known.stalled)


def _worst_verdict(analyzer: Analyzer, after: int) -> Verdict | None:
    """The worst verdict on a probe of the present set, among the entries of the log after the number ``after``."""
    names = {probe.name for probe in analyzer.probe_set.probes if probe.role is not Role.HOST}
    found = (entry.verdict for entry in analyzer.log if entry.number > after and entry.verdict.probe in names)
    slower = (one for one in found if one.kind.is_slowdown and one.kind is not VerdictKind.HOST)
    return max(slower, key=lambda one: one.weight, default=None)


def _latency(analyzer: Analyzer, like: Verdict | None) -> Verdict | None:
    """A latency of the present window, None without a call: the one with the largest ratio to its baseline.

    With ``like`` the same phase, percentile and operation, of the victim with the same name, else of the first one.
    """
    probes = [probe for probe in analyzer.probe_set.probes if probe.role is Role.VICTIM]
    probes = probes or [probe for probe in analyzer.probe_set.probes if probe.role is not Role.HOST]
    if like is not None:
        probes = sorted(probes, key=lambda probe: probe.name != like.probe)[:1]
    quantile = Quantile.P50 if like is None or like.quantile not in PERCENTILES else like.quantile
    found = []
    for probe in probes:
        now, baseline = analyzer.channels(probe.name), analyzer.baselines.get(probe.name)
        for channel in (one for phase in _HOST_PHASES for one in phase_channels(now, phase) if one in now):
            now_ns, before_ns = now[channel].percentile(quantile.percent), None
            if now_ns is None:
                continue
            if baseline is not None and channel in baseline.channels:
                before_ns = baseline.channels[channel].percentile(quantile.percent)
            ratio = None if before_ns is None else now_ns / max(before_ns, 1.0)
            names = probe.name, channel.phase, quantile
            figure = Verdict(*names, before_ns, now_ns, ratio, VerdictKind.QUIET, "", label=channel.label)
            alike = like is not None and (channel.phase is like.phase, channel.label == like.label)
            found.append((alike, ratio or 0.0, now_ns, figure))
    return max(found, key=lambda one: one[:-1])[-1] if found else None


def sentence_of(found: Verdict) -> str:
    """Probe and figure of a latency, with the cause of a verdict."""
    latency = f"{found.probe}: {figure_name(found)} {duration_ns(found.now_ns)}."
    return f"{latency} {found.kind.look.word}. {found.cause}" if found.cause else latency
