"""Floods of input and signals in a real terminal: what the screen still does, and that it ends."""

from __future__ import annotations

import array
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

from factories.processes import wait_for_end
from factories.terminal import OpenTerminal, Terminal
from stallscope.tui.driver import FLOOD_NOTICE

FLOOD = b"1234567890" * 20_000
KEYS = b"12b" * 3_400


def send(terminal: Terminal, data: bytes) -> None:
    """Write as fast as the terminal takes it, and read what the program draws."""
    left = memoryview(data)
    while left:
        _, writable, _ = select.select([], [terminal.fd], [], 0.01)
        if writable:
            left = left[os.write(terminal.fd, left[:4096]) :]
        terminal.read(0.0005)


def test_a_flood_of_keys_is_dropped_with_a_notice_and_the_next_key_works(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200")
    screen.wait_for("live")
    send(screen, FLOOD)
    screen.wait_for(FLOOD_NOTICE[:23])
    # Where this process was stopped amid the flood, the notice comes before its end.
    screen.press_until("?", "pause the view")
    assert screen.quit() == 0


def test_a_flood_of_keys_leaves_the_timeline_usable_and_a_signal_ends_it(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200")
    screen.wait_for("live")
    (engine,) = screen.children()
    screen.press("gr")
    screen.wait_for("host calls")
    send(screen, b"+-,.wpt[]{}Ajk" * 10_000)
    screen.wait_for(FLOOD_NOTICE[:23])
    screen.press_until("?", "earlier, later")
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.wait_for_end() == 128 + signal.SIGTERM
    wait_for_end(engine)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_whatever_is_queued(terminal: OpenTerminal, number: signal.Signals) -> None:
    screen = terminal("--sim", "h200")
    screen.wait_for("live")
    (engine,) = screen.children()
    send(screen, KEYS)
    os.kill(screen.pid, number)
    assert screen.wait_for_end() == (130 if number is signal.SIGINT else 128 + number)
    wait_for_end(engine)


def test_a_terminal_that_does_not_read_gets_no_more_frames_and_a_signal_ends_it(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200")
    screen.wait_for("live")
    (engine,) = screen.children()
    screen.press("12b")
    # The terminal's buffer is full when no more comes.
    filled = (-1, 0)
    while filled[0] != filled[1] or not filled[1]:
        time.sleep(0.5)
        filled = filled[1], waiting(screen.fd)
    os.kill(screen.pid, signal.SIGTERM)
    # Without reading: the program must not wait for the terminal.
    _, status = os.waitpid(screen.pid, 0)
    screen.status = os.waitstatus_to_exitcode(status)
    assert screen.status == 128 + signal.SIGTERM
    wait_for_end(engine)


def waiting(fd: int) -> int:
    """The number of bytes that the program wrote and nobody has read."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


BUSY = """
import os, signal
from stallscope.tui import signal_exit
signal_exit.LIMITS_S = dict.fromkeys(signal_exit.SIGNALS, 0.05)
signal_exit.SignalExit(lambda number: None, lambda number: print("last resort", number, flush=True))
print("ready", flush=True)
while True:
    pass
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_does_not_end_by_itself_is_ended(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        for _ in range(3):
            program.send_signal(number)
        assert program.stdout.read() == f"last resort {int(number)}\n"
        assert program.wait() == (130 if number is signal.SIGINT else 128 + number)
