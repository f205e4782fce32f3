"""Modules that a new interpreter loads for a piece of Python."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping

from factories.command_line import environment


def loaded_modules(source: str, env: Mapping[str, str] | None = None) -> tuple[set[str], str]:
    """The modules that ``source`` loads, which ends without a failure, and what it writes to stdout.

    Not those that a .pth file loads at the start of every interpreter: that of cuda-bindings 12 loads ``cuda``.
    """
    script = (
        f"import sys\nbefore = set(sys.modules)\ntry:\n{textwrap.indent(source, '    ')}\n"
        "except SystemExit as ended:\n    assert not ended.code\nprint(*set(sys.modules) - before, file=sys.stderr)"
    )
    chosen = environment() if env is None else env
    done = subprocess.run([sys.executable, "-c", script], env=chosen, capture_output=True, text=True, check=True)
    return set(done.stderr.split()), done.stdout


def loaded_packages(source: str, env: Mapping[str, str] | None = None) -> set[str]:
    """The top-level names of the modules that ``source`` loads."""
    return {name.partition(".")[0] for name in loaded_modules(source, env)[0]}


def running(*arguments: str) -> str:
    """The source that runs ``stallscope`` with ``arguments``."""
    return f"from stallscope.cli.main import main\nmain({list(arguments)!r})"
