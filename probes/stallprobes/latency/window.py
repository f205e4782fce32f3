"""Window: the calls of one probe between two snapshots of the board; and histograms by channel, which it has.

Board, verdicts and JSON documents use this one type. Sums and differences of many channels at once take a fraction of
the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.histogram import Histogram, HistogramBlock
from stallprobes.model import Channel, Phase
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.board import Sample

ChannelMap = Mapping[Channel, Histogram]

# Measured calls, of the structure Sample, oldest first.
Samples = NDArray[Any]
# Empty array of measured calls.
NO_SAMPLES: Samples = np.zeros(0, dtype=dtype_of(Sample))


class InFlight(NamedTuple):
    """A call that has not returned.

    ``op`` is the index of its operation in the program, ``since_ns`` the board's time at its start, ``age_ns`` its age,
    ``due_ns`` the board's time at which its iteration was due. ``allowed_ns`` is the time since then in which its probe
    was allowed to run: less than the wall-clock time if it lasts beyond its slot.
    """

    op: int
    since_ns: int
    age_ns: int
    due_ns: int
    allowed_ns: int = 0


@dataclass(frozen=True, eq=False)
class Window:
    """The calls of one probe within ``duration_ns``, the time in which the probe was allowed to run.

    - ``iterations``: those that ended within the window.
    - ``in_flight``: the call in flight at its end.
    - ``missed``: due iterations that were skipped.
    - ``proof``: the GPU's own count, 0 for a program without a proof.
    - ``period_ns``: the probe's period, 0 for back to back.
    - ``first_ns``: each channel's value in the probe's very first iteration, which no histogram holds.
    - ``samples``: the most recent calls, oldest first.
    - ``in_slots``: the probe shared its GPU with victims of other groups, in slots.
    - ``not_alone_ns``: the part of ``duration_ns`` beside a call in flight of another group.
    - ``polled_ns``: time for which the loop polled the clock.
    - ``paused_ns``: the part of ``polled_ns`` without a CPU, in pauses of 20 µs or longer.
    """

    channels: ChannelMap
    iterations: int
    duration_ns: int
    in_flight: InFlight | None = None
    missed: int = 0
    proof: int = 0
    period_ns: int = 0
    first_ns: Mapping[Channel, int | None] = field(default_factory=dict)
    samples: Samples = field(default_factory=lambda: NO_SAMPLES)
    in_slots: bool = False
    not_alone_ns: int = 0
    polled_ns: int = 0
    paused_ns: int = 0

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.duration_ns / 1e9

    def with_records(self, begin: Mapping[Channel, Histogram], end: Mapping[Channel, Histogram]) -> Window:
        """This window with the timeline's histograms between ``begin`` and ``end``.

        Records arrive later than their calls return: at the window's own end the board does not hold all of them.
        """
        return replace(self, channels={**self.channels, **difference(end, begin)})


def merged(parts: Iterable[ChannelMap]) -> dict[Channel, Histogram]:
    """The sum of the histograms of each channel."""
    (sums,) = merged_groups([parts])
    return sums


def merged_groups(groups: Iterable[Iterable[ChannelMap]]) -> list[dict[Channel, Histogram]]:
    """For each of ``groups`` the sum of the histograms of each channel."""
    histograms: list[Histogram] = []
    sum_of: list[int] = []
    sums: list[dict[Channel, int]] = []
    rows = 0
    for parts in groups:
        numbers: dict[Channel, int] = {}
        for part in parts:
            sum_of += [numbers.setdefault(channel, rows + len(numbers)) for channel in part]
            histograms += part.values()
        sums.append(numbers)
        rows += len(numbers)
    block = HistogramBlock.sums(histograms, sum_of, rows)
    return [{channel: Histogram(block, row) for channel, row in numbers.items()} for numbers in sums]


def difference(later: ChannelMap, earlier: ChannelMap) -> dict[Channel, Histogram]:
    """The values of each channel of ``later`` since ``earlier``, which may lack channels.

    Raises ValueError if ``earlier`` has another channel, or more values in any bucket.
    """
    (added,) = differences([later], [earlier])
    return added


def differences(later: Sequence[ChannelMap], earlier: Sequence[ChannelMap]) -> list[dict[Channel, Histogram]]:
    """The ``difference`` of each of ``later`` and its counterpart in ``earlier``."""
    after: list[Histogram] = []
    before: list[Histogram] = []
    for now, then in zip(later, earlier, strict=True):
        if not then.keys() <= now.keys():
            raise ValueError("the earlier histograms have another channel")
        after += now.values()
        before += [then.get(channel, Histogram.empty()) for channel in now]
    rows = iter(HistogramBlock.of(after).minus(HistogramBlock.of(before)).histograms())
    return [{channel: next(rows) for channel in now} for now in later]


def judged_histogram(channels: ChannelMap, channel: Channel) -> Histogram | None:
    """The judged histogram of ``channel``, None without one; for a start it counts early starts as 0 ns.

    The timeline keeps starts before the call's return in a channel of their own. The percentiles of the later starts
    alone would describe only a part of the calls, so that a start before the return counts as a delay of 0.
    """
    histogram = channels.get(channel)
    if channel.phase is not Phase.START:
        return histogram
    early = channels.get(Channel(Phase.EARLY, channel.label))
    if early is None or not early.count:
        return histogram
    return (histogram or Histogram.empty()).merge(Histogram.read([[0, early.count]], 0))
