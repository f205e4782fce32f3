"""The screen in a real terminal: starting, switching, resizing, signals, and what is left behind."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from factories.processes import wait_for_end
from factories.recordings import STALL
from factories.terminal import OpenTerminal, Terminal
from stallscope.tui import signal_exit

SCREEN_OPEN = b"\x1b[?1049h"
MOUSE_OFF, SCREEN_BACK, CURSOR_BACK = b"\x1b[?1003l", b"\x1b[?1049l", b"\x1b[?25h"


def ready(terminal: Terminal) -> int:
    """Wait until quiet is measured; returns the engine's process."""
    terminal.wait_for("live")
    (engine,) = terminal.children()
    return engine


def given_back(terminal: Terminal) -> None:
    assert all(code in terminal.raw for code in (MOUSE_OFF, SCREEN_BACK, CURSOR_BACK))


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("\x03", 0), ("\x11", 0)])
def test_a_key_leaves_and_leaves_nothing_behind(terminal: OpenTerminal, key: str, code: int) -> None:
    screen = terminal("--sim", "h200")
    engine = ready(screen)
    screen.press(key)
    assert screen.wait_for_end() == code
    wait_for_end(engine)
    given_back(screen)


def test_it_says_simulated_and_why_where_there_is_no_driver(terminal: OpenTerminal) -> None:
    screen = terminal(CUDA_VISIBLE_DEVICES="")
    screen.wait_for("SIMULATED")
    screen.wait_for("no usable GPU")


def test_a_gpu_that_was_asked_for_and_is_not_there_ends_it_with_3(terminal: OpenTerminal) -> None:
    screen = terminal("--gpu", "7", CUDA_VISIBLE_DEVICES="")
    assert screen.wait_for_end() == 3
    assert "stallscope: " in screen.text()


def test_a_profile_that_is_not_there_ends_it_with_2_and_the_names_of_those_that_are(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h2000")
    assert screen.wait_for_end() == 2
    assert "h200" in screen.text().rpartition("stallscope: ")[2]


def test_a_stall_that_is_switched_on_is_told(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200")
    ready(screen)
    screen.press("1")
    screen.wait_for("STALLED")
    screen.press("b")
    screen.press("e")
    screen.wait_for("one context at a time")


def test_it_follows_the_terminals_size(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200", size=(80, 24))
    ready(screen)
    for columns, rows in ((200, 60), (60, 18), (250, 70), (80, 24)):
        since = len(screen.raw)
        screen.resize(columns, rows)
        screen.wait_for("VICTIMS", since=since)
    since = len(screen.raw)
    screen.resize(40, 10)
    screen.wait_for("too small", since=since)
    screen.press("q")
    screen.wait_for_end()


def test_an_engine_that_was_killed_is_said_to_be_lost_and_one_key_starts_a_new_one(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200")
    engine = ready(screen)
    os.kill(engine, signal.SIGKILL)
    screen.wait_for("ENGINE LOST")
    screen.wait_for("killed by SIGKILL")
    since = screen.press("R")
    screen.wait_for("live", since=since)
    assert ready(screen) != engine


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_while_the_engine_is_stopped_keys_answer_and_a_key_leaves(terminal: OpenTerminal, key: str) -> None:
    screen = terminal("--sim", "h200")
    engine = ready(screen)
    os.kill(engine, signal.SIGSTOP)
    screen.wait_for("ENGINE SILENT")
    since = screen.press("?")
    screen.wait_for("pause the view", since=since)
    screen.press("?")
    screen.press(key)
    assert screen.wait_for_end() == 0
    wait_for_end(engine)
    given_back(screen)


def test_an_engine_that_goes_on_after_a_stop_is_live_again_and_no_stall_is_made_of_it(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200")
    engine = ready(screen)
    screen.wait_for(" old")
    os.kill(engine, signal.SIGSTOP)
    screen.wait_for("ENGINE SILENT")
    since = len(screen.raw)
    os.kill(engine, signal.SIGCONT)
    screen.wait_for("live", since=since)
    screen.read(1.5)
    assert "STALLED" not in screen.text()


@pytest.mark.parametrize("number", signal_exit.SIGNALS, ids=lambda number: number.name)
def test_signals_end_it_as_a_key_does(terminal: OpenTerminal, number: signal.Signals) -> None:
    screen = terminal("--sim", "h200")
    engine = ready(screen)
    os.kill(screen.pid, number)
    assert screen.wait_for_end() == (130 if number is signal.SIGINT else 128 + number)
    wait_for_end(engine)
    given_back(screen)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda number: number.name)
def test_a_signal_before_the_first_frame_restores_the_terminal(terminal: OpenTerminal, number: signal.Signals) -> None:
    screen = terminal("--sim", "h200")
    screen.wait_until(lambda: SCREEN_OPEN in screen.raw, "the screen is open")
    os.kill(screen.pid, number)
    assert screen.wait_for_end() == 128 + number
    given_back(screen)
    assert "Traceback" not in screen.text()
    assert "defect" not in screen.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_while_the_engine_starts_leaves_no_traceback(terminal: OpenTerminal, number: signal.Signals) -> None:
    screen = terminal("--sim", "h200")
    screen.wait_until(screen.children, "the engine exists")
    (engine,) = screen.children()
    os.kill(engine, signal.SIGSTOP)
    screen.wait_for("creating contexts")
    os.kill(screen.pid, number)
    assert screen.wait_for_end() == 128 + number
    wait_for_end(engine)
    given_back(screen)
    assert "Traceback" not in screen.text()


def test_killed_outright_it_takes_its_engine_along(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200")
    engine = ready(screen)
    os.kill(screen.pid, signal.SIGKILL)
    screen.wait_for_end()
    wait_for_end(engine)


def test_without_utf8_every_letter_is_ascii(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200", LANG="C", LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    ready(screen)
    screen.press("1")
    screen.wait_for("STALLED")
    assert screen.raw.isascii()


def test_with_no_color_no_colour_is_written(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200", NO_COLOR="1")
    ready(screen)
    screen.press("1")
    screen.wait_for("STALLED")
    assert b"38;2" not in screen.raw
    assert b"38;5" not in screen.raw
    assert b"48;2" not in screen.raw


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
def test_on_a_terminal_of_16_colours_no_text_has_the_colour_of_its_background(
    terminal: OpenTerminal, tmp_path: Path, theme: str
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(f'quiet_seconds = 0.5\nframes_per_second = 5\ntheme = "{theme}"\n')
    # As in a container of Docker.
    screen = terminal("--sim", "h200", TERM="xterm", COLORTERM="", STALLSCOPE_SETTINGS=str(settings))
    ready(screen)
    screen.press("1")
    screen.wait_for("STALLED")
    drawn = re.findall(rb"\x1b\[([0-9;]+)m([^\x1b]+)", screen.raw)
    assert any(b"SIMULATED" in text for _, text in drawn)
    for codes, text in drawn:
        numbers = [int(code) for code in codes.split(b";") if code]
        fronts = [number for number in numbers if 30 <= number < 38 or 90 <= number < 98]
        backs = [number - 10 for number in numbers if 40 <= number < 48 or 100 <= number < 108]
        assert fronts[-1:] != backs[-1:] or not fronts or not text.strip(), (codes, text)


def test_a_recording_made_by_the_screen_can_be_replayed(terminal: OpenTerminal, tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    screen = terminal("--sim", "h200", "--record", str(file))
    ready(screen)
    screen.wait_for(" old")
    screen.press("1")
    screen.wait_for("STALLED")
    screen.press("q")
    screen.wait_for_end()
    again = terminal("replay", str(file))
    again.wait_for("REPLAY")
    again.wait_for("STALLED")
    again.press("q")
    assert again.wait_for_end() == 0
    over = terminal("--sim", "h200", "--record", str(file))
    assert over.wait_for_end() == 2
    assert "never overwrites" in over.text()


def test_a_truncated_recording_is_shown_and_exits_5(terminal: OpenTerminal, tmp_path: Path) -> None:
    data = STALL.read_bytes()
    file = tmp_path / "part.rec"
    file.write_bytes(data[: len(data) * 2 // 3])
    screen = terminal("replay", str(file))
    screen.wait_for("REPLAY")
    screen.press("q")
    assert screen.wait_for_end() == 5
    assert "damaged or truncated" in screen.text()
