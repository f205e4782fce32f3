"""Files of checks: atomic writing, and reading with a check of every value.

A file may be compressed with gzip, to a fifth of its size: ``save`` compresses if the name ends in ``.gz``, and
``load`` recognizes gzip by the first bytes.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

from msgspec import Raw

from stallprobes.errors import (
    CheckFileError,
    DamagedData,
    FileNotRead,
    MalformedJson,
    OversizedData,
    TruncatedJson,
    reason_of,
)
from stallprobes.files import atomic, codec, compression, input_file, user_state
from stallprobes.files.compression import Compression, DecompressedStream
from stallprobes.foreign_text import escaped_json
from stallprobes.matrix.document import CHECK_SCHEMA, CheckCell, CheckDocument, ReadCheck, parts
from stallprobes.matrix.matrix import Matrix

# Largest uncompressed size (bytes) of the file of a check of one machine, in writing and reading. A check of one
# machine has 6 MB.
LARGEST = 48 << 20
# Size (bytes) that is added to LARGEST for each host of a merged check. A merged check has less than this size per
# host.
LARGEST_PER_HOST = 8 << 20
# Largest number of hosts of a merged check for which LARGEST_PER_HOST is added. Further hosts do not raise the largest
# size of the file.
MOST_HOSTS = 10_000
# Number of bytes at the start of a check's file within which the name of its schema lies.
_HEAD = 200
# First bytes of a file that is compressed with gzip.
_GZIP = b"\x1f\x8b"
# Name of the file, in the folder of the user's state, that contains the path of the check saved last.
_LAST = "last-check.txt"
# Name of a check's schema, without its version.
_NAME = "stallscope.check"
# Pattern of the beginning of a recording, which distinguishes a recording from a check.
_RECORDING = re.compile(rb'\{\s*"format"\s*:\s*"stallscope\.recording"')
# Schemas of the files that `stallscope run --json` and `stallscope doctor --json` write. If one of these files is given
# as a check, the error message names the command that writes the file.
_OTHERS = ("stallscope.run", "stallscope.doctor")
# Text in a check's JSON document at which the list of its cells (each a victim beside aggressors) begins. The part
# before this text lists the hosts, whose number determines the largest size of the document.
_CELLS = b'"cells":['
# Number of cells (each a victim beside aggressors) that are decoded together from a check of one machine. Decoding
# single cells takes a tenth longer. The cells of a merged check are decoded singly.
_CELLS_TOGETHER = 32


def save(
    matrix: Matrix, path: Path | str, force: bool = False, progress: Callable[[float], None] = lambda _: None
) -> None:
    """Write ``matrix`` to ``path`` atomically; an existing file is replaced only with ``force``.

    The file is compressed with gzip if the name ends in ``.gz``; equal matrices give equal bytes. The permissions
    follow the user's umask. ``progress`` is called with the share (0 to 1) of the cells that are written. Raises
    FileNotWritten, and CheckFileError for a check that is too large to be read.
    """
    chunks = _limited(_chunks(matrix, progress), path, _largest(len(matrix.hosts)))
    atomic.write(Path(path), compression.for_name(path, chunks), force=force)


def remember(path: Path) -> None:
    """Remember the saved check ``path`` as the last one of this user."""
    with suppress(OSError):
        user_state.write(_LAST, f"{path.resolve()}\n")


def last_saved() -> Path | None:
    """The check that the user saved last, None where there is none or its file is gone."""
    path = Path(user_state.read(_LAST).removesuffix("\n"))
    with suppress(OSError, ValueError):
        if path.is_absolute() and path.is_file():
            return path
    return None


def _chunks(matrix: Matrix, progress: Callable[[float], None]) -> Iterator[bytes]:
    """The document as text in chunks, one line per cell, so that it is never in memory as a whole."""
    head, cells = parts(matrix)
    yield _text_of(head).removesuffix(b"]}")
    for number, cell in enumerate(cells):
        progress(number / len(matrix.cells))
        yield (b",\n" if number else b"\n") + _text_of(cell)
    yield b"\n]}\n"


def _text_of(part: CheckDocument[CheckCell] | CheckCell) -> bytes:
    return escaped_json(codec.encoded(part).decode()).encode()


def _limited(chunks: Iterable[bytes], path: Path | str, most: int) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise CheckFileError(
                f"{path} would be larger than {most >> 20} MiB, the largest that can be read: check fewer victims"
            )
        yield chunk


def _largest(hosts: int) -> int:
    """Size of the largest document of ``hosts`` machines in bytes; 0 is the check of one that is not merged."""
    return LARGEST + LARGEST_PER_HOST * min(hosts, MOST_HOSTS)


def load(path: Path | str, progress: Callable[[float], None] = lambda _: None) -> Matrix:
    """The check saved in ``path``, compressed or not. Raises CheckFileError for any other content.

    ``progress`` is called with the share (0 to 1) of the cells that are read.
    """
    try:
        with input_file.opened(path) as file:
            return _read(path, file, progress)
    except FileNotRead as error:
        raise CheckFileError(str(error)) from error
    except OversizedData:
        raise CheckFileError(
            f"{path} is not a check: none is so large ({_largest(0) >> 20} MiB for one machine); name another file"
        ) from None
    except MemoryError:
        raise CheckFileError(f"{path} does not fit into memory: read it on a larger machine") from None
    except (OSError, ValueError) as error:
        raise CheckFileError(f"{path} cannot be read: {reason_of(error)}") from error


def _read(path: Path | str, file: BinaryIO, progress: Callable[[float], None]) -> Matrix:
    compressed = file.peek(len(_GZIP)).startswith(_GZIP)  # type: ignore[attr-defined]
    content = DecompressedStream(file, Compression.GZIP if compressed else Compression.NONE, _largest(MOST_HOSTS))
    text: bytes | mmap = b""
    try:
        text = _whole_text(path, content)
        if content.complete and not text[:_HEAD].strip():
            raise CheckFileError(f"{path} is empty: save the check again")
        if content.ended_early:
            raise TruncatedJson("it ends within its compressed data")
        return _matrix(text, progress)
    except (DamagedData, TruncatedJson, MalformedJson, UnicodeDecodeError) as error:
        raise CheckFileError(f"{path} {_what_is_wrong(text, error)}") from error


def _whole_text(path: Path | str, content: DecompressedStream) -> bytes | mmap:
    """The text in ``content``: in memory, that of many hosts in a temporary file.

    Raises CheckFileError for what cannot be a check, by its beginning, and OversizedData.
    """
    pieces: list[bytes] = []
    while piece := content.read():
        if not pieces:
            _require_text_of_check(path, piece)
        pieces.append(piece)
        if content.size > _largest(0) and content.largest > _largest(0):
            return _mapped(pieces, content)
    return b"".join(pieces)


def _mapped(pieces: list[bytes], content: DecompressedStream) -> mmap:
    head, cells, _ = b"".join(pieces).partition(_CELLS)
    try:
        hosts = codec.decoded(head + cells + b"]}", CheckDocument[Raw]).hosts
    except (MalformedJson, UnicodeDecodeError):
        raise OversizedData from None
    content.largest = _largest(len(hosts))
    with tempfile.TemporaryFile() as file:
        file.writelines(chain(pieces, iter(content.read, b"")))
        file.flush()
        return mmap(file.fileno(), 0, access=ACCESS_READ)


def _require_text_of_check(path: Path | str, beginning: bytes) -> None:
    if _RECORDING.match(beginning):
        raise CheckFileError(f"{path} is a recording, not a check: look at it with `stallscope replay`")
    if beginning.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise CheckFileError(f"{path} begins with a byte order mark: save it as plain UTF-8")


def _matrix(text: bytes | mmap, progress: Callable[[float], None]) -> Matrix:
    document = codec.decoded(text, CheckDocument[Raw])
    read = ReadCheck(document)
    numbered = iter(enumerate(document.cells))
    while together := list(islice(numbered, 1 if document.hosts else _CELLS_TOGETHER)):
        progress(together[0][0] / len(document.cells))
        places = [f"cells[{number}]" for number, _ in together]
        cells = [codec.decoded(cell, CheckCell, where) for (_, cell), where in zip(together, places, strict=True)]
        read.add(cells, places)
    return read.matrix()


def _what_is_wrong(text: bytes | mmap, error: Exception) -> str:
    """Problem of a file with ``text`` that could not be read for ``error``, and what to do."""
    copy_again = "copy it again, or save the check again"
    name = "name a file that `stallscope check --save` wrote"
    if isinstance(error, TruncatedJson):
        return f"is cut off: {error}; {copy_again}"
    if isinstance(error, DamagedData):
        return f"is damaged: {error}; {copy_again}"
    schema = codec.schema_name(bytes(text))
    if schema is not None and (other := _other_document(schema)):
        return other
    why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
    # Without the schema's name at the start, the file is more likely another one than a damaged check.
    if f'"{_NAME}/'.encode() in text[:_HEAD]:
        return f"is damaged: {why}; {copy_again}"
    return f"is not a check: {why}; {name}"


def _other_document(schema: str) -> str:
    """Clause on a document with the schema ``schema``; "" for a check that is read here."""
    if schema == CHECK_SCHEMA:
        return ""
    tool, _, version = schema.partition("/")
    newest = CHECK_SCHEMA.partition("/")[2]
    if tool == _NAME and version.isascii() and version.isdigit() and version.strip("0"):
        newer = len(version) > 4 or int(version) > int(newest)
        return (
            f"is a check of schema version {version[:20]}, but this stallscope reads version {newest}: "
            f"{'upgrade it' if newer else 'save the check again'}"
        )
    kind = tool.removeprefix("stallscope.")
    what = f"what `stallscope {kind} --json` writes, not a check" if tool in _OTHERS else "not a check of stallscope"
    return f"is {what}: name a file that `stallscope check --save` wrote"
