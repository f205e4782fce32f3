"""A latency compared with its baseline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from stallprobes.latency.window import ChannelMap
from stallprobes.model import Channel, Phase


class Quantile(StrEnum):
    """Which figure of a channel is compared: the median, the 99th percentile, or the age of a call in flight."""

    P50 = "p50"
    P99 = "p99"
    IN_FLIGHT = "in-flight"

    @property
    def percent(self) -> int:
        """The percentile, 50 or 99. Raises ValueError for a call in flight."""
        if self is Quantile.IN_FLIGHT:
            raise ValueError("the age of a call in flight is no percentile")
        return int(self[1:])


PERCENTILES = (Quantile.P50, Quantile.P99)


@dataclass(frozen=True)
class BaselineRatio:
    """One figure of a channel and its baseline, both in nanoseconds."""

    channel: Channel
    quantile: Quantile
    baseline_ns: float
    now_ns: float

    @property
    def ratio(self) -> float:
        """Now over baseline; a baseline below 1 ns counts as 1 ns."""
        return self.now_ns / max(self.baseline_ns, 1.0)

    @classmethod
    def of(cls, now: ChannelMap, baseline: ChannelMap, channel: Channel, quantile: Quantile) -> BaselineRatio | None:
        """The percentile of ``channel`` in both; None where either holds no calls. Raises ValueError for IN_FLIGHT."""
        if channel not in now or channel not in baseline:
            return None
        here, there = (channels[channel].percentile(quantile.percent) for channels in (now, baseline))
        return None if here is None or there is None else cls(channel, quantile, there, here)

    @classmethod
    def largest(cls, now: ChannelMap, baseline: ChannelMap, phase: Phase, quantile: Quantile) -> BaselineRatio | None:
        """The largest ratio among the ops of ``phase``; None where nothing can be compared.

        Where an iteration makes several calls of the phase, each has a channel of its own: their common histogram has
        a mode for each, and its percentiles may fall on either.
        """
        found = (cls.of(now, baseline, channel, quantile) for channel in phase_channels(now, phase))
        return max((one for one in found if one is not None), key=lambda one: one.ratio, default=None)


def phase_channels(channels: Iterable[Channel], phase: Phase) -> list[Channel]:
    """The channels of the ops of ``phase`` where they are labelled, else the phase's own."""
    return [one for one in channels if one.phase is phase and one.label] or [Channel(phase)]
