"""The first lines: which GPU, what state, how old the quiet base is; and what NVML says."""

from __future__ import annotations

import math

from stallprobes.live.observation import LOST, READY, REFUSED, SILENT, SIM, STARTING, Observation
from stallprobes.live.view_model import MonitorView
from stallprobes.machine.telemetry import UTILISATION_WINDOW_S, TelemetryReading, TelemetrySnapshot
from stallscope.tui.common.lines import BLOCKS, Drawn, Line, cut, fit, length

SMALLEST = (60, 18)
STALE_S = 3.0
_WINDOW = f"{UTILISATION_WINDOW_S[0]:.2g}–{UTILISATION_WINDOW_S[1]:.0f} s window"
_CALM = ("idle", "application clocks", "display clocks", "sync boost")
# Less than this of a name or a fact says nothing.
_SHORTEST = 12


class Header(Drawn):
    """GPU, driver and CUDA; live, paused, SIMULATED or the engine's trouble; the age of quiet; then NVML's values."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.observation: Observation | None = None
        self.monitor_view: MonitorView | None = None
        self.gpus = ""
        self.gpu_count = 1
        self.view = ""
        self.live_s = 0.0
        self.busy: list[int] = []

    def lines(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        observation = self.observation
        if height > 2:
            # The whole screen is this panel's where there is no room for the others.
            return [[(" too small", "warn")], [(f" {SMALLEST[0]}×{SMALLEST[1]} at least", "")], [(" q quits", "dim")]]
        if observation is None:
            return [[(" stallscope", "strong")], []]
        probe_set = observation.probe_set
        left: list[tuple[int, Line]] = [(8, [(" stallscope", "strong")])]
        if probe_set.backend == SIM:
            left.append((0, [(" ", ""), (" SIMULATED ", "notice")]))
        left.append((2, [(f" {self.gpus}", "")] if self.gpus else []))
        left += [(4 + number, [(f" · {fact}", "")]) for number, fact in enumerate(probe_set.facts)]
        return [_by_rank(left, self._state(observation), width), self._nvml(observation, width)]

    def _state(self, observation: Observation) -> list[tuple[int, Line]]:
        """What stands at the right end, each with its rank: the state and the view always find room."""
        engine = observation.engine
        found: list[tuple[int, Line]] = []
        if engine.state == LOST:
            found += [(0, [(" ENGINE LOST ", "alarm")]), (3, [(" r restarts", "dim")])]
        elif engine.state == REFUSED:
            found.append((0, [(" NOT POSSIBLE HERE ", "notice")]))
        elif engine.state == SILENT:
            found.append((0, [(f" ENGINE SILENT {engine.age_s:.1f} s ", "alarm")]))
        elif engine.state == STARTING:
            found.append((0, [(f"starting {engine.age_s:.1f} s", "warn")]))
        elif not self.view:
            minutes, seconds = divmod(int(self.live_s), 60)
            found.append((0, [("● live", "good")]))
            found.append((9, [(f" {minutes // 60:02}:{minutes % 60:02}:{seconds:02}", "dim")]))
        if self.view:
            found.append((1, [(" ", ""), (f" {self.view} ", "notice")]))
        if engine.state == READY and self.monitor_view is not None:
            found.append((3, _quiet(self.monitor_view)))
        return found

    def _nvml(self, observation: Observation, width: int) -> Line:
        if observation.engine.sentence and observation.engine.state != READY:
            return [(f" {observation.engine.sentence}", "warn" if observation.engine.state == STARTING else "bad")]
        if observation.telemetry is None:
            why = observation.probe_set.why_simulated
            note = f"no usable GPU: {why}" if why else "NVML n/a: the GPU is simulated"
            return [(f" {note}", "dim")]
        name = "GPU" if self.gpu_count == 1 else "first GPU"
        return nvml_line(observation.telemetry, observation.others, self.busy, width, name)


def _quiet(monitor_view: MonitorView) -> Line:
    if monitor_view.quiet_age_s is not None:
        return [(f"  quiet base {_age(monitor_view.quiet_age_s)} old", "dim")]
    if monitor_view.quiet_left_s is None:
        return [("  no quiet base", "warn")]
    return [(f"  measuring quiet, {max(1, math.ceil(monitor_view.quiet_left_s))} s", "warn")]


def _by_rank(left: list[tuple[int, Line]], right: list[tuple[int, Line]], width: int) -> Line:
    """Both ends of a line. The parts of the lowest ranks get their room first; of the left end's, the first that
    does not fit is cut, and those of higher ranks are left out."""
    room = width - 2
    kept: dict[int, Line] = {}
    parts = [*left, *right]
    for number in sorted(range(len(parts)), key=lambda number: parts[number][0]):
        rank, part = parts[number]
        if length(part) > room and rank > 1 and (number >= len(left) or room < _SHORTEST):
            continue
        kept[number] = fit(part, room) if length(part) > room else part
        room -= length(kept[number])
    one = [run for number in range(len(left)) for run in kept.get(number, [])]
    other = [run for number in range(len(left), len(parts)) for run in kept.get(number, [])]
    return fit([*one, (" " * max(1, width - length(one) - length(other) - 1), ""), *other], width)


def nvml_line(
    telemetry: TelemetrySnapshot, others: tuple[str, ...], busy: list[int], width: int, name: str = "GPU"
) -> Line:
    """NVML's values of the GPU called ``name``, as many as find room; one older than it should be says its age."""
    if telemetry.state in ("lost", "unavailable"):
        return fit([(f" NVML n/a: {telemetry.why}", "bad")], width)
    now = telemetry.at_ns
    steps = "".join(BLOCKS[1 + min(value, 99) * 8 // 100] for value in busy)
    parts: list[Line] = []
    if others:
        parts.append([(f"also here: {others[0]}{f' +{len(others) - 1}' if len(others) > 1 else ''}", "warn")])
    if telemetry.state == "hanging":
        parts.append([(str(telemetry.why), "bad")])
    util = _value(telemetry, "utilisation_percent", now, lambda v: f"{v:3}%")
    parts.append([(f"{name} ", "dim"), *util, (f" {steps}" if steps else "", "heat"), (f" ({_WINDOW})", "dim")])
    parts.append([("mem ", "dim"), *_memory(telemetry, now)])
    parts.append([("SM ", "dim"), *_value(telemetry, "sm_clock_mhz", now, lambda v: f"{v} MHz")])
    parts.append(_value(telemetry, "power_w", now, lambda v: f"{v:.0f} W", "power "))
    parts.append(_value(telemetry, "temperature_c", now, lambda v: f"{v} °C", "temp "))
    down = _value(telemetry, "pcie_to_gpu_kb_s", now, lambda v: f"↓{v / 1e6:.1f}")
    up = _value(telemetry, "pcie_from_gpu_kb_s", now, lambda v: f"↑{v / 1e6:.1f} GB/s")
    parts.append([("PCIe ", "dim"), *down, (" ", ""), *up])
    parts.append(_clocks(telemetry["clock_reasons"]))
    line: Line = [(" ", "")]
    for part in parts:
        if length(line) + length(part) + 3 <= width:
            line += [*part, ("   ", "")]
    return line


def _value(telemetry: TelemetrySnapshot, name: str, now: int, words: object, label: str = "") -> Line:
    reading = telemetry[name]
    if reading.value is None:
        return [(f"{label}n/a", "dim"), (f" ({cut(reading.why or '', 24)})" if reading.at_ns else "", "dim")]
    age = reading.age_s(now)
    text = words(reading.value)  # type: ignore[operator]
    late = age is not None and age > STALE_S
    return [(text, "dim" if late else ""), (f" ({age:.0f} s old)" if late else "", "warn")]


def _memory(telemetry: TelemetrySnapshot, now: int) -> Line:
    used, total = telemetry["memory_used_bytes"], telemetry["memory_total_bytes"]
    if used.value is None or total.value is None:
        return _value(telemetry, "memory_used_bytes", now, str)
    line = _value(telemetry, "memory_used_bytes", now, lambda v: f"{v / 2**30:.1f}/{total.value / 2**30:.0f} GiB")
    return line


def _clocks(reading: TelemetryReading) -> Line:
    if reading.value is None:
        return [("clocks n/a", "dim")]
    held = [reason for reason in reading.value if reason not in _CALM]
    return [("clocks ", "dim"), (f"held by {', '.join(held)}", "warn") if held else ("ok", "good")]


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
