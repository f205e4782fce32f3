"""The matrix screen in a real terminal while a check runs on the simulated GPU: leaving, a lost engine, going back."""

from __future__ import annotations

import os
import signal

import pytest
from screen.conftest import OpenTerminal, Terminal
from screen.test_in_a_terminal import given_back, gone, ready


def measuring(terminal: OpenTerminal) -> tuple[Terminal, list[int]]:
    """A screen on which a whole check has begun, and the check's engines."""
    screen = terminal("--sim", "h200")
    monitors = ready(screen)
    screen.press("m")
    screen.wait_for("r runs a check")
    screen.press("r")
    screen.wait_for("Run a check?")
    screen.read(0.2)
    screen.press("\x1b[B")
    screen.press("\r")
    screen.wait_for("repeat 1 of", 60)
    assert gone(monitors)
    engines = screen.children()
    assert engines
    return screen, engines


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_a_key_leaves_within_a_second_and_leaves_nothing_behind(terminal: OpenTerminal, key: str) -> None:
    screen, engines = measuring(terminal)
    screen.press(key)
    assert screen.left_within(5.0) < 1.0
    assert screen.status == 0
    assert all(gone(engine) for engine in engines)
    given_back(screen)


def test_also_while_the_engines_are_stopped_keys_answer_and_leaving_takes_no_longer(terminal: OpenTerminal) -> None:
    screen, engines = measuring(terminal)
    for engine in engines:
        os.kill(engine, signal.SIGSTOP)
    screen.read(0.3)
    since = screen.press("?")
    assert screen.wait_for("Rows and columns", 2.0, since=since) < 0.6
    screen.press("\x1b")
    screen.read(0.3)
    screen.press("q")
    assert screen.left_within(5.0) < 1.0
    assert all(gone(engine) for engine in engines)


def test_an_engine_that_was_killed_is_told_and_measured_cells_stay(terminal: OpenTerminal) -> None:
    screen, engines = measuring(terminal)
    os.kill(engines[0], signal.SIGKILL)
    screen.read(1.0)
    since = screen.press("x")
    screen.wait_for("Stopped:", 20, since=since)
    screen.wait_for("the engine was lost", 2, since=since)
    screen.wait_for("SIGKILL", 2, since=since)


def test_back_in_the_monitor_a_new_engine_is_live(terminal: OpenTerminal) -> None:
    screen, engines = measuring(terminal)
    since = screen.press("\x1b")
    screen.wait_for("go back?", since=since)
    screen.read(0.2)
    since = screen.press("y")
    screen.wait_for("VICTIMS", since=since)
    screen.wait_for("The engine restarts", since=since)
    screen.wait_for("live", since=since)
    assert all(gone(engine) for engine in engines)
    assert ready(screen) not in engines
