"""The bounded decompression: the content whole, whatever the compression, and never more memory than a piece."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.errors import DamagedData, OversizedData
from stallprobes.files.compression import PIECE, Compression, DecompressedStream

PACK: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.ZLIB: zlib.compress,
    Compression.GZIP: gzip.compress,
}
MIB = 1 << 20


def stream(data: bytes, compression: Compression, largest: int = 1 << 30) -> DecompressedStream:
    return DecompressedStream(io.BytesIO(data), compression, largest)


def read(found: DecompressedStream) -> bytes:
    return b"".join(iter(found.read, b""))


def largest_piece(found: DecompressedStream) -> int:
    return max(map(len, iter(found.read, b"")))


@given(st.sampled_from(Compression), st.binary(max_size=300), st.integers(0, 1500))
def test_the_content_is_read_as_it_was_compressed(compression: Compression, text: bytes, times: int) -> None:
    found = stream(PACK[compression](text * times), compression)
    assert read(found) == text * times
    assert found.complete
    assert found.size == len(text) * times


def test_a_fork_continues_independently() -> None:
    text = bytes(range(256)) * 4000
    data = zlib.compress(text, 0)
    file = io.BytesIO(data)
    found = DecompressedStream(file, Compression.ZLIB, 1 << 30)
    begun = found.read()
    at = file.tell()
    forked = found.fork()
    rest = read(forked)
    assert begun + rest == text
    assert (forked.complete, forked.size, found.complete) == (True, len(text), False)
    file.seek(at)
    assert read(found) == rest


def test_a_gzip_file_may_have_several_members_and_the_zeros_of_a_tape() -> None:
    found = stream(gzip.compress(b"a" * 5000) + b"\0" * 9000 + gzip.compress(b"b") + b"\0" * 9000, Compression.GZIP)
    assert read(found) == b"a" * 5000 + b"b"
    assert found.complete


@pytest.mark.parametrize("compression", [Compression.ZLIB, Compression.GZIP])
def test_a_file_that_ends_early_gives_what_it_has_and_is_not_complete(compression: Compression) -> None:
    text = bytes(range(256)) * 400
    data = PACK[compression](text)
    for cut in range(0, len(data), 37):
        found = stream(data[:cut], compression)
        assert text.startswith(read(found))
        assert not found.complete


@pytest.mark.parametrize("compression", [Compression.ZLIB, Compression.GZIP])
def test_damaged_data_and_a_wrong_checksum_are_refused(compression: Compression) -> None:
    data = PACK[compression](bytes(range(256)) * 400)
    for damaged in (b"no " + data, data[:-1] + bytes((data[-1] ^ 1,))):
        with pytest.raises(DamagedData, match="cannot be decompressed"):
            read(stream(damaged, compression))


@pytest.mark.parametrize("compression", Compression)
def test_a_limit_ends_the_reading_at_once_and_memory_stays_small(compression: Compression) -> None:
    data = PACK[compression](b"\0" * (32 * MIB))
    tracemalloc.start()
    try:
        found = stream(data, compression, 8 * MIB)
        with pytest.raises(OversizedData, match="more than 8 MiB"):
            largest_piece(found)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.size <= 8 * MIB + PIECE
    assert peak < MIB


@given(st.lists(st.binary(max_size=400).map(lambda line: line.replace(b"\n", b"")), max_size=300), st.booleans())
def test_lines_are_whole(lines: list[bytes], ended: bool) -> None:
    text = b"".join(line + b"\n" for line in lines) + (b"" if ended else b"the end is missing")
    found = stream(zlib.compress(text), Compression.ZLIB)
    assert list(found.lines(PIECE)) == lines
    assert found.complete is ended


def test_a_line_that_is_too_long_is_refused_and_those_before_it_are_not_lost() -> None:
    found = stream(zlib.compress(b"first\n" + b"x" * MIB + b"\n"), Compression.ZLIB).lines(4 * PIECE)
    assert next(found) == b"first"
    with pytest.raises(OversizedData, match="a line of more than 256 KiB"):
        next(found)
