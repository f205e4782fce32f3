"""The matrix screen in a real terminal while a check runs on the simulated GPU: leaving, a lost engine, going back."""

from __future__ import annotations

import os
import signal

from factories.processes import wait_for_end
from factories.terminal import OpenTerminal, Terminal
from screen.test_in_a_terminal import given_back, ready


def measuring(terminal: OpenTerminal, step: str = "warming up") -> tuple[Terminal, list[int]]:
    """A screen on which a whole check has come to ``step``, and the check's engines, of which it has two."""
    screen = terminal("--sim", "h200")
    monitors = ready(screen)
    screen.press("m")
    screen.wait_for("r runs a check")
    screen.press("r")
    screen.wait_for("Run a check?")
    screen.read(0.2)
    screen.press("\x1b[B")
    screen.press("\r")
    screen.wait_for(step)
    wait_for_end(monitors)
    screen.wait_until(lambda: len(screen.children()) == 2, "two engines run")
    return screen, screen.children()


def test_ctrl_c_leaves_and_leaves_nothing_behind(terminal: OpenTerminal) -> None:
    screen, engines = measuring(terminal)
    screen.press("\x03")
    assert screen.wait_for_end() == 0
    for engine in engines:
        wait_for_end(engine)
    given_back(screen)


def test_while_the_engines_are_stopped_keys_answer_and_a_key_leaves(terminal: OpenTerminal) -> None:
    screen, engines = measuring(terminal)
    for engine in engines:
        os.kill(engine, signal.SIGSTOP)
    screen.read(0.3)
    since = screen.press("?")
    screen.wait_for("run a check", since=since)
    screen.press("?")
    screen.press("q")
    assert screen.wait_for_end() == 0
    for engine in engines:
        wait_for_end(engine)
    given_back(screen)


def test_an_engine_that_was_killed_is_told_and_measured_cells_stay(terminal: OpenTerminal) -> None:
    screen, engines = measuring(terminal, "repeat 1 of")
    os.kill(engines[0], signal.SIGKILL)
    # The other one may end and be replaced meanwhile.
    screen.wait_until(lambda: set(screen.children()) - set(engines), "another engine was started")
    since = screen.press("x")
    screen.wait_for("Stopped:", since=since)
    screen.wait_for("the engine was lost", since=since)
    screen.wait_for("SIGKILL", since=since)


def test_a_check_goes_on_in_other_views_and_after_it_a_new_engine_is_live(terminal: OpenTerminal) -> None:
    screen, engines = measuring(terminal)
    since = screen.press("\x1b")
    screen.wait_for("the check has the GPU to itself", since=since)
    assert screen.children() == engines
    screen.press("m")
    since = screen.press("x")
    screen.wait_for("Stopped:", since=since)
    since = screen.press("\x1b")
    screen.wait_for("The engine restarts", since=since)
    screen.wait_for("live", since=since)
    for engine in engines:
        wait_for_end(engine)
    assert ready(screen) not in engines
