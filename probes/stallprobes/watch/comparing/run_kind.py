"""Kind of a file: whether it begins as one of watched runs does. It loads nothing of what reads the runs."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from stallprobes.errors import DamagedData, FileNotRead
from stallprobes.files import input_file
from stallprobes.files.compression import Compression, DecompressedStream

# Largest uncompressed size (bytes) of a file of runs. A run has 30 to 400 kB.
LARGEST = 128 << 20
# Name of the schema of a run, without its version.
NAME = "stallscope.watch"
# Number of bytes at the start of a file within which the name of its schema lies.
HEAD = 200
# First bytes of a file that is compressed with gzip.
_GZIP = b"\x1f\x8b"


def content(file: BinaryIO) -> DecompressedStream:
    """The content of ``file``, compressed or not."""
    compressed = file.peek(len(_GZIP)).startswith(_GZIP)  # type: ignore[attr-defined]
    return DecompressedStream(file, Compression.GZIP if compressed else Compression.NONE, LARGEST)


def names_runs(text: bytes) -> bool:
    """True if the beginning of a text has the name of a run's schema."""
    return f'"{NAME}/'.encode() in text[:HEAD]


def holds_runs(path: Path) -> bool:
    """True if the file ``path`` begins as one of runs does; False if it is another one, or can be read only once."""
    try:
        # What is read of a pipe is gone.
        if not path.is_file():
            return False
        with input_file.opened(path) as file:
            return names_runs(content(file).read())
    except (OSError, ValueError, FileNotRead, DamagedData):
        return False
