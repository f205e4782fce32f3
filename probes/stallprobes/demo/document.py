"""JSON document of a demo, published schema ``stallscope.demo/1``: what was found, beside what the reporters found.

Latencies are microseconds with three decimals. Unknown values are null.
"""

from __future__ import annotations

from typing import Any

from stallprobes.demo.outcome import DemoResult, PatternOutcome, StepLatency
from stallprobes.model import ReportedLatency

DEMO_SCHEMA = "stallscope.demo/1"


def document(result: DemoResult) -> dict[str, Any]:
    """``result`` as JSON types."""
    return {
        "schema": DEMO_SCHEMA,
        "backend": "simulated" if result.simulated else result.backend,
        "gpus": list(result.gpus),
        "details": list(result.details),
        "patterns": [_outcome(one) for one in result.outcomes],
    }


def _outcome(one: PatternOutcome) -> dict[str, Any]:
    return {
        "pattern": one.pattern.name,
        "symptom": str(one.pattern.symptom),
        "stall": one.stall or None,
        "remedy": one.remedy or None,
        "skipped": one.skipped or None,
        "no_remedy": one.no_remedy or None,
        "problem": one.problem or None,
        "baseline_us": _us(one.baseline_ns),
        "ratio": None if one.ratio is None else round(one.ratio, 3),
        "stalled": None if one.stalled is None else _latency(one.stalled),
        "remedied": None if one.remedied is None else _latency(one.remedied),
        "reported": None if one.pattern.latency is None else _reported(one.pattern.latency),
    }


def _latency(found: StepLatency) -> dict[str, Any]:
    return {
        "probe": found.probe,
        "phase": None if found.phase is None else str(found.phase),
        "quantile": str(found.quantile),
        "kind": str(found.kind),
        "baseline_us": _us(found.baseline_ns),
        "now_us": _us(found.now_ns),
        "cause": found.cause or None,
    }


def _reported(latency: ReportedLatency) -> dict[str, Any]:
    return {
        "gpu": latency.gpu,
        "figure": latency.figure,
        "baseline_us": _us(latency.baseline_ns),
        "stalled_us": _us(latency.stalled_ns),
        "remedy_us": _us(latency.remedy_ns),
    }


def _us(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1000, 3)
