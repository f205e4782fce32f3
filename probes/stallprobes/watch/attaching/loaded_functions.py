"""Functions of a process's C library, found in its memory: its file may be another one by now, or not to be seen."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from stallprobes.errors import WatchError
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.target import Mapping, Target, remedy_for_rights

# Functions of the process that the attacher calls to load the library.
NAMES = ("dlopen", "dlsym", "dlerror", "__errno_location")
# Names of the libraries that have the functions of NAMES: before glibc 2.34, dlopen is in libdl.
_LIBRARIES = ("libc.so.6", "libdl.so.2")
# Machine code (x86-64) of "syscall; ret". The attacher needs its address in a process's C library to make system calls
# in a thread of the process.
_SYSCALL = b"\x0f\x05\xc3"
# Machine code (x86-64) of "mov $15, %rax; syscall" (rt_sigreturn). The attacher needs its address in a process's C
# library to give a borrowed thread its registers back.
_SIGRETURN = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"
# Type of the segment with the dynamic section of a module (ELF).
_PT_DYNAMIC = 2
# Tags in the dynamic section (ELF). _DT_STRTAB: strings. _DT_SYMTAB: symbols. _DT_STRSZ: size of the strings.
_DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 5, 6, 10
# Type of a symbol that is a function (STT_FUNC).
_FUNCTION = 2
# Layout of a symbol (Elf64_Sym).
_SYMBOL = struct.Struct("<IBBHQQ")
# Largest size (bytes) of an executable mapping that is searched for machine code. Larger mappings are skipped. At most
# this number of bytes is also read from a module's symbol table, and from its table of names.
_MOST_BYTES = 1 << 24


def find_functions(target: Target, image: ProcessImage) -> tuple[int, ...]:
    """The addresses in a process of "syscall; ret", of what calls ``rt_sigreturn``, and of the functions NAMES.

    Raises WatchError where they cannot be read or found.
    """
    functions: dict[str, int] = {}
    places: dict[bytes, int] = {}
    try:
        memory = [mapping for mapping in target.mappings() if mapping.path]
        for library in _LIBRARIES:
            parts = [mapping for mapping in memory if _name(mapping) == library]
            for name, address in _symbols(image, parts):
                functions.setdefault(name, address)
            for wanted in (_SYSCALL, _SIGRETURN):
                place = None if wanted in places else _search(image, parts, wanted)
                if place is not None:
                    places[wanted] = place
    except (OSError, struct.error) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no C library, or changes meanwhile"
        raise WatchError(f"the memory of {target.title} cannot be read ({why}): {remedy_for_rights()}.") from error
    missing = [name for name in NAMES if name not in functions]
    if missing or len(places) < 2:
        what = ", ".join(missing) or "system calls"
        raise WatchError(
            f"{what} cannot be found in the C library of {target.title}: only programs with glibc can be attached."
        )
    return places[_SYSCALL], places[_SIGRETURN], *(functions[name] for name in NAMES)


def _name(part: Mapping) -> str:
    # Before glibc 2.34 the files had the version in their names; a file that was replaced has a word behind it.
    name = part.path.removesuffix(" (deleted)").rpartition("/")[2]
    for library in _LIBRARIES:
        stem = library.partition(".")[0]
        if name == library or (name.startswith(f"{stem}-2.") and name.endswith(".so")):
            return library
    return name


def _search(image: ProcessImage, parts: Sequence[Mapping], wanted: bytes) -> int | None:
    for part in parts:
        if "x" in part.mode and part.end - part.start <= _MOST_BYTES:
            at = image.read(part.start, part.end - part.start).find(wanted)
            if at >= 0:
                return part.start + at
    return None


def _symbols(image: ProcessImage, parts: Sequence[Mapping]) -> Iterator[tuple[str, int]]:
    """The functions NAMES of a library that is loaded at ``parts``, with their addresses."""
    if not parts:
        return
    base = min(part.start for part in parts)
    dynamic = dict(_dynamic(image, base))
    if _DT_SYMTAB not in dynamic or _DT_STRTAB not in dynamic or _DT_STRSZ not in dynamic:
        return
    # The dynamic linker has made addresses of them.
    symbols, strings = dynamic[_DT_SYMTAB], dynamic[_DT_STRTAB]
    names = image.read(strings, min(dynamic[_DT_STRSZ], _MOST_BYTES))
    count = max((strings - symbols) // _SYMBOL.size, 0)
    table = image.read(symbols, min(count * _SYMBOL.size, _MOST_BYTES))
    offsets = {names.find(b"\0" + name.encode() + b"\0") + 1: name for name in NAMES}
    # A name may also be the end of a longer one.
    for name, kind, _, section, value, _ in _SYMBOL.iter_unpack(table[: len(table) // _SYMBOL.size * _SYMBOL.size]):
        if section and kind & 15 == _FUNCTION and name < len(names):
            text = offsets.get(name) or _text(names, name)
            if text in NAMES:
                yield text, base + value


def _text(names: bytes, at: int) -> str:
    end = names.find(b"\0", at)
    return names[at:end].decode(errors="replace") if 0 <= end - at <= 32 else ""


def _dynamic(image: ProcessImage, base: int) -> Iterator[tuple[int, int]]:
    header = image.read(base, 64)
    if header[:5] != b"\x7fELF\x02":
        return
    table, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
    for number in range(count):
        kind, _, _, address = struct.unpack_from("<IIQQ", image.read(base + table + number * size, size))
        if kind == _PT_DYNAMIC:
            raw = image.read(base + address, 16 * 128)
            for at in range(0, len(raw) - 15, 16):
                tag, value = struct.unpack_from("<qQ", raw, at)
                if not tag:
                    return
                yield tag, value
