"""Hostile text on every screen and dialog: nothing of it reaches the terminal, no line is longer or shorter for it."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot
from textual.screen import Screen

from factories.hostile_recording import HostileRecording
from factories.hostile_text import HOSTILE, WIDE, forbidden, poisoned
from factories.matrix_examples import screen_example
from factories.screen import is_open, monitor, until
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.matrix import QUIET
from stallprobes.model import Phase
from stallprobes.verdicts.blame import AggressorBlame, Blame, BlameOutcome, Conclusion, FigureBlame
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.dialog import Ask, Choose, Prompt
from stallscope.tui.matrix.controller import MatrixController, MatrixState
from stallscope.tui.matrix.screen import MatrixScreen
from stallscope.tui.matrix.view_model import MatrixView
from stallscope.tui.monitor.blame import BlameResult
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.settings import Settings
from stallscope.tui.sources.replay import ReplaySource

pytestmark = pytest.mark.usefixtures("without_terminal_updates")
SIZE = (120, 36)
STALLED_S = 5.0
KINDS = {"all": HOSTILE, "wide": WIDE * 3}


def check(pilot: Pilot[None]) -> str:
    """The text of the screen, which has exactly its size and no forbidden character."""
    size = pilot.app.screen.size
    strips = pilot.app.screen._compositor.render_strips(size)
    assert len(strips) == size.height
    for strip in strips:
        assert not forbidden(strip.text) | (set(strip.text) & {"\n", "\t"}), repr(strip.text)
        assert cell_len(strip.text) == size.width, repr(strip.text)
        assert not any(segment.style is not None and segment.style.link for segment in strip)
    return "\n".join(strip.text for strip in strips)


async def over(pilot: Pilot[None], dialog: Screen[Any]) -> None:
    """Show ``dialog``, check it and close it."""
    pilot.app.push_screen(dialog)
    await pilot.pause(0.05)
    assert pilot.app.screen is dialog
    check(pilot)
    pilot.app.pop_screen()


def blame_result(names: list[str]) -> Blame:
    parts = tuple(AggressorBlame(name, 1e6, 5e3, None, Conclusion.CAUSE) for name in names[1:])
    figures = tuple(
        FigureBlame(names[0], Phase.WAIT, None, Quantile.P50, 5e3, 1e6, outcome, parts) for outcome in BlameOutcome
    )
    return Blame(tuple(names[1:]), rounds=6, seconds=9.9, figures=figures, idle=(names[1],))


@pytest.mark.parametrize("kind", KINDS)
async def test_no_screen_and_no_dialog_shows_it_raw(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile, now = KINDS[kind], [0.0]
    recording = HostileRecording(hostile)
    app = StallscopeApp(lambda: ReplaySource(recording, clock=lambda: now[0]), Settings(keys={"pause": "["}))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor) and monitor(pilot).monitor_view is not None)
        screen = monitor(pilot)
        now[0] = STALLED_S
        screen.tick()
        await until(pilot, lambda: "STALLED" in check(pilot))
        text = check(pilot)
        assert ("\ufffd" in text) == (kind != "wide")
        for keys in (("e",), ("1", "e"), ("question_mark",), ("ctrl+p",)):
            await pilot.press(*keys)
            await pilot.pause(0.05)
            check(pilot)
            await pilot.press("escape")
        written: list[str] = []
        assert app._driver is not None
        monkeypatch.setattr(app._driver, "write", written.append)
        app.copy_to_clipboard(hostile)
        monkeypatch.undo()
        assert not forbidden(base64.b64decode(written[0].partition(";c;")[2].rstrip("\a")).decode())
        screen.notify(hostile, title=hostile)
        await pilot.pause(0.05)
        check(pilot)
        await over(pilot, Ask(hostile, hostile))
        await over(pilot, Choose(hostile, [("one", hostile), ("two", hostile)]))
        await over(pilot, Prompt(hostile, hostile))
        probes = recording.probe_set.probes
        await over(pilot, BlameResult(blame_result([probe.name for probe in probes])))


@pytest.mark.parametrize("kind", KINDS)
async def test_nor_does_the_matrix(kind: str) -> None:
    hostile = KINDS[kind]
    keep = (QUIET, "cuda", "simulated", "2026-11-21T10:00:00+00:00")
    one = poisoned(screen_example(1), keep, hostile)
    app = StallscopeApp(lambda: ReplaySource(HostileRecording(hostile), clock=lambda: 0.0), Settings())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: is_open(pilot, Monitor))
        controller = MatrixController()
        opened = MatrixState(MatrixView.of(one), hostile)
        controller.state = opened
        monitor(pilot).context.controllers[MatrixController] = controller
        await pilot.press("m")
        await until(pilot, lambda: is_open(pilot, MatrixScreen))
        await pilot.pause(0.1)
        check(pilot)
        for key in ("enter", "question_mark"):
            await pilot.press(key)
            await pilot.pause(0.1)
            assert not isinstance(pilot.app.screen, MatrixScreen)
            check(pilot)
            await pilot.press("escape")
        for state in (
            replace(opened, note=hostile, failed=True),
            replace(opened, busy=hostile),
            MatrixState(note=hostile),
        ):
            controller.state = state
            await pilot.pause(0.2)
            check(pilot)
