"""JSON document of a run, published schema ``stallscope.run/2``.

Latencies are microseconds with three decimals. Histograms are complete, with bounds in nanoseconds. Unknown values are
null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stallprobes.latency.ratio import PERCENTILES
from stallprobes.model import Channel, Probe
from stallprobes.verdicts.blame import sentence

if TYPE_CHECKING:
    from stallprobes.latency.histogram import Histogram
    from stallprobes.latency.window import ChannelMap
    from stallprobes.measurement.result import ProbeResult, RunResult, VariantResult
    from stallprobes.verdicts.blame import Blame
    from stallprobes.verdicts.verdict import Verdict

RUN_SCHEMA = "stallscope.run/2"
# With fewer values, the p99.9 is the maximum.
P999_NEEDS = 1000


def document(result: RunResult) -> dict[str, Any]:
    """``result`` as JSON types."""
    return {
        "schema": RUN_SCHEMA,
        "backend": "simulated" if result.simulated else result.backend,
        "profile": result.profile,
        "seed": result.seed,
        "started_at": result.started_at,
        "seconds": result.seconds,
        "timeline": result.timeline,
        **({} if result.timeline_summary is None else {"timeline_status": result.timeline_summary.document()}),
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
        "baseline_s": variant.baseline_s,
        "window_s": variant.window_s,
        "slots": variant.slots,
        "together": variant.together,
        "probes": [_probe(probe) for probe in variant.probes],
        "verdicts": [_verdict(verdict) for verdict in variant.verdicts],
        "blame": None if variant.blame is None else _blame(variant.blame, variant),
        "spread": _spread(variant),
        **({} if variant.gpu_states is None else {"gpu_state": variant.gpu_states.document()}),
    }


def _spread(variant: VariantResult) -> dict[str, Any] | None:
    """The largest spread among the probes of ``variant``, for each percentile."""
    found = {str(quantile): variant.widest(quantile) for quantile in PERCENTILES}
    if all(one is None for one in found.values()):
        return None
    return {name: None if one is None else _rounded(one.ratio) for name, one in found.items()}


def _probe(result: ProbeResult) -> dict[str, Any]:
    probe, window = result.probe, result.window
    return {
        "name": probe.name,
        "title": probe.title,
        "entry": probe.entry,
        "role": str(probe.role),
        "context": probe.context,
        "stream": probe.stream,
        "state": result.state,
        "calls": window.iterations,
        "starved": result.starved,
        "in_flight_us": None if window.in_flight is None else _us(window.in_flight.age_ns),
        "in_flight_op": result.in_flight_op,
        "error": result.error,
        "window_s": window.seconds,
        "period_us": window.period_ns / 1000,
        "gpu_starts": None if probe.program.proof is None else window.proof,
        "phases": _phases(probe, window.channels, window.first_ns),
        "baseline": _phases(probe, result.baseline, {}),
        "ops": [
            {
                "op": channel.label,
                "phase": str(channel.phase),
                **_figures(probe, channel, histogram, window.first_ns.get(channel)),
                "baseline": _figures(probe, channel, result.baseline[channel], None)
                if channel in result.baseline
                else None,
            }
            for channel, histogram in window.channels.items()
            if channel.label
        ],
    }


def _phases(probe: Probe, channels: ChannelMap, first_ns: Mapping[Channel, int | None]) -> dict[str, Any]:
    return {
        str(channel.phase): _figures(probe, channel, histogram, first_ns.get(channel))
        for channel, histogram in channels.items()
        if not channel.label
    }


def _figures(probe: Probe, channel: Channel, histogram: Histogram, first_ns: int | None) -> dict[str, Any]:
    return {
        "source": str(probe.program.source(channel.phase)),
        "count": histogram.count,
        "first_us": _us(first_ns) if probe.program.measures_first(channel) else None,
        "p50_us": _us(histogram.percentile(50)),
        "p90_us": _us(histogram.percentile(90)),
        "p99_us": _us(histogram.percentile(99)),
        "p999_us": _us(histogram.percentile_or_none(99.9, P999_NEEDS)),
        "max_us": _us(histogram.max_ns) if histogram.count else None,
        "histogram": histogram.pairs(),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "probe": verdict.probe,
        "phase": None if verdict.phase is None else str(verdict.phase),
        "quantile": str(verdict.quantile),
        "baseline_us": _us(verdict.baseline_ns),
        "range_us": None if verdict.range_ns is None else [_us(ns) for ns in verdict.range_ns],
        "now_us": _us(verdict.now_ns),
        "ratio": _rounded(verdict.ratio),
        "detectable": _rounded(verdict.detectable),
        "kind": str(verdict.kind),
        "proof": str(verdict.proof),
        "head": verdict.head,
        "cause": verdict.cause,
        "remedy": verdict.remedy,
        "sentence": verdict.sentence,
    }


def _blame(blame: Blame, variant: VariantResult) -> dict[str, Any]:
    titles = {result.probe.name: result.probe.title for result in variant.probes}
    return {
        "aggressors": list(blame.aggressors),
        "rounds": blame.rounds,
        "seconds": _rounded(blame.seconds),
        "idle": list(blame.idle),
        "figures": [
            {
                "probe": figure.victim,
                "phase": str(figure.channel.phase),
                "op": figure.channel.label or None,
                "quantile": str(figure.quantile),
                "off_us": _us(figure.off_ns),
                "on_us": _us(figure.on_ns),
                "ratio": _rounded(figure.ratio),
                "outcome": str(figure.outcome),
                "aggressors": [
                    {
                        "aggressor": part.aggressor,
                        "alone_us": _us(part.alone_ns),
                        "without_us": _us(part.without_ns),
                        "share": None
                        if part.share is None
                        else {name: _rounded(getattr(part.share, name)) for name in ("value", "low", "high")},
                        "conclusion": str(part.conclusion),
                    }
                    for part in figure.aggressors
                ],
                "sentence": sentence(figure, titles),
            }
            for figure in blame.figures
        ],
    }


def _us(ns: float | None) -> float | None:
    return None if ns is None else _rounded(ns / 1000)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)
