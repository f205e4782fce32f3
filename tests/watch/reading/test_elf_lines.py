"""Lines of sources by address, as compilers write them for each version of DWARF."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from factories.code_places import function_of, places_of
from factories.stand_in import COMPILER
from stallprobes.watch.reading.code_lines import LIBRARY_SOURCE, CodeLine
from stallprobes.watch.reading.elf_lines import FilePlace, StringTable, TextPlace, named, rows_at

SOURCE = """#include <stdlib.h>
static int __attribute__((noinline)) first(int value)
{
    return value * 3 + atoi("1");
}

int __attribute__((noinline)) second(int value)
{
    int found = first(value);  /* line 9 */
    return found + rand();
}

int main(int count, char **arguments)
{
    (void)arguments;
    return second(count);
}
"""


def build(folder: Path, *options: str) -> Path:
    assert COMPILER is not None
    source, program = folder / "solver.c", folder / "solver"
    source.write_text(SOURCE)
    subprocess.run([COMPILER, *options, "-o", str(program), str(source)], check=True, capture_output=True)
    return program


def lines_of(program: Path, addresses: Iterable[int]) -> Mapping[int, CodeLine]:
    """The innermost line of the program's own code at each address."""
    places = places_of(program, addresses)
    assert places is not None
    own = {
        address: [line for line in lines if not LIBRARY_SOURCE.search(line.file)]
        for address, lines in places.lines.items()
    }
    return {address: lines[0] for address, lines in own.items() if lines}


@pytest.mark.parametrize("version", [2, 3, 4, 5])
@pytest.mark.parametrize("options", [["-O0"], ["-O2"], ["-O2", "-gsplit-dwarf"]])
def test_the_lines_of_each_function_are_its_own(tmp_path: Path, version: int, options: list[str]) -> None:
    program = build(tmp_path, "-g", f"-gdwarf-{version}", *options)
    for name, first, last in (("first", 2, 5), ("second", 7, 11), ("main", 13, 17)):
        found = lines_of(program, function_of(program, name))
        assert found
        assert {Path(line.file).name for line in found.values()} == {"solver.c"}
        assert {line.line for line in found.values()} <= set(range(first, last + 1))
    assert any(line == 9 for _, _, line in lines_of(program, function_of(program, "second")).values())


def test_compressed_tables_are_read(tmp_path: Path) -> None:
    program = build(tmp_path, "-g", "-gz=zlib")
    assert any(line.line == 9 for line in lines_of(program, function_of(program, "second")).values())


def test_a_program_without_a_table_has_no_lines(tmp_path: Path) -> None:
    program = build(tmp_path, "-g0")
    assert lines_of(program, function_of(program, "second")) == {}


def test_a_large_table_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallprobes.watch.reading.elf_symbols.MAX_LINE_BYTES", 16)
    program = build(tmp_path, "-g", "-gsplit-dwarf")
    assert lines_of(program, function_of(program, "second")) == {}


@pytest.mark.skipif(shutil.which("addr2line") is None, reason="no addr2line")
def test_lines_are_those_of_addr2line(tmp_path: Path) -> None:
    program = build(tmp_path, "-O2", "-g")
    addresses = [address for name in ("first", "second", "main") for address in function_of(program, name)]
    found = lines_of(program, addresses)
    command = ["addr2line", "-e", str(program), *map(hex, addresses)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for address, text in zip(addresses, said, strict=True):
        file, _, line = text.split(" ")[0].rpartition(":")
        # Code of headers is a part of the functions too.
        if line.isdecimal() and int(line) and Path(file).name == "solver.c":
            assert found[address].line == int(line)
            assert Path(found[address].file).name == Path(file).name


def test_code_of_headers_has_no_line_of_the_program() -> None:
    names = (b"/usr/include/c++/12/atomic", b"/home/me/solver.cu", b"")
    places = [TextPlace(StringTable.LINES, number) for number in range(len(names))]
    rows = {number: (FilePlace(place), 24) for number, place in enumerate(places)}
    texts = {place: name + b"\0" for place, name in zip(places, names, strict=True)}
    assert named(rows, texts) == {1: (CodeLine("", "/home/me/solver.cu", 24),)}
    assert rows_at(b"", [1]) == {}


@pytest.mark.parametrize("version", [4, 5])
def test_damaged_tables_end_without_harm(tmp_path: Path, version: int) -> None:
    program = build(tmp_path, "-g", f"-gdwarf-{version}")
    raw = bytearray(program.read_bytes())
    at = raw.find(b"solver.c\0")
    dice = random.Random(version)
    for _ in range(300):
        damaged = bytearray(raw)
        for _ in range(8):
            damaged[dice.randrange(len(damaged) // 2, len(damaged))] = dice.randrange(256)
        damaged[at] = dice.randrange(256)
        program.write_bytes(damaged)
        places_of(program, [0, 0x1139, 1 << 62])


def test_random_bytes_are_no_lines() -> None:
    dice = random.Random(3)
    for size in range(200):
        raw = dice.randbytes(size)
        unit = (size + 2).to_bytes(4, "little") + (5).to_bytes(2, "little") + raw
        rows_at(unit, [0, 5])
