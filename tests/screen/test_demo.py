"""``stallscope demo``: from start to end in a terminal without a key, its keys, and its question."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from factories.command_line import environment
from factories.processes import wait_for_end
from factories.screen import QUICK, drawn_strips, is_open, text_of, until
from factories.terminal import SETTINGS, OpenTerminal
from factories.waiting import LIMIT_S, wait_until
from stallprobes.demo import DemoPhase
from stallprobes.engine.backend import Options
from stallprobes.model import Role
from stallprobes.patterns import patterns
from stallprobes.recording.recording import Recording
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.dialog import Ask
from stallscope.tui.common.help import Help
from stallscope.tui.demo.panels import CAPTION_LINES
from stallscope.tui.demo.screen import DemoScreen
from stallscope.tui.demo.tour import DemoTour
from stallscope.tui.monitor.heatmap import HeatMap
from stallscope.tui.sources.live import LiveSource

SCREEN_BACK = b"\x1b[?1049l"


def in_order(text: str, *words: str) -> bool:
    """Whether ``text`` has all ``words``, each after the one before it."""
    at = 0
    for word in words:
        at = text.find(word, at) + 1
        if not at:
            return False
    return True


def test_it_runs_from_start_to_end_at_80x24_without_a_key_and_prints_the_table(
    terminal: OpenTerminal, tmp_path: Path
) -> None:
    file = tmp_path / "demo.rec"
    arguments = ("--sim", "--seconds", "0.5", "--pattern", "secondary-context-d2d", "--record", str(file))
    screen = terminal("demo", *arguments, size=(80, 24))
    assert screen.wait_for_end() == 0
    assert in_order(screen.text(), "Watch the line", "who waits", "Kernel and copy both", "what was found")
    printed = screen.text(since=screen.raw.rindex(SCREEN_BACK))
    assert in_order(
        printed, f"recorded to {file}", "SIMULATED NVIDIA H200", "secondary-context-d2d", "reported ×1412 (V100)"
    )
    recording = Recording(file)
    shown = []
    for observation in recording.play():
        if observation.snapshot is not None:
            parts = observation.snapshot.probes
            on = any(parts[one.name].on for one in observation.probe_set.probes if one.role is Role.AGGRESSOR)
            shown.append((observation.probe_set.variant, on))
    recording.close()
    assert list(dict.fromkeys(shown)) == [
        ("kernel-other-context", False),
        ("kernel-other-context", True),
        ("kernel-same-context", False),
        ("kernel-same-context", True),
    ]


def test_it_runs_from_start_to_end_at_160x48_in_ascii_without_colour(terminal: OpenTerminal) -> None:
    chosen = ("--pattern", "peer-copy-behind-kernel", "--pattern", "scalar-readback")
    arguments = ("--sim", "--sim-set", "machine.gpus=1", "--seconds", "0.5", *chosen, "--ascii")
    screen = terminal("demo", *arguments, size=(160, 48), NO_COLOR="1", LC_ALL="POSIX", PYTHONUTF8="0", LANG="C")
    assert screen.wait_for_end() == 0
    assert screen.raw.isascii()
    assert b"38;2" not in screen.raw
    printed = " ".join(screen.text(since=screen.raw.rindex(SCREEN_BACK)).split())
    assert "reported x2605 (V100)" in printed
    assert "Skipped, because this machine does not support them peer-copy-behind-kernel: 2 GPUs are needed" in printed


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_in_tmux_it_runs_from_start_to_end_without_a_key(tmp_path: Path) -> None:
    tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", os.devnull]
    demo = [sys.executable, "-m", "stallscope", "demo", "--sim", "--seconds", "0.5", "--pattern", "scalar-readback"]
    variables = {**environment(), "STALLSCOPE_SETTINGS": str(SETTINGS), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}

    def pane() -> str:
        shown = [*tmux, "capture-pane", "-p", "-S", "-"]
        return subprocess.run(shown, env=variables, capture_output=True, text=True, check=True).stdout

    try:
        shell = f"{shlex.join(demo)}; echo exit code $?; exec sleep {LIMIT_S:.0f}"
        subprocess.run([*tmux, "new-session", "-d", "-x", "160", "-y", "48", shell], env=variables, check=True)
        wait_until(lambda: "exit code 0" in pane(), "the end")
        assert in_order(pane(), "SIMULATED NVIDIA H200", "scalar-readback", "reported ×2605 (V100)")
    finally:
        subprocess.run([*tmux, "kill-server"], env=variables, check=False)


def test_a_lost_engine_is_named_and_a_key_quits_with_what_was_found(terminal: OpenTerminal) -> None:
    arguments = ("--sim", "--seconds", "60", "--pattern", "scalar-readback")
    screen = terminal("demo", *arguments, size=(100, 30))
    screen.wait_for("s left")
    (engine,) = screen.children()
    screen.press("\x1b[C")
    screen.wait_for("● stall")
    os.kill(engine, signal.SIGKILL)
    screen.wait_for("killed by SIGKILL")
    screen.press("q")
    assert screen.wait_for_end() == 4
    wait_for_end(engine)
    printed = screen.text(since=screen.raw.rindex(SCREEN_BACK))
    assert "stallscope: scalar-readback: " in printed
    assert in_order(" ".join(printed.split()), "scalar-readback", "failed: ", "killed by SIGKILL")


@asynccontextmanager
async def live_demo(
    *names: str, seconds: float, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[Pilot[None], DemoScreen]]:
    """The demo of patterns over a simulated GPU, in this process."""
    tour = DemoTour((patterns()[name] for name in names), seconds)
    source = LiveSource(Options(profile="h200"), first=tour.first_probe_set())
    app = StallscopeApp(lambda: source, QUICK, first="demo", tour=tour)
    try:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: is_open(pilot, DemoScreen))
            screen = pilot.app.screen
            assert isinstance(screen, DemoScreen)
            yield pilot, screen
    finally:
        source.close()


@pytest.mark.usefixtures("without_terminal_updates")
async def test_keys_and_the_question_before_other_processes_are_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_demo("secondary-context-d2d", seconds=60) as (pilot, screen):
        tour = screen.tour

        def drawn() -> str:
            return text_of(drawn_strips(pilot.app))

        await until(pilot, lambda: tour.running)
        await pilot.press("p")
        await until(pilot, lambda: "PAUSED" in drawn())
        assert tour.paused
        await pilot.press("p")
        assert not tour.paused
        await pilot.press("question_mark")
        await until(pilot, lambda: is_open(pilot, Help))
        elapsed_s = tour.elapsed_s
        screen.tick()
        screen.tick()
        assert tour.elapsed_s == elapsed_s
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is screen)
        assert screen.live is not None
        monkeypatch.setattr(screen.live, "disturbed_processes", lambda: ("trainer (pid 7)",))
        await pilot.press("right")
        await until(pilot, lambda: is_open(pilot, Ask))
        await until(pilot, lambda: "trainer (pid 7)" in drawn())
        await pilot.press("n")
        await until(pilot, lambda: tour.ended and "demo: what was found" in drawn())
        assert not screen.live.is_on("spin")
        assert "secondary-context-d2d" in drawn()
        copied: list[str] = []
        monkeypatch.setattr(pilot.app, "copy_to_clipboard", copied.append)
        await pilot.press("y")
        await until(pilot, lambda: copied)
        assert "SIMULATED NVIDIA H200" in copied[0]
        monkeypatch.setattr(screen.live, "disturbed_processes", tuple)
        await pilot.press("left")
        await until(pilot, lambda: not tour.ended and "● remedy" in drawn())
        assert tour.step.phase is DemoPhase.REMEDY


@pytest.mark.usefixtures("without_terminal_updates")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 48)])
async def test_quiet_and_stall_are_on_an_axis_of_20_s_and_a_click_goes_to_a_step(size: tuple[int, int]) -> None:
    async with live_demo("secondary-context-d2d", seconds=60, size=size) as (pilot, screen):
        tour = screen.tour

        def drawn() -> str:
            return text_of(drawn_strips(pilot.app))

        await until(pilot, lambda: tour.running)
        begin = drawn().splitlines()[0].index("□ stall")
        assert await pilot.click("#caption", offset=(begin + 2, 0))
        await until(pilot, lambda: tour.step.phase is DemoPhase.STALL and tour.running)
        await until(pilot, lambda: "STALLED" in drawn() and "spin on" in drawn())
        assert in_order(drawn(), "● quiet ── ● stall ── □ remedy", "SIMULATED", "d2d@secondary", "now╵")
        heat_map = screen.query_one(HeatMap)
        assert heat_map.size.height >= 8
        focus = heat_map.view
        assert focus is not None
        # A column is a whole number of tenths of a second.
        assert screen.span_s == 20
        assert 13 < len(focus.heat) * focus.column_s < 30


@pytest.mark.usefixtures("without_terminal_updates")
@pytest.mark.parametrize("pattern", ["secondary-context-d2d", "host-callback"])
async def test_no_panel_is_below_the_key_bar_or_the_caption(pattern: str) -> None:
    async with live_demo(pattern, seconds=60) as (pilot, screen):
        await until(pilot, lambda: screen.tour.running)
        ids = ("#header", "#lists", "#histograms", "#heat", "#log")

        def covered() -> tuple[int, int, int]:
            """First line and end of the panels, and the sum of the lines in which they are."""
            shown = [screen.query_one(one).region for one in ids]
            shown = [region for region in shown if region.height]
            rows = {row for region in shown for row in range(region.y, region.bottom)}
            return min(rows), max(rows) + 1, len(rows)

        for width, height in ((60, 18), (60, 23), (80, 24), (100, 30), (120, 40), (149, 36), (160, 24), (160, 48)):
            await pilot.resize_terminal(width, height)
            expected = CAPTION_LINES, height - 1, height - 1 - CAPTION_LINES
            await until(pilot, partial(lambda found: covered() == found, expected))
