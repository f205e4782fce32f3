"""Interrupts, closed pipes and full disks: output and exit codes."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time

import pytest

from factories.command_line import command, environment
from factories.waiting import LIMIT_S

RUN = ("run", "secondary-context-d2d")


def started(mode: str, *arguments: str) -> subprocess.Popen[str]:
    """The process of the command, while it measures."""
    process = subprocess.Popen(
        command(mode, *RUN, *arguments),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_shows_its_results_and_exits_130(number: signal.Signals) -> None:
    process = started("until-stopped")
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "STALLED" in out
    assert err == "stallscope: interrupted; the results so far are shown\n"


def test_a_closed_terminal_does_not_end_a_run_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = started("until-stopped")
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130


def test_interrupted_json_is_still_json() -> None:
    process = started("until-stopped", "--json")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert '"interrupted": true' in out


@pytest.mark.parametrize("signals", [1, 2])
def test_a_run_that_ignores_the_stop_request_is_interrupted(signals: int) -> None:
    process = started("deaf")
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (130, "")
    assert err == "stallscope: interrupted\n"


def test_a_closed_pipe_ends_the_process_by_sigpipe_without_a_message() -> None:
    process = subprocess.Popen(
        command("large", *RUN), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=LIMIT_S) == -signal.SIGPIPE


def test_a_pipe_closed_before_the_start_ends_the_process_by_sigpipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command("fine", *RUN), env=environment(), stdout=writing, stderr=subprocess.PIPE, timeout=LIMIT_S
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_full_disk_is_reported(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("fine", *RUN, *arguments), env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=LIMIT_S
        )
    assert done.returncode == 2
    assert done.stderr == b"stallscope: the result could not be written: No space left on device\n"


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("run", "--help"), ("list",), ("settings",)])
@pytest.mark.parametrize(
    ("stdout", "reason"),
    [(">/dev/full", "No space left on device"), (">&-", "stdout is closed")],
    ids=["full", "closed"],
)
def test_text_that_cannot_be_written_is_one_sentence(arguments: tuple[str, ...], stdout: str, reason: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {stdout}', "sh", *command(None, *arguments)],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (2, f"stallscope: the result could not be written: {reason}\n")


def test_help_into_a_closed_pipe_ends_by_sigpipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(None, "--help"), env=environment(), stdout=writing, stderr=subprocess.PIPE, timeout=LIMIT_S
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_without_stderr_the_result_is_printed() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *command("all-kinds", *RUN)],
        env=environment(),
        stdout=subprocess.PIPE,
        timeout=LIMIT_S,
    )
    assert done.returncode == 4
    assert b"STALLED" in done.stdout


def in_a_terminal(mode: str, answer: str, **changed: str) -> tuple[int, str, str]:
    """The command in a terminal of its own, with ``answer`` typed into it: exit code, stdout (a pipe), terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command(mode, *RUN), env=environment(**changed), stdin=follower, stdout=subprocess.PIPE, stderr=follower
    )
    os.close(follower)
    os.write(leader, answer.encode())
    seen = b""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.05)[0]:
            try:
                seen += os.read(leader, 4096)
            except OSError:
                break
    assert process.stdout is not None
    out = process.stdout.read().decode()
    os.close(leader)
    return process.wait(timeout=LIMIT_S), out, seen.decode()


def test_on_a_terminal_a_shared_gpu_needs_consent() -> None:
    code, out, seen = in_a_terminal("shared", "y\n")
    assert "Disturb them? [y/N]" in seen
    assert (code, "STALLED" in out) == (0, True)
    code, out, _ = in_a_terminal("shared", "\n")
    assert (code, out) == (2, "")


def test_the_progress_bar_is_drawn_on_a_terminal_and_removed() -> None:
    _, out, seen = in_a_terminal("all-kinds", "", TERM="xterm")
    assert "[######------------------] 0/2 s  kernel-other-context" in seen
    assert seen.split("\r\x1b[K")[-1].startswith("stallscope: ")
    assert "\x1b" not in out
    _, _, seen = in_a_terminal("all-kinds", "", TERM="dumb")
    assert "\x1b" not in seen


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 2>&-", "0<&- 1>&- 2>&-"])
def test_a_run_works_with_closed_standard_streams(closed: str) -> None:
    """The next opened file (the board, the engine's socket) gets a closed descriptor 0, 1 or 2."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command(None, "run", "launch", "--sim", "--seconds", "0.5")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if "1>" in closed:
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr in ("", "stallscope: the result could not be written: stdout is closed\n")
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert "SIMULATED" in done.stdout
