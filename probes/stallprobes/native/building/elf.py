"""Versions of the C library that a shared object needs, read from its ELF sections."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

# Layout of a section's header in an ELF file (Elf64_Shdr).
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
# Type of the ELF section that lists the versions of library functions which a file needs.
_SHT_GNU_VERNEED = 0x6FFF_FFFE
# Name of a glibc version in an ELF file, such as GLIBC_2.17. The group is the version number.
_NUMBER = re.compile(r"GLIBC_([\d.]+)$")


def needed_versions(path: Path) -> set[str]:
    """The names of all symbol versions that the object needs. Raises ValueError for another file than a 64-bit
    little-endian ELF object, and OSError."""
    raw = path.read_bytes()
    if raw[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a 64-bit little-endian ELF object")
    table, size, count = struct.unpack_from("<Q", raw, 40)[0], *struct.unpack_from("<HH", raw, 58)
    sections = [_SECTION_HEADER.unpack_from(raw, table + size * number) for number in range(count)]
    versions = set()
    for _, kind, _, _, offset, _, link, entries, _, _ in sections:
        if kind == _SHT_GNU_VERNEED:
            strings = sections[link][4]
            versions |= {_text(raw, strings + name) for name in _names(raw, offset, entries)}
    return versions


def newest_glibc(path: Path) -> tuple[int, ...]:
    """The newest version of the C library that the object needs: (2, 17). Raises as ``needed_versions``.

    A version without a number, such as that of packed relocations, counts as newer than any.
    """
    versions = []
    for name in needed_versions(path):
        number = _NUMBER.match(name)
        versions.append(tuple(map(int, number[1].split("."))) if number else (999,))
    return max(versions, default=(0,))


def _names(raw: bytes, offset: int, entries: int) -> Iterator[int]:
    """The places of the versions' names in the section's strings."""
    for _ in range(entries):
        _, count, _, first, following = struct.unpack_from("<HHIII", raw, offset)
        at = offset + first
        for _ in range(count):
            _, _, _, name, step = struct.unpack_from("<IHHII", raw, at)
            yield name
            at += step
        offset += following


def _text(raw: bytes, at: int) -> str:
    return raw[at : raw.index(b"\0", at)].decode()
