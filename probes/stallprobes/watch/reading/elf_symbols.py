"""Functions of a program or library by address, from the symbol tables of its ELF file.

The file may be damaged, or made by a hostile program: every offset and size is checked against the file and against a
limit before it is used. Only 64-bit little-endian files are read.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.foreign_text import printable
from stallprobes.watch.reading.elf_lines import MOST_LINE_BYTES, ElfLines, LineSections, SourceLine

# Larger tables than any real library has: 4 million symbols, and names as C++ templates have.
MOST_SECTIONS = 1 << 16
MOST_SYMBOL_BYTES = 96 << 20
MOST_NOTE_BYTES = 1 << 16
LONGEST_SYMBOL = 4096
# Functions written in assembler may have no size.
LONGEST_WITHOUT_SIZE = 1 << 14
_MAGIC = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_NOTE = struct.Struct("<III")
_SYMBOL_TABLE, _NOTES, _DYNAMIC_SYMBOLS = 2, 7, 11
_BUILD_ID = 3
_COMPRESSED, _ZLIB = 1 << 11, 1
_COMPRESSION = struct.Struct("<IIQQ")
_FUNCTION, _INDIRECT_FUNCTION = 2, 10
_SECTION = np.dtype(
    [
        ("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"), ("size", "<u8"),
        ("link", "<u4"), ("info", "<u4"), ("alignment", "<u8"), ("entry", "<u8"),
    ]
)  # fmt: skip
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


@dataclass(frozen=True, eq=False)
class ElfSymbols:
    """The functions of one file in the order of their addresses. ``places`` are those of their names in the file."""

    path: Path
    values: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    places: NDArray[np.int64]

    @classmethod
    def of(cls, path: Path, build_id: bytes = b"") -> ElfSymbols | None:
        """The functions of the file at ``path``; None if it cannot be read, or has another build id than ``build_id``.

        An empty ``build_id`` fits every file.
        """
        try:
            with _ElfFile(path) as file:
                if build_id and build_id not in file.build_ids():
                    return None
                return cls(path, *file.functions())
        except (OSError, _InvalidElf):
            return None

    def names_at(self, addresses: Iterable[int]) -> dict[int, str]:
        """The mangled names of functions by address of the file as it is linked, without those that have none."""
        found: dict[int, str] = {}
        try:
            with _ElfFile(self.path) as file:
                for address in addresses:
                    if name := self._name_at(file, address):
                        found[address] = name
        except (OSError, _InvalidElf):
            pass
        return found

    def lines_at(self, addresses: Iterable[int]) -> Mapping[int, SourceLine]:
        """Lines of the program's own sources by address, where the file has a table of lines that is not too large."""
        return {} if self.lines is None else self.lines.at(addresses)

    @cached_property
    def lines(self) -> ElfLines | None:
        """The lines of the file; None without any."""
        try:
            with _ElfFile(self.path) as file:
                return file.lines()
        except (OSError, _InvalidElf):
            return None

    def _name_at(self, file: _ElfFile, address: int) -> str:
        if not 0 <= address < 1 << 63:
            return ""
        at = int(np.searchsorted(self.values, np.uint64(address), "right")) - 1
        if at < 0:
            return ""
        if address >= int(self.values[at]) + (int(self.sizes[at]) or LONGEST_WITHOUT_SIZE):
            return ""
        return file.text_at(int(self.places[at]))


class _InvalidElf(Exception):
    """The file is no ELF file that can be read."""


class _ElfFile(AbstractContextManager["_ElfFile"]):
    """An ELF file, open for reading. A context manager."""

    def __init__(self, path: Path) -> None:
        # A pipe or a device must not hold the reader up.
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            status = os.fstat(self._file)
            if not stat.S_ISREG(status.st_mode):
                raise _InvalidElf
            self._size = status.st_size
            self._sections = self._read_sections()
        except BaseException:
            os.close(self._file)
            raise

    def __exit__(self, *error: object) -> None:
        os.close(self._file)

    def functions(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
        """Addresses, sizes and places of the names of all functions, by address."""
        tables = [table for kind in (_DYNAMIC_SYMBOLS, _SYMBOL_TABLE) for table in self._tables(kind)]
        if not tables:
            return np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64)
        values, sizes, places = (np.concatenate([table[at] for table in tables]) for at in range(3))
        # Of several at one address, the largest.
        order = np.lexsort((sizes, values))
        return values[order], sizes[order], places[order].astype(np.int64)

    def lines(self) -> ElfLines | None:
        """The lines of the file; None if it has no table of lines, or a large one."""
        table = self._named(".debug_line", MOST_LINE_BYTES)
        if not table:
            return None
        strings, line_strings = (self._named(name, MOST_SYMBOL_BYTES) for name in (".debug_str", ".debug_line_str"))
        return ElfLines.of(LineSections(table, strings, line_strings))

    def _named(self, name: str, most: int) -> bytes:
        """The content of the section with a name; empty without one, or if it is larger than ``most``."""
        if self._name_section >= len(self._sections):
            return b""
        names = int(self._sections[self._name_section]["offset"])
        for section in self._sections:
            if self.text_at(names + int(section["name"])) == name:
                size = int(section["size"])
                raw = self._bytes(int(section["offset"]), size) if size <= most else b""
                return _inflated(raw, most) if int(section["flags"]) & _COMPRESSED else raw
        return b""

    def build_ids(self) -> Iterator[bytes]:
        """The build ids in the notes of the file."""
        for section in self._sections[self._sections["type"] == _NOTES]:
            if section["size"] <= MOST_NOTE_BYTES:
                yield from _build_ids(self._bytes(int(section["offset"]), int(section["size"])))

    def text_at(self, place: int) -> str:
        """The text at ``place``, to its first zero."""
        raw = os.pread(self._file, LONGEST_SYMBOL, place) if 0 <= place < self._size else b""
        return printable(raw.split(b"\0", 1)[0].decode("utf-8", "replace"))

    def _tables(self, kind: int) -> Iterator[tuple[NDArray[Any], ...]]:
        for section in self._sections[self._sections["type"] == kind]:
            size, link = int(section["size"]), int(section["link"])
            if size > MOST_SYMBOL_BYTES or link >= len(self._sections) or int(section["entry"]) != _SYMBOL.itemsize:
                raise _InvalidElf
            count = size // _SYMBOL.itemsize
            rows = np.frombuffer(self._bytes(int(section["offset"]), count * _SYMBOL.itemsize), _SYMBOL)
            names = self._sections[link]
            inside = rows["name"] < names["size"]
            kinds = rows["info"] & 15
            kept = rows[inside & (rows["section"] != 0) & ((kinds == _FUNCTION) | (kinds == _INDIRECT_FUNCTION))]
            if int(names["offset"]) >= self._size:
                raise _InvalidElf
            yield kept["value"], kept["size"], kept["name"].astype(np.int64) + int(names["offset"])

    def _read_sections(self) -> NDArray[Any]:
        raw = self._bytes(0, _HEADER.size)
        if not raw.startswith(_MAGIC):
            raise _InvalidElf
        fields = _HEADER.unpack(raw)
        self._name_section = fields[13]
        offset, size, count = fields[6], fields[11], fields[12]
        if not offset or (count and size != _SECTION.itemsize):
            raise _InvalidElf
        if not count:
            # More than fit into the header: the first section has the number.
            count = int(np.frombuffer(self._bytes(offset, _SECTION.itemsize), _SECTION)[0]["size"])
        if count > MOST_SECTIONS:
            raise _InvalidElf
        return np.frombuffer(self._bytes(offset, count * _SECTION.itemsize), _SECTION)

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset > self._size or size > self._size - offset:
            raise _InvalidElf
        raw = os.pread(self._file, size, offset)
        if len(raw) != size:
            raise _InvalidElf
        return raw


def _inflated(raw: bytes, most: int) -> bytes:
    """A compressed section; empty if it is damaged, compressed otherwise, or larger than ``most``."""
    if len(raw) < _COMPRESSION.size or _COMPRESSION.unpack_from(raw)[0] != _ZLIB:
        return b""
    try:
        inflater = zlib.decompressobj()
        found = inflater.decompress(raw[_COMPRESSION.size :], most)
    except zlib.error:
        return b""
    return b"" if inflater.unconsumed_tail else found


def _build_ids(notes: bytes) -> Iterator[bytes]:
    at = 0
    while len(notes) - at >= _NOTE.size:
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        name = at + _NOTE.size
        content = name + (name_size + 3) // 4 * 4
        if kind == _BUILD_ID and notes[name : name + name_size] == b"GNU\0":
            yield notes[content : content + size]
        at = content + (size + 3) // 4 * 4
