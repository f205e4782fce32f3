"""Head and foot of the screens: lines of the headers, NVML's values of a GPU, and the bar of the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.reactive import var

from stallprobes.machine.telemetry import TelemetryReading, TelemetrySnapshot
from stallscope.report.columns import display_width
from stallscope.tui.common.lines import BLOCKS, Line, LineWidget, Run, by_rank, cut, fit, length

# Age (s) above which a value from NVML is shown as outdated, with its age.
STALE_S = 3.0
# Number of latest values of the GPU's utilisation that the header draws as a small bar chart.
_UTILIZATIONS = 8
# Normal reasons for a lower GPU clock. The header warns only of other reasons.
_HARMLESS = ("idle", "application clocks", "display clocks", "sync boost")


# Number of letters of a view's title in a narrow terminal.
_SHORT_TITLE = 4


# Parts of a line by rank: low ranks get space first.
Ranked = Sequence[tuple[int, Line]]


@dataclass(frozen=True, eq=False)
class HeadView:
    """Content of a header: the parts of both ends of its first line, and ``below``, which draws the other lines in a
    width and a height of the header."""

    left: Ranked = ()
    right: Ranked = ()
    below: Callable[[int, int], list[Line]] = lambda _width, _height: []


def titled(simulated: bool, machine: str, state: Run, below: Callable[[int, int], list[Line]]) -> HeadView:
    """A header with whether and which machine is shown, and at the right end a state with its style."""
    left: list[tuple[int, Line]] = [(0, [(" SIMULATED ", "notice"), (" ", "")])] if simulated else []
    left.append((3, [(machine, "")]))
    return HeadView(left, [(1, [(f" {state[0]} ", state[1])])] if state[0] else [], below)


class ScreenHead(LineWidget):
    """A header; its first line begins with the ``views``, or without any with the program's name.

    A view is its screen's name, its title with its activity, and whether it is visible.
    """

    views = var[tuple[tuple[str, str, bool], ...]](())
    view = var(HeadView())

    def __init__(self, view: HeadView | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.set_reactive(ScreenHead.view, view or HeadView())

    def lines(self, width: int, height: int) -> list[Line]:
        """The first line, and those below it."""
        return [self._first_line(self.view.left, self.view.right, width), *self.view.below(width, height)]

    def watch_views(self) -> None:
        """Draw the changed part."""
        self.redraw()

    def _first_line(self, left: Ranked, right: Ranked, width: int) -> Line:
        """The views, then the parts of both ends by rank; a click on a view has its name as target."""
        if not self.views:
            self.targets = []
            return by_rank([(8, [(" stallscope ", "strong")]), *left], right, width)
        needed = sum(length(part) for rank, part in (*left, *right) if rank <= 2)
        titles = [title for _, title, _ in self.views]
        if 1 + sum(display_width(title) + 3 for title in titles) + needed > width - 3:
            titles = [_shortened(title) for title in titles]
        tabs: Line = [(" ", "")]
        self.targets = [[]]
        for (name, _, here), title in zip(self.views, titles, strict=True):
            begin = length(tabs)
            tabs += [(f"[{title}]", "focus"), (" ", "")] if here else [(f" {title} ", "dim"), (" ", "")]
            self.targets[0].append((begin, length(tabs) - 1, name))
        return by_rank([(0, tabs), *left], right, width)


def _shortened(title: str) -> str:
    """The first letters of a title, with its view's activity behind it."""
    word = title.rstrip("0123456789 %●…")
    return word[:_SHORT_TITLE] + title[len(word) :]


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


class KeyBar(LineWidget):
    """Draws a note, "" without one, and hints, (key, title, action) by importance; a click's target is an action."""

    view = var[tuple[str, tuple[tuple[str, str, str], ...]]](("", ()))

    def lines(self, width: int, height: int) -> list[Line]:
        """One line."""
        note, hints = self.view
        line: Line = [(f" {note} ", "notice"), ("  ", "")] if note else [(" ", "")]
        self.targets = [[]]
        for key, title, action in hints:
            start = length(line)
            if start + display_width(f"{key} {title}") + 2 > width:
                continue
            line += [(key, "key"), (f" {title}  ", "dim")]
            self.targets[0].append((start, length(line) - 1, action))
        return [line]
