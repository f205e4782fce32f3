"""ELF files and mangled names that are small and stand for much: counts times lengths."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
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


def many_notes(headers: int, size: int) -> bytes:
    """A file whose notes, all of the same content, are named by so many headers."""
    note = struct.pack("<III", 4, 4, 3) + b"GNU\0abcd"
    sections = [Section(".n", NOTES, note * (size // len(note)))]
    sections += [Section(".n", NOTES, alias=2)] * (headers - 1)
    return with_function(*sections)


def inflating(mebibytes: int) -> bytes:
    """A file with compressed debugging information, which inflates to so much."""
    deflater = zlib.compressobj()
    raw = struct.pack("<IIQQ", 1, 0, mebibytes << 20, 1)
    raw += b"".join(deflater.compress(bytes(1 << 20)) for _ in range(mebibytes)) + deflater.flush()
    return with_function(Section(".debug_info", PROGBITS, raw, COMPRESSED))
