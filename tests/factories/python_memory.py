"""Structures of a Python interpreter in memory that is made for a test, and the injected library's reader of frames.

The tables of offsets are those of interpreters for x86-64.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from factories.stand_in import COMPILER
from stallprobes.native.building.libraries import FLAGS, write_header
from stallprobes.native.sources import NATIVE

COOKIE = int.from_bytes(b"xdebugpy", "little")
# From the word of the version on.
TABLES = {
    "3.13.0": (
        0x030D00F0, 0, 283320, 608, 632, 194968, 7272, 7264, 7344, 7400, 7656, 7640, 7648, 16, 7752, 0, 7768, 7760, 304,
        0, 8, 16, 72, 152, 160, 232, 32, 80, 8, 0, 56, 72, 70, 208, 112, 120, 128, 136, 68, 52, 96, 104, 200, 16, 8,
        416, 24, 88, 168, 32, 24, 16, 40, 24, 16, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40, 240, 200,
    ),
    "3.13.18": (
        0x030D12F0, 0, 283408, 608, 632, 194984, 7272, 7264, 7344, 7400, 7656, 7640, 7648, 16, 7752, 0, 7768, 7760, 312,
        0, 8, 16, 72, 152, 160, 232, 32, 80, 8, 0, 56, 72, 70, 208, 112, 120, 128, 136, 68, 52, 96, 104, 200, 16, 8,
        416, 24, 88, 168, 32, 24, 16, 40, 24, 16, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40, 240, 200,
    ),
    "3.14.10": (
        0x030E0AF0, 0, 316616, 784, 808, 225864, 7280, 7272, 7344, 7360, 7408, 7688, 7672, 7680, 16, 7784, 0, 7800,
        7792, 7992, 0, 832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0, 56, 80, 74, 64, 0, 216, 112, 120, 128, 136, 68,
        52, 96, 104, 208, 0, 16, 8, 416, 24, 88, 168, 40, 32, 16, 40, 24, 16, 200, 24, 40, 32, 48, 32, 40, 24, 16, 32,
        16, 24, 40, 16, 32, 64, 32, 16, 40, 264, 192,
    ),
    "3.15.2": (
        0x030F02F0, 0, 346568, 912, 936, 226240, 7272, 7264, 7336, 7352, 7400, 7592, 7576, 7584, 16, 7736, 0, 7752,
        7744, 7944, 0, 888, 0, 8, 16, 72, 80, 88, 96, 176, 184, 256, 32, 36, 40, 136, 288, 0, 88, 8, 0, 56, 80, 74, 64,
        0, 216, 112, 120, 128, 136, 68, 52, 96, 104, 208, 0, 16, 8, 424, 24, 88, 168, 32, 288, 944, 888, 40, 32, 16, 40,
        24, 16, 200, 24, 40, 32, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40, 56,
    ),
}  # fmt: skip
# What the reader needs of them; the words that all have alike are set below.
OWNERS = {"3.13.0": 70, "3.13.18": 70, "3.14.10": 74, "3.15.2": 74}
INSTRUCTIONS = {"3.13.0": 200, "3.13.18": 200, "3.14.10": 208, "3.15.2": 208}
KNOWN, UNKNOWN, FREE_THREADED = 0, 1, 2
CUT = 2
FUNCTION_TYPE = 0x5555555555550
CODE_TYPE, STRING_TYPE, BYTES_TYPE, NONE_TYPE = 0x1111111111110, 0x2222222222220, 0x3333333333330, 0x4444444444440
_PAGES = 64


class Layout(ctypes.Structure):
    """As ``struct ss_python_layout``."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "thread_frame", "thread_cframe", "cframe_frame", "previous", "executable", "instruction", "owner",
            "variables", "stack_end", "thread_ident", "file", "name", "table", "first_line", "instructions", "type",
            "bytes_size", "bytes_text", "string_state", "string_length", "ascii_bytes", "other_bytes", "code_type",
            "string_type", "bytes_type", "function_type", "has_mutex",
        )
    )  # fmt: skip


# What the reader uses of the rest of the library.
_REST = """\
#include <sys/syscall.h>
#include <unistd.h>
#include "state.h"
uint32_t ss_file;
int ss_file_status(int descriptor, struct stat *status)
{
    return (int)syscall(SYS_fstat, descriptor, status);
}
"""


def expected_layout(version: str) -> dict[str, int]:
    """The layout of this version, but for the types."""
    return {
        "thread_frame": 72, "thread_cframe": 0, "cframe_frame": 0, "previous": 8, "executable": 0, "instruction": 56,
        "owner": OWNERS[version], "variables": 80 if version > "3.14" else 72,
        "stack_end": 64 if version > "3.14" else 0, "thread_ident": 176 if version > "3.15" else 152,
        "has_mutex": version > "3.14", "file": 112, "name": 120, "table": 136, "first_line": 68,
        "instructions": INSTRUCTIONS[version], "type": 8, "bytes_size": 16, "bytes_text": 32, "string_state": 32,
        "string_length": 16, "ascii_bytes": 40, "other_bytes": 56,
    }  # fmt: skip


def build_reader(folder: Path) -> ctypes.CDLL:
    """Build and load the library's reader of frames alone."""
    assert COMPILER is not None
    write_header(folder)
    target = folder / "python_frames.so"
    includes = [f"-I{folder}", *(f"-I{NATIVE / each}" for each in ("common", "cupti", "inject"))]
    options = [*FLAGS, "-Werror", "-shared", "-fvisibility=default"]
    rest = folder / "rest.c"
    rest.write_text(_REST)
    sources = [*(str(NATIVE / "inject" / name) for name in ("python_frames.c", "own_memory.c")), str(rest)]
    subprocess.run([COMPILER, *options, *includes, *sources, "-o", str(target)], check=True, capture_output=True)
    return ctypes.CDLL(str(target))


def learn(library: ctypes.CDLL, table: Sequence[int], layout: Layout, cookie: int = COOKIE) -> int:
    """What the reader says of an interpreter with this table."""
    words = (ctypes.c_uint64 * 96)(cookie, *table)
    return int(library.ss_learn_python(ctypes.byref(layout), words))


@dataclass
class Memory:
    """An interpreter of one version, in pages of which the last one cannot be read."""

    version: str
    pages: mmap.mmap
    start: int
    layout: Layout = field(default_factory=Layout)
    used: int = 0

    @property
    def unreadable(self) -> int:
        """The address behind what can be read."""
        return self.start + (_PAGES - 1) * mmap.PAGESIZE

    def put(self, data: bytes, at_end: bool = False) -> int:
        """Put something there; returns its address. ``at_end``: right before what cannot be read."""
        offset = (_PAGES - 1) * mmap.PAGESIZE - len(data) if at_end else self.used
        self.pages[offset : offset + len(data)] = data
        if not at_end:
            self.used += (len(data) + 15) // 16 * 16
        return self.start + offset

    def string(self, text: str, kind: int | None = None, **how: bool) -> int:
        """A string as the interpreter keeps it; ``kind`` bytes for a character."""
        highest = max(map(ord, text), default=0)
        size = kind or (1 if highest < 0x100 else 2 if highest < 0x10000 else 4)
        is_ascii = highest < 0x80
        state = size << 2 | how.get("compact", True) << 5 | is_ascii << 6
        header = struct.pack("<qQqqIxxxx", 1, STRING_TYPE, len(text), -1, state)
        characters = b"".join(ord(one).to_bytes(size, "little") for one in text)
        return self.put(header + (b"" if is_ascii else bytes(16)) + characters, how.get("at_end", False))

    def bytes(self, data: bytes, size: int | None = None, at_end: bool = False) -> int:
        """A string of bytes; ``size`` is what it says of itself."""
        return self.put(struct.pack("<qQqq", 1, BYTES_TYPE, len(data) if size is None else size, -1) + data, at_end)

    def code(self, file: int, name: int, table: int, first_line: int, kind: int = CODE_TYPE) -> int:
        """Code of a function."""
        data = bytearray(INSTRUCTIONS[self.version])
        struct.pack_into("<qQ", data, 0, 1, kind)
        struct.pack_into("<i", data, 68, first_line)
        struct.pack_into("<QQxxxxxxxxQ", data, 112, file, name, table)
        return self.put(bytes(data))

    def frame(self, code: int, instruction: int, previous: int = 0, owner: int = 0) -> int:
        """A frame at an instruction of its code, by number; -1 for one that has not begun."""
        data = bytearray(88)
        begin = code + INSTRUCTIONS[self.version]
        struct.pack_into("<QQ", data, 0, code, previous)
        struct.pack_into("<Q", data, 56, (begin + 2 * instruction) % (1 << 64))
        data[OWNERS[self.version]] = owner
        return self.put(bytes(data))

    def thread(self, frame: int, ident: int = 0, following: int = 0) -> int:
        """The state of a thread, which that of another one follows."""
        data = bytearray(256)
        struct.pack_into("<QQ", data, 0, 0, following)
        struct.pack_into("<Q", data, 72, frame)
        struct.pack_into("<Q", data, self.layout.thread_ident, ident)
        return self.put(bytes(data))

    def rlock(self, owner: int, name: str = "_thread.RLock", awaited: bool = True, count: int = 1) -> int:
        """An object that may be an RLock, by the name of its type."""
        kind = self.put(struct.pack("<4Q", 1, 0, 0, self.put(name.encode() + b"\0")))
        semaphore = self.put(struct.pack("<II", 0, awaited))
        lock = 1 | 2 * awaited if self.layout.has_mutex else semaphore
        return self.put(struct.pack("<5Q", 1, kind, lock, owner, count - self.layout.has_mutex))

    def lock(self, awaited: bool = True, held: bool = True) -> int:
        """A Lock: until 3.13 with a semaphore and a flag, later with a mutex."""
        kind = self.put(struct.pack("<4Q", 1, 0, 0, self.put(b"_thread.lock\0")))
        semaphore = self.put(struct.pack("<II", not held, awaited))
        if self.layout.has_mutex:
            return self.put(struct.pack("<5Q", 1, kind, 0xAB00 | held | 2 * awaited, 0, 0))
        return self.put(struct.pack("<5Q", 1, kind, semaphore, 0, 0xAB00 | held))

    def with_statement(self, lock: int, name: str = "__exit__") -> list[int]:
        """The words that a with statement of a lock leaves in the stack, by the name of the method that ends it."""
        if not self.layout.has_mutex:
            return [self.put(struct.pack("<5Q", 1, FUNCTION_TYPE, 0, lock, 0))]
        kind = self.put(struct.pack("<4Q", 1, 0, 0, self.put(b"method_descriptor\0")))
        described = self.put(struct.pack("<Q", self.put(f"{name}\0".encode())))
        return [self.put(struct.pack("<6Q", 1, kind, 0, 0, 0, described)) | 1, lock | 1]

    def frame_with(
        self, code: int, words: Sequence[int], instruction: int = 0, exceptions: Sequence[int] = (), stack: int = 3
    ) -> int:
        """A frame that works with these words, of which the last ones are its stack, at an instruction of its code."""
        stack = min(len(words), stack)
        self.set_word(code + 40, self.bytes(bytes(exceptions)))
        self.set_word(code + 64, stack | 42 << 32)
        self.set_word(code + 72, len(words) - stack)
        data = bytearray(self.layout.variables) + struct.pack(f"<{len(words)}Q", *words)
        struct.pack_into("<Q", data, 0, code)
        struct.pack_into("<Q", data, 56, code + INSTRUCTIONS[self.version] + 2 * instruction)
        at = self.put(bytes(data))
        if self.layout.stack_end:
            self.set_word(at + self.layout.stack_end, at + len(data))
        return at

    def set_word(self, address: int, word: int) -> None:
        """Change a word."""
        struct.pack_into("<Q", self.pages, address - self.start, word)


@contextmanager
def memory_of(library: ctypes.CDLL, version: str) -> Iterator[Memory]:
    """Memory of an interpreter of this version."""
    pages = mmap.mmap(-1, _PAGES * mmap.PAGESIZE)
    view = ctypes.c_char.from_buffer(pages)
    made = Memory(version, pages, ctypes.addressof(view))
    last = ctypes.c_void_p(made.unreadable)
    system = ctypes.CDLL(None, use_errno=True)
    assert learn(library, TABLES[version], made.layout) == KNOWN
    made.layout.code_type, made.layout.string_type, made.layout.bytes_type = CODE_TYPE, STRING_TYPE, BYTES_TYPE
    made.layout.function_type = FUNCTION_TYPE
    assert system.mprotect(last, mmap.PAGESIZE, 0) == 0
    try:
        yield made
    finally:
        assert system.mprotect(last, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        del view
        pages.close()


class FrameReader:
    """Reads frames with the library; ``text`` gives the lines, and whether there are more."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def text(self, memory: Memory, frame: int, size: int = 7664) -> tuple[str, bool]:
        """The text about a thread whose innermost frame is ``frame``."""
        used, pipe, text = memory.used, (ctypes.c_int * 2)(*self._ends), ctypes.create_string_buffer(size)
        flags, thread = ctypes.c_uint32(), ctypes.c_void_p(memory.thread(frame))
        memory.used = used
        got = self._library.ss_python_text(
            ctypes.byref(memory.layout), pipe, thread, text, ctypes.c_uint32(size), ctypes.byref(flags)
        )
        return text.raw[:got].decode("ascii"), flags.value == CUT

    def awaited_lock(self, memory: Memory, frame: int) -> tuple[int, int, int] | None:
        """The lock with which ``frame`` of thread 7 works, its owner, and the word for which others wait."""
        used, pipe, found = memory.used, (ctypes.c_int * 2)(*self._ends), (ctypes.c_uint64 * 3)()
        thread = ctypes.c_void_p(memory.thread(frame, 7))
        memory.used = used
        failed = self._library.ss_find_awaited_lock(ctypes.byref(memory.layout), pipe, thread, found)
        return None if failed else (found[0], found[1], found[2])

    def state_of(self, memory: Memory, thread: int, ident: int) -> int | None:
        """The state of the thread with a number, beginning with another one."""
        return self._state("ss_python_thread", memory, thread, ident)

    def state_within(self, memory: Memory, thread: int, lock: int) -> int | None:
        """The state of the thread that is inside a with statement of a lock, beside another one."""
        return self._state("ss_python_thread_within", memory, thread, lock)

    def _state(self, function: str, memory: Memory, thread: int, number: int) -> int | None:
        find = getattr(self._library, function)
        find.restype = ctypes.c_void_p
        pipe = (ctypes.c_int * 2)(*self._ends)
        found: int | None = find(ctypes.byref(memory.layout), pipe, ctypes.c_void_p(thread), ctypes.c_uint64(number))
        return found

    def is_drained(self) -> bool:
        """Whether nothing is left in the pipe."""
        try:
            return not os.read(self._ends[0], 1)
        except BlockingIOError:
            return True

    def close(self) -> None:
        """Close the pipe."""
        for end in self._ends:
            os.close(end)
