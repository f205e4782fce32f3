"""Counters of a GPU over time, from readings of its telemetry."""

from __future__ import annotations

from types import MappingProxyType

from stallprobes.machine.telemetry import TelemetryReading, TelemetrySnapshot
from stallprobes.model import MS
from stallprobes.traces.counters import CounterHistory
from stallprobes.traces.trace import CounterSample

S = 1000 * MS
# What the clock of the telemetry shows at 0 of the trace's.
OFFSET_NS = 7 * S


def snapshot(at_ns: int, active: float | None, read_ns: int) -> TelemetrySnapshot:
    """Telemetry that was read at ``read_ns`` of the trace, and taken at ``at_ns``."""
    reading = TelemetryReading(active, read_ns + OFFSET_NS, None)
    readings = {"sm_active_percent": reading, "pcie_to_gpu_kb_s": TelemetryReading()}
    return TelemetrySnapshot("GPU", at_ns + OFFSET_NS, "live", None, MappingProxyType(readings))


def test_a_value_is_of_the_time_since_the_reading_before_it() -> None:
    history = CounterHistory(10 * S)
    for at_ms, active, read_ms in ((1000, 10.0, 900), (1200, 10.0, 900), (1500, 30.0, 1400), (2000, 50.0, 1900)):
        history.feed(at_ms * MS, snapshot(at_ms * MS, active, read_ms * MS))
    history.feed(2100 * MS, None)
    (track,) = history.tracks(0, 5 * S)
    assert (track.name, track.unit) == ("SM active", "%")
    # Nobody knows when the time of the first one began.
    assert track.samples == (
        CounterSample(900 * MS, 1400 * MS, 30.0),
        CounterSample(1400 * MS, 1900 * MS, 50.0),
    )
    assert history.tracks(1500 * MS, 1600 * MS)[0].samples == track.samples[1:]
    # Its row stays where the span has no value.
    assert [(each.name, each.samples) for each in history.tracks(0, 800 * MS)] == [(track.name, ())]


def test_a_time_without_readings_is_unknown() -> None:
    history = CounterHistory(10 * S)
    for at_s, active in ((1, 10.0), (2, 20.0), (3, None), (6, 60.0), (7, 70.0)):
        history.feed(at_s * S, snapshot(at_s * S, active, at_s * S))
    (track,) = history.tracks(0, 9 * S)
    assert [(sample.begin_ns // S, sample.end_ns // S) for sample in track.samples] == [(1, 2), (6, 7)]


def test_old_values_are_dropped() -> None:
    history = CounterHistory(2 * S)
    for at_s in range(20):
        history.feed(at_s * S, snapshot(at_s * S, 1.0, at_s * S))
    assert len(history.tracks(0, 20 * S)[0].samples) == 3
