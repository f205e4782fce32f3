"""Interrupts, closed pipes and full disks: output and exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from factories.command_line import Process, command, environment, run_in_terminal, run_into, start
from factories.waiting import LIMIT_S

RUN = ("run", "secondary-context-d2d")
# Commands that print text and measure nothing.
TEXTS = (("--help",), ("--version",), ("run", "--help"), ("list",), ("settings",))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_shows_its_results_and_exits_130(
    measuring: Callable[..., Process], number: signal.Signals
) -> None:
    process = measuring(*RUN, mode="until-stopped")
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "STALLED" in out
    assert err == "stallscope: interrupted; the results so far are shown\n"


def test_a_closed_terminal_does_not_end_a_run_under_nohup() -> None:
    # As nohup does; a fork of the server would not inherit it.
    ignoring = "import signal, runpy, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); sys.argv[:] = sys.argv[1:]"
    program, *rest = command("until-stopped", *RUN)
    process = subprocess.Popen(
        [program, "-c", f"{ignoring}; runpy.run_path(sys.argv[0], run_name='__main__')", *rest],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        status = Path(f"/proc/{process.pid}/status").read_text()
        ignored = int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)
        assert ignored & 1 << signal.SIGHUP - 1
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130


def test_interrupted_json_is_still_json(measuring: Callable[..., Process]) -> None:
    process = measuring(*RUN, "--json", mode="until-stopped")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert '"interrupted": true' in out


@pytest.mark.parametrize("signals", [1, 2])
def test_a_run_that_ignores_the_stop_request_is_interrupted(measuring: Callable[..., Process], signals: int) -> None:
    process = measuring(*RUN, mode="deaf")
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (130, "")
    assert err == "stallscope: interrupted\n"


def test_a_closed_pipe_ends_the_process_by_sigpipe_without_a_message() -> None:
    with start(*RUN, mode="large") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=LIMIT_S) == -signal.SIGPIPE


@pytest.mark.parametrize(("arguments", "mode"), [(RUN, "fine"), (("--help",), None)])
def test_a_pipe_closed_before_the_start_ends_the_process_by_sigpipe(
    arguments: tuple[str, ...], mode: str | None
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = run_into(writing, *arguments, mode=mode)
    os.close(writing)
    assert ended == (-signal.SIGPIPE, "")


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        (RUN, "fine"),
        ((*RUN, "--json"), "fine"),
        *((arguments, None) for arguments in TEXTS),
    ],
)
def test_a_full_disk_is_reported(arguments: tuple[str, ...], mode: str | None) -> None:
    with open("/dev/full", "w") as full:
        code, err = run_into(full, *arguments, mode=mode)
    assert (code, err) == (2, "stallscope: the result could not be written: No space left on device\n")


@pytest.mark.parametrize("arguments", TEXTS)
def test_text_for_a_closed_stdout_is_one_sentence(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command(None, *arguments)],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "stallscope: the result could not be written: stdout is closed\n",
    )


def test_without_stderr_the_result_is_printed() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *command("all-kinds", *RUN)],
        env=environment(),
        stdout=subprocess.PIPE,
        timeout=LIMIT_S,
    )
    assert done.returncode == 4
    assert b"STALLED" in done.stdout


def test_on_a_terminal_a_shared_gpu_needs_consent() -> None:
    code, out, seen = run_in_terminal(*RUN, mode="shared", answer="y\n")
    assert "Disturb them? [y/N]" in seen
    assert (code, "STALLED" in out) == (0, True)
    code, out, _ = run_in_terminal(*RUN, mode="shared", answer="\n")
    assert (code, out) == (2, "")


def test_the_progress_bar_is_drawn_on_a_terminal_and_removed() -> None:
    _, out, seen = run_in_terminal(*RUN, mode="all-kinds", env={"TERM": "xterm"})
    assert "[######------------------] 25%, 2 s left  kernel-other-context" in seen
    assert seen.split("\r\x1b[K")[-1].startswith("stallscope: ")
    assert "\x1b" not in out
    _, _, seen = run_in_terminal(*RUN, mode="all-kinds", env={"TERM": "dumb"})
    assert "\x1b" not in seen


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
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
