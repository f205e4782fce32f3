"""JSON document of a replay, published schema ``stallscope.replay/1``: the verdict log and traces of a recording.

The recording is analyzed again, so the verdicts are those of this version. Latencies are microseconds with three
decimals, times are seconds. Unknown values are null.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stallprobes.errors import RecordingError
from stallprobes.latency.ratio import PERCENTILES
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import LogEntry
from stallprobes.recording.observation import SIM, Observation, ProbeSet
from stallprobes.recording.stream import RecordingStream
from stallprobes.traces.summary import summary
from stallprobes.traces.trace import Trace

REPLAY_SCHEMA = "stallscope.replay/1"
# Entries beyond this number are counted only; the oldest ones are dropped.
MOST_ENTRIES = 10_000
_MOST_PROBE_SETS = 1_000
MOST_TRACES = 1_000


@dataclass
class _SetPart:
    """The part of a recording that one probe set takes: its number, its analyzer, and the times of its observations.

    ``switches`` are the times at which the timeline was switched, first on or off as in the first observation.
    """

    number: int
    analyzer: Analyzer
    first_s: float
    last_s: float
    switches: list[tuple[float, bool]] = field(default_factory=list)

    def add(self, observation: Observation) -> None:
        """Note the time and the timeline of the next observation."""
        self.last_s = observation.wall_s
        if not self.switches or observation.timeline not in (None, self.switches[-1][1]):
            self.switches.append((observation.wall_s, bool(observation.timeline)))

    def timeline(self, wall_s: float) -> bool:
        """Whether the timeline was on at a time."""
        return self.switches[max(bisect_right(self.switches, (wall_s, True)) - 1, 0)][1]


def document(path: Path) -> dict[str, Any]:
    """The document of the recording ``path``, read once in bounded memory. Raises RecordingError."""
    stream = RecordingStream(path)
    begun_s, observations, last_s = None, 0, 0.0
    probe_sets: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    dropped = 0
    traces: list[dict[str, Any]] = []
    traces_found = 0
    part: _SetPart | None = None
    for moment in stream.items():
        if isinstance(moment, Trace):
            if begun_s is not None and part is not None:
                traces_found += 1
                if len(traces) < MOST_TRACES:
                    traces.append(_trace(moment, part.number, begun_s))
            continue
        observation = moment.observation
        begun_s = observation.wall_s if begun_s is None else begun_s
        observations, last_s = observations + 1, max(last_s, observation.wall_s)
        if part is None or observation.probe_set is not part.analyzer.probe_set:
            if part is not None:
                _finish(part, begun_s, probe_sets, entries)
                dropped += part.analyzer.judgement.tracker.dropped
            part = _SetPart(
                0 if part is None else part.number + 1,
                _analyzer(observation, part),
                observation.wall_s,
                observation.wall_s,
            )
        part.analyzer.feed(observation)
        part.analyzer.follow_recorded(moment.baselines)
        part.add(observation)
    if part is None or begun_s is None:
        raise RecordingError(f"{path} contains no observation")
    _finish(part, begun_s, probe_sets, entries)
    dropped += part.analyzer.judgement.tracker.dropped
    return {
        "schema": REPLAY_SCHEMA,
        "began_at": _utc(begun_s),
        "seconds": round(last_s - begun_s, 3),
        "observations": observations,
        "cut_off": stream.cut_off,
        "probe_sets": probe_sets,
        "verdicts": entries[-MOST_ENTRIES:],
        "verdicts_dropped": dropped + max(0, len(entries) - MOST_ENTRIES),
        "traces": traces,
        "traces_dropped": traces_found - len(traces),
    }


def _analyzer(observation: Observation, previous: _SetPart | None) -> Analyzer:
    """An analyzer for the observation's probe set; its entries are numbered after those of the previous one."""
    log = () if previous is None else previous.analyzer.judgement.tracker.ended(observation.wall_s)
    return Analyzer(observation.probe_set, log=log[-1:], log_limit=MOST_ENTRIES)


def _finish(part: _SetPart, begun_s: float, probe_sets: list[dict[str, Any]], entries: list[dict[str, Any]]) -> None:
    first = entries[-1]["number"] + 1 if entries else 1
    new = [entry for entry in part.analyzer.log if entry.number >= first]
    entries.extend(_entry(entry, part, begun_s) for entry in new)
    del entries[:-MOST_ENTRIES]
    if len(probe_sets) < _MOST_PROBE_SETS:
        probe_sets.append(_probe_set(part, begun_s))


def _probe_set(part: _SetPart, begun_s: float) -> dict[str, Any]:
    probe_set: ProbeSet = part.analyzer.probe_set
    return {
        "title": probe_set.title,
        "backend": "simulated" if probe_set.backend == SIM else probe_set.backend,
        "gpus": [gpu.label for gpu in probe_set.gpus],
        "details": list(probe_set.details),
        "pattern": probe_set.pattern or None,
        "variant": probe_set.variant or None,
        "why_simulated": probe_set.why_simulated,
        "at_s": round(part.first_s - begun_s, 3),
        "seconds": round(part.last_s - part.first_s, 3),
        "probes": [
            {
                "name": probe.name,
                "title": probe.title,
                "role": str(probe.role),
                "context": probe.context,
                "stream": probe.stream,
                "period_us": probe.period_ns / 1000,
            }
            for probe in probe_set.probes
        ],
        "ranges": list(_ranges(part.analyzer)),
    }


def _ranges(analyzer: Analyzer) -> Iterator[dict[str, Any]]:
    """The ranges of all judged channels between the windows of their baselines."""
    for timeline in (False, True):
        for name, baseline in analyzer.baselines_with(timeline).items():
            for channel in baseline.channels:
                if not channel.phase.traits.judged:
                    continue
                for quantile in PERCENTILES:
                    known = baseline.range_ns(channel, quantile)
                    if known is not None:
                        yield {
                            "probe": name,
                            "phase": str(channel.phase),
                            "op": channel.label or None,
                            "quantile": str(quantile),
                            "range_us": _range_us(known),
                            "spread": _rounded(baseline.spread(channel, quantile)),
                            "windows": baseline.windows(channel),
                            "timeline": timeline,
                        }


def _trace(trace: Trace, probe_set: int, begun_s: float) -> dict[str, Any]:
    found = summary(trace)
    at_s = trace.wall_s(trace.end_ns) if found is None else found.wall_s
    return {
        "probe_set": probe_set,
        "at_s": round(at_s - begun_s, 6),
        "at": _utc(at_s),
        "span_us": _us(trace.span_ns),
        "probe": None if found is None else found.probe,
        "call": (found.call or None) if found is not None else None,
        "phase": None if found is None else str(found.phase),
        "delay_us": None if found is None else _us(found.ns),
        "in_flight": found is not None and found.in_flight,
        "cause": "" if found is None else found.cause,
        "calls": len(trace.calls),
        "gpu_work": len(trace.work),
        "lost": trace.losses.lost,
    }


def _entry(entry: LogEntry, part: _SetPart, begun_s: float) -> dict[str, Any]:
    verdict = entry.verdict
    end_s = part.last_s if entry.ended_s is None else entry.ended_s
    return {
        "number": entry.number,
        "probe_set": part.number,
        "at_s": round(entry.began_s - begun_s, 3),
        "at": _utc(entry.began_s),
        "duration_s": round(max(end_s - entry.began_s, 0.0), 3),
        "ended": entry.ended_s is not None,
        "cut_off_by": entry.cut_off or None,
        "kind": str(verdict.kind),
        "probe": verdict.probe,
        "phase": None if verdict.phase is None else str(verdict.phase),
        "quantile": str(verdict.quantile),
        "ratio": _rounded(verdict.ratio),
        "baseline_us": _us(verdict.baseline_ns),
        "now_us": _us(verdict.now_ns),
        "range_us": _range_us(verdict.range_ns),
        "detectable": _rounded(verdict.detectable),
        "head": verdict.head,
        "cause": verdict.cause,
        "remedy": verdict.remedy,
        "proof": str(verdict.proof),
        "onset": entry.onset,
        "sentence": verdict.sentence,
        "timeline": part.timeline(entry.began_s),
    }


def _utc(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="milliseconds")


def _range_us(range_ns: tuple[float, float] | None) -> list[float | None] | None:
    return None if range_ns is None else [_us(range_ns[0]), _us(range_ns[1])]


def _us(ns: float | None) -> float | None:
    return None if ns is None else _rounded(ns / 1000)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)
