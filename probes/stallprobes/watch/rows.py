"""Rows of calls: the figures of one function in one thread, with the time lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallprobes.latency.histogram import MIDDLE, Histogram, index
from stallprobes.native.layouts.driver_calls import family_of
from stallprobes.native.layouts.watch_file import DEFAULT_SLOW_NS
from stallprobes.watch.attribution.findings import CallRow, ExplainedCall
from stallprobes.watch.reading.process import CallFigures


def usual_ns(histogram: Histogram, slow_ns: int) -> int:
    """The duration (ns) above which the time of a call is lost: the median.

    Where most calls are slow, as those of a loop that waits for the GPU each time, their median is itself a wait: then
    the median of the calls that are not slow, 0 without any.
    """
    limit = max(slow_ns, DEFAULT_SLOW_NS)
    median = histogram.percentile(50)
    if median is None:
        return 0
    if median < limit:
        return int(median)
    fast = histogram.counts
    fast[index(limit) :] = 0
    return int(Histogram.of_counts(fast, limit).percentile(50) or 0)


def unkept_ns(histogram: Histogram, slow_ns: int, median_ns: int, unkept: int, kept_ns: int) -> int:
    """The excess (ns, to 1 %) of the slow calls of a histogram beside those that were kept, whose excess is known."""
    if not unkept:
        return 0
    first = index(slow_ns)
    excess = np.maximum(MIDDLE[first:] - median_ns, 0)
    return max(int(histogram.counts[first:] @ excess) - kept_ns, 0)


@dataclass
class KeptCalls:
    """The slow calls of a row that were kept: their number, their excess, and that of those that are not nested."""

    calls: int = 0
    excess_ns: int = 0
    lost_ns: int = 0

    def add(self, call: ExplainedCall) -> None:
        """Add one."""
        self.calls += 1
        self.excess_ns += call.excess_ns
        self.lost_ns += 0 if call.nested else call.excess_ns


def row_of(thread: int, function: str, figures: CallFigures, slow_ns: int, kept: KeptCalls) -> CallRow:
    """The row of ``function`` in ``thread``."""
    total = figures.histogram
    median_ns = usual_ns(total, slow_ns)
    unkept = max(figures.slow - kept.calls, 0)
    rest_ns = unkept_ns(total, slow_ns, median_ns, unkept, kept.excess_ns)
    return CallRow(
        thread=thread,
        function=function,
        family=family_of(function),
        total=total,
        total_ns=figures.total_ns,
        slow=figures.slow,
        failed=figures.failed,
        median_ns=median_ns,
        lost_ns=kept.lost_ns + rest_ns,
        unkept=unkept,
        unkept_ns=rest_ns,
    )
