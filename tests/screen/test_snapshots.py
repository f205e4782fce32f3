"""What the screen looks like, letter by letter, at several sizes; the figures come from a recording in the tree.

``STALLSCOPE_REMAKE=1`` writes the expected screens anew; look at the difference before you commit it.
"""

from __future__ import annotations

import pytest
from rich.style import Style
from textual.strip import Strip

from factories.recordings import STALL
from factories.screen import SNAPSHOTS, assert_snapshot, settled, text_of, until
from stallprobes.patterns.remedy_code import CodeLanguage, remedy_code
from stallprobes.recording.recording import Recording
from stallscope.tui.app import StallscopeApp
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.settings import Settings
from stallscope.tui.sources.replay import ReplaySource

pytestmark = pytest.mark.usefixtures("without_terminal_updates")

# In the middle of the stall, and after it.
STALLED_S, AFTER_S = 5.0, 7.0


# Keys that open something over the monitor.
OPENING = ("e", "question_mark")


async def drawn(
    at_s: float, size: tuple[int, int], keys: tuple[str, ...] = (), settings: Settings | None = None
) -> list[Strip]:
    """The screen's lines at ``at_s`` seconds of the recording."""
    now = [0.0]
    source = ReplaySource(Recording(STALL), clock=lambda: now[0])
    app = StallscopeApp(lambda: source, settings or Settings())
    async with app.run_test(size=size) as pilot:
        monitor: Monitor | None = None
        while monitor is None or monitor.monitor_view is None:
            await pilot.pause(0.02)
            monitor = app.screen if isinstance(app.screen, Monitor) else None
        now[0] = at_s
        monitor.tick()
        # What lies behind a dialog is drawn before it opens.
        await settled(pilot)
        await pilot.press(*keys)
        if keys and keys[0] in OPENING:
            await until(pilot, lambda: pilot.app.screen is not monitor)
        monitor.rearrange()
        await settled(pilot)
        monitor.draw()
        return await settled(pilot)


@pytest.mark.parametrize(
    "size", [(60, 18), (80, 24), (120, 36), (200, 60), (250, 70)], ids=lambda size: f"{size[0]}x{size[1]}"
)
@pytest.mark.parametrize("at_s", [STALLED_S, AFTER_S])
async def test_the_monitor(size: tuple[int, int], at_s: float) -> None:
    strips = await drawn(at_s, size)
    assert [strip.cell_length for strip in strips] == [size[0]] * size[1]
    assert_snapshot(f"monitor-{size[0]}x{size[1]}-{at_s:.0f}s", text_of(strips))


async def test_the_aggressor_in_focus() -> None:
    assert_snapshot("aggressor-120x36", text_of(await drawn(STALLED_S, (120, 36), ("1",))))


@pytest.mark.parametrize(("name", "key"), [("explain", "e"), ("help", "question_mark")])
async def test_what_lies_over_it(name: str, key: str) -> None:
    assert_snapshot(f"{name}-120x36", text_of(await drawn(STALLED_S, (120, 36), (key,))))


@pytest.mark.parametrize("size", [(60, 18), (80, 24)])
async def test_the_help_is_not_cut_on_a_small_screen(size: tuple[int, int]) -> None:
    text = text_of(await drawn(STALLED_S, size, ("question_mark",)))
    assert "Help: Replay" in text or "Help: Live" in text
    # The only dots are those between the first digit and the last one, and between two letters.
    assert text.replace("1 … 0", "").replace("b … h", "").count("…") == 0


async def test_an_explanation_folds_no_code_on_a_small_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    strips = await drawn(STALLED_S, (80, 24), ("e", *["down"] * 9), Settings(remedy_language="pytorch"))
    text = text_of(strips)
    assert_snapshot("explain-80x24", text)
    for code in remedy_code("secondary-context-d2d")[CodeLanguage.PYTORCH]:
        assert all(line in text for line in code.lines)
    styles: list[Style] = [segment.style for strip in strips for segment in strip if segment.style is not None]
    assert all(style.color is None and style.bgcolor is None for style in styles)


async def test_in_ascii_it_is_the_same_in_other_letters() -> None:
    text = text_of(await drawn(STALLED_S, (120, 36), settings=Settings(ascii=True)))
    assert text.isascii()
    assert_snapshot("monitor-120x36-ascii", text)


async def test_without_colour_no_colour_is_left_and_every_state_is_still_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    strips = await drawn(STALLED_S, (80, 24))
    styles: list[Style] = [segment.style for strip in strips for segment in strip if segment.style is not None]
    assert all(style.color is None and style.bgcolor is None for style in styles)
    assert text_of(strips) == (SNAPSHOTS / f"monitor-80x24-{STALLED_S:.0f}s.txt").read_text(encoding="utf-8")


async def test_too_small_says_so() -> None:
    text = text_of(await drawn(STALLED_S, (40, 10)))
    assert "too small" in text
    assert "60" in text


async def test_sizes_up_to_very_large_have_no_line_too_long_or_short() -> None:
    for size in ((60, 18), (100, 30), (150, 40), (250, 70)):
        strips = await drawn(STALLED_S, size)
        assert [strip.cell_length for strip in strips] == [size[0]] * size[1]
        assert "STALLED" in text_of(strips)
