"""Source lines of a program's code by address, from the table of lines (DWARF 2 to 5) in its ELF file.

The table has the innermost inlined line of each address. It is read where ``code_lines`` finds nothing: for programs
with their other debugging information in separate files (-gsplit-dwarf). The file may be damaged, or made by a hostile
program: what lies outside its section, or is of an unknown form, ends the reading of its unit. No table of rows or of
files is built: only the rows that are asked for have the names of their files. Large tables are not read: that would
hold up who reads calls.
"""

from __future__ import annotations

import os.path
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

from stallprobes.foreign_text import printable
from stallprobes.watch.reading.code_lines import LIBRARY_SOURCE, CodeLine

# Largest size (bytes) of a line table that is read: a million bytes take half a second.
MAX_LINE_BYTES = 1 << 20
# Largest number of folders, and of files, in a unit of a line table. A unit with more folders is rejected as damaged.
# With more files, a unit of version 5 is rejected too; in versions 2 to 4, the further files are left out.
MAX_NAMES = 1 << 16
# Largest size (bytes) of an address in a line table. A unit with a larger address is rejected as damaged.
_ADDRESS_BYTES = 8
# Largest address in a line table. A larger address in a damaged table is replaced by this limit.
_LAST_ADDRESS = (1 << 63) - 1
# Largest line number in a line table. A larger number in a damaged table is replaced by this limit.
_LAST_LINE = 1 << 31
# Kinds of content in a table of files (DWARF). _PATH: DW_LNCT_path. _DIRECTORY: DW_LNCT_directory_index.
_PATH, _DIRECTORY = 1, 2
# Standard operations of a line table (DWARF). _COPY: DW_LNS_copy. _ADVANCE: DW_LNS_advance_pc. _ADD_LINE:
# DW_LNS_advance_line. _SET_FILE: DW_LNS_set_file.
_COPY, _ADVANCE, _ADD_LINE, _SET_FILE = 1, 2, 3, 4
# Further standard operations of a line table (DWARF). _ADD_CONSTANT: DW_LNS_const_add_pc. _ADVANCE_FIXED:
# DW_LNS_fixed_advance_pc.
_ADD_CONSTANT, _ADVANCE_FIXED = 8, 9
# Extended operations of a line table (DWARF). _END_SEQUENCE: DW_LNE_end_sequence. _SET_ADDRESS: DW_LNE_set_address.
_END_SEQUENCE, _SET_ADDRESS = 1, 2
# Oldest and newest version of DWARF whose line tables are read.
_FIRST_VERSION, _LAST_VERSION = 2, 5
# Length in a line table (DWARF) that marks the 64-bit format; the real length follows.
_LARGE = 0xFFFFFFFF


class StringTable(IntEnum):
    """The sections of a file that have the names of source files."""

    LINES = 0
    STRINGS = 1
    LINE_STRINGS = 2


class TextPlace(NamedTuple):
    """Where a text begins."""

    table: StringTable
    offset: int


class FilePlace(NamedTuple):
    """Where the name of a source file, and that of its folder, begin; None where it has none."""

    name: TextPlace | None = None
    folder: TextPlace | None = None

    @property
    def texts(self) -> Iterator[TextPlace]:
        """The texts that it needs."""
        return (text for text in self if text is not None)


# Address and line of a row of a table, with its file; line 0 where a sequence ends.
_Row = tuple[int, int, FilePlace]
# Placeholder row of a line table, for an address before the first row.
_NO_ROW: _Row = (-1, 0, FilePlace())


class InvalidElf(Exception):
    """The file, its table of lines or a unit of it cannot be read."""


def rows_at(raw: bytes, addresses: Sequence[int]) -> dict[int, tuple[FilePlace, int]]:
    """The file and the line of each of ``addresses``, which are in order, by the content ``raw`` of the section
    ``.debug_line``, as far as that can be read."""
    # The last row that begins after the address before and not after each address.
    nearest: list[_Row] = [_NO_ROW] * len(addresses)
    end = addresses[-1] if addresses else -1
    for unit in _units(raw):
        with suppress(InvalidElf):
            for row in _rows(unit):
                if row[0] <= end:
                    at = bisect_left(addresses, row[0])
                    last_row = nearest[at]
                    # A row that ends a sequence comes before others at its address.
                    if row[0] > last_row[0] or (row[0] == last_row[0] and (row[1] or not last_row[1])):
                        nearest[at] = row
    rows: dict[int, tuple[FilePlace, int]] = {}
    last = _NO_ROW
    for address, row in zip(addresses, nearest, strict=True):
        last = last if row is _NO_ROW else row
        if last[1]:
            rows[address] = last[2], last[1]
    return rows


def named(
    rows: Mapping[int, tuple[FilePlace, int]], texts: Mapping[TextPlace, bytes]
) -> dict[int, tuple[CodeLine, ...]]:
    """``rows`` with the names of their files, those of the program's own sources.

    ``texts`` are the bytes at the places of names; a text without an end among them is too long for a name.
    """
    lines: dict[int, tuple[CodeLine, ...]] = {}
    for address, (file, line) in rows.items():
        if not all(b"\0" in texts.get(place, b"") for place in file.texts):
            continue
        name, folder = (
            "" if place is None else texts[place].split(b"\0", 1)[0].decode("utf-8", "replace") for place in file
        )
        path = printable(os.path.join(folder, name))
        if path and not LIBRARY_SOURCE.search(path):
            lines[address] = (CodeLine("", path, line),)
    return lines


class _Bytes:
    """A part of a section that is read from its begin on."""

    def __init__(self, raw: bytes, at: int, end: int) -> None:
        self.raw, self.at, self.end = raw, at, end

    def number(self, size: int) -> int:
        """An unsigned number of so many bytes."""
        self.skip(size)
        return int.from_bytes(self.raw[self.at - size : self.at], "little")

    def skip(self, size: int) -> None:
        """Leave out so many bytes."""
        if size > self.end - self.at:
            raise InvalidElf
        self.at += size

    def leb(self) -> int:
        """An unsigned number, seven bits in each byte."""
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise InvalidElf

    def signed_leb(self) -> int:
        """The same with a sign."""
        first = self.at
        value = self.leb()
        bits = 7 * (self.at - first)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def text(self) -> TextPlace | None:
        """The place of a text, which ends with a zero; None if it is empty."""
        first = self.at
        end = self.raw.find(b"\0", first, self.end)
        if end < 0:
            raise InvalidElf
        self.at = end + 1
        return TextPlace(StringTable.LINES, first) if end > first else None


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


def _rows(unit: _Bytes) -> Iterator[_Row]:
    """The rows of a unit."""
    offset = 8 if unit.number(4) == _LARGE else 4
    if offset == 8:
        unit.skip(8)
    version = unit.number(2)
    if not _FIRST_VERSION <= version <= _LAST_VERSION:
        raise InvalidElf
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
        raise InvalidElf
    files = _files_5(unit, offset) if version >= 5 else _files(unit)
    # Until version 4 the first file has number 1, from 5 on number 0.
    first_file = 0 if version >= 5 else 1
    no_file = FilePlace()
    unit.at = program
    address, file, line, dropped = 0, 1, 1, False
    while unit.at < unit.end:
        code = unit.raw[unit.at]
        unit.at += 1
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
                if size - 1 > _ADDRESS_BYTES:
                    raise InvalidElf
                address = unit.number(size - 1)
                # Rows of functions that the linker has left out.
                dropped = not address
            elif kind == _END_SEQUENCE:
                if not dropped:
                    yield min(address, _LAST_ADDRESS), 0, no_file
                address, file, line, dropped = 0, 1, 1, False
            if end > unit.end:
                raise InvalidElf
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
            number = file - first_file
            place = files[number] if 0 <= number < len(files) else no_file
            shown = line if 0 < line < _LAST_LINE else min(max(line, 0), _LAST_LINE)
            yield (address if address < _LAST_ADDRESS else _LAST_ADDRESS), shown, place


def _files(unit: _Bytes) -> list[FilePlace]:
    """The files of a unit, in versions 2 to 4."""
    folders: list[TextPlace | None] = [None]
    while folder := unit.text():
        folders.append(folder)
        if len(folders) > MAX_NAMES:
            raise InvalidElf
    files: list[FilePlace] = []
    while (name := unit.text()) and len(files) < MAX_NAMES:
        number = unit.leb()
        # When it was changed, and its size.
        unit.leb()
        unit.leb()
        files.append(FilePlace(name, folders[number] if number < len(folders) else None))
    return files


def _files_5(unit: _Bytes, offset: int) -> list[FilePlace]:
    """The files of a unit, in version 5."""
    folders = [name for name, _ in _entries(unit, offset)]
    return [
        FilePlace(name, folders[folder] if folder < len(folders) else None) for name, folder in _entries(unit, offset)
    ]


def _entries(unit: _Bytes, offset: int) -> list[tuple[TextPlace | None, int]]:
    """Names with the numbers of their folders."""
    forms = [(unit.leb(), unit.leb()) for _ in range(unit.number(1))]
    count = unit.leb()
    if count > MAX_NAMES or (count and not forms):
        raise InvalidElf
    entries: list[tuple[TextPlace | None, int]] = []
    for _ in range(count):
        name: TextPlace | None = None
        folder = 0
        for kind, form in forms:
            value = _value(unit, form, offset)
            if kind == _PATH and not isinstance(value, int):
                name = value
            elif kind == _DIRECTORY and isinstance(value, int):
                folder = value
        entries.append((name, folder))
    return entries


def _value(unit: _Bytes, form: int, offset: int) -> TextPlace | int | None:
    match form:
        case 0x08:
            return unit.text()
        case 0x0E:
            return TextPlace(StringTable.STRINGS, unit.number(offset))
        case 0x1F:
            return TextPlace(StringTable.LINE_STRINGS, unit.number(offset))
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
            raise InvalidElf
