"""Compression with gzip of files whose name ends in ``.gz``."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

COMPRESSED = ".gz"
# 16 plus the window size makes zlib write gzip's header and checksum.
_AS_GZIP = 16 + zlib.MAX_WBITS


def for_name(path: Path | str, chunks: Iterable[bytes]) -> Iterable[bytes]:
    """``chunks`` as the file ``path`` holds them: compressed if its name ends in ``.gz``."""
    return _compressed(chunks) if Path(path).suffix.lower() == COMPRESSED else chunks


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """``chunks`` compressed, without time and name in the header, so that equal input gives equal bytes."""
    packer = zlib.compressobj(wbits=_AS_GZIP)
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()
