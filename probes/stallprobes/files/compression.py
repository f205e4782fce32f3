"""Compression with gzip by a file's name, and bounded decompression of plain, zlib and gzip files in pieces.

Memory depends on the size of a piece, not on the compression ratio: one megabyte of gzip can hold a gigabyte.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from copy import copy
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from stallprobes.errors import DamagedData, OversizedData

# Largest size (bytes) of a piece that DecompressedStream.read returns.
PIECE = 1 << 16
# Largest number of compressed bytes that one zlib call gets. Reason for a small number: if the call fails, the text
# that the call has decompressed is lost.
_INPUT_BYTES = 1 << 12


class Compression(Enum):
    """Compression of a file. The value is zlib's ``wbits``, which selects the header; None without compression."""

    NONE = None
    ZLIB = zlib.MAX_WBITS
    GZIP = 16 + zlib.MAX_WBITS


class DecompressedStream:
    """Decompressed content of ``file`` from its position on, at most ``largest`` bytes.

    ``largest`` may be changed while reading. ``complete`` is True once the end of the content was read;
    ``ended_early`` if the file ended before it.
    """

    def __init__(self, file: BinaryIO, compression: Compression, largest: int) -> None:
        self._file = file
        self._compression = compression
        self.largest = largest
        self._decompressor = None if compression is Compression.NONE else zlib.decompressobj(compression.value)
        self._pending = b""
        self.size = 0
        self.complete = False
        self.ended_early = False

    def fork(self) -> DecompressedStream:
        """A stream at the same position, which needs the file where this one does."""
        other = copy(self)
        if self._decompressor is not None:
            other._decompressor = self._decompressor.copy()
        return other

    def read(self) -> bytes:
        """The next piece, of at most PIECE bytes; b"" at the end.

        Raises OversizedData beyond the limit, DamagedData for content that cannot be decompressed, and OSError.
        """
        piece = self._plain() if self._decompressor is None else self._decompressed()
        self.size += len(piece)
        if self.size > self.largest:
            raise OversizedData(f"it has more than {self.largest >> 20} MiB")
        return piece

    def lines(self, longest: int) -> Iterator[bytes]:
        """The lines without their newlines, except an incomplete last one; ``complete`` is then False.

        Raises what ``read`` raises, and OversizedData for a line longer than ``longest``, which is at least PIECE.
        """
        rest = b""
        while piece := self.read():
            first, *more = piece.split(b"\n")
            rest += first
            if len(rest) > longest:
                raise OversizedData(f"it has a line of more than {longest >> 10} KiB")
            for line in more:
                yield rest
                rest = line
        self.complete = self.complete and not rest

    def _plain(self) -> bytes:
        piece = self._file.read(PIECE)
        self.complete = not piece
        return piece

    def _decompressed(self) -> bytes:
        assert self._decompressor is not None
        while not self.complete:
            data = self._pending or self._file.read(_INPUT_BYTES)
            try:
                piece = self._decompressor.decompress(data, PIECE) if data else self._decompressor.flush()
            except zlib.error as error:
                raise DamagedData("its compressed data cannot be decompressed") from error
            self._pending = self._decompressor.unconsumed_tail
            if self._decompressor.eof:
                self._next_member(self._decompressor.unused_data)
            if piece:
                return piece
            if not data:
                self.ended_early = not self.complete
                break
        return b""

    def _next_member(self, rest: bytes) -> None:
        """Continue with the next member of a gzip file, if there is one; the zeros of a tape are no member."""
        if self._compression is Compression.GZIP:
            while not (rest := rest.lstrip(b"\0")):
                if not (rest := self._file.read(_INPUT_BYTES)):
                    break
            else:
                self._decompressor, self._pending = zlib.decompressobj(Compression.GZIP.value), rest
                return
        self._pending, self.complete = b"", True


# Suffix of the name of a file that is written compressed.
_GZIP_SUFFIX = ".gz"
# Value of zlib's wbits argument that selects the gzip format: 16 plus the base-2 logarithm of the window's size.
_AS_GZIP = 16 + zlib.MAX_WBITS


def for_name(path: Path | str, chunks: Iterable[bytes]) -> Iterable[bytes]:
    """``chunks`` as the file ``path`` holds them: compressed if its name ends in ``.gz``."""
    return _compressed(chunks) if Path(path).suffix.lower() == _GZIP_SUFFIX else chunks


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """``chunks`` compressed, without time and name in the header, so that equal input gives equal bytes."""
    packer = zlib.compressobj(wbits=_AS_GZIP)
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()
