"""Telemetry of one GPU: values of NVML, read in threads, each with its age or the reason why it is missing.

NVML calls take 1 us to 20 ms (PCIe throughput blocks for its window) and can hang with a faulty driver. Therefore each
field has its own rate, the slow fields have a second thread, and ``Telemetry.snapshot`` never blocks: it returns the
last values and says which call has not returned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from stallprobes.errors import NvmlUnavailable, kind_and_text
from stallprobes.machine import gpm, nvml
from stallprobes.machine.gpus import GpuProcess, processes_on

NS_PER_S = 1_000_000_000
# Time (s) without an answer after which NVML counts as hanging.
HANGING_AFTER_S = 1.0
# Pause (s) after an error of NVML until the next attempt.
RETRY_S = 5.0
# Period (s) at which the telemetry repeats the reason why the GPM counters have no values, while stallscope does not
# read these counters.
_REPEATED_S = 60.0
# States of the telemetry, the best first.
TelemetryState = Literal["live", "starting", "hanging", "unavailable", "lost"]
# All telemetry states from good to bad, to find the worse of two.
_STATES = get_args(TelemetryState)

# Words for the bits of NVML's mask of reasons for a lower clock.
_THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}


class TelemetryReading(NamedTuple):
    """A value and the time of its reading in ns (CLOCK_MONOTONIC; 0: never).

    ``value`` is None if it is not available; ``why`` is the reason.
    """

    value: Any = None
    at_ns: int = 0
    why: str | None = "not read yet"

    def age_s(self, now_ns: int) -> float | None:
        """Seconds since the reading, None if there was none."""
        return (now_ns - self.at_ns) / NS_PER_S if self.at_ns else None


@dataclass(frozen=True)
class TelemetryField:
    """A value to read: its name with the unit, its period in s, and the function that reads it.

    ``slow`` fields are read in the second thread. With ``names`` one reading has a value of each, as a mapping.
    """

    name: str
    period_s: float
    read: Callable[[Any, Any], Any]
    slow: bool = False
    names: tuple[str, ...] = ()


def clock_reasons(module: Any, handle: Any) -> tuple[str, ...]:
    """The reasons why the clocks of a GPU are not higher. Raises the errors of NVML."""
    newer = getattr(module, "nvmlDeviceGetCurrentClocksEventReasons", None)
    try:
        bits = (newer or module.nvmlDeviceGetCurrentClocksThrottleReasons)(handle)
    except module.NVMLError:
        # Older drivers lack the newer function.
        bits = module.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return tuple(words for bit, words in _THROTTLE_REASONS.items() if bits & bit)


def _pcie(counters: gpm.GpmCounters, name: str, constant: str) -> TelemetryField:
    """The traffic over PCIe in one direction: from ``counters`` if possible, else from a call that blocks for 20 ms."""

    def read(module: Any, handle: Any) -> float:
        rate = counters.pcie_kb_s.get(name)
        if rate is None:
            rate = module.nvmlDeviceGetPcieThroughput(handle, getattr(module, constant))
        return float(rate)

    return TelemetryField(name, 1.0, read, slow=True)


# Telemetry readings: name, period (s), and the function that reads the value from NVML.
FIELDS = (
    TelemetryField("utilisation_percent", 0.2, lambda m, h: m.nvmlDeviceGetUtilizationRates(h).gpu),
    TelemetryField("sm_clock_mhz", 0.2, lambda m, h: m.nvmlDeviceGetClockInfo(h, m.NVML_CLOCK_SM)),
    TelemetryField("memory_clock_mhz", 1.0, lambda m, h: m.nvmlDeviceGetClockInfo(h, m.NVML_CLOCK_MEM)),
    TelemetryField("power_w", 0.2, lambda m, h: m.nvmlDeviceGetPowerUsage(h) / 1000),
    TelemetryField("power_limit_w", 10.0, lambda m, h: m.nvmlDeviceGetEnforcedPowerLimit(h) / 1000),
    TelemetryField("temperature_c", 0.5, lambda m, h: m.nvmlDeviceGetTemperature(h, m.NVML_TEMPERATURE_GPU)),
    TelemetryField("performance_state", 0.5, lambda m, h: f"P{m.nvmlDeviceGetPerformanceState(h)}"),
    TelemetryField("clock_reasons", 0.5, clock_reasons),
    TelemetryField("memory_used_bytes", 0.5, lambda m, h: int(m.nvmlDeviceGetMemoryInfo(h).used)),
    TelemetryField("memory_total_bytes", 10.0, lambda m, h: int(m.nvmlDeviceGetMemoryInfo(h).total)),
    TelemetryField("processes", 2.0, processes_on, slow=True),
)
# Names of NVML's constants for the traffic over PCIe, by the name of the reading.
_PCIE = {"pcie_to_gpu_kb_s": "NVML_PCIE_UTIL_RX_BYTES", "pcie_from_gpu_kb_s": "NVML_PCIE_UTIL_TX_BYTES"}
# Names of all readings.
NAMES = (*(nvml_field.name for nvml_field in FIELDS), *_PCIE, *gpm.METRICS)


def all_fields(gpm_counters: bool = True) -> tuple[TelemetryField, ...]:
    """FIELDS, the GPM counters, and the traffic over PCIe. Reading these takes milliseconds: so they are slow.

    Without ``gpm_counters`` their readings say only that they are not read.
    """
    counters = gpm.GpmCounters()
    read, period_s = (counters.read, gpm.PERIOD_S) if gpm_counters else (_not_read, _REPEATED_S)
    traffic = (_pcie(counters, name, constant) for name, constant in _PCIE.items())
    return (*FIELDS, TelemetryField("gpm", period_s, read, slow=True, names=tuple(gpm.METRICS)), *traffic)


def _not_read(module: Any, handle: Any) -> Any:
    raise NvmlUnavailable(gpm.NOT_READ, "")


@dataclass(frozen=True)
class TelemetrySnapshot:
    """The last values of one GPU.

    ``state`` is "starting", "live", "hanging" (a call has not returned), "lost" (the GPU), or "unavailable" (NVML);
    ``why`` is a sentence for all but the first two. ``readings`` has every one of NAMES.
    """

    uuid: str
    at_ns: int
    state: TelemetryState
    why: str | None
    readings: Mapping[str, TelemetryReading]

    def __getitem__(self, name: str) -> TelemetryReading:
        return self.readings[name]

    @property
    def processes(self) -> tuple[GpuProcess, ...]:
        """The processes on the GPU, empty if unknown."""
        return self.readings["processes"].value or ()


@dataclass
class _Reader:
    """The state of one reading thread, its only writer; every assignment replaces a whole value."""

    fields: tuple[TelemetryField, ...]
    readings: dict[str, TelemetryReading] = field(default_factory=dict)
    state: TelemetryState = "starting"
    why: str | None = None
    calling: tuple[str, int] | None = None


class Telemetry:
    """Reads the values of the GPU ``uuid`` from ``start`` until ``stop``. ``load`` returns the NVML module.

    No method waits for NVML. ``retry_s`` is the pause after an error in seconds. A reading thread calls ``on_values``
    each time that it has read the fields that were due.
    """

    def __init__(
        self,
        uuid: str,
        *,
        load: Callable[[], Any] = nvml.load,
        fields: tuple[TelemetryField, ...] | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        retry_s: float = RETRY_S,
        on_values: Callable[[], None] = lambda: None,
    ) -> None:
        self.uuid = uuid
        wanted = all_fields() if fields is None else fields
        self._load = load
        self._clock = clock
        self._retry_s = retry_s
        self._on_values = on_values
        self._quit = threading.Event()
        self._readers = tuple(
            _Reader(chosen) for slow in (False, True) if (chosen := tuple(f for f in wanted if f.slow is slow))
        )
        self._threads = [
            threading.Thread(target=self._run, args=(reader,), name=f"nvml-{number}", daemon=True)
            for number, reader in enumerate(self._readers)
        ]

    def start(self) -> None:
        """Start the reading threads. Returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the reading threads. Returns at once; a thread that hangs in the driver ends with the process."""
        self._quit.set()

    def snapshot(self) -> TelemetrySnapshot:
        """The last values. Never blocks."""
        now = self._clock()
        fields = (nvml_field for reader in self._readers for nvml_field in reader.fields)
        readings = {
            name: TelemetryReading() for nvml_field in fields for name in nvml_field.names or (nvml_field.name,)
        }
        state: TelemetryState = "live"
        why = None
        for reader in self._readers:
            readings.update(reader.readings.copy())
            of_reader, of_why = self._state_of(reader, now)
            if _STATES.index(of_reader) > _STATES.index(state):
                state, why = of_reader, of_why
        if state in ("lost", "unavailable"):
            readings = {name: TelemetryReading(None, reading.at_ns, why) for name, reading in readings.items()}
        return TelemetrySnapshot(self.uuid, now, state, why, MappingProxyType(readings))

    @staticmethod
    def _state_of(reader: _Reader, now: int) -> tuple[TelemetryState, str | None]:
        calling = reader.calling
        if calling is not None and now - calling[1] > HANGING_AFTER_S * NS_PER_S:
            return "hanging", f"NVML has not answered for {(now - calling[1]) / NS_PER_S:.1f} s ({calling[0]})"
        return reader.state, reader.why

    def _run(self, reader: _Reader) -> None:
        while not self._quit.is_set():
            try:
                reader.calling = ("start", self._clock())
                module = self._load()
                handle = module.nvmlDeviceGetHandleByUUID(self.uuid)
            except NvmlUnavailable as problem:
                reader.state, reader.why = "unavailable", problem.reason
            except Exception as error:
                lost = getattr(error, "value", None) == nvml.GPU_IS_LOST
                reader.state, reader.why = ("lost" if lost else "unavailable"), nvml.error_text(error)
            else:
                reader.calling = None
                self._read(reader, module, handle)
            finally:
                reader.calling = None
            self._quit.wait(self._retry_s)

    def _read(self, reader: _Reader, module: Any, handle: Any) -> None:
        """Read each field at its period, until ``stop`` or until the GPU is lost."""
        due = dict.fromkeys(reader.fields, self._clock())
        while not self._quit.is_set():
            for nvml_field, when in due.items():
                if when > self._clock():
                    continue
                reader.calling = (nvml_field.name, self._clock())
                value: Any = None
                why: str | None = None
                try:
                    value = nvml_field.read(module, handle)
                except module.NVMLError as error:
                    why = nvml.error_text(error)
                    if getattr(error, "value", None) == nvml.GPU_IS_LOST:
                        reader.state, reader.why = "lost", why
                        return
                except NvmlUnavailable as problem:
                    why = problem.reason
                except Exception as error:
                    # Driver and package of different versions can disagree about a structure: only this field fails.
                    why = kind_and_text(error)
                finally:
                    reader.calling = None
                now = self._clock()
                values = {name: None if value is None else value[name] for name in nvml_field.names} or {
                    nvml_field.name: value
                }
                for name, part in values.items():
                    lacking = (why or "NVML has no value yet") if part is None else None
                    reader.readings = {**reader.readings, name: TelemetryReading(part, now, lacking)}
                due[nvml_field] = self._clock() + int(nvml_field.period_s * NS_PER_S)
                if self._quit.is_set():
                    return
            reader.state, reader.why = "live", None
            self._on_values()
            self._quit.wait(max(0.0, (min(due.values()) - self._clock()) / NS_PER_S))
