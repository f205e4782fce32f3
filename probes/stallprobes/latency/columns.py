"""Columns of a latency and its baseline in the records of a result."""

from __future__ import annotations

from stallprobes.files.tables import Record
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import PERCENTILES, BaselineRatio
from stallprobes.model import TIMELINE_PHASES, Channel


def latency_columns(channel: Channel, now: Histogram, baseline: Histogram) -> Record:
    """Count, percentiles and maximum of ``now``, with the aggressors running, and of ``baseline``, and their ratios.

    A ratio is None where either has no calls, and for phases that the timeline measures: those begin at any time near
    0.
    """
    columns: Record = {"phase": str(channel.phase), "op": channel.label}
    for prefix, histogram in (("", now), ("baseline_", baseline)):
        columns[f"{prefix}count"] = histogram.count
        for quantile in PERCENTILES:
            columns[f"{prefix}{quantile}_ns"] = _whole(histogram.percentile(quantile.percent))
        columns[f"{prefix}max_ns"] = histogram.max_ns if histogram.count else None
    for quantile in PERCENTILES:
        ratio = None
        if channel.phase not in TIMELINE_PHASES:
            ratio = BaselineRatio.of({channel: now}, {channel: baseline}, channel, quantile)
        columns[f"{quantile}_ratio"] = None if ratio is None else round(ratio.ratio, 3)
    return columns


def _whole(ns: float | None) -> int | None:
    return None if ns is None else round(ns)
