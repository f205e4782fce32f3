"""Results of runs that H200 recorded, made of their documents (``stallscope.run/2``, in microseconds)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import InFlight, Window
from stallprobes.machine.gpu_state import GpuState
from stallprobes.measurement.gpu_state import GpuStates
from stallprobes.measurement.result import ProbeResult, RunResult, VariantResult
from stallprobes.model import Channel, Kind, Phase, Probe, Role, op_name
from stallprobes.patterns import patterns
from stallprobes.records.timeline_document import TimelineDocument
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict

FOLDER = Path(__file__).parents[1] / "gpu" / "recorded"

Json = Any


@cache
def recorded_run(name: str) -> RunResult:
    """The run in the file ``name`` of ``tests/gpu/recorded``, with every figure and sentence of its document."""
    data = (FOLDER / name).read_bytes()
    document = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    status = document.get("timeline_status")
    summary = None if status is None else msgspec.convert(status, TimelineDocument, strict=False).summary()
    variants = tuple(_variant(told) for told in document["results"])
    return RunResult(
        backend="sim" if document["backend"] == "simulated" else document["backend"],
        profile=document["profile"],
        seed=document["seed"],
        fingerprint=document["fingerprint"],
        started_at=document["started_at"],
        seconds=document["seconds"],
        variants=tuple(replace(one, timeline=summary) for one in variants),
        interrupted=document["interrupted"],
        timeline=document["timeline"],
    )


def _variant(told: Mapping[str, Json]) -> VariantResult:
    known = {probe.name: probe for probe in patterns()[told["pattern"]].variant(told["variant"]).probes}
    verdicts = tuple(map(_verdict, told["verdicts"]))
    states = told.get("gpu_state")
    return VariantResult(
        pattern=told["pattern"],
        variant=told["variant"],
        kind=Kind(told["kind"]),
        status=told["status"],
        reason=told["reason"],
        probes=tuple(_probe(one, known[one["name"]], verdicts) for one in told["probes"]),
        verdicts=verdicts,
        baseline_s=told["baseline_s"],
        window_s=told["window_s"],
        slots=told["slots"],
        together=told["together"],
        gpu_states=None if states is None else GpuStates(_state(states["baseline"]), _state(states["window"])),
    )


def _probe(told: Mapping[str, Json], known: Probe, verdicts: tuple[Verdict, ...]) -> ProbeResult:
    probe = replace(known, title=told["title"])
    channels, baseline = _channels(told["phases"]), _channels(told["baseline"])
    first_ns = {Channel(Phase(key)): _ns(figures["first_us"]) for key, figures in told["phases"].items()}
    for op in told["ops"]:
        channel = Channel(Phase(op["phase"]), op["op"])
        channels[channel], first_ns[channel] = _histogram(op), _ns(op["first_us"])
        if op["baseline"]:
            baseline[channel] = _histogram(op["baseline"])
    age = _ns(told["in_flight_us"])
    ops = list(map(op_name, probe.program.ops))
    flight = None if age is None else InFlight(ops.index(told["in_flight_op"]), 0, age, 0)
    window = Window(
        channels,
        told["calls"],
        round(told["window_s"] * 1e9),
        flight,
        period_ns=round(told["period_us"] * 1000),
        first_ns=first_ns,
        proof=told["gpu_starts"] or 0,
    )
    kinds = [one.kind for one in verdicts if one.probe == probe.name]
    worst = max(kinds, key=lambda kind: kind.severity, default=None)
    return ProbeResult(
        probe,
        window,
        () if probe.role is Role.AGGRESSOR else (baseline,),
        told["error"],
        kind=VerdictKind.FAILED if told["error"] else worst,
    )


def _channels(told: Mapping[str, Json]) -> dict[Channel, Histogram]:
    return {Channel(Phase(key)): _histogram(figures) for key, figures in told.items()}


def _histogram(figures: Mapping[str, Json]) -> Histogram:
    return Histogram.read(figures["histogram"], _ns(figures["max_us"]) or 0)


def _verdict(told: Mapping[str, Json]) -> Verdict:
    ends = told.get("range_us")
    return Verdict(
        probe=told["probe"],
        phase=None if told["phase"] is None else Phase(told["phase"]),
        quantile=Quantile(told["quantile"]),
        baseline_ns=_ns(told["baseline_us"]),
        now_ns=_ns(told["now_us"]),
        ratio=told["ratio"],
        kind=VerdictKind(told["kind"]),
        head=told["head"],
        cause=told["cause"],
        remedy=told["remedy"],
        proof=Proof(told["proof"]),
        range_ns=None if ends is None else (ends[0] * 1000, ends[1] * 1000),
        detectable=told.get("detectable"),
    )


def _state(told: Mapping[str, Json]) -> GpuState:
    clock, power = (None if told[key] is None else tuple(told[key]) for key in ("sm_clock_mhz", "power_w"))
    return GpuState(sm_clock_mhz=clock, power_w=power, performance_states=tuple(told["performance_states"]))


def _ns(us: float | None) -> int | None:
    return None if us is None else round(us * 1000)
