"""The line of progress on stderr: what it says, when it appears, and where there is none."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

from stallscope.cli import screen
from stallscope.cli.process import diagnostics
from stallscope.cli.process import progress as progresses
from stallscope.cli.process.progress import Progress
from stallscope.tui.settings import Settings

CLEAR = "\r\x1b[K"


class Terminal(io.StringIO):
    """A terminal of 100 columns; ``is_terminal`` False makes it a pipe."""

    is_terminal = True

    def isatty(self) -> bool:
        return self.is_terminal

    def fileno(self) -> int:
        return 99

    @property
    def shown(self) -> list[str]:
        """What was drawn in the place of the line before, "" for a line that was removed."""
        return self.getvalue().split(CLEAR)[1:]


class Clock:
    """A monotonic clock that a test moves."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock in the place of the real one, without the thread that draws the line again."""
    made = Clock()
    monkeypatch.setattr(progresses, "time", made)
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    return made


@pytest.fixture(name="err")
def _err(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal()
    # pytest puts its own stderr in the place of another one when the test begins.
    monkeypatch.setattr(diagnostics, "sys", SimpleNamespace(stderr=made))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "get_terminal_size", lambda _=0: os.terminal_size((100, 24)))
    yield made
    diagnostics.status_line.clear()


def test_a_command_that_is_over_at_once_draws_nothing(clock: Clock, err: Terminal) -> None:
    with Progress() as progress:
        progress.begin("asking the driver")
        clock.now_s += 0.9
        progress.show(0.5, "reading")
    assert err.getvalue() == ""


def test_a_step_of_unknown_length_says_how_long_it_has_taken_and_takes_at_most(clock: Clock, err: Terminal) -> None:
    with Progress() as progress:
        progress.begin("asking the driver", at_most_s=40)
        clock.now_s += 3
        progress._draw(clock.now_s)
        assert err.shown == ["asking the driver: 3 s, at most 40 s"]
        progress.begin("starting the engine")
        clock.now_s += 2
        progress._draw(clock.now_s)
    assert err.shown[1:] == ["starting the engine: 2 s", ""]


def test_the_remaining_time_is_estimated_by_the_rate_and_passes_between_two_steps(clock: Clock, err: Terminal) -> None:
    with Progress() as progress:
        for _ in range(3):
            progress.show((clock.now_s - 1000) / 40, "reading")
            clock.now_s += 5
        progress._draw(clock.now_s)
    half = "[######------------------] 25%"
    assert err.shown == ["[###---------------------] 12%, 35 s left  reading", f"{half}, 30 s left  reading",
                         f"{half}, 25 s left  reading", ""]  # fmt: skip


def test_a_known_remaining_time_is_shown_at_once_and_counts_down(clock: Clock, err: Terminal) -> None:
    with Progress() as progress:
        progress.show(0.25, "repeat 1", left_s=300, count="11/44")
        clock.now_s += 250
        progress._draw(clock.now_s)
        clock.now_s += 100
        progress._draw(clock.now_s)
    bar = "[######------------------] 11/44"
    assert err.shown == [
        f"{bar}, 5 min left  repeat 1",
        f"{bar}, 50 s left  repeat 1",
        f"{bar}, 0 s left  repeat 1",
        "",
    ]


def test_each_of_several_steps_has_a_time_of_its_own(clock: Clock, err: Terminal) -> None:
    with Progress() as progress:
        progress.part(1, 2)
        progress.show(0.0, "reading")
        clock.now_s += 10
        progress.show(0.5, "reading")
        progress.part(2, 2)
        progress.show(0.0, "saving")
        clock.now_s += 4
        progress.show(0.5, "saving")
        progress.begin("comparing")
        progress._draw(clock.now_s)
    assert "50%, 10 s left of step 1 of 2  reading" in err.shown[0]
    assert "50%, 4 s left of step 2 of 2  saving" in err.shown[1]
    assert err.shown[2] == "comparing (step 2 of 2): 0 s"


def test_steps_are_drawn_ten_times_a_second_at_most(clock: Clock, err: Terminal) -> None:
    with Progress() as progress:
        for number in range(1000):
            clock.now_s += 0.004
            progress.show(number / 1000, "reading")
    assert 25 <= len(err.shown) <= 32


def test_a_message_is_printed_above_the_line(clock: Clock, err: Terminal) -> None:
    with Progress() as progress:
        progress.show(0.5, "reading", left_s=9)
        diagnostics.print_message("a file is damaged")
        line = "[############------------] 50%, 9 s left  reading"
        assert err.getvalue() == f"{CLEAR}{line}{CLEAR}stallscope: a file is damaged\n{line}"
        progress.end()
        diagnostics.print_message("interrupted")
    assert err.getvalue().endswith(f"{line}{CLEAR}stallscope: interrupted\n")


@pytest.mark.parametrize("where", ["pipe", "CI", "background"])
def test_there_is_none_in_a_pipe_a_log_or_a_job_in_the_background(
    clock: Clock, err: Terminal, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "pipe":
        err.is_terminal = False
    elif where == "CI":
        monkeypatch.setenv("CI", "true")
    else:
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: -1)
    with Progress() as progress:
        progress.begin("asking the driver")
        clock.now_s += 60
        progress.show(0.5, "reading", left_s=9)
        progress._draw(clock.now_s)
    assert err.getvalue() == ""


def test_a_terminal_that_cannot_erase_a_line_gets_one_each_ten_seconds(
    clock: Clock, err: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with Progress() as progress:
        for number in range(100):
            progress.show(number / 100, "reading")
            clock.now_s += 0.25
    lines = err.getvalue().splitlines()
    assert lines == ["stallscope: 8%, 23 s left  reading", "stallscope: 48%, 13 s left  reading",
                     "stallscope: 88%, 3 s left  reading"]  # fmt: skip


def test_it_has_no_colour(clock: Clock, err: Terminal) -> None:
    with Progress() as progress:
        progress.show(0.5, "reading", left_s=9)
    assert err.getvalue().replace(CLEAR, "").isprintable()


def test_a_screen_whose_modules_take_long_to_load_says_so_until_it_opens(
    err: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the first start after an installation."""

    class App:
        """What the screen program is to its command."""

        failure = return_code = context = None

        def __init__(self, *_: object) -> None:
            assert err.shown[-1] == ""

        def run(self) -> None:
            opened.append(self)

        def close(self) -> None:
            pass

    class SlowModule(ModuleType):
        """Takes until the line has been drawn."""

        @property
        def StallscopeApp(self) -> type[App]:
            end = time.monotonic() + 60
            while not err.shown and time.monotonic() < end:
                time.sleep(0.02)
            return App

    opened: list[App] = []
    monkeypatch.setitem(sys.modules, "stallscope.tui.app", SlowModule("stallscope.tui.app"))
    assert screen.run_app(lambda: pytest.fail("no source is needed"), Settings()) == (0, None)
    assert len(opened) == 1
    assert err.shown[0].startswith("loading the screen: ")
