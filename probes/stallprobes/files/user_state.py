"""Small files in the user's state folder: what a later start of the program may want to know.

The folder is ``stallscope`` in XDG_STATE_HOME, by default in ``~/.local/state``. Nothing depends on these files: where
one cannot be written or read, the program is as at its first start.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from stallprobes.errors import FileNotRead, FileNotWritten, OversizedData
from stallprobes.files import atomic, input_file

# Largest size (bytes) of a file that is read from the user's state folder. A larger file counts as empty. Reason: such
# a file contains one path, and no path is this long.
_LONGEST = 1 << 16


def file(name: str) -> Path:
    """The file ``name`` in the user's state folder, which may not exist."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.environ.get("HOME", "/"), ".local", "state")
    return Path(home) / "stallscope" / name


def write(name: str, text: str) -> Path | None:
    """Write ``text`` to the file ``name``, which is replaced. Returns the file, None where it cannot be written."""
    path = file(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, (text.encode(errors="backslashreplace"),), force=True)
    except (OSError, FileNotWritten):
        return None
    return path


def read(name: str) -> str:
    """The text of the file ``name``; "" where there is none or it cannot be read."""
    with suppress(FileNotRead, OversizedData, ValueError):
        return input_file.read(file(name), _LONGEST).decode()
    return ""
