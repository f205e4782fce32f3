"""Evidence: the measurements of one probe, with the limits for slower, stalled and starved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from stallprobes.latency.baseline import ENOUGH_CALLS, Baseline
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import ChannelMap, Window, judged_histogram, merged
from stallprobes.model import Channel, Probe, op_name
from stallprobes.verdicts.candidates import EffectsSource, no_effects
from stallprobes.verdicts.kinds import STARVED_CALLS, STARVED_WINDOW_NS

# Smallest ratio of a latency to its baseline for a stall.
STALLED = 3.0
# Smallest ratio of a latency to its baseline for a slowdown.
SLOWER = 1.5
# Smallest excess (ns) of a median over its baseline for a stall, beside aggressors or after longer idle times. Reason:
# a smaller excess is due to cache misses, not to locks.
STALLED_NS = 2_000
# Smallest excess (ns) of a median over its baseline for a slowdown, and smallest range of medians for the verdict
# "unsteady". Reason: a smaller excess is due to cache misses, not to locks.
SLOWER_NS = 1_000
# Smallest excess (ns) over the baseline's p99 for a slow call in a stalled tail, beside aggressors or after longer idle
# times. In all other windows, the value is the smallest excess (ns) of a stalled median over the baseline's median.
# Reason: a smaller excess is due to cache misses, not to locks.
TAIL_NS = 20_000
# Smallest excess (ns) over the baseline's p99 for a slow call in a stalled tail without aggressors or longer idle
# times, and for a call that triggers a trace. A run repeats the measurement beside aggressors once if a stalled tail
# has a smaller excess. Reason: on a busy machine, 1 % of the calls in a second are sometimes 30 µs late.
ALONE_TAIL_NS = 100_000
# Percentile of the baseline that the median of calls after idle times must exceed for a stall. Reason for a percentile
# below 99: on a busy machine, 1 baseline call in 50 is as slow as a stalled call. False stalls are rare: in only 7 of
# 1000 windows, the median of three baseline calls is above p95.
_FEW_CALLS_PERCENT = 95


@dataclass(frozen=True, eq=False)
class Evidence:
    """Measurements of one probe: its window, its baselines and its error.

    The first baseline was measured before the aggressors ran, a later one after them. ``variation`` is the same time
    in windows, None if they are not known. ``error`` is a sentence where a call failed.
    """

    probe: Probe
    window: Window
    baselines: tuple[ChannelMap, ...] = ()
    error: str | None = None
    variation: Baseline | None = None

    @cached_property
    def baseline(self) -> ChannelMap:
        """The sum of the baselines."""
        return merged(self.baselines)

    def now(self, channel: Channel) -> Histogram | None:
        """The calls of ``channel`` in the window as they are judged, None without any channel of it."""
        return judged_histogram(self.window.channels, channel)

    def baseline_ns(self, channel: Channel, quantile: Quantile) -> float | None:
        """The percentile (ns) of the slower baseline with enough calls, None if none has enough."""
        if self.variation is not None and self.baselines and self.baselines[0] is self.variation.channels:
            return self.variation.percentile_ns(channel, quantile)
        return max(self._of_baselines(channel, quantile.percent), default=None)

    def _of_baselines(self, channel: Channel, percent: float) -> list[float]:
        """The percentile (ns) of each baseline with enough calls."""
        histograms = (judged_histogram(baseline, channel) for baseline in self.baselines)
        known = (each.percentile_or_none(percent, ENOUGH_CALLS) for each in histograms if each is not None)
        return [ns for ns in known if ns is not None]

    def median_ns(self, channel: Channel) -> float | None:
        """The median (ns) that the median of the window is divided by; None if no baseline has enough calls.

        That of the slower baseline, since the machine may have drifted. Calls after idle times are compared with all
        calls of the baselines: they differ from them by the idle time, whichever baseline was slower.
        """
        if not self.idling:
            return self.baseline_ns(channel, Quantile.P50)
        every = judged_histogram(self.baseline, channel)
        return None if every is None else every.percentile_or_none(Quantile.P50.percent, ENOUGH_CALLS)

    def rare_ns(self, channel: Channel) -> float | None:
        """The latency (ns) that few calls of the slower baseline exceed; None if none has enough calls.

        Its p99; for calls after idle times its p95.
        """
        if not self.idling:
            return self.baseline_ns(channel, Quantile.P99)
        return max(self._of_baselines(channel, _FEW_CALLS_PERCENT), default=None)

    def range_ns(self, channel: Channel, quantile: Quantile) -> tuple[float, float] | None:
        """The range of the percentile (ns) among the windows of the baseline, else among the baselines.

        None if unknown.
        """
        if self.variation is not None:
            return self.variation.range_ns(channel, quantile)
        figures = self._of_baselines(channel, quantile.percent)
        return (min(figures), max(figures)) if figures else None

    def slower_ns(self, channel: Channel) -> float | None:
        """The smallest median (ns) of ``channel`` that is slower than the baseline; None without a baseline.

        1.5 times the baseline and 1 µs above it and, where the windows of the baseline are known, above what one more
        window would show (``Baseline.limit_ns``).
        """
        baseline_ns = self.baseline_ns(channel, Quantile.P50)
        if baseline_ns is None:
            return None
        least = max(SLOWER * baseline_ns, baseline_ns + SLOWER_NS)
        varies = None if self.variation is None else self.variation.limit_ns(channel, Quantile.P50)
        return least if varies is None else max(least, varies)

    def tail_ns(self, channel: Channel, *, alone: bool = False) -> float | None:
        """The smallest latency (ns) of a call of ``channel`` in a stalled tail; None without a baseline.

        3 times the p99 of the baseline and 20 µs above it. Where the windows of the baseline are known, their highest
        p99 counts. ``alone``, without an aggressor: the highest p99 expected of one more window counts, and the tail is
        100 µs above it.
        """
        baseline_ns = self.baseline_ns(channel, Quantile.P99)
        if baseline_ns is None:
            return None
        highest = None
        if self.variation is not None and alone:
            highest = self.variation.limit_ns(channel, Quantile.P99)
        elif self.variation is not None:
            known = self.variation.range_ns(channel, Quantile.P99)
            highest = None if known is None else known[1]
        usual = max(baseline_ns, highest or 0.0, 1.0)
        return max(STALLED * usual, usual + (ALONE_TAIL_NS if alone else TAIL_NS))

    @property
    def idling(self) -> bool:
        """True if the calls of the window were made after longer idle times than those of the baseline."""
        return self.probe.is_idle_at(self.window.period_ns)

    @property
    def in_flight_op(self) -> str | None:
        """The op of the call in flight, None without one."""
        flight = self.window.in_flight
        return None if flight is None else op_name(self.probe.program.ops[flight.op])

    @property
    def starved(self) -> bool:
        """True if fewer than 3 calls returned in half a second although more were due."""
        window = self.window
        if window.duration_ns < STARVED_WINDOW_NS or window.period_ns <= 0:
            return False
        half_seconds = window.duration_ns / STARVED_WINDOW_NS
        due = STARVED_WINDOW_NS / window.period_ns
        return window.iterations < STARVED_CALLS * half_seconds and due > 2 * STARVED_CALLS


@dataclass(frozen=True)
class EvidenceByRole:
    """The evidence on all probes that ran at the same time, by role.

    ``others`` are the other processes on the GPU, None if NVML does not know them. ``effects`` returns those
    of single aggressors by recorded checks.
    """

    aggressors: Sequence[Evidence]
    victims: Sequence[Evidence]
    host: Evidence | None
    others: tuple[str, ...] | None = None
    effects: EffectsSource = no_effects

    def alone(self, evidence: Evidence) -> bool:
        """True if ``evidence`` ran as in its baseline: without an aggressor, and not after longer idle times."""
        return not self.aggressors and not evidence.idling
