"""The reader of Python's frames on structures that are made here: each known version, and what is not as expected."""

from __future__ import annotations

import argparse
import ctypes
import json.decoder
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from factories.python_memory import (
    BYTES_TYPE,
    CUT,
    FREE_THREADED,
    FUNCTION_TYPE,
    KNOWN,
    NONE_TYPE,
    TABLES,
    UNKNOWN,
    FrameReader,
    Layout,
    Memory,
    build_reader,
    expected_layout,
    learn,
    memory_of,
)
from factories.stand_in import COMPILER
from stallprobes.native.layouts.watch_file import StackFlag

# An entry for eight instructions in the line before, and so on.
SAME_LINE, NEXT_LINE, NO_LINE = bytes([0x87, 0]), bytes([0x80 | 11 << 3 | 7, 0, 0]), bytes([0x80 | 15 << 3 | 7])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if COMPILER is None:
        pytest.skip("no C compiler")
    return build_reader(tmp_path_factory.mktemp("reader"))


@pytest.fixture
def reader(library: ctypes.CDLL) -> Iterator[FrameReader]:
    made = FrameReader(library)
    yield made
    assert made.is_drained()
    made.close()


@pytest.fixture(params=list(TABLES))
def memory(library: ctypes.CDLL, request: pytest.FixtureRequest) -> Iterator[Memory]:
    with memory_of(library, request.param) as made:
        yield made


def code(memory: Memory, name: str = "step", table: bytes = SAME_LINE, first_line: int = 42) -> int:
    """Code of a function in train.py."""
    return memory.code(memory.string("train.py"), memory.string(name), memory.bytes(table), first_line)


def line(number: int | str = 42, name: str = "step", file: str = '"train.py"') -> str:
    return f"  File {file}, line {number} in {name}\n"


@pytest.mark.parametrize("version", TABLES)
def test_the_layout_of_a_known_version(library: ctypes.CDLL, version: str) -> None:
    layout = Layout()
    assert learn(library, TABLES[version], layout) == KNOWN
    expected = expected_layout(version)
    assert {name: getattr(layout, name) for name in expected} == expected
    assert CUT == StackFlag.PYTHON_CUT


@pytest.mark.parametrize("version", TABLES)
def test_another_table_is_refused(library: ctypes.CDLL, version: str) -> None:
    table = TABLES[version]
    assert learn(library, table, Layout(), cookie=0) == UNKNOWN
    assert learn(library, (table[0], 1, *table[2:]), Layout()) == FREE_THREADED
    for other in (0x030C01F0, 0x031000F0, 0x040D00F0, (table[0] & ~0xFF) | 0xA1, (table[0] & ~0xFF) | 0xB4):
        assert learn(library, (other, *table[1:]), Layout()) == UNKNOWN
    for other_version, other_table in TABLES.items():
        if other_version[:4] != version[:4]:
            assert learn(library, (table[0], *other_table[1:]), Layout()) == UNKNOWN
    # One more word somewhere, or one less, before what is read last.
    for at in range(2, len(table) - 8):
        assert learn(library, (*table[:at], 24, *table[at:]), Layout()) == UNKNOWN
        assert learn(library, (*table[:at], *table[at + 1 :]), Layout()) == UNKNOWN


def codes_in(outer: CodeType) -> Iterator[CodeType]:
    yield outer
    for constant in outer.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def test_the_line_of_each_instruction(memory: Memory, reader: FrameReader) -> None:
    """Tables of lines have had one form from 3.11 on, so this interpreter's are used."""
    path = argparse.__file__ if memory.version == "3.14.10" else json.decoder.__file__
    whole = compile(Path(path).read_text(), path, "exec")
    begin = memory.used
    for found in codes_in(whole):
        memory.used = begin
        made = code(memory, table=found.co_linetable, first_line=found.co_firstlineno)
        after = memory.used
        for instruction, position in enumerate(found.co_positions()):
            memory.used = after
            number = position[0] or "???"
            assert reader.text(memory, memory.frame(made, instruction)) == (line(number), False)


def test_lines_of_every_form(memory: Memory, reader: FrameReader) -> None:
    table = (
        SAME_LINE
        + NEXT_LINE
        + NO_LINE
        # With a number of lines in two bytes, back and forward, and columns in long form.
        + bytes([0x80 | 13 << 3, 0x40 | 9, 3])
        + bytes([0x80 | 14 << 3, 0x40 | 8, 3, 1, 2, 3])
        + bytes([0x80 | 12 << 3, 1, 2])
    )
    made = code(memory, table=table)
    expected = [42] * 8 + [43] * 8 + ["???"] * 8 + [43 - 100, 43, 45, "???"]
    for instruction, number in enumerate(expected):
        shown = number if isinstance(number, str) or number > 0 else "???"
        assert reader.text(memory, memory.frame(made, instruction)) == (line(shown), False)
    # One that has not begun.
    assert reader.text(memory, memory.frame(made, -1)) == (line(), False)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("step", "step"), ("café", "caf\\xe9"), ("путь", "\\u043f\\u0443\\u0442\\u044c"), ("\U0001f600", "\\U0001f600"),
        ("a\n\x7f", "a\\x0a\\x7f"), ("", ""), ("f" * 500, "f" * 500), ("f" * 501, "f" * 500 + "..."),
        ("ж" * 600, "\\u0436" * 500 + "..."),
    ],
)  # fmt: skip
def test_names(memory: Memory, reader: FrameReader, name: str, shown: str) -> None:
    assert reader.text(memory, memory.frame(code(memory, name), 0)) == (line(name=shown), False)
    # Where the name ends, memory may.
    at_end = memory.string(name, at_end=True)
    made = memory.code(memory.string("train.py"), at_end, memory.bytes(SAME_LINE), 42)
    assert reader.text(memory, memory.frame(made, 0)) == (line(name=shown), False)


def test_what_is_no_name_or_table_is_left_open(memory: Memory, reader: FrameReader) -> None:
    name, table, other = memory.string("step"), memory.bytes(SAME_LINE), memory.put(bytes(8) + b"\1" * 56)
    for file, expected in (
        (0, line(file="???")),
        (other, line(file="???")),
        (memory.string("x", compact=False), line(file="???")),
        (memory.string("x", kind=3), line(file="???")),
    ):
        assert reader.text(memory, memory.frame(memory.code(file, name, table, 42), 0)) == (expected, False)
    made = memory.code(memory.string("train.py"), name, other, 42)
    assert reader.text(memory, memory.frame(made, 0)) == (line("???"), False)


def test_only_frames_with_code_of_the_program_are_shown(memory: Memory, reader: FrameReader) -> None:
    none = memory.put((1).to_bytes(8, "little") + NONE_TYPE.to_bytes(8, "little") + bytes(240))
    outer = memory.frame(code(memory, "main"), 0)
    # What calls Python from C, with None as its code, and what checks the result of __init__.
    for owner, inner_code in ((3, none), (4, none), (0, none), (3, code(memory, "no"))):
        inner = memory.frame(code(memory), 0, memory.frame(inner_code, 0, outer, owner))
        assert reader.text(memory, inner) == (line() + line(name="main"), False)
    init = memory.string("__init__")
    check = memory.frame(memory.code(init, init, memory.bytes(NO_LINE), 0), 0, outer)
    assert reader.text(memory, memory.frame(code(memory), 0, check)) == (line() + line(name="main"), False)
    # Of generators and of frames that an object has.
    inner = memory.frame(code(memory), 0, memory.frame(code(memory, "owned"), 0, outer, 2), 1)
    assert reader.text(memory, inner) == (line() + line(name="owned") + line(name="main"), False)
    assert reader.text(memory, 0) == ("", False)


def test_how_a_reference_is_counted_does_not_matter(memory: Memory, reader: FrameReader) -> None:
    made = code(memory)
    frame = memory.frame(made, 3)
    memory.set_word(frame, made | 1)
    assert reader.text(memory, frame) == (line(), False)


def test_the_number_of_frames_is_limited(memory: Memory, reader: FrameReader) -> None:
    made = code(memory)
    frame = 0
    for _ in range(100):
        frame = memory.frame(made, 0, frame)
    assert reader.text(memory, frame) == (line() * 100, False)
    assert reader.text(memory, memory.frame(made, 0, frame)) == (line() * 100, True)
    # A circle.
    memory.set_word(frame + 8, frame)
    assert reader.text(memory, frame) == (line() * 100, True)
    shim = memory.frame(memory.put(bytes(256)), 0, 0, 3)
    memory.set_word(shim + 8, shim)
    assert reader.text(memory, shim) == ("", True)


def test_the_text_ends_with_a_whole_line(memory: Memory, reader: FrameReader) -> None:
    frame = memory.frame(code(memory), 0, memory.frame(code(memory, "main"), 0))
    whole = line() + line(name="main")
    assert reader.text(memory, frame, len(whole)) == (whole, False)
    assert reader.text(memory, frame, len(whole) - 1) == (line(), True)
    assert reader.text(memory, frame, len(line()) - 1) == ("", True)


def test_what_cannot_be_read_ends_the_text(memory: Memory, reader: FrameReader) -> None:
    nowhere = memory.unreadable
    outer = memory.frame(code(memory, "main"), 0)
    for bad in (8, nowhere, nowhere - 8, 1 << 63, (1 << 64) - 8):
        inner = memory.frame(code(memory), 0, bad)
        assert reader.text(memory, inner) == (line(), True)
        assert reader.text(memory, bad) == ("", True)
        inner = memory.frame(code(memory), 0, memory.frame(bad & ~7, 0, outer))
        assert reader.text(memory, inner)[0] in (line(), line() + line(name="main"))
        string = memory.string("x")
        for file, name, table in ((bad, string, string), (string, bad, string), (string, string, bad)):
            broken = memory.frame(memory.code(file, name, table, 1), 0, outer)
            assert reader.text(memory, memory.frame(code(memory), 0, broken)) == (line(), True)


def test_a_table_without_an_end_ends(memory: Memory, reader: FrameReader) -> None:
    endless = memory.bytes(SAME_LINE * 4, size=1 << 40)
    made = memory.code(memory.string("train.py"), memory.string("step"), endless, 42)
    assert reader.text(memory, memory.frame(made, 31)) == (line(), False)
    assert reader.text(memory, memory.frame(made, 1 << 30)) == ("", True)
    # A number of lines without an end.
    made = code(memory, table=bytes([0x80 | 13 << 3]) + b"\x7f" * 40)
    assert reader.text(memory, memory.frame(made, 0))[0].startswith('  File "train.py", line ')


def test_damaged_structures_do_no_harm(memory: Memory, reader: FrameReader) -> None:
    """Random bytes and words in frames, code and strings: a text of whole lines, and an end."""
    chance = random.Random(memory.version)
    frame = 0
    for name in ("main", "путь", "step"):
        frame = memory.frame(code(memory, name, SAME_LINE + NEXT_LINE + NO_LINE), chance.randrange(24), frame)
    used = bytes(memory.pages[: memory.used])
    addresses = [memory.start, memory.unreadable, memory.unreadable - 3, frame, 0, BYTES_TYPE, (1 << 64) - 1]
    for _ in range(3000):
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(memory.used // 8)
            word = chance.choice([*addresses, chance.randrange(1 << 64), chance.randrange(1 << 12)])
            memory.set_word(memory.start + 8 * at, word)
        text, _ = reader.text(memory, frame)
        assert not text or text.endswith("\n")
        memory.pages[: len(used)] = used


def test_the_owner_of_an_awaited_rlock_is_known(memory: Memory, reader: FrameReader) -> None:
    lock = memory.rlock(owner=9)
    word = 0 if memory.layout.has_mutex else lock - 16
    made = code(memory)
    # A variable, an address that cannot be read, no object, and the lock, which may have other bits in its reference.
    number = memory.put(struct.pack("<5Q", 1, NONE_TYPE, 1, 2, 3))
    for reference in (lock, lock | 1):
        frame = memory.frame_with(made, [number, memory.unreadable, 5, reference])
        assert reader.awaited_lock(memory, frame) == (lock, 9, word)
    # A method of it.
    method = memory.put(struct.pack("<5Q", 1, FUNCTION_TYPE, 0, lock, 0))
    assert reader.awaited_lock(memory, memory.frame_with(made, [number, method])) == (lock, 9, word)
    # A frame of a call from C in front of it.
    inner = memory.frame(0, 0, memory.frame_with(made, [lock]), owner=3)
    assert reader.awaited_lock(memory, inner) == (lock, 9, word)


def test_another_lock_than_an_awaited_one_of_another_thread_has_no_owner(memory: Memory, reader: FrameReader) -> None:
    made = code(memory)
    locks = [
        memory.rlock(owner=7),
        memory.rlock(owner=0),
        memory.rlock(owner=9, awaited=False),
        memory.rlock(owner=9, name="_thread.RLocks"),
        memory.rlock(owner=9, count=1 << 30),
    ]
    for lock in locks:
        assert reader.awaited_lock(memory, memory.frame_with(made, [lock])) is None
    # Of two of them, it is not known for which the thread may wait.
    first, second = memory.rlock(owner=9), memory.rlock(owner=10)
    assert reader.awaited_lock(memory, memory.frame_with(made, [first, second])) is None
    assert reader.awaited_lock(memory, memory.frame_with(made, [])) is None
    if memory.layout.stack_end:
        # The words of a call are the last ones.
        assert reader.awaited_lock(memory, memory.frame_with(made, [first, 0, 0, 0, 0])) is None


def test_a_thread_is_found_by_its_number_on_both_sides(memory: Memory, reader: FrameReader) -> None:
    last = memory.thread(0, 3)
    middle = memory.thread(0, 2, following=last)
    first = memory.thread(0, 1, following=middle)
    memory.set_word(last, middle)
    memory.set_word(middle, first)
    for thread in (first, middle, last):
        assert [reader.state_of(memory, thread, ident) for ident in (1, 2, 3, 4)] == [first, middle, last, None]
    # A list that changes meanwhile may have no end.
    memory.set_word(last + 8, first)
    assert reader.state_of(memory, first, 4) is None


def test_the_thread_inside_a_with_statement_of_a_lock_is_found(memory: Memory, reader: FrameReader) -> None:
    lock, made = memory.lock(), code(memory)
    held, other = memory.with_statement(lock), memory.with_statement(memory.lock())
    size = len(held)
    waiter = memory.thread(memory.frame_with(made, [lock]), 7)
    word = 0 if memory.layout.has_mutex else lock - 16
    assert reader.awaited_lock(memory, memory.frame_with(made, [lock])) == (lock, 0, word)
    for changed in (memory.lock(held=False), memory.lock(awaited=False)):
        assert reader.awaited_lock(memory, memory.frame_with(made, [changed])) is None

    def found(words: list[int], instruction: int, also: int = 0, outer: bool = False) -> bool:
        # Instructions 8 to 65 are inside two with statements, and 70 to 79 inside one.
        block = code(memory)
        frame = memory.frame_with(
            block,
            [0, 0, *words],
            instruction,
            [0x88, 58, 0x41, 16, 4 * size, 0xC1, 6, 10, 0x41, 26, 2 * size],
            len(words),
        )
        thread = memory.thread(memory.frame(made, 0, frame) if outer else frame, 8)
        memory.set_word(waiter + 8, thread)
        memory.set_word(waiter, also)
        return reader.state_within(memory, waiter, lock) == thread

    assert found([*other, *held, 5], 8)
    assert found([*other, *held, 5], 65)
    assert found([*other, *held, 5], 65, outer=True)
    assert found([*held, 5, 5], 75)
    # Behind the first word, the stack may have what was there before.
    assert not found([*other, *held, 5], 75)
    assert not found([*held, *other, 5], 66)
    assert not found([*held, *other, 5], 4)
    assert not found([*other, *other, *held], 8)
    if memory.layout.has_mutex:
        # An argument of a call that is being prepared.
        assert not found([0, lock, 5], 75)
        assert not found([*memory.with_statement(lock, "acquire"), 5], 75)
    # Of two threads, one may have given it back for a while.
    second = memory.thread(
        memory.frame_with(code(memory), [0, 0, *held, 5, 5], 8, [0x88, 58, 0x41, 16, 2 * size], size + 2), 9
    )
    assert not found([*held, 5, 5], 75, also=second)
    # One that waits for another lock, as for a condition.
    inside = memory.frame_with(code(memory), [0, 0, *held, 5, 5], 8, [0x88, 58, 0x41, 16, 2 * size], size + 2)
    awaits = memory.frame_with(made, [memory.lock()])
    memory.set_word(awaits + 8, inside)
    memory.set_word(waiter + 8, memory.thread(awaits, 8))
    memory.set_word(waiter, 0)
    assert reader.state_within(memory, waiter, lock) is None
