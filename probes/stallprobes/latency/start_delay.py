"""Start delay: the histogram by which the start on the GPU is judged.

The timeline keeps starts before the call's return apart, by magnitude. Those after it are then only a part of the
calls, and their percentiles say nothing about all of them. So a start before the return counts as a delay of 0.
"""

from __future__ import annotations

from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import ChannelMap
from stallprobes.model import Channel, Phase
from stallprobes.units import duration_ns


def judged_histogram(channels: ChannelMap, channel: Channel) -> Histogram | None:
    """The histogram of ``channel`` that is judged, None without one: that of a start with the early ones as 0 ns."""
    found = channels.get(channel)
    if channel.phase is not Phase.START:
        return found
    early = channels.get(Channel(Phase.EARLY, channel.label))
    if early is None or not early.count:
        return found
    return (found or Histogram.empty()).merge(Histogram.read([[0, early.count]], 0))


def start_text(ns: float) -> str:
    """A percentile (ns) of a judged histogram of starts as text: 0 is ``before the return``."""
    return duration_ns(ns) if ns > 0 else "before the return"


def start_change_text(before_ns: float, now_ns: float) -> str:
    """``2.20 µs → 1.88 ms``, ``before the return → 1.88 ms``, or ``before the return`` if both are."""
    words = start_text(before_ns)
    return words if before_ns <= 0 and now_ns <= 0 else f"{words} → {start_text(now_ns)}"
