"""Plot of the trace: a time axis, a line for each row, and the delay of the selected work as an arrow."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from textual import events
from textual.message import Message
from textual.reactive import var

from stallprobes.traces.delay import Delay, delay_text
from stallprobes.traces.rows import RowGroup, RowKey, RowKind
from stallprobes.traces.trace import Int64s, Trace
from stallscope.report.columns import display_width, padded
from stallscope.tui.common.lines import Line, WheelWidget, cut, rule, runs_of_rows, shortened
from stallscope.tui.timeline.glyphs import (
    ASCII_GLYPHS,
    BLOCK_GLYPHS,
    STYLES,
    CellStyle,
    Glyphs,
    cell_glyphs,
    cell_styles,
)
from stallscope.tui.timeline.raster import CellGrid, Raster, raster
from stallscope.tui.timeline.time_axis import ticks
from stallscope.tui.timeline.view_model import RowIntervals, TraceView, selected_delay, selected_index

Strings = NDArray[np.str_]
Styles = NDArray[np.intp]

# Style in which the character cells of a trace's row are drawn, by the row's kind. Selected and slow calls have
# styles of their own.
_USUAL = {
    RowKind.CALLS: CellStyle.CALL,
    RowKind.OVERHEADS: CellStyle.FOREIGN,
    RowKind.WORK: CellStyle.WORK,
    RowKind.TENURES: CellStyle.TENURE,
    RowKind.FOREIGN: CellStyle.FOREIGN,
    RowKind.COUNTER: CellStyle.COUNTER,
}
# Entry, in the plan of a plot, for the line on which an arrow shows the delay of the selected GPU work. The plan has an
# entry for each screen line: (row of the trace, title of a section).
_DELAY: tuple[RowKey | None, str | None] = (None, "")
# Smallest value (MiB/s) that fills the row of a counter for traffic, so that some messages do not look like copies.
_LEAST_FULL = 1024.0
# Smallest and largest width (columns) of the names of the trace's rows.
_NAMES = (14, 40)


@dataclass(frozen=True)
class PlotLayout:
    """Columns and lines of the plot.

    ``names`` and ``columns`` are the widths of the names and of the trace. ``lines`` has the row of each line below the
    axis, None for titles and blanks. ``titles`` are the sections' titles by line, "" for the line of the delay.
    """

    names: int
    columns: int
    lines: tuple[RowKey | None, ...]
    titles: tuple[str | None, ...]


def plot_layout(rows: Mapping[RowKey, str], selected: RowKey | None, width: int, height: int) -> PlotLayout:
    """The layout in ``width`` columns and ``height`` lines; the selected row is always visible.

    Counters are there only where they have room, or where one of them is selected.
    """
    if rows_height(rows) > height and (selected is None or selected.kind is not RowKind.COUNTER):
        rows = {key: name for key, name in rows.items() if key.kind is not RowKind.COUNTER}
    longest = max(map(display_width, rows.values()), default=0) + 2
    names = max(_NAMES[0], min(longest, _NAMES[1], width // 4))
    sections = [(section, list(part)) for section, part in groupby(rows, key=lambda key: key.kind.group)]
    room = height - 1
    # The line of the delay; titles of the sections where there is room; blank lines between rows where there is more.
    titled = rows_height(rows) <= height
    apart = titled and 2 * len(rows) + len(sections) + 1 <= room
    entries: list[tuple[RowKey | None, str | None]] = []
    for number, (section, part) in enumerate(sections):
        if titled:
            entries.append((None, str(section)))
        for key in part:
            entries.append((key, None))
            if apart:
                entries.append((None, None))
        if number == 0:
            entries.append(_DELAY)
    if len(entries) > room:
        # The first lines, unless the selected row is below them; the delay stays.
        chosen = (selected, None)
        place = entries.index(chosen) if chosen in entries else 0
        first = min(max(place - room + 2, 0), len(entries) - room)
        entries = entries[first : first + room]
        last = len(entries) - 1
        if _DELAY not in entries and room > 1:
            entries[last - 1 if chosen not in entries or entries[last] == chosen else last] = _DELAY
    lines, titles = zip(*entries, strict=True) if entries else ((), ())
    return PlotLayout(names, max(width - names, 1), lines, titles)


def rows_height(rows: Mapping[RowKey, str], titled: bool = True) -> int:
    """The lines of a plot of ``rows`` with the axis, titles and the delay, without blank ones."""
    return len(rows) + (len({key.kind.group for key in rows}) if titled else 0) + 2


def plot_lines(view: TraceView, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The lines of ``view``: the axis, then the layout's."""
    trace = view.trace
    if trace is None or view.sentences:
        return _sentence_lines(view.sentences, width, height)
    selection = view.selection
    at = plot_layout(view.rows, None if selection is None else selection.row, width, height)
    shown = [key for key in at.lines if key is not None]
    spans, cursor, delay, index = RowIntervals(trace, view.limits), None, None, None
    if view.picture is not None:
        cells = view.picture.raster(shown, view.viewport, at.columns, view.limits)
    else:
        grid = CellGrid(view.viewport.begin_ns, view.viewport.span_ns, at.columns)
        cells = raster([spans[key] for key in shown], grid)
        delay = selected_delay(trace, spans, selection)
        index = None if selection is None else selected_index(spans, selection)
    text, style = cell_glyphs(cells, glyphs), cell_styles(cells, [_USUAL[key.kind] for key in shown])
    for number, row in enumerate(shown):
        if row.kind is RowKind.COUNTER:
            text[number], style[number] = _levels(view, trace, view.rows[row], at.columns, glyphs)
    engine = [number for number, key in enumerate(shown) if key.kind is RowKind.TENURES]
    unknown = min(max(view.viewport.column(trace.engine_known_ns, at.columns), 0), at.columns)
    text[engine, :unknown], style[engine, :unknown] = glyphs.unknown, CellStyle.UNKNOWN
    first, last = _mark_unrecorded(view, trace, text, style, glyphs)
    _mark_records_off(view, shown, text, style, glyphs)
    _note_empty(view, shown, cells, text[:, first:last], style[:, first:last])
    if selection is not None and selection.row in shown and index is not None:
        part = spans[selection.row]
        first = view.viewport.column(int(part.starts[index]), at.columns)
        last = max(view.viewport.column(int(part.ends[index]) - 1, at.columns), first)
        if last >= 0 and first < at.columns:
            cursor = min(max(first, 0), at.columns - 1)
            style[shown.index(selection.row), cursor : last + 1] = CellStyle.SELECTED
    drawn = dict(zip(shown, runs_of_rows(text, style, STYLES), strict=True))
    # Where the names do not fit, without blanks around their separators.
    tight = any(display_width(name) > at.names - 2 for name in view.rows.values())
    names = {key: name.replace(" · ", "/") if tight else name for key, name in view.rows.items()}
    short = dict(zip(names, shortened(tuple(names.values()), at.names - 2), strict=True))
    lines = [_axis(view, at, cursor, glyphs)]
    for key, title in zip(at.lines, at.titles, strict=True):
        if key is not None:
            chosen = selection is not None and key == selection.row
            name = padded(short[key], at.names - 1)
            head: Line = [("▸" if chosen else " ", "accent"), (name, "strong" if chosen else "")]
            body = drawn[key]
            if key.kind is RowKind.FOREIGN:
                body = _labelled(trace, view, _foreign(view, spans), body, at.columns)
            lines.append([*head, *body])
        elif title == "":
            lines.append(_delay_line(view, trace, delay, at, glyphs))
        else:
            lines.append(_title(title, view, trace, width) if title else [])
    return lines


def _mark_unrecorded(view: TraceView, trace: Trace, text: Strings, style: Styles, glyphs: Glyphs) -> tuple[int, int]:
    """Mark the empty cells before the begin of the trace and after its end; returns the columns between them."""
    columns = text.shape[1]
    first = min(max(view.viewport.column(trace.begin_ns, columns), 0), columns)
    last = min(max(view.viewport.column(trace.end_ns, columns) + 1, first), columns)
    outside = text == " "
    outside[:, first:last] = False
    text[outside], style[outside] = glyphs.unknown, CellStyle.UNKNOWN
    return first, last


def _mark_records_off(view: TraceView, shown: Sequence[RowKey], text: Strings, style: Styles, glyphs: Glyphs) -> None:
    """Mark empty cells of GPU work at times without recording and at times whose records have not been read."""
    assert view.trace is not None
    late = view.trace.collected_ns, view.trace.end_ns
    work = np.array([key.kind is RowKind.WORK for key in shown], dtype=np.bool_)
    columns = text.shape[1]
    for begin_ns, end_ns in (*view.trace.unrecorded, late):
        first, last = (min(max(view.viewport.column(at_ns, columns), 0), columns) for at_ns in (begin_ns, end_ns))
        unknown = np.zeros(text.shape, dtype=np.bool_)
        unknown[work, first:last] = text[work, first:last] == " "
        text[unknown], style[unknown] = glyphs.unknown, CellStyle.UNKNOWN


def _note_empty(view: TraceView, shown: Sequence[RowKey], cells: Raster, text: Strings, style: Styles) -> None:
    """Write into the rows of host calls without a call why they are empty."""
    for number, key in enumerate(shown):
        if key.kind is RowKind.CALLS and not (cells.calls[number] + cells.waits[number]).any():
            calls = "no slow call" if view.slow_only else "no call"
            note = "off" if key.number in view.off else f"{calls} in this span"
            if len(note) <= text.shape[1]:
                text[number, : len(note)], style[number, : len(note)] = list(note), CellStyle.NOTE


def _levels(view: TraceView, trace: Trace, name: str, columns: int, glyphs: Glyphs) -> tuple[Strings, Styles]:
    """The letters and styles of a counter's row: the level of the value at the middle of each cell."""
    text, style = np.full(columns, glyphs.unknown, dtype="<U1"), np.full(columns, CellStyle.UNKNOWN, dtype=np.intp)
    counter = next((counter for counter in trace.counters if counter.name == name), None)
    if counter is None:
        return text, style
    full = _full(view, trace, counter.unit)
    letters = np.array(list(f" {glyphs.density}"))
    for begin_ns, end_ns, value in counter.samples:
        first, last = (min(max(view.viewport.column(at_ns, columns), 0), columns) for at_ns in (begin_ns, end_ns))
        level = min(math.ceil(value / full * len(glyphs.density)), len(glyphs.density))
        text[first:last], style[first:last] = letters[level], CellStyle.COUNTER
    return text, style


def _full(view: TraceView, trace: Trace, unit: str) -> float:
    """The value that fills the rows of counters in ``unit``: 100 %, or the largest in view, at least _LEAST_FULL."""
    if unit == "%":
        return 100.0
    begin_ns, end_ns = view.viewport.begin_ns, view.viewport.begin_ns + view.viewport.span_ns
    shown = (counter.between(begin_ns, end_ns) for counter in trace.counters if counter.unit == unit)
    return max((_LEAST_FULL, *(sample.value for counter in shown for sample in counter.samples)))


def _title(title: str, view: TraceView, trace: Trace, width: int) -> Line:
    if title == RowGroup.COUNTERS:
        units = dict.fromkeys(counter.unit for counter in trace.counters)
        return rule(title, width, f"full: {', '.join(f'{_full(view, trace, unit):.0f} {unit}' for unit in units)}")
    unknown = title == RowGroup.ENGINE and not trace.context_switches
    return rule(title, width, "who has it was not recorded" if unknown else "")


def _axis(view: TraceView, at: PlotLayout, cursor: int | None, glyphs: Glyphs) -> Line:
    """The labels of the ticks, each after its mark, and the mark of the selected interval."""
    cells = [" "] * at.columns
    for column, label in ticks(view.viewport, view.zero_ns, at.columns):
        cells[column] = glyphs.tick
        end = column + 1 + len(label)
        # Part of a label would be another time.
        if end <= at.columns and (cursor is None or not column < cursor < end):
            cells[column + 1 : end] = label
    text = "".join(cells)
    head: Line = [(" " * at.names, "")]
    if cursor is None:
        return [*head, (text, "dim")]
    return [*head, (text[:cursor], "dim"), (glyphs.cursor, "accent"), (text[cursor + 1 :], "dim")]


def _delay_line(view: TraceView, trace: Trace, delay: Delay | None, at: PlotLayout, glyphs: Glyphs) -> Line:
    """The delay as an arrow from the return to the start, with its label in or beside it."""
    head: Line = [(padded(" delay" if delay is not None else "", at.names), "dim")]
    if delay is None:
        return head
    label = delay_text(trace, delay)
    brief = label.removeprefix("returned → GPU start ").removeprefix("the GPU started ")
    begin, end = sorted((delay.returned_ns, delay.start_ns))
    width = at.columns
    first, last = view.viewport.column(begin, width), view.viewport.column(end, width)
    if last < 0 or first >= width:
        hint = f"{glyphs.backward} {label}" if last < 0 else f"{label} {glyphs.forward}"
        text = cut(hint, width)
        return [*head, (text if last < 0 else text.rjust(width), "accent")]
    low, high = max(first, 0), min(last, width - 1)
    arrow = [glyphs.line] * (high - low + 1)
    ends = [(0, first >= 0, glyphs.end), (-1, last < width, glyphs.forward)]
    if delay.ns < 0:
        ends = [(-1, last < width, glyphs.end), (0, first >= 0, glyphs.backward)]
    for place, visible, letter in ends:
        if visible:
            arrow[place] = letter
    drawn = "".join(arrow)
    for text in (label, brief):
        inside = f" {text} "
        if len(drawn) >= display_width(inside) + 4:
            place = (len(drawn) - display_width(inside)) // 2
            after = drawn[place + display_width(inside) :]
            return [*head, (" " * low + drawn[:place], "accent"), (inside, "strong"), (after, "accent")]
        if width - high - 1 >= display_width(inside):
            return [*head, (" " * low + drawn, "accent"), (inside, "strong")]
        if low >= display_width(inside):
            return [*head, (inside.rjust(low), "strong"), (drawn, "accent")]
    if width - high - 1 >= low:
        return [*head, (" " * low + drawn, "accent"), (cut(f" {brief}", width - high - 1), "strong")]
    return [*head, (cut(f"{brief} ", low).rjust(low), "strong"), (drawn, "accent")]


def _foreign(view: TraceView, spans: RowIntervals) -> Int64s:
    """The gaps of the graphics engine as int64[n][2]."""
    if view.picture is not None:
        return view.picture.gaps
    gaps = spans[RowKey(RowKind.FOREIGN)]
    return np.column_stack((gaps.starts, gaps.ends))


def _labelled(trace: Trace, view: TraceView, gaps: Int64s, body: Line, width: int) -> Line:
    """The gaps of another process, each with the names of the processes that it may be."""
    cells = "".join(text for text, _ in body)
    by = f": {', '.join(trace.others)}" if trace.others else ""
    label = f" another process{by} "
    out: Line = []
    at = 0
    for begin, end in gaps.tolist():
        first = max(view.viewport.column(begin, width), at)
        last = min(view.viewport.column(end, width), width)
        text = cut(label.strip(), last - first - 2)
        if last - first < 6 or not text:
            continue
        place = first + (last - first - display_width(text)) // 2
        out += [(cells[at:place], STYLES[CellStyle.FOREIGN]), (text, "notice")]
        at = place + display_width(text)
    return [*out, (cells[at:], STYLES[CellStyle.FOREIGN])]


def _sentence_lines(sentences: Sequence[str], width: int, height: int) -> list[Line]:
    out: list[Line] = [[] for _ in range(max(0, min(height // 4, 8)))]
    for sentence in sentences:
        out += [[(f"  {part}", "")] for part in textwrap.wrap(sentence, max(width - 4, 20))]
        out.append([])
    return out[:height]


class TracePlot(WheelWidget):
    """Draws ``view``. A click selects, the wheel zooms at the pointer or pans with shift, dragging pans.

    The target of a click is the row and the time of the middle of the cell; None on the row's name.
    """

    view = var(TraceView())

    @dataclass
    class Panned(Message):
        """The trace was dragged: move the view by ``ns``."""

        ns: int

    def __init__(self, *, ascii_only: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.glyphs = ASCII_GLYPHS if ascii_only else BLOCK_GLYPHS
        # Where the button was pressed, and whether the pointer moved since.
        self._pressed_x: int | None = None
        self._dragged = False

    def lines(self, width: int, height: int) -> list[Line]:
        """The lines of the view."""
        return plot_lines(self.view, width, height, self.glyphs)

    @property
    def plot_layout(self) -> PlotLayout:
        """The present layout."""
        selection = self.view.selection
        return plot_layout(self.view.rows, None if selection is None else selection.row, *self.size)

    def time_ns(self, x: int) -> int:
        """The time of the middle of a column of the widget."""
        at = self.plot_layout
        return self.view.viewport.time_ns(min(max(x - at.names, 0), at.columns) + 0.5, at.columns)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin to drag."""
        self._pressed_x, self._dragged = event.x, False
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Pan with the pointer while the button is pressed."""
        if self._pressed_x is None or event.x == self._pressed_x or self.view.trace is None:
            return
        columns = self._pressed_x - event.x
        self._pressed_x, self._dragged = event.x, True
        self.post_message(self.Panned(round(columns * self.view.viewport.span_ns / self.plot_layout.columns)))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Select the row and time under the pointer, unless it was dragged."""
        self.release_mouse()
        pressed, self._pressed_x = self._pressed_x, None
        if pressed is None or self._dragged or self.view.trace is None:
            return
        at = self.plot_layout
        line = event.y - 1
        key = at.lines[line] if 0 <= line < len(at.lines) else None
        if key is not None:
            self.post_message(self.Clicked(self, (key, self.time_ns(event.x) if event.x >= at.names else None)))
