"""SVG picture of a trace: the content of the text picture as vector graphics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from stallprobes.foreign_text import printable
from stallprobes.traces.delay import Delay
from stallprobes.traces.rows import RowGroup, TraceRow
from stallprobes.traces.trace import Int64s, Trace
from stallprobes.wording import trace_wording
from stallprobes.wording.trace_wording import TracePicture
from stallscope.report.columns import wrapped

# Smallest width (pixels) of a trace's SVG image.
NARROWEST = 800
# Sizes (pixels) in a trace's SVG image. _MARGIN: width of the image's margin. _ROW, _BAR, _LINE: heights of a row, of a
# bar in a row, and of a line of text.
_MARGIN, _ROW, _BAR, _LINE = 16, 22, 14, 18
# Width (pixels) of a letter in the font of a trace's SVG image. The places of labels and the room for labels follow
# from this width.
_LETTER = 7.23
# Largest width (pixels) of a letter, for folding text and for the background of text. Reason: some renderers draw
# letters wider than _LETTER.
_WIDEST_LETTER = 7.7
# Smallest distance (pixels) between two ticks of the axis in a trace's SVG image.
_TICK_EVERY = 90
# _MERGED: largest gap (pixels) between two spans of a row that are drawn as one bar. _LEAST: smallest width (pixels) of
# a bar.
_MERGED, _LEAST = 0.3, 1.0

# Colors of a trace's SVG image on a light ground.
_LIGHT = {
    "paper": "#ffffff", "ink": "#1a1a1a", "soft": "#5c5c5c", "line": "#d4d4d4", "call": "#0b57a4", "wait": "#9dbfe3",
    "work": "#2f7d3b", "engine": "#b7791f", "foreign": "#8a8f98", "delay": "#c2410c",
}  # fmt: skip
# Colors of a trace's SVG image on a dark ground.
_DARK = {
    "paper": "#16181b", "ink": "#e8e6e3", "soft": "#a5a5a5", "line": "#3a3d42", "call": "#8ab4f8", "wait": "#3d5a80",
    "work": "#6cbf79", "engine": "#e0a84a", "foreign": "#9aa0a8", "delay": "#f59e6b",
}  # fmt: skip
# CSS class of the bars in a trace's SVG image, by the group of their row.
_CLASSES = {RowGroup.CALLS: "call", RowGroup.WORK: "work", RowGroup.ENGINE: "engine"}


def trace_svg(
    trace: Trace, *, width: int = 1100, dark: bool | None = None, title: str = "", call: int | None = None
) -> str:
    """``trace`` as an SVG image of ``width`` pixels, at least 800, that loads nothing.

    It is dark or light as the reader's system is, unless ``dark`` says it. ``title`` and ``call`` are as in
    ``trace_text``.
    """
    return _Image(trace, max(width, NARROWEST), title, call).svg(dark)


class _Image:
    """The image; ``_y`` is where the next line is drawn."""

    def __init__(self, trace: Trace, width: int, title: str, call: int | None) -> None:
        self._picture = picture = TracePicture(trace, call)
        self._width, self._title = width, title
        self._story, self._scale, self._rows = picture.story, picture.scale, picture.rows
        most = max((len(row.label) for row in self._rows), default=0)
        self._left = _MARGIN + min(int((most + 3) * _LETTER), width // 3)
        self._plot = width - _MARGIN - self._left
        self._y = _MARGIN

    def svg(self, dark: bool | None) -> str:
        head = "".join(self._head())
        top = self._y
        ticks = self._scale.ticks(max(self._plot // _TICK_EVERY, 2))
        self._y += _LINE
        rows = "".join(self._drawn_rows())
        axis = "".join(self._axis(ticks, top))
        guides = "".join(self._guides(top + _LINE))
        legend, foot = "".join(self._legend()), "".join(self._foot())
        height = round(self._y + _MARGIN)
        label = escape(printable(self._label()), quote=True)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self._width}" height="{height}" '
            f'viewBox="0 0 {self._width} {height}" role="img" aria-label="{label}"><style>{_css(dark)}</style>'
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">'
            '<path class="hatch" d="M0 6L6 0M-1 1L1 -1M5 7L7 5"/></pattern></defs>'
            f'<rect class="paper" width="{self._width}" height="{height}"/>'
            f"{head}{axis}{guides}{rows}{legend}{foot}</svg>\n"
        )

    def _label(self) -> str:
        text = self._picture.heading
        return text if self._story is None else f"{text}. {self._story.title}: {self._story.text}"

    def _x(self, at_ns: float) -> float:
        return self._left + self._scale.place(at_ns) * self._plot

    def _label_at(self, x: float, text: str, style: str = "", anchor: str = "") -> str:
        """``text`` with its baseline at ``_y``."""
        at = f' text-anchor="{anchor}"' if anchor else ""
        kind = f' class="{style}"' if style else ""
        return f'<text x="{x:.1f}" y="{self._y:.1f}"{kind}{at}>{escape(printable(text))}</text>'

    def _folded(self, text: str) -> list[str]:
        """``text`` in lines that fit, also where letters are widest."""
        return wrapped(printable(text), int((self._width - 2 * _MARGIN) / _WIDEST_LETTER))

    def _paragraph(self, text: str, style: str = "") -> Iterator[str]:
        for line in self._folded(text):
            self._y += _LINE
            yield self._label_at(_MARGIN, line, style)

    def _head(self) -> Iterator[str]:
        title, *others = (self._title, self._picture.heading) if self._title else (self._picture.heading,)
        yield from self._paragraph(title, "title")
        for text in (*others, *trace_wording.notes(self._picture.trace)):
            yield from self._paragraph(text, "soft")
        self._y += _LINE

    def _axis(self, ticks: Sequence[tuple[int, str]], top: float) -> Iterator[str]:
        grid = "".join(f"M{self._x(at):.1f} {top + 5:.1f}V{self._y:.1f}" for at, _ in ticks)
        yield f'<path class="grid" d="{grid}M{self._left} {top + 5:.1f}h{self._plot}"/>'
        for at, label in ticks:
            half = len(label) * _LETTER / 2
            x = min(max(self._x(at), self._left + half), self._width - _MARGIN - half)
            yield f'<text x="{x:.1f}" y="{top:.1f}" class="soft" text-anchor="middle">{escape(label)}</text>'

    def _drawn_rows(self) -> Iterator[str]:
        group = None
        for row in self._rows:
            if row.group is not group:
                group = row.group
                self._y += _LINE + 4
                yield self._label_at(_MARGIN, str(group), "soft")
            self._y += _ROW
            yield from self._drawn(row)
            delay = self._picture.delay_below(row)
            if delay is not None and self._story is not None:
                yield from self._delay(delay, self._story.text)
        self._y += 8

    def _drawn(self, row: TraceRow) -> Iterator[str]:
        room = int((self._left - _MARGIN) / _LETTER) - 2
        label = row.label if len(row.label) <= room else f"{row.label[: room - 1]}…"
        yield self._label_at(_MARGIN + _LETTER, label)
        top = self._y - _BAR + 3
        yield f'<path class="rail" d="M{self._left} {top + _BAR:.1f}h{self._plot}"/>'
        hollow = "open" if row.open else "wait"
        for spans, style in ((row.hollow, hollow), (row.spans, "foreign" if row.foreign else _CLASSES[row.group])):
            boxes = self._boxes(spans)
            if boxes:
                path = "".join(f"M{x:.2f} {top:.1f}h{wide:.2f}v{_BAR}h-{wide:.2f}z" for x, wide in boxes)
                yield f'<path class="{style}" d="{path}"/>'

    def _boxes(self, spans: Int64s) -> list[tuple[float, float]]:
        """Left edge and width of each box for ``spans``; indistinguishable neighbours share a box."""
        scale = self._scale
        inside = spans[(spans[:, 1] >= scale.begin_ns) & (spans[:, 0] <= scale.end_ns)]
        if not len(inside):
            return []
        inside = inside[np.argsort(inside[:, 0], kind="stable")]
        per = self._plot / scale.span_ns
        begins = self._left + np.clip((inside[:, 0] - scale.begin_ns) * per, 0, self._plot)
        ends = self._left + np.clip((inside[:, 1] - scale.begin_ns) * per, 0, self._plot)
        ends = np.maximum.accumulate(np.maximum(ends, begins + _LEAST))
        first = np.flatnonzero(np.concatenate(([True], begins[1:] - ends[:-1] > _MERGED)))
        last = np.concatenate((first[1:], [len(begins)])) - 1
        return list(zip(begins[first].tolist(), (ends[last] - begins[first]).tolist(), strict=True))

    def _delay(self, delay: Delay, text: str) -> Iterator[str]:
        """The delay as an arrow from the return to the GPU's start, with its text below."""
        self._y += _ROW
        begin, end = self._x(delay.returned_ns), self._x(delay.start_ns)
        y = self._y - _BAR
        if end - begin >= 6:
            yield f'<path class="arrow" d="M{begin:.1f} {y - 4}v8M{begin:.1f} {y}H{end:.1f}m-5 -4l5 4l-5 4"/>'
        self._y += 4
        for number, line in enumerate(self._folded(text)):
            self._y += _LINE if number else 0
            width = len(line) * _WIDEST_LETTER
            x = max(min(begin, self._width - _MARGIN - width), _MARGIN)
            # Lines of the axis would cross the letters.
            yield f'<rect class="paper" x="{x - 3:.1f}" y="{self._y - 11:.1f}" width="{width + 6:.1f}" height="14"/>'
            yield self._label_at(x, line, "delay")

    def _guides(self, top: float) -> Iterator[str]:
        """Dashed lines through all rows where the call returned and where the GPU started."""
        delay = self._picture.delay
        if delay is None:
            return
        path = "".join(f"M{self._x(at):.1f} {top}V{self._y:.1f}" for at in (delay.returned_ns, delay.start_ns))
        yield f'<path class="guide" d="{path}"/>'

    def _legend(self) -> Iterator[str]:
        marks = (
            (True, "call", "host call"),
            (any(row.waits for row in self._rows), "wait", "waiting for the GPU"),
            (True, "work", "GPU work"),
            (any(row.open for row in self._rows), "open", "no record of the work yet"),
            (True, "engine", "context has the graphics engine"),
            (any(row.foreign for row in self._rows), "foreign", "another process has it"),
        )
        self._y += _LINE + 4
        x = float(_MARGIN)
        for style, text in ((style, text) for drawn, style, text in marks if drawn):
            wide = 22 + (len(text) + 2) * _LETTER
            if x + wide > self._width - _MARGIN and x > _MARGIN:
                x = float(_MARGIN)
                self._y += _LINE
            yield f'<path class="{style}" d="M{x:.1f} {self._y - 10:.1f}h14v12h-14z"/>'
            yield self._label_at(x + 20, text, "soft")
            x += wide

    def _foot(self) -> Iterator[str]:
        story = self._story
        if story is None:
            return
        self._y += 6
        yield from self._paragraph(f"{self._picture.word}: {story.title}", "title")
        widest = max(len(moment.what) for moment in story.moments)
        for moment in story.moments:
            self._y += _LINE
            yield self._label_at(_MARGIN + 16 * _LETTER, self._scale.exact(moment.at_ns), anchor="end")
            yield self._label_at(_MARGIN + 18 * _LETTER, moment.what)
            yield self._label_at(_MARGIN + (21 + widest) * _LETTER, moment.detail, "soft")
        for note in story.notes():
            yield from self._paragraph(note, "soft")


def _css(dark: bool | None) -> str:
    if dark is not None:
        return _rules(_DARK if dark else _LIGHT)
    return f"{_rules(_LIGHT)}@media (prefers-color-scheme: dark){{{_rules(_DARK)}}}"


def _rules(colours: dict[str, str]) -> str:
    colour = colours.__getitem__
    fills = "".join(f".{name}{{fill:{colour(name)}}}" for name in ("paper", "call", "work", "engine"))
    return (
        f'text{{font:12px "DejaVu Sans Mono",ui-monospace,monospace;fill:{colour("ink")};white-space:pre}}'
        f".title{{font-weight:700}}text.soft{{fill:{colour('soft')}}}text.delay{{fill:{colour('delay')};font-weight:700}}"
        f"{fills}.open{{fill:none;stroke:{colour('work')};stroke-dasharray:4 2}}"
        f".wait{{fill:none;stroke:{colour('wait')}}}.foreign{{fill:url(#hatch);stroke:{colour('foreign')}}}"
        f".hatch{{fill:none;stroke:{colour('foreign')}}}.grid,.rail{{fill:none;stroke:{colour('line')}}}"
        f".rail{{stroke-opacity:.6}}.arrow{{fill:none;stroke:{colour('delay')};stroke-width:1.5}}"
        f".guide{{fill:none;stroke:{colour('delay')};stroke-dasharray:3 3}}"
    )
