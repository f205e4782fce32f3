"""CUDA calls from frames of every kind, through the library whose path is the first argument.

python framed_calls.py LIBCUDA CASE...

Each case makes one copy of 2 ms. The program writes the frames of its thread at that line as the interpreter itself
knows them, the innermost first, as JSON: for each case file, line and function of each frame.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SOURCE, SIZE, STREAM = ctypes.c_uint64(0x7F0000000000), ctypes.c_size_t(4), ctypes.c_void_p(0x11)
CALL_NS = 2_000_000
REST_S = 0.4
DEEP, LONG, NAME = 250, 2000, "f" * 600


class Library:
    """The driver."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.cuInit(0)
        self._target = ctypes.create_string_buffer(4)
        self.frames: list[tuple[str, int, str]] = []

    def copy(self) -> None:
        """The copy, one line below that of ``frames``."""
        self._library.stand_in_length(ctypes.c_uint64(CALL_NS))
        self.frames = frames_of(sys._getframe())
        self._library.cuMemcpyDtoHAsync_v2(self._target, SOURCE, SIZE, STREAM)


def frames_of(innermost: FrameType) -> list[tuple[str, int, str]]:
    """File, line and function of each frame."""
    found = []
    frame: FrameType | None = innermost
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found


def from_c(copy: Callable[[], object]) -> None:
    """Python called from C, twice."""
    sorted([1], key=lambda _: list(filter(lambda _: copy() or True, [1])) and 1)


def from_generator(copy: Callable[[], object]) -> None:
    """A generator in another one."""

    def inner() -> Iterator[int]:
        yield 1
        copy()
        yield 2

    def outer() -> Iterator[int]:
        yield from inner()

    for _ in outer():
        pass


def from_coroutine(copy: Callable[[], object]) -> None:
    """A coroutine behind another one, in a task."""

    async def inner() -> None:
        await asyncio.sleep(0)
        copy()

    async def outer() -> None:
        await asyncio.gather(inner())

    asyncio.run(outer())


class Made:
    """Made often enough that the interpreter calls its __init__ without C."""

    def __init__(self, copy: Callable[[], object] | None) -> None:
        if copy is not None:
            copy()

    def __call__(self, copy: Callable[[], object]) -> None:
        copy()

    def __del__(self) -> None:
        self.at_end()

    def at_end(self) -> None:
        """Nothing, unless an object has something else."""


def make(copy: Callable[[], object] | None) -> Made:
    """One of them."""
    return Made(copy)


def from_init(copy: Callable[[], object]) -> None:
    """The __init__ of an object, as the interpreter calls it when it has seen it often."""
    for _ in range(1000):
        make(None)
    make(copy)


def from_end(copy: Callable[[], object]) -> None:
    """The end of an object's life."""
    made: Any = make(None)
    made.at_end = copy
    del made


def from_exception(copy: Callable[[], object]) -> None:
    """A handler."""
    try:
        raise ValueError
    except ValueError:
        copy()


def from_comprehension(copy: Callable[[], object]) -> None:
    """A comprehension, a wrapped function, and a call over several lines."""

    @functools.wraps(from_c)
    def wrapped(*_: object) -> None:
        [
            copy()
            for _ in range(1)
        ]  # fmt: skip

    functools.partial(wrapped)(
        LONG,
        NAME,
    )


def from_deep(copy: Callable[[], object], depth: int = DEEP) -> None:
    """More frames than are recorded."""
    if depth:
        from_deep(copy, depth - 1)
    else:
        copy()


def compiled(source: str, file: str) -> dict[str, Any]:
    """What a module with this source has."""
    names: dict[str, Any] = {}
    exec(compile(source, file, "exec"), names)
    return names


def from_long(copy: Callable[[], object]) -> None:
    """A function of thousands of lines, with the call in the middle."""
    lines = ["def long(copy):", "    x = 0"]
    lines += [f"    if x == {number}: x += {number}; x -= {number}" for number in range(LONG)]
    lines += ["" for _ in range(300)] + ["    copy()"]
    lines += [f"    x = {number}" for number in range(LONG)]
    compiled("\n".join(lines), "/tmp/long.py")["long"](copy)


def from_names(copy: Callable[[], object]) -> None:
    """Names of other characters, in strings of every kind."""
    source = "def {}(copy, then):\n    then(copy)\n"
    known = [("café", "/tmp/café.py"), ("путь", "/tmp/путь.py"), ("𝒳y", "/tmp/\U0001f600.py"), ("shown", 'a"b\n\\x.py')]
    step = copy
    for name, file in known:
        # The compiler normalizes names.
        functions = [one for one in compiled(source.format(name), file).values() if callable(one)]
        step = functools.partial(functions[0], step, lambda step: step())
    step()


def from_long_name(copy: Callable[[], object]) -> None:
    """A name that is not shown as a whole, in a file without a name."""
    compiled(f"def {NAME}(copy):\n    copy()\n", "")[NAME](copy)


def from_one_name(copy: Callable[[], object]) -> None:
    """A function of the name of its file."""
    compiled("def same(copy):\n    copy()\n", "same")["same"](copy)


def main(path: str, *cases: str) -> None:
    """Run the cases."""
    library, found = Library(path), []
    for case in cases:
        function = globals()[f"from_{case}"]
        if case == "coroutine":
            thread = threading.Thread(target=function, args=(library.copy,))
            thread.start()
            thread.join()
        else:
            function(library.copy)
        (file, line, name), *others = library.frames
        found.append([(file, line + 1, name), *others])
        # A thread may spend a hundredth of its time on stacks.
        time.sleep(REST_S)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
