"""The interpreters of this machine, for programs that run beside the stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

# Those whose frames are recorded.
VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
_CHECK = """
import ctypes, sys, sysconfig
print("%d.%d" % sys.version_info[:2], bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
"""


def python_of(version: str) -> str:
    """An interpreter of this version with the global lock; the test is skipped without one."""
    found = _interpreter(version)
    if found is None:
        pytest.skip(f"no Python {version} on this machine")
    return found


def full_version(python: str) -> str:
    """The version of an interpreter, as 3.13.0."""
    return _output(python, "import sys; print(sys.version.split()[0])")


@lru_cache
def _interpreter(version: str) -> str | None:
    found = next((path for path in _candidates(version) if _output(path, _CHECK) == f"{version} False"), None)
    # A script in its place, as of pyenv, would be run with the settings for the program.
    return None if found is None else _output(found, "import sys; print(sys.executable)")


def _candidates(version: str) -> Iterator[str]:
    """This interpreter, those on PATH, and those of pyenv, whose own commands run one version alone."""
    if "{}.{}".format(*sys.version_info) == version:
        yield sys.executable
    for folder in os.get_exec_path():
        path = Path(folder, f"python{version}")
        if path.is_file():
            yield str(path)
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    yield from map(str, sorted(versions.glob(f"{version}.*/bin/python{version}")))


def _output(python: str, code: str) -> str:
    try:
        return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
