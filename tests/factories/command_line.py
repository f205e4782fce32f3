"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import stallprobes
import stallscope

FAKE = Path(__file__).with_name("fake_machine.py")
ROOTS = [str(Path(package.__path__[0]).parent) for package in (stallscope, stallprobes)]

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


def run(*arguments: str, mode: str | None = None, env: dict[str, str] | None = None) -> Done:
    """Run ``stallscope`` to its end; ``mode`` chooses a made-up machine, ``env`` changes the environment."""
    return subprocess.run(
        command(mode, *arguments),
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
    )
