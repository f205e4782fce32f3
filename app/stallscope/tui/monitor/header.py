"""The header: GPU, state and age of the baseline; then NVML's values."""

from __future__ import annotations

import math

from stallprobes.live.observation import SIM, EngineCondition, Observation
from stallprobes.live.view_model import MonitorView
from stallprobes.machine.telemetry import UTILISATION_WINDOW_S, TelemetryReading, TelemetrySnapshot
from stallscope.tui.common.lines import BLOCKS, Line, LineWidget, cut, fit, length, too_small_lines

STALE_S = 3.0
# For so long the reason for a simulated GPU, in place of a real one, has the line of NVML's values.
WHY_SIMULATED_S = 60.0
_WINDOW = f"{UTILISATION_WINDOW_S[0]:.2g}–{UTILISATION_WINDOW_S[1]:.0f} s window"
_HARMLESS = ("idle", "application clocks", "display clocks", "sync boost")
# A name or detail cut to fewer columns is omitted.
_SHORTEST = 12


class Header(LineWidget):
    """Draws GPU, driver and CUDA, the state of engine and view, the age of the baseline; then NVML's values."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.observation: Observation | None = None
        self.monitor_view: MonitorView | None = None
        self.gpus = ""
        self.gpu_count = 1
        self.view = ""
        self.live_s = 0.0
        self.utilization: list[int] = []

    def lines(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        observation = self.observation
        if height > 2:
            # In a terminal that is too small this is the only panel.
            return too_small_lines()
        if observation is None:
            return [[(" stallscope", "strong")], []]
        probe_set = observation.probe_set
        left: list[tuple[int, Line]] = [(8, [(" stallscope", "strong")])]
        if probe_set.backend == SIM:
            left.append((0, [(" ", ""), (" SIMULATED ", "notice")]))
        left.append((2, [(f" {self.gpus}", "")] if self.gpus else []))
        left += [(4 + number, [(f" · {detail}", "")]) for number, detail in enumerate(probe_set.details)]
        return [_by_rank(left, self._state(observation), width), self._nvml(observation, width)]

    def _state(self, observation: Observation) -> list[tuple[int, Line]]:
        """The parts at the right end with their ranks; engine state and view have the first ones."""
        engine = observation.engine
        found: list[tuple[int, Line]] = []
        if engine.state == EngineCondition.LOST:
            found += [(0, [(" ENGINE LOST ", "alarm")]), (3, [(" r restarts", "dim")])]
        elif engine.state == EngineCondition.REFUSED:
            found.append((0, [(" NOT POSSIBLE HERE ", "notice")]))
        elif engine.state == EngineCondition.SILENT:
            found.append((0, [(f" ENGINE SILENT {engine.age_s:.1f} s ", "alarm")]))
        elif engine.state == EngineCondition.STARTING:
            found.append((0, [(f"starting {engine.age_s:.1f} s", "warn")]))
        elif not self.view:
            minutes, seconds = divmod(int(self.live_s), 60)
            found.append((0, [("● live", "good")]))
            found.append((9, [(f" {minutes // 60:02}:{minutes % 60:02}:{seconds:02}", "dim")]))
        if observation.timeline is not False:
            state = "timeline on" if observation.timeline else "switching the timeline"
            found.append((2, [(" ", ""), (f" {state} ", "notice")]))
        if self.view:
            found.append((1, [(" ", ""), (f" {self.view} ", "notice")]))
        if engine.state == EngineCondition.READY and self.monitor_view is not None:
            found.append((3, _baseline(self.monitor_view)))
        return found

    def _nvml(self, observation: Observation, width: int) -> Line:
        if observation.engine.sentence and observation.engine.state != EngineCondition.READY:
            return [
                (
                    f" {observation.engine.sentence}",
                    "warn" if observation.engine.state == EngineCondition.STARTING else "bad",
                )
            ]
        why = observation.probe_set.why_simulated
        if observation.telemetry is None or (why and self.live_s < WHY_SIMULATED_S):
            note = f"no usable GPU: {why}" if why else "NVML n/a: the GPU is simulated"
            return [(f" {note}", "dim")]
        name = "GPU" if self.gpu_count == 1 else "first GPU"
        if observation.probe_set.backend == SIM:
            name = f"simulated {name}"
        return nvml_line(observation.telemetry, observation.other_processes, self.utilization, width, name)


def _baseline(monitor_view: MonitorView) -> Line:
    if monitor_view.baseline_age_s is not None:
        return [(f"  baseline {_age(monitor_view.baseline_age_s)} old", "dim")]
    if monitor_view.baseline_left_s is None:
        return [("  no baseline", "warn")]
    return [(f"  measuring baseline, {max(1, math.ceil(monitor_view.baseline_left_s))} s", "warn")]


def _by_rank(left: list[tuple[int, Line]], right: list[tuple[int, Line]], width: int) -> Line:
    """A line with parts at both ends, by rank: low ranks get space first. The first part of the left end that does not
    fit is cut; parts of higher ranks are omitted."""
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
    telemetry: TelemetrySnapshot,
    other_processes: tuple[str, ...],
    utilization: list[int],
    width: int,
    name: str = "GPU",
) -> Line:
    """NVML's values of the GPU called ``name``, as many as fit, with the age of outdated ones.

    ``utilization`` are its last values in percent.
    """
    if telemetry.state in ("lost", "unavailable"):
        return fit([(f" NVML n/a: {telemetry.why}", "bad")], width)
    now = telemetry.at_ns
    steps = "".join(BLOCKS[1 + min(value, 99) * 8 // 100] for value in utilization)
    parts: list[Line] = []
    if other_processes:
        more = f" +{len(other_processes) - 1}" if len(other_processes) > 1 else ""
        parts.append([(f"also on this GPU: {other_processes[0]}{more}", "warn")])
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
    outdated = age is not None and age > STALE_S
    return [(text, "dim" if outdated else ""), (f" ({age:.0f} s old)" if outdated else "", "warn")]


def _memory(telemetry: TelemetrySnapshot, now: int) -> Line:
    used, total = telemetry["memory_used_bytes"], telemetry["memory_total_bytes"]
    if used.value is None or total.value is None:
        return _value(telemetry, "memory_used_bytes", now, str)
    line = _value(telemetry, "memory_used_bytes", now, lambda v: f"{v / 2**30:.1f}/{total.value / 2**30:.0f} GiB")
    return line


def _clocks(reading: TelemetryReading) -> Line:
    if reading.value is None:
        return [("clocks n/a", "dim")]
    limits = [reason for reason in reading.value if reason not in _HARMLESS]
    return [("clocks ", "dim"), (f"limited by {', '.join(limits)}", "warn") if limits else ("ok", "good")]


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
