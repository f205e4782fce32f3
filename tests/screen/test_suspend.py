"""ctrl+z in a real shell: the terminal is restored, the aggressors are off, and fg continues."""

from __future__ import annotations

import sys
import termios
from pathlib import Path

from factories import processes
from factories.processes import wait_for_end
from factories.screen import live_monitor, monitor, running, until
from factories.terminal import OpenTerminal, Terminal

_LOCAL_FLAGS = 3
_COMMAND = f"{sys.executable} -m stallscope --sim h200\n"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _started(shell: Terminal) -> tuple[int, int]:
    """Start the screen from the shell; returns its process and that of its engine."""
    shell.wait_for("$ ")
    since = shell.press(_COMMAND)
    shell.wait_for("live", since=since)
    (screen,) = processes.children(shell.pid)
    (engine,) = processes.children(screen)
    return screen, engine


def _suspended(shell: Terminal) -> None:
    since = shell.press("\x1a")
    shell.wait_for("Stopped", since=since)
    shell.wait_for("$ ", since=since)
    written = shell.raw[since:]
    assert all(code in written for code in (b"\x1b[?1003l", b"\x1b[?1049l", b"\x1b[?25h"))


def _is_stopped(shell: Terminal) -> bool:
    since = shell.press("jobs\n")
    shell.wait_for("$ ", since=since)
    return "Stopped" in shell.text(since)


def test_ctrl_z_gives_the_terminal_back_and_fg_continues(terminal: OpenTerminal) -> None:
    shell = terminal(shell=True)
    screen, engine = _started(shell)
    raw_mode = termios.tcgetattr(shell.fd)
    shell.press("1")
    shell.wait_for("STALLED")
    _suspended(shell)
    assert _state(screen) == "T"
    assert _state(engine) != "T"
    # The shell works: what is typed is echoed, and a command runs.
    since = shell.press("stty -a | grep -c -w -- '-icanon'; echo $((6*7))\n")
    shell.wait_for("42", since=since)
    assert "0\r\n42" in shell.text(since)
    since = shell.press("bg\n")
    shell.wait_for("$ ", since=since)
    # By the shell: the state of the process may still be that from before.
    shell.wait_until(lambda: _is_stopped(shell), "a screen in the background is stopped")
    since = shell.press("fg\n")
    shell.wait_for("live", since=since)
    shell.wait_for("STALLED", since=since)
    assert b"\x1b[?1049h" in shell.raw[since:]
    assert termios.tcgetattr(shell.fd)[_LOCAL_FLAGS] == raw_mode[_LOCAL_FLAGS]
    since = shell.press("q")
    shell.wait_for("$ ", since=since)
    since = shell.press("echo code=$?\n")
    shell.wait_for("code=0", since=since)
    wait_for_end(engine)


def test_sigterm_ends_a_suspended_screen_and_its_engine(terminal: OpenTerminal) -> None:
    shell = terminal(shell=True)
    screen, engine = _started(shell)
    _suspended(shell)
    shell.press("kill %1\n")
    shell.wait_until(lambda: processes.has_ended(screen), "the screen has ended")
    wait_for_end(engine)


def test_without_a_shell_ctrl_z_says_why_it_does_nothing(terminal: OpenTerminal) -> None:
    screen = terminal("--sim", "h200")
    screen.wait_for("live")
    screen.press("\x1a")
    screen.wait_for("cannot be suspended")
    assert screen.alive


async def test_aggressors_are_off_while_the_program_is_suspended_and_on_again_afterwards() -> None:
    async with live_monitor() as pilot:
        screen = monitor(pilot)
        assert screen.live is not None
        await pilot.press("1", "3")
        await until(pilot, lambda: {"spin", "host-alloc-free"} <= running(pilot))
        await pilot.press("B")
        await pilot.press("y")
        await until(pilot, lambda: screen.state.observation is not None and screen.state.observation.experiment)
        pilot.app.app_suspend_signal.publish(pilot.app)
        assert screen.state.observation is not None
        assert not screen.state.observation.experiment
        assert not running(pilot) & {"spin", "host-alloc-free"}
        assert screen.live.is_on("spin")
        screen.tick()
        assert not running(pilot) & {"spin", "host-alloc-free"}
        pilot.app.app_resume_signal.publish(pilot.app)
        await until(pilot, lambda: {"spin", "host-alloc-free"} <= running(pilot))
        assert "d2h-pageable-fresh" not in running(pilot)
