"""The first lines: which GPU, what state, how old the quiet base is; and what NVML says."""

from __future__ import annotations

from stallprobes.frame import LOST, READY, REFUSED, SILENT, SIM, STARTING, Frame
from stallprobes.picture import Picture
from stallprobes.telemetry import UTILISATION_WINDOW_S, Reading, TelemetrySnapshot
from stallscope.widgets.paint import BLOCKS, Drawn, Line, cut, fit, length, spread

SMALLEST = (60, 18)
STALE_S = 3.0
_WINDOW = f"{UTILISATION_WINDOW_S[0]:.2g}–{UTILISATION_WINDOW_S[1]:.0f} s window"
_CALM = ("idle", "application clocks", "display clocks", "sync boost")


class Header(Drawn):
    """GPU, driver and CUDA; live, paused, SIMULATED or the engine's trouble; the age of quiet; then NVML's values."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.frame: Frame | None = None
        self.picture: Picture | None = None
        self.view = ""
        self.live_s = 0.0
        self.noise = ""
        self.busy: list[int] = []

    def lines(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        frame = self.frame
        if height > 2:
            # The whole screen is this panel's where there is no room for the others.
            return [[(" too small", "warn")], [(f" {SMALLEST[0]}×{SMALLEST[1]} at least", "")], [(" q quits", "dim")]]
        if frame is None:
            return [[(" stallscope", "strong")], []]
        bench = frame.bench
        left: Line = [(" stallscope ", "strong")]
        if bench.backend == SIM:
            left += [(" SIMULATED ", "notice"), (" ", "")]
        where = " · ".join(part for part in (bench.gpu, *bench.facts) if part)
        right = self._state(frame)
        left.append((cut(where, max(0, width - length(left) - length(right) - 2)), ""))
        return [spread(left, right, width), self._nvml(frame, width)]

    def _state(self, frame: Frame) -> Line:
        engine = frame.engine
        age = f"{engine.age_s:.1f} s"
        if engine.state == LOST:
            state: Line = [(" ENGINE LOST ", "alarm"), (" r restarts ", "dim")]
        elif engine.state == REFUSED:
            state = [(" NOT POSSIBLE HERE ", "notice"), (" ", "")]
        elif engine.state == SILENT:
            state = [(f" ENGINE SILENT {age} ", "alarm"), (" ", "")]
        elif engine.state == STARTING:
            state = [(f"starting {age} ", "warn")]
        elif self.view:
            state = [(f" {self.view} ", "notice"), (" ", "")]
        else:
            minutes, seconds = divmod(int(self.live_s), 60)
            state = [("● live", "good"), (f" {minutes // 60:02}:{minutes % 60:02}:{seconds:02} ", "dim")]
        if engine.state == READY and self.picture is not None:
            quiet = self.picture.quiet_age_s
            if quiet is None:
                state.append((f" quiet base {self.picture.quiet_share:4.0%} ", "warn"))
            else:
                state.append((f" quiet base {_age(quiet)} old ", "dim"))
        return state

    def _nvml(self, frame: Frame, width: int) -> Line:
        if frame.engine.sentence and frame.engine.state != READY:
            return [(f" {frame.engine.sentence}", "warn" if frame.engine.state == STARTING else "bad")]
        if frame.telemetry is None:
            why = frame.bench.why_simulated
            note = f"no usable GPU: {why}" if why else "NVML n/a: the GPU is simulated"
            return [(f" {note}", "dim")]
        return nvml_line(frame.telemetry, frame.others, self.busy, width)


def nvml_line(telemetry: TelemetrySnapshot, others: tuple[str, ...], busy: list[int], width: int) -> Line:
    """NVML's values in a row, as many as find room; a value that is older than it should be says its age."""
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
    parts.append([("GPU ", "dim"), *util, (f" {steps}" if steps else "", "heat"), (f" ({_WINDOW})", "faint")])
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
        return [(f"{label}n/a", "dim"), (f" ({cut(reading.why or '', 24)})" if reading.at_ns else "", "faint")]
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


def _clocks(reading: Reading) -> Line:
    if reading.value is None:
        return [("clocks n/a", "dim")]
    held = [reason for reason in reading.value if reason not in _CALM]
    return [("clocks ", "dim"), (f"held by {', '.join(held)}", "warn") if held else ("ok", "good")]


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
