"""Starts on the GPU in verdicts: the addition of the timeline to a wait's verdict, and the verdict on a start alone."""

from __future__ import annotations

from collections.abc import Sequence

from stallprobes.latency.ratio import BaselineRatio, Quantile, phase_channels
from stallprobes.model import Phase
from stallprobes.units import duration_ns, times
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict

# Smallest excess (ns) of the start on the GPU over its baseline for a verdict on the start. The start gets no verdict
# if a verdict is about the wait, which contains the start.
LEAST_NS = 20_000
# Resolution (ns) of the GPU's times. A start with a shorter baseline is judged as if its baseline were this long, and
# its verdict states no ratio.
RESOLUTION_NS = 1_000


def without_starts_of_waits(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """``verdicts`` with one for each delay: the wait contains the start, and its sentence names it.

    A start has a verdict of its own where the wait has none, if it stalls by LEAST_NS. A smaller shift can come from
    the conversion of the GPU's times to the host's clock, or from a call that returned earlier.
    """
    if any(verdict.phase is Phase.WAIT for verdict in verdicts):
        return [verdict for verdict in verdicts if verdict.phase is not Phase.START]
    return [verdict for verdict in verdicts if verdict.phase is not Phase.START or _stalls(verdict)]


def _stalls(verdict: Verdict) -> bool:
    delay_ns = (verdict.now_ns or 0.0) - (verdict.baseline_ns or 0.0)
    return verdict.kind is VerdictKind.STALLED and delay_ns >= LEAST_NS


def least_baseline_ns(phase: Phase) -> float:
    """The smallest baseline (ns) by which a median or tail of ``phase`` is divided."""
    return RESOLUTION_NS if phase is Phase.START else 1.0


def reported_change(evidence: Evidence, figure: BaselineRatio) -> tuple[str, float, float | None]:
    """The change of ``figure`` as a verdict states it: in words, the baseline in ns, and the ratio to it.

    The baseline of a start is the measured one, 0 if the GPU usually starts before the call returns. A baseline below
    RESOLUTION_NS has no ratio.
    """
    baseline_ns = evidence.baseline_ns(figure.channel, figure.quantile)
    if figure.channel.phase is not Phase.START or baseline_ns is None or baseline_ns >= RESOLUTION_NS:
        change = f"{duration_ns(figure.baseline_ns)} → {duration_ns(figure.now_ns)} ({times(figure.ratio)})"
        return change, figure.baseline_ns, figure.ratio
    return start_change_text(baseline_ns, figure.now_ns), baseline_ns, None


def gpu_clause(evidence: Evidence, figure: BaselineRatio) -> str:
    """The clause of the timeline on a wait: the start on the GPU, and the time on the GPU if it explains more of the
    wait."""
    if figure.channel.phase is not Phase.WAIT:
        return ""
    start, gpu = (_longest_part(evidence, phase, figure.quantile) for phase in (Phase.START, Phase.GPU))
    if start is None:
        return ""
    words = f", {start.channel.in_sentence} {start_change_text(start.baseline_ns, start.now_ns)}"
    if gpu is not None and gpu.now_ns - gpu.baseline_ns > start.now_ns - start.baseline_ns:
        words += f", time on the GPU {duration_ns(gpu.baseline_ns)} → {duration_ns(gpu.now_ns)}"
    known = max(part.now_ns - part.baseline_ns for part in (start, gpu) if part is not None)
    # For example, a staged copy's second half waited, or the host learned of the end too late.
    return words if known >= (figure.now_ns - figure.baseline_ns) / 2 else f"{words} (the delay came after it)"


def _longest_part(evidence: Evidence, phase: Phase, quantile: Quantile) -> BaselineRatio | None:
    """The channel of ``phase`` that grew most; None where none has calls in the window and in the baseline."""
    parts = []
    for channel in phase_channels(evidence.window.channels, phase):
        now, baseline_ns = evidence.now(channel), evidence.baseline_ns(channel, quantile)
        if now is not None and now.count and baseline_ns is not None:
            parts.append(BaselineRatio(channel, quantile, baseline_ns, now.percentile(quantile.percent) or 0.0))
    return max(parts, key=lambda each: each.now_ns - each.baseline_ns, default=None)


def start_change_text(before_ns: float, now_ns: float) -> str:
    """``2.20 µs → 1.88 ms``, ``before the return → 1.88 ms``, or ``before the return`` if both are.

    The figures are percentiles of judged histograms of starts.
    """
    before, now = (duration_ns(ns) if ns > 0 else "before the return" for ns in (before_ns, now_ns))
    return before if before_ns <= 0 and now_ns <= 0 else f"{before} → {now}"
