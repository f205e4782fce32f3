"""Text picture of a trace: a time axis, rows of calls, GPU work and tenures, and the selected call with its delay."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stallprobes.foreign_text import printable
from stallprobes.traces.delay import Delay
from stallprobes.traces.ranking import RankedCall, ranked_calls
from stallprobes.traces.rows import RowGroup, TraceRow
from stallprobes.traces.trace import Trace, op_label
from stallprobes.units import duration_ns
from stallprobes.wording import trace_wording
from stallprobes.wording.trace_wording import CallStory, TimeScale, TracePicture
from stallscope.report.columns import cut_columns, display_width, padded
from stallscope.report.table import TableColumn
from stallscope.report.text import NARROWEST, TextWriter

# Default number of a trace's slowest calls that its text lists.
_SLOWEST = 5
# Largest share (0 to 1) of the text's width that the labels of a trace's rows take.
_LABELS = 0.34
# Smallest distance (columns) between two ticks of a trace's time axis. On an axis below 50 columns, the ticks may be
# closer, so that the axis has at least two ticks.
_TICK_EVERY = 10
# Smallest width (columns) for details at which the events of the selected call are a table (time, event, details). With
# less width, the events are a list.
_DETAIL = 24


@dataclass(frozen=True)
class _Glyphs:
    """Characters of a picture: slightly, half and fully covered cells, waits, tenures of others, the axis, the delay's
    bracket, and the end of a cut label."""

    little: str
    half: str
    full: str
    wait: str
    foreign: str
    axis: str
    tick: str
    left: str
    right: str
    line: str
    cut: str


# Characters of the image of a trace, in the order of the fields of _Glyphs.
_UNICODE = _Glyphs("▏", "▌", "█", "░", "▒", "─", "┴", "├", "┤", "─", "…")
# Characters of the image of a trace for an output without Unicode, in the order of the fields of _Glyphs.
_ASCII = _Glyphs("|", "+", "#", ".", "x", "-", "+", "<", ">", "-", "~")


def trace_text(
    trace: Trace,
    *,
    width: int = 80,
    ascii: bool = False,
    title: str = "",
    call: int | None = None,
    slowest: int = _SLOWEST,
) -> str:
    """``trace`` as lines of at most ``width`` columns, at least 40; with ``ascii`` of ASCII characters only.

    ``title`` says what was traced, such as the GPU and the pattern. ``call`` is the row of the call that is explained,
    by default the trigger's, or the most unusual one; times count from its begin. ``slowest`` is the length of the
    table of the slowest calls.
    """
    stream = io.StringIO()
    out = TextWriter(stream, width=max(width, NARROWEST), ascii=ascii)
    picture = TracePicture(trace, call)
    for text in (title, picture.heading, *trace_wording.notes(trace)):
        out.paragraph(text)
    out.line()
    drawing = _Drawing(picture, out)
    for line in drawing.lines():
        out.line(line)
    out.paragraph(drawing.legend())
    if picture.story is not None:
        out.line()
        _selected(out, picture, picture.story)
    ranked = ranked_calls(trace, slowest)
    if ranked:
        out.line()
        _slowest(out, trace, picture.scale, ranked)
    return stream.getvalue()


class _Drawing:
    """The drawing: a row of text for each row of the trace."""

    def __init__(self, picture: TracePicture, out: TextWriter) -> None:
        self._picture, self._scale, self._rows, self._out = picture, picture.scale, picture.rows, out
        self._glyphs = _ASCII if out.ascii else _UNICODE
        longest = max((display_width(printable(row.label)) + 1 for row in self._rows), default=0)
        titles = max(len(group) for group in RowGroup)
        self._left = min(max(longest, titles), int(out.width * _LABELS)) + 1
        self._cells = out.width - self._left

    def lines(self) -> Iterator[str]:
        yield from self._axis()
        group = None
        for row in self._rows:
            if row.group is not group:
                group = row.group
                yield str(group)
            yield (padded(self._label(row.label), self._left) + self._drawn(row)).rstrip()
            delay = self._picture.delay_below(row)
            if delay is not None and self._picture.story is not None:
                yield from self._delay(delay, self._picture.story.text)

    def legend(self) -> str:
        glyphs = self._glyphs
        column = duration_ns(self._scale.span_ns / self._cells)
        always = f"A column is {column}: {glyphs.full} busy, {glyphs.half} for half of it, {glyphs.little} for less"
        marks = (
            (any(row.waits for row in self._rows), f"{glyphs.wait} waiting for the GPU"),
            (any(row.open for row in self._rows), f"{glyphs.wait} in GPU work: no record yet"),
            (any(row.foreign for row in self._rows), f"{glyphs.foreign} another process had the engine"),
        )
        return "; ".join([always, *(text for drawn, text in marks if drawn)]) + "."

    def _label(self, text: str) -> str:
        label = printable(text)
        room = self._left - 2
        if display_width(label) > room:
            label = cut_columns(label, room - 1) + self._glyphs.cut
        return f" {label}"

    def _axis(self) -> Iterator[str]:
        names, line = [" "] * self._cells, [self._glyphs.axis] * self._cells
        free = 0
        for at_ns, label in self._scale.ticks(max(self._cells // _TICK_EVERY, 2)):
            column = min(int(self._scale.place(at_ns) * self._cells), self._cells - 1)
            line[column] = self._glyphs.tick
            begin = min(max(column - len(label) // 2, 0), self._cells - len(label))
            if begin >= free:
                names[begin : begin + len(label)] = label
                free = begin + len(label) + 1
        pad = " " * self._left
        yield (pad + "".join(names)).rstrip()
        yield pad + "".join(line)

    def _drawn(self, row: TraceRow) -> str:
        solid = trace_wording.shares(row.spans, self._scale, self._cells)
        waits = trace_wording.shares(row.hollow, self._scale, self._cells)
        glyphs = self._glyphs
        if row.foreign:
            return "".join(glyphs.foreign if share > 0 else " " for share in solid)
        levels = np.digitize(solid, (1e-9, 0.25, 0.75))
        letters = (" ", glyphs.little, glyphs.half, glyphs.full)
        return "".join(
            letters[level] if level else glyphs.wait if wait > 0 else " "
            for level, wait in zip(levels.tolist(), waits.tolist(), strict=True)
        )

    def _delay(self, delay: Delay, story: str) -> Iterator[str]:
        """The delay as a bracket from the return to the GPU's start, with its text beside or below it."""
        first = int(self._scale.place(delay.returned_ns) * self._cells)
        last = min(int(self._scale.place(delay.start_ns) * self._cells), self._cells - 1)
        glyphs = self._glyphs
        if last - first < 2:
            return
        yield " " * (self._left + first) + glyphs.left + glyphs.line * (last - first - 1) + glyphs.right
        room = self._left + self._cells
        text = self._out.printed(story)
        if display_width(text) > room:
            text = self._out.printed(trace_wording.delay_length(delay))
        begin = min(self._left + first, room - display_width(text))
        yield " " * begin + text


def _selected(out: TextWriter, picture: TracePicture, story: CallStory) -> None:
    out.paragraph(f"{picture.word}: {story.title}")
    rows = [(picture.scale.exact(moment.at_ns), moment.what, moment.detail) for moment in story.moments]
    columns = (TableColumn("", right=True), TableColumn(""), TableColumn(""))
    if out.natural_width(columns[:2], [row[:2] for row in rows]) + _DETAIL <= out.width:
        out.table(columns, rows)
    else:
        for at, what, detail in rows:
            out.paragraph(f"{at} {what}{', ' if detail else ''}{detail}", "    ", "  ")
    if story.text:
        out.paragraph(f"{story.text[0].upper()}{story.text[1:]}.")
    for note in story.notes():
        out.paragraph(note)


def _slowest(out: TextWriter, trace: Trace, scale: TimeScale, ranked: tuple[RankedCall, ...]) -> None:
    out.paragraph("Slowest calls")
    columns = (
        TableColumn("call began", right=True),
        TableColumn("probe"),
        TableColumn("call"),
        TableColumn("in the call", right=True),
        TableColumn("to GPU start", right=True),
        TableColumn("waited for"),
    )
    rows = [
        [
            scale.exact(each.began_ns),
            trace.probes[each.probe].name,
            op_label(trace.probes, each.probe, each.op),
            duration_ns(each.call_ns),
            "–" if each.delay is None else duration_ns(each.delay.ns),
            each.cause,
        ]
        for each in ranked
    ]
    if out.fitting_table(columns, rows):
        return
    for (began, probe, call, in_call, to_start, cause), each in zip(rows, ranked, strict=True):
        start = "" if each.delay is None else f", {to_start} to GPU start"
        out.paragraph(f"{began.strip()} {probe} {call}: {in_call} in the call{start}", "    ", "  ")
        if cause:
            out.paragraph(cause, "    ")
