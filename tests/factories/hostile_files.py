"""ELF files and mangled names that are small and stand for much: counts times lengths."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SYMBOL = struct.Struct("<IBxHQQ")
PROGBITS, SYMBOLS, STRINGS, NOTES = 1, 2, 3, 7
COMPRESSED = 1 << 11
# Address and size of the function that each of the files has.
ADDRESS, SIZE = 0x1000, 0x100


def doubling_name(parameters: int) -> str:
    """A mangled name in which each parameter has the one before twice: it stands for 2**parameters types."""
    name = "_Z1f1AIiiE"
    for number in range(1, parameters):
        name += f"S_I{_substitution(number)}{_substitution(number)}E"
    return name


def _substitution(number: int) -> str:
    digits, rest = "", number - 1
    while not digits or rest:
        digits, rest = _DIGITS[rest % 36] + digits, rest // 36
    return f"S{digits}_"


@dataclass(frozen=True)
class Section:
    """A section; ``link`` is the place of another one in the list. ``alias`` is that of one whose content it has."""

    name: str
    type: int
    content: bytes = b""
    flags: int = 0
    link: int = 0
    entry: int = 0
    alias: int | None = None


def elf_file(sections: Sequence[Section]) -> bytes:
    """A file of ``sections``, at most 65 000, after which one with their names comes."""
    names = b"".join(section.name.encode() + b"\0" for section in sections) + b".shstrtab\0"
    contents, places, at = [], [], _HEADER.size
    for section in (*sections, Section(".shstrtab", STRINGS, names)):
        if section.alias is None:
            places.append((at, len(section.content)))
            contents.append(section.content)
            at += len(section.content)
        else:
            places.append(places[section.alias])
    headers, name = [], 0
    for section, (offset, size) in zip((*sections, Section(".shstrtab", STRINGS)), places, strict=True):
        fields = name, section.type, section.flags, 0, offset, size, section.link, 0, 1, section.entry
        headers.append(_SECTION.pack(*fields))
        name += len(section.name) + 1
    magic = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = (magic, 3, 62, 1, 0, 0, at, 0, 64, 56, 0, 64, len(headers), len(sections))
    return _HEADER.pack(*header) + b"".join(contents) + b"".join(headers)


def with_function(*sections: Section, name: str = "solve") -> bytes:
    """A file with the function ``name``, and ``sections``, whose links and aliases begin at 2."""
    table = SYMBOL.pack(0, 0, 0, 0, 0) + SYMBOL.pack(1, 2, 1, ADDRESS, SIZE)
    strings = Section(".strtab", STRINGS, b"\0" + name.encode() + b"\0")
    return elf_file([strings, Section(".symtab", SYMBOLS, table, link=0, entry=24), *sections])


def repeated_symbols(headers: int, table_bytes: int) -> bytes:
    """A symbol table that so many headers name."""
    rows = SYMBOL.pack(1, 2, 1, ADDRESS, SIZE) * (table_bytes // SYMBOL.size)
    section = Section(".symtab", SYMBOLS, rows, link=0, entry=24)
    # The strings of each are others, so that no two tables are the same.
    strings = [Section(".strtab", STRINGS, b"\0solve" + bytes(number + 1)) for number in range(headers)]
    tables = [replace(section, link=number) for number in range(headers)]
    tables[1:] = [replace(table, content=b"", alias=headers) for table in tables[1:]]
    return elf_file([*strings, *tables])


def line_table(version: int, header: bytes, program: bytes | None = None) -> bytes:
    """A unit of ``.debug_line``: ``header`` has the folders and files. By default file 1 begins at ADDRESS, line 7."""
    if program is None:
        program = _set_address(struct.pack("<Q", ADDRESS)) + b"\x03\x06\x01" + b"\x02\x80\x02" + b"\x00\x01\x01"
    lengths = bytes((0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1))
    common = b"\x01\x01\x01" if version >= 4 else b"\x01\x01"
    head = common + struct.pack("<bBB", -5, 14, 13) + lengths + header
    begin = struct.pack("<H", version) + (b"\x08\x00" if version >= 5 else b"")
    unit = begin + struct.pack("<I", len(head)) + head + program
    return struct.pack("<I", len(unit)) + unit


def _set_address(raw: bytes) -> bytes:
    return b"\x00" + leb(len(raw) + 1) + b"\x02" + raw


def leb(number: int) -> bytes:
    """An unsigned number, seven bits in each byte."""
    raw = bytearray()
    while True:
        raw.append(number & 127 | (128 if number > 127 else 0))
        number >>= 7
        if not number:
            return bytes(raw)


def long_folder(length: int, files: int, version: int = 4) -> bytes:
    """A file with a table of lines, each of whose files is in a folder of a long name."""
    header = b"f" * length + b"\0\0" + b"".join(b"a%d\0\x01\0\0" % number for number in range(files)) + b"\0"
    return with_function(Section(".debug_line", PROGBITS, line_table(version, header)))


def shared_line_string(length: int, files: int, *, compressed: bool = True) -> bytes:
    """A file with a table of lines, each of whose files has the same long name in ``.debug_line_str``."""
    entry = b"\x01\x01\x1f" + leb(files) + struct.pack("<I", 0) * files
    header = b"\x01\x01\x1f\x01" + struct.pack("<I", 0) + entry
    text = b"n" * length + b"\0"
    strings = struct.pack("<IIQQ", 1, 0, len(text), 1) + zlib.compress(text) if compressed else text
    return with_function(
        Section(".debug_line", PROGBITS, line_table(5, header)),
        Section(".debug_line_str", PROGBITS, strings, COMPRESSED if compressed else 0),
    )


def long_address(length: int, rows: int) -> bytes:
    """A file with a table of lines, whose address is a number of ``length`` bytes, to which each row adds."""
    program = _set_address(b"\xff" * length) + b"\xff" * rows
    return with_function(Section(".debug_line", PROGBITS, line_table(4, b"\0a.c\0\0\0\0\0", program)))


def many_rows(rows: int) -> bytes:
    """A file with a table of lines that has so many rows, each of one byte."""
    program = _set_address(struct.pack("<Q", ADDRESS)) + b"\x20" * rows
    return with_function(Section(".debug_line", PROGBITS, line_table(4, b"\0a.c\0\0\0\0\0", program)))


def many_notes(headers: int, size: int) -> bytes:
    """A file whose notes, all of the same content, are named by so many headers."""
    note = struct.pack("<III", 4, 4, 3) + b"GNU\0abcd"
    sections = [Section(".n", NOTES, note * (size // len(note)))]
    sections += [Section(".n", NOTES, alias=2)] * (headers - 1)
    return with_function(*sections)


def nearly_endless(parts: Iterable[int]) -> bytes:
    """A file with a compressed section of strings for each of ``parts``, which inflates to so many bytes (MiB)."""
    sections = []
    for size in parts:
        deflater = zlib.compressobj()
        raw = struct.pack("<IIQQ", 1, 0, size << 20, 1)
        raw += b"".join(deflater.compress(bytes(1 << 20)) for _ in range(size)) + deflater.flush()
        sections.append(Section(".debug_str", PROGBITS, raw, COMPRESSED))
    header = b"\x01\x01\x0e\x01" + struct.pack("<I", 0) + b"\x01\x01\x0e\x02" + struct.pack("<I", 0xFFFFFFF0) * 2
    return with_function(Section(".debug_line", PROGBITS, line_table(5, header)), *sections)
