"""Files of watched runs: documents of ``watch``, one a line, each compressed by itself; reading has limits.

A run is appended by an atomic replacement, so that whatever ends the writer leaves the earlier runs as they were. The
file of ``watch --json`` is read as one run.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from stallprobes.errors import (
    DamagedData,
    FileMissing,
    FileNotRead,
    FileNotWritten,
    FileReplaced,
    MalformedJson,
    OversizedData,
    RunFileError,
    TruncatedJson,
    reason_of,
)
from stallprobes.files import atomic, codec, input_file
from stallprobes.files.compression import DecompressedStream
from stallprobes.foreign_text import escaped_json
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.comparing.run_kind import LARGEST, NAME, content, names_runs
from stallprobes.watch.report import document

# Largest number of runs in a file.
MOST_RUNS = 1000
# Version of the schema of a run that is read.
_VERSION = 3
# Beginning of a document that is written over several lines, as --json does.
_SEVERAL_LINES = b"{\n"
# Size (bytes) of one part of a copied file.
_PIECE = 1 << 20
# What to do with a file that is no file of runs.
_NAME_ONE = "name a file that `stallscope watch --save` wrote"


def append(findings: WatchFindings, path: Path) -> None:
    """Append a run to the file ``path``, which is made if there is none. Raises RunFileError; then it is unchanged."""
    text = escaped_json(codec.encoded(document(findings)).decode()).encode()
    member = gzip.compress(text + b"\n", mtime=0)
    try:
        while not _appended(path, member, len(text)):
            pass
    except (FileNotRead, FileNotWritten) as error:
        raise RunFileError(str(error)) from error
    except OSError as error:
        raise RunFileError(f"{path} cannot be written: {reason_of(error)}") from error


def ready(path: Path) -> None:
    """Raise RunFileError if ``append`` would refuse ``path`` now. To be called before the program is started."""
    try:
        try:
            with input_file.opened(path) as file:
                _require_room(path, file, 0)
        except FileMissing:
            atomic.ready(path, force=False)
        else:
            atomic.ready(path, force=True)
    except (FileNotRead, FileNotWritten) as error:
        raise RunFileError(str(error)) from error


def load(path: Path) -> tuple[WatchFindings, ...]:
    """The runs in the file ``path``, at least one, the oldest first. Raises RunFileError."""
    try:
        with input_file.opened(path) as file:
            return _runs(path, content(file))
    except FileNotRead as error:
        raise RunFileError(str(error)) from error
    except OversizedData as error:
        raise RunFileError(f"{path} is too large for a file of runs: {error}; name a smaller one") from None
    except MemoryError:
        raise RunFileError(f"{path} does not fit into memory: read it on a larger machine") from None
    except (OSError, ValueError) as error:
        raise RunFileError(f"{path} cannot be read: {reason_of(error)}") from error


def _runs(path: Path, stream: DecompressedStream) -> tuple[WatchFindings, ...]:
    texts: list[bytes] = []
    try:
        texts = _texts(path, stream)
        return tuple(codec.decoded(text, WatchFindings) for text in texts)
    except (DamagedData, TruncatedJson, MalformedJson, UnicodeDecodeError) as error:
        raise RunFileError(f"{path} {_what_is_wrong(texts, error)}") from error


def _texts(path: Path, stream: DecompressedStream) -> list[bytes]:
    """The documents in ``stream`` as text. Raises RunFileError, TruncatedJson, DamagedData and OversizedData."""
    text = b"".join(iter(stream.read, b""))
    if stream.ended_early:
        raise TruncatedJson("it ends within its compressed data")
    if not text.strip():
        raise RunFileError(f"{path} is empty: save a run with `stallscope watch --save`")
    texts = [text] if text.startswith(_SEVERAL_LINES) else text.splitlines()
    if len(texts) > MOST_RUNS:
        raise OversizedData(f"it has more than {MOST_RUNS} lines")
    return texts


def _what_is_wrong(texts: list[bytes], error: Exception) -> str:
    """Problem of a file with the documents ``texts`` that could not be read for ``error``, and what to do."""
    again = "copy it again, or save the runs again"
    if isinstance(error, TruncatedJson):
        return f"is cut off: {error}; {again}"
    if isinstance(error, DamagedData):
        return f"is damaged: {error}; {again}"
    schemas = [schema for text in texts if (schema := codec.schema_name(text) or "") != f"{NAME}/{_VERSION}"]
    name, _, version = schemas[0].partition("/") if schemas else ("", "", "")
    if name == NAME and version.isascii() and version.isdigit():
        do = "upgrade it" if len(version) > 4 or int(version) > _VERSION else "save the runs again"
        return f"has a run of schema version {version[:20]}, but this stallscope reads version {_VERSION}: {do}"
    if name == "stallscope.check":
        return f"is a saved check, not runs of a program: compare two checks, or {_NAME_ONE}"
    if name.startswith("stallscope.") or texts[0].startswith(b'{"format"'):
        return f"is another file of stallscope, not runs of a program: {_NAME_ONE}"
    why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
    if names_runs(texts[0]):
        return f"is damaged, or of another version of stallscope: {why}; {again}"
    return f"is not a file of watched runs: {why}; {_NAME_ONE}"


def _appended(path: Path, member: bytes, size: int) -> bool:
    """Append ``member``, of ``size`` bytes without compression; False if another program was faster: try again.

    Raises RunFileError, FileNotRead, FileNotWritten and OSError.
    """
    try:
        file = input_file.opened(path)
    except FileMissing:
        try:
            atomic.write(path, (member,), force=False)
        except FileNotWritten:
            if not os.path.exists(path):
                raise
            return False
        return True
    except FileReplaced:
        return False
    with file:
        # Some file systems have no locks; then two programs that append at one instant can lose a run.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        known = os.fstat(file.fileno())
        try:
            if not os.path.samestat(known, os.stat(path)):
                return False
        except FileNotFoundError:
            return False
        _require_room(path, file, size)
        file.seek(0)
        atomic.write(path, chain(_pieces(file), (member,)), force=True, mode=stat.S_IMODE(known.st_mode))
    return True


def _require_room(path: Path, file: BinaryIO, size: int) -> None:
    """Raise RunFileError for a file of other content, and for one without room for a run of ``size`` bytes."""
    if not os.fstat(file.fileno()).st_size:
        return
    try:
        texts = _texts(path, content(file))
        used = sum(map(len, texts))
        if _SEVERAL_LINES in texts[0][: len(_SEVERAL_LINES)]:
            raise RunFileError(f"{path} is what `stallscope watch --json` wrote: name another file for --save")
        if codec.schema_name(texts[0]) != f"{NAME}/{_VERSION}":
            raise MalformedJson("its first line is no run of this version")
    except (DamagedData, TruncatedJson, MalformedJson, UnicodeDecodeError) as error:
        # What is in it may matter to somebody.
        raise RunFileError(
            f"{path} is not a file of watched runs, or is damaged: {error}; name another file"
        ) from error
    except OversizedData as error:
        raise RunFileError(f"{path} is too large for a file of runs: {error}; name another file") from error
    if used + size > LARGEST or len(texts) >= MOST_RUNS:
        raise RunFileError(f"{path} is full with {len(texts)} runs: name another file")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(_PIECE), b"")
