"""Drawing of all panels: lines of (text, style name), converted to strips only where they changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.color import BLACK, WHITE, Color
from textual.geometry import Region
from textual.message import Message
from textual.reactive import var
from textual.strip import Strip
from textual.widget import Widget

from stallprobes.units import duration_ns, times
from stallscope.report.columns import cut_columns, display_width, wrapped
from stallscope.tui.line_filters import contrast, luminance

# A part of a line: text and its style.
Run = tuple[str, str]
# A line of the screen.
Line = list[Run]
# What a click on a line selects: (first column, end, target).
Targets = list[tuple[int, int, Any]]

# Characters of bars, by height in eighths of a line.
BLOCKS = " ▁▂▃▄▅▆▇█"
# Characters of a heat map, by number of calls.
SHADES = " ░▒▓█"
# Smallest size (columns, lines) of the terminal. In a smaller terminal, a notice replaces the screen.
SMALLEST = (60, 18)
# CSS class of a screen that is smaller than SMALLEST. The first panel of this screen shows a notice; all other panels
# are hidden.
TOO_SMALL = "small"
# Smallest width (columns) to which a too long part at the left of a header line is cut. With fewer free columns, the
# part is left out; at the right, a too long part is always left out. Exception: parts of rank 0 or 1 (the most
# important) are never left out, only cut.
_SHORTEST_PART = 12

# READABLE: smallest contrast ratio of text to the background (WCAG 2.2, 1.4.3). VISIBLE: smallest contrast ratio of
# graphics to the background (WCAG 2.2, 1.4.11). DECENT: smallest contrast ratio of decoration to the background.
READABLE, VISIBLE, DECENT = 4.5, 3.0, 1.5
# Step (share of the way to black or white) by which a color is shifted. The shift ends when the contrast to the
# background suffices.
_STEP = 0.05
# Names of the theme variables from which the styles are made.
_VARIABLES = ("background", "foreground", "primary", "success", "warning", "error", "accent")
# Replacements of colors in Textual's two default themes, by the theme's (background, primary color). The new colors are
# from Okabe and Ito's palette for color-blind people; some are lighter or darker, for contrast. Other themes keep their
# colors.
_DEFAULT = {
    ("#121212", "#0178D4"): {"primary": "#56B4E9", "error": "#D55E00", "accent": "#E69F00", "success": "#2FBF95"},
    ("#E0E0E0", "#004578"): {"primary": "#0072B2", "error": "#B34700", "success": "#00694C"},
}
# Colors that no theme has. _GHOST: for the histogram of a stall, behind the histogram of the stall's remedy. _ACTIVE:
# for SM activity. A light theme uses the text color in place of _ACTIVE, since yellow darkened for contrast would look
# like the color of slow calls.
_GHOST, _ACTIVE = Color.parse("#CC79A7"), Color.parse("#F0E442")
# Relative luminance (0 to 1) above which a theme's background counts as light.
_LIGHT = 0.5
# Styles that also color the background. Blanks in these styles are drawn, because their background is visible.
_BACKED = ("both", "focus", "focus-good", "focus-warn", "focus-bad", "focus-dim", "alarm", "notice")


def palette(variables: Mapping[str, str]) -> Mapping[str, Style]:
    """The styles by name, from a theme's variables. Words or shapes repeat the meaning of each color.

    A theme's color with too little contrast is made darker or lighter.
    """
    return _palette(*(variables[name] for name in _VARIABLES))


# Each widget of each screen asks for it, and again after every change of the size.
@lru_cache(maxsize=4)
def _palette(*variables: str) -> Mapping[str, Style]:
    named = dict(zip(_VARIABLES, variables, strict=True))
    named |= _DEFAULT.get((named["background"].upper(), named["primary"].upper()), {})
    colour = {name: Color.parse(value) for name, value in named.items()}.__getitem__
    ground, ink = colour("background"), colour("foreground")
    light = ground.ansi is None and luminance(ground) > _LIGHT

    def style(colour: Color, back: Color = ground, *, least: float = READABLE, bold: bool = False) -> Style:
        return Style.from_color(apart(colour, back, least).rich_color, back.rich_color) + Style(bold=bold)

    behind, focused = ground.blend(colour("primary"), 0.35), ground.blend(ink, 0.15)
    return {
        "": style(ink),
        "dim": style(ground.blend(ink, 0.6)),
        "faint": style(ground.blend(ink, 0.3), least=DECENT),
        "strong": style(ink, bold=True),
        "good": style(colour("success")),
        "warn": style(colour("warning"), bold=True),
        "bad": style(colour("error"), bold=True),
        "accent": style(colour("accent"), bold=True),
        "key": style(colour("primary"), bold=True),
        "live": style(ink if light else colour("accent"), least=VISIBLE),
        "active": style(ink if light else _ACTIVE, least=VISIBLE),
        "ghost": style(_GHOST),
        "baseline": style(ground.blend(colour("primary"), 0.7), least=VISIBLE),
        "both": style(ink if light else colour("accent"), behind, least=VISIBLE),
        "heat": style(colour("primary"), least=VISIBLE),
        "hot": style(colour("error"), least=VISIBLE),
        "focus": style(ink, focused, bold=True),
        "focus-good": style(colour("success"), focused),
        "focus-warn": style(colour("warning"), focused, bold=True),
        "focus-bad": style(colour("error"), focused, bold=True),
        "focus-dim": style(ground.blend(ink, 0.6), focused),
        "alarm": style(ground, colour("error"), bold=True),
        "notice": style(ground, colour("warning"), bold=True),
        "better": style(colour("success")) + Style(underline=True),
    }


def apart(colour: Color, back: Color, least: float) -> Color:
    """``colour``, shifted towards black or white until its contrast with ``back`` is at least ``least``."""
    if colour.ansi is not None or back.ansi is not None:
        # The user's terminal defines these colors.
        return colour
    end = max(BLACK, WHITE, key=lambda pole: contrast(pole, back))
    share = 0.0
    shifted = colour
    while contrast(shifted, back) < least and share < 1:
        share += _STEP
        shifted = colour.blend(end, min(share, 1.0))
    return shifted


def short_ratio(ratio: float) -> str:
    """A ratio in at most five letters: ``1.3``, ``427``, ``350k``, ``1.2M``."""
    if ratio >= 99_950:
        return f"{ratio / 1e6:.1f}M" if ratio >= 999_500 else f"{ratio / 1e3:.0f}k"
    return times(ratio)[1:]


def short_duration(ns: float | None) -> str:
    """A duration without a blank: ``5.60µs``."""
    return duration_ns(ns).replace(" ", "")


def length(line: Sequence[Run]) -> int:
    """Width of a line in columns."""
    return sum(display_width(text) for text, _ in line)


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns, with an ellipsis where it was cut."""
    if display_width(text) <= width:
        return text
    return cut_columns(text, width - 1) + "…" if width > 0 else ""


def shortened(names: Sequence[str], width: int) -> list[str]:
    """``names`` in at most ``width`` columns each. Different names stay different: they are cut before the part that
    differs where their beginnings are alike."""
    out = [cut(name, width) for name in names]
    for number, name in enumerate(names):
        alike = [other for text, other in zip(out, names, strict=True) if text == cut(name, width) and other != name]
        if not alike or display_width(name) <= width:
            continue
        common = max(_common_length(name, other) for other in alike)
        end = name[common:]
        begin = max(1, min(common, width - 1 - len(end)))
        out[number] = cut(f"{name[:begin]}…{end}" if end else name, width)
    known: dict[str, str] = {}
    for number, name in enumerate(names):
        if known.setdefault(out[number], name) != name:
            mark = str(number + 1)
            out[number] = f"{cut(name, width - len(mark))}{mark}"
    return out


def _common_length(first: str, second: str) -> int:
    """The number of letters with which both begin."""
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def fit(line: Line, width: int, style: str = "") -> Line:
    """``line`` in exactly ``width`` columns: cut, or padded with spaces."""
    out: Line = []
    left = width
    for number, (text, name) in enumerate(line):
        if left <= 0:
            if out and any(rest.strip() for rest, _ in line[number:]):
                last, last_name = out[-1]
                out[-1] = (f"{last[:-1]}…", last_name)
            break
        columns = display_width(text)
        if columns > left:
            text = cut(text, left)
            columns = display_width(text)
        out.append((text, name))
        left -= columns
    if left > 0:
        out.append((" " * left, style))
    return out


def spread(left: Line, right: Line, width: int) -> Line:
    """``left`` and ``right`` at the two ends of a line; ``right`` is omitted where both do not fit."""
    room = width - length(left) - length(right)
    if room < 1:
        return fit(left, width)
    return [*left, (" " * room, ""), *right]


def by_rank(left: Sequence[tuple[int, Line]], right: Sequence[tuple[int, Line]], width: int) -> Line:
    """A line with parts at both ends, by rank: low ranks get space first. The first part of the left end that does not
    fit is cut; parts of higher ranks are omitted."""
    room = width - 2
    kept: dict[int, Line] = {}
    parts = [*left, *right]
    for number in sorted(range(len(parts)), key=lambda number: parts[number][0]):
        rank, part = parts[number]
        if length(part) > room and rank > 1 and (number >= len(left) or room < _SHORTEST_PART):
            continue
        kept[number] = fit(part, room) if length(part) > room else part
        room -= length(kept[number])
    left_runs = [run for number in range(len(left)) for run in kept.get(number, [])]
    right_runs = [run for number in range(len(left), len(parts)) for run in kept.get(number, [])]
    return fit([*left_runs, (" " * max(1, width - length(left_runs) - length(right_runs) - 1), ""), *right_runs], width)


def too_small_lines() -> list[Line]:
    """The notice that replaces the screen in a too small terminal."""
    columns, rows = SMALLEST
    return [[(" too small", "warn")], [(f" at least {columns}×{rows}", "")], [(" ctrl+q quits", "dim")]]


def rule(title: str, width: int, note: str = "") -> Line:
    """A horizontal line with a title, and a note at its end where it fits."""
    head: Line = [("── ", "faint"), (title, "strong"), (" ", "")] if title else []
    tail: Line = [(f" {note} ", "dim")] if note and length(head) + display_width(note) + 4 < width else []
    bar = width - length(head) - length(tail)
    return fit([*head, ("─" * max(bar, 0), "faint"), *tail], width)


def paragraph_lines(
    paragraphs: Sequence[tuple[str, str, str]], width: int, height: int, indent: str = "", edge: int = 3
) -> list[Line]:
    """A rule, and paragraphs (title, its style, text) folded below it, in at most ``height`` lines.

    Where there is more, the last line ends with an ellipsis, ``edge`` columns from its end at least.
    """
    out: list[Line] = [rule("", width)]
    for title, style, text in paragraphs:
        head = f"{title}  " if title else ""
        for number, part in enumerate(wrapped(head + text, max(20, width - 2), indent=indent)):
            if number == 0 and title:
                out.append([(" ", ""), (part[: len(title)], style), (part[len(title) :], "")])
            else:
                out.append([(f" {part}", "")])
    if len(out) > height > 1:
        text = "".join(part for part, _ in out[height - 1])
        out[height - 1] = [(f"{cut(text, width - edge).rstrip('…')}…", "")]
    return out[: max(height, 0)]


def runs_of_rows(letters: NDArray[np.str_], styles: NDArray[np.intp], names: Sequence[str]) -> list[Line]:
    """One run for each sequence of equal style in each row; ``styles`` has an index into ``names`` for each letter.

    A blank has the style of the letter before it where both have the background of the screen: it looks the same, and
    each run costs about 40 bytes on the way to the terminal.
    """
    rows, columns = letters.shape
    if not columns:
        return [[] for _ in range(rows)]
    backed = np.array([name in _BACKED for name in names])[styles]
    visible = np.where((letters == " ") & ~backed, 0, np.arange(columns))
    before = np.arange(rows)[:, None], np.maximum.accumulate(visible, axis=1)
    styles = np.where(backed[before], styles, styles[before])
    begins = np.ones((rows, columns), dtype=bool)
    begins[:, 1:] = styles[:, 1:] != styles[:, :-1]
    places = begins.reshape(-1).nonzero()[0]
    texts = np.ascontiguousarray(letters).view(f"<U{columns}")[:, 0].tolist()
    # The rows one after the other: each begins with a run of its own.
    text = "".join(row.ljust(columns) for row in texts)
    out: list[Line] = [[] for _ in range(rows)]
    bounds = [*places.tolist(), len(text)]
    for (begin, end), style in zip(pairwise(bounds), styles.reshape(-1)[places].tolist(), strict=True):
        out[begin // columns].append((text[begin:end], names[style]))
    return out


class LineWidget(Widget, can_focus=False):
    """A widget of styled lines. Subclasses have a reactive ``view``, and override ``lines``, which draws it.

    ``targets`` has for each line what a click selects there. ``lines`` sets it where there is something.
    """

    @dataclass
    class Clicked(Message):
        """A target was clicked."""

        widget: LineWidget
        target: Any

        @property
        def control(self) -> LineWidget:
            """The widget, for selectors."""
            return self.widget

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.targets: list[Targets] = []
        self._lines: list[Line] = []
        self._strips: list[Strip] = []
        self._styles: Mapping[str, Style] = {}

    def lines(self, width: int, height: int) -> list[Line]:
        """The lines for ``width`` columns and at most ``height`` lines."""
        raise NotImplementedError

    def with_targets(self, rows: Sequence[TargetLine], width: int) -> list[Line]:
        """Lines given with their targets, None for a line without one."""
        self.targets = [[] if target is None else [(0, width, target)] for target, _ in rows]
        return [line for _, line in rows]

    def watch_view(self, before: Any, after: Any) -> None:
        """Draw the changed part."""
        self.redraw()

    def redraw(self) -> None:
        """Draw the changed part."""
        width, height = self.size
        if width <= 0 or height <= 0 or not self.is_attached or not self.display:
            return
        if not self._styles:
            self._styles = palette(self.app.theme_variables)
        lines = too_small_lines() if self.screen.has_class(TOO_SMALL) else self.lines(width, height)
        new = [fit(line, width) for line in lines[:height]]
        new += [[(" " * width, "")]] * (height - len(new))
        old, self._lines = self._lines, new
        if len(old) != len(new) or len(self._strips) != len(new) or length(old[0]) != width:
            self._strips = [self._strip(line, width) for line in new]
            self.refresh()
            return
        changed = []
        for y, (before, after) in enumerate(zip(old, new, strict=True)):
            if before != after:
                self._strips[y] = self._strip(after, width)
                changed.append(_region(before, after, y, width))
        if changed:
            self.refresh(*changed)

    @property
    def text(self) -> str:
        """The drawn lines as a text."""
        return "\n".join("".join(text for text, _ in line).rstrip() for line in self._lines).rstrip()

    def repaint(self) -> None:
        """Draw everything, after the theme or the size changed."""
        self._styles, self._strips = {}, []
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """The cached strip of line ``y``."""
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, self._styles.get(""))

    def on_mount(self) -> None:
        """Follow the theme."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.call_after_refresh(self.repaint))

    def on_show(self) -> None:
        """Draw the changes since the widget was hidden."""
        self.redraw()

    def on_resize(self) -> None:
        """Draw for the new size; the screen then gives the panels what depends on it."""
        self.repaint()
        getattr(self.screen, "mark_changed", lambda: None)()

    def on_click(self, event: events.Click) -> None:
        """Post the clicked target."""
        for first, end, target in self.targets[event.y] if event.y < len(self.targets) else ():
            if first <= event.x < end:
                self.post_message(self.Clicked(self, target))

    def _strip(self, line: Line, width: int) -> Strip:
        styles = self._styles
        return Strip([Segment(text, styles[name]) for text, name in line], width)


class Panel(LineWidget):
    """A widget that draws ``view`` by a function, which gets it with a width and a height."""

    view = var[Any](None)

    def __init__(
        self, draw: Callable[[Any, int, int], Sequence[Any]], view: object = None, *, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self.draw_view = draw
        self.set_reactive(Panel.view, view)

    def lines(self, width: int, height: int) -> list[Line]:
        """The lines of the view."""
        return list(self.draw_view(self.view, width, height))


# A line with the target of a click on it, None for a line without one.
TargetLine = tuple[Any, Line]


class TargetPanel(Panel):
    """A panel whose function draws lines with targets."""

    def lines(self, width: int, height: int) -> list[Line]:
        """The lines of the view."""
        return self.with_targets(self.draw_view(self.view, width, height), width)


class RowsWidget(LineWidget):
    """A line of titles, and below it as many rows as fit, with the selected row among them."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._first = 0

    @property
    def page(self) -> int:
        """Number of rows that fit."""
        return max(self.size.height - 1, 1)

    def scrolled(self, rows: Sequence[Any], selected: object, height: int) -> Sequence[Any]:
        """The visible rows of ``rows`` in ``height`` lines, with the row of the key ``selected`` among them."""
        page = height - 1
        place = next((number for number, row in enumerate(rows) if row.key == selected), 0)
        self._first = min(max(self._first, place - page + 1), place, max(len(rows) - page, 0))
        return rows[self._first : self._first + max(page, 0)]


class WheelWidget(LineWidget):
    """A widget whose content moves with the mouse wheel."""

    @dataclass
    class Turned(Message):
        """The wheel was turned at column ``x``: down by ``steps``, or to the right, which shift does too."""

        x: int
        steps: int
        sideways: bool

    @on(events.MouseScrollUp)
    @on(events.MouseScrollDown)
    @on(events.MouseScrollLeft)
    @on(events.MouseScrollRight)
    def post_turned(self, event: events.MouseEvent) -> None:
        """Post that the wheel was turned."""
        event.stop()
        back = isinstance(event, (events.MouseScrollUp, events.MouseScrollLeft))
        sideways = event.shift or isinstance(event, (events.MouseScrollLeft, events.MouseScrollRight))
        self.post_message(self.Turned(event.x, -1 if back else 1, sideways))


def _region(before: Line, after: Line, y: int, width: int) -> Region:
    """The changed part of a line: all but the equal runs at both ends."""
    start = end = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        start += display_width(old[0])
    for old, new in zip(reversed(before), reversed(after), strict=False):
        if old != new:
            break
        end += display_width(old[0])
    return Region(start, y, max(1, width - start - end), 1)
