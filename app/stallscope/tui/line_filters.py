"""Line filters of the screen: only printable characters, no colors (NO_COLOR), only ASCII."""

from __future__ import annotations

from functools import lru_cache

from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from stallprobes.foreign_text import is_printable, printable

_ASCII = str.maketrans(
    {
        **dict(zip("▁▂▃▄▅▆▇█", "..::==##", strict=True)),
        **dict(zip("░▒▓", ",+%", strict=True)),
        **dict.fromkeys("─━╌═", "-"),
        **dict.fromkeys("│┃▏▕▎▌▐║", "|"),
        **dict.fromkeys("┌┐└┘╭╮╰╯├┤┬┴┼╵╷", "+"),
        **dict.fromkeys("■●", "*"),
        "□": "o", "◆": "@", "▸": ">", "·": "-", "…": "~", "–": "-", "—": "-", "×": "x", "µ": "u", "°": "'",
        "“": '"', "”": '"', "‘": "'", "’": "'", "→": ">", "←": "<", "↑": "^", "↓": "v", "≥": ">", "≤": "<",
    }
)  # fmt: skip


def ascii_only(text: str) -> str:
    """``text`` in ASCII, with the same number of characters."""
    if text.isascii():
        return text
    return text.translate(_ASCII).encode("ascii", errors="replace").decode("ascii")


class Printable(LineFilter):
    """Replaces every character that a terminal would obey: the gate to the screen, for all widgets."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments, printable."""
        return [
            segment if is_printable(segment.text) else Segment(printable(segment.text), segment.style)
            for segment in segments
        ]


class AsciiOnly(LineFilter):
    """Replaces every character by one of ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments in ASCII."""
        return [Segment(ascii_only(text), style, control) for text, style, control in segments]


class Colourless(LineFilter):
    """Removes all colors, greys too. Text on a contrasting background is reversed, so that it stays distinct."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments without colors."""
        back = background.rich_color
        return [
            Segment(text, None if style is None else _without_color(style, back.triplet), control)
            for text, style, control in segments
        ]


@lru_cache(512)
def _without_color(style: Style, usual: ColorTriplet | None) -> Style:
    back = style.bgcolor.triplet if style.bgcolor is not None else None
    apart = back is not None and usual is not None and _distance(back, usual) > 150
    return Style(bold=style.bold, italic=style.italic, underline=style.underline, reverse=bool(style.reverse) or apart)


def _distance(one: ColorTriplet, other: ColorTriplet) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))
