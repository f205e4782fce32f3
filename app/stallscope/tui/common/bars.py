"""Head and foot of the screens: lines of the headers, NVML's values of a GPU, and the bar of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.reactive import var

from stallprobes.machine.telemetry import TelemetryReading, TelemetrySnapshot
from stallscope.report.columns import display_width
from stallscope.tui.common.lines import BLOCKS, Line, LineWidget, cut, fit, length, spread

STALE_S = 3.0
_UTILIZATIONS = 8
_HARMLESS = ("idle", "application clocks", "display clocks", "sync boost")


def title_line(title: Line, simulated: bool, machine: str, state: tuple[str, str], width: int) -> Line:
    """The screen's title, whether and which machine it shows, and at the right end a state with its style."""
    left = [*title, (" SIMULATED ", "notice"), (" ", "")] if simulated else list(title)
    right: Line = [(f" {cut(state[0], width - length(left) - 3)} ", state[1])] if state[0] else []
    left.append((cut(machine, max(0, width - length(left) - length(right) - 2)), ""))
    return spread(left, right, width)


def nvml_line(
    telemetry: TelemetrySnapshot,
    other_processes: tuple[str, ...],
    utilization: Sequence[int],
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
    parts.append([(f"{name} ", "dim"), *util, (f" {steps}" if steps else "", "heat")])
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


def clock(seconds: float) -> str:
    """A time as ``01:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


def with_utilization(before: tuple[int, ...], telemetry: TelemetrySnapshot) -> tuple[int, ...]:
    """The last values of the GPU's utilization in percent after ``telemetry``; none where it has no value."""
    value = telemetry["utilisation_percent"].value
    return (*before, value)[-_UTILIZATIONS:] if isinstance(value, int) else ()


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
    return _value(telemetry, "memory_used_bytes", now, lambda v: f"{v / 2**30:.1f}/{total.value / 2**30:.0f} GiB")


def _clocks(reading: TelemetryReading) -> Line:
    if reading.value is None:
        return [("clocks n/a", "dim")]
    limits = [reason for reason in reading.value if reason not in _HARMLESS]
    return [("clocks ", "dim"), (f"limited by {', '.join(limits)}", "warn") if limits else ("ok", "good")]


@dataclass(frozen=True)
class KeyBarView:
    """The ``hints``, (key, title, action) by importance, after ``note`` where there is one."""

    hints: tuple[tuple[str, str, str], ...] = ()
    note: str = ""


class KeyBar(LineWidget):
    """Draws the hints; the target of a click is an action."""

    view = var(KeyBarView())

    def lines(self, width: int, height: int) -> list[Line]:
        """One line."""
        line: Line = [(f" {self.view.note} ", "notice"), ("  ", "")] if self.view.note else [(" ", "")]
        self.targets = [[]]
        for key, title, action in self.view.hints:
            start = length(line)
            if start + display_width(f"{key} {title}") + 2 > width:
                continue
            line += [(key, "key"), (f" {title}  ", "dim")]
            self.targets[0].append((start, length(line) - 1, action))
        return [line]
