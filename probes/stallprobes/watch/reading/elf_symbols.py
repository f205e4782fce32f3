"""Functions and source lines of a program or library by address, from the tables of its ELF file.

The file may be damaged, or made by a hostile program: every offset and size is checked against the file and against a
limit before it is used, and tables are read in parts, so that none of them needs memory of its size. Only 64-bit
little-endian files are read.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stallprobes.foreign_text import printable
from stallprobes.watch.reading.code_lines import LONGEST_SYMBOL, CodeLine, inlined_lines
from stallprobes.watch.reading.elf_lines import MAX_LINE_BYTES, InvalidElf, StringTable, TextPlace, named, rows_at
from stallprobes.watch.reading.parser_messages import LimitExceeded

# Largest number of sections of a file: a symbol names its section with 16 bits.
MAX_SECTIONS = 1 << 16
# Largest size (bytes) of all symbol tables of a file together, and of each decompressed section with names of source
# files. 4 million symbols, more than any real library has, are read in two seconds.
MAX_SYMBOL_BYTES = 96 << 20
# Largest size (bytes) of a file's debugging information that is read: 42 MB take 0.2 s and 70 MB of memory.
MAX_DEBUG_BYTES = 200 << 20
# Largest size (bytes) of all notes of a file that are searched for its build id.
MAX_NOTE_BYTES = 1 << 18
# Size (bytes) that is assumed for a function without a size in the symbol table. Many functions in assembler code have
# no size.
ASSUMED_SIZE = 1 << 14
# Number of bytes of a table that are read at a time: a multiple of a symbol's size.
_CHUNK_BYTES = 24 << 15
# First bytes of an ELF file of 64 bits with little-endian numbers.
_MAGIC = b"\x7fELF\x02\x01"
# Layout of the file's header (Elf64_Ehdr).
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
# Layout of a segment's header (Elf64_Phdr): type and address.
_SEGMENT = struct.Struct("<I12xQ32x")
# Type of a segment that is loaded into memory (PT_LOAD).
_LOADED = 1
# Layout of a section's header (Elf64_Shdr).
_SECTION = struct.Struct("<IIQQQQIIQQ")
# Layout of a symbol (Elf64_Sym): name, info, section, address, size.
_SYMBOL = struct.Struct("<IBxHQQ")
# Layout of a note's header: sizes of name and description, type.
_NOTE = struct.Struct("<III")
# Types of sections: SHT_SYMTAB, SHT_NOTE, SHT_DYNSYM.
_SYMBOL_TABLE, _NOTES, _DYNAMIC_SYMBOLS = 2, 7, 11
# Type of the note with the build id (NT_GNU_BUILD_ID).
_BUILD_ID = 3
# _COMPRESSED: flag of a compressed section (SHF_COMPRESSED). _ZLIB: type of its compression (ELFCOMPRESS_ZLIB).
_COMPRESSED, _ZLIB = 1 << 11, 1
# Layout of the header of a compressed section (Elf64_Chdr).
_COMPRESSION = struct.Struct("<IIQQ")
# Types of function symbols: STT_FUNC, and STT_GNU_IFUNC (a function whose address is resolved at its first call).
_FUNCTIONS = (2, 10)
# Sections for source lines, by section name: debugging information, and the line table with the names of its files.
_LINE_SECTIONS = {
    b".debug_info": None,
    b".debug_line": StringTable.LINES,
    b".debug_str": StringTable.STRINGS,
    b".debug_line_str": StringTable.LINE_STRINGS,
}
# Largest number of bytes of a section's name that are read: the longest name in _LINE_SECTIONS with its zero byte.
_LONGEST_SECTION_NAME = 16


# Address and size of a function, and the place of its name in the file.
Function = tuple[int, int, int]
# Function (address, size, place of the name) for an address before the first function.
_NO_FUNCTION = (-1, -1, 0)


class CodePlaces(NamedTuple):
    """The mangled names of functions, and the source lines, by address of the file as linked.

    An address has the line of its function, and before it those of the functions that are inlined there, the innermost
    first. Addresses without a name or line are left out.
    """

    names: Mapping[int, str]
    lines: Mapping[int, tuple[CodeLine, ...]]


def places_in(descriptor: int, build_id: bytes, addresses: Iterable[int], with_lines: bool = True) -> CodePlaces | None:
    """The code at ``addresses`` of the open file ``descriptor``; None if it cannot be read, or has another build id.

    An empty ``build_id`` fits every file. Raises LimitExceeded.
    """
    wanted = sorted({address for address in addresses if 0 <= address < 1 << 63})
    try:
        file = ElfFile(descriptor)
        if build_id and build_id not in file.build_ids():
            return None
        names = file.names_at(wanted)
    except (OSError, InvalidElf):
        return None
    try:
        return CodePlaces(names, file.lines_at(wanted) if with_lines else {})
    except (OSError, InvalidElf):
        return CodePlaces(names, {})


class _Section(NamedTuple):
    """A header of a section."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


class ElfFile:
    """An ELF file, open for reading as ``descriptor``, which stays open."""

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidElf
        self._size = status.st_size
        self._headers = self._read_headers()

    def names_at(self, addresses: Sequence[int]) -> dict[int, str]:
        """The mangled names of the functions at ``addresses``, which are in order.

        Of several functions that begin at one address the largest counts.
        """
        # The last function that begins after the address before and not after each address.
        nearest: list[Function] = [_NO_FUNCTION] * len(addresses)
        end = addresses[-1] if addresses else -1
        for function in self.functions():
            if function[0] <= end:
                at = bisect_left(addresses, function[0])
                if function[:2] >= nearest[at][:2]:
                    nearest[at] = function
        names: dict[int, str] = {}
        address, size, place = _NO_FUNCTION
        for wanted, function in zip(addresses, nearest, strict=True):
            if function != _NO_FUNCTION:
                address, size, place = function
            if place and wanted < address + (size or ASSUMED_SIZE):
                name = self._text_at(place)
                if name:
                    names[wanted] = printable(name.decode("utf-8", "replace"))
        return names

    def lines_at(self, addresses: Sequence[int]) -> dict[int, tuple[CodeLine, ...]]:
        """The lines at ``addresses``, which are in order: those of inlined functions too.

        Without other debugging information than a table of lines of at most MAX_LINE_BYTES, an address has one line, of
        the program's own sources. Empty without any.
        """
        found = self._named_sections()
        if b".debug_info" in found and found[b".debug_info"].size <= MAX_DEBUG_BYTES:
            lines = inlined_lines(self._file, self._base(), addresses)
            if lines:
                return lines
        sections = {kind: found[name] for name, kind in _LINE_SECTIONS.items() if kind is not None and name in found}
        section = sections.get(StringTable.LINES)
        content = b"" if section is None else self._content(section)
        if not content:
            return {}
        rows = rows_at(content, addresses)
        texts: dict[TextPlace, bytes] = {}
        for kind in StringTable:
            offsets = {text.offset for file, _ in rows.values() for text in file.texts if text.table is kind}
            if kind is StringTable.LINES:
                strings = {offset: content[offset : offset + LONGEST_SYMBOL] for offset in offsets}
            else:
                strings = self._texts(sections[kind], sorted(offsets)) if kind in sections else {}
            texts |= {TextPlace(kind, offset): text for offset, text in strings.items()}
        return named(rows, texts)

    def functions(self) -> Iterator[Function]:
        """Address, size and place of the name of all functions, in the order of the tables. Raises LimitExceeded."""
        tables: dict[tuple[int, int, int, int], None] = {}
        for kind in (_DYNAMIC_SYMBOLS, _SYMBOL_TABLE):
            for section in self._sections():
                if section.type == kind:
                    names = self._section(section.link)
                    if section.entry != _SYMBOL.size or names is None or names.offset >= self._size:
                        raise InvalidElf
                    if section.size > self._size:
                        raise InvalidElf
                    # A table that several headers name counts once.
                    tables[section.offset, section.size, names.offset, names.size] = None
        if sum(size for _, size, _, _ in tables) > MAX_SYMBOL_BYTES:
            raise LimitExceeded
        for offset, size, names_offset, names_size in tables:
            for chunk in self._chunks(offset, size // _SYMBOL.size * _SYMBOL.size):
                for name, info, section_number, address, length in _SYMBOL.iter_unpack(chunk):
                    if info & 15 in _FUNCTIONS and section_number and name < names_size and address < 1 << 63:
                        yield address, length, names_offset + name

    def build_ids(self) -> Iterator[bytes]:
        """The build ids in the notes of the file."""
        notes = {(section.offset, section.size): None for section in self._sections() if section.type == _NOTES}
        rest = MAX_NOTE_BYTES
        for offset, size in notes:
            content = self._bytes(offset, size) if size <= rest else b""
            rest -= len(content)
            yield from _build_ids(content)

    def _base(self) -> int:
        """The address of the first segment that is loaded."""
        fields = _HEADER.unpack(self._bytes(0, _HEADER.size))
        offset, size, count = fields[5], fields[9], fields[10]
        if size == _SEGMENT.size:
            for kind, address in _SEGMENT.iter_unpack(self._bytes(offset, count * size)):
                if kind == _LOADED:
                    return int(address)
        return 0

    def _named_sections(self) -> dict[bytes, _Section]:
        """The sections in _LINE_SECTIONS by their names, of each name the first."""
        names = self._section(self._name_section)
        if names is None:
            return {}
        sections: dict[bytes, _Section] = {}
        for section in self._sections():
            at = names.offset + section.name
            name = os.pread(self._file, _LONGEST_SECTION_NAME, at) if at < self._size else b""
            name = name.split(b"\0", 1)[0]
            if name in _LINE_SECTIONS:
                sections.setdefault(name, section)
                if len(sections) == len(_LINE_SECTIONS):
                    break
        return sections

    def _content(self, section: _Section) -> bytes:
        """The content of a section, decompressed; empty if it is damaged or larger than MAX_LINE_BYTES."""
        if section.size > MAX_LINE_BYTES:
            return b""
        raw = self._bytes(section.offset, section.size)
        if not section.flags & _COMPRESSED:
            return raw
        if not _is_zlib(raw):
            return b""
        inflater = zlib.decompressobj()
        try:
            content = inflater.decompress(raw[_COMPRESSION.size :], MAX_LINE_BYTES)
        except zlib.error:
            return b""
        return b"" if inflater.unconsumed_tail else content

    def _texts(self, section: _Section, offsets: Sequence[int]) -> dict[int, bytes]:
        """LONGEST_SYMBOL bytes of a section from each of ``offsets`` on, which are in order; decompressed."""
        if section.flags & _COMPRESSED:
            return _pieces(self._inflated(section), offsets)
        return {
            offset: os.pread(self._file, min(LONGEST_SYMBOL, section.size - offset), section.offset + offset)
            for offset in offsets
            if offset < section.size and section.offset + offset < self._size
        }

    def _inflated(self, section: _Section) -> Iterator[bytes]:
        """The content of a compressed section, in parts, as far as it can be read and within MAX_SYMBOL_BYTES."""
        inflater: zlib._Decompress | None = None
        rest = MAX_SYMBOL_BYTES
        for raw in self._chunks(section.offset, section.size):
            if inflater is None:
                if not _is_zlib(raw):
                    return
                inflater, raw = zlib.decompressobj(), raw[_COMPRESSION.size :]
            while raw and rest > 0:
                try:
                    content = inflater.decompress(raw, _CHUNK_BYTES)
                except zlib.error:
                    return
                rest -= len(content)
                yield content
                raw = inflater.unconsumed_tail
            if rest <= 0 or inflater.eof:
                return

    def _read_headers(self) -> bytes:
        raw = self._bytes(0, _HEADER.size)
        if not raw.startswith(_MAGIC):
            raise InvalidElf
        fields = _HEADER.unpack(raw)
        offset, size, count, self._name_section = fields[6], fields[11], fields[12], fields[13]
        if not offset or (count and size != _SECTION.size):
            raise InvalidElf
        if not count:
            # More than fit into the header: the first section has the number.
            count = _Section(*_SECTION.unpack(self._bytes(offset, _SECTION.size))).size
        if count > MAX_SECTIONS:
            raise InvalidElf
        return self._bytes(offset, count * _SECTION.size)

    def _sections(self) -> Iterator[_Section]:
        return map(_Section._make, _SECTION.iter_unpack(self._headers))

    def _section(self, number: int) -> _Section | None:
        """Section ``number``; None if there is none."""
        if number * _SECTION.size >= len(self._headers):
            return None
        return _Section(*_SECTION.unpack_from(self._headers, number * _SECTION.size))

    def _text_at(self, place: int) -> bytes:
        """The text at ``place``, to its first zero."""
        raw = os.pread(self._file, LONGEST_SYMBOL, place) if 0 <= place < self._size else b""
        return raw.split(b"\0", 1)[0]

    def _chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """``size`` bytes from ``offset`` on, in parts."""
        if offset > self._size or size > self._size - offset:
            raise InvalidElf
        for at in range(offset, offset + size, _CHUNK_BYTES):
            yield self._bytes(at, min(_CHUNK_BYTES, offset + size - at))

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset > self._size or size > self._size - offset:
            raise InvalidElf
        raw = os.pread(self._file, size, offset)
        if len(raw) != size:
            raise InvalidElf
        return raw


def _is_zlib(raw: bytes) -> bool:
    """True if a compressed section that begins with ``raw`` is compressed with zlib."""
    return len(raw) >= _COMPRESSION.size and _COMPRESSION.unpack_from(raw)[0] == _ZLIB


def _pieces(parts: Iterable[bytes], offsets: Sequence[int]) -> dict[int, bytes]:
    """LONGEST_SYMBOL bytes of the joined ``parts`` from each of ``offsets`` on, which are in order."""
    pieces: dict[int, bytes] = {}
    window, first, waiting = b"", 0, list(reversed(offsets))
    for part in parts:
        window += part
        end = first + len(window)
        while waiting and waiting[-1] + LONGEST_SYMBOL <= end:
            offset = waiting.pop()
            pieces[offset] = window[offset - first : offset - first + LONGEST_SYMBOL]
        if not waiting:
            return pieces
        kept = min(max(waiting[-1], first), end)
        window, first = window[kept - first :], kept
    for offset in waiting:
        if offset < first + len(window):
            pieces[offset] = window[offset - first :][:LONGEST_SYMBOL]
    return pieces


def _build_ids(notes: bytes) -> Iterator[bytes]:
    at = 0
    while len(notes) - at >= _NOTE.size:
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        name = at + _NOTE.size
        content = name + (name_size + 3) // 4 * 4
        if kind == _BUILD_ID and notes[name : name + name_size] == b"GNU\0":
            yield notes[content : content + size]
        at = content + (size + 3) // 4 * 4
