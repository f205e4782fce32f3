"""Counters of a GPU over the time of a trace, from readings of its telemetry."""

from __future__ import annotations

from collections import deque

from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.traces.trace import CounterSample, CounterTrack

# Names and units of the counters of a trace, by the names of the values of ``machine.gpm.LIMITS``.
LIMIT_COUNTERS = {
    "sm_active": ("SM active", "%"),
    "dram": ("memory", "%"),
    "tensor": ("tensor cores", "%"),
    "pcie_to_gpu": ("PCIe to GPU", "MiB/s"),
    "pcie_from_gpu": ("PCIe from GPU", "MiB/s"),
}
# The endings of the names of telemetry readings by the units, and what one of the unit has of the reading's.
_READINGS = {"%": ("percent", 1.0), "MiB/s": ("kb_s", 1048.576)}
# The same counters by the names of the telemetry readings, with what one of the unit has of the reading's.
_COUNTERS = {
    f"{counter}_{_READINGS[unit][0]}": (name, unit, _READINGS[unit][1])
    for counter, (name, unit) in LIMIT_COUNTERS.items()
}
# Shortest time (ns) between two values of a counter. A simulated GPU has one whenever it is asked.
_LEAST_NS = 50_000_000
# Longest time (ns) before a reading that its value is of. After a longer pause the time between is unknown.
_LONGEST_NS = 2_000_000_000


class CounterHistory:
    """The values of the counters of the last ``keep_ns``."""

    def __init__(self, keep_ns: int) -> None:
        self._keep_ns = keep_ns
        self._samples: dict[str, deque[CounterSample]] = {name: deque() for name in _COUNTERS}
        # The time of the last reading of each counter.
        self._last_ns: dict[str, int] = {}

    def feed(self, at_ns: int, telemetry: TelemetrySnapshot | None) -> None:
        """Add the values of ``telemetry``, which was taken at the time ``at_ns`` of the trace."""
        for name in _COUNTERS if telemetry is not None else ():
            assert telemetry is not None
            reading = telemetry.readings.get(name)
            if reading is None or reading.value is None:
                continue
            end_ns = at_ns - max(telemetry.at_ns - reading.at_ns, 0)
            begin_ns = self._last_ns.get(name)
            if begin_ns is not None and end_ns - begin_ns < _LEAST_NS:
                continue
            self._last_ns[name] = end_ns
            samples = self._samples[name]
            # The first value is of a time that began nobody knows when.
            if begin_ns is not None and end_ns - begin_ns <= _LONGEST_NS:
                samples.append(CounterSample(begin_ns, end_ns, reading.value / _COUNTERS[name][2]))
            while samples and samples[0].end_ns < at_ns - self._keep_ns:
                samples.popleft()

    def tracks(self, begin_ns: int, end_ns: int) -> tuple[CounterTrack, ...]:
        """The counters that have values, with those in a span: a span shorter than the time between two readings may
        have none yet."""
        return tuple(
            CounterTrack(*_COUNTERS[name][:2], tuple(samples)).between(begin_ns, end_ns)
            for name, samples in self._samples.items()
            if samples
        )
