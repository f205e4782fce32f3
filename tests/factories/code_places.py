"""Functions and lines of ELF files as the process that parses them reads them, in this process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stallprobes.watch.reading.code_files import open_regular
from stallprobes.watch.reading.elf_symbols import CodePlaces, ElfFile, places_in


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    """The descriptor of a file; None where it cannot be opened."""
    descriptor = open_regular(str(path))
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def places_of(path: Path, addresses: Iterable[int], build_id: bytes = b"") -> CodePlaces | None:
    """What is at addresses of a file; None where it cannot be read."""
    with opened(path) as descriptor:
        return None if descriptor is None else places_in(descriptor, build_id, addresses)


def function_of(path: Path, wanted: str) -> range:
    """The addresses of the function ``wanted``."""
    with opened(path) as descriptor:
        assert descriptor is not None
        file = ElfFile(descriptor)
        ranges = {address: range(address, address + size) for address, size, _ in file.functions() if size}
        names = file.names_at(sorted(ranges))
    return next(ranges[address] for address, name in names.items() if name == wanted)
