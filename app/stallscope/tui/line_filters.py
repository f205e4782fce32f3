"""Line filters of the screen: only printable characters, no colors (NO_COLOR), 16 colors (TERM), only ASCII."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from rich.cells import cell_len
from rich.color import Color as RichColor
from rich.color import ColorSystem, blend_rgb
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from stallprobes.foreign_text import is_printable, printable

# _BLACK, _WHITE: indices of black and white in the palette of 16 colors. _WHITE also stands for the terminal's default
# color.
_BLACK, _WHITE = 0, 15
# Number of steps from a color to black or white. The color is shifted step by step until its contrast suffices.
_STEPS = 16
# Smallest contrast ratio of text to its background. Dark grey on black (5.3) stays as it is. Light grey on white (1.8)
# becomes darker.
_LEAST_CONTRAST = 2.5
# Replacements of characters on a screen without Unicode.
_ASCII = str.maketrans(
    {
        **dict(zip("▁▂▃▄▅▆▇█", "..::==##", strict=True)),
        **dict(zip("░▒▓", ",+%", strict=True)),
        **dict.fromkeys("─━╌═▔", "-"),
        **dict.fromkeys("│┃▏▕▎▌▐║", "|"),
        **dict.fromkeys("┌┐└┘╭╮╰╯├┤┬┴┼╵╷", "+"),
        **dict.fromkeys("■●", "*"),
        "□": "o", "◆": "@", "▸": ">", "·": "-", "…": "~", "–": "-", "—": "-", "×": "x", "µ": "u", "°": "'",
        "“": '"', "”": '"', "‘": "'", "’": "'", "→": ">", "←": "<", "↑": "^", "↓": "v", "≥": ">", "≤": "<",
        # Letter of Textual's command palette, two cells wide.
        "🔎": "> ",
    }
)  # fmt: skip


def ascii_only(text: str) -> str:
    """``text`` in ASCII, with the same number of cells."""
    if text.isascii():
        return text
    text = text.replace("→ ", "->").replace(" →", "->").replace("≤ ", "<=").translate(_ASCII)
    return (
        text if text.isascii() else "".join(letter if letter.isascii() else "?" * cell_len(letter) for letter in text)
    )


class SegmentFilter(LineFilter):
    """Replaces each segment by what ``changed`` makes of it and the usual background."""

    def __init__(self, changed: Callable[[Segment, RichColor], Segment]) -> None:
        super().__init__()
        self._changed = changed

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The changed segments."""
        back = background.rich_color
        return [self._changed(segment, back) for segment in segments]


def printable_segment(segment: Segment, back: RichColor) -> Segment:
    """``segment`` without characters that a terminal would obey: the gate to the screen, for all widgets."""
    return segment if is_printable(segment.text) else Segment(printable(segment.text), segment.style)


def ascii_segment(segment: Segment, back: RichColor) -> Segment:
    """``segment`` in ASCII."""
    return Segment(ascii_only(segment.text), segment.style, segment.control)


def colourless_segment(segment: Segment, back: RichColor) -> Segment:
    """``segment`` without colors and greys. Text on a contrasting background is reversed, so that it stays distinct."""
    text, style, control = segment
    return Segment(text, None if style is None else _without_color(style, back.triplet), control)


@lru_cache(512)
def _without_color(style: Style, usual: ColorTriplet | None) -> Style:
    back = style.bgcolor.triplet if style.bgcolor is not None else None
    apart = back is not None and usual is not None and _distance(back, usual) > 150
    return Style(bold=style.bold, italic=style.italic, underline=style.underline, reverse=bool(style.reverse) or apart)


def _distance(first: ColorTriplet, second: ColorTriplet) -> int:
    return sum(abs(a - b) for a, b in zip(first, second, strict=True))


def readable_segment(segment: Segment, back: RichColor) -> Segment:
    """``segment`` readable on a terminal of 16 colors, where two colors of a theme may become the same one."""
    text, style, control = segment
    return Segment(text, None if style is None else _readable(style, back), control)


@lru_cache(2048)
def _readable(style: Style, usual: RichColor) -> Style:
    """``style``, whose color becomes darker or lighter until it contrasts with its background in 16 colors."""
    if style.color is None:
        return style
    back, wanted = _standard(style.bgcolor or usual), style.color.get_truecolor()
    end = max((_BLACK, _WHITE), key=lambda number: _contrast(number, back))
    for step in range(_STEPS + 1):
        color = RichColor.from_triplet(blend_rgb(wanted, _triplet(end), step / _STEPS))
        if _contrast(_standard(color), back) >= _LEAST_CONTRAST:
            return style + Style(color=color) if step else style
    return style


def _standard(color: RichColor) -> int:
    """The number of a color among the 16."""
    number = color.downgrade(ColorSystem.STANDARD).number
    # The terminal's default has none.
    return _WHITE if number is None else number


def contrast(first: ColorTriplet | Color, second: ColorTriplet | Color) -> float:
    """The contrast ratio of two colors, 1 to 21 (WCAG 2.2)."""
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def _contrast(first: int, second: int) -> float:
    """The contrast ratio of two of the 16 colors."""
    return contrast(_triplet(first), _triplet(second))


def _triplet(number: int) -> ColorTriplet:
    """One of the 16 colors as Rich assumes it."""
    return RichColor.from_ansi(number).get_truecolor()


def luminance(color: ColorTriplet | Color) -> float:
    """The relative luminance of a color, 0 to 1 (WCAG 2.2)."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
