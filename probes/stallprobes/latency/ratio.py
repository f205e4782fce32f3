"""Ratio of a latency to its baseline. Loads no numpy, so that text reports and file readers can import it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from stallprobes.model import Channel, Phase

if TYPE_CHECKING:
    from stallprobes.latency.histogram import Histogram


class Quantile(StrEnum):
    """The figure of a channel that is compared: median, 99th percentile, or age of the call in flight."""

    P50 = "p50"
    P99 = "p99"
    IN_FLIGHT = "in-flight"

    # The hash of str is C; the hash of an enum is Python code.
    __hash__ = str.__hash__

    @property
    def percent(self) -> int:
        """The percentile, 50 or 99. Raises ValueError for a call in flight."""
        if self is Quantile.IN_FLIGHT:
            raise ValueError("the age of a call in flight is no percentile")
        return int(self[1:])


# The members of Quantile that are percentiles. The other member, IN_FLIGHT, is the age of a call in flight.
PERCENTILES = (Quantile.P50, Quantile.P99)


@dataclass(frozen=True)
class BaselineRatio:
    """A figure of a channel and its baseline, in nanoseconds, with their ratio."""

    channel: Channel
    quantile: Quantile
    baseline_ns: float
    now_ns: float

    @property
    def ratio(self) -> float:
        """``now_ns`` over ``baseline_ns``; a baseline below 1 ns counts as 1 ns."""
        return self.now_ns / max(self.baseline_ns, 1.0)

    @classmethod
    def of(
        cls,
        now: Mapping[Channel, Histogram],
        baseline: Mapping[Channel, Histogram],
        channel: Channel,
        quantile: Quantile,
    ) -> BaselineRatio | None:
        """The percentile of ``channel`` in ``now`` and ``baseline``; None if either has no calls.

        Raises ValueError for IN_FLIGHT.
        """
        if channel not in now or channel not in baseline:
            return None
        here, there = (channels[channel].percentile(quantile.percent) for channels in (now, baseline))
        return None if here is None or there is None else cls(channel, quantile, there, here)

    @classmethod
    def largest(
        cls,
        now: Mapping[Channel, Histogram],
        baseline: Mapping[Channel, Histogram],
        phase: Phase,
        quantile: Quantile,
    ) -> BaselineRatio | None:
        """The largest ratio among the operations of ``phase``; None if none has calls in both.

        An iteration with several calls of the phase has a labelled channel for each. Their common histogram would have
        a mode per operation, and its percentiles could fall on any of them.
        """
        ratios = (cls.of(now, baseline, channel, quantile) for channel in phase_channels(now, phase))
        return max((ratio for ratio in ratios if ratio is not None), key=lambda ratio: ratio.ratio, default=None)


def phase_channels(channels: Iterable[Channel], phase: Phase) -> list[Channel]:
    """The labelled channels of ``phase``; without any, the channel of the whole phase."""
    return [channel for channel in channels if channel.phase is phase and channel.label] or [Channel(phase)]
