"""Files of the system on other processes (/proc, /sys): what cannot be read is empty."""

from __future__ import annotations

from pathlib import Path


def content(path: Path, most: int = -1) -> bytes:
    """The content of a file, at most its first ``most`` bytes unless that is -1."""
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError:
        return b""


def stat_fields(folder: Path) -> list[bytes]:
    """The fields of the stat of a process or thread with this folder in /proc, from its state on."""
    # The name of the program, in parentheses, may contain anything.
    return content(folder / "stat").rpartition(b")")[2].split()
