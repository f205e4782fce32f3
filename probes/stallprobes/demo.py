"""The demo without its screen: the plan of its steps, and the analyzer's findings in them.

Imports live and below.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.live.analyzer import Analyzer
from stallprobes.model import Channel, Kind, Pattern, Phase, Role, Variant
from stallprobes.recording.observation import ProbeSet
from stallprobes.units import duration_ns, times
from stallprobes.verdicts.kinds import STARVED_WINDOW_NS, VerdictKind
from stallprobes.verdicts.verdict import Verdict

# Verdict in a demo's outcome if no stall was shown: quiet, without figures.
NOT_SHOWN = Verdict("", None, Quantile.P50, None, None, None, VerdictKind.QUIET, "")


class DemoPhase(StrEnum):
    """The steps of a pattern in their order: without the aggressors, with them, and with the remedy."""

    QUIET = "quiet"
    STALL = "stall"
    REMEDY = "remedy"


@dataclass(frozen=True)
class DemoStep:
    """One step of the demo: a variant of ``pattern``, in the quiet phase with its aggressors off."""

    pattern: Pattern
    phase: DemoPhase
    variant: Variant

    @property
    def aggressors_on(self) -> bool:
        """True if the aggressors run in this step."""
        return self.phase is not DemoPhase.QUIET and bool(self.variant.aggressors)

    def is_shown_by(self, probe_set: ProbeSet) -> bool:
        """True if ``probe_set`` has the probes of the variant."""
        return (probe_set.pattern, probe_set.variant) == (self.pattern.name, self.variant.name)


def steps(patterns: Iterable[Pattern], refused: Collection[Variant] = ()) -> tuple[DemoStep, ...]:
    """The steps of all ``patterns``, each with its first variant that is not ``refused``; none of a pattern that has no
    stall to show.

    A pattern without a stall shows a control in its place. If a stall has no aggressor to switch off, the quiet step
    shows a control.
    """
    shown: list[DemoStep] = []
    for pattern in patterns:
        stalls, controls, remedies = (
            [variant for variant in pattern.variants if variant.kind is kind]
            for kind in (Kind.STALL, Kind.CONTROL, Kind.REMEDY)
        )
        # A control with an aggressor shows more than one without.
        stalls = stalls or sorted(controls, key=lambda control: not control.aggressors)
        for stall in [variant for variant in stalls if variant not in refused][:1]:
            alone = [control for control in controls if not control.aggressors and control is not stall]
            by_phase = ([stall] if stall.aggressors else alone, [stall], remedies)
            for phase, variants in zip(DemoPhase, by_phase, strict=True):
                shown += [DemoStep(pattern, phase, variant) for variant in variants if variant not in refused][:1]
    return tuple(shown)


@dataclass(frozen=True)
class PatternOutcome:
    """Findings of the demo in one pattern.

    ``stall`` and ``remedy`` are names of variants, "" where none was shown; ``remedy`` may say why none is possible.
    ``remedied_ns`` is the latency of the stalled call with the remedy. ``skipped`` is the reason why this machine
    cannot run the pattern, ``problem`` a failure while it ran; each is a sentence or "".
    """

    pattern: Pattern
    stall: str = ""
    remedy: str = ""
    stalled: Verdict = NOT_SHOWN
    remedied_ns: float | None = None
    skipped: str = ""
    problem: str = ""

    @property
    def rows(self) -> tuple[tuple[str, float | None, str, str], ...]:
        """The quiet time, the stall and the remedy: name, latency (ns), its words, and a note beside them."""
        stalled, latency = self.stalled, self.pattern.latency
        words = [
            duration_ns(stalled.now_ns),
            "" if stalled.quantile is Quantile.P50 else stalled.quantile.replace("-", " "),
            "" if stalled.ratio is None else times(stalled.ratio),
            stalled.kind.look.word if self.stall and stalled.kind is not VerdictKind.STALLED else "",
        ]
        reported = (
            latency and f"reported {times(latency.stalled_ns / latency.baseline_ns)} ({latency.gpu.split()[-1][:4]})"
        )
        # The least time that a call of a starved victim takes.
        starved_ns = STARVED_WINDOW_NS if stalled.kind is VerdictKind.STARVED else None
        quiet = "GPU" if stalled.kind in (VerdictKind.GPU_TIME, VerdictKind.OVERHEAD) else "quiet"
        return (
            (quiet, stalled.baseline_ns, duration_ns(stalled.baseline_ns), ""),
            ("stall", stalled.now_ns or starved_ns, "  ".join(filter(None, words)), reported or ""),
            ("remedy", self.remedied_ns, duration_ns(self.remedied_ns), self.remedy),
        )


def worst_verdict(analyzer: Analyzer, since_s: float) -> Verdict:
    """The worst verdict that began after ``since_s`` (seconds since 1970); without one the figures of the probe that
    differs most from its baseline, with the kind QUIET."""
    probes = {probe.name for probe in analyzer.probe_set.probes if probe.role is not Role.HOST}
    verdicts = [entry.verdict for entry in analyzer.log if entry.began_s >= since_s and entry.verdict.probe in probes]
    slower = [verdict for verdict in verdicts if verdict.kind.is_slowdown and verdict.kind is not VerdictKind.HOST]
    if slower:
        return max(slower, key=lambda verdict: verdict.weight)
    rows = [row for row in analyzer.monitor_view(None, strip=0).rows if row.name in probes]
    row = max(rows, key=lambda candidate: candidate.ratio or 0.0)
    return Verdict(row.name, row.phase, row.quantile, row.baseline_ns, row.now_ns, row.ratio, VerdictKind.QUIET, "")


def remedied_ns(analyzer: Analyzer, stalled: Verdict) -> float | None:
    """The present latency (ns) of the call that ``stalled``, else of all calls of its probe; None without a call.

    It is the probe of the same name, else the first victim.
    """
    probes = [probe for probe in analyzer.probe_set.probes if probe.role is not Role.HOST]
    alike = min(probes, key=lambda probe: (probe.name != stalled.probe, probe.role is not Role.VICTIM))
    now, phase = analyzer.channels(alike.name), stalled.phase or Phase.CALL
    quantile = stalled.quantile if stalled.quantile in PERCENTILES else Quantile.P50
    channels = (Channel(phase, stalled.label), Channel(phase), Channel(Phase.CALL))
    return next((now[channel].percentile(quantile.percent) for channel in channels if channel in now), None)
