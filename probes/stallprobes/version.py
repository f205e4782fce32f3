"""Version of the package, and the commit of its sources where that is known."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

# File with the commit, which a build of a wheel from a clone writes beside this module.
COMMIT_FILE = "commit.txt"
# Number of hexadecimal digits of a commit that are shown.
_DIGITS = 12
# Longest time (s) in which git has to answer.
_TIMEOUT_S = 5.0


def number() -> str:
    """The version that is installed."""
    return metadata.version("stallscope")


def commit() -> str:
    """The commit of the sources, that of a clone with a plus sign if it has changes; "" where it is not known."""
    package = Path(__file__).parent
    try:
        return (package / COMMIT_FILE).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return commit_of(package.parents[1])


def commit_of(sources: Path) -> str:
    """The commit of a clone, with a plus sign if it has changes; "" for what is none, or without git."""
    if not (sources / ".git").exists():
        return ""
    words = ("git", "-C", str(sources), "describe", "--always", f"--abbrev={_DIGITS}", "--exclude=*", "--dirty=+")
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
