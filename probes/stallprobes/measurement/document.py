"""A run as a JSON document by the published schema ``stallscope.run/1``, which the package carries.

Latencies are microseconds with three decimals; histograms are whole, in nanoseconds. What is not known is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stallprobes.model import Channel

if TYPE_CHECKING:
    from stallprobes.latency.histogram import Histogram
    from stallprobes.measurement.measure import ProbeResult, RunResult, VariantResult
    from stallprobes.verdicts.rules import Verdict

RUN_SCHEMA = "stallscope.run/1"
# A percentile above the last rank but a few would be the maximum under another name.
P999_NEEDS = 1000


def document(result: RunResult) -> dict[str, Any]:
    """``result`` as JSON types."""
    return {
        "schema": RUN_SCHEMA,
        "backend": result.backend,
        "profile": result.profile,
        "seed": result.seed,
        "started_at": result.started_at,
        "seconds": result.seconds,
        "interrupted": result.interrupted,
        "fingerprint": dict(result.fingerprint),
        "results": [_variant(variant) for variant in result.variants],
    }


def _variant(variant: VariantResult) -> dict[str, Any]:
    return {
        "pattern": variant.pattern,
        "variant": variant.variant,
        "kind": str(variant.kind),
        "status": variant.status,
        "reason": variant.reason,
        "quiet_s": variant.quiet_s,
        "window_s": variant.window_s,
        "probes": [_probe(probe) for probe in variant.probes],
        "verdicts": [_verdict(verdict) for verdict in variant.verdicts],
    }


def _probe(probe: ProbeResult) -> dict[str, Any]:
    return {
        "name": probe.name,
        "title": probe.title,
        "entry": probe.entry,
        "role": str(probe.role),
        "context": probe.context,
        "stream": probe.stream,
        "state": probe.state,
        "calls": probe.calls,
        "starved": probe.starved,
        "in_flight_us": _rounded(probe.in_flight_us),
        "in_flight_op": probe.in_flight_op,
        "error": probe.error,
        "window_s": probe.window_s,
        "period_us": probe.period_ns / 1000,
        "proof": probe.proof,
        "phases": _phases(probe.channels, probe.first_ns),
        "quiet": _phases(probe.quiet, {}),
        "ops": [
            {
                "op": channel.label,
                "phase": str(channel.phase),
                **_figures(histogram, probe.first_ns.get(channel)),
                "quiet": _figures(probe.quiet[channel], None) if channel in probe.quiet else None,
            }
            for channel, histogram in probe.channels.items()
            if channel.label
        ],
    }


def _phases(channels: Mapping[Channel, Histogram], first_ns: Mapping[Channel, int | None]) -> dict[str, Any]:
    return {
        str(channel.phase): _figures(histogram, first_ns.get(channel))
        for channel, histogram in channels.items()
        if not channel.label
    }


def _figures(histogram: Histogram, first_ns: int | None) -> dict[str, Any]:
    return {
        "count": histogram.count,
        "first_us": None if first_ns is None else _rounded(first_ns / 1000),
        "p50_us": _micro(histogram.percentile(50)),
        "p90_us": _micro(histogram.percentile(90)),
        "p99_us": _micro(histogram.percentile(99)),
        "p999_us": _micro(histogram.percentile_or_none(99.9, P999_NEEDS)),
        "max_us": _micro(histogram.max_ns) if histogram.count else None,
        "histogram": histogram.sparse(),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "probe": verdict.probe,
        "phase": None if verdict.phase is None else str(verdict.phase),
        "quantile": verdict.quantile,
        "quiet_us": _rounded(verdict.quiet_us),
        "now_us": _rounded(verdict.now_us),
        "ratio": _rounded(verdict.ratio),
        "kind": verdict.kind,
        "cause": verdict.cause,
        "sentence": verdict.sentence,
        "helps": verdict.helps,
    }


def _micro(ns: float | None) -> float | None:
    return None if ns is None else _rounded(ns / 1000)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)
