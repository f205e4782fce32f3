"""Time axis: the visible span, its zoom and pan, and the labels of its ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Value = TypeVar("Value", int, float)

# Spans (ns) of the timeline's axis: 50 µs to 10 s in steps of 1, 2, 5.
SPANS_NS: tuple[int, ...] = tuple(
    digit * 10**power for power in range(4, 11) for digit in (1, 2, 5) if 50_000 <= digit * 10**power <= 10_000_000_000
)
# Span (ns) of the timeline's axis before the user zooms or selects a call.
USUAL_SPAN_NS = 10_000_000
# Smallest distance (columns) between two ticks of the time axis: a label and a blank.
_TICK_COLUMNS = 13
# Units of times with their nanoseconds, the largest first.
_UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1))


@dataclass(frozen=True)
class Viewport:
    """The visible time: ``span_ns`` from ``begin_ns`` on."""

    begin_ns: int
    span_ns: int

    @property
    def end_ns(self) -> int:
        """The end of the span."""
        return self.begin_ns + self.span_ns

    @property
    def center_ns(self) -> int:
        """The middle of the span."""
        return self.begin_ns + self.span_ns // 2

    def column(self, at_ns: int, width: int) -> int:
        """The column of a time on ``width`` columns; it may be outside of them."""
        return (at_ns - self.begin_ns) * width // self.span_ns

    def time_ns(self, column: float, width: int) -> int:
        """The time of a column, from 0 to ``width``."""
        return self.begin_ns + round(column * self.span_ns / max(width, 1))

    def zoomed(self, steps: int, at_ns: int) -> Viewport:
        """``steps`` spans longer, or shorter where negative; ``at_ns`` stays at its place."""
        span_ns = stepped(self.span_ns, steps, SPANS_NS)
        share = (at_ns - self.begin_ns) / self.span_ns
        return Viewport(at_ns - round(share * span_ns), span_ns)

    def with_inside(self, begin_ns: int, end_ns: int) -> Viewport:
        """Moved so that a time is visible from ``begin_ns`` on, centered; unchanged where it is visible in full."""
        if self.begin_ns <= begin_ns and end_ns <= self.end_ns:
            return self
        return around(begin_ns, min(end_ns, begin_ns + self.span_ns), self.span_ns)


def around(begin_ns: int, end_ns: int, span_ns: int) -> Viewport:
    """The viewport of ``span_ns`` with a time in its middle."""
    return Viewport((begin_ns + end_ns - span_ns) // 2, span_ns)


def stepped(value: Value, steps: int, values: Sequence[Value]) -> Value:
    """The entry of ``values`` that is ``steps`` places after the nearest one; the first and the last are the limits."""
    nearest = min(range(len(values)), key=lambda number: abs(values[number] - value))
    return values[min(max(nearest + steps, 0), len(values) - 1)]


def fitting(ns: float) -> int:
    """The shortest of SPANS_NS that is at least ``ns``, the longest where none is."""
    return next((span for span in SPANS_NS if span >= ns), SPANS_NS[-1])


def span_text(ns: int) -> str:
    """A span of SPANS_NS: ``50 µs``, ``10 ms``."""
    name, unit = next((name, unit) for name, unit in _UNITS if ns >= unit)
    return f"{ns // unit} {name}"


def ticks(view: Viewport, zero_ns: int, width: int) -> list[tuple[int, str]]:
    """The ticks as (column, label): times from ``zero_ns`` on, such as ``-2 ms``, ``0``, ``+2 ms``."""
    least = view.span_ns * _TICK_COLUMNS / max(width, 1)
    step = next(digit * 10**power for power in range(12) for digit in (1, 2, 5) if digit * 10**power >= least)
    name, unit = next((name, unit) for name, unit in _UNITS if step >= unit)
    first = -((zero_ns - view.begin_ns) // step)
    marks = []
    for number in range(first, first + width // _TICK_COLUMNS + 2):
        at_ns = zero_ns + number * step
        column = view.column(at_ns, width)
        if 0 <= column < width:
            marks.append((column, f"{number * step // unit:+d} {name}" if number else "0"))
    return marks
