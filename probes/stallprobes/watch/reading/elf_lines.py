"""Source lines of a program's code by address, from the table of lines (DWARF 2 to 5) in its ELF file.

Compilers write it with -g. The file may be damaged, or made by a hostile program: what lies outside its section, or is
of an unknown form, ends the reading of its unit. Large tables are not read: that would hold up who reads calls.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallprobes.foreign_text import printable

# A table of a million bytes takes half a second.
MOST_LINE_BYTES = 1 << 20
MOST_NAMES = 1 << 16
# What a compiler brings along is no line of the program, also where its code is a part of the program's functions.
_NOT_OF_PROGRAM = re.compile(r"^/usr/(?:include|lib|local/cuda)|/include/c\+\+/|/targets/[^/]+/include/")
_PATH, _DIRECTORY = 1, 2
_COPY, _ADVANCE, _ADD_LINE, _SET_FILE = 1, 2, 3, 4
_ADD_CONSTANT, _ADVANCE_FIXED = 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2
_FIRST_VERSION, _LAST_VERSION = 2, 5
_LARGE = 0xFFFFFFFF


class SourceLine(NamedTuple):
    """A line of a source file."""

    file: str
    line: int


class _InvalidLines(Exception):
    """The table, or a unit of it, cannot be read."""


class LineSections(NamedTuple):
    """The sections of a file that lines need: the table, and two with strings."""

    lines: bytes
    strings: bytes
    line_strings: bytes


@dataclass(frozen=True, eq=False)
class ElfLines:
    """The lines of one file by address: line ``lines[n]`` of file ``names[files[n]]`` begins at ``addresses[n]``.

    Line 0: none is known from there on.
    """

    addresses: NDArray[np.uint64]
    files: NDArray[np.int64]
    lines: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(cls, sections: LineSections) -> ElfLines:
        """The lines in the sections of a file, as far as they can be read."""
        names: dict[str, int] = {}
        rows: list[tuple[int, int, int]] = []
        for unit in _units(sections.lines):
            try:
                rows.extend(_rows(unit, sections, names))
            except _InvalidLines:
                continue
        # Of several at one address, one that ends a sequence comes first.
        rows.sort(key=lambda row: (row[0], row[2] > 0))
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        return cls(table[:, 0].astype(np.uint64), table[:, 1], table[:, 2], tuple(names))

    def at(self, addresses: Iterable[int]) -> dict[int, SourceLine]:
        """The lines of the program's own sources at some addresses of the file as it is linked."""
        found = {}
        for address in addresses:
            place = int(np.searchsorted(self.addresses, np.uint64(address), "right")) - 1
            if place < 0 or not self.lines[place]:
                continue
            name = self.names[int(self.files[place])]
            if name and not _NOT_OF_PROGRAM.search(name):
                found[address] = SourceLine(name, int(self.lines[place]))
        return found


class _Bytes:
    """A part of a section that is read from its begin on."""

    def __init__(self, raw: bytes, at: int = 0, end: int | None = None) -> None:
        self.raw, self.at, self.end = raw, at, len(raw) if end is None else end

    def number(self, size: int) -> int:
        """An unsigned number of so many bytes."""
        if size > self.end - self.at:
            raise _InvalidLines
        self.at += size
        return int.from_bytes(self.raw[self.at - size : self.at], "little")

    def skip(self, size: int) -> None:
        """Leave out so many bytes."""
        if size > self.end - self.at:
            raise _InvalidLines
        self.at += size

    def leb(self) -> int:
        """An unsigned number, seven bits in each byte."""
        found = shift = 0
        while True:
            byte = self.number(1)
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found
            if shift > 63:
                raise _InvalidLines

    def signed_leb(self) -> int:
        """The same with a sign."""
        first = self.at
        found = self.leb()
        bits = 7 * (self.at - first)
        return found - (1 << bits) if found >> (bits - 1) & 1 else found

    def text(self) -> str:
        """A text to its zero."""
        end = self.raw.find(b"\0", self.at, self.end)
        if end < 0:
            raise _InvalidLines
        found = self.raw[self.at : end].decode("utf-8", "replace")
        self.at = end + 1
        return found


def _units(raw: bytes) -> Iterator[_Bytes]:
    """The units of a table, each with its size in bytes before it: that of an offset is 8 in large ones."""
    at = 0
    while at + 4 <= len(raw):
        size, first = int.from_bytes(raw[at : at + 4], "little"), at + 4
        if size == _LARGE:
            size, first = int.from_bytes(raw[at + 4 : at + 12], "little"), at + 12
        end = first + size
        if not size or end > len(raw):
            return
        yield _Bytes(raw, at, end)
        at = end


def _rows(unit: _Bytes, sections: LineSections, names: dict[str, int]) -> Iterator[tuple[int, int, int]]:
    """Address, number of the file in ``names``, and line of each row of a unit; line 0 at the ends of sequences."""
    offset = 8 if unit.number(4) == _LARGE else 4
    if offset == 8:
        unit.skip(8)
    version = unit.number(2)
    if not _FIRST_VERSION <= version <= _LAST_VERSION:
        raise _InvalidLines
    if version >= 5:
        unit.skip(2)
    program = unit.number(offset)
    program += unit.at
    least, _ = unit.number(1), unit.number(1) if version >= 4 else 1
    unit.skip(1)
    base, line_range, first_special = unit.number(1), unit.number(1), unit.number(1)
    base -= 256 if base > 127 else 0
    lengths = [unit.number(1) for _ in range(max(first_special - 1, 0))]
    if not line_range or program > unit.end:
        raise _InvalidLines
    paths = _paths_5(unit, sections, offset) if version >= 5 else _paths(unit)
    numbers = [names.setdefault(printable(path), len(names)) for path in paths]
    none = names.setdefault("", len(names))
    unit.at = program
    address, file, line, dropped = 0, 1, 1, False
    while unit.at < unit.end:
        code = unit.number(1)
        row = False
        if code >= first_special:
            code -= first_special
            address += code // line_range * least
            line += base + code % line_range
            row = True
        elif not code:
            size = unit.leb()
            end = unit.at + size
            kind = unit.number(1) if size else 0
            if kind == _SET_ADDRESS and size > 1:
                address = unit.number(size - 1)
                # Of functions that the linker has left out.
                dropped = not address
            elif kind == _END_SEQUENCE:
                if not dropped:
                    yield min(address, (1 << 63) - 1), none, 0
                address, file, line, dropped = 0, 1, 1, False
            if end > unit.end:
                raise _InvalidLines
            unit.at = end
        elif code == _COPY:
            row = True
        elif code == _ADVANCE:
            address += unit.leb() * least
        elif code == _ADD_LINE:
            line += unit.signed_leb()
        elif code == _SET_FILE:
            file = unit.leb()
        elif code == _ADD_CONSTANT:
            address += (255 - first_special) // line_range * least
        elif code == _ADVANCE_FIXED:
            address += unit.number(2)
        else:
            for _ in range(lengths[code - 1]):
                unit.leb()
        if row and not dropped:
            # Until version 4 the first file has number 1, from 5 on number 0.
            number = file if version >= 5 else file - 1
            known = numbers[number] if 0 <= number < len(numbers) else none
            yield min(address, (1 << 63) - 1), known, min(max(line, 0), 1 << 31)


def _paths(unit: _Bytes) -> list[str]:
    """The files of a unit, in versions 2 to 4."""
    folders = [""]
    while folder := unit.text():
        folders.append(folder)
    paths: list[str] = []
    while (name := unit.text()) and len(paths) < MOST_NAMES:
        number = unit.leb()
        # When it was changed, and its size.
        unit.leb()
        unit.leb()
        paths.append(os.path.join(folders[number] if number < len(folders) else "", name))
    return paths


def _paths_5(unit: _Bytes, sections: LineSections, offset: int) -> list[str]:
    """The files of a unit, in version 5."""
    folders = [name for name, _ in _entries(unit, sections, offset)]
    return [
        os.path.join(folders[folder] if folder < len(folders) else "", name)
        for name, folder in _entries(unit, sections, offset)
    ]


def _entries(unit: _Bytes, sections: LineSections, offset: int) -> list[tuple[str, int]]:
    """Names with the numbers of their folders."""
    forms = [(unit.leb(), unit.leb()) for _ in range(unit.number(1))]
    count = unit.leb()
    if count > MOST_NAMES or (count and not forms):
        raise _InvalidLines
    found = []
    for _ in range(count):
        name, folder = "", 0
        for kind, form in forms:
            value = _value(unit, form, sections, offset)
            if kind == _PATH and isinstance(value, str):
                name = value
            elif kind == _DIRECTORY and isinstance(value, int):
                folder = value
        found.append((name, folder))
    return found


def _value(unit: _Bytes, form: int, sections: LineSections, offset: int) -> str | int:
    match form:
        case 0x08:
            return unit.text()
        case 0x0E:
            return _Bytes(sections.strings, unit.number(offset)).text()
        case 0x1F:
            return _Bytes(sections.line_strings, unit.number(offset)).text()
        case 0x0F:
            return unit.leb()
        case 0x0B:
            return unit.number(1)
        case 0x05:
            return unit.number(2)
        case 0x06:
            return unit.number(4)
        case 0x07:
            return unit.number(8)
        case 0x1E:
            return unit.number(16)
        case 0x09:
            unit.skip(unit.leb())
            return 0
        case _:
            raise _InvalidLines
