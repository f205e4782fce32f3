"""Little memory and few file descriptors: one sentence and exit code 4, whichever library would have failed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from factories.command_line import command, environment
from factories.recordings import STALL
from factories.terminal import OpenTerminal
from factories.waiting import LIMIT_S

COMMANDS = {
    "run": ("run", "launch", "--sim", "--seconds", "0.5"),
    "check": ("check", "--sim", "--quick", "--victims", "launch", "--aggressors", "spin"),
    "replay": ("replay", str(STALL), "--trace", "never-written.json"),
}
# From less than numpy's own libraries to less than an engine takes.
LIMITS_MIB = (60, 80, 100, 140, 180)
# Less than the threads of the screen take, and more than numpy does.
SCREEN_LIMITS = ("ulimit -v 61440", "ulimit -v 204800", "ulimit -v 409600", "ulimit -n 12")


def limited(limit: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a shell with ``limit``, ended."""
    return subprocess.run(
        ["sh", "-c", f'{limit}; exec "$@"', "sh", *command(None, *arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("mib", LIMITS_MIB)
def test_a_command_with_little_memory_is_one_sentence(name: str, mib: int) -> None:
    done = limited(f"ulimit -v {mib * 1024}", *COMMANDS[name])
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith(f"stallscope: too little memory (limit of the address space, ulimit -v: {mib} MiB)")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", ["list", "explain launch", "settings", "fleet slurm"])
def test_a_command_that_measures_nothing_needs_little_memory(words: str) -> None:
    assert limited(f"ulimit -v {LIMITS_MIB[0] * 1024}", *words.split()).returncode == 0


def test_a_recording_with_little_memory_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    words = ("record", str(file), "secondary-context-d2d", "--variant", "kernel-other-context", "--sim")
    done = limited("ulimit -v 102400", *words)
    assert (done.returncode, done.stderr.count("\n"), file.exists()) == (4, 1, False)


@pytest.mark.parametrize("limit", SCREEN_LIMITS)
def test_the_screen_does_not_open_without_what_it_needs(terminal: OpenTerminal, limit: str) -> None:
    shell = terminal(shell=True)
    shell.wait_for("$ ")
    words = " ".join(command(None, "--sim", "h200"))
    since = shell.press(f"({limit}; {words}); echo code=$?\n")
    shell.wait_for("code=4\r\n", since=since)
    kind = "too few file descriptors" if "-n" in limit else "too little memory"
    assert f"stallscope: {kind} (" in shell.text(since)
    assert "Traceback" not in shell.text(since)
    assert b"\x1b[?1049h" not in shell.raw[since:]
