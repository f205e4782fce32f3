"""A block of memory to be shared, before anybody knows how large it has to be."""

from __future__ import annotations

import os


def empty_block() -> int:
    """The descriptor of a block without a name and without a size. Raises OSError."""
    return os.memfd_create("stallscope", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
