"""What a terminal cannot show: colours under NO_COLOR, and letters beyond ASCII. Done once, for all that is drawn."""

from __future__ import annotations

from functools import lru_cache

from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

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
    """``text`` letter by letter in ASCII, with the same number of letters."""
    if text.isascii():
        return text
    return text.translate(_ASCII).encode("ascii", errors="replace").decode("ascii")


class AsciiOnly(LineFilter):
    """Every letter as one of ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments in ASCII."""
        return [Segment(ascii_only(text), style, control) for text, style, control in segments]


class Colourless(LineFilter):
    """No colours at all, not even greys. What stood on another ground is reversed, so that it can still be seen."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments without colours."""
        ground = background.rich_color
        return [
            Segment(text, None if style is None else _bare(style, ground.triplet), control)
            for text, style, control in segments
        ]


@lru_cache(512)
def _bare(style: Style, ground: ColorTriplet | None) -> Style:
    back = style.bgcolor.triplet if style.bgcolor is not None else None
    apart = back is not None and ground is not None and _distance(back, ground) > 150
    return Style(bold=style.bold, italic=style.italic, underline=style.underline, reverse=bool(style.reverse) or apart)


def _distance(one: ColorTriplet, other: ColorTriplet) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))
