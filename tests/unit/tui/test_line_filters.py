"""Colors on a terminal of 16 colors: two colors of a theme that become the same one there stay distinct."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from stallscope.tui import line_filters

PARTS = st.integers(0, 255)
COLORS = st.tuples(PARTS, PARTS, PARTS).map(lambda parts: Color(*parts))


def standard(color: RichColor) -> int:
    number = color.downgrade(ColorSystem.STANDARD).number
    assert number is not None
    return number


def filtered(front: Color, back: Color) -> Style:
    style = Style(color=front.rich_color, bgcolor=back.rich_color, bold=True)
    ((text, found, _),) = line_filters.SegmentFilter(line_filters.readable_segment).apply(
        [Segment("text", style)], Color(0, 0, 0)
    )
    assert text == "text"
    assert found is not None
    assert found.color is not None
    assert (found.bgcolor, found.bold) == (style.bgcolor, True)
    return found


@given(front=COLORS, back=COLORS)
def test_text_contrasts_with_its_background_and_what_does_is_left_as_it_is(front: Color, back: Color) -> None:
    before = line_filters._contrast(standard(front.rich_color), standard(back.rich_color))
    found = filtered(front, back)
    assert found.color is not None
    if before >= line_filters._LEAST_CONTRAST:
        assert found.color == front.rich_color
    else:
        after = line_filters._contrast(standard(found.color), standard(back.rich_color))
        assert after >= line_filters._LEAST_CONTRAST


def test_grey_stays_grey_and_orange_on_white_becomes_brown_not_another_hue() -> None:
    rule = filtered(Color(40, 40, 40), Color(18, 18, 18)).color
    assert rule is not None
    assert standard(rule) == 8
    key = filtered(Color(230, 159, 0), Color(255, 255, 255)).color
    assert key is not None
    assert standard(key) == 3


def test_without_a_color_or_a_style_nothing_is_changed() -> None:
    segments = [Segment("a"), Segment("b", Style(bold=True))]
    assert line_filters.SegmentFilter(line_filters.readable_segment).apply(segments, Color(0, 0, 0)) == segments
