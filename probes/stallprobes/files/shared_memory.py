"""Anonymous memory that two processes share. Loads no NumPy, so that a spare engine starts without it."""

from __future__ import annotations

import os


def create_shared_memory() -> int:
    """File descriptor of a new anonymous memory block of size 0; ``Board.create`` sets its size. Raises OSError."""
    return os.memfd_create("stallscope", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
