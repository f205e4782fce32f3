"""The collector's flag in memory that is made here, by the tables of offsets of interpreters."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest

from factories.python_memory import COOKIE, TABLES
from stallprobes.watch.reading.garbage_collector import find_flag, is_set

START = 0x5000
# Positions in the tables from the word of the version on.
RUNTIME, HEAD, NEXT, COLLECTOR = 2, 4, 7, {"3.13": 9, "3.14": 10, "3.15": 10}
FLAG = {"3.13": 200, "3.14": 192, "3.15": 152}
# The section on the collector, which follows the recorded words of 3.15, is made.
TABLE = {**TABLES, "3.15.2": (*TABLES["3.15.2"], 184, 152, 160)}


def made(folder: Path, table: tuple[int, ...], interpreters: list[int]) -> range:
    """A process whose interpreters, the newest first, lie at offsets in its state, or elsewhere."""
    memory = bytearray(START + 0x80000)
    struct.pack_into(f"<{1 + len(table)}Q", memory, START, COOKIE, *table)
    struct.pack_into("<Q", memory, START + table[HEAD], START + interpreters[0])
    for at, following in pairwise(interpreters):
        struct.pack_into("<Q", memory, START + at + table[NEXT], START + following)
    (folder / "mem").write_bytes(memory)
    return range(START, START + table[RUNTIME])


@pytest.mark.parametrize("version", TABLE)
def test_the_flag_of_the_main_interpreter_is_found_by_the_table(tmp_path: Path, version: str) -> None:
    table, main = TABLE[version], 4096
    runtime = made(tmp_path, table, [0x70000, main])
    found = find_flag(tmp_path, runtime)
    assert found == START + main + table[COLLECTOR[version[:4]]] + FLAG[version[:4]]
    assert is_set(tmp_path, found) is False
    content = bytearray((tmp_path / "mem").read_bytes())
    content[found] = 1
    (tmp_path / "mem").write_bytes(content)
    assert is_set(tmp_path, found) is True


@pytest.mark.parametrize("version", TABLE)
def test_another_table_gives_no_flag(tmp_path: Path, version: str) -> None:
    table = TABLE[version]
    for other in ((0x031000F0, *table[1:]), (table[0], 1, *table[2:])):
        assert find_flag(tmp_path, made(tmp_path, other, [4096])) is None
    # The main interpreter is in _PyRuntime, and the list of interpreters ends.
    assert find_flag(tmp_path, made(tmp_path, table, [0x70000])) is None
    assert find_flag(tmp_path, made(tmp_path, table, [4096, 8192, 4096])) is None
    # Where the sections lie otherwise, none has the size of the collector.
    at = COLLECTOR[version[:4]]
    moved = (*table[:at], table[at] - 512, *table[at + 1 :])
    assert find_flag(tmp_path, made(tmp_path, moved, [4096])) is None
