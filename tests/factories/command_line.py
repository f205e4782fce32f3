"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import stallprobes
import stallscope
from factories.command_server import CommandServer

FAKE = Path(__file__).with_name("fake_machine.py")
ROOTS = [str(Path(package.__path__[0]).parent) for package in (stallscope, stallprobes)]

TIMEOUT_S = 170.0

_server = CommandServer()

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


def environment(**changed: str) -> dict[str, str]:
    """This process's environment with the packages under test, no colour and a UTF-8 locale."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "COLUMNS", "CUDA_"))}
    path = os.pathsep.join([*ROOTS, str(FAKE.parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**kept, "PYTHONPATH": path, "LANG": "C.UTF-8", "NO_COLOR": "1", **changed}


def command(mode: str | None, *arguments: str) -> list[str]:
    """The command line of ``stallscope``; on the made-up machine ``mode`` unless that is None."""
    return [sys.executable, *(["-m", "stallscope"] if mode is None else [str(FAKE), mode]), *arguments]


def run(
    *arguments: str, mode: str | None = None, env: dict[str, str] | None = None, own_interpreter: bool = False
) -> Done:
    """Run ``stallscope`` to its end; ``mode`` chooses a made-up machine, ``env`` changes the environment.

    It is a process of its own, but its interpreter is started and its modules are imported only once for all commands,
    unless a variable that the interpreter reads at its start differs, or with ``own_interpreter``.
    """
    chosen = environment(**(env or {}))
    if not own_interpreter and _at_start(chosen) == _at_start(environment()):
        return Done(list(arguments), *_server.run(mode, arguments, chosen, TIMEOUT_S))
    return subprocess.run(
        command(mode, *arguments),
        env=chosen,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def _at_start(variables: dict[str, str]) -> dict[str, str]:
    """The variables that an interpreter reads once, at its start."""
    return {name: value for name, value in variables.items() if name.startswith(("LANG", "LC_", "LD_", "PYTHON"))}
