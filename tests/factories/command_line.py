"""The command line in a process of its own."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import stallprobes
import stallscope
from factories.forked_processes import ForkedProcess

FAKE = Path(__file__).with_name("fake_machine.py")
ROOTS = [str(Path(package.__path__[0]).parent) for package in (stallscope, stallprobes)]

TIMEOUT_S = 170.0

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Process = subprocess.Popen[str]
Stream = int | IO[Any]


def environment(**changed: str) -> dict[str, str]:
    """This process's environment with the packages under test, no colour and a UTF-8 locale."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "COLUMNS", "CUDA_"))}
    path = os.pathsep.join([*ROOTS, str(FAKE.parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**kept, "PYTHONPATH": path, "LANG": "C.UTF-8", "NO_COLOR": "1", **changed}


def command(mode: str | None, *arguments: str) -> list[str]:
    """The command line of ``stallscope``; on the made-up machine ``mode`` unless that is None."""
    return [sys.executable, *(["-m", "stallscope"] if mode is None else [str(FAKE), mode]), *arguments]


def run(
    *arguments: str,
    mode: str | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    own_interpreter: bool = False,
) -> Done:
    """Run ``stallscope`` to its end; ``mode`` chooses a made-up machine, ``env`` changes the environment.

    It is a process of its own, but its interpreter is started and its modules are imported only once for all commands,
    unless a variable that the interpreter reads at its start differs, or with ``own_interpreter``.
    """
    chosen = environment(**(env or {}))
    forked = not own_interpreter and variables_at_start(chosen) == variables_at_start(environment())
    start_process: type[Process] = ForkedProcess if forked else subprocess.Popen
    with start_process(
        command(mode, *arguments),
        env=chosen,
        cwd=None if cwd is None else str(cwd),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
    return Done(list(arguments), process.returncode, out, err)


def start(
    *arguments: str,
    mode: str | None = None,
    env: dict[str, str] | None = None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
) -> Process:
    """Start ``stallscope`` as ``run`` does; who calls it ends it."""
    return ForkedProcess(
        command(mode, *arguments),
        env=environment(**(env or {})),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        encoding="utf-8",
    )


def run_into(stdout: Stream, *arguments: str, mode: str | None = None) -> tuple[int, str]:
    """Run ``stallscope`` to its end with ``stdout``; returns exit code and stderr."""
    with start(*arguments, mode=mode, stdout=stdout) as process:
        _, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, err


def run_in_terminal(
    *arguments: str, mode: str, answer: str = "", env: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Run ``stallscope`` with stdin and stderr in a terminal, with ``answer`` typed: exit code, stdout, terminal."""
    leader, follower = pty.openpty()
    with start(*arguments, mode=mode, env=env, stdin=follower, stderr=follower) as process:
        os.close(follower)
        os.write(leader, answer.encode())
        seen = b""
        # EIO once the command has ended.
        with contextlib.suppress(OSError):
            while data := os.read(leader, 4096):
                seen += data
        os.close(leader)
        out, _ = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, seen.decode()


def variables_at_start(variables: dict[str, str]) -> dict[str, str]:
    """The variables that an interpreter reads once, at its start."""
    return {name: value for name, value in variables.items() if name.startswith(("LANG", "LC_", "LD_", "PYTHON"))}
